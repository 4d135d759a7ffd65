"""Where a stream is: for each entity, and each partition of it, the number of the next message.

In a partitioned entity of the service the topmost 16 bits of a sequence number are the id of a partition. Numbers grow
within a partition only, so one number does not say what has been read of the others. All other entities, and those of
our own namespaces, partitioned or not, have one partition, 0.

Spark keeps offsets as JSON:

    {"orders": {"0": {"next": 31, "first": 1, "seen": 30, "enqueued_ms": 1794816300000, "latest_ms": 1794816300000}}}

`seen` is a message by which the entity is recognised, `enqueued_ms` when it came: an entity that was deleted and made
anew has another message of that number, or none, and its lower numbers came later than `latest_ms`. `anew` counts how
often that has happened; `first` is where reading began, the last time that it did. Names are in lower case, because the
service does not distinguish `Orders` from `orders`.

Version 0.1 had one number for each entity: {"orders": 31}.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from twinbus.errors import TwinbusError

PARTITION_BITS = 48
Positions = dict[int, "Position"]
"""Of one entity, by partition."""


class Position(NamedTuple):
    """Where a stream is in one partition."""

    next: int
    first: int
    seen: int = 0
    """0: of an offset of version 0.1, which does not say by what the entity is recognised."""
    enqueued_ms: int = 0
    latest_ms: int = 0
    """No message below `next` was enqueued later."""
    anew: int = 0


def partition_of(number: int) -> int:
    return number >> PARTITION_BITS


def begin_of(partition: int) -> int:
    """The lowest number that a message in a partition can have."""
    return max(1, partition << PARTITION_BITS)


def old_number(offsets: Mapping[str, Any] | None, entity: str) -> int | None:
    """What an offset of version 0.1 says of an entity; None if it is of another version, or says nothing."""
    said = _said_of(offsets, entity)
    return said if isinstance(said, int) else None


def positions_in(offsets: Mapping[str, Any] | None, entity: str) -> Positions:
    """What an offset of any version says of an entity, in whatever case it is named; nothing if it is new.

    Raises `TwinbusError` if the offset is of a version that is not known here.
    """
    said = _said_of(offsets, entity)
    if said is None:
        return {}
    if isinstance(said, int):
        return {partition_of(said): Position(said, said)}
    try:
        return {int(partition): Position(**fields) for partition, fields in said.items()}
    except (AttributeError, TypeError, ValueError):
        raise TwinbusError(
            f"the checkpoint says {said!r:.200} of {entity}, which this twinbus does not understand: go on with the "
            "version that wrote it, or a newer one"
        ) from None


def _said_of(offsets: Mapping[str, Any] | None, entity: str) -> Any:
    return next((said for name, said in (offsets or {}).items() if name.lower() == entity.lower()), None)


def as_offsets(found: Mapping[str, Positions]) -> dict[str, Any]:
    """As Spark keeps it; the same positions are always the same text."""
    return {entity.lower(): _fields(positions) for entity, positions in found.items()}


def _fields(positions: Positions) -> dict[str, dict[str, int]]:
    return {str(partition): positions[partition]._asdict() for partition in sorted(positions)}


def unread(begin: Positions, end: Positions) -> Iterable[tuple[int, int]]:
    """The numbers between two positions, as first and last, for each partition that has any."""
    for partition, after in sorted(end.items()):
        before = begin.get(partition)
        first = after.first if before is None or before.anew != after.anew else before.next
        if after.next > first:
            yield first, after.next - 1
