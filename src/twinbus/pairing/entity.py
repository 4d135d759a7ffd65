"""One queue or topic of the primary, as this client knows it: its failover state and all that goes with it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

from twinbus.pairing.backlog.ordering import Fences
from twinbus.pairing.effects import Effect, ReportEvent, WakeWaiter
from twinbus.pairing.error_rate import ErrorRate
from twinbus.pairing.events import Event, LinkOpened, PingFailed, PingSucceeded, SendFailed, TooManyFailed
from twinbus.pairing.failover import FailedOver, Healthy, State, Suspect, may_try, step
from twinbus.pairing.rules import Rules
from twinbus.pairing.sending.receipt import NamespaceSide

NOT_PLAIN = -2
"""An epoch that never is, nor is any link of it."""


@dataclass(slots=True)
class Tally:
    """What happened to an entity so far."""

    failovers: int = 0
    recoveries: int = 0
    pings: int = 0
    pings_failed: int = 0
    to_primary: int = 0
    to_backlog: int = 0
    to_spool: int = 0
    in_doubt: int = 0
    held: int = 0
    raised: int = 0


class Line:
    """Sends held until an entity recovers or fails over (P5, `hold_sends`).

    First come, first served: only the head may try. Bounded in count and bytes.
    """

    def __init__(self, rules: Rules, tickets: Iterator[int]) -> None:
        """`tickets` are numbers that nobody else is given."""
        self._rules = rules
        self._tickets = tickets
        self._waiting: OrderedDict[int, int] = OrderedDict()  # ticket -> bytes
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, ticket: int) -> bool:
        return ticket in self._waiting

    def has_room_for(self, size_bytes: int) -> bool:
        rules = self._rules
        return len(self._waiting) < rules.hold_count_max and self.bytes + size_bytes <= rules.hold_bytes_max

    def join(self, size_bytes: int) -> int:
        """A ticket for the end of the line."""
        ticket = next(self._tickets)
        self._waiting[ticket] = size_bytes
        self.bytes += size_bytes
        return ticket

    @property
    def head(self) -> int | None:
        return next(iter(self._waiting), None)

    def leave(self, ticket: int) -> int | None:
        """Who is the new head because this one left; None if that is nobody, or if the head stays."""
        was_head = self.head == ticket
        self.bytes -= self._waiting.pop(ticket, 0)
        return self.head if was_head else None


class Entity:
    """Not for several threads at once: whoever shares it holds a lock while calling (and never while waiting)."""

    def __init__(self, path: str, rules: Rules, tickets: Iterator[int], *, fences: Fences | None = None) -> None:
        self.path = path
        self.is_known = False
        """Seen alive, or declared to exist: only then is "not found" an outage and no typo."""
        self.line = Line(rules, tickets)
        self.rate = ErrorRate(rules)
        self.tally = Tally()
        self.next_ping_at: float | None = None
        self.last_ping_failure: str | None = None
        self.is_spooling = False
        """Its last messages went to the spool."""
        self.warned: set[str] = set()
        """What was said about this entity and need not be said again."""
        self._rules = rules
        self._fences = fences
        self._state: State = Healthy()
        self.plain_epoch = NOT_PLAIN
        """The epoch while nothing is to be decided, and sends may go straight to the primary; read without a lock."""
        self.refresh()

    @property
    def state(self) -> State:
        return self._state

    @property
    def epoch(self) -> int:
        return self._state.epoch

    @property
    def side(self) -> NamespaceSide:
        """Where a send belongs now."""
        return NamespaceSide.BACKLOG if isinstance(self._state, FailedOver) else NamespaceSide.PRIMARY

    @property
    def reason(self) -> str:
        """Why it is not healthy; empty if it is."""
        return "" if isinstance(self._state, Healthy) else self._state.reason

    @property
    def is_ready(self) -> bool:
        """It is failed over, and waits for a message to prove that the primary takes messages again."""
        return isinstance(self._state, FailedOver) and self._state.is_ready

    @property
    def is_plain(self) -> bool:
        """Whether sends may go straight to the primary."""
        return self.plain_epoch != NOT_PLAIN

    def may_try(self, at: float) -> bool:
        """Whether a message that is sent now may try the primary though the entity is failed over."""
        return may_try(self._state, at)

    def feed(self, event: Event) -> tuple[Effect, ...]:
        """Take note of what happened; what is to do now."""
        before = self._state
        self._state, effects = step(before, event, self._rules)
        self._count_ping(before, event)
        self.refresh()
        return effects + self._count_side(before, event.at) + self._rouse_head(before)

    def count_send(self, at: float, epoch: int, chance: float, *, failed: bool) -> tuple[Effect, ...]:
        """The error rate's part of a send's outcome."""
        if epoch != self.epoch or not self.rate.count(at, failed=failed):
            return ()
        share = self.rate.share or 0.0
        reason = f"{share:.0%} of the last sends failed"
        return self.feed(TooManyFailed(at, epoch, reason, self.rate.pings_needed(at), chance))

    def refresh(self) -> None:
        """Whether sends may go straight to the primary, after something changed."""
        is_calm = isinstance(self._state, Healthy) and not len(self.line)
        is_clear = self._fences is None or self._fences.is_clear(self.path)
        is_plain = is_calm and is_clear and self._rules.error_rate is None
        self.plain_epoch = self.epoch if is_plain else NOT_PLAIN

    def leave_line(self, ticket: int) -> tuple[Effect, ...]:
        """A held send is done with, one way or the other."""
        head = self.line.leave(ticket)
        self.refresh()
        return () if head is None else (WakeWaiter(head),)

    def _count_ping(self, before: State, event: Event) -> None:
        if event.epoch != before.epoch:
            return
        if isinstance(event, PingSucceeded | LinkOpened | PingFailed):
            self.tally.pings += 1
            self.tally.pings_failed += isinstance(event, PingFailed)
            self.last_ping_failure = event.reason if isinstance(event, PingFailed) else None
        elif isinstance(event, SendFailed) and isinstance(before, FailedOver) and before.is_tried:
            self.last_ping_failure = event.reason

    def _count_side(self, before: State, at: float) -> tuple[Effect, ...]:
        was_over, is_over = isinstance(before, FailedOver), isinstance(self._state, FailedOver)
        if was_over and not is_over:
            self.tally.recoveries += 1
            self.rate.returned(at)
        if was_over or not is_over:
            return ()
        self.tally.failovers += 1
        flaps = self.rate.flaps
        self.rate.failed_over(at)
        if self.rate.flaps == flaps or self._rules.error_rate is None:
            return ()
        return (ReportEvent("flapping", f"{self.rate.flaps} times back and forth", {"flaps": self.rate.flaps}),)

    def _rouse_head(self, before: State) -> tuple[Effect, ...]:
        """Those who wait, wait for the end of a suspicion: whichever way it went, the first of them may go."""
        head = self.line.head
        is_decided = type(before) is not type(self._state) and not isinstance(self._state, Suspect)
        return (WakeWaiter(head),) if is_decided and head is not None else ()


def name_of(state: State) -> str:
    """The state as a person would say it."""
    match state:
        case Healthy():
            return "healthy"
        case Suspect():
            return "suspect"
        case FailedOver():
            return "failed over"
        case _:
            assert_never(state)
