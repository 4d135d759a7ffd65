"""AMQP over WebSocket: an HTTP request, then an AMQP connection whose bytes travel in WebSocket messages.

The AMQP connection is the same as without: limits, faults and back-pressure are its own. What is added here is bounded,
too. The head of the request has a limit, and belongs to the time in which a peer has to authenticate. Frames are
decoded in steps that take turns with the input of all others, and nothing is read while frames wait.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from twinbus.broker.links.disk_fairness import DecayingSum
from twinbus.broker.net.accepted_connection import TLS_ONLY, AcceptedConnection, ProtocolHandler, close_gently
from twinbus.broker.net.amqp_connection import UNAUTHENTICATED_READ_BYTES, AmqpConnection
from twinbus.websocket.framed_transport import FramedTransport
from twinbus.websocket.framing import WebSocketFraming
from twinbus.websocket.handshake import Refusal, Upgrade, UpgradeHandshake, refusal

if TYPE_CHECKING:
    from twinbus.broker.net.amqp_server import AmqpServer

FRAMES_AT_ONCE = 64
"""Frames that are decoded before the time is looked at."""
RETRY_AFTER_S = 10


class WebSocketConnection(ProtocolHandler, asyncio.BufferedProtocol):
    def __init__(self, server: AmqpServer, accepted: AcceptedConnection) -> None:
        self._server = server
        self._accepted = accepted
        self._handshake: UpgradeHandshake | None = UpgradeHandshake()
        self._framed: FramedTransport | None = None
        self._amqp: AmqpConnection | None = None
        self._input: list[bytes] = []
        self._kept = 0
        """Bytes that count against the peer: those that arrived and are not decoded."""
        self._has_more = False
        """Whether frames were left for the next step."""
        self._is_queued = False
        self._is_held = False
        self._is_over = False
        """Whether the handshake was refused, or the connection is lost."""
        self.time_used = DecayingSum()

    # --- called by asyncio ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._server.buffer if self.is_authenticated else self._server.buffer[:UNAUTHENTICATED_READ_BYTES]

    def buffer_updated(self, size: int) -> None:
        self.data_received(bytes(self._server.buffer[:size]))

    def data_received(self, data: bytes) -> None:
        if self._is_over or self._transport.is_closing():
            return
        self._input.append(data)
        self._keep(len(data))
        if self._accepted.account.is_over:
            self._accepted.abort()
            return
        self._accepted.free_memory()
        if not self._is_queued:
            self._is_queued = self._server.turns.process(self)
            self._pause_or_read()

    def pause_writing(self) -> None:
        if self._amqp is not None:
            self._amqp.pause_writing()

    def resume_writing(self) -> None:
        if self._amqp is not None:
            self._amqp.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._forget_input()
        self._is_over = True
        if self._amqp is not None:
            self._amqp.connection_lost(error)
        else:
            self._accepted.closed()

    # --- called in turns ---

    @property
    def is_authenticated(self) -> bool:
        return self._accepted.is_authenticated

    def step(self, until: float) -> bool:
        """Process a part of the input; whether to be called again soon."""
        self._is_queued = True  # nobody else queues it meanwhile
        try:
            self._process_part(until)
        finally:
            self._is_queued = False
        self._is_queued = self._may_decode and (self._has_more or bool(self._input))
        self._pause_or_read()
        return self._is_queued

    def _process_part(self, until: float) -> None:
        if self._is_over or self._is_held:
            return
        data, self._input = b"".join(self._input), []
        if self._handshake is not None:
            self._shake_hands(self._handshake, data)
        elif self._framed is not None and data:
            self._framed.framing.receive(data)
            self._has_more = True
        while self._framed is not None and self._has_more and self._may_decode:
            self._has_more = self._framed.deliver(FRAMES_AT_ONCE)
            if not self._has_more:
                self._keep(-self._kept)
                break
            if self._server.turns.clock() >= until:
                break
        if self._amqp is not None and self._transport.get_write_buffer_size():
            self._amqp.flush()  # pongs that wait count against the peer as its answers do

    @property
    def _may_decode(self) -> bool:
        return self._framed is not None and self._framed.is_reading() and not self._is_over

    # --- the handshake ---

    def _shake_hands(self, handshake: UpgradeHandshake, data: bytes) -> None:
        found = handshake.receive(data)
        if found is None:
            return
        self._handshake = None
        if isinstance(found, Upgrade):
            found = self._refusal() or found
        if isinstance(found, Refusal):
            self._refuse(found)
        else:
            self._open(found)

    def _refusal(self) -> Refusal | None:
        if self._accepted.is_excess:
            text = "The namespace has all the connections it takes."
            return refusal(503, text, [("Retry-After", str(RETRY_AFTER_S))])
        if self._accepted.must_use_tls:
            return refusal(403, f"{TLS_ONLY[0].upper()}{TLS_ONLY[1:]}.")
        return None

    def _refuse(self, found: Refusal) -> None:
        self._forget_input()
        self._is_over = True
        self._transport.write(found.answer)
        close_gently(self._transport)

    def _open(self, found: Upgrade) -> None:
        self._transport.write(found.answer)
        self._framed = FramedTransport(self._transport, WebSocketFraming.of_server(), self._go_on)
        self._amqp = AmqpConnection(self._server, self._accepted)
        self.time_used = self._amqp.time_used  # one share for one peer
        self._framed.connect(self._amqp)
        self._framed.framing.receive(found.rest)
        self._has_more = True

    # --- waiting ---

    def hold(self) -> None:
        self._is_held = True
        self._pause_or_read()
        if self._amqp is not None:
            self._amqp.hold()

    def release(self) -> None:
        self._is_held = False
        if self._amqp is not None:
            self._amqp.release()
        self._go_on()

    def _go_on(self) -> None:
        """Decode what was left, and read again."""
        if not self._is_queued and not self._is_over and not self._is_held and (self._has_more or self._input):
            self._is_queued = True
            self._server.turns.enqueue(self)
        self._pause_or_read()

    def _pause_or_read(self) -> None:
        if self._transport.is_closing():
            return
        wants_more = self._framed is None or self._framed.is_reading() or self._is_over
        if wants_more and not self._is_queued and not self._is_held:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _keep(self, size: int) -> None:
        self._kept += size
        self._accepted.account.charge(size)

    def _forget_input(self) -> None:
        self._input.clear()
        self._keep(-self._kept)
