"""HTTP behind our own port: the application sets no limits for connections, the server does."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest
from aiohttp import web
from steady_time import steady_time

from twinbus.broker.admin.error_responses import error_response
from twinbus.broker.limits import ServerLimits
from twinbus.broker.net.http_server import HttpServer
from twinbus.broker.net.listener import Listener
from twinbus.broker.net.sniffer import ConnectionProtocol

WAIT_S = 60
SOON_S = 0.8
GET = b"GET /%b HTTP/1.1\r\nHost: localhost\r\n\r\n"


def post(body: bytes, *, said: int | None = None) -> bytes:
    size = len(body) if said is None else said
    return b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (size, body)


@pytest.fixture(autouse=True)
async def stalls_do_not_count() -> AsyncIterator[None]:
    with steady_time():
        yield


class Open(NamedTuple):
    """A running HTTP server and its listener."""

    http_server: HttpServer
    listener: Listener


def app() -> web.Application:
    """Says how much it was sent; /large has a large answer."""

    async def count(request: web.Request) -> web.Response:
        return web.Response(text=f"got {len(await request.read())}")

    async def large(request: web.Request) -> web.Response:
        return web.Response(body=b"x" * 20_000_000)

    async def broken(request: web.Request) -> web.Response:
        raise ValueError("a mistake of ours")

    made = web.Application(client_max_size=1_000)
    made.router.add_get("/large", large)
    made.router.add_get("/broken", broken)
    made.router.add_route("*", "/{path:.*}", count)
    return made


@asynccontextmanager
async def opened(limits: ServerLimits) -> AsyncIterator[Open]:
    http_server = HttpServer(app(), limits, lambda request: None, error_response)
    await http_server.open()
    listener = Listener(
        "127.0.0.1",
        0,
        limits=limits,
        handlers={ConnectionProtocol.HTTP: http_server.handler_of},
        tls_context=lambda: pytest.fail("no TLS here"),
    )
    await listener.bind()
    listener.listen()
    try:
        yield Open(http_server, listener)
    finally:
        listener.close()
        await http_server.close()
        async with asyncio.timeout(WAIT_S):
            while listener.connections:
                await asyncio.sleep(0)


class Caller:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.say = writer.write

    async def answer(self) -> tuple[int, str]:
        """Status and body of the next answer."""
        async with asyncio.timeout(WAIT_S):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
            size = int(head.lower().split("content-length: ")[1].split("\r\n")[0])
            return int(head.split()[1]), (await self._reader.readexactly(size)).decode()

    async def line(self) -> bytes:
        async with asyncio.timeout(WAIT_S):
            return await self._reader.readline()

    async def end(self) -> bytes:
        """What comes until the connection ends."""
        async with asyncio.timeout(WAIT_S):
            return await self._reader.read()


@asynccontextmanager
async def calling(listener: Listener, *, receive_bytes: int | None = None) -> AsyncIterator[Caller]:
    sock = socket.socket()
    if receive_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", listener.port))
    reader, writer = await asyncio.open_connection(sock=sock)
    try:
        yield Caller(reader, writer)
    finally:
        writer.transport.abort()


async def test_requests_reach_the_application_one_after_the_other() -> None:
    async with opened(ServerLimits()) as (_, listener), calling(listener) as caller:
        caller.say(post(b"12345") + GET % b"")
        assert await caller.answer() == (200, "got 5")
        assert await caller.answer() == (200, "got 0")


async def test_a_body_that_is_too_large_is_refused_with_the_limit() -> None:
    async with opened(ServerLimits()) as (_, listener), calling(listener) as caller:
        caller.say(post(b"x" * 1_001))
        status, body = await caller.answer()
        assert status == 413
        assert "at most 1000 bytes" in body


async def test_a_body_of_unknown_size_that_is_too_large_is_refused_with_the_limit() -> None:
    async with opened(ServerLimits()) as (_, listener), calling(listener) as caller:
        caller.say(b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        caller.say(b"258\r\n%b\r\n258\r\n%b\r\n0\r\n\r\n" % (b"x" * 600, b"x" * 600))
        status, body = await caller.answer()
        assert (status, "at most 1000 bytes" in body) == (413, True)


async def test_a_first_body_that_drips_gets_an_answer_before_the_timeout() -> None:
    async with opened(ServerLimits(unauthenticated_s=4 * SOON_S)) as (_, listener), calling(listener) as caller:
        await asyncio.sleep(SOON_S)  # patience is for the whole way in, not for the body alone
        caller.say(post(b"drip", said=100))
        status, body = await caller.answer()
        assert (status, "in time" in body) == (408, True)


async def test_a_body_that_does_not_come_is_no_request() -> None:
    limits = ServerLimits(unauthenticated_s=SOON_S)
    async with opened(limits) as (_, listener), calling(listener) as caller:
        caller.say(GET % b"")
        assert await caller.answer() == (200, "got 0")
        caller.say(post(b"12345", said=100))
        status, body = await caller.answer()
        assert (status, "in time" in body) == (408, True)
        assert await caller.end() == b""


@pytest.mark.parametrize(
    "words", [b"GET\x00", b"GET / HTTP/9\r\n\r\n", b"GET / HTTP/1.1\r\nbad header\r\n\r\n", post(b"12345", said=100)]
)
async def test_nonsense_and_leaving_early_are_not_worth_a_line_in_the_log(
    words: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(ServerLimits()) as (_, listener):
        async with calling(listener) as caller:
            caller.say(words)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(caller.end(), SOON_S)
        async with asyncio.timeout(WAIT_S):
            while listener.connections:
                await asyncio.sleep(0.01)
    assert caplog.records == []


async def test_an_application_that_fails_is_worth_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(ServerLimits()) as (_, listener), calling(listener) as caller:
        caller.say(GET % b"broken")
        assert (await caller.answer())[0] == 500
    assert [record.name for record in caplog.records] == ["twinbus.http"]


async def test_who_has_asked_once_may_keep_the_connection_for_a_while() -> None:
    limits = ServerLimits(unauthenticated_s=SOON_S, http_idle_s=3 * SOON_S)
    async with opened(limits) as (_, listener), calling(listener) as caller:
        caller.say(GET % b"")
        assert await caller.answer() == (200, "got 0")
        await asyncio.sleep(2 * SOON_S)
        caller.say(GET % b"")
        assert await caller.answer() == (200, "got 0")
        assert await caller.end() == b"", "but not for ever"


async def test_without_room_the_answer_comes_at_once_and_is_the_last() -> None:
    async with opened(ServerLimits(connections=1)) as (_, listener), calling(listener) as first:
        first.say(GET % b"")
        assert await first.answer() == (200, "got 0")
        async with calling(listener) as second:
            second.say(post(b"never comes", said=1_000))
            status, body = await second.answer()
            assert (status, "<Error><Code>503</Code>" in body) == (503, True)
            assert await second.end() == b""


async def test_who_never_reads_the_answer_is_cut_off() -> None:
    async with opened(ServerLimits(unread_s=SOON_S)) as (_, listener), calling(listener, receive_bytes=4096) as deaf:
        deaf.say(GET % b"large")
        async with asyncio.timeout(WAIT_S):
            while not listener.connections:
                await asyncio.sleep(0.01)
            while listener.connections:
                await asyncio.sleep(0.01)


async def test_who_reads_slowly_gets_the_whole_answer() -> None:
    async with opened(ServerLimits(unread_s=SOON_S)) as (_, listener), calling(listener) as slow:
        slow.say(GET % b"large")
        got = 0
        async with asyncio.timeout(WAIT_S):
            while got < 20_000_000:
                got += len(await slow._reader.read(1_000_000))
                await asyncio.sleep(0.02)


async def test_in_silence_a_request_waits() -> None:
    async with opened(ServerLimits()) as (http_server, listener), calling(listener) as caller:
        caller.say(GET % b"")
        assert await caller.answer() == (200, "got 0")
        http_server.go_silent()
        caller.say(GET % b"")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(caller.answer(), SOON_S)
        http_server.speak_again()
        assert await caller.answer() == (200, "got 0")


EXPECTING = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (b"GET / HTTP/9\r\n\r\n", b"HTTP/1.0 400 "),
        (EXPECTING, b"HTTP/1.1 100 "),
        (GET % b"", b"HTTP/1.1 200 "),
    ],
    ids=["nonsense", "expectation", "request"],
)
async def test_in_silence_nothing_is_said_on_connections_that_were_there(words: bytes, answer: bytes) -> None:
    async with opened(ServerLimits()) as (http_server, listener), calling(listener) as caller:
        caller.say(GET % b"")
        assert await caller.answer() == (200, "got 0")
        listener.go_silent()
        http_server.go_silent()
        caller.say(words)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(caller.answer(), SOON_S)
        http_server.speak_again()
        listener.speak_again()
        assert (await caller.line()).startswith(answer)


async def test_an_answer_that_was_under_way_when_silence_came_is_kept_for_later() -> None:
    async with opened(ServerLimits(http_idle_s=SOON_S)) as (_, listener), calling(listener) as caller:
        caller.say(post(b"", said=5))
        await until(lambda: any(connection.transport is not None for connection in listener.connections))
        await asyncio.sleep(SOON_S)
        listener.go_silent()
        (connection,) = listener.connections
        assert isinstance(connection.transport, asyncio.Transport)
        connection.transport.get_protocol().data_received(b"12345")  # type: ignore[attr-defined]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(caller.end(), 2 * SOON_S)
        listener.speak_again()
        assert await caller.answer() == (200, "got 5")
        assert await caller.end() == b"", "its time was over in the silence"


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not is_true():
            await asyncio.sleep(0.01)


async def test_closing_ends_idle_connections_and_those_that_wait_in_silence() -> None:
    async with (
        opened(ServerLimits()) as (http_server, listener),
        calling(listener) as idle,
        calling(listener) as waiting,
    ):
        for caller in (idle, waiting):
            caller.say(GET % b"")
            assert await caller.answer() == (200, "got 0")
        http_server.go_silent()
        waiting.say(GET % b"")
        listener.close()
        await http_server.close()
        assert await idle.end() == b""
        await waiting.end()


def test_a_refusal_quotes_what_it_was_asked() -> None:
    answer = error_response(404, 40400, "nothing at <here> & there")
    said = "<Error><Code>404</Code><Detail>SubCode=40400. nothing at &lt;here&gt; &amp; there</Detail></Error>"
    assert (answer.text or "").endswith(said)
