"""Sends with a spool: the local disk takes what neither namespace takes (X4), and nobody waits for the secondary."""

from __future__ import annotations

import pytest
from scripted_bus import BUSY, NOBODY_THERE, OK, REFUSED, SILENT, ScriptedBus, fails

from twinbus.client.flows.io_requests import OpenBacklog, Sleep, ToBacklog, ToSpool, WaitTurn
from twinbus.errors import BothNamespacesUnavailable
from twinbus.pairing.rules import Rules
from twinbus.pairing.sending.failure import FailureKind as Kind
from twinbus.pairing.sending.receipt import NamespaceSide

RULES = Rules(failover_interval_s=0, attempts=1, attempt_s=5, has_spool=True)
FULL = fails(Kind.FULL, "the spool /spool/1 is full")


def both_down(rules: Rules = RULES, **how: object) -> ScriptedBus:
    bus = ScriptedBus(rules, **how)  # type: ignore[arg-type]
    bus.primary.always = bus.probe.always = REFUSED
    bus.unplug_secondary()
    return bus


def test_a_message_that_neither_namespace_takes_goes_to_the_spool() -> None:
    bus = both_down()
    receipt = bus.sent("a").receipt
    assert (receipt.side, receipt.places, receipt.accepted) == (NamespaceSide.SPOOL, ("spool",), 1)
    assert receipt.is_complete
    assert bus.stored == [("spool", "a")]
    assert bus.orders.tally.to_spool == 1
    assert (bus.orders.tally.raised, receipt.copies_in_doubt) == (0, 0)


def test_the_first_send_that_finds_out_pays_one_attempt_and_the_others_none() -> None:
    bus = both_down()
    bus.unplug_secondary(NOBODY_THERE)
    first = bus.sent("a")
    assert first.ended_at == 5, "one attempt, and nobody there"
    assert len(bus.asks(ToBacklog)) == 1
    second = bus.sent("b")
    assert second.ended_at == first.ended_at
    assert second.receipt.places == ("spool",)
    assert len(bus.asks(ToBacklog)) == 1, "it is known to be away"


def test_nobody_waits_for_the_secondary_if_there_is_a_spool() -> None:
    bus = both_down()
    for name in "abc":
        bus.sent(name)
    assert not bus.asks(WaitTurn)
    assert not bus.asks(Sleep)
    assert bus.at == 0


def test_before_failover_a_failing_send_raises_as_always() -> None:
    bus = both_down(Rules(failover_interval_s=60, attempts=1, has_spool=True))
    call = bus.sent("a")
    assert call.error is not None
    assert not bus.asks(ToSpool)
    bus.run_until(61)
    assert bus.sent("b").receipt.places == ("spool",)


def test_a_healthy_primary_and_a_healthy_secondary_leave_the_spool_alone() -> None:
    bus = ScriptedBus(RULES)
    bus.sent("a")
    bus.primary.always = bus.probe.always = REFUSED
    bus.sent("b")
    assert not bus.asks(ToSpool)
    assert [where for where, _ in bus.stored if where == "spool"] == []


def test_queues_that_are_all_lost_are_as_good_as_no_secondary() -> None:
    bus = ScriptedBus(RULES)
    bus.primary.always = bus.probe.always = REFUSED
    for queue in bus.backlog:
        queue.always = fails(Kind.DISABLED)
    receipt = bus.sent("a").receipt
    assert receipt.places == ("spool",)
    assert receipt.attempts == 5, "the primary, three queues, and the spool"


def test_without_any_backlog_queue_messages_go_to_the_spool() -> None:
    """As after pairing while both were down."""
    bus = ScriptedBus(RULES, queues=0)
    bus.primary.always = bus.probe.always = REFUSED
    assert bus.sent("a").receipt.places == ("spool",)


def test_a_batch_is_split_where_the_secondary_goes_away() -> None:
    bus = ScriptedBus(RULES, queues=1)
    bus.primary.always = bus.probe.always = REFUSED
    bus.backlog[0].says(OK, REFUSED)
    bus.links[0].always = REFUSED
    receipt = bus.sent("a", "b", "c", per_batch=1).receipt
    assert receipt.places == ("contoso/x-servicebus-transfer/0", "spool", "spool")
    assert (receipt.side, receipt.accepted) == (NamespaceSide.SPOOL, 3)


def test_a_secondary_that_is_back_is_used_again_without_waiting_for_anybody() -> None:
    bus = both_down()
    bus.sent("a")
    bus.plug_in_secondary()
    bus.run_until(1)
    assert bus.asks(OpenBacklog), "somebody looks although nobody waits"
    assert bus.sent("b").receipt.side is NamespaceSide.BACKLOG


def test_a_primary_that_is_back_is_used_again() -> None:
    bus = both_down()
    bus.sent("a")
    bus.primary.always = bus.probe.always = OK
    bus.mark_healthy()
    assert bus.sent("b").receipt.side is NamespaceSide.PRIMARY


def test_a_full_spool_says_so_beside_both_reasons() -> None:
    bus = both_down()
    bus.spool.always = FULL
    error = bus.sent("a").error
    assert isinstance(error, BothNamespacesUnavailable)
    assert error.spool_reason == "quota exceeded: the spool /spool/1 is full"
    assert str(error).endswith("; spool: quota exceeded: the spool /spool/1 is full")
    assert error.receipt is not None
    assert (error.receipt.accepted, error.receipt.places) == (0, ("not accepted",))
    assert not error.in_doubt
    assert bus.orders.tally.raised == 1


def test_a_spool_that_gives_no_answer_leaves_the_message_in_doubt() -> None:
    bus = both_down()
    bus.spool.always = SILENT
    error = bus.sent("a").error
    assert isinstance(error, BothNamespacesUnavailable)
    assert error.in_doubt
    (heard,) = bus.events_named("in_doubt")
    assert heard.details["side"] == "spool"


def test_spooling_is_reported_when_it_begins_and_not_for_each_message() -> None:
    bus = both_down()
    for name in "abc":
        bus.sent(name)
    assert len(bus.events_named("spooling")) == 1
    bus.plug_in_secondary()
    bus.run_until(1)
    bus.sent("d")
    bus.unplug_secondary()
    bus.sent("e")
    assert len(bus.events_named("spooling")) == 2


def test_a_full_spool_is_reported_once_until_it_takes_messages() -> None:
    bus = both_down()
    bus.spool.says(FULL, FULL, OK, FULL)
    for name in "abcd":
        bus.sent(name)
    assert len(bus.events_named("spool_full")) == 2


def test_a_busy_secondary_is_waited_for_and_then_the_spool_takes_the_message() -> None:
    bus = ScriptedBus(Rules(failover_interval_s=0, attempts=2, has_spool=True))
    bus.primary.always = bus.probe.always = REFUSED
    for queue in bus.backlog:
        queue.always = BUSY
    call = bus.sent("a")
    assert call.receipt.places == ("spool",)
    assert bus.asks(Sleep), "busy is not away: ten seconds first"


def test_an_impatient_caller_keeps_time_for_the_spool() -> None:
    bus = both_down()
    bus.primary.always = NOBODY_THERE
    bus.unplug_secondary(NOBODY_THERE)
    call = bus.sent("a", timeout_s=3)
    assert call.receipt.places == ("spool",)
    assert call.ended_at is not None
    assert call.ended_at < 3
    (asked,) = bus.asks(ToSpool)
    assert isinstance(asked.ask, ToSpool)
    assert 0 < asked.ask.timeout_s <= 3 - asked.at


def test_three_doubts_at_the_secondary_lead_to_the_spool_and_are_counted() -> None:
    bus = ScriptedBus(RULES, queues=5)
    bus.primary.always = bus.probe.always = REFUSED
    for queue in bus.backlog:
        queue.always = fails(Kind.UNREACHABLE, in_doubt=True)
    receipt = bus.sent("a").receipt
    assert receipt.places == ("spool",)
    assert receipt.copies_in_doubt >= 1


@pytest.mark.parametrize("kind", [Kind.TOO_LARGE, Kind.REJECTED])
def test_what_is_the_callers_fault_is_raised_and_not_spooled(kind: Kind) -> None:
    bus = ScriptedBus(RULES)
    bus.primary.always = bus.probe.always = REFUSED
    bus.backlog[0].always = bus.backlog[1].always = bus.backlog[2].always = fails(kind, error=ValueError("no"))
    call = bus.sent("a")
    assert isinstance(call.error, ValueError)
    assert not bus.asks(ToSpool)


def test_a_trial_of_the_primary_goes_before_the_spool() -> None:
    """Links to the primary open: one message may try it, and is not put on the disk first."""
    bus = both_down(Rules(failover_interval_s=0, attempts=1, probe="link", ping_interval_s=10, has_spool=True))
    bus.sent("a")
    bus.primary.always = OK
    bus.probe.always = OK
    bus.run_until(30)
    receipt = bus.sent("b").receipt
    assert receipt.side is NamespaceSide.PRIMARY
