"""Whether the secondary can be connected to: when trials come, who is woken, what is history (P6)."""

from __future__ import annotations

import pytest

from twinbus.pairing.effects import Effect, ReportEvent, TrySecondary, WakeWaiter
from twinbus.pairing.pair import Pair
from twinbus.pairing.rules import Rules
from twinbus.pairing.secondary import (
    CALM_S,
    SHORT_TRIALS_MAX,
    SPREAD,
    BackingOff,
    Secondary,
    Waiter,
    is_about_the_secondary,
)
from twinbus.pairing.sending.failure import Failure, FailureKind

Kind = FailureKind
REFUSED = Failure(Kind.UNREACHABLE, "connection refused", is_connection=True)
NOBODY = Failure(Kind.NO_ANSWER, "nobody answered", is_connection=True)
SILENT_QUEUE = Failure(Kind.NO_ANSWER, "no acknowledgement", in_doubt=True)
WAITER = Waiter("orders", 0)


def named(effects: tuple[Effect, ...]) -> list[str]:
    return [effect.name for effect in effects if isinstance(effect, ReportEvent)]


def trials(effects: tuple[Effect, ...]) -> list[float]:
    return [effect.at for effect in effects if isinstance(effect, TrySecondary)]


def away(at: float = 0.0) -> Secondary:
    """One that a send could not connect to, and that somebody waits for."""
    secondary = Secondary(attempt_s=5.0)
    secondary.failed(at, 0, REFUSED, 0.0)
    secondary.wait(7, WAITER, at)
    return secondary


def try_again(secondary: Secondary, at: float, failure: Failure = REFUSED) -> list[float]:
    """A trial that fails at once; when the next one is ordered for."""
    assert secondary.begin_trial(at, can_try=True) is not None
    return trials(secondary.trial_failed(at, secondary.generation, failure, 0.0))


@pytest.mark.parametrize(
    ("failure", "is_about_it"),
    [
        (REFUSED, True),
        (Failure(Kind.UNREACHABLE, "lost in the middle", in_doubt=True), True),
        (NOBODY, True),
        (SILENT_QUEUE, False),
        (Failure(Kind.NO_ANSWER, "connected, but no link"), False),
        (Failure(Kind.INTERNAL, "detached"), False),
        (Failure(Kind.UNAUTHORISED, "bad token", is_connection=True), False),
        (Failure(Kind.BUSY, "busy"), False),
        (Failure(Kind.FULL, "full"), False),
    ],
)
def test_only_what_kept_a_connection_from_being_is_about_the_secondary(failure: Failure, is_about_it: bool) -> None:
    assert is_about_the_secondary(failure) is is_about_it


def test_pauses_between_trials_double_from_a_fifth_of_a_second_to_two_seconds() -> None:
    secondary = Secondary(attempt_s=5.0)
    secondary.failed(0.0, 0, REFUSED, 0.0)
    at, pauses = 0.0, []
    effects = trials(secondary.wait(7, WAITER, 0.0))
    for _ in range(7):
        pauses.append(round(effects[0] - at, 9))
        at = effects[0]
        effects = try_again(secondary, at)
    assert pauses == [0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]


def test_chance_brings_a_trial_forward_and_never_back() -> None:
    secondary = Secondary(attempt_s=5.0)
    secondary.failed(0.0, 0, REFUSED, 1.0)
    assert isinstance(secondary.state, BackingOff)
    assert secondary.state.until == pytest.approx(0.2 * (1 - SPREAD))


def test_a_trial_lasts_a_second_or_less_if_an_attempt_does() -> None:
    assert away().begin_trial(0.2, can_try=True) == 1.0
    hasty = Secondary(attempt_s=0.3)
    hasty.failed(0.0, 0, REFUSED, 0.0)
    assert hasty.begin_trial(0.2, can_try=True) == 0.3


def test_after_many_trials_that_nobody_answered_they_last_a_whole_attempt() -> None:
    secondary, at = away(), 0.0
    for _ in range(SHORT_TRIALS_MAX):
        assert secondary.begin_trial(at + 2.0, can_try=True) == 1.0
        at += 3.0
        secondary.trial_failed(at, 0, NOBODY, 0.0)
    assert secondary.begin_trial(at + 2.0, can_try=True) == 5.0
    secondary.trial_failed(at, 0, REFUSED, 0.0)
    assert secondary.begin_trial(at + 2.0, can_try=True) == 1.0, "who refuses is quick to do so"


def test_there_is_one_trial_at_a_time_however_many_wait() -> None:
    secondary = away()
    ordered = [trials(secondary.wait(ticket, WAITER, 0.01 * ticket)) for ticket in range(50)]
    assert ordered == [[]] * 50, "the first who waited has ordered it"
    assert secondary.begin_trial(0.2, can_try=True) == 1.0
    assert secondary.begin_trial(0.2, can_try=True) is None
    assert trials(secondary.wait(99, WAITER, 3.0)) == []


def test_a_trial_that_connects_wakes_everybody_at_once() -> None:
    secondary = away()
    secondary.wait(8, WAITER, 0.1)
    secondary.begin_trial(0.2, can_try=True)
    effects = secondary.trial_connected(0.3)
    assert named(effects) == ["secondary_back"]
    assert [effect for effect in effects if isinstance(effect, WakeWaiter)] == [WakeWaiter(7), WakeWaiter(8)]
    assert secondary.is_open
    assert secondary.reason == ""


def test_it_is_reported_once_when_it_goes_and_once_when_it_is_back() -> None:
    secondary = Secondary(attempt_s=5.0)
    names = [*named(secondary.failed(0.0, 0, REFUSED, 0.0)), *named(secondary.failed(0.1, 0, REFUSED, 0.0))]
    secondary.begin_trial(0.2, can_try=True)
    names += named(secondary.trial_failed(0.3, 0, REFUSED, 0.0))
    secondary.begin_trial(0.7, can_try=True)
    names += named(secondary.trial_connected(0.7))
    assert names == ["secondary_unreachable", "secondary_back"]


def test_nobody_waits_nobody_tries_until_somebody_comes_or_looks() -> None:
    secondary = Secondary(attempt_s=5.0)
    assert trials(secondary.failed(0.0, 0, REFUSED, 0.0)) == []
    assert trials(secondary.look(0.1)) == [], "it is too early"
    assert trials(secondary.look(30.0)) == [30.0]
    assert try_again(secondary, 30.0) == []
    assert trials(secondary.wait(1, WAITER, 90.0)) == [90.0]


def test_failures_of_attempts_that_began_before_it_was_back_are_history() -> None:
    secondary = away()
    secondary.begin_trial(0.2, can_try=True)
    secondary.trial_connected(0.3)
    assert secondary.failed(0.4, 0, REFUSED, 0.0) == ()
    assert secondary.is_open
    secondary.failed(0.5, 1, REFUSED, 0.0)
    assert not secondary.is_open


def test_a_late_trial_cannot_close_what_a_send_has_opened() -> None:
    secondary = away()
    secondary.begin_trial(0.2, can_try=True)
    assert WakeWaiter(7) in secondary.stored(0.4)
    secondary.trial_failed(1.2, 0, NOBODY, 0.0)
    assert secondary.is_open


def test_pauses_are_short_again_only_after_something_was_stored_or_a_calm_time() -> None:
    def pause_after(at: float, *, stored: bool) -> float:
        secondary = away()
        secondary.begin_trial(0.2, can_try=True)
        secondary.trial_connected(0.3)
        if stored:
            secondary.stored(0.4)
        secondary.failed(at, 1, REFUSED, 0.0)
        assert isinstance(secondary.state, BackingOff)
        return round(secondary.state.until - at, 9)

    assert pause_after(0.5, stored=False) == 0.4, "it lets in and throws out: that is no reason to hurry"
    assert pause_after(0.5, stored=True) == 0.2
    assert pause_after(0.3 + CALM_S + 0.1, stored=False) == 0.2


def test_a_trial_of_an_earlier_outage_is_not_taken_for_one_of_this() -> None:
    secondary = away()  # a trial is ordered for 0.2
    secondary.stored(0.1)
    secondary.leave(7)
    secondary.failed(0.15, 1, REFUSED, 0.0)
    assert trials(secondary.wait(8, WAITER, 0.16)) == [pytest.approx(0.35)]


# --- silence of a queue, or of all of them ---


def pair() -> Pair:
    core = Pair(Rules(attempt_s=5.0, probation_s=60.0), entities=["orders"])
    core.use_queues(range(3), {}, 0.0)
    core.take_orders()
    return core


def test_a_silent_queue_leaves_the_rotation_and_a_trial_shows_whether_it_is_alone() -> None:
    core = pair()
    core.queue_failed(1, 5.0, SILENT_QUEUE)
    assert core.rotation.available(5.0) == [0, 2]
    assert trials(tuple(effect for _, effect in core.take_orders())) == [5.0]
    assert core.secondary.is_open
    assert core.secondary.is_doubted
    core.begin_trial(6.0)
    core.trial_connected(5.1)
    assert core.rotation.available(5.1) == [0, 2]
    assert not core.secondary.is_doubted


def test_a_trial_ordered_out_of_doubt_comes_no_earlier_than_the_back_off_that_began_meanwhile() -> None:
    core = pair()
    core.wait_for_secondary(core.take_ticket(), core.entity("orders"), 0, 5.0)
    core.queue_failed(1, 5.0, SILENT_QUEUE)
    core.secondary_failed(5.0, 0, REFUSED, 0.0)
    core.take_orders()
    assert core.begin_trial(5.1) == (None, 0.0), "it was due at once, and is late enough to be too early"
    assert trials(tuple(effect for _, effect in core.take_orders())) == [pytest.approx(5.2)]
    assert core.begin_trial(5.2) == (0, 1.0)


def test_attempts_with_too_little_time_lead_to_few_trials() -> None:
    """Callers who never have enough of it must not have a connection made for each of their messages."""
    core = pair()
    asked = []
    for tenths in range(50, 100):
        core.had_too_little_time(1, tenths / 10, tenths / 10, SILENT_QUEUE, 0)
        asked += trials(tuple(effect for _, effect in core.take_orders()))
        if core.begin_trial(tenths / 10)[0] is not None:
            core.trial_connected(tenths / 10)
    assert asked == [5.0, 7.0, 9.0]


def hasty(core: Pair, *attempts: tuple[float, float], failure: Failure = SILENT_QUEUE, generation: int = 0) -> None:
    for began_at, at in attempts:
        core.had_too_little_time(1, began_at, at, failure, generation)


THREE = (5.0, 5.4), (5.4, 5.8), (6.0, 6.4)


def test_three_silent_attempts_one_after_the_other_are_a_proof_if_the_secondary_has_answered_since_the_first() -> None:
    core = pair()
    hasty(core, *THREE[:2])
    core.queue_took(core.entity("orders"), 0, 1, 5.9)
    assert core.rotation.lost == {}
    hasty(core, THREE[2])
    assert list(core.rotation.lost) == [1]
    assert core.secondary.is_doubted, "a trial shows whether it is alone"


def test_if_nobody_has_answered_since_the_first_of_them_they_only_lead_to_a_trial() -> None:
    core = pair()
    hasty(core, *THREE, (6.4, 6.8))
    assert (core.rotation.lost, core.secondary.is_doubted) == ({}, True)
    core.begin_trial(6.8)
    core.trial_connected(6.9)
    hasty(core, (6.9, 7.3))
    assert list(core.rotation.lost) == [1]


@pytest.mark.parametrize(
    "attempts",
    [
        pytest.param([(5.0, 5.9), (5.1, 5.9), (5.2, 6.0), (5.9, 6.5), (6.0, 6.8)], id="at the same time"),
        pytest.param([(at / 10, at / 10 + 0.1) for at in range(50, 59)], id="less than a second together"),
    ],
)
def test_attempts_at_the_same_time_or_of_less_than_a_second_together_prove_nothing(
    attempts: list[tuple[float, float]],
) -> None:
    core = pair()
    hasty(core, attempts[0])
    core.queue_took(core.entity("orders"), 0, 1, 6.0)
    hasty(core, *attempts[1:])
    assert core.rotation.lost == {}


def test_what_came_before_an_outage_of_the_secondary_is_forgotten_and_what_began_before_its_return_too() -> None:
    core = pair()
    hasty(core, *THREE[:2])
    core.secondary_failed(5.9, 0, REFUSED, 0.0)
    hasty(core, THREE[2])
    core.begin_trial(6.5)
    core.trial_connected(6.5)
    hasty(core, *THREE, (6.4, 6.8))
    hasty(core, (6.5, 6.9), (6.9, 7.3), generation=1)
    assert core.rotation.lost == {}
    core.queue_took(core.entity("orders"), 0, 1, 7.3)
    hasty(core, (7.3, 7.7), generation=1)
    assert list(core.rotation.lost) == [1]


def test_a_connection_that_was_not_made_in_too_little_time_is_never_the_queues_fault() -> None:
    core = pair()
    hasty(core, THREE[0], failure=NOBODY)
    core.queue_took(core.entity("orders"), 0, 1, 5.4)
    hasty(core, *THREE[1:], (6.4, 6.8), failure=NOBODY)
    assert core.rotation.lost == {}


def test_if_nobody_answers_the_trial_either_no_queue_is_charged() -> None:
    core = pair()
    for queue in range(3):
        core.queue_failed(queue, 5.0 + queue / 10, SILENT_QUEUE)
    assert core.begin_trial(6.0) == (0, 1.0)
    core.trial_failed(6.0, 0, NOBODY, 0.0)
    assert not core.secondary.is_open
    assert core.rotation.available(6.0) == [0, 1, 2]


def test_what_else_is_wrong_with_a_queue_stays_wrong_when_the_secondary_goes() -> None:
    core = pair()
    core.queue_failed(0, 5.0, Failure(Kind.FULL, "5 GB"))
    core.queue_failed(1, -20.0, SILENT_QUEUE)
    core.secondary_failed(6.0, 0, REFUSED, 0.0)
    assert core.rotation.available(6.0) == [2], "it was silent long before"


@pytest.mark.parametrize("others", [{}, {0: Failure(Kind.FULL, "5 GB")}])
def test_a_look_that_finds_nobody_is_one_fact_about_the_secondary(others: dict[int, Failure]) -> None:
    core = pair()
    core.use_queues(range(3), dict.fromkeys(range(3), REFUSED) | others, 10.0)
    assert core.secondary.is_open is bool(others), "a queue that answers shows that somebody is there"
    assert core.rotation.available(10.0) == [queue for queue in range(3) if queue not in others]


def test_waiting_for_something_of_the_pair_ends_with_giving_the_ticket_back() -> None:
    core = pair()
    ticket = core.take_ticket()
    assert core.is_awaited(None, ticket)
    core.give_back(ticket)
    assert not core.is_awaited(None, ticket)
    assert core.take_ticket(ticket) == ticket
    assert core.is_awaited(None, ticket)
