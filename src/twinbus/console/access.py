"""Who is let in. No clock and no chance of its own: both are arguments.

A browser sends cookies along with requests of foreign pages, and resolves names as a foreign server likes. So each
request has to name a host that is ours (else a foreign name could be made to lead here), to come from our own page
(`Origin`, `Sec-Fetch-Site`), and, if it changes anything, to prove that our page has sent it (`X-Twinbus-Proof`), which
a foreign page cannot read.

A session is a signed cookie, so nothing is remembered for it: with the same token it outlives a restart.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

SESSION_S = 12 * 3600
PROOF_HEADER = "X-Twinbus-Proof"
WRONG_TOKENS_MAX, WRONG_TOKENS_S = 20, 10.0
"""So many wrong tokens of one peer are answered in that time; then it is not let in for as long. Others are."""
PEERS_MAX = 1_000
"""Peers whose wrong tokens are counted: those of late."""
IPV6_NETWORK = 64
"""Bits of an IPv6 address that make a peer: whoever has one address of such a network has them all."""
SAFE_METHODS = ("GET", "HEAD")
OWN_SITES = ("same-origin", "none")
"""What `Sec-Fetch-Site` says of requests of our own page, and of an address that somebody typed."""


class AccessRefusal(Enum):
    """Why a request is not answered."""

    FOREIGN_HOST = "this console does not have that name: use an address that twinbus console has printed"
    FOREIGN_ORIGIN = "this request was sent by another page"
    NO_SESSION = "open the address that twinbus console has printed: it holds the token"
    NO_PROOF = "this request does not come from the console's page: load it again"
    WRONG_TOKEN = "that token is wrong"  # noqa: S105
    TOO_MANY_TOKENS = "too many wrong tokens: wait ten seconds"


@dataclass(frozen=True, slots=True)
class ConsoleSession:
    """Somebody who has shown the token."""

    proof: str
    """What requests that change anything have to carry."""
    until: float
    """When it is over, in seconds since 1970."""


class ConsoleAccess:
    """Decides about heads of requests."""

    def __init__(self, token: str, hosts: Iterable[str], *, is_tls: bool) -> None:
        """`hosts`: what `Host` may say, e.g. `127.0.0.1:9470`."""
        self._token = token.encode()
        self._hosts = frozenset(host.casefold() for host in hosts)
        self._scheme = "https" if is_tls else "http"
        self._wrong: OrderedDict[str, list[float]] = OrderedDict()
        """By peer, when it has shown a wrong token."""

    def check_source(self, method: str, path: str, headers: Mapping[str, str]) -> AccessRefusal | None:
        """Whether the request may come from where it comes from, whoever sends it."""
        host = headers.get("Host", "").casefold()
        if host not in self._hosts:
            return AccessRefusal.FOREIGN_HOST
        origin, site = headers.get("Origin"), headers.get("Sec-Fetch-Site")
        is_own_origin = origin is not None and origin.casefold() == f"{self._scheme}://{host}"
        if origin is not None and not is_own_origin:
            return AccessRefusal.FOREIGN_ORIGIN
        if method not in SAFE_METHODS and not is_own_origin:
            return AccessRefusal.FOREIGN_ORIGIN
        is_page = path == "/" and method in SAFE_METHODS  # a link elsewhere may lead here; it comes without the cookie
        if site is not None and site not in OWN_SITES and not is_page:
            return AccessRefusal.FOREIGN_ORIGIN
        return None

    # --- the token ---

    def check_token(self, header: str | None, address: str, now: float) -> AccessRefusal | None:
        """`header`: that of `Authorization`, e.g. `Bearer 3f2a...`; `address`: of whoever sends it."""
        peer = peer_of(address)
        wrong = [at for at in self._wrong.get(peer, ()) if now - at < WRONG_TOKENS_S]
        if len(wrong) >= WRONG_TOKENS_MAX:
            return AccessRefusal.TOO_MANY_TOKENS
        kind, _, given = (header or "").partition(" ")
        if kind.casefold() == "bearer" and hmac.compare_digest(_encoded(given.strip()), self._token):
            return None
        self._wrong[peer] = [*wrong, now]
        self._wrong.move_to_end(peer)
        if len(self._wrong) > PEERS_MAX:
            self._wrong.popitem(last=False)
        return AccessRefusal.WRONG_TOKEN

    # --- sessions ---

    def new_cookie(self, nonce: str, now: float) -> str:
        """The value of a cookie that proves for some hours that somebody had the token."""
        said = f"{round(now) + SESSION_S}.{nonce}"
        return f"{said}.{self._sign('session', said)}"

    def session_of(self, cookie: str | None, now: float) -> ConsoleSession | None:
        """None: there is none, it is over, or it was made with another token."""
        until, _, rest = (cookie or "").partition(".")
        nonce, _, signature = rest.partition(".")
        if not (until.isascii() and until.isdigit() and len(until) < 16 and nonce):
            return None
        if not hmac.compare_digest(_encoded(signature), self._sign("session", f"{until}.{nonce}").encode()):
            return None
        return ConsoleSession(self._sign("proof", nonce), float(until)) if int(until) > now else None

    def check_proof(self, session: ConsoleSession, method: str, headers: Mapping[str, str]) -> AccessRefusal | None:
        if method in SAFE_METHODS:
            return None
        given = headers.get(PROOF_HEADER, "")
        return None if hmac.compare_digest(_encoded(given), session.proof.encode()) else AccessRefusal.NO_PROOF

    def _sign(self, what: str, text: str) -> str:
        return hmac.new(self._token, _encoded(f"{what}:{text}"), hashlib.sha256).hexdigest()


def _encoded(text: str) -> bytes:
    """As it came: a header may have bytes that are not text."""
    return text.encode("utf-8", "surrogateescape")


def host_names(host: str, port: int, others: Iterable[str] = (), *, is_tls: bool = False) -> list[str]:
    """What `Host` may say of a server that listens there. `others`: further names of the machine."""
    names = [*others]
    if is_loopback(host):
        names += ["localhost", "127.0.0.1", "[::1]"]
    elif not is_every_address(host):
        names.append(f"[{host}]" if ":" in host else host)
    usual = 443 if is_tls else 80
    return [f"{name}:{port}" for name in names] + (names if port == usual else [])


def peer_of(address: str) -> str:
    """Who has an address, as far as wrong tokens are counted."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.ip_network((found, IPV6_NETWORK), strict=False))
    return str(found)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host.casefold() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_every_address(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
