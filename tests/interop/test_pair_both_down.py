"""Neither side takes the message: both reasons, nothing half sent, doubts said (P6, P12)."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.management import EntityStatus
from paired import Heard, PairHarness

from twinbus import NamespaceSide, receipt_of
from twinbus.errors import BothNamespacesUnavailable

QUICK = timedelta(seconds=2)
"""One attempt where several are waited for."""


@pytest.mark.parametrize("how", ["killed", "silent"])
def test_both_down_says_both_reasons(both: PairHarness, how: str) -> None:
    with both.bus(attempt_timeout=QUICK) as bus:
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("before"))
        for side in (both.primary, both.secondary):
            side.kill() if how == "killed" else side.break_("unreachable", how=how)
        began = time.monotonic()
        with pytest.raises(BothNamespacesUnavailable) as raised:
            sender.send_messages(ServiceBusMessage("during"))
        assert time.monotonic() - began < 8 * QUICK.total_seconds() + 10
        error = raised.value
        assert error.primary_reason
        assert error.secondary_reason
        assert str(error) == f"primary: {error.primary_reason}; secondary: {error.secondary_reason}"
        receipt = receipt_of(error)
        assert receipt is not None
        assert (receipt.accepted, receipt.places) == (0, ("not accepted",))
        assert receipt.in_doubt == error.in_doubt
    both.primary.heal()
    both.secondary.heal()
    found = both.primary.texts(both.orders) + both.backlog_texts()
    assert found.count("during") <= receipt.copies_in_doubt


def test_no_queue_left_says_why_each_was_lost(both: PairHarness) -> None:
    with both.bus() as bus:
        sender = bus.get_queue_sender(both.orders)
        bus.force_failover(both.orders, reason="drill", stay=True)
        both.secondary.change_queue(both.backlog(0), status=EntityStatus.SEND_DISABLED)
        both.secondary.break_("no-send", both.backlog(1))
        with pytest.raises(BothNamespacesUnavailable) as raised:
            sender.send_messages(ServiceBusMessage("1"))
        assert raised.value.primary_reason == "drill"
        assert "disabled" in raised.value.secondary_reason
        assert "internal error" in raised.value.secondary_reason
        with pytest.raises(BothNamespacesUnavailable) as again:
            sender.send_messages(ServiceBusMessage("2"))
        receipt = receipt_of(again.value)
        assert receipt is not None
        assert receipt.attempts == 0, "nobody asks lost queues again"
    assert both.in_backlog() == []


def test_with_a_single_queue_there_is_no_second_try(both: PairHarness) -> None:
    with both.bus(backlog_queue_count=1) as bus:
        sender = bus.get_queue_sender(both.orders)
        bus.force_failover(both.orders, stay=True)
        both.secondary.break_("no-send", both.backlog(0))
        with pytest.raises(BothNamespacesUnavailable) as raised:
            sender.send_messages(ServiceBusMessage("1"))
        receipt = receipt_of(raised.value)
        assert receipt is not None
        assert receipt.attempts == 1


def test_an_unanswered_detour_is_in_doubt_and_said(both: PairHarness) -> None:
    with both.bus(attempt_timeout=timedelta(seconds=3)) as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(both.orders)
        bus.force_failover(both.orders, stay=True)
        (first,) = sender.send_messages(ServiceBusMessage("1")).backlog_queues
        both.secondary.break_("unanswered", first)
        receipt = sender.send_messages(ServiceBusMessage("2", message_id="two"))
        assert (receipt.accepted, receipt.copies_in_doubt) == (1, 1)
        assert receipt.backlog_queues != (first,)
        assert heard.wait_for("in_doubt").details["side"] == "backlog"
    assert [message.message_id for message in both.in_backlog()].count("two") == 2


@pytest.mark.long
def test_after_both_were_down_everything_goes_on(both: PairHarness) -> None:
    with both.bus(probation=timedelta(seconds=1)) as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("1"))
        both.primary.kill()
        both.secondary.kill()
        with pytest.raises(BothNamespacesUnavailable):
            sender.send_messages(ServiceBusMessage("lost"))
        both.secondary.start()
        while True:  # until the probation of its queues is over
            try:
                assert sender.send_messages(ServiceBusMessage("2")).side is NamespaceSide.BACKLOG
                break
            except BothNamespacesUnavailable:
                time.sleep(0.05)
        both.primary.start()
        heard.wait_for("recovered")
        assert sender.send_messages(ServiceBusMessage("3")).side is NamespaceSide.PRIMARY
    assert both.primary.texts(both.orders) == ["1", "3"]
    assert both.backlog_texts() == ["2"]


def test_the_primary_back_before_the_secondary_takes_the_message(both: PairHarness) -> None:
    """A send that finds no backlog queue goes home if the entity is well again by then."""
    with both.bus(attempt_timeout=timedelta(seconds=5)) as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(both.orders)
        bus.force_failover(both.orders)
        both.secondary.break_("slow", delay_ms=1_500)
        for index in (0, 1):
            both.secondary.break_("no-send", both.backlog(index))
        receipt = sender.send_messages(ServiceBusMessage("1"))
        heard.wait_for("recovered")
        assert receipt.side is NamespaceSide.PRIMARY
    assert both.primary.texts(both.orders) == ["1"]
