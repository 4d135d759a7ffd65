"""Split a byte stream into frames and protocol headers, and wrap bodies into frames."""

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
    return _PREFIX.pack(len(body) + 8, 2, kind, channel) + body


class FrameReader:
    def __init__(self, frame_bytes_max: int) -> None:
        self.expects_header = True
        """Set it if the next eight bytes must be a protocol header; reading one clears it."""
        self.held = 0
        """Buffered bytes: of an incomplete frame, or of frames that were not read yet."""
        self._frame_bytes_max = frame_bytes_max
        self._chunks: list[bytes] = []
        self._buffer = b""
        self._position = 0
        self._needed = 1

    @property
    def has_more(self) -> bool:
        """Whether `frames` may return something."""
        return self.held >= self._needed

    def feed(self, data: bytes) -> None:
        if data:
            self._chunks.append(data)
            self.held += len(data)

    def frames(self) -> Iterator[Frame]:
        """All complete frames; a caller that stops early gets the others with the next call.

        Raises FramingError for malformed frames. Chunks are joined only when a frame is complete, so a frame that
        arrives in many pieces costs one copy.
        """
        if self.held < self._needed:
            return
        if self._chunks:
            left_over = self._buffer[self._position :]
            one = len(self._chunks) == 1 and not left_over
            self._buffer = self._chunks[0] if one else b"".join((left_over, *self._chunks))
            self._position = 0
            self._chunks = []
        buffer, total, limit = self._buffer, len(self._buffer), self._frame_bytes_max
        self._needed = 1  # for callers that stop early
        while True:
            position = self._position
            left = total - position
            if self.expects_header:
                if not self._header_is_complete(buffer, position, left):
                    break
                self.expects_header = False
                self._position = position + 8
                self.held -= 8
                yield HEADER, 0, buffer, position, position + 8
                continue
            if left < 8:
                self._needed = 8
                break
            size, offset, kind, channel = _PREFIX.unpack_from(buffer, position)
            if size > limit or size < 8 or offset < 2 or offset * 4 > size:
                raise FramingError(f"frame of {size} bytes with data offset {offset}; the limit is {limit} bytes")
            if left < size:
                self._needed = size
                break
            self._position = position + size
            self.held -= size
            yield kind, channel, buffer, position + offset * 4, position + size
        self._buffer = buffer[self._position :]  # does not keep the whole chunk for a few bytes
        self._position = 0

    def _header_is_complete(self, buffer: bytes, position: int, left: int) -> bool:
        if not AMQP_HEADER.startswith(buffer[position : position + 4]):
            raise FramingError("not an AMQP protocol header")
        self._needed = 8 if left >= 4 else left + 1  # other protocols are recognised by their first bytes
        return left >= 8
