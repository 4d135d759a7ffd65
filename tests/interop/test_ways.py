"""Every way to a namespace for our own engine: straight or through an HTTP proxy, with TLS or without, as AMQP or in a
WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from connect_proxy import ConnectProxy

from twinbus.amqp.events import DispositionArrived, TransferArrived
from twinbus.amqp.message.sections import encode_message
from twinbus.client.namespace import Namespace
from twinbus.connection_string import ConnectionString
from twinbus.pairing.sending.failure import FailureKind
from twinbus.testing import LocalNamespace
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.failures import ConnectionFailed
from twinbus.transport.links.link_handler import LinkHandler

WAIT_S = 30.0
SOON_S = 0.3
USER, PASSWORD = "me", "p@ss;word"
LARGE = b"x" * 200_000


@pytest.fixture(scope="module")
def namespace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNamespace]:
    with LocalNamespace("contoso", data=tmp_path_factory.mktemp("contoso")) as running:
        running.create_queue("orders")
        yield running


def written(namespace: LocalNamespace, *, is_tls: bool, is_websocket: bool, proxy: ConnectProxy | None) -> str:
    """The connection string that says this way."""
    parts = [namespace.connection_string.replace("UseDevelopmentEmulator=true", f"UseDevelopmentEmulator={not is_tls}")]
    parts += [f"TransportType={'AmqpWebSockets' if is_websocket else 'Amqp'}"]
    parts += [] if proxy is None else [f"TwinbusProxy=http://{USER}:p%40ss%3Bword@127.0.0.1:{proxy.port}"]
    return ";".join(parts)


def connection(text: str, *, attempt_s: float = WAIT_S, **options: Any) -> NamespaceConnection:
    return NamespaceConnection(Namespace.from_connection_string(text).dial(attempt_s), attempt_s=attempt_s, **options)


class Arrivals(LinkHandler):
    def __init__(self) -> None:
        super().__init__()
        self.first: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def on_transfers(self, transfers: list[TransferArrived]) -> None:
        if not self.first.done():
            self.first.set_result(transfers[0].payload)


class Settled(LinkHandler):
    def __init__(self) -> None:
        super().__init__()
        self.is_settled = asyncio.Event()

    def on_disposition(self, event: DispositionArrived) -> None:
        self.is_settled.set()


async def failed_opening(text: str, attempt_s: float = WAIT_S) -> ConnectionFailed:
    with pytest.raises(ConnectionFailed) as failed:
        await connection(text, attempt_s=attempt_s).open()
    assert "p@ss" not in str(failed.value)
    return failed.value


@pytest.mark.parametrize("is_proxied", [False, True], ids=["straight", "proxied"])
@pytest.mark.parametrize("is_websocket", [False, True], ids=["amqp", "websocket"])
@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
async def test_a_message_goes_there_and_back(
    namespace: LocalNamespace, is_tls: bool, is_websocket: bool, is_proxied: bool
) -> None:
    with ConnectProxy(user=USER, password=PASSWORD) as proxy:
        way = written(namespace, is_tls=is_tls, is_websocket=is_websocket, proxy=proxy if is_proxied else None)
        async with connection(way) as opened, asyncio.timeout(WAIT_S):
            await send(opened, LARGE)
            arrivals = Arrivals()
            receiver = await opened.open_receiver("orders", arrivals)
            receiver.grant(1)
            opened.flush()
            assert LARGE in await arrivals.first
        assert proxy.asked == ([f"127.0.0.1:{namespace.port}"] if is_proxied else [])


async def send(opened: NamespaceConnection, body: bytes) -> None:
    handler = Settled()
    link = await opened.open_sender("orders", handler)
    await handler.wait_for_credit(link, WAIT_S, "orders")
    link.send(encode_message(data=body), tag=b"t")
    opened.flush()
    await handler.is_settled.wait()


# --- proxies that do not connect ---


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "HTTP status 403"),
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "407"),
        (b"HTTP/1.1 502 Bad Gateway\r\nX-Text: \xff\r\n\r\n", "HTTP status 502"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "does not answer in HTTP"),
        (b"HTTP/1.1 200 OK\r\n\r\nhello", "nobody has asked for"),
        (b"HTTP/1.1 200 OK\r\nX-Filler: " + b"x" * 20_000, "too large a head"),
        (b"HTTP/1.1 200", "without an answer"),
    ],
)
async def test_a_proxy_that_does_not_connect_is_an_unreachable_namespace(
    namespace: LocalNamespace, answer: bytes, text: str
) -> None:
    with ConnectProxy(answer=answer) as proxy:
        failed = await failed_opening(written(namespace, is_tls=False, is_websocket=False, proxy=proxy))
    assert failed.failure.kind is FailureKind.UNREACHABLE
    assert text in str(failed)
    assert f"HTTP proxy 127.0.0.1:{proxy.port}" in str(failed)


async def test_a_wrong_password_for_the_proxy_is_said(namespace: LocalNamespace) -> None:
    with ConnectProxy(user=USER, password="another") as proxy:
        failed = await failed_opening(written(namespace, is_tls=True, is_websocket=True, proxy=proxy))
    assert "user and a password" in str(failed)


async def test_a_silent_proxy_costs_one_attempt(namespace: LocalNamespace) -> None:
    with ConnectProxy(answer=b"") as proxy:
        failed = await failed_opening(written(namespace, is_tls=False, is_websocket=True, proxy=proxy), SOON_S)
    assert failed.failure.kind is FailureKind.NO_ANSWER


async def test_a_proxy_that_is_not_there_is_named(namespace: LocalNamespace) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    text = f"{namespace.connection_string};TwinbusProxy=http://127.0.0.1:{port}"
    assert f"HTTP proxy 127.0.0.1:{port}" in str(await failed_opening(text))


async def test_a_proxy_that_dies_is_a_lost_connection(namespace: LocalNamespace) -> None:
    with ConnectProxy(user=USER, password=PASSWORD) as proxy:
        lost: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        way = written(namespace, is_tls=True, is_websocket=True, proxy=proxy)
        async with connection(way, on_lost=lost.set_result) as opened, asyncio.timeout(WAIT_S):
            proxy.cut()
            assert (await lost).is_connection
            assert not opened.is_open


# --- servers that speak no WebSocket ---


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "HTTP status 404"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP status 200"),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", "cannot be read"),
        (b"AMQP\x00\x01\x00\x00\r\n\r\n", "cannot be read"),
        (b"HTTP/1.1 101 Switching\r\nX-Filler: " + b"x" * 20_000, "too large a head"),
        (b"HTTP/1.1 101", "while a WebSocket was asked for"),
    ],
)
async def test_a_server_without_websockets_is_an_unreachable_namespace(answer: bytes, text: str) -> None:
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(say, "127.0.0.1", 0)
    async with server:
        said = ConnectionString(host="127.0.0.1", port=server.sockets[0].getsockname()[1], namespace="x", key="key")
        failed = await failed_opening(f"{said};TransportType=AmqpWebSockets")
    assert failed.failure.kind is FailureKind.UNREACHABLE
    assert text in str(failed)


async def test_a_server_that_never_answers_the_upgrade_costs_one_attempt() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        said = ConnectionString(host="127.0.0.1", port=silent.getsockname()[1], namespace="x", key="key")
        failed = await failed_opening(f"{said};TransportType=AmqpWebSockets", SOON_S)
    assert failed.failure.kind is FailureKind.NO_ANSWER


async def test_a_cancelled_opening_leaves_no_connection(namespace: LocalNamespace) -> None:
    with ConnectProxy(answer=b"") as proxy:
        opening = asyncio.create_task(
            connection(written(namespace, is_tls=False, is_websocket=True, proxy=proxy)).open()
        )
        async with asyncio.timeout(WAIT_S):
            while not proxy.asked:
                await asyncio.sleep(0.01)
        opening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await opening
        (one,) = proxy._open
        assert await asyncio.to_thread(one.recv, 1) == b""
