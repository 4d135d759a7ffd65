"""The failover decision, step by step (A4, P5-P8). That every pair has an answer is shown in tests/properties."""

from __future__ import annotations

import pytest

from twinbus.pairing.effects import Effect, ForgetWake, PingPrimary, ReportEvent, StopPings, WakeMe
from twinbus.pairing.events import (
    FailoverForced,
    MarkedHealthy,
    PingFailed,
    PingSucceeded,
    SendFailed,
    SendSucceeded,
    TimeCame,
    TooManyFailed,
)
from twinbus.pairing.failover import FailedOver, Healthy, Suspect, step
from twinbus.pairing.rules import Rules

RULES = Rules(failover_interval_s=60, ping_interval_s=30)
AT_ONCE = Rules(failover_interval_s=0, ping_interval_s=30)
SUSPECT = Suspect(0, 100.0, "refused")
OVER = FailedOver(1, 100.0, "refused")


def orders(effects: tuple[Effect, ...]) -> list[Effect]:
    return [effect for effect in effects if not isinstance(effect, ReportEvent)]


def events(effects: tuple[Effect, ...]) -> list[str]:
    return [effect.name for effect in effects if isinstance(effect, ReportEvent)]


# --- from healthy to failed over ---


def test_the_first_failure_that_counts_starts_the_time() -> None:
    state, effects = step(Healthy(), SendFailed(100, 0, "refused"), RULES)
    assert state == SUSPECT
    assert orders(effects) == [WakeMe(160)]
    assert events(effects) == ["suspect"]


def test_further_failures_do_not_start_it_anew() -> None:
    assert step(SUSPECT, SendFailed(130, 0, "still refused"), RULES) == (SUSPECT, ())


def test_any_success_ends_a_suspicion() -> None:
    state, effects = step(SUSPECT, SendSucceeded(159.9, 0), RULES)
    assert state == Healthy(0)
    assert orders(effects) == [ForgetWake()]
    assert events(effects) == ["trusted_again"]


def test_failing_for_the_whole_interval_moves_sends_to_the_backlog() -> None:
    state, effects = step(SUSPECT, TimeCame(160, 0), RULES)
    assert state == FailedOver(1, 160, "refused")
    assert orders(effects) == [ForgetWake(), PingPrimary(190)]
    assert events(effects) == ["failed_over"]


def test_a_wake_that_comes_too_early_is_of_an_older_suspicion() -> None:
    assert step(SUSPECT, TimeCame(159.9, 0), RULES) == (SUSPECT, ())


def test_with_no_interval_the_first_failure_moves_sends_to_the_backlog() -> None:
    state, effects = step(Healthy(), SendFailed(100, 0, "refused"), AT_ONCE)
    assert state == OVER
    assert PingPrimary(130) in effects
    assert not any(isinstance(effect, WakeMe) for effect in effects)


@pytest.mark.parametrize("before", [Healthy(), SUSPECT])
def test_too_many_failures_fail_over_at_once_and_may_ask_for_more_pings(before: Healthy | Suspect) -> None:
    state, effects = step(before, TooManyFailed(120, 0, "60 %", pings_needed=4), RULES)
    assert state == FailedOver(1, 120, "60 %", pings_needed=4)
    assert orders(effects) == [ForgetWake(), PingPrimary(150)]


@pytest.mark.parametrize("before", [Healthy(), SUSPECT])
def test_somebody_may_force_a_failover(before: Healthy | Suspect) -> None:
    state, effects = step(before, FailoverForced(120, 0, "drill"), RULES)
    assert state == FailedOver(1, 120, "drill")
    assert orders(effects) == [ForgetWake(), PingPrimary(150)]
    (report,) = [effect for effect in effects if isinstance(effect, ReportEvent)]
    assert report.details["forced"] is True


# --- pings ---


@pytest.mark.parametrize(("chance", "after_s"), [(0.0, 27.0), (0.5, 30.0), (1.0, 33.0)])
def test_the_first_ping_comes_after_one_interval_give_or_take_a_tenth(chance: float, after_s: float) -> None:
    _, effects = step(Healthy(), SendFailed(100, 0, "refused", chance), AT_ONCE)
    (order,) = [effect for effect in effects if isinstance(effect, PingPrimary)]
    assert order.at == pytest.approx(100 + after_s)


@pytest.mark.parametrize(("chance", "after_s"), [(0.0, 27.0), (0.5, 30.0), (1.0, 33.0)])
def test_so_does_every_further_one(chance: float, after_s: float) -> None:
    state, effects = step(OVER, PingFailed(200, 1, "still down", chance), RULES)
    assert state == OVER
    (order,) = orders(effects)
    assert isinstance(order, PingPrimary)
    assert order.at == pytest.approx(200 + after_s)
    assert events(effects) == ["ping_failed"]


def test_one_ping_that_succeeds_brings_sends_back_to_the_primary() -> None:
    state, effects = step(OVER, PingSucceeded(200, 1), RULES)
    assert state == Healthy(2)
    assert orders(effects) == [StopPings()]
    assert events(effects) == ["recovered"]


def test_pings_to_return_must_succeed_one_after_the_other() -> None:
    rules = Rules(failover_interval_s=0, ping_interval_s=30, pings_to_return=3)
    state, _ = step(Healthy(), SendFailed(0, 0, "refused"), rules)
    good, bad = PingSucceeded(1, 1), PingFailed(1, 1, "down again")
    for event in (good, good, bad, good, good):
        state, effects = step(state, event, rules)
        assert isinstance(state, FailedOver)
        assert any(isinstance(effect, PingPrimary) for effect in effects)
    assert step(state, good, rules)[0] == Healthy(2)


def test_pings_that_damping_asks_for_must_succeed_one_after_the_other_too() -> None:
    state, _ = step(Healthy(), TooManyFailed(0, 0, "60 %", pings_needed=2), RULES)
    state, _ = step(state, PingSucceeded(1, 1), RULES)
    state, _ = step(state, PingFailed(2, 1, "down again"), RULES)
    state, _ = step(state, PingSucceeded(3, 1), RULES)
    assert isinstance(state, FailedOver)
    assert isinstance(step(state, PingSucceeded(4, 1), RULES)[0], Healthy)


# --- people ---


def test_an_entity_that_is_to_stay_failed_over_is_not_pinged_and_not_brought_back() -> None:
    state, effects = step(Healthy(), FailoverForced(0, 0, "maintenance", stays=True), RULES)
    assert state == FailedOver(1, 0, "maintenance", stays=True)
    assert orders(effects) == [ForgetWake()]
    for late in (PingSucceeded(1, 1), PingFailed(1, 1, "late")):
        after, effects = step(state, late, RULES)
        assert isinstance(after, FailedOver)
        assert orders(effects) == []


def test_an_entity_that_need_not_stay_any_longer_is_pinged_again() -> None:
    staying = FailedOver(1, 0, "maintenance", stays=True)
    state, effects = step(staying, FailoverForced(50, 1, "let it come back"), RULES)
    assert state == FailedOver(1, 0, "maintenance")
    assert effects == (PingPrimary(80),)


def test_one_that_is_failed_over_can_be_made_to_stay() -> None:
    state, effects = step(OVER, FailoverForced(150, 1, "keep it there", stays=True), RULES)
    assert state == FailedOver(1, 100.0, "refused", stays=True)
    assert effects == (StopPings(),)


def test_forcing_what_is_failed_over_already_does_not_put_off_its_ping() -> None:
    assert step(OVER, FailoverForced(129, 1, "again"), RULES) == (OVER, ())


@pytest.mark.parametrize("over", [OVER, FailedOver(1, 100.0, "drill", stays=True)])
def test_marking_an_entity_as_healthy_brings_it_back(over: FailedOver) -> None:
    state, effects = step(over, MarkedHealthy(150, 1), RULES)
    assert state == Healthy(2)
    assert orders(effects) == [StopPings()]


def test_marking_a_suspect_as_healthy_makes_failures_that_are_on_their_way_history() -> None:
    state, effects = step(SUSPECT, MarkedHealthy(110, 0), RULES)
    assert state == Healthy(1)
    assert orders(effects) == [ForgetWake()]
    assert step(state, SendFailed(111, 0, "late"), RULES) == (state, ())


# --- epochs ---


def test_a_late_success_does_not_cancel_a_newer_failover() -> None:
    assert step(OVER, SendSucceeded(101, 0), RULES) == (OVER, ())


def test_a_late_failure_does_not_start_a_failover() -> None:
    recovered = Healthy(2)
    for epoch in (0, 1):
        assert step(recovered, SendFailed(200, epoch, "late"), AT_ONCE) == (recovered, ())
        assert step(recovered, TooManyFailed(200, epoch, "late"), AT_ONCE) == (recovered, ())


def test_a_ping_of_an_older_failover_does_not_end_a_newer_one() -> None:
    newer = FailedOver(3, 300.0, "refused again")
    assert step(newer, PingSucceeded(301, 1), RULES) == (newer, ())


def test_a_wake_of_an_older_suspicion_does_not_fail_over_in_a_newer_epoch() -> None:
    newer = Suspect(2, 100.0, "refused")
    assert step(newer, TimeCame(500, 0), RULES) == (newer, ())
