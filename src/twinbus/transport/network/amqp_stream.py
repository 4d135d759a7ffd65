"""The socket of one AMQP connection: bytes to the engine, events to its owner, output back to the socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from twinbus.amqp.connection import Connection
from twinbus.amqp.events import Event
from twinbus.earliest_timer import EarliestTimer

WRITE_BUFFER_BYTES = 4 * 1024 * 1024


class AmqpStream(asyncio.Protocol):
    def __init__(
        self,
        connection: Connection,
        clock: Callable[[], int],
        on_events: Callable[[list[Event]], None],
        on_lost: Callable[[Exception | None], None],
    ) -> None:
        """`on_lost` is called once, when the socket is gone."""
        self._connection = connection
        self._clock = clock
        self._on_events = on_events
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._timer = EarliestTimer(self._tick)
        self._is_reading = True
        self.received_ms = 0
        """When the peer last sent anything."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        if not self._is_reading:
            transport.pause_reading()
        self._tick()

    def data_received(self, data: bytes) -> None:
        self.received_ms = now_ms = self._clock()
        events = self._connection.receive(data, now_ms)
        if events:
            self._on_events(events)
        self.flush()

    @property
    def unsent_bytes(self) -> int:
        """Output that the peer has not taken."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def resume_writing(self) -> None:
        """The socket can take more: those that wait for this wait for events."""
        self._on_events([])

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        self._transport = None
        self._on_lost(error)

    def flush(self) -> None:
        """Write the engine's output; close the socket once the engine is closed."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        output = self._connection.take_output()
        if output:
            transport.write(output)
        if self._connection.closed:
            transport.close()
        else:
            self._set_timer()

    def pause_reading(self) -> None:
        """Read nothing for now; keep-alives are still sent."""
        self._read(False)

    def resume_reading(self) -> None:
        self._read(True)

    def _read(self, is_reading: bool) -> None:
        if is_reading is self._is_reading:
            return
        self._is_reading = is_reading
        if self._transport is not None and not self._transport.is_closing():
            (self._transport.resume_reading if is_reading else self._transport.pause_reading)()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _set_timer(self) -> None:
        """Tick when the engine wants it."""
        at_ms = self._connection.next_tick_ms()
        if at_ms is not None and self._transport is not None:
            self._timer.set(at_ms, max(0, at_ms - self._clock()) / 1000 + 0.001)

    def _tick(self) -> None:
        events = self._connection.tick(self._clock(), is_reading=self._is_reading)
        if events:
            self._on_events(events)
        self.flush()
        self._set_timer()
