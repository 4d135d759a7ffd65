"""Time and tasks of a simulated pair: what happens next is whatever is due first, and nobody waits for real.

Tasks are plain coroutines. They wait for a `Signal`, which is set once; the loop then lets them go on. So the shipping
`aio.flow_driver.run` runs here as it does under asyncio.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Coroutine, Generator
from itertools import count
from typing import Any, Generic, TypeVar

from sim.clock import START_MS
from sim.invariants import check

Value = TypeVar("Value")
JOBS_MAX = 100_000
"""A simulation in which more happens will never end; usual are some thousands."""
Job = Callable[[], None]


class Cancelled(BaseException):
    """The task is not to go on: its application gave up."""


class Signal(Generic[Value]):
    """Something that one task waits for."""

    def __init__(self) -> None:
        self.value: Value | None = None
        self.is_set = False
        self._resume: Callable[[Any], None] | None = None

    def set(self, value: Value) -> None:
        """The first value counts, and the task goes on with it before this returns."""
        if not self.is_set:
            self.is_set, self.value = True, value
            if self._resume is not None:
                self._resume(value)

    def __await__(self) -> Generator[Signal[Value], Value, Value]:
        return self.value if self.is_set else (yield self)  # type: ignore[return-value]

    def when_set(self, resume: Callable[[Any], None] | None) -> None:
        self._resume = resume


class Task:
    """A coroutine on its way. It begins at once."""

    def __init__(self, work: Coroutine[Signal[Any], Any, None]) -> None:
        self._work = work
        self._waits_for: Signal[Any] | None = None
        self.is_done = False
        self._go_on(None)

    def _go_on(self, value: Any) -> None:
        self._wait(lambda: self._work.send(value))

    def cancel(self) -> None:
        """What it waits for is answered with `Cancelled`."""
        if not self.is_done and self._waits_for is not None:
            self._waits_for.when_set(None)
            self._wait(lambda: self._work.throw(Cancelled()))

    def _wait(self, resume: Callable[[], Signal[Any]]) -> None:
        try:
            self._waits_for = resume()
        except StopIteration:
            self.is_done = True
        else:
            self._waits_for.when_set(self._go_on)


class VirtualLoop:
    def __init__(self) -> None:
        self.now = 0.0
        """Seconds, on a clock that only goes forward."""
        self.awake_s = 0.0
        """The same without the time in which nothing could happen."""
        self.due = 0.0
        """When what happens now was to happen: earlier than now after a jump."""
        self._due: list[tuple[float, int, Job]] = []
        self._numbers = count()
        self._jobs_left = JOBS_MAX

    @property
    def now_ms(self) -> int:
        """The time of day, for namespaces."""
        return START_MS + int(self.now * 1000)

    def call_at(self, at: float, job: Job) -> None:
        heapq.heappush(self._due, (at, next(self._numbers), job))

    def call_in(self, seconds: float, job: Job) -> None:
        self.call_at(self.now + seconds, job)

    def jump(self, seconds: float) -> None:
        """Time passes for everybody at once, as when a machine was asleep: what was due meanwhile happens late."""
        self.now += seconds

    def run(self, until: float = float("inf")) -> None:
        """Let happen what is due up to a time; without one, all there is."""
        due = self._due
        while due and due[0][0] <= until:
            at, _, job = heapq.heappop(due)
            self.due = at
            self._advance(at)
            self._jobs_left -= 1
            check(self._jobs_left > 0, f"something goes on for ever ({JOBS_MAX} things have happened)")
            job()
        if until != float("inf"):
            self._advance(until)

    def _advance(self, to: float) -> None:
        self.awake_s += max(0.0, to - self.now)
        self.now = max(self.now, to)
