"""The head of an HTTP message, which ends with an empty line, and what came behind it."""

from __future__ import annotations

from typing import NamedTuple

_END = b"\r\n\r\n"


class HttpHead(NamedTuple):
    head: bytes
    """With the empty line at its end."""
    rest: bytes
    """What has arrived behind it already."""


class HeadTooLarge(Exception):
    """The head has more bytes than it may have."""


class HeadCollector:
    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._received = bytearray()

    def receive(self, data: bytes) -> HttpHead | None:
        """The head once it is complete. Raises `HeadTooLarge`."""
        searched = max(0, len(self._received) - len(_END) + 1)
        self._received += data
        at = self._received.find(_END, searched)
        end = len(self._received) if at < 0 else at + len(_END)
        if end > self._bytes_max:
            raise HeadTooLarge
        return None if at < 0 else HttpHead(bytes(self._received[:end]), bytes(self._received[end:]))
