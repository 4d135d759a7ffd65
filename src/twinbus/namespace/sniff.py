"""The first bytes of a connection tell which language its peer speaks."""

from __future__ import annotations

from enum import Enum

TLS_HANDSHAKE = 0x16
"""The first byte of every TLS connection; no other language we speak can start with it."""

_AMQP = b"AMQP"


class Language(Enum):
    AMQP = "amqp"
    TLS = "tls"
    HTTP = "http"
    UNKNOWN = "unknown"


def language_of(first: bytes) -> Language | None:
    """What a connection that begins with these bytes speaks; None: the bytes may become more than one language.

    At most four bytes are needed. A letter is taken for the method of an HTTP request: whether the rest of the line is
    one is for an HTTP server to find out, and to say.
    """
    if not first:
        return None
    if first[0] == TLS_HANDSHAKE:
        return Language.TLS
    if first.startswith(_AMQP):
        return Language.AMQP
    if _AMQP.startswith(first):
        return None
    return Language.HTTP if first[:1].isalpha() else Language.UNKNOWN
