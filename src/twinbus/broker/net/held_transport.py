"""A transport that can be held: what its protocol writes waits, and nothing is read.

Given to protocols that are not ours, which know nothing of silence and write whenever they like.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any


class HeldTransport(asyncio.Transport):
    """Passes everything on to a real transport, except between `hold` and `release`."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._is_held = False
        self._held: list[bytes] = []
        self._ends_with_eof = False
        self._is_closed = False

    def hold(self) -> None:
        """Neither read, write nor close until `release`."""
        if not self._is_held:
            self._was_reading = self.is_reading()
            self._is_held = True
            self._pause()

    def release(self) -> None:
        """Write what was held, and go on."""
        if not self._is_held:
            return
        self._is_held = False
        held, self._held = self._held, []
        if held:
            self._transport.write(b"".join(held))
        if self._ends_with_eof:
            self._transport.write_eof()
        if self._is_closed:
            self._close()
        elif self._was_reading:
            self.resume_reading()

    # --- reading ---

    def is_reading(self) -> bool:
        return self._was_reading if self._is_held else self._transport.is_reading()

    def pause_reading(self) -> None:
        if self._is_held:
            self._was_reading = False
        else:
            self._pause()

    def resume_reading(self) -> None:
        if self._is_held:
            self._was_reading = True
        elif not self._transport.is_closing():
            self._transport.resume_reading()

    def _pause(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    # --- writing ---

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._is_held:
            self._held.append(bytes(data))
        else:
            self._transport.write(data)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        if self._is_held:
            self._ends_with_eof = True
        else:
            self._transport.write_eof()

    def can_write_eof(self) -> bool:
        return self._transport.can_write_eof()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() + sum(map(len, self._held))

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._transport.get_write_buffer_limits()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    # --- the end ---

    def close(self) -> None:
        self._is_closed = True
        if not self._is_held:
            self._close()

    def _close(self) -> None:
        if not self._transport.is_closing():  # asyncio's for TLS forgets its state the second time
            self._transport.close()

    def is_closing(self) -> bool:
        return self._is_closed or self._transport.is_closing()

    def abort(self) -> None:
        """At once, held or not."""
        self._transport.abort()

    # --- what it is ---

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._transport.get_protocol()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._transport.set_protocol(protocol)
