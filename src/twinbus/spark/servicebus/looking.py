"""What an entity holds, partition by partition, as peeking tells. Only the right to listen is needed for that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from twinbus.amqp import sections
from twinbus.spark.servicebus.offsets import Position, begin_of, partition_of
from twinbus.syphon.letters import enqueued_ms
from twinbus.syphon.look import last_sequence, sequence_of

LOOK_AT = 32
"""How many messages are peeked at to find one that is not scheduled."""
_SCHEDULED = 2


class Glimpse(NamedTuple):
    """What is known of a message that was peeked at."""

    number: int
    enqueued_ms: int
    is_scheduled: bool = False
    """Its time is the one it is meant for, perhaps, and it gets another number then."""


Peek = Callable[[int, int], list[Glimpse]]
"""Up to so many messages of one entity from a number on."""


class Span(NamedTuple):
    """The first and the last message of a partition, from some number on; numbers between may be gone."""

    first: Glimpse
    last: Glimpse

    @property
    def depth(self) -> int:
        """About how many messages that are, and never fewer."""
        return self.last.number - self.first.number + 1


def glimpse_of(message: bytes) -> Glimpse:
    state = sections.read_annotation(message, sections.walk(message), "x-opt-message-state")
    return Glimpse(sequence_of(message), enqueued_ms(message) or 0, state == _SCHEDULED)


def first_in(peek: Peek, number: int) -> Glimpse | None:
    """The first message of a partition from a number on."""
    found = peek(number, 1)
    return found[0] if found and partition_of(found[0].number) == partition_of(number) else None


def partitions_from(peek: Peek, number: int) -> Iterator[Glimpse]:
    """The first message of each partition that has any from a number on. Costs a peek each, and one more."""
    seen: set[int] = set()
    while found := peek(number, 1):
        partition = partition_of(found[0].number)
        if partition in seen:
            return  # answered with what was not asked for: there is nothing further on
        seen.add(partition)
        yield found[0]
        number = begin_of(partition + 1)


def span_from(peek: Peek, first: Glimpse) -> Span:
    """From a message to the last one of its partition."""
    last = first
    search = last_sequence(first.number)
    asked = next(search)
    try:
        while True:
            found = first_in(peek, asked)
            last = found or last
            asked = search.send(None if found is None else found.number)
    except StopIteration:
        return Span(first, last)


def is_anew(peek: Peek, position: Position) -> bool:
    """Whether the entity is another one than the stream has read: it was deleted and made anew.

    There, numbers begin at 1 again, and a stream that waits for higher ones reads nothing, or not all. Of an offset of
    version 0.1 that is not always known; then it is true if messages could be missed.
    """
    known = position.seen or position.next - 1
    there = first_in(peek, known) if known else None
    if there is not None and there.number == known:
        return bool(position.seen) and there.enqueued_ms != position.enqueued_ms
    begin = begin_of(partition_of(position.next))
    below = [each for each in peek(begin, LOOK_AT) if begin <= each.number < position.next and not each.is_scheduled]
    # In one entity a message with a lower number came earlier.
    return bool(below) and below[0].enqueued_ms > position.latest_ms
