"""One connection from its acceptance to its end, whatever protocol it speaks.

Its first bytes decide: perhaps there is a TLS handshake, then a handler of its protocol takes over. Until it is
authenticated (by an AMQP token or key, or by an HTTP request with the right it needs) it is on a deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from twinbus.amqp.peer_memory import Account
from twinbus.broker.net.sniffer import TLS_HANDSHAKE, ConnectionProtocol, protocol_of
from twinbus.broker.net.tls_stream import accept_tls

if TYPE_CHECKING:
    from twinbus.broker.net.listener import Listener

EXCESS_S = 5.0
"""How long a connection over the limit may take to be refused."""
TLS_SHUTDOWN_S = 1.0
CLOSE_WAIT_S = 0.5
"""How long a peer has to close by itself after our last output."""
TLS_ONLY = "this namespace takes connections over TLS only: use TLS, or serve it with --no-tls-only"
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class ProtocolHandler(asyncio.Protocol):
    """Handles one connection in its protocol; calls `mark_authenticated` and `closed` of the connection."""

    def hold(self) -> None:
        """Neither read nor write anything until `release`."""

    def release(self) -> None: ...


class AcceptedConnection:
    def __init__(self, sock: socket.socket, listener: Listener, *, is_excess: bool) -> None:
        """`is_excess`: it is over the limit of connections, and accepted only to be refused."""
        self.is_excess = is_excess
        self.address = _address(sock)
        self.transport: asyncio.Transport | None = None
        self._socket = sock
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self.handler: ProtocolHandler | None = None
        self._opening: asyncio.Task[None] | None = None
        self._is_tls = False
        self.is_authenticated = False
        self.account = Account(listener.limits.unauthenticated_bytes, listener.unauthenticated_pool, close=self.abort)
        self._deadline: asyncio.TimerHandle | None = None
        self._start_deadline()

    # --- opening ---

    def listen(self) -> None:
        """Wait for the first bytes, or go on after `hold`."""
        if self.handler is not None:
            self.handler.release()
        elif self._opening is None:
            self._loop.add_reader(self._socket, self._look_at_first_byte)
        if not self.is_authenticated:
            self._start_deadline()

    def hold(self) -> None:
        """Neither read nor write anything until `listen`."""
        if self.handler is not None:
            self.handler.hold()
        elif self._opening is None:
            self._loop.remove_reader(self._socket)

    def mark_authenticated(self) -> None:
        """End the deadline: the peer has proved a right."""
        if not self.is_authenticated:
            self.account.move(self._listener.limits.held_bytes, self._listener.authenticated_pool)
            self._listener.mark_authenticated(self)
        self.is_authenticated = True
        self._cancel_deadline()

    def closed(self) -> None:
        """The connection is gone."""
        self._cancel_deadline()
        self.account.leave()
        self._listener.forget(self)

    def new_handler(self, protocol: ConnectionProtocol) -> ProtocolHandler | None:
        """The handler of this connection from now on; None: the protocol is not served."""
        make = self._listener.handlers.get(protocol)
        if make is None:
            return None
        self.handler = make(self)
        return self.handler

    @property
    def is_closing(self) -> bool:
        """Whether we closed it; the peer may still be reading our last bytes."""
        return self.transport is not None and self.transport.is_closing()

    @property
    def must_use_tls(self) -> bool:
        """Whether it came without TLS where that is required: it is refused."""
        return self._listener.is_tls_only and not self._is_tls

    @property
    def is_held(self) -> bool:
        return self._listener.is_silent

    def free_memory(self) -> None:
        """Abort the connections that take most, as long as too much is kept for all of them."""
        for pool in (self._listener.unauthenticated_pool, self._listener.authenticated_pool):
            while pool.is_over and (largest := pool.largest()) is not None:
                largest.leave()
                largest.close()

    def _look_at_first_byte(self) -> None:
        """Look, without taking it: TLS reads its own bytes from the socket."""
        try:
            first = self._socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        self._loop.remove_reader(self._socket)
        if first:
            self._opening = self._loop.create_task(self._open_transport(is_tls=first[0] == TLS_HANDSHAKE))
            self._opening.add_done_callback(self._opened)
        else:
            self._close_socket()

    async def _open_transport(self, *, is_tls: bool) -> None:
        limits = self._listener.limits
        self._is_tls = is_tls
        with contextlib.suppress(OSError):  # no TLS after all, not in time, or gone
            if is_tls:
                context, handshake_s = self._listener.tls_context(), limits.tls_handshake_s
                sniffer = ProtocolSniffer(self)
                await accept_tls(self._socket, sniffer, context, handshake_s=handshake_s, shutdown_s=TLS_SHUTDOWN_S)
            else:
                await self._loop.connect_accepted_socket(lambda: ProtocolSniffer(self), self._socket)

    def _opened(self, _: asyncio.Task[None]) -> None:
        if self.transport is None:
            self._close_socket()

    # --- closing ---

    def abort(self, *, reset: bool = False) -> None:
        """Close without a word; with `reset` the peer sees the connection break instead of end."""
        if reset:
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        if self.transport is not None:
            self.transport.abort()
        elif self._opening is not None:
            self._opening.cancel()
        else:
            self._loop.remove_reader(self._socket)
            self._close_socket()

    def _close_socket(self) -> None:
        self._socket.close()
        self.closed()

    def _start_deadline(self) -> None:
        self._cancel_deadline()
        limit_s = self._listener.limits.unauthenticated_s
        self._deadline = self._loop.call_later(
            min(limit_s, EXCESS_S) if self.is_excess else limit_s, self._deadline_passed
        )

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _deadline_passed(self) -> None:
        if not self._listener.is_silent:  # else we are the ones that do not answer
            self.abort()


class ProtocolSniffer(ProtocolHandler):
    """Reads the first bytes of a connection, inside TLS if there is TLS, and hands it to a handler of its protocol."""

    def __init__(self, accepted: AcceptedConnection) -> None:
        self._accepted = accepted
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = self._accepted.transport = transport
        self._accepted.handler = self
        if self._accepted.is_held:
            self.hold()

    def data_received(self, data: bytes) -> None:
        self._received += data
        protocol = protocol_of(self._received)
        if protocol is None:
            return
        handler = self._accepted.new_handler(protocol)
        if handler is None:
            self._transport.close()
            return
        self._transport.set_protocol(handler)
        handler.connection_made(self._transport)
        handler.data_received(self._received)

    def connection_lost(self, error: Exception | None) -> None:
        self._accepted.closed()

    def hold(self) -> None:
        self._transport.pause_reading()

    def release(self) -> None:
        self._transport.resume_reading()


def close_gently(transport: asyncio.Transport) -> None:
    """End our output now, and close a little later, unless the peer does.

    A socket that is closed with unread input is reset, and the reset can overtake our last output. So the caller reads
    on, and throws away what comes.
    """
    if transport.is_closing():
        return
    if transport.can_write_eof():
        with contextlib.suppress(OSError):  # the peer is gone, and asyncio does not know yet
            transport.write_eof()
    asyncio.get_running_loop().call_later(CLOSE_WAIT_S, close_once, transport)


def close_once(transport: asyncio.Transport) -> None:
    """The second time, asyncio's transport for TLS forgets its state, and can be asked nothing any more."""
    if not transport.is_closing():
        transport.close()


class UnreadWatch:
    """Aborts the connection of a peer that reads nothing although a lot waits for it."""

    def __init__(self, transport: asyncio.Transport, limit_s: float, taken: Callable[[], int]) -> None:
        """`taken`: a number that grows whenever the peer reads something."""
        self._transport = transport
        self._limit_s = limit_s
        self._taken = taken
        self._taken_before = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Much output waits for the peer from now on."""
        self.end()
        self._taken_before = self._taken()
        self._timer = asyncio.get_running_loop().call_later(self._limit_s, self._look)

    def end(self) -> None:
        """Not much any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        if self._taken() > self._taken_before:
            self.begin()
        else:
            self._transport.abort()


def _address(sock: socket.socket) -> str:
    """The address of the peer's machine; empty if it is this process."""
    try:
        name = sock.getpeername()
    except OSError:  # it is gone already
        return ""
    return str(name[0]) if name else ""
