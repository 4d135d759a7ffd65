"""A peer that says more than the server does at once is heard in parts, and gets all its answers."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

from served import Served

from twinbus.amqp.codec.outcomes import Accepted
from twinbus.amqp.codec.types import Int, Long
from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import DispositionArrived, Event, TransferArrived
from twinbus.amqp.message.sections import PropertyField, encode_message
from twinbus.amqp.sasl import PLAIN, ClientSasl
from twinbus.broker.core.namespace_backend import REQUESTS_AT_ONCE
from twinbus.broker.links.dispatcher import MESSAGES_AT_ONCE
from twinbus.broker.message import BATCH_FORMAT
from twinbus.connection_string import ConnectionString

BATCHES, REQUESTS = 5, 5 * REQUESTS_AT_ONCE
WAIT_S = 60.0


def test_many_batches_and_requests_in_one_go_are_all_answered(tmp_path: Path) -> None:
    with Served("much", tmp_path, "--queue", "orders") as served:
        said = ConnectionString.parse(served.connection_string)
        connection = Connection(role=Role.CLIENT, container_id="peer", sasl=ClientSasl(PLAIN, said.key_name, said.key))
        connection.open()
        session = connection.begin()
        orders = session.attach_sender("orders", "orders")
        asking = session.attach_sender("asking", "orders/$management")
        answers = session.attach_receiver("answers", "orders/$management", snd_settle_mode=1)
        answers.grant(REQUESTS)
        with socket.create_connection((said.host, said.port), timeout=WAIT_S) as line:
            heard = exchange(line, connection, lambda: orders.credit > 0 and asking.credit > 0)
            for _ in range(BATCHES):
                batch = [encode_message(value=None)] * MESSAGES_AT_ONCE
                orders.send(encode_message(data=batch), tag=b"t", message_format=BATCH_FORMAT)
            for _ in range(REQUESTS):
                asking.send(peek(), tag=b"t", settled=True)
            heard.clear()
            exchange(line, connection, lambda: len(answered(heard)) == BATCHES + REQUESTS, heard)
        stored = served.admin.get_queue_runtime_properties("orders").active_message_count
    assert stored == BATCHES * MESSAGES_AT_ONCE


def peek() -> bytes:
    return encode_message(
        properties={PropertyField.MESSAGE_ID: "peek", PropertyField.REPLY_TO: "answers"},
        application_properties={"operation": "com.microsoft:peek-message"},
        value={"from-sequence-number": Long(1), "message-count": Int(1)},
    )


def answered(heard: list[Event]) -> list[Event | int]:
    """Every batch that was taken, and every answer to a request."""
    taken = [
        number
        for event in heard
        if isinstance(event, DispositionArrived) and isinstance(event.outcome, Accepted)
        for number, _ in event.deliveries
    ]
    return [*taken, *(event for event in heard if isinstance(event, TransferArrived))]


def exchange(
    line: socket.socket, connection: Connection, is_over: Callable[[], bool], heard: list[Event] | None = None
) -> list[Event]:
    """Say everything and hear everything until it is over."""
    found = [] if heard is None else heard
    while True:
        line.sendall(connection.take_output())
        if is_over():
            return found
        found += connection.receive(line.recv(1 << 16), int(time.monotonic() * 1000))
