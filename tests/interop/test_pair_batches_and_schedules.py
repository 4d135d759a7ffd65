"""Lists, batches and schedules through an outage (P12)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import ServiceBusError
from paired import Heard, PairHarness

from twinbus import NamespaceSide, PairedMessageBatch, receipt_of
from twinbus.errors import BothNamespacesUnavailable, ScheduledInBacklog, SendError

LATER = datetime(2031, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
LARGE = 200_000


def alias(message: Any, name: str) -> Any:
    return message.application_properties[name.encode()]


# --- lists and batches ---


def test_everything_the_sdk_takes_takes_the_detour_in_order(both: PairHarness) -> None:
    with both.bus() as bus:
        sender = bus.get_queue_sender(both.orders)
        bus.force_failover(both.orders, stay=True)
        batch = sender.create_message_batch()
        assert isinstance(batch, PairedMessageBatch)
        batch.add_message(ServiceBusMessage("6"))
        batch.add_message({"body": "7"})
        with both.primary.sending(both.orders) as plain:
            sdk_batch = plain.create_message_batch()
        sdk_batch.add_message(ServiceBusMessage("8"))
        sdk_batch.add_message(ServiceBusMessage("9", message_id="nine"))
        sent = [
            sender.send_messages(one)
            for one in (
                ServiceBusMessage("1"),
                [ServiceBusMessage("2"), ServiceBusMessage("3")],
                AmqpAnnotatedMessage(data_body="4"),
                {"body": "5"},
                batch,
                sdk_batch,
            )
        ]
        assert [receipt.accepted for receipt in sent] == [1, 2, 1, 1, 2, 2]
        assert {receipt.attempts for receipt in sent} == {1}, "each went as one batch"
    found = both.in_backlog()
    assert [str(message) for message in found] == [str(number) for number in range(1, 10)]
    assert [message.message_id for message in found] == [each for receipt in sent for each in receipt.message_ids]
    assert {alias(message, "x-ms-path") for message in found} == {both.orders.encode()}


def test_everything_the_sdk_takes_goes_straight_while_all_is_well(both: PairHarness) -> None:
    with both.bus() as bus:
        sender = bus.get_queue_sender(both.orders)
        batch = sender.create_message_batch()
        batch.add_message(ServiceBusMessage("1"))
        with both.primary.sending(both.orders) as plain:
            sdk_batch = plain.create_message_batch()
        sdk_batch.add_message(ServiceBusMessage("2"))
        sent = [sender.send_messages(one) for one in (batch, sdk_batch, AmqpAnnotatedMessage(data_body="3"))]
        assert [receipt.side for receipt in sent] == [NamespaceSide.PRIMARY] * 3
    found = both.primary.messages(both.orders)
    assert [str(message) for message in found] == ["1", "2", "3"]
    assert [message.message_id for message in found] == [each for receipt in sent for each in receipt.message_ids]


def test_a_batch_is_as_large_as_the_link_says(both: PairHarness) -> None:
    with both.bus() as bus:
        sender = bus.get_queue_sender(both.orders)
        batch = sender.create_message_batch()
        assert batch.max_size_in_bytes == 262_144
        assert sender.create_message_batch(max_size_in_bytes=1_000).max_size_in_bytes == 1_000
        with pytest.raises(ValueError, match="size limit"):
            batch.add_message(ServiceBusMessage(b"x" * 300_000))
        both.primary.break_("unreachable", how="refuse")
        bus.force_failover(both.orders, stay=True)
        assert sender.create_message_batch().max_size_in_bytes == 262_144


def test_a_batch_filled_while_all_was_well_is_saved(both: PairHarness) -> None:
    with both.bus() as bus:
        sender = bus.get_queue_sender(both.orders)
        batch = sender.create_message_batch()
        count = 0
        while True:
            try:
                batch.add_message(ServiceBusMessage(b"x" * 1_000, message_id=str(count)))
            except ValueError:
                break
            count += 1
        both.primary.break_("unreachable", how="refuse")
        receipt = sender.send_messages(batch)
        assert (receipt.side, receipt.accepted, receipt.is_complete) == (NamespaceSide.BACKLOG, count, True)
        assert receipt.attempts == 3, "the primary, and two batches because each message has grown"
        assert len(set(receipt.backlog_queues)) == 1
    assert [message.message_id for message in both.in_backlog()] == [str(number) for number in range(count)]


def test_large_messages_take_as_few_batches_as_fit(both: PairHarness) -> None:
    with both.bus() as bus:
        sender = bus.get_queue_sender(both.orders)
        bus.force_failover(both.orders, stay=True)
        sizes = (150_000, 100_000, 10_000, 200_000, 50_000, 60_000)
        receipt = sender.send_messages([ServiceBusMessage(b"x" * size) for size in sizes])
        assert (receipt.accepted, receipt.attempts) == (6, 3)
    assert [len(b"".join(message.body)) for message in both.in_backlog()] == list(sizes)


def test_when_only_a_part_is_accepted_the_receipt_says_which(both: PairHarness) -> None:
    both.secondary.admin.create_queue(both.backlog(0), max_size_in_megabytes=1)
    with both.bus(backlog_queue_count=1) as bus:
        sender = bus.get_queue_sender(both.orders)
        bus.force_failover(both.orders, stay=True)
        messages = [ServiceBusMessage(b"x" * LARGE, message_id=str(number)) for number in range(8)]
        with pytest.raises(BothNamespacesUnavailable) as raised:
            sender.send_messages(messages)
        receipt = receipt_of(raised.value)
        assert receipt is not None
        assert 0 < receipt.accepted < 8
        assert not receipt.is_complete
        assert receipt.places == (both.backlog(0),) * receipt.accepted + ("not accepted",) * (8 - receipt.accepted)
        assert "quota exceeded" in raised.value.secondary_reason
        assert "forced" in raised.value.primary_reason
    found = [message.message_id for message in both.in_backlog(1)]
    assert found == list(receipt.message_ids[: receipt.accepted])


# --- schedules ---


def test_schedules_on_the_primary_are_the_sdks(both: PairHarness) -> None:
    with both.bus() as bus:
        sender = bus.get_queue_sender(both.orders)
        (number,) = sender.schedule_messages(ServiceBusMessage("1"), LATER)
        several = sender.schedule_messages([ServiceBusMessage("2"), ServiceBusMessage("3")], LATER)
        assert len(several) == 2
        assert min(number, *several) > 0
        sender.cancel_scheduled_messages(number)
        sender.cancel_scheduled_messages(several[:1])
    (left,) = both.primary.messages(both.orders)
    assert str(left) == "3"
    assert left.scheduled_enqueue_time_utc == LATER


def test_a_schedule_in_an_outage_goes_to_the_backlog_at_once(both: PairHarness) -> None:
    with both.bus() as bus:
        sender = bus.get_queue_sender(both.orders)
        (kept,) = sender.schedule_messages(ServiceBusMessage("kept"), LATER)
        both.primary.break_("unreachable", how="refuse")
        tokens = sender.schedule_messages([ServiceBusMessage("1"), ServiceBusMessage("2")], LATER)
        tokens += sender.schedule_messages(ServiceBusMessage("3"), LATER.replace(tzinfo=None))
        assert len(set(tokens)) == 3
        for wrong in (tokens[0], tokens, [kept, tokens[2]]):
            with pytest.raises(ScheduledInBacklog, match="cannot be cancelled"):
                sender.cancel_scheduled_messages(wrong)
        with pytest.raises(SendError, match="failed over"):
            sender.cancel_scheduled_messages(kept)
    found = both.in_backlog()
    assert [str(message) for message in found] == ["1", "2", "3"]
    due = round(LATER.timestamp() * 1000)
    assert [alias(message, "x-ms-scheduledenqueuetimeutc") for message in found] == [due] * 3
    assert {message.scheduled_enqueue_time_utc for message in found} == {None}
    both.primary.clear()
    assert both.primary.texts(both.orders) == ["kept"]


def test_what_was_scheduled_before_an_outage_can_be_cancelled_after_it(both: PairHarness) -> None:
    with both.bus() as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(both.orders)
        (number,) = sender.schedule_messages(ServiceBusMessage("1"), LATER)
        both.primary.break_("no-send", both.orders)
        (token,) = sender.schedule_messages(ServiceBusMessage("2"), LATER)
        both.primary.clear()
        heard.wait_for("recovered")
        sender.cancel_scheduled_messages(number)
        with pytest.raises(ScheduledInBacklog):
            sender.cancel_scheduled_messages(token)
    assert both.primary.messages(both.orders) == []
    assert both.backlog_texts() == ["2"]


def test_an_unanswered_schedule_is_in_doubt_too(both: PairHarness) -> None:
    with both.bus(attempt_timeout=timedelta(seconds=3)) as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(both.orders)
        sender.schedule_messages(ServiceBusMessage("1"), LATER)
        both.primary.break_("unreachable", how="silent")
        sender.schedule_messages(ServiceBusMessage("2", message_id="two"), LATER)
        assert heard.wait_for("in_doubt").details["message_ids"] == ("two",)
    assert both.backlog_texts() == ["2"]


def test_a_batch_cannot_be_scheduled_as_in_the_sdk(both: PairHarness) -> None:
    with both.bus() as bus:
        sender = bus.get_queue_sender(both.orders)
        batch = sender.create_message_batch()
        batch.add_message(ServiceBusMessage("1"))
        with both.primary.sending(both.orders) as plain, pytest.raises(TypeError):
            plain.schedule_messages(batch, LATER)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            sender.schedule_messages(batch, LATER)
        bus.force_failover(both.orders, stay=True)
        with pytest.raises(TypeError):
            sender.schedule_messages(batch, LATER)


@pytest.mark.parametrize("is_over", [False, True], ids=["healthy", "failed over"])
def test_nothing_is_scheduled_at_no_time_nor_is_what_is_no_message(both: PairHarness, is_over: bool) -> None:
    with both.bus() as bus:
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("first"))
        if is_over:
            bus.force_failover(both.orders, stay=True)
        for when in (None, "tomorrow", 7):
            with pytest.raises(TypeError, match="must be a datetime, got"):
                sender.schedule_messages(ServiceBusMessage("1"), when)  # type: ignore[arg-type]
        with both.primary.sending(both.orders) as plain:
            wrongs: tuple[Any, ...] = ({}, sender.create_message_batch(), 7)
            for wrong in wrongs:
                with pytest.raises(TypeError, match="are supported") as of_the_sdk:
                    plain.schedule_messages(wrong, LATER)
                with pytest.raises(TypeError) as ours:
                    sender.schedule_messages(wrong, LATER)
                assert str(ours.value) == str(of_the_sdk.value)
        assert sender.schedule_messages([], LATER) == []
        assert len(sender.schedule_messages({"body": "2"}, LATER)) == 1
    both.primary.heal()
    assert both.primary.texts(both.orders) == (["first"] if is_over else ["first", "2"])


def test_scheduling_a_ping_is_the_callers_mistake_and_no_outage(both: PairHarness) -> None:
    with both.bus() as bus:
        sender = bus.get_queue_sender(both.orders)
        ping = ServiceBusMessage(b"", content_type="application/vnd.ms-servicebus-ping")
        with pytest.raises(ServiceBusError, match="sequence-numbers"):
            sender.schedule_messages(ping, LATER)
        (entity,) = bus.status().entities
        assert (entity.state, entity.failovers, entity.copies_in_doubt) == ("healthy", 0, 0)
        assert sender.send_messages(ServiceBusMessage("after")).side is NamespaceSide.PRIMARY
    assert both.in_backlog() == []


def test_what_is_no_sequence_number_is_not_cancelled(both: PairHarness) -> None:
    with both.bus() as bus:
        sender = bus.get_queue_sender(both.orders)
        for wrong in (["1"], "12", None, [1, 2.0]):
            with pytest.raises(TypeError, match="sequence numbers are whole numbers"):
                sender.cancel_scheduled_messages(wrong)  # type: ignore[arg-type]
