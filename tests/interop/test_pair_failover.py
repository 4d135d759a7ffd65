"""An outage of the primary, of every kind, and what becomes of the very message that met it (A4, A8, P5, P8, S5)."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from outages import OUTAGES, SILENCE, attempt_for, heal
from paired import AIO, SYNC, Heard, PairHarness

from twinbus import NamespaceSide, Retry
from twinbus.client.reporting.status import EntityState

INTERVAL = timedelta(seconds=6)
"""Long enough for a few sends within it."""


@pytest.mark.sample(10)
@pytest.mark.parametrize("outage", OUTAGES)
def test_the_very_message_that_meets_an_outage_is_saved(both: PairHarness, outage: str) -> None:
    with both.bus(attempt_timeout=attempt_for(outage)) as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(both.orders)
        assert sender.send_messages(ServiceBusMessage("before")).side is NamespaceSide.PRIMARY
        OUTAGES[outage](both)
        receipts = [sender.send_messages(ServiceBusMessage(f"during {number}")) for number in (1, 2)]
        assert [receipt.side for receipt in receipts] == [NamespaceSide.BACKLOG, NamespaceSide.BACKLOG]
        assert receipts[1].attempts == 1, "the primary is left alone"
        heal(both)
        heard.wait_for("recovered")
        assert sender.send_messages(ServiceBusMessage("after")).side is NamespaceSide.PRIMARY
        (entity,) = bus.status().entities
        assert (entity.sent_to_primary, entity.sent_to_backlog, entity.failovers) == (2, 2, 1)
    assert both.backlog_texts() == ["during 1", "during 2"]
    found = [text for text in both.primary.texts(both.orders) if not text.startswith("x")]
    assert found[-1] == "after"
    assert set(found) - {"before", "after"} <= ({"during 1"} if receipts[0].in_doubt else set())


@pytest.mark.parametrize("outage", ["refuse", "silent", "disabled"])
def test_a_sender_made_in_the_middle_of_an_outage_takes_part(both: PairHarness, outage: str) -> None:
    with both.bus(attempt_timeout=attempt_for(outage), entities=[both.orders]) as bus:
        heard = Heard(bus)
        OUTAGES[outage](both)
        first = bus.get_queue_sender(both.orders).send_messages(ServiceBusMessage("1"))
        second = bus.get_queue_sender(both.orders).send_messages(ServiceBusMessage("2"))
        assert (first.side, second.side, second.attempts) == (NamespaceSide.BACKLOG, NamespaceSide.BACKLOG, 1)
        heal(both)
        heard.wait_for("recovered")
        assert bus.get_queue_sender(both.orders).send_messages(ServiceBusMessage("3")).side is NamespaceSide.PRIMARY


def test_a_killed_primary_keeps_what_it_acknowledged_and_gets_new_messages(both: PairHarness) -> None:
    with both.bus() as bus:
        heard = Heard(bus)
        senders = [bus.get_queue_sender(queue) for queue in (both.orders, both.invoices)]
        for sender in senders:
            sender.send_messages(ServiceBusMessage("before"))
        both.primary.kill()
        for sender in senders:
            assert sender.send_messages(ServiceBusMessage("during")).side is NamespaceSide.BACKLOG
        both.primary.start()
        heard.wait_for("recovered", 2)
        for sender in senders:
            assert sender.send_messages(ServiceBusMessage("after")).side is NamespaceSide.PRIMARY
    assert both.primary.texts(both.orders) == both.primary.texts(both.invoices) == ["before", "after"]
    assert both.backlog_texts() == ["during", "during"]


# --- entity by entity ---


def test_one_entity_failing_says_nothing_of_another(both: PairHarness) -> None:
    with both.bus() as bus:
        orders, invoices = bus.get_queue_sender(both.orders), bus.get_queue_sender(both.invoices)
        both.primary.break_("no-send", both.orders)
        assert orders.send_messages(ServiceBusMessage("1")).side is NamespaceSide.BACKLOG
        assert invoices.send_messages(ServiceBusMessage("2")).side is NamespaceSide.PRIMARY
        states = {entity.entity: entity.state for entity in bus.status().entities}
        assert states == {both.orders: EntityState.FAILED_OVER, both.invoices: EntityState.HEALTHY}
    assert both.primary.texts(both.invoices) == ["2"]


def test_all_senders_of_an_entity_go_and_return_together(both: PairHarness) -> None:
    with both.bus() as bus:
        heard = Heard(bus)
        senders = [bus.get_queue_sender(both.orders) for _ in range(5)]
        for sender in senders:
            sender.send_messages(ServiceBusMessage("before"))
        both.primary.break_("no-send", both.orders)
        receipts = [sender.send_messages(ServiceBusMessage("during")) for sender in senders]
        assert [receipt.side for receipt in receipts] == [NamespaceSide.BACKLOG] * 5
        assert sorted(receipt.attempts for receipt in receipts) == [1, 1, 1, 1, 2], "one of them found out for all"
        both.primary.clear()
        heard.wait_for("recovered")
        receipts = [sender.send_messages(ServiceBusMessage("after")) for sender in senders]
        assert [receipt.side for receipt in receipts] == [NamespaceSide.PRIMARY] * 5
    assert len(both.in_backlog()) == 5, "the backlog is not home, and sends go to the primary all the same"


# --- the retry schedule ---


def test_the_retry_schedule_comes_first(both: PairHarness) -> None:
    retry = Retry(attempts=3, backoff_min=timedelta(milliseconds=50), backoff_max=timedelta(milliseconds=100))
    with both.bus(retry=retry) as bus:
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("1"))
        both.primary.break_("refuse", both.orders, condition="amqp:internal-error", on="sends", count=2)
        receipt = sender.send_messages(ServiceBusMessage("2"))
        assert (receipt.side, receipt.attempts, receipt.copies_in_doubt) == (NamespaceSide.PRIMARY, 3, 0)
        assert receipt.seconds >= 0.15
        both.primary.break_("no-send", both.orders)
        receipt = sender.send_messages(ServiceBusMessage("3"))
        assert (receipt.side, receipt.attempts) == (NamespaceSide.BACKLOG, 4)
    assert both.primary.texts(both.orders) == ["1", "2"]


@pytest.mark.parametrize("how", ["refuse", "drop", "silent"])
def test_no_attempt_takes_longer_than_it_may(both: PairHarness, how: str) -> None:
    with both.bus(attempt_timeout=SILENCE) as bus:
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("before"))
        both.primary.break_("unreachable", how=how)
        began = time.monotonic()
        assert sender.send_messages(ServiceBusMessage("during")).side is NamespaceSide.BACKLOG
        assert time.monotonic() - began < 3 + 3 + 10, "one attempt at each side, and time for a busy machine"


def test_the_callers_timeout_bounds_the_whole_call(both: PairHarness) -> None:
    with both.bus(attempt_timeout=timedelta(seconds=30)) as bus:
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("before"))
        both.primary.break_("unreachable", how="silent")
        began = time.monotonic()
        receipt = sender.send_messages(ServiceBusMessage("during"), timeout=6)
        assert time.monotonic() - began < 20
        assert receipt.side is NamespaceSide.BACKLOG, "time was kept back for the detour"


# --- the failover interval ---


def test_within_the_interval_failures_are_raised_and_then_the_timer_fires_by_itself(both: PairHarness) -> None:
    with both.bus(failover_interval=INTERVAL) as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("before"))
        both.primary.break_("no-send", both.orders)
        began = time.monotonic()
        for _ in range(2):
            with pytest.raises(ServiceBusError, match="cannot be sent to"):
                sender.send_messages(ServiceBusMessage("raised"))
        assert bus.status().entities[0].state is EntityState.SUSPECT
        heard.wait_for("failed_over")  # nobody sends
        assert time.monotonic() - began >= INTERVAL.total_seconds()
        assert sender.send_messages(ServiceBusMessage("saved")).side is NamespaceSide.BACKLOG
        both.primary.clear()
        heard.wait_for("recovered")
        assert heard.names("ping_sent", "ping_failed") == ["suspect", "failed_over", "recovered"]
        assert heard.named("ping_sent")
    assert both.primary.texts(both.orders) == ["before"]
    assert both.backlog_texts() == ["saved"]


def test_a_success_within_the_interval_stops_the_timer(both: PairHarness) -> None:
    with both.bus(failover_interval=INTERVAL) as bus:
        heard = Heard(bus)
        sender, other = bus.get_queue_sender(both.orders), bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("1"))
        both.primary.break_("refuse", both.orders, condition="amqp:internal-error", on="sends", count=1)
        with pytest.raises(ServiceBusError):
            sender.send_messages(ServiceBusMessage("raised"))
        assert other.send_messages(ServiceBusMessage("2")).side is NamespaceSide.PRIMARY
        heard.wait_for("trusted_again")
        both.primary.break_("no-send", both.orders)
        second = time.monotonic()
        with pytest.raises(ServiceBusError):
            sender.send_messages(ServiceBusMessage("raised"))
        heard.wait_for("failed_over")
        assert time.monotonic() - second >= INTERVAL.total_seconds(), "the time began anew"
        assert heard.names("ping_sent", "ping_failed") == ["suspect", "trusted_again", "suspect", "failed_over"]


# --- brown-outs ---


def test_an_entity_that_fails_most_sends_is_failed_over_if_asked_for(both: PairHarness) -> None:
    rate: dict[str, Any] = {
        "failover_error_rate": 0.5,
        "failover_error_sends_min": 6,
        "failover_interval": timedelta(minutes=1),
    }
    with both.bus(**rate) as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(both.orders)
        sides: list[NamespaceSide | None] = []
        for _ in range(2):
            sender.send_messages(ServiceBusMessage("good"))
            both.primary.break_("refuse", both.orders, condition="amqp:internal-error", on="sends", count=2)
            for _ in range(2):
                try:
                    sides.append(sender.send_messages(ServiceBusMessage("bad")).side)
                except ServiceBusError:
                    sides.append(None)
        assert sides == [None, None, None, NamespaceSide.BACKLOG], "the one that was too many is saved"
        assert "67% of the last sends failed" in heard.wait_for("failed_over").text


def test_a_sync_and_an_asyncio_client_share_backlog_queues(harness: PairHarness) -> None:
    with harness.bus(SYNC) as one, harness.bus(AIO) as other:
        harness.primary.break_("no-send", harness.orders)
        for bus in (one, other):
            assert (
                bus.get_queue_sender(harness.orders).send_messages(ServiceBusMessage("42")).side
                is NamespaceSide.BACKLOG
            )
    assert harness.backlog_texts() == ["42", "42"]
