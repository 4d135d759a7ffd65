"""The one port of a namespace: takes connections in, each as a guest, within bounds.

Faults can close the port for a while, cut every connection, or fall silent: connections are taken and kept, and nothing
is read or said.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from ipaddress import ip_address
from typing import Any, TypeAlias

from twinbus.amqp.account import Pool
from twinbus.errors import AddressInUse, TwinbusError
from twinbus.namespace.garbage import Gone
from twinbus.namespace.guest import Guest, Voice
from twinbus.namespace.limits import ServerLimits
from twinbus.namespace.ports import ports_to_try
from twinbus.namespace.sniff import Language

logger = logging.getLogger("twinbus.namespace")

BACKLOG = 512
ACCEPTS_AT_ONCE = 16
"""Then others get their turn."""
TURNED_AWAY_MAX = 64
"""So many at a time are told that there is no room; more are just let go."""
REST_S = 0.5
"""A pause in accepting when the machine has no socket left for us."""
LEAVING_S = 5.0
"""Who is hung up on and does not take the last words is cut off after that, at the latest after twice that."""
PORT_TRIES = 8

Address: TypeAlias = tuple[int, Any]
"""A family and what `bind` takes for it."""


class Listener:
    def __init__(
        self,
        host: str,
        port: int,
        *,
        limits: ServerLimits,
        voices: dict[Language, Callable[[Guest], Voice]],
        tls_context: Callable[[], ssl.SSLContext],
        tls_only: bool | None = None,
        is_dropping: Callable[[], bool] = lambda: False,
    ) -> None:
        """`voices`: who talks to guests of which language; guests of no such language are let go at once.

        `tls_only`: whether guests without TLS are told to use it; None: unless only this machine can reach the port.
        While `is_dropping`, whoever connects is reset at once.
        """
        self._tls_only = tls_only
        self._is_dropping = is_dropping
        self.port = port
        self.limits = limits
        self.voices = voices
        self.tls_context = tls_context
        self.is_silent = False
        self.guests: set[Guest] = set()
        self._strangers = Strangers(limits.unauthenticated_connections)
        self.unauthenticated = Pool(limits.unauthenticated_bytes_all)
        self.authenticated = Pool(limits.held_bytes_all)
        self._host = host
        self._sockets: list[socket.socket] = []
        self._addresses: list[Address] = []
        self._is_listening = False
        self._leaving: set[Guest] = set()
        self._gone = Gone()
        self._sweep_timer: asyncio.TimerHandle | None = None

    # --- the port ---

    async def bind(self) -> None:
        """Take the port without answering on it; harmless when it is taken by us already."""
        if not self._sockets:
            self._loop = asyncio.get_running_loop()
            with self._explaining_errors():
                found = await self._loop.getaddrinfo(
                    self._host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
                )
                self._sockets = bound_sockets([(family, address) for family, _, _, _, address in found])
            self._addresses = [(bound.family, bound.getsockname()) for bound in self._sockets]
            self.port = self._addresses[0][1][1]

    @property
    def is_tls_only(self) -> bool:
        """Whether guests without TLS are refused; known after `bind`."""
        return not self.is_for_this_machine if self._tls_only is None else self._tls_only

    @property
    def is_for_this_machine(self) -> bool:
        """Whether no other machine can reach the port; known after `bind`."""
        return all(ip_address(address[0]).is_loopback for _, address in self._addresses)

    def listen(self) -> None:
        """Take connections in."""
        with self._explaining_errors():  # another process may have begun to listen since `bind`
            for listening in self._sockets:
                listening.listen(BACKLOG)
                _let_restarts_in(listening)
        for listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)
        self._is_listening = True
        if self._sweep_timer is None:
            self._sweep()

    def pause(self) -> None:
        """Refuse connections, but keep the port; those that are there stay."""
        if self._is_listening:
            self._close_port()
            with contextlib.suppress(OSError):  # somebody was very quick: `resume` will say so
                self._sockets = bound_sockets(self._addresses)

    def resume(self) -> None:
        """Take connections in again; raises `AddressInUse` if another process took the port meanwhile."""
        if not self._is_listening:
            with self._explaining_errors():
                self._sockets = self._sockets or bound_sockets(self._addresses)
            self.listen()

    def _close_port(self) -> None:
        for listening in self._sockets:
            if self._is_listening:
                self._loop.remove_reader(listening)
            listening.close()
        self._sockets = []
        self._is_listening = False

    def close(self) -> None:
        """Give the port back, and let go who has not said yet who he is."""
        self._close_port()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        for guest in list(self.guests):
            if self.is_silent or not guest.is_known:
                guest.abort()

    @contextlib.contextmanager
    def _explaining_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._close_port()
            if error.errno == errno.EADDRINUSE:
                text = f"port {self.port} on {self._host} is taken: stop what uses it or choose another"
                raise AddressInUse(text) from None
            raise TwinbusError(f"cannot listen on {self._host}:{self.port}: {error.strerror or error}") from None

    # --- guests ---

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                sock, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._rest(listening, error)
                return
            self._take_in(sock)

    def _rest(self, listening: socket.socket, error: OSError) -> None:
        """No more files, most likely: asking again at once would only burn the processor."""
        logger.warning("no connection can be taken in: %s", error.strerror)
        self._loop.remove_reader(listening)
        self._loop.call_later(REST_S, self._end_rest, listening)

    def _end_rest(self, listening: socket.socket) -> None:
        if self._is_listening and listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _take_in(self, sock: socket.socket) -> None:
        excess = len(self.guests) - self.limits.connections
        if excess >= TURNED_AWAY_MAX:
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else small answers wait 40 ms for company
        guest = Guest(sock, self, is_turned_away=excess >= 0)
        self.guests.add(guest)
        if self._is_dropping():
            guest.abort(reset=True)
            return
        if not self.is_silent:
            guest.listen()
        self._strangers.take_in(guest)

    def recognise(self, guest: Guest) -> None:
        """It has shown who it is."""
        self._strangers.forget(guest)

    def forget(self, guest: Guest) -> None:
        """It is gone."""
        if guest in self.guests:
            self.guests.discard(guest)
            self._gone.one_more()
        self._strangers.forget(guest)
        self._leaving.discard(guest)

    def _sweep(self) -> None:
        """Cut off who was hung up on some time ago and is still there."""
        now_leaving = {guest for guest in self.guests if guest.is_leaving}
        for guest in now_leaving & self._leaving:
            guest.abort()
        self._leaving = now_leaving
        self._sweep_timer = self._loop.call_later(LEAVING_S, self._sweep)

    # --- faults ---

    def drop_connections(self) -> None:
        """Break every connection, as a network does that goes away."""
        for guest in list(self.guests):
            guest.abort(reset=True)

    def go_silent(self) -> None:
        """Take connections in, but read nothing and say nothing, on old ones neither."""
        if not self.is_silent:
            self.is_silent = True
            for guest in list(self.guests):
                guest.hush()

    def speak_again(self) -> None:
        """Read what has arrived meanwhile, and go on."""
        if self.is_silent:
            self.is_silent = False
            for guest in list(self.guests):
                guest.listen()


class Strangers:
    """Guests that have not shown who they are: so many and no more, and no address keeps others out."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._by_address: dict[str, dict[Guest, None]] = {}

    def take_in(self, guest: Guest) -> None:
        """Let it wait among them; if that is one too many, another one is cut off."""
        self._by_address.setdefault(guest.address, {})[guest] = None
        self._count += 1
        if self._count > self._most:
            crowd = max(self._by_address.values(), key=len)
            longest = next(iter(crowd))
            self.forget(longest)  # now: its connection ends later, and until then others come
            longest.abort()

    def forget(self, guest: Guest) -> None:
        crowd = self._by_address.get(guest.address, {})
        if guest in crowd:
            del crowd[guest]
            self._count -= 1
            if not crowd:
                del self._by_address[guest.address]


def bound_sockets(addresses: Sequence[Address]) -> list[socket.socket]:
    """A socket for each of these addresses, bound and not listening. All have the same port, also when 0 picks it."""
    problem: OSError | None = None
    asked = addresses[0][1][1]
    for port in ports_to_try(asked, PORT_TRIES):
        try:
            named = [(family, (host, port, *rest)) for family, (host, _, *rest) in addresses]
            return _bind_all(named, is_shared=asked != 0)
        except OSError as error:
            problem = error
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                break
    assert problem is not None, "there is at least one port to try"
    raise problem


def _let_restarts_in(sock: socket.socket) -> None:
    """Whoever binds this port after us need not wait for the end of our connections; they have this from the port."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def _bind_all(addresses: Sequence[Address], *, is_shared: bool) -> list[socket.socket]:
    made: list[socket.socket] = []
    port = addresses[0][1][1]
    try:
        for family, (host, _, *rest) in dict.fromkeys(addresses):
            sock = _bound(family, (host, port, *rest), may_be_absent=bool(made), is_shared=is_shared)
            if sock is not None:
                made.append(sock)
                port = sock.getsockname()[1]
    except BaseException:
        for sock in made:
            sock.close()
        raise
    return made


def _bound(family: int, address: Any, *, may_be_absent: bool, is_shared: bool) -> socket.socket | None:
    """A socket on this address; None for one that `may_be_absent` and is, as the IPv6 address of localhost can be.

    `is_shared`: others may bind it as well, until one of them listens. A port that nobody asked for need not be.
    """
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        if is_shared:
            _let_restarts_in(sock)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
    except OSError as error:
        sock.close()
        if may_be_absent and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            return None
        raise
    return sock
