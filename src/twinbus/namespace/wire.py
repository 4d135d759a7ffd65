"""One AMQP connection: bytes to the engine, events to the door, output back to the socket.

Reading stops while more was taken in than is written to disk, or while the peer lets what it asked for pile up;
delivering stops while the peer does not take what was sent: neither side can make the process grow.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

from twinbus.amqp.account import Account
from twinbus.amqp.connection import Connection
from twinbus.amqp.events import Event
from twinbus.amqp.performatives import Error
from twinbus.namespace.disk_share import SenderShare
from twinbus.namespace.door import Door, outlasts
from twinbus.namespace.guest import TLS_ONLY, Guest, UnreadWatch, Voice
from twinbus.namespace.limits import ServerLimits
from twinbus.namespace.reception import Reception
from twinbus.namespace.turns import DecayingSum, Turns

FRAMES_PER_STEP = 256
"""Frames of one peer that are heard before others get their turn."""
STRANGER_FRAMES_PER_STEP = 16
"""The same of a peer that has not shown who it is. Each may be a token, which takes long to check."""
READ_BYTES, STRANGER_READ_BYTES = 256 * 1024, 16 * 1024
"""Read from a peer at once."""
WRITE_BUFFER_BYTES = 1024 * 1024
"""With more than this unsent, nothing is delivered."""
GOODBYE_S = 0.5
"""How long a peer that was told goodbye has to hang up by itself."""
PILE_BYTES = 4 * WRITE_BUFFER_BYTES
"""With more than this unsent, the peer is not even listened to: it gets what it asked for, and does not take it."""


def read_buffer() -> memoryview:
    """One is enough for all connections of an event loop, because what is read is copied out at once.

    It must not be shared between loops: each runs on a thread of its own, and one would overwrite what the other reads.
    """
    return memoryview(bytearray(READ_BYTES))


class House(Protocol):
    """What a wire needs of the server it belongs to."""

    clock: Callable[[], int]
    reception: Reception
    server_limits: ServerLimits
    wires: set[Wire]
    held_wires: set[Wire]
    """Those of them that are not read for now."""
    buffer: memoryview
    """What connections are read into, see `read_buffer`."""

    @property
    def is_overloaded(self) -> bool: ...

    def must_wait_for_disk(self, sender: SenderShare) -> bool:
        """Whether so much waits to be written that this connection does not add to it."""

    turns: Turns

    def new_connection(self, account: Account, *, takes_passwords: bool) -> Connection: ...

    def settle_down(self) -> None: ...


class Wire(Voice, asyncio.BufferedProtocol):
    def __init__(self, house: House, guest: Guest) -> None:
        self._house = house
        self._guest = guest
        self.connection = house.new_connection(guest.account, takes_passwords=not guest.must_use_tls)
        self.door = Door(self.connection, house.reception, self.flush, self.abort)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._is_open = False
        self._is_stopped = False
        self._is_leaving = False
        self._is_silent = False
        self._is_held = False
        self._is_writable = True
        self._is_delivering = True
        self._written = 0
        self._unsent_cost = 0
        self._unheard: list[bytes] = []
        self._untaken: list[Event] = []
        """What the engine has heard and the door not yet."""
        self._is_in_line = False
        self._is_choked = False
        self._is_gone = False
        """Whether the connection is lost; what it had said before may still have to be heard."""
        self.time_taken = DecayingSum()

    # --- called by asyncio ---

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._house.buffer if self.is_known else self._house.buffer[:STRANGER_READ_BYTES]

    def buffer_updated(self, size: int) -> None:
        self.data_received(bytes(self._house.buffer[:size]))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._unread = UnreadWatch(transport, self._house.server_limits.unread_s, self._taken)
        self._house.wires.add(self)
        self._set_timer()

    def data_received(self, data: bytes) -> None:
        if self._is_leaving or self._transport.is_closing():
            return
        has_more = self._has_more
        self._unheard.append(data)
        self._guest.account.charge(len(data))
        if not self._is_in_line and not has_more:
            self._is_in_line = self._house.turns.hear(self)
            self._hold_or_read()

    @property
    def is_known(self) -> bool:
        return self._guest.is_known

    def step(self, until: float) -> bool:
        """Hear a part of what the peer has said; whether it is to be heard again soon."""
        if self._is_leaving or self._is_silent:
            self._is_in_line = False
            return False
        self._is_in_line = True  # while this lasts nobody else lines it up
        try:
            self._hear_part(until)
        finally:
            self._is_in_line = False
        if self._is_gone and not self._has_more:
            self._leave()
            return False
        self._is_in_line = self._has_more and not self._has_to_pause()
        self._hold_or_read()
        return self._is_in_line

    def _hear_part(self, until: float) -> None:
        now_ms = self._house.clock()
        self._untaken = self._untaken or self._hear(now_ms)
        if self._is_gone:
            self._untaken = [event for event in self._untaken if outlasts(event)]
        if self._guest.is_turned_away or self._guest.must_use_tls:
            self._untaken = []
        else:
            clock = self._house.turns.clock
            self._untaken = self.door.take(self._untaken, now_ms, lambda: self._has_to_pause() or clock() >= until)
            if not self._guest.is_known and self.door.is_authenticated:
                self._guest.admit()
        if self._is_gone and not self._has_more:
            return
        self.flush()
        self._set_timer()  # the peer may have asked for keep-alives
        self._guest.make_room()
        self._house.settle_down()

    def _hear(self, now_ms: int) -> list[Event]:
        data = self._take_unheard()
        frames_max = FRAMES_PER_STEP if self.is_known else STRANGER_FRAMES_PER_STEP
        events = self.connection.receive(data, now_ms, frames_max)
        if not self._is_open:
            self._look_for_open()
        return events

    def _take_unheard(self) -> bytes:
        data, self._unheard = b"".join(self._unheard), []
        self._guest.account.release(len(data))
        return data

    @property
    def _has_more(self) -> bool:
        """Whether the peer has said something that was not acted on."""
        return bool(self._untaken) or bool(self._unheard) or self.connection.has_more

    def _has_to_pause(self) -> bool:
        """Whether what the peer said before has to be done first. Of one that is gone no more can come."""
        return not self._is_gone and self._is_busy()

    def _is_busy(self) -> bool:
        if self._guest.account.is_choked:
            return True
        return self.door.has_enough_to_do or self._house.must_wait_for_disk(self.door.share)

    def pause_writing(self) -> None:
        self._is_writable = False
        self._unread.begin()
        self._deliver_or_wait()

    def resume_writing(self) -> None:
        self._is_writable = True
        if not self._guest.account.is_choked:
            self._unread.end()
        self._deliver_or_wait()
        self._line_up()
        self._hold_or_read()
        self._house.settle_down()

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._unread.end()
        self._house.wires.discard(self)
        self._house.held_wires.discard(self)
        self._guest.leave()
        self._is_gone = True
        if self._has_more and self.is_known and not self._is_leaving and not self._is_silent:
            self._line_up()  # what it said before it went counts: it may have settled messages
        if not self._is_in_line:
            self._leave()

    def _leave(self) -> None:
        self.door.leave(self._house.clock())
        self.connection.forget()
        self._take_unheard()
        self._untaken.clear()
        self._house.settle_down()

    # --- called by the server ---

    def flush(self) -> None:
        """Send what the engine has to say; hang up when it has said its last."""
        if self._is_silent or self._is_leaving:
            return
        self.connection.check_account()
        output = self.connection.take_output()
        if output and not self._transport.is_closing():
            self._written += len(output)
            self._transport.write(output)
        if self.connection.closed and not self._untaken:
            self._transport.close()
        if self.connection.late_events:
            self._set_timer()  # settlements of ours have freed credit: the engine wants to tell of it
        self._deliver_or_wait()

    def read_if_allowed(self) -> None:
        """Go on with a peer that had to wait, unless it still has to."""
        self._line_up()
        self._hold_or_read()

    def _line_up(self) -> None:
        """Have what the peer said heard, soon, unless it has to wait."""
        must_wait = self._is_in_line or self._is_silent or self._is_leaving or self._has_to_pause()
        if self._has_more and not must_wait:
            self._is_in_line = True
            self._house.turns.line_up(self)

    def stop_reading(self) -> None:
        self._is_stopped = True
        self._hold_or_read()

    def say_goodbye(self, error: Error) -> None:
        """Tell the peer why this ends, and hang up when it has, or a little later.

        Until then what it still says is heard and thrown away: a socket that is closed on unread bytes is reset, and
        the reset can overtake our last words and answers.
        """
        self.connection.close(error)
        self.flush()
        self._is_leaving = True
        self._hold_or_read()
        if not self._transport.is_closing():
            if self._transport.can_write_eof():
                with contextlib.suppress(OSError):  # the peer is gone, and we have not heard of it yet
                    self._transport.write_eof()
            asyncio.get_running_loop().call_later(GOODBYE_S, self._transport.close)

    def abort(self) -> None:
        self._transport.abort()

    def hush(self) -> None:
        self._is_silent = True
        self._hold_or_read()
        self._deliver_or_wait()

    def speak(self) -> None:
        self._is_silent = False
        self._line_up()
        self._hold_or_read()
        self.flush()
        self._set_timer()
        self._house.settle_down()

    # --- letting in ---

    def _look_for_open(self) -> None:
        if self.connection.remote_open is None:
            return
        self._is_open = True
        if self._guest.must_use_tls:
            self.connection.close(Error("amqp:not-allowed", TLS_ONLY))
        elif self._guest.is_turned_away:
            most = self._house.server_limits.connections
            text = f"the namespace has all the {most} connections it takes: close some, or connect later"
            self.connection.close(Error("amqp:resource-limit-exceeded", text))

    # --- waiting ---

    def _hold_or_read(self) -> None:
        """Read from the peer, or do not, as things are now."""
        is_held = not self._is_leaving and (self._is_stopped or self._is_silent or self._must_wait())
        if is_held is self._is_held or self._transport.is_closing():
            return
        self._is_held = is_held
        if is_held:
            self._house.held_wires.add(self)
            self._transport.pause_reading()
        else:
            self._house.held_wires.discard(self)
            self._transport.resume_reading()

    def _must_wait(self) -> bool:
        limit = self._house.reception.limits.unwritten_bytes_per_connection
        return (
            self.door.unwritten_bytes > limit
            or (self._house.is_overloaded and self.door.unwritten_bytes > 0)
            or (not self._is_writable and self._transport.get_write_buffer_size() > PILE_BYTES)
            or self._is_in_line
            or self._has_more
            or self._guest.account.is_choked
        )

    def _deliver_or_wait(self) -> None:
        """Deliver to the peer, or do not, as things are now."""
        self._charge_unsent()
        if not self._is_writable:
            self._hold_or_read()
        is_delivering = self._is_writable and not self._is_silent and not self._is_window_shut()
        if is_delivering is self._is_delivering:
            return
        self._is_delivering = is_delivering
        if is_delivering:
            self.door.resume(self._house.clock())
        else:
            self.door.pause(self._house.clock())

    def _is_window_shut(self) -> bool:
        """Whether the peer gave credit for many more messages than its sessions take frames."""
        waiting = sum([len(session.waiting) for session in self.connection.sessions])
        limits = self._house.server_limits
        most = max(1, PILE_BYTES // limits.frame_bytes)
        return waiting > (most if self._is_delivering else most // 2)

    def _charge_unsent(self) -> None:
        """What waits in the socket is kept for the peer, too. It is not told if that is too much: it does not read."""
        unsent = self._transport.get_write_buffer_size()
        self._guest.account.queue(unsent - self._unsent_cost)
        self._unsent_cost = unsent
        self._watch_choked()
        if unsent and self._guest.account.is_over:
            self._transport.abort()

    def _watch_choked(self) -> None:
        """A peer that is not listened to, because it takes nothing, is not kept for ever either."""
        is_choked = self._guest.account.is_choked
        if is_choked is not self._is_choked:
            self._is_choked = is_choked
            if is_choked:
                self._unread.begin()
            elif self._is_writable:
                self._unread.end()

    def _taken(self) -> int:
        """Bytes that have left for the peer."""
        return self._written - self._transport.get_write_buffer_size()

    # --- time ---

    def _set_timer(self) -> None:
        """Ring when engine or door want it; a timer that rings too early is left alone, one too late is not."""
        wishes = (self.connection.next_tick_ms(), self.door.next_expiry_ms())
        at_ms = min((wish for wish in wishes if wish is not None), default=None)
        if at_ms is None or self._transport.is_closing():
            return
        if self._timer is not None:
            if self._timer_ms <= at_ms:
                return
            self._timer.cancel()
        self._timer_ms = at_ms
        delay_s = max(0, at_ms - self._house.clock()) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s + 0.001, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self._is_silent:
            return  # `speak` sets it again
        now_ms = self._house.clock()
        events = self.connection.tick(now_ms)
        if self._untaken:
            self._untaken += events  # in their order
        else:
            self.door.take(events, now_ms)
        self.door.close_expired(now_ms)
        self.flush()
        self._house.settle_down()
        self._set_timer()
