"""The one port of a namespace: accepts connections, within limits.

Faults can close the port for a while, reset every connection, or make it silent: connections are accepted and kept, and
nothing is read or written.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from ipaddress import ip_address

from twinbus.amqp.peer_memory import AccountPool
from twinbus.broker.limits import ServerLimits
from twinbus.broker.net.accepted_connection import AcceptedConnection, ProtocolHandler
from twinbus.broker.net.ports import Address, bind_sockets, let_restarts_in
from twinbus.broker.net.sniffer import ConnectionProtocol
from twinbus.broker.ops.process_memory import ClosedConnections
from twinbus.errors import AddressInUse, TwinbusError

logger = logging.getLogger("twinbus.namespace")

BACKLOG = 512
ACCEPTS_AT_ONCE = 16
"""Then others get their turn."""
EXCESS_MAX = 64
"""Connections over the limit that get an answer at the same time; further ones are closed at once."""
PAUSE_S = 0.5
"""A pause in accepting when the machine has no socket left for us."""
CLOSING_S = 5.0
"""A connection that we closed and whose peer does not read our last bytes is aborted after once or twice that."""


class Listener:
    def __init__(
        self,
        host: str,
        port: int,
        *,
        limits: ServerLimits,
        handlers: dict[ConnectionProtocol, Callable[[AcceptedConnection], ProtocolHandler]],
        tls_context: Callable[[], ssl.SSLContext],
        tls_only: bool | None = None,
        is_dropping: Callable[[], bool] = lambda: False,
    ) -> None:
        """`handlers`: by protocol; connections of any other are closed at once.

        `tls_only`: whether TLS is required; None: unless only this machine can reach the port.
        While `is_dropping`, new connections are reset at once.
        """
        self._tls_only = tls_only
        self._is_dropping = is_dropping
        self.port = port
        self.limits = limits
        self.handlers = handlers
        self.tls_context = tls_context
        self.is_silent = False
        self.connections: set[AcceptedConnection] = set()
        self._unauthenticated = UnauthenticatedConnections(limits.unauthenticated_connections)
        self.unauthenticated_pool = AccountPool(limits.unauthenticated_bytes_all)
        """The memory that unauthenticated connections take together."""
        self.authenticated_pool = AccountPool(limits.held_bytes_all)
        self._host = host
        self._sockets: list[socket.socket] = []
        self._addresses: list[Address] = []
        self._is_closed = False
        self._is_listening = False
        self._closing: set[AcceptedConnection] = set()
        self._closed = ClosedConnections()
        self._sweep_timer: asyncio.TimerHandle | None = None

    # --- the port ---

    async def bind(self) -> None:
        """Take the port without answering on it; harmless when it is taken by us already."""
        if not self._sockets:
            self._loop = asyncio.get_running_loop()
            self._is_closed = False
            with self._explaining_errors():
                found = await self._loop.getaddrinfo(
                    self._host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
                )
                self._sockets = bind_sockets([(family, address) for family, _, _, _, address in found])
            self._addresses = [(bound.family, bound.getsockname()) for bound in self._sockets]
            self.port = self._addresses[0][1][1]

    @property
    def is_tls_only(self) -> bool:
        """Whether connections without TLS are refused; known after `bind`."""
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
                let_restarts_in(listening)
        for listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)
        self._is_listening = True
        if self._sweep_timer is None:
            self._sweep()

    def pause(self) -> None:
        """Refuse connections, but keep the port; those that are there stay."""
        if self._is_listening:
            self._close_port()
            with contextlib.suppress(OSError):  # another process took it meanwhile: `resume` reports that
                self._sockets = bind_sockets(self._addresses)

    def resume(self) -> None:
        """Accept connections again, unless it is closed; raises `AddressInUse` if another process took the port."""
        if not self._is_listening and not self._is_closed:
            with self._explaining_errors():
                self._sockets = self._sockets or bind_sockets(self._addresses)
            self.listen()

    def _close_port(self) -> None:
        for listening in self._sockets:
            if self._is_listening:
                self._loop.remove_reader(listening)
            listening.close()
        self._sockets = []
        self._is_listening = False

    def close(self) -> None:
        """Give the port back, and abort unauthenticated connections."""
        self._is_closed = True
        self._close_port()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        for connection in list(self.connections):
            if self.is_silent or not connection.is_authenticated:
                connection.abort()

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

    # --- connections ---

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                sock, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause_accepting(listening, error)
                return
            self.add(sock)

    def _pause_accepting(self, listening: socket.socket, error: OSError) -> None:
        """No more files, most likely: asking again at once would only burn the processor."""
        logger.warning("no connection can be taken in: %s", error.strerror)
        self._loop.remove_reader(listening)
        self._loop.call_later(PAUSE_S, self._resume_accepting, listening)

    def _resume_accepting(self, listening: socket.socket) -> None:
        if self._is_listening and listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def add(self, sock: socket.socket) -> None:
        """Take in a connection that was accepted, or that came another way than through the port."""
        excess = len(self.connections) - self.limits.connections
        if excess >= EXCESS_MAX:
            sock.close()
            return
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else small answers wait 40 ms for company
        connection = AcceptedConnection(sock, self, is_excess=excess >= 0)
        self.connections.add(connection)
        if self._is_dropping():
            connection.abort(reset=True)
            return
        if not self.is_silent:
            connection.listen()
        self._unauthenticated.add(connection)

    def mark_authenticated(self, connection: AcceptedConnection) -> None:
        self._unauthenticated.forget(connection)

    def forget(self, connection: AcceptedConnection) -> None:
        if connection in self.connections:
            self.connections.discard(connection)
            self._closed.add()
        self._unauthenticated.forget(connection)
        self._closing.discard(connection)

    def _sweep(self) -> None:
        """Abort connections that were closed some time ago and are still there."""
        now_closing = {connection for connection in self.connections if connection.is_closing}
        for connection in now_closing & self._closing:
            connection.abort()
        self._closing = now_closing
        self._sweep_timer = self._loop.call_later(CLOSING_S, self._sweep)

    # --- faults ---

    def drop_connections(self) -> None:
        """Break every connection, as a network does that goes away."""
        for connection in list(self.connections):
            connection.abort(reset=True)

    def go_silent(self) -> None:
        """Accept connections, but neither read nor write anything, on old ones neither."""
        if not self.is_silent:
            self.is_silent = True
            for connection in list(self.connections):
                connection.hold()

    def speak_again(self) -> None:
        """Read what has arrived meanwhile, and go on."""
        if self.is_silent:
            self.is_silent = False
            for connection in list(self.connections):
                connection.listen()


class UnauthenticatedConnections:
    """Limits how many there are, without letting one address keep the others out."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._by_address: dict[str, dict[AcceptedConnection, None]] = {}

    def add(self, connection: AcceptedConnection) -> None:
        """Add one; if that is one too many, the oldest of the address with most of them is aborted."""
        self._by_address.setdefault(connection.address, {})[connection] = None
        self._count += 1
        if self._count > self._most:
            same_address = max(self._by_address.values(), key=len)
            longest = next(iter(same_address))
            self.forget(longest)  # now: its connection ends later, and until then others come
            longest.abort()

    def forget(self, connection: AcceptedConnection) -> None:
        same_address = self._by_address.get(connection.address, {})
        if connection in same_address:
            del same_address[connection]
            self._count -= 1
            if not same_address:
                del self._by_address[connection.address]
