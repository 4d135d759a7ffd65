"""How our own AMQP engine reaches a namespace: what has to be known to connect, and nothing that connects."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

SAS_TOKEN, JWT = "servicebus.windows.net:sastoken", "jwt"
"""The kinds of token that `$cbs` knows."""


@dataclass(frozen=True, slots=True)
class Token:
    """What is put to `$cbs` to be let in."""

    text: str = field(repr=False)
    type: str
    expires_at: float
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Dial:
    host: str
    port: int
    tls: ssl.SSLContext | None
    """None: plain AMQP."""
    server_hostname: str | None
    """The name that the server's certificate has to carry; None without TLS."""
    get_token: Callable[[str], Token] = field(repr=False)
    """A fresh token for an audience as `sb://contoso.servicebus.windows.net/orders`.

    May take a while (somebody is asked over the network), but not for ever; never call it on an event loop's thread.
    """
    hostname: str | None = None
    """What `open` calls the peer, where it is not `host` (which may be a gateway on the way)."""
    name: str = ""
    """What people call the namespace; empty if nobody has said so."""

    list_queues: Callable[[], Awaitable[list[list[str]]]] | None = field(default=None, repr=False, compare=False)
    """The names of all queues, by the request that told them; None: nobody here knows how to ask.

    Raises `PermissionError` if the credential may not know, another `OSError` if nobody tells now.
    """

    @property
    def called(self) -> str:
        """What the namespace is called in records: the same whoever records."""
        return self.name or self.hostname or self.host
