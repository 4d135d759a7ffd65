"""A real server and a peer made of our own engine: what only shows on a socket."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import Opened
from twinbus.amqp.sasl import ClientSasl
from twinbus.testing import LocalNamespace

EMPTY_FRAME = b"\x00\x00\x00\x08\x02\x00\x00\x00"


@pytest.fixture
def peer(namespace: LocalNamespace) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", namespace.port), timeout=10) as peer:
        yield peer


def test_a_peer_that_asks_for_keep_alives_gets_them(peer: socket.socket) -> None:
    connection = Connection(role=Role.CLIENT, container_id="quiet", sasl=ClientSasl(), idle_timeout_ms=600)
    connection.open()
    opened = False
    while not opened:
        peer.sendall(connection.take_output())
        opened = any(isinstance(event, Opened) for event in connection.receive(peer.recv(65536), 0))
    began = time.monotonic()
    assert peer.recv(65536) == EMPTY_FRAME
    assert time.monotonic() - began < 0.6, "half of the time it asked for is when it has to come"


@pytest.mark.parametrize(
    "garbage", [b"\x7fELF", b"\x00" * 64, b"AMQP\x00\x02\x00\x00", b"AMQP\x03\x01\x00\x00\xff\xff\xff\xff"]
)
def test_garbage_ends_the_connection_and_nobody_else_notices(
    namespace: LocalNamespace, peer: socket.socket, garbage: bytes
) -> None:
    peer.sendall(garbage + b"\x00" * 64)
    while peer.recv(65536):
        pass
    with socket.create_connection(("127.0.0.1", namespace.port), timeout=10) as other:
        other.sendall(b"AMQP\x03\x01\x00\x00")
        assert other.recv(8) == b"AMQP\x03\x01\x00\x00"
