"""A transport of asyncio whose bytes travel in WebSocket messages. The protocol above it does not notice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from twinbus.websocket.framing import WebSocketFraming

CLOSE_WAIT_S = 0.5
"""How long the peer has to answer our close."""


class FramedTransport(asyncio.Transport):
    """Bytes that arrive are given to `framing.receive` by the owner, which then calls `deliver`."""

    def __init__(
        self, transport: asyncio.Transport, framing: WebSocketFraming, go_on: Callable[[], None] = lambda: None
    ) -> None:
        """`go_on` is called when reading is resumed: there may be frames that were not delivered yet."""
        super().__init__()
        self._transport = transport
        self.framing = framing
        self._go_on = go_on
        self._protocol: asyncio.Protocol | None = None
        self._is_reading = True
        self._is_closing = False

    def connect(self, protocol: asyncio.Protocol) -> None:
        """The protocol that reads and writes from now on."""
        self._protocol = protocol
        protocol.connection_made(self)

    def deliver(self, frames_max: int) -> bool:
        """Give the protocol what at most so many frames carry; whether there are more.

        Writes pongs, too: the caller sees to it that they do not pile up.
        """
        taken = self.framing.take(frames_max)
        if taken.answer and not self._transport.is_closing():
            self._transport.write(taken.answer)
        if taken.payload and self._protocol is not None and not self._is_closing:
            self._protocol.data_received(taken.payload)
        if self.framing.has_ended:
            self._end()
        return taken.has_more

    # --- reading ---

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        if self._is_reading and not self.is_closing():
            self._is_reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._is_reading and not self.is_closing():
            self._is_reading = True
            self._transport.resume_reading()
            self._go_on()

    # --- writing ---

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        framed = self.framing.wrap(bytes(data))
        if framed and not self._transport.is_closing():
            self._transport.write(framed)

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._transport.get_write_buffer_limits()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    # --- the end ---

    def close(self) -> None:
        """Say the end, and close when the peer has answered, or a little later. Until then its input is thrown away."""
        if self.is_closing():
            return
        self._is_closing = True
        frame = self.framing.close()
        if not frame:
            self._end()
            return
        self._transport.write(frame)
        if not self._is_reading:
            self._is_reading = True
            self._transport.resume_reading()
            self._go_on()
        asyncio.get_running_loop().call_later(CLOSE_WAIT_S, self._end)

    def _end(self) -> None:
        self._is_closing = True
        if not self._transport.is_closing():  # asyncio's for TLS forgets its state the second time
            self._transport.close()

    def is_closing(self) -> bool:
        return self._is_closing or self._transport.is_closing()

    def abort(self) -> None:
        self._transport.abort()

    # --- what it is ---

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol
