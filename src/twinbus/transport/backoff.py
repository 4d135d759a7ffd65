"""Pauses that grow while something keeps failing."""

from __future__ import annotations

from collections.abc import Callable


class Backoff:
    """Each pause is twice as long as the last, up to a maximum, and up to a fifth shorter by chance."""

    def __init__(self, range_s: tuple[float, float], chance: Callable[[], float]) -> None:
        """`range_s`: the first and the longest pause; `chance` returns numbers from 0 to 1."""
        self._first_ms, self._max_ms = range_s[0] * 1000, range_s[1] * 1000
        self._chance = chance
        self.failures = 0

    def next_ms(self) -> int:
        pause_ms = min(self._max_ms, self._first_ms * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return max(1, round(pause_ms * (0.8 + 0.2 * self._chance())))

    def reset(self) -> None:
        self.failures = 0
