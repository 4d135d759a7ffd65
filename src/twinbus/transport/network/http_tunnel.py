"""A way through an HTTP proxy: CONNECT, and then whatever the two ends say."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass, field

from twinbus.websocket.http_head import HeadCollector, HeadTooLarge, HttpHead

ANSWER_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class HttpProxy:
    host: str
    port: int
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        return joined(self.host, self.port)


def joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def open_tunnel(proxy: HttpProxy, host: str, port: int) -> asyncio.Transport:
    """A transport to this host that the proxy has connected; it is not read until it gets a protocol.

    Raises `OSError` that names the proxy, and never its password.
    """
    loop = asyncio.get_running_loop()
    try:
        transport, asking = await loop.create_connection(
            lambda: _Asking(proxy, joined(host, port)), proxy.host, proxy.port
        )
    except OSError as error:
        raise ConnectionError(f"HTTP proxy {proxy.address}: {error.strerror or error}") from None
    try:
        await asking.answered
    except BaseException:
        transport.abort()
        raise
    return transport


class _Asking(asyncio.Protocol):
    def __init__(self, proxy: HttpProxy, target: str) -> None:
        self._proxy = proxy
        self._target = target
        self._head = HeadCollector(ANSWER_BYTES)
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        lines = [f"CONNECT {self._target} HTTP/1.1", f"Host: {self._target}"]
        if self._proxy.user is not None:
            login = f"{self._proxy.user}:{self._proxy.password or ''}".encode()
            lines.append(f"Proxy-Authorization: Basic {base64.b64encode(login).decode()}")
        transport.write("\r\n".join([*lines, "", ""]).encode())

    def data_received(self, data: bytes) -> None:
        if self.answered.done():
            return
        try:
            found = self._head.receive(data)
        except HeadTooLarge:
            self._fail("answers with too large a head")
            return
        if found is not None:
            self._judge(found)

    def _judge(self, found: HttpHead) -> None:
        version, _, rest = found.head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        status = rest[:3]
        if not version.startswith("HTTP/1.") or not status.isascii() or not status.isdigit():
            self._fail("does not answer in HTTP")
        elif status == "407":
            self._fail("wants a user and a password, or others (HTTP status 407)")
        elif not status.startswith("2"):
            self._fail(f"refuses a connection to {self._target} with HTTP status {status}")
        elif found.rest:
            self._fail("sends what nobody has asked for")
        else:
            self._transport.pause_reading()
            self.answered.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail("closed the connection without an answer")

    def _fail(self, text: str) -> None:
        if not self.answered.done():
            self.answered.set_exception(ConnectionError(f"HTTP proxy {self._proxy.address} {text}"))
            self.answered.exception()  # it is not always awaited
