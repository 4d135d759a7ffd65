"""The syphon's connection to a real namespace."""

from __future__ import annotations

import asyncio

import pytest
from wire_relay import Relay

from twinbus import Namespace
from twinbus.testing import LocalNamespace
from twinbus.transport.connection import NamespaceConnection

WAIT_S = 60.0


async def test_many_queues_that_are_opened_at_once_need_few_links_before_the_first_token() -> None:
    """A namespace keeps little for a peer that has not shown who it is, and cuts off one that wants more."""
    names = [f"queue-{number}" for number in range(30)]
    with LocalNamespace("contoso", queues=names) as namespace:
        dial = Namespace.from_connection_string(namespace.connection_string).dial(WAIT_S)
        connection = NamespaceConnection(dial, attempt_s=WAIT_S)
        await connection.open()
        await asyncio.gather(*[connection.probe_receiver(name) for name in names])
        assert connection.is_open
        await connection.close()


async def test_a_connection_whose_closing_is_cancelled_is_closed_all_the_same() -> None:
    with LocalNamespace("contoso", queues=["orders"]) as namespace, Relay(namespace.port) as relay:
        through_relay = namespace.connection_string.replace(f":{namespace.port}", f":{relay.port}")
        dial = Namespace.from_connection_string(through_relay).dial(WAIT_S)
        connection = NamespaceConnection(dial, attempt_s=WAIT_S)
        await connection.open()
        await connection.probe_receiver("orders")
        closing = asyncio.create_task(connection.close())
        await asyncio.sleep(0)  # it has begun
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await asyncio.to_thread(relay.wait_until_all_left)
