"""Sends and pings in virtual time: on the primary, with retries, failing over, and back (P3-P8, A4, S3)."""

from __future__ import annotations

from itertools import repeat

import pytest
from scripted_bus import BUSY, OK, REFUSED, SILENT, Reply, ScriptedBus, fails

from twinbus.client.core.probes import ping
from twinbus.client.flows.io_requests import Failed, Probe, Sleep, Stored, ToBacklog, ToPrimary, WaitTurn, Woke
from twinbus.errors import SendError
from twinbus.pairing.backlog.rotation import QueueChoice
from twinbus.pairing.failover import FailedOver, Healthy, Suspect
from twinbus.pairing.pair import Pair
from twinbus.pairing.rules import Rules
from twinbus.pairing.sending.error_class import ErrorClass, documented
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.pairing.sending.receipt import NamespaceSide, receipt_of
from twinbus.pairing.sending.retry import longest_s

Kind = FailureKind
AT_ONCE = Rules(failover_interval_s=0, ping_interval_s=60, probe="ping")
MINUTE = Rules(failover_interval_s=60, ping_interval_s=60, probe="ping")


def one_try(**rules: float) -> Rules:
    return Rules(attempts=1, probe="ping", **rules)  # type: ignore[arg-type]


# --- the primary ---


def test_a_healthy_primary_gets_every_message_once() -> None:
    bus = ScriptedBus()
    receipt = bus.sent("a", "b").receipt
    assert (receipt.side, receipt.accepted, receipt.attempts, receipt.places) == (
        NamespaceSide.PRIMARY,
        2,
        1,
        ("primary", "primary"),
    )
    assert [type(asked.ask) for asked in bus.asked] == [ToPrimary]
    assert bus.events == []


def test_sequence_numbers_of_scheduled_messages_are_in_the_receipt() -> None:
    bus = ScriptedBus()
    bus.primary.says(Reply(numbers=(7, 8)))
    assert bus.sent("a", "b").receipt.sequence_numbers == (7, 8)


def test_an_attempt_that_fails_is_made_again_by_the_schedule() -> None:
    bus = ScriptedBus()
    bus.primary.says(SILENT, REFUSED, OK)
    call = bus.sent("a")
    assert bus.times(ToPrimary) == pytest.approx([0, 5.2, 5.6])
    assert call.receipt.attempts == 3
    assert bus.orders.state == Healthy()
    assert not bus.events_named("suspect")


def test_no_round_takes_longer_than_the_schedule_says() -> None:
    bus = ScriptedBus(MINUTE)
    bus.primary.always = SILENT
    assert bus.sent("a").ended_at == pytest.approx(longest_s(MINUTE))


def test_what_the_sdk_raised_is_raised_as_it_is_and_knows_its_receipt() -> None:
    bus = ScriptedBus(MINUTE)
    error = ConnectionRefusedError("refused")
    bus.primary.always = fails(Kind.UNREACHABLE, error=error)
    call = bus.sent("a")
    assert call.error is error
    receipt = receipt_of(error)
    assert receipt is not None
    assert (receipt.message_ids, receipt.accepted, receipt.attempts) == (("a",), 0, 3)


def test_a_failure_without_an_exception_of_the_sdk_is_a_send_error() -> None:
    bus = ScriptedBus(MINUTE)
    bus.primary.always = REFUSED
    error = bus.sent("a").error
    assert isinstance(error, SendError)
    assert receipt_of(error) is error.receipt is not None
    assert receipt_of(ValueError("not of a send")) is None


def test_an_attempt_that_was_made_already_is_the_first_of_the_schedule() -> None:
    bus = ScriptedBus(AT_ONCE)
    bus.primary.always = REFUSED
    failure = Failure(Kind.NO_ANSWER, "silence", in_doubt=True)
    receipt = bus.sent("a", first=(Failed(0.0, 0.5, failure), 0)).receipt
    assert len(bus.asks(ToPrimary)) == 2
    assert (receipt.side, receipt.attempts, receipt.copies_in_doubt) == (NamespaceSide.BACKLOG, 4, 1)


@pytest.mark.parametrize("kind", [Kind.UNAUTHORISED, Kind.TOO_LARGE, Kind.REJECTED])
def test_what_the_caller_has_to_mend_is_raised_at_once_and_counts_for_nothing(kind: Kind) -> None:
    bus = ScriptedBus(AT_ONCE)
    bus.primary.always = fails(kind)
    call = bus.sent("a")
    assert isinstance(call.error, SendError)
    assert len(bus.asked) == 1
    assert bus.orders.state == Healthy()


def test_a_typo_is_raised_and_a_declared_entity_fails_over() -> None:
    bus = ScriptedBus(AT_ONCE)
    for path in ("orders", "ordrs"):
        bus.places[path].always = fails(Kind.NOT_FOUND)
    assert isinstance(bus.sent("a", to="ordrs").error, SendError)
    assert bus.sent("b").receipt.side is NamespaceSide.BACKLOG


def test_an_entity_that_was_seen_alive_fails_over_when_it_is_not_found() -> None:
    bus = ScriptedBus(AT_ONCE, entities=())
    bus.sent("a")
    bus.primary.always = fails(Kind.NOT_FOUND)
    assert bus.sent("b").receipt.side is NamespaceSide.BACKLOG


def test_a_classifier_can_fail_over_what_would_be_raised_and_raise_what_would_fail_over() -> None:
    bus = ScriptedBus(AT_ONCE, classifier=lambda failure: ErrorClass.DOWN)
    bus.primary.always = fails(Kind.UNAUTHORISED)
    assert bus.sent("a").receipt.side is NamespaceSide.BACKLOG
    bus = ScriptedBus(AT_ONCE, classifier=documented)
    bus.primary.always = REFUSED
    assert isinstance(bus.sent("a").error, SendError)
    assert bus.orders.state == Healthy()


# --- a busy server ---


def test_a_busy_server_is_asked_again_after_exactly_ten_seconds_and_never_fails_over() -> None:
    bus = ScriptedBus(AT_ONCE)
    bus.primary.says(BUSY, BUSY, OK)
    call = bus.sent("a")
    assert bus.times(ToPrimary) == [0, 10, 20]
    assert (call.receipt.side, call.receipt.attempts) == (NamespaceSide.PRIMARY, 3)
    assert [heard.details["wait_s"] for heard in bus.events_named("busy")] == [10, 10]
    assert bus.orders.state == Healthy()


def test_a_server_that_stays_busy_is_raised_after_the_attempts_of_the_schedule() -> None:
    bus = ScriptedBus(AT_ONCE)
    bus.primary.always = BUSY
    call = bus.sent("a")
    assert isinstance(call.error, SendError)
    assert len(bus.asks(ToPrimary)) == 3
    assert call.ended_at == 20
    assert bus.orders.state == Healthy()


def test_nobody_waits_for_a_busy_server_longer_than_the_caller() -> None:
    bus = ScriptedBus(AT_ONCE)
    bus.primary.always = BUSY
    assert isinstance(bus.sent("a", timeout_s=10).error, SendError)
    assert bus.at == 0
    assert not bus.asks(Sleep)


def test_a_busy_answer_does_not_end_a_suspicion() -> None:
    bus = ScriptedBus(MINUTE)
    bus.primary.says(*[REFUSED] * 3)
    bus.sent("a")
    bus.primary.always = BUSY
    bus.sent("b")
    assert isinstance(bus.orders.state, Suspect)


# --- suspicion ---


def test_until_the_interval_has_passed_failing_sends_are_raised() -> None:
    bus = ScriptedBus(one_try(failover_interval_s=60))
    bus.primary.always = REFUSED
    for at in (0, 30, 59):
        bus.run_until(at)
        assert bus.sent("a").error is not None
    assert not bus.asks(ToBacklog)


def test_the_time_fires_by_itself_though_nobody_sends_meanwhile() -> None:
    bus = ScriptedBus(one_try(failover_interval_s=60))
    bus.primary.always = REFUSED
    bus.sent("a")
    bus.run_until(59.9)
    assert isinstance(bus.orders.state, Suspect)
    bus.run_until(60)
    assert isinstance(bus.orders.state, FailedOver)
    assert bus.sent("b").receipt.side is NamespaceSide.BACKLOG


def test_one_success_in_between_starts_the_time_anew() -> None:
    bus = ScriptedBus(one_try(failover_interval_s=60))
    for at, reply in ((0, REFUSED), (50, OK), (70, REFUSED)):
        bus.run_until(at)
        bus.primary.says(reply)
        bus.sent("a")
    bus.run_until(129)
    assert isinstance(bus.orders.state, Suspect)
    bus.run_until(130)
    assert isinstance(bus.orders.state, FailedOver)


def test_the_time_runs_from_the_end_of_the_first_schedule_that_failed() -> None:
    bus = ScriptedBus(MINUTE)
    bus.primary.always = SILENT
    bus.sent("a")
    bus.run_until(longest_s(MINUTE) + 59.9)
    assert isinstance(bus.orders.state, Suspect)
    bus.run_until(longest_s(MINUTE) + 60)
    assert isinstance(bus.orders.state, FailedOver)


# --- failover ---


def test_with_no_interval_the_very_message_is_saved() -> None:
    bus = ScriptedBus(AT_ONCE)
    bus.primary.always = REFUSED
    receipt = bus.sent("a", "b").receipt
    assert receipt.side is NamespaceSide.BACKLOG
    assert receipt.accepted == 2
    assert set(receipt.places) == {"contoso/x-servicebus-transfer/1"}
    assert receipt.attempts == 4


def test_a_failed_over_entity_sends_nothing_but_pings_to_the_primary() -> None:
    bus = ScriptedBus(AT_ONCE)
    bus.primary.always = bus.probe.always = REFUSED
    bus.sent("a")
    before = len(bus.asks(ToPrimary))
    for at in (10, 100, 1_000):
        bus.run_until(at)
        assert bus.sent("b").receipt.side is NamespaceSide.BACKLOG
    assert len(bus.asks(ToPrimary)) == before
    assert len(bus.asks(Probe)) == 16


def test_another_entity_is_none_the_worse() -> None:
    bus = ScriptedBus(AT_ONCE)
    bus.primary.always = REFUSED
    bus.sent("a")
    assert bus.sent("b", to="invoices").receipt.side is NamespaceSide.PRIMARY


def test_a_send_whose_entity_fails_over_meanwhile_takes_the_detour_without_a_further_attempt() -> None:
    bus = ScriptedBus(AT_ONCE)
    bus.primary.always = REFUSED
    first = bus.send("a")
    bus.run_until(0.3)
    second = bus.send("b")
    bus.run()
    assert first.receipt.side is second.receipt.side is NamespaceSide.BACKLOG
    assert bus.times(ToPrimary) == pytest.approx([0, 0.2, 0.3, 0.5, 0.6])
    assert second.ended_at == pytest.approx(0.9)


def test_a_late_success_is_a_success_and_does_not_cancel_the_failover() -> None:
    bus = ScriptedBus(one_try(failover_interval_s=0))
    bus.primary.says(Reply(after_s=4), REFUSED)
    slow, quick = bus.send("slow"), bus.send("quick")
    bus.run()
    assert (slow.receipt.side, quick.receipt.side) == (NamespaceSide.PRIMARY, NamespaceSide.BACKLOG)
    assert isinstance(bus.orders.state, FailedOver)


def test_a_success_of_an_older_epoch_does_not_end_a_suspicion() -> None:
    bus = ScriptedBus(one_try(failover_interval_s=60))
    bus.primary.says(Reply(after_s=4), REFUSED)
    slow = bus.send("slow")
    bus.force_failover()
    bus.mark_healthy()
    bus.send("quick")
    bus.run()
    assert slow.receipt.side is NamespaceSide.PRIMARY
    assert bus.orders.state == Suspect(2, 0.0, "unreachable: connection refused")


def test_a_late_failure_starts_no_failover_and_the_message_is_sent_again() -> None:
    bus = ScriptedBus(one_try(failover_interval_s=0, ping_interval_s=1))
    bus.primary.says(SILENT, REFUSED)
    slow, quick = bus.send("slow"), bus.send("quick")
    bus.run()
    assert quick.receipt.side is NamespaceSide.BACKLOG
    assert (slow.receipt.side, slow.receipt.attempts, slow.receipt.copies_in_doubt) == (NamespaceSide.PRIMARY, 2, 1)
    assert bus.orders.state == Healthy(2)
    assert len(bus.events_named("failed_over")) == 1


def test_an_attempt_that_was_made_before_its_entity_failed_over_is_not_forgotten() -> None:
    bus = ScriptedBus(AT_ONCE)
    bus.force_failover()
    silence = Failed(0.0, 0.5, Failure(Kind.NO_ANSWER, "silence", in_doubt=True))
    receipt = bus.sent("a", first=(silence, 0)).receipt
    assert (receipt.side, receipt.attempts, receipt.copies_in_doubt) == (NamespaceSide.BACKLOG, 2, 1)
    assert bus.at == 0, "others have failed over: there is nothing to wait for"
    assert bus.sent("b", first=(Stored(0.0, 0.5), 0)).receipt.side is NamespaceSide.PRIMARY


# --- doubt ---


def test_every_copy_that_may_be_stored_is_reported_and_counted_on_either_side() -> None:
    bus = ScriptedBus(AT_ONCE)
    bus.primary.says(SILENT, REFUSED, SILENT)
    bus.backlog[1].always = SILENT
    receipt = bus.sent("a").receipt
    assert receipt.in_doubt
    assert (receipt.attempts, receipt.copies_in_doubt) == (5, 3)
    assert [heard.details["side"] for heard in bus.events_named("in_doubt")] == ["primary", "primary", "backlog"]
    assert {heard.details["message_ids"] for heard in bus.events_named("in_doubt")} == {("a",)}
    assert bus.orders.tally.in_doubt == 3


def test_doubt_is_said_when_a_send_is_raised_too() -> None:
    bus = ScriptedBus(MINUTE)
    bus.primary.always = SILENT
    error = bus.sent("a").error
    assert isinstance(error, SendError)
    assert error.in_doubt


# --- the caller's patience ---


@pytest.mark.parametrize("timeout_s", [0.5, 3.0, 12.0])
def test_a_call_ends_when_its_caller_has_had_enough(timeout_s: float) -> None:
    bus = ScriptedBus(MINUTE)
    bus.primary.always = SILENT
    call = bus.sent("a", timeout_s=timeout_s)
    assert call.error is not None
    assert call.ended_at is not None
    assert call.ended_at <= timeout_s


@pytest.mark.parametrize("timeout_s", [0.3, 3.0, 30.0])
def test_with_no_interval_a_part_of_the_time_is_kept_for_the_detour(timeout_s: float) -> None:
    bus = ScriptedBus(AT_ONCE)
    bus.primary.always = SILENT
    bus.backlog[1].always = Reply(after_s=min(5, timeout_s / 3) * 0.99)
    call = bus.sent("a", timeout_s=timeout_s)
    assert call.receipt.side is NamespaceSide.BACKLOG
    assert call.ended_at is not None
    assert call.ended_at <= timeout_s


def test_nothing_is_kept_back_where_no_detour_is_to_come() -> None:
    bus = ScriptedBus(one_try(failover_interval_s=60))
    bus.primary.always = SILENT
    assert bus.sent("a", timeout_s=3).ended_at == 3


# --- pings ---


def outage(rules: Rules, chances: float = 0.5) -> ScriptedBus:
    bus = ScriptedBus(rules, chances=repeat(chances))
    bus.primary.always = bus.probe.always = REFUSED
    bus.sent("a")
    return bus


@pytest.mark.parametrize(("chance", "interval_s"), [(0.0, 54.0), (0.5, 60.0), (1.0, 66.0)])
def test_pings_come_one_interval_apart_and_the_first_one_after_one(chance: float, interval_s: float) -> None:
    bus = outage(one_try(failover_interval_s=0, ping_interval_s=60), chance)
    bus.run_until(200)
    assert bus.times(Probe) == pytest.approx([interval_s, 2 * interval_s, 3 * interval_s])
    assert len(bus.events_named("ping_failed")) == 3


def test_the_ping_that_succeeds_is_the_last_and_sends_are_back_at_once() -> None:
    bus = outage(one_try(failover_interval_s=0, ping_interval_s=60))
    bus.probe.says(REFUSED, OK)
    bus.primary.always = OK
    bus.run_until(119)
    assert bus.sent("b").receipt.side is NamespaceSide.BACKLOG
    bus.run_until(120)
    assert not bus.is_pending("ping"), "not even ordered"
    assert bus.orders.next_ping_at is None
    assert bus.sent("c").receipt.side is NamespaceSide.PRIMARY
    bus.run_until(10_000)
    assert bus.times(Probe) == [60, 120]


def test_pings_to_return_are_waited_for() -> None:
    bus = outage(one_try(failover_interval_s=0, ping_interval_s=60, pings_to_return=3))
    bus.probe.says(OK, OK, REFUSED, OK, OK, OK)
    bus.run_until(359)
    assert isinstance(bus.orders.state, FailedOver)
    bus.run_until(360)
    assert bus.orders.side is NamespaceSide.PRIMARY


def test_there_is_one_ping_for_an_entity_however_many_send() -> None:
    bus = outage(one_try(failover_interval_s=0, ping_interval_s=60))
    for _ in range(20):
        bus.send("b")
    bus.run()
    bus.run_until(119)
    assert len(bus.asks(Probe)) == 1


def test_a_ping_that_comes_too_late_to_matter_is_not_sent() -> None:
    bus = outage(one_try(failover_interval_s=0, ping_interval_s=60))
    bus.mark_healthy()
    assert not bus.is_pending("ping")
    bus.run_until(1_000)
    assert not bus.asks(Probe)
    assert list(ping(bus.pair, bus.orders)) == []


def test_a_ping_under_way_when_somebody_marks_the_entity_as_healthy_changes_nothing() -> None:
    bus = outage(one_try(failover_interval_s=0, ping_interval_s=60))
    bus.probe.always = SILENT
    bus.run_until(61)
    bus.mark_healthy()
    bus.run_until(1_000)
    assert bus.orders.state == Healthy(2)
    assert len(bus.asks(Probe)) == 1


def test_an_entity_that_is_to_stay_failed_over_is_pinged_only_after_it_need_not() -> None:
    bus = ScriptedBus(one_try(ping_interval_s=60))
    bus.force_failover(stays=True)
    bus.run_until(1_000)
    assert not bus.asks(Probe)
    bus.force_failover()
    bus.run_until(1_060)
    assert bus.times(Probe) == [1_060]
    assert bus.orders.side is NamespaceSide.PRIMARY


def test_a_forced_failover_needs_no_failure() -> None:
    bus = ScriptedBus(AT_ONCE)
    bus.force_failover()
    assert bus.sent("a", choice=QueueChoice()).receipt.side is NamespaceSide.BACKLOG
    assert not bus.asks(WaitTurn)


def test_a_ping_that_is_answered_by_the_end_of_the_client_says_nothing() -> None:
    core = Pair(Rules(failover_interval_s=0), entities=["orders"])
    orders = core.entity("orders")
    core.send_failed(orders, 0.0, 0, Failure(FailureKind.UNREACHABLE, "refused"), 0.5)
    flow = ping(core, orders)
    assert isinstance(next(flow), Probe)
    with pytest.raises(StopIteration):
        flow.send(Woke(1.0, 0.5, is_closing=True))
    assert orders.side is NamespaceSide.BACKLOG
