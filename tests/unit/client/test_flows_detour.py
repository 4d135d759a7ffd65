"""The detour in virtual time: which backlog queue, what if it fails, what if none is left (P6, P11, P12)."""

from __future__ import annotations

from itertools import cycle

import pytest
from scripted_bus import BUSY, NO_TURN, OK, REFUSED, SILENT, ScriptedBus, fails

from twinbus.client.flows.io_requests import Sleep, ToBacklog
from twinbus.errors import BothNamespacesUnavailable, SendError, TooLargeForDetour
from twinbus.pairing.backlog.rotation import QueueChoice
from twinbus.pairing.rules import Rules
from twinbus.pairing.sending.failure import FailureKind
from twinbus.pairing.sending.receipt import NamespaceSide

Kind = FailureKind
RULES = Rules(failover_interval_s=0, ping_interval_s=1_000, probation_s=60)
FULL = fails(Kind.FULL, "5 GB are used")


def failed_over(queues: int = 3, rules: Rules = RULES) -> ScriptedBus:
    """The primary is down, and everybody knows."""
    bus = ScriptedBus(rules, queues=queues)
    bus.primary.always = bus.probe.always = REFUSED
    bus.force_failover()
    return bus


def path(queue: int) -> str:
    return f"contoso/x-servicebus-transfer/{queue}"


# --- the choice ---


def test_a_sender_chooses_by_chance_and_keeps_its_choice() -> None:
    bus = failed_over(4)
    bus.chances = cycle([0.0, 0.9, 0.3])
    choices = [QueueChoice() for _ in range(4)]
    for choice in choices * 3:
        bus.sent("a", choice=choice)
    asked = bus.queues_asked()
    assert asked[:4] == asked[4:8] == asked[8:]
    assert len(set(asked)) > 1


def test_a_queue_that_fails_leaves_the_rotation_and_the_message_goes_to_another() -> None:
    bus = failed_over()
    bus.backlog[1].always = FULL
    receipt = bus.sent("a").receipt
    assert bus.queues_asked() == [1, 2]
    assert receipt.places == (path(2),)
    assert [heard.details["queue"] for heard in bus.events_named("backlog_queue_lost")] == [1]


@pytest.mark.parametrize(("first", "other"), [(0, 1), (1, 0)])
def test_a_send_that_had_no_turn_at_a_queue_goes_to_another_one_whatever_its_number(first: int, other: int) -> None:
    bus, choice = failed_over(queues=2), QueueChoice()
    choice.queue = first
    bus.backlog[first].says(NO_TURN)
    assert bus.sent("a", choice=choice).receipt.places == (path(other),)
    assert bus.events_named("backlog_queue_lost") == []


def test_all_senders_learn_at_once_of_a_queue_that_failed() -> None:
    bus = failed_over()
    bus.backlog[1].always = FULL
    others = [QueueChoice(), QueueChoice()]
    others[0].queue = 1  # it had chosen the same one
    bus.sent("a")
    for choice in others:
        bus.sent("b", choice=choice)
    assert bus.queues_asked().count(1) == 1


def test_a_lost_queue_is_tried_again_after_its_probation_and_not_before() -> None:
    bus = failed_over(1)
    bus.backlog[0].says(FULL)
    assert isinstance(bus.sent("a").error, BothNamespacesUnavailable)
    bus.run_until(59)
    assert isinstance(bus.sent("b").error, BothNamespacesUnavailable)
    assert bus.queues_asked() == [0]
    bus.run_until(60)
    assert bus.sent("c").receipt.places == (path(0),)
    assert bus.events_named("backlog_queue_back")


@pytest.mark.parametrize(
    "kind",
    [
        Kind.UNAUTHORISED,
        Kind.NOT_ALLOWED,
        Kind.NOT_FOUND,
        Kind.DISABLED,
        Kind.DELETED,
        Kind.INTERNAL,
        Kind.TIMED_OUT,
    ],
)
def test_whatever_is_wrong_with_a_queue_is_reported_and_another_one_is_used(kind: Kind) -> None:
    bus = failed_over()
    bus.backlog[1].always = fails(kind)
    assert bus.sent("a").receipt.side is NamespaceSide.BACKLOG
    assert [heard.details["kind"] for heard in bus.events_named("backlog_queue_lost")] == [kind.value]


@pytest.mark.parametrize("kind", [Kind.TOO_LARGE, Kind.REJECTED])
def test_what_is_wrong_with_the_message_is_raised_and_costs_no_queue(kind: Kind) -> None:
    bus = failed_over()
    bus.backlog[1].always = fails(kind)
    assert isinstance(bus.sent("a").error, SendError)
    assert bus.queues_asked() == [1]
    assert not bus.events_named("backlog_queue_lost")


# --- busy queues ---


def test_a_busy_queue_is_left_for_one_other_at_once() -> None:
    bus = failed_over()
    bus.backlog[1].always = BUSY
    assert bus.sent("a").receipt.places == (path(2),)
    assert bus.at == 0
    assert not bus.events_named("backlog_queue_lost")


def test_if_that_is_busy_too_the_send_waits_ten_seconds() -> None:
    bus = failed_over()
    for queue in bus.backlog:
        queue.says(BUSY)
    bus.sent("a")
    assert bus.times(ToBacklog) == [0, 0, 10]
    assert [asked.ask for asked in bus.asks(Sleep)] == [Sleep(10)]


def test_the_only_queue_that_is_busy_is_waited_for() -> None:
    bus = failed_over(1)
    bus.backlog[0].says(BUSY, BUSY)
    assert bus.sent("a").receipt.places == (path(0),)
    assert bus.times(ToBacklog) == [0, 10, 20]


def test_a_busy_queue_is_left_alone_for_ten_seconds_also_when_every_other_one_fails() -> None:
    bus = failed_over(2)
    bus.backlog[1].says(BUSY)
    bus.backlog[0].always = FULL
    assert bus.sent("a").receipt.places == (path(1),)
    assert list(zip(bus.times(ToBacklog), bus.queues_asked(), strict=True)) == [(0, 1), (0, 0), (10, 1)]


def test_queues_that_stay_busy_are_raised_in_the_end_with_both_reasons() -> None:
    bus = failed_over(1)
    bus.backlog[0].always = BUSY
    error = bus.sent("a").error
    assert isinstance(error, BothNamespacesUnavailable)
    assert error.primary_reason == "forced"
    assert error.secondary_reason == "busy: too many requests"
    assert bus.times(ToBacklog) == [0, 10, 20]


def test_busy_queues_are_waited_for_no_longer_than_the_caller_waits() -> None:
    bus = failed_over()
    for queue in bus.backlog:
        queue.always = BUSY
    error = bus.sent("a", timeout_s=9).error
    assert isinstance(error, BothNamespacesUnavailable)
    assert bus.at == 0


def test_each_busy_answer_of_a_queue_is_reported_with_the_queue_and_how_long_it_is_left_alone() -> None:
    bus = failed_over(2)
    for queue in bus.backlog:
        queue.says(BUSY)
    bus.sent("a")
    busy = [(heard.at, heard.details) for heard in bus.events_named("busy")]
    assert busy == [(0, {"wait_s": 10, "queue": queue, "side": "backlog"}) for queue in (1, 0)]


# --- none left ---


def test_with_no_queue_left_both_reasons_and_a_receipt_are_raised() -> None:
    bus = failed_over()
    bus.backlog[0].always = bus.backlog[1].always = FULL
    bus.backlog[2].always = fails(Kind.DISABLED, "switched off")
    error = bus.sent("a", "b").error
    assert isinstance(error, BothNamespacesUnavailable)
    assert error.primary_reason == "forced"
    assert error.secondary_reason == "quota exceeded: 5 GB are used; disabled: switched off"
    assert error.receipt is not None
    assert (error.receipt.accepted, error.receipt.places) == (0, ("not accepted", "not accepted"))
    assert not error.in_doubt
    assert len(bus.queues_asked()) == 3


def test_an_outage_of_both_shows_what_the_primary_said_and_what_is_in_doubt() -> None:
    bus = ScriptedBus(RULES, queues=2)
    bus.primary.says(SILENT, REFUSED, REFUSED)
    for queue in bus.backlog:
        queue.always = SILENT
    error = bus.sent("a").error
    assert isinstance(error, BothNamespacesUnavailable)
    assert error.primary_reason == "unreachable: connection refused"
    assert "no answer in time" in error.secondary_reason
    assert error.receipt is not None
    assert (error.receipt.attempts, error.receipt.copies_in_doubt) == (5, 3)


def test_without_any_backlog_queue_that_is_the_reason() -> None:
    error = failed_over(0).sent("a").error
    assert isinstance(error, BothNamespacesUnavailable)
    assert error.secondary_reason == "there is no backlog queue"


def test_one_send_tries_no_queue_again_that_failed_it_however_short_the_probation_is() -> None:
    bus = failed_over(2, Rules(failover_interval_s=0, ping_interval_s=1_000, probation_s=1))
    for queue in bus.backlog:
        queue.always = SILENT
    assert isinstance(bus.sent("a").error, BothNamespacesUnavailable)
    assert sorted(bus.queues_asked()) == [0, 1]


def test_no_detour_is_longer_than_the_callers_patience() -> None:
    bus = failed_over(10)
    for queue in bus.backlog:
        queue.always = SILENT
    call = bus.sent("a", timeout_s=12)
    assert isinstance(call.error, BothNamespacesUnavailable)
    assert call.error.secondary_reason.startswith("the time that the caller gave is over; no answer in time")
    assert call.ended_at == 12


def test_if_the_primary_is_back_when_no_queue_is_left_it_gets_the_message() -> None:
    bus = failed_over(1)
    bus.backlog[0].always = fails(Kind.NO_ANSWER, after_s=4)
    bus.primary.always = OK
    call = bus.send("a")
    bus.later(2, bus.mark_healthy)
    bus.run()
    assert (call.receipt.side, call.receipt.accepted) == (NamespaceSide.PRIMARY, 1)


# --- batches ---


def test_a_batch_that_does_not_fit_goes_in_as_few_parts_as_fit_and_in_order() -> None:
    bus = failed_over()
    receipt = bus.sent("a", "b", "c", "d", "e", per_batch=2).receipt
    assert receipt.is_complete
    assert receipt.places == (path(1),) * 5
    assert bus.stored == [(1, each) for each in "abcde"]
    assert len(bus.asks(ToBacklog)) == 3
    assert bus.orders.tally.to_backlog == 5


def test_parts_of_a_batch_may_lie_in_different_queues_and_the_receipt_says_so() -> None:
    bus = failed_over()
    bus.backlog[1].says(OK, FULL)
    assert bus.sent("a", "b", "c", per_batch=1).receipt.places == (path(1), path(2), path(2))


def test_a_part_that_was_accepted_is_reported_when_the_rest_was_not() -> None:
    bus = failed_over(1)
    bus.backlog[0].says(OK, FULL)
    error = bus.sent("a", "b", "c", per_batch=2).error
    assert isinstance(error, BothNamespacesUnavailable)
    assert error.receipt is not None
    assert (error.receipt.side, error.receipt.accepted) == (NamespaceSide.BACKLOG, 2)
    assert error.receipt.places == (path(0), path(0), "not accepted")


def test_a_call_of_which_a_part_lies_in_the_backlog_is_not_begun_again_on_the_primary() -> None:
    bus = failed_over(1)
    bus.backlog[0].says(OK, fails(Kind.NO_ANSWER, after_s=4))
    bus.primary.always = OK
    call = bus.send("a", "b", per_batch=1)
    bus.later(2, bus.mark_healthy)
    bus.run()
    assert isinstance(call.error, BothNamespacesUnavailable)
    assert call.error.primary_reason == "it is back"
    assert bus.stored == [(0, "a")]


def test_a_message_that_cannot_be_addressed_is_refused_before_anything_is_sent() -> None:
    bus = failed_over()
    refusal = TooLargeForDetour(262_200, 262_144, 90)
    assert bus.sent("a", refusal=refusal).error is refusal
    assert bus.queues_asked() == []


def test_a_refused_message_that_may_be_stored_on_the_primary_says_so() -> None:
    bus = ScriptedBus(RULES)
    bus.primary.always = SILENT
    refusal = TooLargeForDetour(262_200, 262_144, 90)
    assert bus.sent("a", refusal=refusal).error is refusal
    assert refusal.receipt is not None
    assert (refusal.receipt.accepted, refusal.receipt.copies_in_doubt) == (0, 3)
