"""What the partitions of an entity hold, found by peeking, which needs the Listen right only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from twinbus.spark.source.offsets import StreamPosition, first_sequence_of, partition_of
from twinbus.transport.annotations import enqueued_ms, is_scheduled, sequence_of
from twinbus.transport.peek import search_last_sequence

UNSCHEDULED_SEARCH = 32
"""How many messages are peeked to find one that is not scheduled."""


class PeekedEntry(NamedTuple):
    """What is known of a peeked message."""

    number: int
    enqueued_ms: int
    is_scheduled: bool = False
    """Its time may be the one it is scheduled for, and it gets another number then."""


PeekEntity = Callable[[int, int], list[PeekedEntry]]
"""Up to so many messages of one entity from a sequence number on."""


class PartitionSpan(NamedTuple):
    """The first and the last message of a partition, from some number on; numbers between may be missing."""

    first: PeekedEntry
    last: PeekedEntry

    @property
    def depth(self) -> int:
        """About how many messages that are, and never fewer."""
        return self.last.number - self.first.number + 1


def describe_peeked(message: bytes) -> PeekedEntry:
    return PeekedEntry(sequence_of(message), enqueued_ms(message) or 0, is_scheduled(message))


def first_in(peek: PeekEntity, number: int) -> PeekedEntry | None:
    """The first message of a partition from a number on."""
    found = peek(number, 1)
    return found[0] if found and partition_of(found[0].number) == partition_of(number) else None


def partitions_from(peek: PeekEntity, number: int) -> Iterator[PeekedEntry]:
    """The first message of each partition that has any from a number on. Costs a peek each, and one more."""
    seen: set[int] = set()
    while found := peek(number, 1):
        partition = partition_of(found[0].number)
        if partition in seen:
            return  # not what was asked for: there is nothing further on
        seen.add(partition)
        yield found[0]
        number = first_sequence_of(partition + 1)


def span_from(peek: PeekEntity, first: PeekedEntry) -> PartitionSpan:
    """From a message to the last one of its partition."""
    last = first
    search = search_last_sequence(first.number)
    asked = next(search)
    try:
        while True:
            found = first_in(peek, asked)
            last = found or last
            asked = search.send(None if found is None else found.number)
    except StopIteration:
        return PartitionSpan(first, last)


def is_recreated(peek: PeekEntity, position: StreamPosition) -> bool:
    """Whether the entity was deleted and created again since the stream read it.

    Then numbers begin at 1 again, and a stream that waits for higher ones would read nothing, or not all. An offset of
    version 0.1 does not always show that; then the answer is true if messages could be missed.
    """
    known = position.seen or position.next - 1
    there = first_in(peek, known) if known else None
    if there is not None and there.number == known:
        return bool(position.seen) and there.enqueued_ms != position.enqueued_ms
    begin = first_sequence_of(partition_of(position.next))
    below = [
        each
        for each in peek(begin, UNSCHEDULED_SEARCH)
        if begin <= each.number < position.next and not each.is_scheduled
    ]
    # In one entity a message with a lower number was enqueued earlier.
    return bool(below) and below[0].enqueued_ms > position.latest_ms
