"""Where the primary is asked by links, one message at a time tries it, unseen by its caller (P7), in virtual time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from scripted_bus import BUSY, OK, REFUSED, SILENT, Call, Reply, ScriptedBus, fails

from twinbus.client.flows.io_requests import Probe, ToBacklog, ToPrimary, WaitTurn
from twinbus.errors import NotSent, SendError
from twinbus.pairing.failover import FailedOver, Healthy
from twinbus.pairing.rules import Rules
from twinbus.pairing.sending.failure import FailureKind
from twinbus.pairing.sending.receipt import NamespaceSide, receipt_of

Kind = FailureKind
PING_S = 60.0
DISABLED = fails(Kind.DISABLED, "it is switched off")


def failed_over(**rules: Any) -> ScriptedBus:
    """Since 0 s, because messages are refused; links open."""
    wishes: dict[str, Any] = {"failover_interval_s": 0, "ping_interval_s": PING_S, "attempts": 1, "probe": "link"}
    bus = ScriptedBus(Rules(**(wishes | rules)))
    bus.primary.always = DISABLED
    assert bus.sent("first").receipt.side is NamespaceSide.BACKLOG
    return bus


def ready(**rules: Any) -> ScriptedBus:
    """The same; a link was opened, and nobody has sent since."""
    bus = failed_over(**rules)
    bus.run_until(PING_S)
    assert bus.orders.is_ready
    return bus


def to_primary(bus: ScriptedBus) -> int:
    return len(bus.asks(ToPrimary)) - 1  # without the one that failed over


def state_of(bus: ScriptedBus) -> FailedOver:
    state = bus.orders.state
    assert isinstance(state, FailedOver)
    return state


def ends(call: Call) -> SendError:
    assert isinstance(call.error, SendError)
    return call.error


# --- a link is not enough ---


def test_a_link_that_opens_brings_nobody_back() -> None:
    bus = failed_over()
    bus.run_until(10 * PING_S)
    assert state_of(bus).epoch == 1
    assert to_primary(bus) == 0, "nobody sends, so nobody tries"
    assert not bus.events_named("recovered")
    assert len(bus.asks(Probe)) == 10, "and it is asked on"


def test_before_a_link_has_opened_every_send_takes_the_detour() -> None:
    bus = failed_over()
    bus.probe.always = REFUSED
    bus.run_until(2.5 * PING_S)
    assert bus.sent("a").receipt.side is NamespaceSide.BACKLOG
    assert to_primary(bus) == 0


def test_the_first_message_that_is_stored_brings_everybody_back() -> None:
    bus = ready()
    bus.primary.always = OK
    receipt = bus.sent("a").receipt
    assert (receipt.side, receipt.attempts, receipt.copies_in_doubt) == (NamespaceSide.PRIMARY, 1, 0)
    assert bus.orders.state == Healthy(2)
    assert [heard.text for heard in bus.events_named("recovered")] == ["a message was stored"]
    assert not bus.is_pending("ping")


def test_so_many_links_as_pings_to_return_must_open_before_a_message_tries() -> None:
    bus = failed_over(pings_to_return=3)
    bus.probe.says(OK, OK, REFUSED, OK, OK, OK)
    bus.primary.always = OK
    for at in (2.5, 4.5, 5.5):
        bus.run_until(at * PING_S)
        assert bus.sent(f"at {at}").receipt.side is NamespaceSide.BACKLOG
    bus.run_until(6 * PING_S)
    assert bus.sent("a").receipt.side is NamespaceSide.PRIMARY


def test_a_link_that_does_not_open_takes_the_trial_back() -> None:
    bus = ready()
    bus.probe.always = REFUSED
    bus.run_until(2 * PING_S)
    assert bus.sent("a").receipt.side is NamespaceSide.BACKLOG
    assert to_primary(bus) == 0


# --- a trial that fails ---


@pytest.mark.parametrize(
    "reply", [DISABLED, fails(Kind.FULL), REFUSED, fails(Kind.INTERNAL)], ids=lambda reply: str(reply[0])
)
def test_a_trial_that_fails_goes_to_the_backlog_unseen_by_its_caller(reply: Reply) -> None:
    bus = ready()
    before = state_of(bus)
    bus.primary.always = reply
    receipt = bus.sent("a", "b").receipt
    assert (receipt.side, receipt.accepted, receipt.attempts, receipt.copies_in_doubt) == (
        NamespaceSide.BACKLOG,
        2,
        2,
        0,
    )
    after = state_of(bus)
    assert (after.epoch, after.since, after.reason) == (before.epoch, before.since, before.reason)
    assert "a message tried it" in bus.events_named("ping_failed")[-1].text
    assert bus.orders.last_ping_failure == str(reply.failure)
    assert len(bus.events_named("failed_over")) == 1


def test_after_a_trial_that_failed_the_next_one_comes_after_another_link() -> None:
    bus = ready()
    for name in "abc":
        assert bus.sent(name).receipt.side is NamespaceSide.BACKLOG
    assert to_primary(bus) == 1
    bus.run_until(2 * PING_S)
    for name in "def":
        assert bus.sent(name).receipt.side is NamespaceSide.BACKLOG
    assert to_primary(bus) == 2
    assert bus.times(Probe) == [PING_S, 2 * PING_S], "and trials do not disturb the links"


def test_a_trial_is_one_attempt_whatever_the_schedule_says() -> None:
    bus = failed_over(attempts=3)
    bus.run_until(PING_S + 1)
    already = len(bus.asks(ToPrimary))
    assert bus.sent("a").receipt.attempts == 2
    assert len(bus.asks(ToPrimary)) == already + 1


def test_copies_of_a_trial_without_an_answer_are_in_doubt() -> None:
    bus = ready()
    bus.primary.always = SILENT
    receipt = bus.sent("a", "b").receipt
    assert (receipt.side, receipt.copies_in_doubt, receipt.attempts) == (NamespaceSide.BACKLOG, 2, 2)
    assert bus.events_named("in_doubt")[-1].details["message_ids"] == ("a", "b")
    assert bus.orders.tally.in_doubt == 2


def test_an_error_rate_does_not_grow_by_trials() -> None:
    bus = ready(error_rate=0.5, error_sends_min=1)
    bus.sent("a")
    assert len(bus.events_named("failed_over")) == 1
    assert not bus.events_named("flapping")


# --- one at a time ---


def test_others_are_not_kept_waiting_by_a_trial() -> None:
    bus = ready()
    bus.primary.always = SILENT
    trial = bus.send("a")
    bus.run_until(PING_S + 1)
    other = bus.send("b")
    bus.run_until(PING_S + 1)
    assert other.receipt.side is NamespaceSide.BACKLOG
    assert not trial.is_done
    bus.run()
    assert trial.ended_at == PING_S + bus.rules.attempt_s
    assert to_primary(bus) == 1


def test_who_is_in_the_backlog_when_a_trial_succeeds_stays_there_and_the_next_one_does_not() -> None:
    bus = ready()
    bus.primary.always = Reply(after_s=2.0)
    trial, other = bus.send("a"), bus.send("b")
    bus.run()
    assert (trial.receipt.side, other.receipt.side) == (NamespaceSide.PRIMARY, NamespaceSide.BACKLOG)
    assert bus.sent("c").receipt.side is NamespaceSide.PRIMARY


# --- the caller's time ---


@pytest.mark.parametrize(("timeout_s", "expected_s"), [(None, 5.0), (30.0, 5.0), (6.0, 4.0), (0.3, 0.2)])
def test_a_trial_leaves_time_for_the_detour(timeout_s: float | None, expected_s: float) -> None:
    bus = ready()
    bus.primary.always = SILENT
    call = bus.sent("a", timeout_s=timeout_s)
    ask = bus.asks(ToPrimary)[-1].ask
    assert isinstance(ask, ToPrimary)
    assert ask.timeout_s == pytest.approx(expected_s)
    assert call.receipt.side is NamespaceSide.BACKLOG
    assert timeout_s is None or (call.ended_at or 0.0) < PING_S + timeout_s


# --- what proves nothing ---


@pytest.mark.parametrize("kind", [Kind.UNAUTHORISED, Kind.TOO_LARGE, Kind.REJECTED, Kind.NOT_ALLOWED])
def test_what_is_the_callers_fault_is_raised_and_proves_nothing(kind: FailureKind) -> None:
    bus = ready(pings_to_return=1)
    bus.primary.always = fails(kind)
    error = ends(bus.sent("a"))
    receipt = receipt_of(error)
    assert receipt is not None
    assert receipt.accepted == 0
    assert not bus.events_named("recovered")
    assert bus.sent("b").receipt.side is NamespaceSide.BACKLOG, "not every caller meets it"
    bus.primary.always = OK
    bus.run_until(2 * PING_S)
    assert bus.sent("c").receipt.side is NamespaceSide.PRIMARY, "after another link another message tries"


def test_what_proves_nothing_asks_for_one_more_link_only() -> None:
    bus = failed_over(pings_to_return=3)
    bus.run_until(3 * PING_S)
    bus.primary.says(BUSY, OK)
    assert bus.sent("a").receipt.side is NamespaceSide.BACKLOG
    bus.run_until(4 * PING_S)
    assert bus.sent("b").receipt.side is NamespaceSide.PRIMARY


def test_a_busy_primary_is_not_waited_for_and_rests_for_ten_seconds() -> None:
    bus = failed_over(ping_interval_s=2)
    bus.run_until(2)
    bus.primary.always = BUSY
    call = bus.sent("a")
    assert (call.receipt.side, call.ended_at) == (NamespaceSide.BACKLOG, 2)
    while bus.at < 30:
        bus.run_until(bus.at + 1)
        bus.sent(f"at {bus.at}")
    tried = bus.times(ToPrimary)[1:]
    assert [after - before >= 10 for before, after in pairwise(tried)] == [True, True]


def test_messages_that_met_a_busy_primary_and_belong_there_again_wait_ten_seconds() -> None:
    bus = ready()
    bus.primary.says(BUSY, OK)
    bus.unplug_secondary()
    call = bus.send("a")
    bus.later(PING_S + 0.1, bus.mark_healthy)
    bus.run()
    assert call.receipt.side is NamespaceSide.PRIMARY
    assert call.ended_at == pytest.approx(PING_S + 10)


def test_a_trial_that_is_cut_short_keeps_nobody_from_trying() -> None:
    bus = ready()
    bus.primary.says(SILENT, OK)
    call = bus.send("a")
    assert state_of(bus).is_tried
    call.flow.close()
    call.ended_at = bus.at
    assert not state_of(bus).is_tried
    assert bus.sent("b").receipt.side is NamespaceSide.BACKLOG, (
        "callers who never wait would else never reach the backlog"
    )
    bus.run_until(2 * PING_S)
    assert bus.sent("c").receipt.side is NamespaceSide.PRIMARY


def test_a_trial_at_the_end_of_the_client_ends_as_not_sent() -> None:
    bus = ready()
    bus.primary.says(SILENT)
    call = bus.send("a")
    bus.is_closing = True
    bus._answer(call, call.wait_number, bus._woke())
    assert isinstance(ends(call), NotSent)
    assert not state_of(bus).is_tried


# --- a secondary that is away too ---


def test_who_waits_for_the_secondary_tries_the_primary_when_a_link_opens() -> None:
    bus = failed_over(ping_interval_s=4)
    bus.unplug_secondary()
    bus.primary.always = OK
    bus.run_until(1)
    calls = [bus.send("a"), bus.send("b")]
    bus.run_until(3.9)
    assert isinstance(calls[0].waits_for, WaitTurn)
    bus.run()
    assert [call.receipt.side for call in calls] == [NamespaceSide.PRIMARY, NamespaceSide.PRIMARY]
    assert [call.ended_at for call in calls] == [4, 4]


def test_with_both_away_a_send_tries_the_primary_once_and_has_an_end() -> None:
    bus = failed_over(ping_interval_s=2, attempt_s=5)
    bus.unplug_secondary()
    call = bus.sent("a")
    assert call.error is not None
    assert to_primary(bus) == 1
    assert (call.ended_at or 0.0) <= 2 * 5 + 2


# --- people, and held sends ---


def test_who_forces_a_failover_to_stay_has_no_message_try() -> None:
    bus = ready()
    bus.force_failover(stays=True)
    bus.primary.always = OK
    assert bus.sent("a").receipt.side is NamespaceSide.BACKLOG


def test_a_trial_under_way_when_a_failover_is_forced_to_stay_brings_nobody_back() -> None:
    bus = ready()
    bus.primary.always = Reply(after_s=2.0)
    call = bus.send("a")
    bus.force_failover(stays=True)
    bus.run()
    assert call.receipt.side is NamespaceSide.PRIMARY, "it is where it is"
    assert state_of(bus).stays
    assert not state_of(bus).is_tried


def test_a_failover_by_hand_ends_with_the_first_message_after_a_link() -> None:
    bus = ScriptedBus(Rules(ping_interval_s=PING_S, probe="link"))
    bus.force_failover()
    assert bus.sent("a").receipt.side is NamespaceSide.BACKLOG
    bus.run_until(PING_S)
    assert bus.sent("b").receipt.side is NamespaceSide.PRIMARY
    assert len(bus.events_named("recovered")) == 1


def test_marked_as_healthy_during_a_trial_its_failure_is_history_and_the_message_goes_on() -> None:
    bus = ready()
    bus.primary.says(fails(Kind.DISABLED, after_s=2.0), OK)
    call = bus.send("a")
    bus.later(PING_S + 1, bus.mark_healthy)
    bus.run()
    assert call.receipt.side is NamespaceSide.PRIMARY
    assert bus.orders.state == Healthy(2)


def test_held_sends_keep_their_order_when_the_first_of_them_tries() -> None:
    rules = Rules(failover_interval_s=3, ping_interval_s=4, attempts=1, hold_sends=True, probe="link")
    bus = ScriptedBus(rules)
    bus.unplug_secondary()
    bus.primary.always = DISABLED
    calls = [bus.send(name) for name in "abc"]
    bus.run_until(6.9)
    assert state_of(bus).since == 3
    bus.primary.always = OK
    bus.run()
    assert [call.receipt.side for call in calls] == [NamespaceSide.PRIMARY] * 3
    assert bus.stored == [("primary", name) for name in "abc"]
    assert [heard.at for heard in bus.events_named("recovered")] == [7]


def test_pings_need_no_message() -> None:
    bus = failed_over(probe="ping")
    bus.run_until(PING_S)
    assert bus.orders.state == Healthy(2)
    assert to_primary(bus) == 0
    assert bus.queues_asked() == [bus.asks(ToBacklog)[0].ask.queue]  # type: ignore[union-attr]
