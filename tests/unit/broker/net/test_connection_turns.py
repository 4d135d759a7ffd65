"""A connection stands in line once, whatever changes while it is heard."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, cast

from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import DispositionArrived
from twinbus.amqp.message.sections import encode_message
from twinbus.amqp.sasl import PLAIN, ClientSasl
from twinbus.broker.server import NamespaceServer
from twinbus.connection_string import ConnectionString
from twinbus.options import NamespaceOptions


async def test_a_connection_that_may_go_on_in_the_middle_of_its_step_is_in_line_once() -> None:
    most = 0
    async with NamespaceServer(NamespaceOptions(name="contoso", port=0, queues=("orders",))) as server:
        said = ConnectionString.parse(server.connection_string)
        reader, writer = await asyncio.open_connection(said.host, said.port)
        peer = Connection(role=Role.CLIENT, container_id="peer", sasl=ClientSasl(PLAIN, said.key_name, said.key))
        peer.open()
        link = peer.begin().attach_sender("to-orders", "orders")
        async with asyncio.timeout(30):
            while not link.attached:
                writer.write(peer.take_output())
                peer.receive(await reader.read(65536), 0)
        after_action, enqueue = server.amqp.after_action, server.amqp.turns.enqueue
        must_wait = [True]

        def relieved() -> None:
            """What kept the connection waiting ends just now."""
            must_wait[0] = False
            after_action()
            must_wait[0] = True

        def counted(source: Any) -> None:
            nonlocal most
            enqueue(source)
            most = max(most, [each[2] for each in server.amqp.turns._authenticated].count(source))

        server.amqp.must_wait_for_disk = lambda sender: must_wait[0]  # type: ignore[method-assign]
        server.amqp.after_action = relieved
        server.amqp.turns.enqueue = counted  # type: ignore[method-assign]
        for _ in range(20):
            link.send(encode_message(data=b"x"), tag=b"t")
        writer.write(peer.take_output())
        for _ in range(20):
            await asyncio.sleep(0.002)
        must_wait[0] = False
        server.amqp.after_action = after_action
        server.amqp.after_action()
        answered = 0
        async with asyncio.timeout(30):
            while answered < 20:
                events = peer.receive(await reader.read(65536), 0)
                answered += sum(len(each.deliveries) for each in events if isinstance(each, DispositionArrived))
        writer.close()
    assert most <= 1


async def test_over_tls_a_connection_that_is_closed_already_can_be_flushed_and_the_namespace_stopped() -> None:
    """asyncio's transport for TLS forgets its own state when it is closed a second time."""
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    async with NamespaceServer(NamespaceOptions(name="contoso", port=0)) as server:
        said = ConnectionString.parse(server.connection_string)
        reader, writer = await asyncio.open_connection(said.host, said.port, ssl=trusting)
        peer = Connection(role=Role.CLIENT, container_id="peer", sasl=ClientSasl(PLAIN, said.key_name, said.key))
        peer.open()
        async with asyncio.timeout(30):
            while peer.remote_open is None:
                writer.write(peer.take_output())
                peer.receive(await reader.read(65536), 0)
            (connection,) = server.amqp.connections
            # It does not answer the end of TLS either: the server waits for that.
            cast("asyncio.Transport", writer.transport).pause_reading()
            peer.close()
            writer.write(peer.take_output())
            while not connection.connection.closed:
                await asyncio.sleep(0.002)
        assert connection in server.amqp.connections
        connection.flush()
    writer.transport.abort()
