"""The official Python clients, unmodified, against a real namespace: duplicate detection."""

from __future__ import annotations

from datetime import timedelta

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient
from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus.testing import LocalNamespace


def test_duplicates_are_accepted_and_dropped_also_after_a_restart(namespace: LocalNamespace) -> None:
    with ServiceBusAdministrationClient.from_connection_string(
        namespace.connection_string, connection_verify=str(namespace.ca_file), retry_total=0
    ) as admin:
        admin.create_queue(
            "orders",
            requires_duplicate_detection=True,
            duplicate_detection_history_time_window=timedelta(minutes=5),
        )
        queue = admin.get_queue("orders")
        assert queue.duplicate_detection_history_time_window == timedelta(minutes=5)
        with pytest.raises(HttpResponseError):
            admin.update_queue(queue, requires_duplicate_detection=False)
    with ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client:
        for _ in range(2):
            with client.get_queue_sender("orders") as sender:
                for number in range(5):
                    sender.send_messages(ServiceBusMessage(str(number), message_id=f"id-{number}"))
                sender.send_messages([ServiceBusMessage("batch", message_id="batch")] * 2)
            namespace.restart()
        with client.get_queue_receiver("orders") as receiver:
            found = [str(message) for message in receiver.peek_messages(20, sequence_number=1)]
    assert found == ["0", "1", "2", "3", "4", "batch"]


async def test_duplicates_are_dropped_for_the_asyncio_client_too(namespace: LocalNamespace) -> None:
    namespace.create_queue("orders", requires_duplicate_detection=True)
    async with AsyncServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client:
        async with client.get_queue_sender("orders") as sender:
            for _ in range(3):
                await sender.send_messages(ServiceBusMessage("x", message_id="same"))
        async with client.get_queue_receiver("orders") as receiver:
            assert len(await receiver.peek_messages(10, sequence_number=1)) == 1


def test_a_received_message_that_is_sent_on_is_known_by_its_id(namespace: LocalNamespace) -> None:
    """The official client has bytes where it received a text, and sends them on as bytes."""
    namespace.create_queue("inbox")
    namespace.create_queue("orders", requires_duplicate_detection=True)
    with ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client:
        for queue in ("inbox", "orders"):
            with client.get_queue_sender(queue) as sender:
                sender.send_messages(ServiceBusMessage("x", message_id="42"))
        with client.get_queue_receiver("inbox") as inbox, client.get_queue_sender("orders") as sender:
            (message,) = inbox.receive_messages(1, max_wait_time=10)
            sender.send_messages(message)
        with client.get_queue_receiver("orders") as receiver:
            assert [found.message_id for found in receiver.peek_messages(10, sequence_number=1)] == ["42"]
