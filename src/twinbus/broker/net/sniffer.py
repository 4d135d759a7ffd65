"""Which protocol a connection speaks, by its first bytes."""

from __future__ import annotations

from enum import Enum

TLS_HANDSHAKE = 0x16
"""The first byte of every TLS connection; no other protocol that is served can start with it."""

_AMQP = b"AMQP"


class ConnectionProtocol(Enum):
    AMQP = "amqp"
    TLS = "tls"
    HTTP = "http"
    UNKNOWN = "unknown"


def protocol_of(first: bytes) -> ConnectionProtocol | None:
    """The protocol of a connection that begins with these bytes; None: more bytes are needed, at most four.

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
    return ConnectionProtocol.HTTP if first[:1].isalpha() else ConnectionProtocol.UNKNOWN
