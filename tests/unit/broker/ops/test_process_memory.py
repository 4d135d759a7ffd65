"""What connections leave behind is given back, however few objects it is for Python."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from twinbus.broker.ops import process_memory as garbage
from twinbus.broker.ops.process_memory import CONNECTIONS_PER_LOOK, ClosedConnections
from twinbus.broker.server import NamespaceServer
from twinbus.options import NamespaceOptions

WAIT_S = 30.0


def test_after_very_many_connections_what_they_left_is_looked_for() -> None:
    looks: list[int] = []
    gone = ClosedConnections(lambda: looks.append(1))
    for _ in range(CONNECTIONS_PER_LOOK - 1):
        gone.add()
    assert not looks
    for _ in range(CONNECTIONS_PER_LOOK + 1):
        gone.add()
    assert len(looks) == 2


async def test_a_connection_that_is_gone_is_not_kept_until_python_looks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "CONNECTIONS_PER_LOOK", 1)
    gc.disable()
    try:
        async with NamespaceServer(NamespaceOptions(name="contoso", port=0)) as server, asyncio.timeout(WAIT_S):
            first = await come_and_go(server)
            while first() is not None:
                await come_and_go(server)  # the look comes while the last one is still leaving
    finally:
        gc.enable()


async def come_and_go(server: NamespaceServer) -> weakref.ref[object]:
    """Connect, and hang up when the server has noticed; what the server had for it, until that is gone."""
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"AMQP\x03\x01\x00\x00")
    while not server.amqp.connections:
        await asyncio.sleep(0.001)
    wire: weakref.ref[object] = weakref.ref(next(iter(server.amqp.connections)))
    writer.transport.abort()
    while server.amqp.connections:
        await asyncio.sleep(0.001)
    return wire
