"""How an HTTP connection becomes a WebSocket that carries AMQP: asked by a client, answered by a server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from wsproto.connection import ConnectionType
from wsproto.events import AcceptConnection, RejectConnection, Request
from wsproto.handshake import H11Handshake
from wsproto.utilities import RemoteProtocolError

from twinbus.websocket.framing import WebSocketFraming
from twinbus.websocket.http_head import HeadCollector, HeadTooLarge

PATH = "/$servicebus/websocket"
SUBPROTOCOLS = ("AMQPWSB10", "amqp")
"""The name that clients of the service use, and the standard's."""
HANDSHAKE_BYTES = 16 * 1024


class Upgrade(NamedTuple):
    """The server accepts."""

    answer: bytes
    rest: bytes
    """What the client has sent already."""


class Refusal(NamedTuple):
    answer: bytes
    """After it the connection is closed."""


class UpgradeHandshake:
    def __init__(self) -> None:
        self._head = HeadCollector(HANDSHAKE_BYTES)

    def receive(self, data: bytes) -> Upgrade | Refusal | None:
        """What to do about the request, once its head has arrived whole."""
        try:
            found = self._head.receive(data)
        except HeadTooLarge:
            return refusal(431, f"The head of a request has at most {HANDSHAKE_BYTES} bytes.")
        return None if found is None else _answer(*found)


def refusal(status: int, text: str, headers: Iterable[tuple[str, str]] = ()) -> Refusal:
    """An answer over HTTP that says why there is no WebSocket."""
    body = f"{text}\n".encode()
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in headers)]
    lines += ["Content-Type: text/plain; charset=utf-8", f"Content-Length: {len(body)}", "Connection: close"]
    return Refusal("\r\n".join([*lines, "", ""]).encode() + body)


def _answer(head: bytes, rest: bytes) -> Upgrade | Refusal:
    handshake = H11Handshake(ConnectionType.SERVER)
    try:
        handshake.receive_data(head)
        request = next(handshake.events())
    except RemoteProtocolError as error:
        return _refusal_of(error)
    except (UnicodeError, StopIteration):
        return refusal(400, "The request cannot be read.")
    assert isinstance(request, Request)
    if not is_path(request.target):
        return refusal(404, f"AMQP over WebSocket is served at {PATH}.")
    name = _subprotocol_of(request.subprotocols)
    if name is None:
        return refusal(400, f"Sec-WebSocket-Protocol has to name one of these: {', '.join(SUBPROTOCOLS)}.")
    return Upgrade(handshake.send(AcceptConnection(subprotocol=name)), rest)


def is_path(target: str) -> bool:
    """Whether a request is for AMQP over WebSocket, with or without a final slash, or the host before it."""
    path = urlsplit(target).path if target.lower().startswith(("http://", "https://")) else target.partition("?")[0]
    return unquote(path).removesuffix("/").lower() == PATH


def _subprotocol_of(offered: Sequence[str]) -> str | None:
    """The first one that we speak, as the client writes it."""
    known = {name.lower() for name in SUBPROTOCOLS}
    return next((name for name in offered if name.lower() in known), None)


def _refusal_of(error: RemoteProtocolError) -> Refusal:
    hint = error.event_hint
    if not isinstance(hint, RejectConnection):
        return refusal(400, f"{error}.")
    headers = [(name.decode(), value.decode()) for name, value in hint.headers]
    return refusal(hint.status_code, f"{error}.", headers)


class UpgradeRefused(Exception):
    """There is no WebSocket; the text says why."""


class UpgradeRequest:
    """The client's part: send `request`, then `receive` what the server answers."""

    def __init__(self, host: str) -> None:
        """`host` with its port, unless it is the usual one."""
        self._handshake = H11Handshake(ConnectionType.CLIENT)
        self._head = HeadCollector(HANDSHAKE_BYTES)
        asked = Request(host=host, target=PATH, subprotocols=[SUBPROTOCOLS[0]])
        self.request = self._handshake.send(asked)

    def receive(self, data: bytes) -> WebSocketFraming | None:
        """What reads and writes from now on, once the server has accepted. Raises `UpgradeRefused`."""
        try:
            found = self._head.receive(data)
        except HeadTooLarge:
            raise UpgradeRefused("the answer to a WebSocket request has too large a head") from None
        if found is None:
            return None
        try:
            self._handshake.receive_data(found.head)
            answer = next(self._handshake.events())
        except (RemoteProtocolError, UnicodeError, StopIteration):
            raise UpgradeRefused("the answer to a WebSocket request cannot be read") from None
        if isinstance(answer, RejectConnection):
            raise UpgradeRefused(f"the server refused a WebSocket with HTTP status {answer.status_code}")
        assert self._handshake.connection is not None
        framing = WebSocketFraming(self._handshake.connection)
        framing.receive(found.rest)
        return framing
