"""Which numbers of a process are there, kept as ranges: small, however many records there are."""

from __future__ import annotations

from bisect import bisect_right


class Numbers:
    """A set of whole numbers that mostly come in order."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def add(self, number: int) -> bool:
        """Take a number in; False if it was there."""
        firsts, lasts = self._firsts, self._lasts
        if lasts and number == lasts[-1] + 1:
            lasts[-1] = number
            return True
        at = bisect_right(firsts, number)
        if at and number <= lasts[at - 1]:
            return False
        self._insert(at, number)
        return True

    def _insert(self, at: int, number: int) -> None:
        firsts, lasts = self._firsts, self._lasts
        touches_before = at > 0 and lasts[at - 1] + 1 == number
        touches_after = at < len(firsts) and firsts[at] - 1 == number
        if touches_before and touches_after:
            lasts[at - 1] = lasts.pop(at)
            del firsts[at]
        elif touches_before:
            lasts[at - 1] = number
        elif touches_after:
            firsts[at] = number
        else:
            firsts.insert(at, number)
            lasts.insert(at, number)

    @property
    def last(self) -> int:
        """The largest; 0 if there is none."""
        return self._lasts[-1] if self._lasts else 0

    def count(self) -> int:
        return sum(self._lasts) - sum(self._firsts) + len(self._firsts)

    def missing(self) -> list[tuple[int, int]]:
        """First and last of every range that is not there, between 1 and the largest number."""
        ends = [0, *self._lasts]
        return [(end + 1, first - 1) for end, first in zip(ends, self._firsts, strict=False) if first - end > 1]
