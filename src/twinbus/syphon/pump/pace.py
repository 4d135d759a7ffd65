"""How much may be sent now, and what may be sent at all: rate, canary, pause, listed entities, cut-off time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from twinbus.amqp.message import sections
from twinbus.errors import OptionsError
from twinbus.syphon.options import SyphonOptions, first_problems, rate_problems
from twinbus.syphon.pump.dead_letter_reasons import path_problem
from twinbus.syphon.pump.effects import Alert

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


class Keep(Enum):
    """Stands for a part of the pace that does not change."""

    AS_IS = "as it is"


KEEP: Final = Keep.AS_IS


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceChange:
    """What is different from now on. Raises `OptionsError` for what makes no sense."""

    rate: float | Keep | None = KEEP
    """Messages a second at most; None: no limit."""
    first: int | Keep | None = KEEP
    """Move this many more, then pause; None: go on without a pause."""
    entities: frozenset[str] | Keep | None = KEEP
    """Only messages for these; None: for all."""

    def __post_init__(self) -> None:
        problems = [] if isinstance(self.rate, Keep) else rate_problems(self.rate)
        problems += [] if isinstance(self.first, Keep) else first_problems("first", self.first)
        if not isinstance(self.entities, Keep | None) and not all(name.strip("/ ") for name in self.entities):
            problems.append("the name of an entity must not be empty")
        if self.entities == frozenset():
            problems.append("entities must name one or more, or be None for all")
        OptionsError.raise_for(problems)


class Pace:
    """Counts what was sent against what is allowed. Time is an argument."""

    def __init__(self, options: SyphonOptions, now_ms: int) -> None:
        self.state = RunState.RUNNING
        self._canary = options.canary
        self.stays_after_canary = False
        """Whether the limit was set while it ran: then whoever set it goes on or not, and nothing ends."""
        self._moved = 0
        self._in_flight = 0
        self.entities: frozenset[str] | None = None
        """As they were named; None: all."""
        self._casefolded: frozenset[str] = frozenset()
        self._limit_entities(options.entities)
        self._cutoff_ms = options.cutoff_ms
        self.rate: float | None = None
        self._burst = self._tokens = 0.0
        self._filled_ms = now_ms
        self._limit_rate(options.rate, now_ms)

    def _limit_entities(self, entities: frozenset[str] | None) -> None:
        self.entities = entities
        self._casefolded = frozenset(name.strip("/").casefold() for name in entities or ())

    def _limit_rate(self, rate: float | None, now_ms: int) -> None:
        self.rate = rate
        self._burst = 0.0 if rate is None else max(1.0, rate * _BURST_S)
        self._tokens = min(self._burst, 1.0)
        self._filled_ms = now_ms

    def change(self, change: PaceChange, now_ms: int) -> None:
        """From now on; a pause stays a pause."""
        if not isinstance(change.rate, Keep):
            self._limit_rate(change.rate, now_ms)
        if not isinstance(change.entities, Keep):
            self._limit_entities(change.entities)
        if not isinstance(change.first, Keep):
            self._canary = None if change.first is None else self._moved + change.first
            self.stays_after_canary = change.first is not None
            if self.state is RunState.CANARY:
                self.state = RunState.PAUSED  # whose limit is reached; the next `resume` keeps the new one

    @property
    def first_left(self) -> int | None:
        """How many are moved until it pauses; None: it does not."""
        return None if self._canary is None else max(0, self._canary - self._moved)

    @property
    def has_filter(self) -> bool:
        """Whether there may be messages that are not wanted."""
        return self.entities is not None or self._cutoff_ms is not None

    @property
    def is_running(self) -> bool:
        return self.state is RunState.RUNNING

    def pause(self) -> None:
        if self.is_running:
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
        return self.entities is None or path.casefold() in self._casefolded

    def is_in_time(self, enqueued_ms: int | None) -> bool:
        return self._cutoff_ms is None or enqueued_ms is None or enqueued_ms < self._cutoff_ms

    def allowance(self, now_ms: int) -> int:
        """How many messages may be sent at this moment."""
        if self.state is not RunState.RUNNING:
            return 0
        allowed: float = math.inf
        if self.rate is not None:
            self._fill(now_ms)
            allowed = self._tokens
        if self._canary is not None:
            allowed = min(allowed, self._canary - self._moved - self._in_flight)
        return _MOST if allowed >= _MOST else max(0, int(allowed))

    def next_ms(self, now_ms: int) -> int | None:
        """When the rate allows the next message; None: no rate forbids one."""
        if self.rate is None or self.state is not RunState.RUNNING:
            return None
        self._fill(now_ms)
        return now_ms if self._tokens >= 1 else now_ms + math.ceil((1 - self._tokens) * 1000 / self.rate)

    def sent(self, count: int) -> None:
        self._in_flight += count
        if self.rate is not None:
            self._tokens -= count

    def ended(self, count: int, *, moved: bool) -> None:
        """Messages that were in flight are stored (`moved`) or not."""
        self._in_flight -= count
        if moved:
            self._moved += count
        if self.first_left == 0 and self.state is not RunState.STOPPED:
            self.state = RunState.CANARY

    def window(self, wanted: int, lock_ms: int) -> int:
        """How many messages to hold at a time: no more than can be sent in a quarter of their lock."""
        if self.rate is not None:
            wanted = min(wanted, max(1, int(self.rate * lock_ms / 4_000)))
        if self._canary is not None:
            wanted = min(wanted, max(1, self._canary - self._moved))
        return wanted

    def _fill(self, now_ms: int) -> None:
        assert self.rate is not None
        if now_ms > self._filled_ms:
            earned = (now_ms - self._filled_ms) * self.rate / 1000
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
