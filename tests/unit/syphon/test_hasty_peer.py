"""A peer that answers before anybody has time to wait for it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from connection_harness import NOW_MS, ConnectionHarness

from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.sasl import ANONYMOUS, ServerSasl
from twinbus.broker.links.dispatcher import LinkDispatcher
from twinbus.client.namespace import Namespace
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.links.peek import peek

WAIT_S = 60


class HastyPeer(asyncio.Transport):
    """A namespace in memory whose answers are there while the question is still being written."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._protocol = protocol
        self._ours = Connection(role=Role.SERVER, container_id="hasty", sasl=ServerSasl((ANONYMOUS,)))
        self._dispatcher = LinkDispatcher(self._ours, ConnectionHarness().context, lambda: None, lambda: None)
        self._is_closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._dispatcher.take(self._ours.receive(bytes(data), NOW_MS), NOW_MS)
        answer = self._ours.take_output()
        if answer:
            self._protocol.data_received(answer)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True

    abort = close


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> NamespaceConnection:
    """A line to such a peer, not open yet."""

    async def connect(
        _loop: object, make: Any, *_address: object, **_tls: object
    ) -> tuple[HastyPeer, asyncio.Protocol]:
        protocol = make()
        peer = HastyPeer(protocol)
        protocol.connection_made(peer)
        return peer, protocol

    monkeypatch.setattr(asyncio.SelectorEventLoop, "create_connection", connect)
    text = "Endpoint=sb://localhost:5672;SharedAccessKeyName=root;SharedAccessKey=key;UseDevelopmentEmulator=true"
    return NamespaceConnection(
        Namespace.from_connection_string(text).dial(WAIT_S), attempt_s=WAIT_S, clock=lambda: NOW_MS
    )


async def test_an_answer_to_an_attach_is_heard_however_soon_it_comes(hasty: NamespaceConnection) -> None:
    async with asyncio.timeout(WAIT_S / 4):
        await hasty.open()
        assert await peek(hasty, "orders", 1, 1) == []
        await hasty.close()
