"""Simulated sockets: bytes take their time, arrive in pieces and in order, wait for readers, or never arrive.

A wire is one connection. A route is the way of many wires to one host: it can be slow, go silent for a while, or cut
what goes along it, so that one end, both or neither hear of it.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from contextvars import Context
from random import Random
from typing import Any

from sim.proxy_loop import Process, SimulatedLoop, current_process

USUAL_S, SLOW_S = 0.004, 2.0
GONE_S = (40.0, 150.0)
"""When a system gives a connection up on which nothing arrives any more."""


class _Ending:
    """The last thing on a wire."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error


class WireEnd(asyncio.Transport):
    """One end of a wire: the transport of one process."""

    def __init__(self, wire: Wire, process: Process) -> None:
        super().__init__()
        self.wire = wire
        self.process = process
        self.peer: WireEnd
        self._protocol: Any = None
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._coming: deque[tuple[float, bytes | _Ending]] = deque()
        """On its way to this end, with the time of arrival."""
        self._unread: deque[bytes | _Ending] = deque()
        self._on_the_way = 0
        """Bytes in both."""
        self._is_reading = True
        self._is_closing = False
        self._is_lost = False
        self._has_ended = False
        self._is_choked = self._has_reset = False
        self._high, self._low = 64 * 1024, 16 * 1024

    # --- what its process does ---

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Smaller than they were asked for: nobody here sends megabytes."""
        self._high = (high or 64 * 1024) // self.wire.route.scale
        self._low = self._high // 4

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def write(self, data: Any) -> None:
        if self._is_closing or not self.process.is_alive:
            return
        self._unsent.append(bytes(data))
        self._unsent_bytes += len(data)
        self._send()
        if self._unsent_bytes > self._high and not self._is_choked:
            self._is_choked = True
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._is_closing:
            self._has_ended = True
            self._send()

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self.wire.loop.call_soon(self._read, context=self.process.context())

    def is_reading(self) -> bool:
        return self._is_reading

    def is_closing(self) -> bool:
        return self._is_closing or not self.process.is_alive

    def close(self) -> None:
        if not self._is_closing and self.process.is_alive:
            self._is_closing = self._has_ended = True
            self._send()

    def abort(self) -> None:
        if not self._is_lost and self.process.is_alive:
            self._is_closing = True
            self._unsent.clear()
            self._unsent_bytes = 0
            self.peer.add(_Ending(ConnectionResetError("simulated reset")))
            self._lose_soon(None)

    # --- on the way out ---

    def _send(self) -> None:
        wire, peer = self.wire, self.peer
        while self._unsent and peer._on_the_way < wire.window:
            data = self._unsent.popleft()
            piece, rest = wire.split(data, wire.window - peer._on_the_way)
            if rest:
                self._unsent.appendleft(rest)
            self._unsent_bytes -= len(piece)
            peer.add(piece)
        if self._has_ended and not self._unsent:
            self._has_ended = False
            peer.add(_Ending(None))
            if self._is_closing:
                self._lose_soon(None)
        if self._is_choked and self._unsent_bytes <= self._low:
            self._is_choked = False
            if not self._is_closing:
                self.wire.loop.call_soon(self._relieve, context=self.process.context())

    def _relieve(self) -> None:
        if not self._is_lost:
            self._protocol.resume_writing()

    # --- on the way in ---

    def add(self, item: bytes | _Ending) -> None:
        """Send this to here; it arrives after everything that was sent before it."""
        wire = self.wire
        if wire.is_cut:
            return
        if self._is_lost:
            self._reset_peer()
            return
        at = wire.arrival(self._coming[-1][0] if self._coming else 0.0)
        self._on_the_way += len(item) if isinstance(item, bytes) else 0
        self._coming.append((at, item))
        wire.loop.call_at(at, self.arrive, context=Context())

    def arrive(self) -> None:
        """Take what has come by now, unless nothing comes through."""
        wire = self.wire
        while self._coming and self._coming[0][0] <= wire.loop.now + 1e-9:
            if wire.is_cut:
                self._coming.clear()
                return
            if wire.route.is_silent:
                return  # it is sent again when the silence is over
            self._unread.append(self._coming.popleft()[1])
        self.process.run(self._read)

    def _read(self) -> None:
        while self._unread and self._is_reading and not self._is_lost:
            item = self._unread.popleft()
            if isinstance(item, _Ending):
                self._end(item)
                return
            pieces = [item]
            while self._unread and isinstance(following := self._unread[0], bytes):
                pieces.append(following)
                self._unread.popleft()
            data = b"".join(pieces)
            self._on_the_way -= len(data)
            if not self._is_closing:
                self._protocol.data_received(data)
            self.peer._send()

    def _end(self, ending: _Ending) -> None:
        if ending.error is None and not self._is_closing:
            if not self._protocol.eof_received():
                self.close()
        elif ending.error is not None:
            self.lose(ending.error)

    def _lose_soon(self, error: Exception | None) -> None:
        self.wire.loop.call_soon(self.lose, error, context=self.process.context())

    def lose(self, error: Exception | None) -> None:
        """Nothing more comes or goes."""
        if not self._is_lost:
            self._is_lost = self._is_closing = True
            self._unsent.clear()
            self._unsent_bytes = 0
            if self._coming or self._unread:
                self._reset_peer()
            self.wire.ended()
            self.process.run(self._protocol.connection_lost, error)

    def _reset_peer(self) -> None:
        """As a system does to those who send to a closed socket."""
        if not self._has_reset and not self.peer.is_lost:
            self._has_reset = True
            self.peer.add(_Ending(ConnectionResetError("simulated reset")))

    @property
    def is_lost(self) -> bool:
        return self._is_lost or not self.process.is_alive


class Wire:
    def __init__(self, route: Route, number: int, client: Process, server: Process) -> None:
        self.route = route
        self.loop = route.loop
        self.is_cut = False
        # Its own: peers that are served in any order do not change what happens to others.
        self._random = Random(f"{route.seed} {route.host} {number}")
        self.window = self._random.choice((1_500, 20_000, 1_000_000))
        self._splits = self._random.choice((0.0, 0.1, 0.5))
        self.client, self.server = WireEnd(self, client), WireEnd(self, server)
        self.client.peer, self.server.peer = self.server, self.client

    def split(self, data: bytes, room: int) -> tuple[bytes, bytes]:
        """What goes at once, and the rest."""
        length = min(len(data), max(1, room))
        if length > 1 and self._random.random() < self._splits:
            length = self._random.randrange(1, length)
        return data[:length], data[length:]

    def arrival(self, previous: float) -> float:
        slow = self.route.slow_share > self._random.random()
        return max(previous, self.loop.now + self._random.random() * (SLOW_S if slow else USUAL_S))

    def cut(self, *, quietly: bool = False) -> None:
        """Nothing comes through any more. Both ends hear of it soon; quietly: when their systems give up."""
        if self.is_cut:
            return
        self.is_cut = True
        for end in (self.client, self.server):
            seconds = self._random.uniform(*GONE_S) if quietly else self._random.random() * 0.05
            self.loop.call_later(seconds, end.lose, ConnectionResetError("simulated cut"), context=Context())

    def lose(self, process: Process) -> None:
        """A process at one of the ends is gone: what it has sent may still arrive, then the other end learns of it."""
        if self._random.random() < 0.5:
            self.cut()
        else:
            end = self.client if process is self.client.process else self.server
            end.peer.add(_Ending(ConnectionResetError("simulated death")))

    def ended(self) -> None:
        if self.client.is_lost and self.server.is_lost:
            self.route.wires.discard(self)


class Route:
    """The way to a host, for all that connect to it."""

    def __init__(self, host: str, loop: SimulatedLoop, seed: int, seen: Counter[str]) -> None:
        self.host, self.loop, self.seed, self.seen = host, loop, seed, seen
        self.random = Random(f"{seed} {host}")
        self.wires: Wires = Wires()
        self.is_silent = False
        self.slow_share = 0.0
        self.scale = self.random.choice((1, 256, 1024))
        """By how much buffers are smaller than real ones."""
        self._waiting: list[asyncio.Future[None]] = []
        self._listener: tuple[Process, Callable[[WireEnd], asyncio.BaseProtocol]] | None = None
        self._made = 0

    def listen(self, process: Process, accept: Callable[[WireEnd], asyncio.BaseProtocol]) -> None:
        self._listener = (process, accept)

    async def connect(self, client: Process, factory: Callable[[], Any]) -> tuple[WireEnd, Any]:
        """Raises `OSError` if nobody listens."""
        await asyncio.sleep(self.random.random() * 2 * USUAL_S)
        while self.is_silent:
            waits = self.loop.create_future()
            self._waiting.append(waits)
            await waits
        if self._listener is None or not self._listener[0].is_alive:
            self.seen[f"{self.host}: refused"] += 1
            raise ConnectionRefusedError(f"{self.host} refuses connections")
        process, accept = self._listener
        self._made += 1
        wire = Wire(self, self._made, client, process)
        self.wires.add(wire)
        protocol = factory()
        wire.client.set_protocol(protocol)
        process.run(self._accept, accept, wire.server)
        protocol.connection_made(wire.client)
        return wire.client, protocol

    def _accept(self, accept: Callable[[WireEnd], asyncio.BaseProtocol], end: WireEnd) -> None:
        protocol = accept(end)
        end.set_protocol(protocol)
        protocol.connection_made(end)

    # --- trouble ---

    def fall_silent(self) -> None:
        self.is_silent = True

    def speak(self) -> None:
        """What was sent meanwhile arrives after all, where connections have not been given up."""
        self.is_silent = False
        waiting, self._waiting = self._waiting, []
        for waits in waiting:
            if not waits.done():
                waits.set_result(None)
        for wire in list(self.wires):
            wire.client.arrive()
            wire.server.arrive()

    def cut_all(self, *, quietly: bool) -> None:
        for wire in list(self.wires):
            wire.cut(quietly=quietly)

    def cut_some(self, *, quietly: bool) -> None:
        for wire in list(self.wires):
            if self.random.random() < 0.4:
                wire.cut(quietly=quietly)


class Wires(dict[Wire, None]):
    """In the order in which they were made."""

    def add(self, wire: Wire) -> None:
        self[wire] = None

    def discard(self, wire: Wire) -> None:
        self.pop(wire, None)


class Network:
    def __init__(self, loop: SimulatedLoop, seed: int, seen: Counter[str]) -> None:
        self._loop, self._seed, self._seen = loop, seed, seen
        self.routes: dict[str, Route] = {}
        loop.create_connection = self._create_connection

    def route(self, host: str) -> Route:
        if host not in self.routes:
            self.routes[host] = Route(host, self._loop, self._seed, self._seen)
        return self.routes[host]

    async def _create_connection(
        self, factory: Callable[[], Any], host: str, _port: int, **_options: Any
    ) -> tuple[WireEnd, Any]:
        """As `create_connection` of any loop."""
        return await self.route(host).connect(current_process(), factory)

    def lose(self, process: Process, *, quietly: bool) -> None:
        """A process is gone; quietly: its machine too, so that nobody closes its connections."""
        for route in self.routes.values():
            for wire in list(route.wires):
                if process in (wire.client.process, wire.server.process):
                    if quietly:
                        wire.cut(quietly=True)
                    else:
                        wire.lose(process)
