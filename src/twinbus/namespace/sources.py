"""Where time and chance come from in a running server; everything below takes them as arguments."""

from __future__ import annotations

import os
import time


class WallClock:
    """Milliseconds since 1970 that never run backwards, whatever happens to the machine's clock."""

    def __init__(self) -> None:
        self._last_ms = 0

    def __call__(self) -> int:
        self._last_ms = max(self._last_ms, time.time_ns() // 1_000_000)
        return self._last_ms


class LockTokens:
    """Sixteen random bytes a call; drawn from the system in larger pieces, which is much cheaper."""

    PIECE = 4096

    def __init__(self) -> None:
        self._bytes = b""
        self._next = 0

    def __call__(self) -> bytes:
        start = self._next
        if start + 16 > len(self._bytes):
            self._bytes = os.urandom(self.PIECE)
            start = 0
        self._next = start + 16
        return self._bytes[start : start + 16]
