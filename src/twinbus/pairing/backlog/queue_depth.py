"""How many messages wait in a queue, and since when: found by peeking, which needs Listen and takes nothing.

A peek may return fewer messages than were asked for although more follow, so only an empty answer proves the end. How
much is peeked at is limited: beyond the limits the number is a lower bound, and says so.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

MESSAGES_MAX = 1_000
PEEKS_MAX = 6
BYTES_MAX = 2 * 1024 * 1024
"""Of one queue and look. One answer may exceed it, because sizes are known only when messages have come."""
PAGE_MAX = 250


class Peeked(NamedTuple):
    """What a peek shows of one message."""

    sequence: int
    enqueued_ms: int | None
    is_waiting: bool
    """Neither scheduled nor deferred: a receiver gets it some day."""
    was_delivered: bool
    """Somebody received it and gave it back."""
    size: int


class Peek(NamedTuple):
    """Peek from a sequence number on. Answer: up to `most` messages, in order; none only if there are none."""

    from_sequence: int
    most: int


@dataclass(frozen=True, slots=True)
class Depth:
    """What lies in one queue."""

    at_least: int = 0
    """Messages that were seen waiting."""
    is_exact: bool = True
    """Whether these are all."""
    oldest_ms: int | None = None
    """When the oldest of them was enqueued, in ms since 1970; None: there is none, or it does not say."""
    was_delivered: bool = False
    """Whether somebody has had the first of them in hand."""
    peeks: int = 0
    """What it cost."""

    @property
    def messages(self) -> int | None:
        """How many wait; None: nobody knows exactly."""
        return self.at_least if self.is_exact else None


def measure(messages_max: int = MESSAGES_MAX) -> Generator[Peek, Sequence[Peeked], Depth]:
    """Look at a queue from its head. With `messages_max` 1 only the first message is looked at."""
    waiting: list[Peeked] = []
    seen = size = peeks = 0
    next_sequence = 1
    while True:
        left = messages_max - seen
        if seen and (left <= 0 or peeks >= PEEKS_MAX or size >= BYTES_MAX):
            return _depth(waiting, peeks, is_exact=False)
        page = yield Peek(next_sequence, 1 if not seen else _page(left, size // seen))
        peeks += 1
        if not page:
            return _depth(waiting, peeks, is_exact=True)
        seen += len(page)
        size += sum([message.size for message in page])
        waiting += [message for message in page if message.is_waiting]
        next_sequence = page[-1].sequence + 1


def _page(left: int, size_mean: int) -> int:
    return max(1, min(left, PAGE_MAX, BYTES_MAX // max(1, size_mean)))


def _depth(waiting: Sequence[Peeked], peeks: int, *, is_exact: bool) -> Depth:
    times = [message.enqueued_ms for message in waiting if message.enqueued_ms is not None]
    return Depth(
        at_least=len(waiting),
        is_exact=is_exact,
        oldest_ms=min(times, default=None),
        was_delivered=bool(waiting) and waiting[0].was_delivered,
        peeks=peeks,
    )
