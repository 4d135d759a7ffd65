"""Fair turns: no peer's input keeps the others waiting.

Input is processed in steps. A step is done at once while there is time left in this turn of the event loop and its peer
has not used much lately; otherwise the peer is queued. The peer that used least of the last seconds comes first: one
that asks for little does not wait for those that ask for much, however many connections they have. Unauthenticated
peers have a queue of their own, with less time, and are never processed at once: the others hardly notice them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Protocol

from twinbus.broker.links.disk_fairness import DecayingSum

TURN_S = 0.004
"""Steps of authenticated peers in one turn of the loop; the last one may be longer."""
UNAUTHENTICATED_TURN_S = 0.002
STEP_S = 0.002
"""One step; what is begun is ended."""
MUCH_S = 0.1
"""A peer that used more of the last seconds waits for the next turn, when all others with input are queued."""


class InputSource(Protocol):
    """A connection with input to process."""

    time_used: DecayingSum

    @property
    def is_authenticated(self) -> bool: ...

    def step(self, until: float) -> bool:
        """Process a part of it, until about that time; whether it is to be called again."""


class Turns:
    def __init__(
        self,
        clock: Callable[[], float],
        call_soon: Callable[[Callable[[], None]], object],
        between_steps: Callable[[], None] = lambda: None,
    ) -> None:
        """`clock` in seconds; `call_soon` calls in the next turn of the loop or a little later, after all sockets were
        read.

        `between_steps` does what should not wait until the turn is over.
        """
        self.clock = clock
        self._call_soon = call_soon
        self._between_steps = between_steps
        self._authenticated: list[tuple[float, int, InputSource]] = []
        """A heap: by rank, then in the order in which they came."""
        self._numbers = count()
        self._unauthenticated: deque[InputSource] = deque()
        self._ends_at: float | None = None
        """When the time of this turn is over; None: none of it is used yet."""

    def process(self, source: InputSource) -> bool:
        """Process new input, now or soon; whether the source is queued for more."""
        is_first = source.is_authenticated and not self._authenticated and self._may_go_first(source)
        if is_first and not self._step(source):
            return False
        self.enqueue(source)
        return True

    def enqueue(self, source: InputSource) -> None:
        """Process the input of a source soon."""
        if source.is_authenticated:
            heappush(self._authenticated, (source.time_used.rank, next(self._numbers), source))
        else:
            self._unauthenticated.append(source)
        self._begin_turn()

    def _step(self, source: InputSource) -> bool:
        began = self.clock()
        has_more = source.step(began + STEP_S)
        ended = self.clock()
        source.time_used.add(ended - began, ended)
        return has_more

    def _may_go_first(self, source: InputSource) -> bool:
        """Whether there is time left in this turn, and the source has not used much of the last ones."""
        self._begin_turn()
        now = self.clock()
        return self._ends_at is not None and now < self._ends_at and source.time_used.at(now) < MUCH_S

    def _begin_turn(self) -> None:
        if self._ends_at is None:
            self._ends_at = self.clock() + TURN_S
            self._call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._ends_at = None
        if self._authenticated or self._unauthenticated:
            self._begin_turn()
            self._process_authenticated()
            self._process_unauthenticated()

    def _process_authenticated(self) -> None:
        until = self.clock() + TURN_S
        while self._authenticated:
            self._process_one(heappop(self._authenticated)[2])
            if self.clock() >= until:
                return

    def _process_unauthenticated(self) -> None:
        until = self.clock() + UNAUTHENTICATED_TURN_S
        while self._unauthenticated:
            self._process_one(self._unauthenticated.popleft())
            if self.clock() >= until:
                return

    def _process_one(self, source: InputSource) -> None:
        if self._step(source):
            self.enqueue(source)  # one that was authenticated meanwhile changes queues
        self._between_steps()
