"""Which record numbers of a process have been read, and when the records at the edges were written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Range(NamedTuple):
    """Numbers `first` to `last`, all of them; when the first and the last were recorded."""

    first: int
    last: int
    first_ms: int
    last_ms: int

    @property
    def size(self) -> int:
        return self.last - self.first + 1


class Hole(NamedTuple):
    """Numbers that no record has; when the records around them were written (0: there is none before)."""

    first: int
    last: int
    after_ms: int
    before_ms: int

    @property
    def size(self) -> int:
        return self.last - self.first + 1


def joined(ranges: Iterable[Sequence[int]]) -> list[Range]:
    """The same numbers in as few ranges as possible, in order."""
    result: list[Range] = []
    for each in sorted(Range(*values) for values in ranges):
        if result and each.first <= result[-1].last + 1:
            before = result[-1]
            if each.last > before.last:
                result[-1] = Range(before.first, each.last, before.first_ms, each.last_ms)
        else:
            result.append(each)
    return result


def overlap(one: Sequence[Range], other: Sequence[Range]) -> bool:
    """Whether any number is in both; each of them in order and without overlaps of its own."""
    at = 0
    for each in one:
        while at < len(other) and other[at].last < each.first:
            at += 1
        if at < len(other) and other[at].first <= each.last:
            return True
    return False


def holes(ranges: Sequence[Range]) -> list[Hole]:
    """What is missing between 1 and the largest number."""
    before = [Range(0, 0, 0, 0), *ranges]
    return [
        Hole(left.last + 1, right.first - 1, left.last_ms, right.first_ms)
        for left, right in zip(before, ranges, strict=False)
        if right.first - left.last > 1
    ]
