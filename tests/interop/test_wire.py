"""A real server and a peer made of our own engine: what only shows on a socket."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus.amqp.codec.outcomes import ACCEPTED
from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import ConnectionClosed, DispositionArrived, Event, Opened
from twinbus.amqp.message.sections import encode_message
from twinbus.amqp.sasl import ClientSasl
from twinbus.testing import LocalNamespace

EMPTY_FRAME = b"\x00\x00\x00\x08\x02\x00\x00\x00"


@pytest.fixture
def peer(namespace: LocalNamespace) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", namespace.port), timeout=30) as peer:
        yield peer


def test_a_peer_that_asks_for_keep_alives_gets_them(peer: socket.socket) -> None:
    connection = Connection(role=Role.CLIENT, container_id="quiet", sasl=ClientSasl(), idle_timeout_ms=8_000)
    connection.open()
    opened = False
    while not opened:
        peer.sendall(connection.take_output())
        opened = any(isinstance(event, Opened) for event in connection.receive(peer.recv(65536), 0))
    began = time.monotonic()
    assert peer.recv(65536) == EMPTY_FRAME
    assert time.monotonic() - began < 8, "half of the time it asked for is when it has to come"


@pytest.mark.parametrize(
    "garbage", [b"\x7fELF", b"\x00" * 64, b"AMQP\x00\x02\x00\x00", b"AMQP\x03\x01\x00\x00\xff\xff\xff\xff"]
)
def test_garbage_ends_the_connection_and_nobody_else_notices(
    namespace: LocalNamespace, peer: socket.socket, garbage: bytes
) -> None:
    peer.sendall(garbage + b"\x00" * 64)
    while peer.recv(65536):
        pass
    with socket.create_connection(("127.0.0.1", namespace.port), timeout=30) as other:
        other.sendall(b"AMQP\x03\x01\x00\x00")
        assert other.recv(8) == b"AMQP\x03\x01\x00\x00"


def test_a_sender_in_full_flow_hears_the_goodbye_and_every_answer(tmp_path: Path) -> None:
    """A socket closed on unread bytes is reset, and a reset can destroy what was said before it."""
    namespace = LocalNamespace(data=tmp_path, queues=["orders"], key="key")
    namespace.start()
    connection = Connection(
        role=Role.CLIENT, container_id="busy", sasl=ClientSasl("PLAIN", "RootManageSharedAccessKey", "key")
    )
    connection.open()
    link = connection.begin().attach_sender("link", "orders")
    heard: list[Event] = []
    with socket.create_connection(("127.0.0.1", namespace.port), timeout=30) as peer:
        while not link.attached:
            peer.sendall(connection.take_output())
            heard += connection.receive(peer.recv(65536), 0)
        stopping = threading.Thread(target=namespace.stop)
        for number in range(400):
            link.send(encode_message(data=b"x" * 50_000), tag=number.to_bytes(4, "big"))
            if number == 200:
                stopping.start()
            try:
                peer.sendall(connection.take_output())
            except OSError:
                break  # hung up: whatever was said before is still to be read
        while data := peer.recv(65536):
            heard += connection.receive(data, 0)
    stopping.join()
    assert isinstance(heard[-1], ConnectionClosed)
    assert heard[-1].error is not None
    assert heard[-1].error.condition == "amqp:connection:forced"
    answers = [event for event in heard if isinstance(event, DispositionArrived)]
    accepted = sum(len(event.deliveries) for event in answers if event.outcome == ACCEPTED)
    with LocalNamespace(data=tmp_path, key="key") as again:
        admin = ServiceBusAdministrationClient.from_connection_string(
            again.connection_string, connection_verify=str(again.ca_file)
        )
        assert admin.get_queue_runtime_properties("orders").total_message_count == accepted


def test_a_peer_that_never_authenticates_is_disconnected() -> None:
    """Without a key one can open a connection, but not keep one of the places."""
    with LocalNamespace(limits={"unauthenticated_s": 2.0}) as namespace:
        connection = Connection(role=Role.CLIENT, container_id="stranger", sasl=ClientSasl())
        connection.open()
        connection.begin()
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", namespace.port), timeout=30) as peer:
            peer.sendall(connection.take_output())
            opened = False
            try:
                while data := peer.recv(65536):
                    opened = opened or any(isinstance(event, Opened) for event in connection.receive(data, 0))
                    peer.sendall(connection.take_output() + (EMPTY_FRAME if opened else b""))
            except ConnectionError:
                pass
        assert opened
        assert 1.9 < time.monotonic() - began < 25


def test_a_port_that_somebody_took_meanwhile_is_taken_back_when_it_is_free() -> None:
    with LocalNamespace() as namespace:
        namespace.faults.add("unreachable", how="refuse")
        other = socket.socket()
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", namespace.port))
        other.listen()
        namespace.faults.clear()
        other.close()
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", namespace.port), timeout=1).close()
                break
            except OSError:
                assert time.monotonic() < deadline, "the port never came back"
                time.sleep(0.05)
