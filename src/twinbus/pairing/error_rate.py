"""Brown-outs: an entity that fails most of its sends but not all of them never stays suspect for long (P20)."""

from __future__ import annotations

from collections import deque

from twinbus.pairing.rules import Rules

SLICES = 10
"""The window moves on in steps of a tenth."""
PINGS_NEEDED_MAX = 8
FLAP_PINGS = 10
"""A failover within this many ping intervals of the last return is a flap."""


class ErrorRate:
    """Counts sends and failures in a sliding window. Inactive without a limit."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._slices: deque[list[float]] = deque()  # [begins at, sends, failures]
        self.flaps = 0
        self._flaps_in_a_row = 0
        self._returned_at: float | None = None

    def count(self, at: float, *, failed: bool) -> bool:
        """Count a send; whether too many have failed."""
        limit = self._rules.error_rate
        if limit is None:
            return False
        self._move_to(at)
        self._slices[-1][1] += 1
        self._slices[-1][2] += failed
        sends, failures = self._totals()
        return failed and sends >= self._rules.error_sends_min and failures >= limit * sends

    def _move_to(self, at: float) -> None:
        width = self._rules.error_window_s / SLICES
        if not self._slices or at >= self._slices[-1][0] + width:
            self._slices.append([at, 0, 0])
        while self._slices[0][0] <= at - self._rules.error_window_s:
            self._slices.popleft()

    def _totals(self) -> tuple[float, float]:
        return sum(each[1] for each in self._slices), sum(each[2] for each in self._slices)

    @property
    def share(self) -> float | None:
        """The share of failures in the window; None without sends."""
        sends, failures = self._totals()
        return failures / sends if sends else None

    def failed_over(self, at: float) -> None:
        """The entity has left the primary: remember whether it had only just come back."""
        self.flaps += self._is_flap(at)
        self._flaps_in_a_row = self._flaps_in_a_row + 1 if self._is_flap(at) else 0
        self._slices.clear()

    def returned(self, at: float) -> None:
        self._returned_at = at
        self._slices.clear()

    def pings_needed(self, at: float) -> int:
        """Damping, for a failover now: each flap in a row doubles how many pings must succeed before sends return."""
        flaps = self._flaps_in_a_row + 1 if self._is_flap(at) else 0
        return min(PINGS_NEEDED_MAX, 1 << min(flaps, PINGS_NEEDED_MAX))

    def _is_flap(self, at: float) -> bool:
        return self._returned_at is not None and at - self._returned_at <= FLAP_PINGS * self._rules.ping_interval_s
