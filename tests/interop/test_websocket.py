"""AMQP over WebSocket on the one port: what it carries, how it ends, and what those get who mean no good."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from websocket_peer import WebSocketPeer, websocket_peer
from wsproto.events import AcceptConnection, CloseConnection, Ping, Pong, RejectConnection, TextMessage

from twinbus.amqp.events import (
    Attached,
    ConnectionClosed,
    DispositionArrived,
    LinkRefused,
    Opened,
    TransferArrived,
)
from twinbus.amqp.message.sections import encode_message
from twinbus.broker.limits import ServerLimits
from twinbus.broker.server import NamespaceServer
from twinbus.options import NamespaceOptions

WAIT_S = 40
SOON_S = 0.3
"""A bound that tests can wait for."""


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[NamespaceServer]:
    given = {"name": "contoso", "port": 0, "queues": ("orders",), **options}
    async with NamespaceServer(NamespaceOptions(**given)) as server:
        yield server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NamespaceServer]:
    async with serving(data=tmp_path) as running:
        yield running


@asynccontextmanager
async def connected(
    server: NamespaceServer, *, is_tls: bool = False, receive_bytes: int | None = None
) -> AsyncIterator[WebSocketPeer]:
    """A peer whose WebSocket is open, and that has not said anything through it."""
    tls = ssl.create_default_context(cafile=server.ca_file) if is_tls else None
    async with websocket_peer(server.port, server.key, tls=tls, receive_bytes=receive_bytes) as peer:
        assert isinstance(await peer.upgrade(), AcceptConnection)
        yield peer


async def wait_until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not is_so():
            await asyncio.sleep(0.01)


def connections_of(server: NamespaceServer) -> int:
    return len(server._endpoint.listener.connections)


# --- what it carries ---


@pytest.mark.parametrize(("is_tls", "message_bytes"), [(False, 1), (False, 1_000_000), (True, 10_000)])
async def test_a_message_goes_there_and_back_whatever_frames_carry_it(
    server: NamespaceServer, is_tls: bool, message_bytes: int
) -> None:
    size = 500 if message_bytes == 1 else 200_000
    async with connected(server, is_tls=is_tls) as peer:
        link = peer.session.attach_sender("sender", "orders")
        await peer.until(Attached, message_bytes=message_bytes)
        link.send(encode_message(data=b"x" * size))
        await peer.until(DispositionArrived, message_bytes=message_bytes)
        receiver = peer.session.attach_receiver("receiver", "orders")
        receiver.grant(1)
        arrived = await peer.until(TransferArrived)
        assert isinstance(arrived, TransferArrived)
        assert b"x" * size in arrived.payload


async def test_many_messages_one_after_the_other_all_arrive(server: NamespaceServer) -> None:
    async with connected(server) as peer:
        link = peer.session.attach_sender("sender", "orders")
        await peer.until(Attached)
        for _ in range(2_000):
            link.send(encode_message(data=b"x" * 100))
        peer.flush(message_bytes=700)
        queue = server.gate.machine.registry.find_queue("orders")
        await wait_until(lambda: queue.active == 2_000)


async def test_the_standard_subprotocol_and_a_final_slash_are_fine_too(server: NamespaceServer) -> None:
    async with websocket_peer(server.port, server.key) as peer:
        answer = await peer.upgrade("/$servicebus/websocket/", ("amqp",))
        assert isinstance(answer, AcceptConnection)
        assert answer.subprotocol == "amqp"
        await peer.until(Opened)


async def test_a_wrong_key_is_refused_as_without_a_websocket(server: NamespaceServer) -> None:
    async with websocket_peer(server.port, "wrong") as peer:
        await peer.upgrade()
        with pytest.raises(ConnectionError):
            await peer.until(Opened)


async def test_http_next_to_it_is_as_ever(server: NamespaceServer) -> None:
    async with connected(server):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /$servicebus/websockets HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 4")
        writer.transport.abort()


# --- how it ends ---


async def test_after_the_close_of_amqp_the_websocket_is_closed_too(server: NamespaceServer) -> None:
    async with connected(server) as peer:
        await peer.until(Opened)
        peer.connection.close()
        await peer.until(ConnectionClosed)
        assert await peer.rest() == [CloseConnection(code=1000, reason="")]
    await wait_until(lambda: connections_of(server) == 0)


async def test_a_close_of_the_websocket_is_answered_and_ends_all(server: NamespaceServer) -> None:
    async with connected(server) as peer:
        await peer.until(Opened)
        peer.say(CloseConnection(code=1001))
        assert await peer.rest() == [CloseConnection(code=1001, reason="")]
        await wait_until(lambda: not server.amqp.connections)


async def test_what_was_sent_before_the_close_counts(server: NamespaceServer) -> None:
    async with connected(server) as peer:
        link = peer.session.attach_sender("sender", "orders")
        await peer.until(Attached)
        for _ in range(200):
            link.send(encode_message(data=b"42"))
        peer.flush(message_bytes=50)
        peer.say(CloseConnection(code=1000))
        queue = server.gate.machine.registry.find_queue("orders")
        await wait_until(lambda: queue.active == 200)


async def test_a_server_that_stops_says_so_through_the_websocket(tmp_path: Path) -> None:
    async with serving(data=tmp_path) as server, connected(server) as peer:
        await peer.until(Opened)
        stopping = asyncio.create_task(server.stop())
        closed = await peer.until(ConnectionClosed)
        assert isinstance(closed, ConnectionClosed)
        assert closed.error is not None
        assert await peer.rest() == [CloseConnection(code=1000, reason="")]
        await stopping


async def test_a_connection_that_breaks_is_forgotten(server: NamespaceServer) -> None:
    async with connected(server) as peer:
        await peer.until(Opened)
        peer.writer.transport.abort()
        await wait_until(lambda: not server.amqp.connections)
        assert connections_of(server) == 0


# --- refused ---


async def test_without_tls_it_is_refused_where_tls_is_required() -> None:
    async with serving(tls_only=True) as server, websocket_peer(server.port, server.key) as peer:
        answer = await peer.upgrade()
        assert isinstance(answer, RejectConnection)
        assert answer.status_code == 403
        await peer.rest()


async def test_over_the_limit_of_connections_it_is_refused_and_told_to_come_later() -> None:
    limits = ServerLimits(connections=1)
    async with serving(server_limits=limits) as server, connected(server) as first:
        await first.until(Opened)
        async with websocket_peer(server.port, server.key) as second:
            answer = await second.upgrade()
            assert isinstance(answer, RejectConnection)
            assert answer.status_code == 503
            assert (b"retry-after", b"10") in answer.headers
        first.session.attach_sender("still", "orders")
        await first.until(Attached)


async def test_another_subprotocol_is_refused_with_the_names_of_ours(server: NamespaceServer) -> None:
    async with websocket_peer(server.port, server.key) as peer:
        answer = await peer.upgrade(subprotocols=("mqtt",))
        assert isinstance(answer, RejectConnection)
        assert answer.status_code == 400
        said = await peer.rest()
        assert b"AMQPWSB10, amqp" in b"".join(getattr(event, "data", b"") for event in said)
    await wait_until(lambda: connections_of(server) == 0)


@pytest.mark.parametrize(
    ("frame", "code"),
    [(b"\x82\x05amqp!", 1002), (b"\x82\xfe\x00\x01\x00\x00\x00\x00x", 1002), (b"\xc2\x80\x00\x00\x00\x00", 1002)],
    ids=["not masked", "a length written too long", "compressed"],
)
async def test_frames_against_the_rules_end_the_connection(server: NamespaceServer, frame: bytes, code: int) -> None:
    async with connected(server) as peer:
        await peer.until(Opened)
        peer.writer.write(frame)
        (closed,) = await peer.rest()
        assert isinstance(closed, CloseConnection)
        assert closed.code == code
    await wait_until(lambda: not server.amqp.connections)


async def test_text_ends_the_connection(server: NamespaceServer) -> None:
    async with connected(server) as peer:
        peer.say(TextMessage(data="AMQP"))
        (closed,) = await peer.rest()
        assert isinstance(closed, CloseConnection)
        assert closed.code == 1003


# --- those who take their time ---

HEAD = (
    b"GET /$servicebus/websocket HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: AMQPWSB10\r\nSec-WebSocket-Key: eHh4eHh4eHh4eHh4eHh4eA==\r\n"
)
PING = b"\x89\x80\x00\x00\x00\x00"


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(HEAD[:10], id="half a path"),
        pytest.param(HEAD, id="half a head"),
        pytest.param(HEAD + b"\r\n", id="a WebSocket and nothing in it"),
        pytest.param(HEAD + b"\r\n\x82\x88\x00\x00\x00\x00AMQP", id="half a frame"),
        pytest.param(HEAD + b"\r\n\x82\x88\x00\x00\x00\x00AMQP\x03\x01\x00\x00", id="only a SASL header"),
    ],
)
async def test_who_never_authenticates_is_let_go_however_often_it_pings(words: bytes) -> None:
    limits = ServerLimits(unauthenticated_s=SOON_S)
    async with serving(server_limits=limits) as server, websocket_peer(server.port, server.key) as slow:
        slow.writer.write(words)
        pinging = asyncio.create_task(_ping(slow.writer)) if words.endswith(b"\r\n\r\n") else None
        await hung_up(slow.reader)
        if pinging is not None:
            pinging.cancel()
        await wait_until(lambda: connections_of(server) == 0)


async def hung_up(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(WAIT_S):
        with suppress(ConnectionError):
            while await reader.read(65536):
                pass


async def _ping(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(PING)
        await asyncio.sleep(0.01)


# --- pings and those who do not listen ---


async def test_a_ping_is_answered_in_between(server: NamespaceServer) -> None:
    async with connected(server) as peer:
        await peer.until(Opened)
        peer.say(Ping(payload=b"are you there?"))
        assert await peer.until_said(Pong) == Pong(payload=b"are you there?")


async def test_a_stranger_that_pings_and_never_reads_is_cut_off(server: NamespaceServer) -> None:
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    server._endpoint.listener.add(ours)
    async with websocket_peer(server.port, server.key, sock=theirs) as peer:
        await peer.upgrade()
        assert isinstance(peer.writer.transport, asyncio.Transport)
        peer.writer.transport.pause_reading()
        ping = peer.websocket.send(Ping(payload=b"x" * 125))
        most = 3 * ServerLimits().unauthenticated_bytes // len(ping)
        for _ in range(most):
            peer.writer.write(ping)
            if not connections_of(server):
                break
            await asyncio.sleep(0)
        assert connections_of(server) == 0


async def test_tiny_frames_of_one_peer_do_not_keep_another_waiting(server: NamespaceServer) -> None:
    async with connected(server) as noisy, connected(server) as calm:
        link = calm.session.attach_sender("sender", "orders")
        await calm.until(Attached)
        noisy.writer.write(b"\x82\x80\x00\x00\x00\x00" * 500_000)
        link.send(encode_message(data=b"42"))
        async with asyncio.timeout(WAIT_S):
            await calm.until(DispositionArrived)


async def test_a_receiver_that_never_reads_is_cut_off() -> None:
    async with serving(server_limits=ServerLimits(unread_s=SOON_S)) as server, connected(server) as sender:
        link = sender.session.attach_sender("filler", "orders")
        await sender.until(Attached)
        for _ in range(40):
            link.send(encode_message(data=b"x" * 250_000))
            await sender.until(DispositionArrived)
        others = set(server.amqp.connections)
        async with connected(server, receive_bytes=4096) as deaf:
            receiver = deaf.session.attach_receiver("deaf", "orders")
            await deaf.until(Attached)
            receiver.grant(40)
            deaf.flush()
            assert isinstance(deaf.writer.transport, asyncio.Transport)
            deaf.writer.transport.pause_reading()
            await wait_until(lambda: set(server.amqp.connections) == others)


# --- faults ---


async def test_in_silence_nobody_is_answered_and_afterwards_everybody_is(server: NamespaceServer) -> None:
    async with connected(server) as peer, websocket_peer(server.port, server.key) as new:
        await peer.until(Opened)
        server._endpoint.go_silent()
        peer.session.attach_sender("sender", "orders")
        peer.flush()
        peer.say(Ping(payload=b"x"))
        upgrading = asyncio.create_task(new.upgrade())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await peer.reader.read(1)
        assert not upgrading.done()
        server._endpoint.speak_again()
        await peer.until(Attached)
        await peer.until_said(Pong)
        assert isinstance(await upgrading, AcceptConnection)
        await new.until(Opened)


async def test_a_namespace_that_drops_connections_drops_these(server: NamespaceServer) -> None:
    async with connected(server) as peer:
        await peer.until(Opened)
        server._endpoint.drop_connections()
        with pytest.raises(ConnectionError):
            await peer.until(Attached)


async def test_a_missing_queue_is_refused_with_its_condition(server: NamespaceServer) -> None:
    async with connected(server) as peer:
        peer.session.attach_sender("sender", "missing")
        refused = await peer.until(LinkRefused)
        assert isinstance(refused, LinkRefused)
        assert refused.error is not None
        assert refused.error.condition == "amqp:not-found"
