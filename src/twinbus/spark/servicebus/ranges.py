"""Which numbers to read, in how many pieces."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple


class Range(NamedTuple):
    """Numbers of one entity, both ends included."""

    entity: str
    first: int
    last: int


PIECES_MAX = 1_000
"""Of one range: numbers that are long gone must not become tasks without end."""

Key = tuple[str, int]
"""An entity and a partition of it."""


def pieces(ranges: list[Range], most: int) -> list[Range]:
    """The same numbers in ranges of at most so many, unless they are too many; of an entity all are equally long."""
    cut = []
    for entity, first, last in ranges:
        count = last - first + 1
        parts = min(-(-count // most), PIECES_MAX)
        bounds = [first + count * part // parts for part in range(parts + 1)]
        cut += [Range(entity, low, high - 1) for low, high in pairwise(bounds)]
    return cut


def shares(depths: Mapping[Key, int], most: int | None) -> dict[Key, int]:
    """How many numbers of each partition a batch has.

    With a limit, partitions share it by their depth, and each gets at least one if there is enough for all.
    """
    whole = sum(depths.values())
    if most is None or whole <= most:
        return dict(depths)
    by_depth = sorted(depths, key=lambda key: (-depths[key], key))
    at_least = 1 if most >= len(depths) else 0
    spare = most - at_least * len(depths)
    found = {key: min(depths[key], at_least + spare * depths[key] // whole) for key in by_depth}
    rest = most - sum(found.values())
    for key in by_depth:
        more = min(rest, depths[key] - found[key])
        found[key] += more
        rest -= more
    return found
