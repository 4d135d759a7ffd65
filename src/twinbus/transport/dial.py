"""What has to be known to connect to a namespace."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import quote_plus

from twinbus.transport.network.http_tunnel import HttpProxy

SAS_TOKEN, JWT = "servicebus.windows.net:sastoken", "jwt"
"""The token types of `$cbs`."""
KEY_TOKEN_S = 3_600
"""How long a token made from a key is good."""


@dataclass(frozen=True, slots=True)
class CbsToken:
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
    """The name that the server's certificate must have; None without TLS."""
    get_token: Callable[[str], CbsToken] = field(repr=False)
    """A new token for an audience, e.g. `sb://contoso.servicebus.windows.net/orders`.

    May ask over the network, so it must not be called on the thread of an event loop. It returns in bounded time.
    """
    hostname: str | None = None
    """The peer's name in `open` if it is not `host`, which may be a gateway."""
    name: str = ""
    """The display name of the namespace; may be empty."""
    over_websocket: bool = False
    """AMQP inside a WebSocket."""
    proxy: HttpProxy | None = None
    """The HTTP proxy to go through."""

    list_queues: Callable[[], Awaitable[list[list[str]]]] | None = field(default=None, repr=False, compare=False)
    """The names of all queues, one list per request; None: listing is not supported here.

    Raises `PermissionError` if the credential may not list, another `OSError` if the request fails.
    """

    connect: Callable[[Callable[[], asyncio.Protocol]], Awaitable[None]] | None = field(
        default=None, repr=False, compare=False
    )
    """Connects a protocol to a peer that has no address, e.g. one in this process; None: `host` and `port` are it.

    Raises `OSError` if nobody is there.
    """

    @property
    def ledger_name(self) -> str:
        return self.name or self.hostname or self.host


def key_token(audience: str, key_name: str, key: str) -> CbsToken:
    """A shared access signature for this audience, made with a key."""
    expires_at = int(time.time()) + KEY_TOKEN_S
    resource = quote_plus(audience)
    digest = hmac.new(key.encode(), f"{resource}\n{expires_at}".encode(), hashlib.sha256).digest()
    signature = quote_plus(base64.b64encode(digest))
    text = f"SharedAccessSignature sr={resource}&sig={signature}&se={expires_at}&skn={quote_plus(key_name)}"
    return CbsToken(text, SAS_TOKEN, expires_at)
