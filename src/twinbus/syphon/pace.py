"""How much may be sent now, and what may be sent at all: rate, canary, pause, listed entities, cut-off time."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum

from twinbus.amqp import sections
from twinbus.syphon.dead_letter_reasons import path_problem
from twinbus.syphon.effects import Alert
from twinbus.syphon.options import SyphonOptions

_MOST = 1_000_000
_BURST_S = 0.1
"""How many seconds' worth of messages may go out at once."""
UNLISTED_COUNTED_MAX = 100_000
"""Further messages are not counted."""
NAMED_MAX = 100
"""Entities named in alerts: anybody can invent any number of names."""
_NOT_LISTED = "is not among the entities that this syphon may bring messages to: they stay in the backlog"


class RunState(Enum):
    RUNNING = "running"
    PAUSED = "paused"
    CANARY = "paused after the canary"
    STOPPED = "stopped"


class Pace:
    """Counts what was sent against what is allowed. Time is an argument."""

    def __init__(self, options: SyphonOptions, now_ms: int) -> None:
        self.state = RunState.RUNNING
        self._rate = options.rate
        self._canary = options.canary
        self._moved = 0
        self._in_flight = 0
        self._entities = None if options.entities is None else {name.strip("/").casefold() for name in options.entities}
        self._cutoff_ms = options.cutoff_ms
        self._burst = 0.0 if options.rate is None else max(1.0, options.rate * _BURST_S)
        self._tokens = min(self._burst, 1.0)
        self._filled_ms = now_ms

    @property
    def is_running(self) -> bool:
        return self.state is RunState.RUNNING

    def pause(self) -> None:
        if self.state is not RunState.STOPPED:
            self.state = RunState.PAUSED

    def resume(self) -> None:
        """Go on; after a canary without a limit."""
        if self.state is RunState.CANARY:
            self._canary = None
        if self.state is not RunState.STOPPED:
            self.state = RunState.RUNNING

    def stop(self) -> None:
        self.state = RunState.STOPPED

    def wants(self, path: str, enqueued_ms: int | None) -> bool:
        """Whether a message for this entity is to be moved at all."""
        return self.allows(path) and self.is_in_time(enqueued_ms)

    def allows(self, path: str) -> bool:
        """Whether messages may go to this entity; case does not matter."""
        return self._entities is None or path.casefold() in self._entities

    def is_in_time(self, enqueued_ms: int | None) -> bool:
        return self._cutoff_ms is None or enqueued_ms is None or enqueued_ms < self._cutoff_ms

    def allowance(self, now_ms: int) -> int:
        """How many messages may be sent at this moment."""
        if self.state is not RunState.RUNNING:
            return 0
        allowed: float = math.inf
        if self._rate is not None:
            self._fill(now_ms)
            allowed = self._tokens
        if self._canary is not None:
            allowed = min(allowed, self._canary - self._moved - self._in_flight)
        return _MOST if allowed >= _MOST else max(0, int(allowed))

    def next_ms(self, now_ms: int) -> int | None:
        """When the rate allows the next message; None: no rate forbids one."""
        if self._rate is None or self.state is not RunState.RUNNING:
            return None
        self._fill(now_ms)
        return now_ms if self._tokens >= 1 else now_ms + math.ceil((1 - self._tokens) * 1000 / self._rate)

    def sent(self, count: int) -> None:
        self._in_flight += count
        if self._rate is not None:
            self._tokens -= count

    def ended(self, count: int, *, moved: bool) -> None:
        """Messages that were in flight are stored (`moved`) or not."""
        self._in_flight -= count
        if moved:
            self._moved += count
        if self._canary is not None and self._moved >= self._canary and self.state is RunState.RUNNING:
            self.state = RunState.CANARY

    def window(self, wanted: int, lock_ms: int) -> int:
        """How many messages to hold at a time: no more than can be sent in a quarter of their lock."""
        if self._rate is not None:
            wanted = min(wanted, max(1, int(self._rate * lock_ms / 4_000)))
        if self._canary is not None:
            wanted = min(wanted, max(1, self._canary - self._moved))
        return wanted

    def _fill(self, now_ms: int) -> None:
        assert self._rate is not None
        if now_ms > self._filled_ms:
            earned = (now_ms - self._filled_ms) * self._rate / 1000
            self._tokens = min(self._burst, self._tokens + earned)
            self._filled_ms = now_ms


class UnlistedEntities:
    """Messages for entities that are not listed: they stay in the backlog, and each is counted once.

    Any sender to a backlog queue chooses the destination of a message, and the syphon delivers it with its own
    rights. A list of entities limits what others can reach through it.
    """

    def __init__(self, allows: Callable[[str], bool]) -> None:
        self._allows = allows
        self._counted: set[tuple[int, int]] = set()
        self._named: set[str] = set()

    @property
    def count(self) -> int:
        return len(self._counted)

    def check(self, queue: int, message: bytes, path: str) -> list[Alert]:
        """A message arrived; returns an alert for each entity, once."""
        if self._allows(path) or path_problem(path) is not None:  # without a valid path it is dead-lettered
            return []
        number = sections.read_annotation(message, sections.walk(message), "x-opt-sequence-number")
        if isinstance(number, int) and len(self._counted) < UNLISTED_COUNTED_MAX:
            self._counted.add((queue, int(number)))
        name = path.casefold()
        if name in self._named or len(self._named) >= NAMED_MAX:
            return []
        self._named.add(name)
        return [Alert("not_listed", path, _NOT_LISTED)]
