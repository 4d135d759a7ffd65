"""Pauses that grow while something keeps failing."""

from __future__ import annotations

from twinbus.syphon.options import SyphonOptions


class Backoff:
    """The next pause is twice as long as the last, up to a bound, and shorter by a bit of chance."""

    def __init__(self, options: SyphonOptions) -> None:
        self._shortest_ms = options.backoff_s[0] * 1000
        self._longest_ms = options.backoff_s[1] * 1000
        self._chance = options.chance
        self.failures = 0

    def next_ms(self) -> int:
        """How long to pause now."""
        pause_ms = min(self._longest_ms, self._shortest_ms * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return max(1, round(pause_ms * (0.8 + 0.2 * self._chance())))

    def reset(self) -> None:
        self.failures = 0
