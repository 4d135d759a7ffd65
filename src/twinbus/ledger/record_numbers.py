"""Which numbers of a process are there, as ranges, with four bytes for each: small, however many records there are."""

from __future__ import annotations

from array import array
from bisect import bisect_right

_CRC = "I"


class Numbers:
    """A set of whole numbers that mostly come in order, each with the checksum of its record: four bytes."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._crcs: list[array[int]] = []

    def add(self, number: int, crc: int = 0) -> bool:
        """Take a number in; False if it was there."""
        firsts, crcs = self._firsts, self._crcs
        if firsts and number == firsts[-1] + len(crcs[-1]):
            crcs[-1].append(crc)
            return True
        at = bisect_right(firsts, number)
        if at and number <= self._last(at - 1):
            return False
        self._insert(at, number, crc)
        return True

    def is_same(self, number: int, crc: int) -> bool:
        """Whether a number that is there has this checksum."""
        at = bisect_right(self._firsts, number) - 1
        return self._crcs[at][number - self._firsts[at]] == crc

    def _last(self, at: int) -> int:
        return self._firsts[at] + len(self._crcs[at]) - 1

    def _insert(self, at: int, number: int, crc: int) -> None:
        firsts, crcs = self._firsts, self._crcs
        touches_before = at > 0 and self._last(at - 1) + 1 == number
        touches_after = at < len(firsts) and firsts[at] - 1 == number
        if touches_before:
            crcs[at - 1].append(crc)
            if touches_after:
                crcs[at - 1].extend(crcs.pop(at))
                del firsts[at]
        elif touches_after:
            firsts[at] = number
            crcs[at].insert(0, crc)
        else:
            firsts.insert(at, number)
            crcs.insert(at, array(_CRC, [crc]))

    @property
    def last(self) -> int:
        """The largest; 0 if there is none."""
        return self._last(-1) if self._firsts else 0

    def count(self) -> int:
        return sum(map(len, self._crcs))

    def ranges(self) -> list[tuple[int, int]]:
        """First and last of every range that is there."""
        return [(first, self._last(at)) for at, first in enumerate(self._firsts)]

    def missing(self) -> list[tuple[int, int]]:
        """First and last of every range that is not there, between 1 and the largest number."""
        ends = [0, *(self._last(at) for at in range(len(self._firsts)))]
        return [(end + 1, first - 1) for end, first in zip(ends, self._firsts, strict=False) if first - end > 1]
