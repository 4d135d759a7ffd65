"""Finds how far a stream can go: what is new in each partition, and whether an entity was deleted and created again.

It peeks, which needs the Listen right only.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from twinbus.errors import TwinbusError
from twinbus.spark.source.consuming.staging import is_receive_offset
from twinbus.spark.source.offsets import (
    EntityPartition,
    Positions,
    SequenceRange,
    StreamPosition,
    as_offsets,
    first_sequence_of,
    old_number,
    partition_of,
    positions_in,
    share_limit,
)
from twinbus.spark.source.options import ReadOptions
from twinbus.spark.source.queue_offsets import EARLIEST, LATEST, QueueOffsets
from twinbus.transport.links.annotations import enqueued_ms, is_scheduled, is_waiting, sequence_of
from twinbus.transport.links.peek import DEAD_LETTER_QUEUE, search_last_sequence

logger = logging.getLogger("twinbus.spark")

CHECK_S = 10.0
"""How often an idle stream searches new partitions, and checks whether its entities were created again. Whatever is
found before that is checked at once, so nothing is missed; a call that finds nothing costs one peek.
"""
UNSCHEDULED_SEARCH = 32
"""How many messages are peeked to find one that is not scheduled."""


class PeekedEntry(NamedTuple):
    """What is known of a peeked message."""

    number: int
    enqueued_ms: int
    is_scheduled: bool = False
    """Its time may be the one it is scheduled for, and it gets another number then."""
    is_waiting: bool = True
    """Whether a receiver would get it."""


PeekEntity = Callable[[int, int], list[PeekedEntry]]
"""Takes a sequence number and a count: the messages of one entity from that number on, at most that many."""


class PartitionSpan(NamedTuple):
    """The first and the last message of a partition, from some number on; numbers between may be missing."""

    first: PeekedEntry
    last: PeekedEntry

    @property
    def depth(self) -> int:
        """About how many messages that are, and never fewer."""
        return self.last.number - self.first.number + 1


def describe_peeked(message: bytes) -> PeekedEntry:
    return PeekedEntry(sequence_of(message), enqueued_ms(message) or 0, is_scheduled(message), is_waiting(message))


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


def begins_of(peek: PeekEntity, entity: str, starting: QueueOffsets) -> Iterator[tuple[PeekedEntry, bool]]:
    """Where reading begins in each partition that has messages, and whether that is only after its latest message."""
    for first in partitions_from(peek, 1):
        partition = partition_of(first.number)
        number = starting.at(entity, partition)
        if number <= 0 or partition_of(number) < partition:
            yield first, number == LATEST
        elif partition_of(number) == partition and (begin := first_in(peek, number)) is not None:
            yield begin, False


def ranges_of(peek: PeekEntity, entity: str, starting: QueueOffsets, ending: QueueOffsets) -> Iterator[SequenceRange]:
    """What is there now, between two offsets: from the first on, up to the second and without it."""
    for first, _ in begins_of(peek, entity, starting):
        partition = partition_of(first.number)
        last, end = span_from(peek, first).last.number, ending.at(entity, partition)
        if end > 0:
            last = min(last, end - 1)  # lower than the whole partition, if it is of one before it
        if last >= first.number:
            yield SequenceRange(entity, first.number, last)


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


def check_browses(offset: Mapping[str, Any] | None) -> None:
    """Raise `TwinbusError` if an offset is of a stream that consumes."""
    if is_receive_offset(offset):
        raise TwinbusError(
            "the checkpoint is of a stream with mode=receive, and what that has read is gone from its queues: give "
            "mode=browse a checkpointLocation of its own"
        )


class StreamOffsets:
    """The next offset of a stream, by peeking."""

    def __init__(
        self,
        options: ReadOptions,
        peek: Callable[[str, int, int], list[PeekedEntry]],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`peek` takes an entity as well."""
        self._options = options
        self._peek = peek
        self._monotonic = monotonic
        self._clock = clock
        self._checked_s: dict[str, float] = {}
        self._targets: dict[EntityPartition, int] | None = None
        self._logged: set[str] = set()

    def initial(self) -> dict[str, Any]:
        """The first message of each partition, or the one after the last that is there now."""
        found: dict[str, Positions] = {}
        for entity in self._options.entities:
            peek = self._peek_of(entity)
            positions = []
            for first, is_latest in begins_of(peek, entity, self._options.starting):
                each = span_from(peek, first).last if is_latest else first
                number = each.number + 1 if is_latest else each.number
                positions.append(self._after(entity, number, number, each))
            found[entity] = {partition_of(each.next): each for each in positions}
            if (
                not positions
                and self._options.fail_on_missing
                and self._options.starting.at(entity, 0) in (EARLIEST, 1)
            ):
                found[entity] = {0: StreamPosition(1, 1)}  # what others take first is missing too
        return as_offsets(found)

    def stop_at_what_is_there(self) -> None:
        """Messages that arrive from now on are left for another run."""
        self._targets = {}
        for entity in self._options.entities:
            peek = self._peek_of(entity)
            for first in partitions_from(peek, 1):
                self._targets[entity, partition_of(first.number)] = span_from(peek, first).last.number

    def latest(self, start: Mapping[str, Any] | None, most: int | None) -> dict[str, Any]:
        """The offset after the next batch of about `most` messages; `start` again if nothing is new.

        Raises `TwinbusError` if messages were lost, or may have been, and the options make that a failure.
        """
        check_browses(start)
        before = {entity: self._positions(start, entity) for entity in self._options.entities}
        begins: dict[EntityPartition, StreamPosition | None] = {}
        spans: dict[EntityPartition, PartitionSpan] = {}
        for entity, positions in before.items():
            for key, (begin, first) in self._find_new(entity, positions).items():
                span = self._within_target(key, span_from(self._peek_of(entity), first))
                if span is not None:
                    begins[key], spans[key] = begin, span
        ends = share_limit({key: span.depth for key, span in spans.items()}, most)
        if not any(ends.values()):
            return dict(start or {})
        after = {entity: dict(positions) for entity, positions in before.items()}
        for key, count in ends.items():
            if count:
                entity, partition = key
                after[entity][partition] = self._end(entity, spans[key], count, begins[key])
        return as_offsets(after)

    # --- one entity ---

    def _positions(self, start: Mapping[str, Any] | None, entity: str) -> Positions:
        positions = positions_in(start, entity)
        number = old_number(start, entity)
        if number is not None and partition_of(number):
            # What is below was read up to a number that was not kept.
            self._report_loss(
                f"{entity} has partitions, and the checkpoint is of version 0.1, which did not say what was read of "
                f"those before partition {partition_of(number)}",
                "reads them again from their beginning",
            )
        return positions

    def _find_new(
        self, entity: str, positions: Positions
    ) -> dict[EntityPartition, tuple[StreamPosition | None, PeekedEntry]]:
        """By partition with anything new: the position to go on from (None: the partition is new), and its first new
        message.
        """
        peek = self._peek_of(entity)
        found: dict[EntityPartition, tuple[StreamPosition | None, PeekedEntry]] = {}
        checks = self._monotonic() - self._checked_s.get(entity, -CHECK_S) >= CHECK_S
        for partition, position in positions.items():
            first = first_in(peek, position.next)
            if (first is not None or checks) and is_recreated(peek, position):
                self._report_recreated(entity, position)
                position = position._replace(anew=position.anew + 1, latest_ms=0)
                first = first_in(peek, first_sequence_of(partition))
                if first is not None:
                    position = position._replace(next=first.number, first=first.number)
            if first is not None:
                found[entity, partition] = position, first
        if checks or not positions:
            for first, _ in begins_of(peek, entity, self._options.starting):
                if partition_of(first.number) not in positions:
                    found[entity, partition_of(first.number)] = None, first
            self._checked_s[entity] = self._monotonic()
        return found

    def _within_target(self, key: EntityPartition, span: PartitionSpan) -> PartitionSpan | None:
        if self._targets is None:
            return span
        target = self._targets.get(key, 0)
        if span.first.number > target:
            return None
        return span if span.last.number <= target else PartitionSpan(span.first, span.last._replace(number=target))

    def _end(self, entity: str, span: PartitionSpan, count: int, begin: StreamPosition | None) -> StreamPosition:
        number = min(span.last.number, span.first.number + count - 1)
        # The last message of the batch, or one behind it if that number is gone; there is one.
        seen = first_in(self._peek_of(entity), number) or span.last
        first = span.first.number if begin is None else begin.first
        return self._after(entity, number + 1, first, seen, begin)

    def _after(
        self, entity: str, next_number: int, first: int, seen: PeekedEntry, begin: StreamPosition | None = None
    ) -> StreamPosition:
        # Messages keep their time in a dead-letter queue, and that of scheduled ones is to come: then all that is known
        # is that nothing arrived later than now.
        is_timeless = seen.is_scheduled or entity.lower().endswith(DEAD_LETTER_QUEUE.lower())
        latest_ms = round(self._clock() * 1000) if is_timeless else seen.enqueued_ms
        if begin is not None:
            latest_ms = max(latest_ms, begin.latest_ms)
        anew = 0 if begin is None else begin.anew
        return StreamPosition(next_number, first, seen.number, seen.enqueued_ms, latest_ms, anew)

    def _peek_of(self, entity: str) -> PeekEntity:
        return partial(self._peek, entity)

    # --- reports ---

    def _report_recreated(self, entity: str, position: StreamPosition) -> None:
        read = f"the stream had read it up to number {position.next - 1}"
        if position.seen:
            self._report_loss(
                f"{entity} was deleted and made anew: {read}, and numbers have begun again", "reads what is there"
            )
        else:
            self._report_loss(
                f"{entity} may have been deleted and made anew: {read}, that message is gone while earlier numbers are "
                "there, and the checkpoint, which is of version 0.1, does not say what they were",
                "reads what is there, perhaps again",
            )

    def _report_loss(self, what: str, otherwise: str) -> None:
        if self._options.fail_on_data_loss:
            raise TwinbusError(f"{what}; failOnDataLoss=false {otherwise}")
        if what not in self._logged:
            logger.warning("%s; failOnDataLoss=false %s", what, otherwise)
            self._logged.add(what)
