"""Where a stream is (for each entity and partition, the number of the next message), and how reading is split up.

In a partitioned entity of the service the topmost 16 bits of a sequence number are the id of a partition. Numbers grow
within a partition only, so one number does not say what has been read of the others. All other entities, and those of
our own namespaces, partitioned or not, have one partition, 0.

Spark keeps offsets as JSON:

    {"orders": {"0": {"next": 31, "first": 1, "seen": 30, "enqueued_ms": 1794816300000, "latest_ms": 1794816300000}}}

`seen` is a message by which the entity is recognised, `enqueued_ms` its time: an entity that was deleted and created
again has another message of that number, or none, and its lower numbers are later than `latest_ms`. `anew` counts how
often that has happened; `first` is where reading began the last time. Names are in lower case, because the service does
not distinguish `Orders` from `orders`.

Version 0.1 had one number for each entity: {"orders": 31}.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from twinbus.errors import TwinbusError

PARTITION_BITS = 48
Positions = dict[int, "StreamPosition"]
"""Of one entity, by partition."""


class StreamPosition(NamedTuple):
    """Where a stream is in one partition."""

    next: int
    first: int
    seen: int = 0
    """0: an offset of version 0.1, which does not have it."""
    enqueued_ms: int = 0
    latest_ms: int = 0
    """No message below `next` was enqueued later."""
    anew: int = 0


def partition_of(number: int) -> int:
    return number >> PARTITION_BITS


def first_sequence_of(partition: int) -> int:
    """The lowest sequence number in a partition."""
    return max(1, partition << PARTITION_BITS)


def old_number(offsets: Mapping[str, Any] | None, entity: str) -> int | None:
    """The number of an entity in an offset of version 0.1; None if it is of another version, or has none."""
    entry = _entry_of(offsets, entity)
    return entry if isinstance(entry, int) else None


def positions_in(offsets: Mapping[str, Any] | None, entity: str) -> Positions:
    """The positions in an offset of any version, whatever the case of the name; none if the entity is new.

    Raises `TwinbusError` if the version of the offset is unknown.
    """
    entry = _entry_of(offsets, entity)
    if entry is None:
        return {}
    if isinstance(entry, int):
        return {partition_of(entry): StreamPosition(entry, entry)}
    try:
        return {int(partition): StreamPosition(**fields) for partition, fields in entry.items()}
    except (AttributeError, TypeError, ValueError):
        raise TwinbusError(
            f"the checkpoint says {entry!r:.200} of {entity}, which this twinbus does not understand: go on with the "
            "version that wrote it, or a newer one"
        ) from None


def _entry_of(offsets: Mapping[str, Any] | None, entity: str) -> Any:
    return next((entry for name, entry in (offsets or {}).items() if name.lower() == entity.lower()), None)


def as_offsets(found: Mapping[str, Positions]) -> dict[str, Any]:
    """As Spark keeps it; the same positions give the same text."""
    return {
        entity.lower(): {str(partition): positions[partition]._asdict() for partition in sorted(positions)}
        for entity, positions in found.items()
    }


def unread(begin: Positions, end: Positions) -> Iterable[tuple[int, int]]:
    """The numbers between two positions, as first and last, for each partition that has any."""
    for partition, after in sorted(end.items()):
        before = begin.get(partition)
        first = after.first if before is None or before.anew != after.anew else before.next
        if after.next > first:
            yield first, after.next - 1


# --- splitting up ---


class SequenceRange(NamedTuple):
    """Sequence numbers of one entity, both ends included."""

    entity: str
    first: int
    last: int


PIECES_MAX = 1_000
"""Of one range: missing numbers must not become an endless number of tasks."""

EntityPartition = tuple[str, int]
"""An entity and one of its partitions."""


def split_ranges(ranges: list[SequenceRange], most: int) -> list[SequenceRange]:
    """The same numbers in ranges of at most `most`, unless there would be too many; about equally long."""
    cut = []
    for entity, first, last in ranges:
        count = last - first + 1
        parts = min(-(-count // most), PIECES_MAX)
        bounds = [first + count * part // parts for part in range(parts + 1)]
        cut += [SequenceRange(entity, low, high - 1) for low, high in pairwise(bounds)]
    return cut


def share_limit(depths: Mapping[EntityPartition, int], most: int | None) -> dict[EntityPartition, int]:
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
