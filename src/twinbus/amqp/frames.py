"""Cut a byte stream into frames and protocol headers, and put frames around bodies."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TypeAlias

from twinbus.errors import FramingError

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"

AMQP_FRAME = 0
SASL_FRAME = 1
HEADER = -1
"""In place of a frame type: the eight bytes are a protocol header."""

EMPTY_FRAME = b"\x00\x00\x00\x08\x02\x00\x00\x00"

Frame: TypeAlias = tuple[int, int, bytes, int, int]
"""(type, channel, buffer, start, end): the body is buffer[start:end]. Not a class: there is one per message."""

_PREFIX = struct.Struct(">IBBH")


def frame(channel: int, body: bytes, kind: int = AMQP_FRAME) -> bytes:
    """A whole frame."""
    return _PREFIX.pack(len(body) + 8, 2, kind, channel) + body


class FrameReader:
    """Takes bytes as they come and gives whole frames. Holds at most one unfinished frame between calls."""

    def __init__(self, frame_bytes_max: int) -> None:
        self.expects_header = True
        """Set it when the next eight bytes must be a protocol header; seeing one clears it."""
        self._frame_bytes_max = frame_bytes_max
        self._chunks: list[bytes] = []
        self._held = 0
        self._needed = 1

    def feed(self, data: bytes) -> None:
        """Add bytes from the peer."""
        if data:
            self._chunks.append(data)
            self._held += len(data)

    def frames(self) -> Iterator[Frame]:
        """All frames that are whole by now. FramingError when the bytes cannot be frames.

        Chunks are joined only when a frame is complete, so that a frame that trickles in costs one copy.
        """
        if self._held < self._needed:
            return
        buffer = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        position, total, limit = 0, len(buffer), self._frame_bytes_max
        while True:
            left = total - position
            if self.expects_header:
                if not self._header_is_whole(buffer, position, left):
                    break
                self.expects_header = False
                yield HEADER, 0, buffer, position, position + 8
                position += 8
                continue
            if left < 8:
                self._needed = 8
                break
            size, offset, kind, channel = _PREFIX.unpack_from(buffer, position)
            if size > limit or size < 8 or offset < 2 or offset * 4 > size:
                raise FramingError(f"a frame of {size} bytes with data offset {offset}; {limit} bytes are allowed")
            if left < size:
                self._needed = size
                break
            yield kind, channel, buffer, position + offset * 4, position + size
            position += size
        rest = buffer[position:]
        self._chunks = [rest] if rest else []
        self._held = len(rest)

    def _header_is_whole(self, buffer: bytes, position: int, left: int) -> bool:
        if not AMQP_HEADER.startswith(buffer[position : position + 4]):
            raise FramingError("no AMQP protocol header")
        self._needed = 8 if left >= 4 else left + 1  # other protocols are recognised by their first bytes
        return left >= 8
