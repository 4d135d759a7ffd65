"""Two namespaces of one process, each with an event loop on a thread of its own, share nothing that peers say."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from twinbus.testing import NamespacePair

ROUNDS = 10
"""When they shared the buffer that connections are read into, one connection in ten was lost."""


def test_connections_to_both_at_a_time_are_heard_as_they_speak(namespace_pair: NamespacePair) -> None:
    for namespace in namespace_pair:
        namespace.create_queue("orders")

    def connect_and_send(number: int) -> None:
        namespace = namespace_pair[number % 2]
        with (
            ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client,
            client.get_queue_sender("orders") as sender,
        ):
            sender.send_messages(ServiceBusMessage("x" * 20_000))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(connect_and_send, range(2 * ROUNDS)))
