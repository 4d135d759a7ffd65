"""One socket: bytes to the engine, events to the door, output back to the socket.

Reading stops while more was taken in than is written to disk, and delivering stops while the peer does not
take what was sent: neither side can make the process grow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from twinbus.amqp.connection import Connection
from twinbus.amqp.performatives import Error
from twinbus.namespace.door import Door
from twinbus.namespace.reception import Reception

WRITE_BUFFER_BYTES = 1024 * 1024


class House(Protocol):
    """What a wire needs of the server it belongs to."""

    clock: Callable[[], int]
    reception: Reception
    wires: set[Wire]

    @property
    def is_overloaded(self) -> bool: ...

    def new_connection(self) -> Connection: ...

    def settle_down(self) -> None: ...


class Wire(asyncio.Protocol):
    def __init__(self, house: House) -> None:
        self._house = house
        self._connection = house.new_connection()
        self.door = Door(self._connection, house.reception, self.flush)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._stopped = False
        self._is_paused = False
        self._is_writable = True

    # --- called by asyncio ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._house.wires.add(self)
        self._set_timer()

    def data_received(self, data: bytes) -> None:
        now_ms = self._house.clock()
        self.door.take(self._connection.receive(data, now_ms), now_ms)
        self.flush()
        self._pause_if_needed()
        self._set_timer()  # the peer may have asked for keep-alives
        self._house.settle_down()

    def pause_writing(self) -> None:
        self._is_writable = False
        self.door.pause(self._house.clock())

    def resume_writing(self) -> None:
        self._is_writable = True
        self.door.resume(self._house.clock())
        self._house.settle_down()

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._house.wires.discard(self)
        self.door.leave(self._house.clock())
        self._house.settle_down()

    # --- called by the server ---

    def flush(self) -> None:
        """Send what the engine has to say; hang up when it has said its last."""
        output = self._connection.take_output()
        if output and not self._transport.is_closing():
            self._transport.write(output)
        if self._connection.closed:
            self._transport.close()

    def read_if_allowed(self) -> None:
        if self._is_paused and not self._stopped and not self._must_wait():
            self._is_paused = False
            self._transport.resume_reading()

    def stop_reading(self) -> None:
        self._stopped = True
        if not self._is_paused and not self._transport.is_closing():
            self._is_paused = True
            self._transport.pause_reading()

    def say_goodbye(self, error: Error) -> None:
        self._connection.close(error)
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    # --- waiting ---

    def _must_wait(self) -> bool:
        limit = self._house.reception.limits.unwritten_bytes_per_connection
        return self.door.unwritten_bytes > limit or (self._house.is_overloaded and self.door.unwritten_bytes > 0)

    def _pause_if_needed(self) -> None:
        if not self._is_paused and self._must_wait() and not self._transport.is_closing():
            self._is_paused = True
            self._transport.pause_reading()

    def _set_timer(self) -> None:
        """Ring when engine or door want it; a timer that rings too early is left alone, one too late is not."""
        wishes = (self._connection.next_tick_ms(), self.door.next_expiry_ms())
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
        now_ms = self._house.clock()
        self.door.take(self._connection.tick(now_ms), now_ms)
        self.door.close_expired(now_ms)
        self.flush()
        self._house.settle_down()
        self._set_timer()
