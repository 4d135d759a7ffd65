"""One entity of the primary as the pump sees it: open, resting after a failure, or not tried yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Protocol

from twinbus.pairing.failure import Failure
from twinbus.pairing.verdict import Verdict
from twinbus.syphon.backoff import Backoff
from twinbus.syphon.batches import Batch, take_batch
from twinbus.syphon.letters import Held
from twinbus.syphon.options import SyphonOptions

SINGLES_MAX = 64
"""Letters on their way one by one, to find the one for which a batch was refused."""


class State(Enum):
    CLOSED = "closed"
    OPENING = "opening"
    OPEN = "open"
    RESTING = "resting"


class Waiting(Protocol):
    """Letters in line."""

    def append(self, held: Held, /) -> None: ...

    def extend(self, letters: Iterable[Held], /) -> None: ...

    def clear(self) -> None: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Held]: ...


class Destination:
    """Letters in line for one entity, and whether any may be sent now."""

    def __init__(self, path: str, options: SyphonOptions) -> None:
        self.path = path
        self.state = State.CLOSED
        self.credit = 0
        self.batch_bytes = 0
        self.message_bytes = 0
        """The largest message it takes; 0: it did not say."""
        self._line: deque[Held] = deque()
        self.waiting: Waiting = self._line
        self.suspects: deque[Held] = deque()
        """Letters of a batch that was refused for good: sent again one by one, since only one may be to blame."""
        self.in_flight: dict[int, Batch] = {}
        self.failure: Failure | None = None
        """Why it rests, or was resting until a moment ago."""
        self._rest_until_ms = 0
        self._backoff = Backoff(options)
        self._concurrency = options.concurrency
        self._busy_ms = round(options.busy_s * 1000)
        self._is_on_probation = False

    def is_resting(self, now_ms: int) -> bool:
        return self.state is State.RESTING and now_ms < self._rest_until_ms

    @property
    def rest_until_ms(self) -> int:
        return self._rest_until_ms

    @property
    def has_letters(self) -> bool:
        return bool(self.waiting or self.suspects)

    def wants_opening(self, now_ms: int) -> bool:
        """Whether letters wait and no link is there or asked for."""
        return self.has_letters and (
            self.state is State.CLOSED or (self.state is State.RESTING and now_ms >= self._rest_until_ms)
        )

    def opened(self, message_bytes: int, batch_bytes: int, credit: int) -> None:
        self.state = State.OPEN
        self.message_bytes, self.batch_bytes, self.credit = message_bytes, batch_bytes, credit
        self._is_on_probation = self.failure is not None

    @property
    def is_unused(self) -> bool:
        """Whether its link is open, and nobody would miss it."""
        return self.state is State.OPEN and self.failure is None and not self.has_letters and not self.in_flight

    def closed(self) -> None:
        """The link is gone, and the next letter asks for another."""
        self.state = State.CLOSED
        self.credit = 0

    def room(self) -> int:
        """How many batches may be sent now."""
        if self.state is not State.OPEN:
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

    def rest(self, failure: Failure, verdict: Verdict, now_ms: int) -> None:
        """Leave it alone for a while: ten seconds if it throttles, else longer each time."""
        was_resting = self.is_resting(now_ms)
        self.state = State.RESTING
        self.failure = failure
        self.credit = 0
        if verdict is Verdict.BUSY:
            self._rest_until_ms = max(self._rest_until_ms, now_ms + self._busy_ms)
        elif not was_resting:  # of batches that were on their way together each may fail: that is one failure
            self._rest_until_ms = now_ms + self._backoff.next_ms()

    def take(self, most: int) -> list[Held]:
        """The letters to send next as one batch, at most so many. They leave the line."""
        if self.suspects:
            return [self.suspects.popleft()]
        return take_batch(self._line, self.batch_bytes, most)

    def take_letters(self) -> list[Held]:
        """Everything in line; the line is empty then."""
        letters = [*self.suspects, *self.waiting]
        self.suspects.clear()
        self.waiting.clear()
        return letters

    def take_in_flight(self) -> list[Batch]:
        """Everything on its way: nobody waits for its answer any more."""
        batches = list(self.in_flight.values())
        self.in_flight.clear()
        return batches

    def drop_lost(self) -> None:
        """Forget letters in line that we do not have any more."""
        for line in (self.waiting, self.suspects):
            kept = [held for held in line if not held.lot.is_lost]
            line.clear()
            line.extend(kept)

    def is_unanswered(self, now_ms: int, attempt_ms: int) -> bool:
        """Whether the answer to a batch is overdue."""
        oldest = next(iter(self.in_flight.values()), None)
        return oldest is not None and now_ms - oldest.sent_ms >= attempt_ms
