"""Which numbers to read, in how many pieces."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from twinbus.spark.browser import Extent


class Range(NamedTuple):
    """Numbers of one entity, both ends included."""

    entity: str
    first: int
    last: int


PIECES_MAX = 1_000
"""Of one entity: in the service numbers of partitions lie 2^48 apart, and such a gap must not become tasks."""


def pieces(ranges: list[Range], most: int) -> list[Range]:
    """The same numbers in ranges of at most so many, unless they are too many; of an entity all are equally long."""
    cut = []
    for entity, first, last in ranges:
        count = last - first + 1
        parts = min(-(-count // most), PIECES_MAX)
        bounds = [first + count * part // parts for part in range(parts + 1)]
        cut += [Range(entity, low, high - 1) for low, high in pairwise(bounds)]
    return cut


def ends(starts: Mapping[str, int], found: Mapping[str, Extent | None], most: int | None) -> dict[str, int]:
    """Where a batch ends: for each entity the number after its last; the start again where there is nothing.

    With a limit, entities share it by their depth, and each gets at least one if there is enough for all.
    """
    depths = {entity: extent.depth for entity, extent in found.items() if extent is not None}
    shares = depths if most is None or sum(depths.values()) <= most else _shares(depths, most)
    after = {}
    for entity, start in starts.items():
        extent = found.get(entity)
        if extent is None or not shares.get(entity):
            after[entity] = start
        else:
            after[entity] = min(extent.last, extent.first + shares[entity] - 1) + 1
    return after


def _shares(depths: Mapping[str, int], most: int) -> dict[str, int]:
    whole = sum(depths.values())
    by_depth = sorted(depths, key=lambda entity: (-depths[entity], entity))
    at_least = 1 if most >= len(depths) else 0
    spare = most - at_least * len(depths)
    shares = {entity: min(depths[entity], at_least + spare * depths[entity] // whole) for entity in by_depth}
    rest = most - sum(shares.values())
    for entity in by_depth:
        more = min(rest, depths[entity] - shares[entity])
        shares[entity] += more
        rest -= more
    return shares
