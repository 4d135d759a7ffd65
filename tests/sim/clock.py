"""Time that passes only when the simulator says so."""

from __future__ import annotations

START_MS = 1_750_000_000_000
"""When every simulation begins; any time will do, but always the same."""


class VirtualClock:
    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, by_ms: int) -> None:
        self.now_ms += by_ms

    def advance_to(self, at_ms: int) -> None:
        """Go to a time; one that has passed already changes nothing."""
        self.now_ms = max(self.now_ms, at_ms)
