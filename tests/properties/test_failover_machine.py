"""The failover decision: every pair of state and event, long sequences of them, and one beside a model.

Times and rules come from a handful of telling values: random numbers seldom get as far as the rare states.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from seeds import examples

from twinbus.client.core.effect_runner import TimerKey, run_effects
from twinbus.pairing.effects import Effect, ReportEvent
from twinbus.pairing.entity import Entity
from twinbus.pairing.events import (
    Event,
    FailoverForced,
    LinkOpened,
    MarkedHealthy,
    OthersFailedOver,
    PingFailed,
    PingSucceeded,
    SendFailed,
    SendSucceeded,
    TimeCame,
    TooManyFailed,
    TrialBegan,
    TrialProvedNothing,
)
from twinbus.pairing.failover import FailedOver, Healthy, State, Suspect, may_try, step
from twinbus.pairing.pair import Pair
from twinbus.pairing.ping_schedule import JITTER
from twinbus.pairing.rules import Rules

EPOCH = 4
STATES: list[State] = [
    Healthy(EPOCH),
    Suspect(EPOCH, 100.0, "refused"),
    FailedOver(EPOCH, 100.0, "refused"),
    FailedOver(EPOCH, 100.0, "refused", pings_needed=3, pings_good=1),
    FailedOver(EPOCH, 100.0, "drill", stays=True),
    FailedOver(EPOCH, 100.0, "refused", pings_good=1),
    FailedOver(EPOCH, 100.0, "refused", pings_good=1, is_tried=True),
    FailedOver(EPOCH, 100.0, "drill", pings_good=1, is_tried=True, stays=True),
]
RULES = [
    Rules(failover_interval_s=interval_s, ping_interval_s=30, pings_to_return=pings, keeps_order=keeps_order)
    for interval_s in (0, 10)
    for pings in (1, 2)
    for keeps_order in (False, True)
]


class EventKind(NamedTuple):
    """One kind of event; made at a time, in an epoch."""

    kind: type[Event]
    at: Callable[[float, int], Event]
    is_variant: bool = False

    def __str__(self) -> str:
        return self.kind.__name__ + " (variant)" * self.is_variant


KINDS = [
    EventKind(SendSucceeded, SendSucceeded),
    EventKind(SendFailed, lambda at, epoch: SendFailed(at, epoch, "refused")),
    EventKind(TooManyFailed, lambda at, epoch: TooManyFailed(at, epoch, "60 %", 2)),
    EventKind(TimeCame, TimeCame),
    EventKind(OthersFailedOver, lambda at, epoch: OthersFailedOver(at, epoch, ("a", "b"))),
    EventKind(PingSucceeded, PingSucceeded),
    EventKind(PingFailed, lambda at, epoch: PingFailed(at, epoch, "still down")),
    EventKind(LinkOpened, LinkOpened),
    EventKind(TrialBegan, TrialBegan),
    EventKind(TrialProvedNothing, TrialProvedNothing),
    EventKind(TrialProvedNothing, lambda at, epoch: TrialProvedNothing(at, epoch, 10.0), is_variant=True),
    EventKind(FailoverForced, lambda at, epoch: FailoverForced(at, epoch, "drill")),
    EventKind(FailoverForced, lambda at, epoch: FailoverForced(at, epoch, "drill", stays=True), is_variant=True),
    EventKind(MarkedHealthy, MarkedHealthy),
]


def is_pinged(state: State) -> bool:
    return isinstance(state, FailedOver) and not state.stays


# --- all of them ---


def test_no_kind_of_event_and_no_kind_of_state_is_forgotten_here() -> None:
    assert {telling.kind for telling in KINDS} == set(get_args(Event))
    assert {type(state) for state in STATES} == set(get_args(State))


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
def test_every_pair_of_state_and_event_has_an_answer(state: State, kind: EventKind) -> None:
    for rules, at in product(RULES, (100.0, 110.0)):
        after, effects = step(state, kind.at(at, EPOCH), rules)
        assert isinstance(after, get_args(State))
        assert all(isinstance(effect, get_args(Effect)) for effect in effects)
        assert after.epoch - state.epoch in (0, 1)
        if after == state and not isinstance(state, FailedOver):
            assert effects == (), "nothing changed, so nothing is to do"


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
@pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH + 1])
def test_events_of_another_epoch_change_nothing(state: State, kind: EventKind, epoch: int) -> None:
    for rules in RULES:
        assert step(state, kind.at(200.0, epoch), rules) == (state, ())


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
def test_a_change_of_sides_is_reported(state: State, kind: EventKind) -> None:
    for rules in RULES:
        after, effects = step(state, kind.at(200.0, EPOCH), rules)
        reported = {effect.name for effect in effects if isinstance(effect, ReportEvent)}
        was_over, is_over = isinstance(state, FailedOver), isinstance(after, FailedOver)
        assert ("failed_over" in reported) == (is_over and not was_over)
        assert ("recovered" in reported) == (was_over and not is_over)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
def test_nothing_but_a_way_back_touches_when_and_why_an_entity_failed_over(state: State, kind: EventKind) -> None:
    for rules in RULES:
        after, _ = step(state, kind.at(200.0, EPOCH), rules)
        if isinstance(state, FailedOver) and isinstance(after, FailedOver):
            assert (after.epoch, after.since, after.reason) == (state.epoch, state.since, state.reason)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
def test_a_trial_begins_only_where_a_message_may_try(state: State, kind: EventKind) -> None:
    for rules in RULES:
        after, _ = step(state, kind.at(200.0, EPOCH), rules)
        was_tried = isinstance(state, FailedOver) and state.is_tried
        if isinstance(after, FailedOver) and after.is_tried and not was_tried:
            assert kind.kind is TrialBegan
            assert may_try(state, 200.0)


# --- sequences of events ---


@dataclass
class EntityDriver:
    """Carries out orders as any shell would: one wake and one ping at most, newer orders replace older ones."""

    rules: Rules
    state: State = field(default_factory=Healthy)
    at: float = 0.0
    wake_at: float | None = None
    ping_at: float | None = None
    history: list[State] = field(default_factory=list)
    lock: AbstractContextManager[None] = field(default_factory=nullcontext)

    def __post_init__(self) -> None:
        self.pair = Pair(self.rules)
        self.entity = self.pair.entity("orders")

    def feed(self, event: Event) -> None:
        self.history.append(self.state)
        self.state, effects = step(self.state, event, self.rules)
        run_effects(self.pair, [(self.entity, effect) for effect in effects], self)

    def schedule(self, key: TimerKey, at: float, job: Callable[[], None]) -> None:
        assert key.kind in ("wake", "ping")
        setattr(self, f"{key.kind}_at", at)

    def cancel(self, key: TimerKey) -> None:
        setattr(self, f"{key.kind}_at", None)

    def report(self, entity: Entity | None, event: ReportEvent) -> None:
        """Nobody listens."""

    def wake(self, ticket: int) -> None:
        raise AssertionError("the machine wakes no sends")

    def time_came(self, entity: Entity) -> None:
        raise AssertionError("the test says when time has come")

    def ping(self, entity: Entity) -> None:
        raise AssertionError("the test makes the pings")

    def try_secondary(self) -> None:
        raise AssertionError("the machine knows one entity only")

    def happens(self, kind: EventKind, *, late: bool) -> None:
        """A ping's outcome uses up the ping that was ordered, a wake in time uses up the order to be woken."""
        if not late and kind.kind in (PingSucceeded, PingFailed, LinkOpened):
            self.ping_at = None
        if not late and kind.kind is TimeCame and self.wake_at is not None and self.at >= self.wake_at:
            self.wake_at = None
        self.feed(kind.at(self.at, self.state.epoch - late))


TALES = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from([0.0, 3.0, 10.0]), st.sampled_from([False, False, False, True])),
    min_size=10,
    max_size=60,
)


@settings(max_examples=examples(300))
@given(TALES, st.sampled_from(RULES))
def test_in_every_sequence_orders_are_pending_exactly_while_they_are_needed(
    sequence: list[tuple[EventKind, float, bool]], rules: Rules
) -> None:
    driver = EntityDriver(rules)
    for kind, gap_s, late in sequence:
        driver.at += gap_s
        before = driver.state
        driver.happens(kind, late=late)
        assert (driver.wake_at is not None) == isinstance(driver.state, Suspect)
        assert (driver.ping_at is not None) == is_pinged(driver.state)
        changed_side = isinstance(before, FailedOver) != isinstance(driver.state, FailedOver)
        absolved = isinstance(before, Suspect) and kind.kind is MarkedHealthy and not late
        assert driver.state.epoch - before.epoch == (changed_side or absolved)


# --- beside a model ---

CHANCES = st.sampled_from([0.0, 0.5, 1.0])


class EntityBesideModel(RuleBasedStateMachine):
    """The machine and its driver beside what a person would write down: since when it fails, and how pings went."""

    @initialize(rules=st.sampled_from(RULES))
    def begin(self, rules: Rules) -> None:
        self.terms = rules
        self.driver = EntityDriver(rules)
        self.primary_is_up = True
        self.failing_since: float | None = None
        self.is_over = False
        self.stays = False
        self.pings_in_a_row = 0
        self.pings_needed = 1
        self.last_ping_at = 0.0
        self.by_link = False
        self.is_tried = False
        self.rests_until = 0.0

    # what happens

    @rule()
    def the_primary_goes_down(self) -> None:
        self.primary_is_up = False

    @rule()
    def the_primary_comes_up(self) -> None:
        self.primary_is_up = True

    @precondition(lambda self: not self.is_over)
    @rule(chance=CHANCES)
    def somebody_sends(self, chance: float) -> None:
        at, epoch = self.driver.at, self.driver.state.epoch
        if self.primary_is_up:
            self.driver.feed(SendSucceeded(at, epoch))
            self.failing_since = None
        else:
            self.driver.feed(SendFailed(at, epoch, "down", chance))
            self.failing_since = at if self.failing_since is None else self.failing_since
            if self.terms.failover_interval_s == 0:
                self._leaves(stays=False, pings_needed=1)

    @rule(by_link=st.booleans())
    def the_primary_says_how_it_is_to_be_asked(self, by_link: bool) -> None:
        self.by_link = by_link

    @precondition(lambda self: self.is_over)
    @rule()
    def somebody_would_try_the_primary(self) -> None:
        """A send of a failed over entity: it tries if it may, else it takes the detour."""
        may = self._may_try()
        assert may_try(self.driver.state, self.driver.at) == may
        self.driver.feed(TrialBegan(self.driver.at, self.driver.state.epoch))
        self.is_tried |= may

    @precondition(lambda self: self.is_tried)
    @rule(outcome=st.sampled_from(["answer", "answer", "busy", "nothing"]), chance=CHANCES)
    def a_trial_ends(self, outcome: str, chance: float) -> None:
        at, epoch = self.driver.at, self.driver.state.epoch
        self.is_tried = False
        if outcome != "answer":
            self.rests_until = at + (10.0 if outcome == "busy" else 0.0)
            self.driver.feed(TrialProvedNothing(at, epoch, self.rests_until - at))
            self.pings_in_a_row = min(self.pings_in_a_row, self.pings_needed - 1)
        elif self.primary_is_up:
            self.driver.feed(SendSucceeded(at, epoch))
            if not self.stays:
                self._is_well()
        else:
            self.driver.feed(SendFailed(at, epoch, "down", chance))
            self.pings_in_a_row = 0

    @precondition(lambda self: self.driver.history and self.driver.history[0].epoch < self.driver.state.epoch)
    @rule(data=st.data())
    def an_old_send_ends(self, data: st.DataObject) -> None:
        epochs = sorted({state.epoch for state in self.driver.history} - {self.driver.state.epoch})
        epoch = data.draw(st.sampled_from(epochs))
        self.driver.feed(data.draw(st.sampled_from(KINDS)).at(self.driver.at, epoch))

    @rule(stays=st.booleans(), chance=CHANCES)
    def somebody_forces_a_failover(self, stays: bool, chance: float) -> None:
        self.driver.feed(FailoverForced(self.driver.at, self.driver.state.epoch, "drill", stays, chance))
        if not self.is_over:
            self._leaves(stays=stays, pings_needed=1)
        elif stays != self.stays:
            self.stays, self.pings_in_a_row, self.last_ping_at = stays, 0, self.driver.at

    @rule()
    def somebody_marks_it_as_healthy(self) -> None:
        self.driver.feed(MarkedHealthy(self.driver.at, self.driver.state.epoch))
        self._is_well()

    @precondition(lambda self: not self.is_over)
    @rule(pings_needed=st.sampled_from([1, 2, 4]), chance=CHANCES)
    def too_many_sends_fail(self, pings_needed: int, chance: float) -> None:
        self.driver.feed(TooManyFailed(self.driver.at, self.driver.state.epoch, "60 %", pings_needed, chance))
        self._leaves(stays=False, pings_needed=pings_needed)

    @rule(seconds=st.sampled_from([1.0, 9.0, 10.0, 27.0, 33.0]), chance=CHANCES)
    def time_passes(self, seconds: float, chance: float) -> None:
        until = self.driver.at + seconds
        while (due := min(filter(None, (self.driver.wake_at, self.driver.ping_at)), default=until + 1)) <= until:
            self.driver.at = due
            if due == self.driver.wake_at:
                self.driver.wake_at = None
                self.driver.feed(TimeCame(due, self.driver.state.epoch, chance))
                self._looks_at_the_clock(due)
            else:
                self._pings(due, chance)
        self.driver.at = until
        self._looks_at_the_clock(until)

    @precondition(lambda self: self.is_over and not self.stays)
    @rule(answers=st.lists(st.booleans(), min_size=1, max_size=6), chance=CHANCES)
    def pings_are_answered(self, answers: list[bool], chance: float) -> None:
        for is_up in answers:
            if self.driver.ping_at is not None:
                self.primary_is_up, self.driver.at = is_up, max(self.driver.at, self.driver.ping_at)
                self._pings(self.driver.ping_at, chance)

    # what a person would write down

    def _looks_at_the_clock(self, now: float) -> None:
        if self.failing_since is not None and now >= self.failing_since + self.terms.failover_interval_s:
            assert isinstance(self.driver.state, FailedOver), "nobody woke it in time"
            self._leaves(stays=False, pings_needed=1, at=self.failing_since + self.terms.failover_interval_s)

    def _leaves(self, *, stays: bool, pings_needed: int, at: float | None = None) -> None:
        self.is_over, self.stays, self.failing_since, self.pings_in_a_row = True, stays, None, 0
        self.pings_needed = max(pings_needed, self.terms.pings_to_return)
        self.last_ping_at = self.driver.at if at is None else at
        self.is_tried, self.rests_until = False, 0.0

    def _may_try(self) -> bool:
        is_ready = self.is_over and not self.stays and self.pings_in_a_row >= self.pings_needed
        return is_ready and not self.is_tried and self.driver.at >= self.rests_until

    def _is_well(self) -> None:
        self.is_over, self.stays, self.failing_since, self.is_tried = False, False, None, False

    def _pings(self, at: float, chance: float) -> None:
        assert self.is_over, "only a failed over entity is pinged"
        assert not self.stays
        shortest, longest = ((1 + sign * JITTER) * self.terms.ping_interval_s for sign in (-1, 1))
        assert shortest - 1e-6 <= at - self.last_ping_at <= longest + 1e-6
        self.last_ping_at, self.driver.ping_at = at, None
        epoch = self.driver.state.epoch
        if self.primary_is_up and self.by_link:
            is_enough = self.terms.keeps_order and self._may_try()
            self.driver.feed(LinkOpened(at, epoch, chance))
            self.pings_in_a_row = min(self.pings_in_a_row + 1, self.pings_needed)
            if is_enough:
                self._is_well()
        elif self.primary_is_up:
            self.driver.feed(PingSucceeded(at, epoch, chance))
            self.pings_in_a_row += 1
            if self.pings_in_a_row >= self.pings_needed:
                self._is_well()
        else:
            self.driver.feed(PingFailed(at, epoch, "down", chance))
            self.pings_in_a_row = 0

    # what must agree

    @invariant()
    def the_side_is_the_models(self) -> None:
        assert isinstance(self.driver.state, FailedOver) == self.is_over

    @invariant()
    def a_suspicion_is_the_models(self) -> None:
        assert isinstance(self.driver.state, Suspect) == (self.failing_since is not None)

    @invariant()
    def orders_are_pending_exactly_while_they_are_needed(self) -> None:
        assert (self.driver.wake_at is not None) == (self.failing_since is not None)
        assert (self.driver.ping_at is not None) == (self.is_over and not self.stays)

    @invariant()
    def there_is_a_trial_exactly_while_a_message_is_on_its_way(self) -> None:
        assert (isinstance(self.driver.state, FailedOver) and self.driver.state.is_tried) == self.is_tried
        assert may_try(self.driver.state, self.driver.at) == self._may_try()

    @invariant()
    def epochs_never_go_back(self) -> None:
        if self.driver.history:
            assert self.driver.state.epoch - self.driver.history[-1].epoch in (0, 1)


TestEntityBesideModel = EntityBesideModel.TestCase
TestEntityBesideModel.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
