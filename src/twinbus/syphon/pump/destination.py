"""One entity of the primary as the pump sees it: open, resting after a failure, or not tried yet."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from twinbus.pairing.sending.encoded_messages import HEAD_BYTES_MAX, SECTION_BYTES
from twinbus.pairing.sending.error_class import ErrorClass
from twinbus.pairing.sending.failure import Failure
from twinbus.syphon.options import SyphonOptions
from twinbus.syphon.pump.backlog_message import HeldMessage

if TYPE_CHECKING:
    from twinbus.syphon.pump.ordered_queue import OrderedQueue

SINGLES_MAX = 64
"""Batches of one message in flight, to find the one for which a batch was refused."""


class DestinationState(Enum):
    CLOSED = "closed"
    OPENING = "opening"
    OPEN = "open"
    RESTING = "resting"


class Batch(NamedTuple):
    """Messages in flight, until the destination answers."""

    number: int
    messages: list[HeldMessage]
    sizes: tuple[int, ...]
    """Of each message as it goes home."""
    sent_ms: int

    @property
    def size(self) -> int:
        return sum(self.sizes)


def take_batch(waiting: deque[HeldMessage], limit_bytes: int, most: int) -> list[HeldMessage]:
    """Take the first messages that fit together, at least one."""
    room = limit_bytes - HEAD_BYTES_MAX
    taken: list[HeldMessage] = []
    while waiting and len(taken) < most:
        room -= len(waiting[0].payload) + SECTION_BYTES  # opening the envelope does not make it larger
        if room < 0 and taken:
            break
        taken.append(waiting.popleft())
    return taken


class Destination:
    """The messages that wait for one entity, and whether any may be sent now."""

    def __init__(self, path: str, options: SyphonOptions) -> None:
        self.path = path
        self.state = DestinationState.CLOSED
        self.credit = 0
        self.batch_bytes = 0
        self.message_bytes = 0
        """The largest message it accepts; 0: unknown."""
        self._queue: deque[HeldMessage] = deque()
        self.waiting: deque[HeldMessage] | OrderedQueue = self._queue
        self.suspects: deque[HeldMessage] = deque()
        """Messages of a batch that was refused for good: sent again one by one, to find the one to blame."""
        self.in_flight: dict[int, Batch] = {}
        self.failure: Failure | None = None
        """Why it rests, or rested until it last opened."""
        self.rest_until_ms = 0
        self._backoff = options.new_backoff()
        self._concurrency = options.concurrency
        self._busy_ms = round(options.busy_s * 1000)
        self._is_on_probation = False

    def is_resting(self, now_ms: int) -> bool:
        return self.state is DestinationState.RESTING and now_ms < self.rest_until_ms

    @property
    def has_messages(self) -> bool:
        return bool(self.waiting or self.suspects)

    def wants_opening(self, now_ms: int) -> bool:
        """Whether messages wait and no link is open or being opened."""
        is_rest_over = self.state is DestinationState.RESTING and now_ms >= self.rest_until_ms
        return self.has_messages and (self.state is DestinationState.CLOSED or is_rest_over)

    def opened(self, message_bytes: int, batch_bytes: int, credit: int) -> None:
        self.state = DestinationState.OPEN
        self.message_bytes, self.batch_bytes, self.credit = message_bytes, batch_bytes, credit
        self._is_on_probation = self.failure is not None

    @property
    def is_unused(self) -> bool:
        """Whether its link is open and not needed at the moment."""
        is_open = self.state is DestinationState.OPEN
        return is_open and self.failure is None and not self.has_messages and not self.in_flight

    def closed(self) -> None:
        """The link is gone; the next message opens another."""
        self.state = DestinationState.CLOSED
        self.credit = 0

    def room(self) -> int:
        if self.state is not DestinationState.OPEN:
            return 0
        most = 1 if self._is_on_probation else SINGLES_MAX if self.suspects else self._concurrency
        return max(0, min(self.credit, most - len(self.in_flight)))

    def succeeded(self) -> bool:
        """A batch was stored; whether that ends a time of failures."""
        was_down = self.failure is not None
        self.failure = None
        self._is_on_probation = False
        self._backoff.reset()
        return was_down

    def rest(self, failure: Failure, error_class: ErrorClass, now_ms: int) -> None:
        """Send nothing for a while: ten seconds if it throttles, else longer each time."""
        was_resting = self.is_resting(now_ms)
        self.state = DestinationState.RESTING
        self.failure = failure
        self.credit = 0
        if error_class is ErrorClass.BUSY:
            self.rest_until_ms = max(self.rest_until_ms, now_ms + self._busy_ms)
        elif not was_resting:  # batches that were in flight together may all fail: that is one failure
            self.rest_until_ms = now_ms + self._backoff.next_ms()

    def wake(self) -> None:
        """Rest no longer."""
        self.rest_until_ms = 0
        self._backoff.reset()

    def take(self, most: int) -> list[HeldMessage]:
        if self.suspects:
            return [self.suspects.popleft()]
        return take_batch(self._queue, self.batch_bytes, most)

    def take_all(self) -> list[HeldMessage]:
        messages = [*self.suspects, *self.waiting]
        self.suspects.clear()
        self.waiting.clear()
        return messages

    def take_in_flight(self) -> list[Batch]:
        """Take all batches in flight: their outcomes no longer count."""
        batches = list(self.in_flight.values())
        self.in_flight.clear()
        return batches

    def drop_lost(self) -> None:
        for waiting in (self.waiting, self.suspects):
            kept = [held for held in waiting if not held.lock_batch.is_lost]
            waiting.clear()
            waiting.extend(kept)

    def is_unanswered(self, now_ms: int, attempt_ms: int) -> bool:
        oldest = next(iter(self.in_flight.values()), None)
        return oldest is not None and now_ms - oldest.sent_ms >= attempt_ms
