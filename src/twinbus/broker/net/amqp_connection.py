"""One AMQP connection: bytes to the engine, events to its links, output back to the socket.

Reading stops while too much is not written to disk yet, or while the peer does not read what it asked for; delivering
stops while the peer does not read: neither direction can make the process grow.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from twinbus.amqp.codec.outcomes import Error
from twinbus.amqp.events import Event
from twinbus.broker.links.disk_fairness import DecayingSum
from twinbus.broker.links.dispatcher import LinkDispatcher, outlasts_connection
from twinbus.broker.net.accepted_connection import (
    TLS_ONLY,
    AcceptedConnection,
    ProtocolHandler,
    UnreadWatch,
    close_gently,
    close_once,
)
from twinbus.earliest_timer import EarliestTimer

if TYPE_CHECKING:
    from twinbus.broker.net.amqp_server import AmqpServer

FRAMES_PER_STEP = 256
"""Frames of one peer that are processed before it is another one's turn."""
UNAUTHENTICATED_FRAMES_PER_STEP = 16
"""The same of an unauthenticated peer. Each may be a token, which takes long to check."""
READ_BYTES, UNAUTHENTICATED_READ_BYTES = 256 * 1024, 16 * 1024
"""Read from a peer at once."""
WRITE_BUFFER_BYTES = 1024 * 1024
"""With more than this unsent, nothing is delivered."""
PILE_BYTES = 4 * WRITE_BUFFER_BYTES
"""With more than this unsent, the peer is not read either: it does not read what it asked for."""


class AmqpConnection(ProtocolHandler, asyncio.BufferedProtocol):
    def __init__(self, server: AmqpServer, accepted: AcceptedConnection) -> None:
        self._server = server
        self._accepted = accepted
        self.connection = server.new_connection(accepted.account, takes_passwords=not accepted.must_use_tls)
        self.links = LinkDispatcher(self.connection, server.context, self.flush, self.abort)
        self._timer = EarliestTimer(self._tick)
        self._is_open = False
        self._is_stopped = False
        self._is_closing = False
        self._is_silent = False
        self._is_read_paused = False
        self._is_writable = True
        self._is_delivering = True
        self._is_taking_answers = True
        self._written = 0
        self._unsent_cost = 0
        self._kept_cost = 0
        self._unread_input: list[bytes] = []
        self._untaken_events: list[Event] = []
        """Events of the engine that the links have not taken yet."""
        self._is_queued = False
        self._is_blocked = False
        self._is_lost = False
        """Whether the connection is lost; input of before may still have to be processed."""
        self.time_used = DecayingSum()

    # --- called by asyncio ---

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._server.buffer if self.is_authenticated else self._server.buffer[:UNAUTHENTICATED_READ_BYTES]

    def buffer_updated(self, size: int) -> None:
        self.data_received(bytes(self._server.buffer[:size]))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._unread = UnreadWatch(transport, self._server.limits.unread_s, self._taken)
        self._server.connections.add(self)
        self._set_timer()

    def data_received(self, data: bytes) -> None:
        if self._is_closing or self._transport.is_closing():
            return
        has_more = self._has_more
        self._unread_input.append(data)
        self._accepted.account.charge(len(data))
        if not self._is_queued and not has_more:
            self._is_queued = self._server.turns.process(self)
            self._pause_or_read()

    @property
    def is_authenticated(self) -> bool:
        return self._accepted.is_authenticated

    def step(self, until: float) -> bool:
        """Process a part of the input; whether to be called again soon."""
        if self._is_closing or self._is_silent:
            self._is_queued = False
            return False
        self._is_queued = True  # nobody else queues it meanwhile
        try:
            self._process_part(until)
        finally:
            self._is_queued = False
        if self._is_lost and not self._has_more:
            self._finish()
            return False
        self._is_queued = self._has_more and not self._has_to_pause()
        self._pause_or_read()
        return self._is_queued

    def _process_part(self, until: float) -> None:
        now_ms = self._server.clock()
        self._untaken_events = self._untaken_events or self._read_events(now_ms)
        if self._is_lost:
            self._untaken_events = [event for event in self._untaken_events if outlasts_connection(event)]
        if self._accepted.is_excess or self._accepted.must_use_tls:
            self._untaken_events = []
        else:
            clock = self._server.turns.clock
            self._untaken_events = self.links.take(
                self._untaken_events, now_ms, lambda: self._has_to_pause() or clock() >= until
            )
            if not self._accepted.is_authenticated and self.links.is_authenticated:
                self._accepted.mark_authenticated()
        if self._is_lost and not self._has_more:
            return
        self.flush()
        self._set_timer()  # the peer may have asked for keep-alives
        self._server.after_action()

    def _read_events(self, now_ms: int) -> list[Event]:
        data = self._take_input()
        frames_max = FRAMES_PER_STEP if self.is_authenticated else UNAUTHENTICATED_FRAMES_PER_STEP
        events = self.connection.receive(data, now_ms, frames_max)
        if not self._is_open:
            self._check_open()
        return events

    def _take_input(self) -> bytes:
        data, self._unread_input = b"".join(self._unread_input), []
        self._accepted.account.release(len(data))
        return data

    @property
    def _has_more(self) -> bool:
        """Whether there is input that was not acted on."""
        return bool(self._untaken_events) or bool(self._unread_input) or self.connection.has_more

    def _has_to_pause(self) -> bool:
        """Whether earlier requests of the peer have to be done first. A lost one sends no more."""
        if self._is_lost:
            return False
        if self._accepted.account.is_choked:
            return True
        return self.links.has_enough_to_do or self._server.must_wait_for_disk(self.links.share)

    def pause_writing(self) -> None:
        self._is_writable = False
        self._unread.begin()
        self._deliver_or_pause()

    def resume_writing(self) -> None:
        self._is_writable = True
        if not self._accepted.account.is_choked:
            self._unread.end()
        self._deliver_or_pause()
        self._enqueue()
        self._pause_or_read()
        self._server.after_action()

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        self._unread.end()
        self._server.connections.discard(self)
        self._server.paused.discard(self)
        self._accepted.closed()
        self._is_lost = True
        if self._has_more and self.is_authenticated and not self._is_closing and not self._is_silent:
            self._enqueue()  # what it sent before counts: it may have settled messages
        if not self._is_queued:
            self._finish()

    def _finish(self) -> None:
        self.links.close(self._server.clock())
        self.connection.forget()
        self._take_input()
        self._untaken_events.clear()
        self._server.after_action()

    # --- called by the server ---

    def flush(self) -> None:
        """Send the engine's output; close after its last."""
        if self._is_silent or self._is_closing:
            return
        self.connection.check_account()
        output = self.connection.take_output()
        if output and not self._transport.is_closing():
            self._written += len(output)
            self._transport.write(output)
        if self.connection.closed and not self._untaken_events:
            close_once(self._transport)
        if self.connection.pending_events:
            self._set_timer()  # our settlements have freed credit: the engine has to send it
        self._deliver_or_pause()

    def read_if_allowed(self) -> None:
        """Go on with a peer that had to wait, unless it still has to."""
        self._enqueue()
        self._pause_or_read()

    def _enqueue(self) -> None:
        """Process the input soon, unless the peer has to wait."""
        must_wait = self._is_queued or self._is_silent or self._is_closing or self._has_to_pause()
        if self._has_more and not must_wait:
            self._is_queued = True
            self._server.turns.enqueue(self)

    def stop_reading(self) -> None:
        self._is_stopped = True
        self._pause_or_read()

    def close_gracefully(self, error: Error) -> None:
        """Send the reason, and close when the peer has, or a little later.

        Until then its input is read and thrown away.
        """
        self.connection.close(error)
        self.flush()
        self._is_closing = True
        self._pause_or_read()
        close_gently(self._transport)

    def abort(self) -> None:
        self._transport.abort()

    def hold(self) -> None:
        self._is_silent = True
        self._pause_or_read()
        self._deliver_or_pause()

    def release(self) -> None:
        self._is_silent = False
        self._enqueue()
        self._pause_or_read()
        self.flush()
        self._set_timer()
        self._server.after_action()

    # --- opening ---

    def _check_open(self) -> None:
        if self.connection.remote_open is None:
            return
        self._is_open = True
        if self._accepted.must_use_tls:
            self.connection.close(Error("amqp:not-allowed", TLS_ONLY))
        elif self._accepted.is_excess:
            most = self._server.limits.connections
            text = f"the namespace has all the {most} connections it takes: close some, or connect later"
            self.connection.close(Error("amqp:resource-limit-exceeded", text))

    # --- waiting ---

    def _pause_or_read(self) -> None:
        """Read from the peer, or do not, as things are now."""
        is_held = not self._is_closing and (self._is_stopped or self._is_silent or self._must_wait())
        if is_held is self._is_read_paused or self._transport.is_closing():
            return
        self._is_read_paused = is_held
        if is_held:
            self._server.paused.add(self)
            self._transport.pause_reading()
        else:
            self._server.paused.discard(self)
            self._transport.resume_reading()

    def _must_wait(self) -> bool:
        limit = self._server.context.limits.unwritten_bytes_per_connection
        return (
            self.links.unwritten_bytes > limit
            or (self._server.is_overloaded and self.links.unwritten_bytes > 0)
            or (not self._is_writable and self._transport.get_write_buffer_size() > PILE_BYTES)
            or self._is_queued
            or self._has_more
            or self._accepted.account.is_choked
        )

    def _deliver_or_pause(self) -> None:
        """Deliver to the peer, or do not, as things are now."""
        self._charge_unsent()
        if not self._is_writable:
            self._pause_or_read()
        is_delivering = self._is_writable and not self._is_silent and not self._is_window_shut()
        is_taking_answers = is_delivering and not self._accepted.account.is_choked
        if is_taking_answers is not self._is_taking_answers and not self._is_lost:
            self._is_taking_answers = is_taking_answers
            (self.links.resume_answers if is_taking_answers else self.links.pause_answers)()
        if is_delivering is self._is_delivering:
            return
        self._is_delivering = is_delivering
        if is_delivering:
            self.links.outgoing.resume(self._server.clock())
        else:
            self.links.outgoing.pause(self._server.clock())

    def _is_window_shut(self) -> bool:
        """Whether the peer gave credit for many more messages than its sessions take frames."""
        waiting = sum([len(session.waiting) for session in self.connection.sessions])
        limits = self._server.limits
        most = max(1, PILE_BYTES // limits.frame_bytes)
        return waiting > (most if self._is_delivering else most // 2)

    def _charge_unsent(self) -> None:
        """Count what waits in the socket against the peer. No error is sent if that is too much: it does not read.

        What waits elsewhere counts, too: it is not read while that is too much, but many such peers share a limit.
        """
        kept = self.links.kept_bytes
        self._accepted.account.charge(kept - self._kept_cost)
        self._kept_cost = kept
        unsent = self._transport.get_write_buffer_size()
        self._accepted.account.queue(unsent - self._unsent_cost)
        self._unsent_cost = unsent
        self._accepted.free_memory()  # what waits may have come from elsewhere, without any input
        self._watch_blocked()
        if unsent and self._accepted.account.is_over:
            self._transport.abort()

    def _watch_blocked(self) -> None:
        """Limit the time of a peer that is not read because it reads nothing itself."""
        is_choked = self._accepted.account.is_choked
        if is_choked is not self._is_blocked:
            self._is_blocked = is_choked
            if is_choked:
                self._unread.begin()
            elif self._is_writable:
                self._unread.end()

    def _taken(self) -> int:
        """Bytes that have left for the peer."""
        return self._written - self._transport.get_write_buffer_size()

    # --- time ---

    def _set_timer(self) -> None:
        """Tick when engine or links want it."""
        wishes = (self.connection.next_tick_ms(), self.links.next_expiry_ms())
        at_ms = min((wish for wish in wishes if wish is not None), default=None)
        if at_ms is not None and not self._transport.is_closing():
            self._timer.set(at_ms, max(0, at_ms - self._server.clock()) / 1000 + 0.001)

    def _tick(self) -> None:
        if self._is_silent:
            return  # `release` sets it again
        now_ms = self._server.clock()
        events = self.connection.tick(now_ms)
        if self._untaken_events:
            self._untaken_events += events  # in their order
        else:
            self.links.take(events, now_ms)
        self.links.close_expired(now_ms)
        self.flush()
        self._server.after_action()
        self._set_timer()
