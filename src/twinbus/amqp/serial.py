"""Serial numbers of 32 bits (RFC 1982): transfer ids, delivery ids, delivery counts."""

from __future__ import annotations

from collections.abc import Collection, Iterator

SERIAL_MASK = 0xFFFFFFFF
_HALF = 0x80000000


def plus(counter: int, step: int) -> int:
    return (counter + step) & SERIAL_MASK


def steps(start: int, end: int) -> int:
    """The steps from `start` to `end`; negative if `end` lies behind."""
    distance = (end - start) & SERIAL_MASK
    return distance - 0x100000000 if distance >= _HALF else distance


def ids_between(first: int, last: int, held: Collection[int]) -> list[int]:
    """The ids of first..last that are in `held`. Takes time for the smaller of both, whatever range a peer claims."""
    if first == last:
        return [first] if first in held else []
    count = steps(first, last) + 1
    if count <= len(held):
        return [wanted for wanted in ((first + step) & SERIAL_MASK for step in range(count)) if wanted in held]
    return [given for given in held if (given - first) & SERIAL_MASK < count]


def ranges(ids: list[int]) -> Iterator[tuple[int, int]]:
    """Consecutive numbers together: first and last of each run."""
    first = last = None
    for each in sorted(ids):
        if last is not None and each == last + 1:
            last = each
            continue
        if first is not None and last is not None:
            yield first, last
        first = last = each
    if first is not None and last is not None:
        yield first, last
