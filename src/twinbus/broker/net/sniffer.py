"""Which protocol a connection speaks, by its first bytes."""

from __future__ import annotations

from enum import Enum

TLS_HANDSHAKE = 0x16
"""The first byte of every TLS connection; no other protocol that is served can start with it."""

_AMQP = b"AMQP"
_WEBSOCKET_REQUESTS = (b"get /$servicebus/websocket", b"get /%24servicebus/websocket")
_BEHIND_PATH = (b" ", b"/", b"?")
_WHOLE_ADDRESSES = (b"get http://", b"get https://")
"""So the Java client begins; HTTP allows it."""
HOST_BYTES_MAX = 261
"""Of a host's name with its port."""


class ConnectionProtocol(Enum):
    AMQP = "amqp"
    TLS = "tls"
    HTTP = "http"
    WEBSOCKET = "websocket"
    """AMQP over WebSocket, which begins as HTTP."""
    UNKNOWN = "unknown"


def protocol_of(first: bytes) -> ConnectionProtocol | None:
    """The protocol of a connection that begins with these bytes; None: more bytes are needed, at most 29.

    With the name of a host in the request's first line it is that much more, up to `HOST_BYTES_MAX` and the scheme.

    A letter is taken for the method of an HTTP request: the HTTP server finds out whether the rest of the line is one.
    """
    if not first:
        return None
    if first[0] == TLS_HANDSHAKE:
        return ConnectionProtocol.TLS
    if first.startswith(_AMQP):
        return ConnectionProtocol.AMQP
    if _AMQP.startswith(first):
        return None
    return _protocol_of_request(first) if first[:1].isalpha() else ConnectionProtocol.UNKNOWN


def _protocol_of_request(first: bytes) -> ConnectionProtocol | None:
    for start in _WHOLE_ADDRESSES:
        beginning = first[: len(start)].lower()
        if beginning == start:
            return _protocol_behind_host(first[len(start) :])
        if start.startswith(beginning):
            return None
    return _protocol_by_path(first)


def _protocol_behind_host(rest: bytes) -> ConnectionProtocol | None:
    host, slash, _ = rest[: HOST_BYTES_MAX + 1].partition(b"/")
    if b" " in host or len(host) > HOST_BYTES_MAX:
        return ConnectionProtocol.HTTP
    return _protocol_by_path(b"get /" + rest[len(host) + 1 :]) if slash else None


def _protocol_by_path(first: bytes) -> ConnectionProtocol | None:
    for line in _WEBSOCKET_REQUESTS:
        beginning, behind = first[: len(line)].lower(), first[len(line) : len(line) + 1]
        if beginning == line and behind in _BEHIND_PATH:
            return ConnectionProtocol.WEBSOCKET
        if line.startswith(beginning) and not behind:
            return None
    return ConnectionProtocol.HTTP
