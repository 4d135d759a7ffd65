"""What a simulated pair is held against between calls: backlog queues, lines of held sends, all entities at once."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING

from sim.invariants import Violation, check
from sim.pair_failover import LAG_S, EntityWatch
from sim.pair_loop import VirtualLoop
from twinbus.pairing.entity import Entity
from twinbus.pairing.pair import Pair
from twinbus.pairing.rules import Rules
from twinbus.pairing.secondary import is_about_the_secondary
from twinbus.pairing.sending.failure import Failure, FailureKind

if TYPE_CHECKING:
    from sim.pair_call import Call

Kind = FailureKind
PAUSES_S, SPREAD, TRIAL_S, CALM_S = (0.2, 2.0), 0.2, 1.0, 10.0
"""The numbers of the specification, written down a second time."""
SHORT_ATTEMPTS_MIN = 3
"""So many attempts at a queue with too little time, one after the other, show that it is silent."""
NO_QUEUES_FAULT = (Kind.BUSY, Kind.TOO_LARGE, Kind.REJECTED)


class QueueWatch:
    """Which backlog queues may be used."""

    def __init__(self, probation_s: float) -> None:
        self._probation_s = probation_s
        self._queues: frozenset[int] = frozenset()
        self._lost_until: dict[int, float] = {}
        self._silent_at: dict[int, float] = {}
        self._short: dict[int, list[tuple[float, float]]] = {}
        """Attempts at a queue with too little time and no answer since it took something: from when to when."""

    def use(self, queues: Iterable[int], lost: Iterable[int], at: float) -> None:
        """So it was found when somebody looked."""
        self._queues = frozenset(queues)
        self._lost_until = dict.fromkeys(lost, at + self._probation_s)
        self._silent_at.clear()
        self._short.clear()

    def check_usable(self, queue: int, at: float) -> None:
        check(queue in self._queues, f"backlog queue {queue} was used, which is not one of this pair")
        lost_until = self._lost_until.get(queue, at)
        check(at >= lost_until, f"backlog queue {queue} was used {lost_until - at:.3f} s before its probation is over")

    def usable(self, at: float) -> set[int]:
        return {queue for queue in self._queues if at >= self._lost_until.get(queue, at)}

    def is_silent(self, queue: int, began_at: float, at: float, fair_s: float, answered_at: float) -> bool:
        """Whether one more attempt with too little time is the proof that the queue is silent."""
        short = self._short.setdefault(queue, [])
        if not short or began_at >= short[-1][1]:
            short.append((began_at, at))
        had_s = sum(end - begin for begin, end in short)
        return len(short) >= SHORT_ATTEMPTS_MIN and had_s >= fair_s and answered_at >= short[0][1]

    def failed(self, queue: int, at: float, *, by_silence: bool = False) -> None:
        self._short.pop(queue, None)
        if queue in self._queues:
            self._lost_until[queue] = at + self._probation_s
            self._silent_at.pop(queue, None)
            if by_silence:
                self._silent_at[queue] = at

    def took(self, queue: int) -> None:
        self._lost_until.pop(queue, None)
        self._short.pop(queue, None)

    def forgive(self, since: float) -> None:
        """The secondary as a whole was silent."""
        for queue, at in self._silent_at.items():
            if at >= since:
                self._lost_until.pop(queue, None)
        self._silent_at.clear()
        self._short.clear()

    @property
    def count(self) -> int:
        return len(self._queues)


class SecondaryWatch:
    """Whether the secondary can be connected to, as far as the client has found out."""

    def __init__(self, rules: Rules, loop: VirtualLoop, seen: Counter[str]) -> None:
        self._rules, self._loop, self._seen = rules, loop, seen
        self.is_away = False
        self.period = 0
        """Counts its returns: what was begun before the last one says nothing any more."""
        self.waiting: set[Call] = set()
        self._since = self._settled_at = 0.0
        self._next_trial_at = 0.0
        self._is_trying = False
        self._trial_period = 0
        self._pause_s = PAUSES_S[0]
        self._is_doubted = False
        self.answered_at = -inf

    def lost(self, period: int) -> bool:
        """An attempt begun in that period could not connect, or lost its connection; whether that is to be reported."""
        if self.is_away or period != self.period:
            return False
        if self._loop.now - self._since > CALM_S:
            self._pause_s = PAUSES_S[0]
        self.is_away, self._since, self._is_doubted = True, self._loop.now, False
        self._seen["secondary: away"] += 1
        self._pause()
        return True

    def stored(self) -> None:
        self._pause_s = PAUSES_S[0]
        self.found()

    def found(self) -> None:
        """Somebody connected to it."""
        self.answered_at = self._loop.now
        if self._is_doubted or self.is_away:
            self._is_doubted, self._settled_at = False, self._loop.now
        if self.is_away:
            self.is_away, self._since = False, self._loop.now
            self.period += 1
            self._seen["secondary: back"] += 1

    def doubted(self) -> None:
        """A queue said nothing on an open connection."""
        self._is_doubted = True

    def doubted_in_haste(self) -> None:
        """Nobody answered, but in too little time; that counts for something if nobody has answered for a while."""
        self._is_doubted |= self._loop.now - self.answered_at >= PAUSES_S[1]

    def trial_begins(self, timeout_s: float) -> None:
        now = self._loop.now
        check(not self._is_trying, "two trials of the secondary at a time")
        check(self.is_away or self._is_doubted, "the secondary is tried for nothing")
        longest = max(TRIAL_S, self._rules.attempt_s)
        check(0 < timeout_s <= longest, f"a trial of {timeout_s} s")
        early_s = self._next_trial_at - now
        check(not self.is_away or early_s < 1e-6, f"the secondary is tried {early_s} s too early")
        self._is_trying, self._trial_period = True, self.period
        self._seen["secondary: trials"] += 1

    def trial_ends(self, *, connected: bool) -> bool:
        """Whether it is to be reported that the secondary is away."""
        self._is_trying = False
        if connected:
            self.found()
        elif self.is_away and self._trial_period == self.period:
            self._pause()
        else:
            return self.lost(self._trial_period)
        return False

    def _pause(self) -> None:
        self._next_trial_at = self._loop.now + (1 - SPREAD) * self._pause_s
        self._pause_s = min(PAUSES_S[1], 2 * self._pause_s)

    def check_nobody_waits(self) -> None:
        """Once it is known how the secondary is, everybody who waited for that goes on."""
        is_settled = not self.is_away and not self._is_doubted and self._loop.due > self._settled_at + LAG_S
        check(not (is_settled and self.waiting), f"{self.waiting} wait for a secondary that is back")


class LineWatch:
    """The sends that are held for one entity, in the order in which they came."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._calls: list[Call] = []
        self._loop = loop
        self._head_since = 0.0

    def __len__(self) -> int:
        return len(self._calls)

    def join(self, call: Call) -> None:
        self._calls.append(call)
        if len(self._calls) == 1:
            self._head_since = self._loop.now
        rules = call.rules
        size = sum(each.request.size_bytes for each in self._calls)
        check(len(self._calls) <= rules.hold_count_max, f"{len(self._calls)} sends are held")
        check(size <= rules.hold_bytes_max, f"sends with {size} bytes are held")

    def leave(self, call: Call) -> None:
        if call in self._calls:
            if call is self._calls[0]:
                self._head_since = self._loop.now
            self._calls.remove(call)

    def check_turn(self, call: Call) -> None:
        """A held send does something: only the first may."""
        check(not self._calls or self._calls[0] is call, f"{call} overtakes {self._calls[:1]}")

    def check_head(self, watch: EntityWatch) -> None:
        """Once it is known where sends go, the first in line does not wait."""
        since = max(self._head_since, watch.changed_at)
        if self._calls and self._calls[0].is_waiting and not watch.is_suspect and self._loop.due > since + LAG_S:
            raise Violation(f"{self._calls[0]} waits though it is its turn")

    def is_full_for(self, call: Call) -> bool:
        rules = call.rules
        size = sum(each.request.size_bytes for each in self._calls) + call.request.size_bytes
        return len(self._calls) >= rules.hold_count_max or size > rules.hold_bytes_max


class Watch:
    """Everything together."""

    def __init__(self, pair: Pair, loop: VirtualLoop, seen: Counter[str]) -> None:
        self.pair, self.loop, self.seen = pair, loop, seen
        self.rules = pair.rules
        self.queues = QueueWatch(pair.rules.probation_s)
        self.secondary = SecondaryWatch(pair.rules, loop, seen)
        self.closed_at: float | None = None
        """On the clock that counts only the time in which something can happen; None: it is open."""
        self.trace: deque[tuple[float, object, object]] = deque(maxlen=300)
        """When what happened to whom."""
        self._entities: dict[Entity, EntityWatch] = {}
        self._lines: dict[Entity, LineWatch] = {}

    def entity(self, entity: Entity) -> EntityWatch:
        if entity not in self._entities:
            self._entities[entity] = EntityWatch(entity, self.rules, self.loop, self.seen)
            self._lines[entity] = LineWatch(self.loop)
        return self._entities[entity]

    @property
    def entities(self) -> Iterable[EntityWatch]:
        return self._entities.values()

    def note(self, who: object, what: object) -> None:
        self.trace.append((self.loop.now, who, what))

    def line(self, entity: Entity) -> LineWatch:
        self.entity(entity)
        return self._lines[entity]

    def check_others(self, entity: Entity | None) -> None:
        """Whatever happened to one entity says nothing of another."""
        for watch in self._entities.values():
            if watch.entity is not entity:
                watch.unchanged("something happened to another entity")

    def connection_lost(self, period: int) -> None:
        """An attempt at the secondary that began in that period found nobody to connect to, or lost its connection."""
        if self.secondary.lost(period):
            self.queues.forgive(self.loop.now - 2 * self.rules.attempt_s)

    def trial_ends(self, queue: int, failure: Failure | None) -> None:
        is_away = failure is not None and is_about_the_secondary(failure)
        if self.secondary.trial_ends(connected=not is_away):
            self.queues.forgive(self.loop.now - 2 * self.rules.attempt_s)
        is_charged = failure is not None and not is_away and failure.kind not in (Kind.NO_ANSWER, *NO_QUEUES_FAULT)
        if is_charged:
            self.queues.failed(queue, self.loop.now)

    def check_duties(self) -> None:
        if self.closed_at is None:
            self.secondary.check_nobody_waits()
            for watch in self._entities.values():
                watch.check_duties()
                self._lines[watch.entity].check_head(watch)
