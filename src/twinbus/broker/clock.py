"""Where time and chance come from in a running server; everything below takes them as arguments."""

from __future__ import annotations

import os
from time import monotonic_ns, time_ns


class WallClock:
    """Milliseconds since 1970 that never run backwards and never stand still, whatever happens to the machine's clock.

    When the machine's clock is set back, this one goes on at half speed until the two agree again.
    """

    def __init__(self) -> None:
        self._now_ns = time_ns()
        self._seen_ns = monotonic_ns()

    def __call__(self) -> int:
        seen_ns = monotonic_ns()
        slowly_ns = self._now_ns + (seen_ns - self._seen_ns) // 2
        self._seen_ns = seen_ns
        self._now_ns = max(time_ns(), slowly_ns)
        return self._now_ns // 1_000_000


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
