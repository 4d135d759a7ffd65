"""What lies in the backlog, and in which queue: rotation, envelopes, ids, sizes (P6, P9, P10, P11, P14)."""

from __future__ import annotations

import uuid
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType, AmqpMessageHeader, AmqpMessageProperties
from azure.servicebus.management import EntityStatus
from paired import Heard, PairHarness, wait_until

from twinbus import NamespaceSide, PairedServiceBusClient
from twinbus.errors import ReservedProperty, TooLargeForDetour

LATER = datetime(2031, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
LIMIT_BYTES = 262_144


def down(harness: PairHarness, bus: PairedServiceBusClient, queue: str | None = None) -> Any:
    """A sender for an entity that is failed over and stays so."""
    sender = bus.get_queue_sender(queue or harness.orders)
    bus.force_failover(queue or harness.orders, stay=True)
    return sender


def plain(properties: Any) -> dict[str, Any]:
    """Application properties with text instead of bytes, as they were before the SDK decoded them."""
    return {_text(key): _text(value) for key, value in (properties or {}).items()}


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def is_for_ever(time_to_live: timedelta | None) -> bool:
    """As in a queue without a time to live of its own, if the message has none either."""
    return time_to_live is None or time_to_live > timedelta(days=1_000)


def saved(harness: PairHarness, message: Any) -> ServiceBusReceivedMessage:
    """A message as it is received from the backlog queue."""
    with harness.bus() as bus:
        (path,) = down(harness, bus).send_messages(message).backlog_queues
    return harness.secondary.take(path, 1)[0]


# --- the rotation ---


def test_each_sender_chooses_by_chance_and_keeps_its_choice(both: PairHarness) -> None:
    with both.bus(backlog_queue_count=4) as bus:
        bus.get_queue_sender(both.orders)
        bus.force_failover(both.orders, stay=True)
        choices: Counter[str] = Counter()
        for _ in range(40):
            sender = bus.get_queue_sender(both.orders)
            chosen = {path for _ in range(3) for path in sender.send_messages(ServiceBusMessage("x")).backlog_queues}
            assert len(chosen) == 1
            choices.update(chosen)
        assert choices.keys() == {both.backlog(index) for index in range(4)}
        sent = {queue.path: queue.sent for queue in bus.status().backlog_queues}
        assert sent == {path: 3 * times for path, times in choices.items()}


@pytest.mark.parametrize("how", ["disabled", "deleted", "no-send"])
def test_a_queue_that_fails_leaves_the_rotation_for_all_senders_at_once(both: PairHarness, how: str) -> None:
    with both.bus(probation=timedelta(minutes=10)) as bus:
        heard = Heard(bus)
        bus.get_queue_sender(both.orders)
        bus.force_failover(both.orders, stay=True)
        senders = [bus.get_queue_sender(both.orders) for _ in range(12)]
        first = [sender.send_messages(ServiceBusMessage("1")).backlog_queues[0] for sender in senders]
        assert set(first) == {both.backlog(0), both.backlog(1)}
        if how == "disabled":
            both.secondary.change_queue(both.backlog(0), status=EntityStatus.SEND_DISABLED)
        elif how == "deleted":
            both.secondary.admin.delete_queue(both.backlog(0))
        else:
            both.secondary.break_("no-send", both.backlog(0))
        receipts = [sender.send_messages(ServiceBusMessage("2")) for sender in senders]
        assert {path for receipt in receipts for path in receipt.backlog_queues} == {both.backlog(1)}
        assert sorted(receipt.attempts for receipt in receipts) == [1] * 11 + [2], "one of them learned it for all"
        assert heard.wait_for("backlog_queue_lost").details["queue"] == 0
        lost, _ = bus.status().backlog_queues
        assert not lost.in_rotation
        assert lost.lost_until is not None
        assert lost.reason


def test_a_lost_queue_is_tried_again_after_its_probation(both: PairHarness) -> None:
    with both.bus(backlog_queue_count=2, probation=timedelta(seconds=1)) as bus:
        heard = Heard(bus)
        fault = both.secondary.break_("no-send", both.backlog(0))
        sender = bus.get_queue_sender(both.orders)
        bus.force_failover(both.orders, stay=True)
        wait_until(lambda: bus.get_queue_sender(both.orders).send_messages(ServiceBusMessage("1")).attempts == 2)
        both.secondary.clear(fault)
        both.secondary.break_("no-send", both.backlog(1))
        wait_until(lambda: bus.status().backlog_queues[0].in_rotation)
        receipt = sender.send_messages(ServiceBusMessage("2"))
        assert receipt.backlog_queues == (both.backlog(0),)
        heard.wait_for("backlog_queue_back")


def test_a_busy_backlog_queue_is_passed_over_for_another_one_and_not_lost(both: PairHarness) -> None:
    with both.bus() as bus:
        sender = down(both, bus)
        (busy,) = sender.send_messages(ServiceBusMessage("1")).backlog_queues
        both.secondary.break_("busy", busy)
        receipt = sender.send_messages(ServiceBusMessage("2"))
        assert receipt.backlog_queues != (busy,)
        assert receipt.attempts == 2
        assert receipt.seconds < 9
        assert all(queue.in_rotation for queue in bus.status().backlog_queues)


# --- the envelope ---

BODIES: dict[str, tuple[dict[str, Any], AmqpMessageBodyType]] = {
    "data": ({"data_body": [b"one", b"two", b""]}, AmqpMessageBodyType.DATA),
    "value": ({"value_body": {"a": [1, "two", 3.5, None, True, b"raw"]}}, AmqpMessageBodyType.VALUE),
    "null": ({"value_body": None}, AmqpMessageBodyType.VALUE),
    "sequence": ({"sequence_body": [[1, 2], ["three"]]}, AmqpMessageBodyType.SEQUENCE),
}


@pytest.mark.parametrize("kind", BODIES)
def test_every_kind_of_body_survives_the_detour(both: PairHarness, kind: str) -> None:
    body, body_type = BODIES[kind]
    with both.primary.sending(both.orders) as sender:
        sender.send_messages(AmqpAnnotatedMessage(**body))
    (straight,) = both.primary.messages(both.orders)
    found = saved(both, AmqpAnnotatedMessage(**body))
    assert found.body_type == straight.body_type == body_type
    one, other = found.raw_amqp_message.body, straight.raw_amqp_message.body
    assert (one, other) == (None, None) if kind == "null" else _listed(one) == _listed(other)


def _listed(body: Any) -> Any:
    return body if isinstance(body, dict) else list(body)


def test_everything_a_message_says_is_kept_or_moved(both: PairHarness) -> None:
    given: dict[str | bytes, Any] = {
        "text": "grün",
        "number": 7,
        "fraction": 2.5,
        "yes": True,
        "nothing": None,
        "raw": b"bytes",
        "guid": uuid.UUID(int=42),
        "when": datetime(2024, 1, 1, tzinfo=UTC),
    }
    message = ServiceBusMessage(
        b"body",
        application_properties=given,
        message_id="id",
        session_id="session",
        correlation_id="correlation",
        subject="subject",
        to="to",
        reply_to="reply",
        reply_to_session_id="reply session",
        content_type="text/plain",
        partition_key="session",
        time_to_live=timedelta(minutes=7),
        scheduled_enqueue_time_utc=LATER,
    )
    with both.primary.sending(both.orders) as plain_sender:
        plain_sender.send_messages(ServiceBusMessage("x", application_properties=given))
    (straight,) = both.primary.messages(both.orders)
    found = saved(both, message)
    for field, value in {
        "message_id": "id",
        "correlation_id": "correlation",
        "subject": "subject",
        "to": "to",
        "reply_to": "reply",
        "reply_to_session_id": "reply session",
        "content_type": "text/plain",
        "partition_key": "session",
    }.items():
        assert getattr(found, field) == value, field
    assert found.session_id is None
    assert found.scheduled_enqueue_time_utc is None
    assert is_for_ever(found.time_to_live), "it would act in the backlog"
    properties = plain(found.application_properties)
    aliases = {name: properties.pop(name) for name in tuple(properties) if name.startswith("x-ms-")}
    assert properties == plain(straight.application_properties)
    assert aliases == {
        "x-ms-path": both.orders,
        "x-ms-sessionid": "session",
        "x-ms-timetolive": 420_000,
        "x-ms-scheduledenqueuetimeutc": round(LATER.timestamp() * 1000),
    }
    assert list(found.body) == [b"body"]


def test_only_what_is_set_moves(both: PairHarness) -> None:
    found = saved(both, ServiceBusMessage("42"))
    assert plain(found.application_properties) == {"x-ms-path": both.orders}
    assert is_for_ever(found.time_to_live)


def test_header_and_footer_survive_too(both: PairHarness) -> None:
    message = AmqpAnnotatedMessage(
        data_body=b"x",
        header=AmqpMessageHeader(priority=7, durable=True),
        properties=AmqpMessageProperties(user_id=b"me", message_id="id"),
        footer={"foot": "note"},
        annotations={"x-opt-mine": "kept"},
    )
    found = saved(both, message).raw_amqp_message
    assert found.header is not None
    assert (found.header.priority, found.header.durable) == (7, True)
    assert found.properties is not None
    assert found.properties.user_id == b"me"
    assert plain(found.footer) == {"foot": "note"}
    assert plain(found.annotations)["x-opt-mine"] == "kept"


# --- ids ---


def test_ids_are_the_same_on_both_sides_and_in_the_receipt(both: PairHarness) -> None:
    with both.bus() as bus:
        sender = down(both, bus)
        receipt = sender.send_messages(
            [ServiceBusMessage("1"), ServiceBusMessage("2", message_id="mine"), {"body": "3"}]
        )
        assert receipt.message_ids[1] == "mine"
        assert len(set(receipt.message_ids)) == 3
        assert (receipt.accepted, receipt.is_complete, receipt.places) == (3, True, receipt.backlog_queues)
    assert tuple(message.message_id for message in both.in_backlog()) == receipt.message_ids


def test_an_unanswered_send_is_in_doubt_and_the_copy_has_the_same_id(both: PairHarness) -> None:
    with both.bus(attempt_timeout=timedelta(seconds=3)) as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("1"))
        both.primary.break_("unanswered", both.orders)
        receipt = sender.send_messages(ServiceBusMessage("2"))
        assert (receipt.side, receipt.in_doubt, receipt.copies_in_doubt) == (NamespaceSide.BACKLOG, True, 1)
        event = heard.wait_for("in_doubt")
        assert event.details["message_ids"] == receipt.message_ids
        assert event.details["side"] == "primary"
        assert bus.status().entities[0].copies_in_doubt == 1
    _, doubted = both.primary.messages(both.orders)
    (copy,) = both.in_backlog()
    assert doubted.message_id == copy.message_id == receipt.message_ids[0]


# --- sharing ---


def test_entities_and_primaries_share_a_secondary(both: PairHarness) -> None:
    other = f"fabrikam-{both.name}"
    with both.bus() as one, both.bus(primary_name=other) as two:
        for bus in (one, two):
            for queue in (both.orders, both.invoices):
                sender = bus.get_queue_sender(queue)
                bus.force_failover(queue, stay=True)
                sender.send_messages(ServiceBusMessage(queue))
    paths = sorted(plain(message.application_properties)["x-ms-path"] for message in both.in_backlog())
    assert paths == sorted((both.orders, both.invoices))
    theirs = [
        message for index in (0, 1) for message in both.secondary.messages(f"{other}/x-servicebus-transfer/{index}")
    ]
    assert sorted(map(str, theirs)) == sorted((both.orders, both.invoices))


# --- what cannot take the detour ---


def test_a_message_too_large_for_the_detour_is_reported_with_its_numbers(both: PairHarness) -> None:
    with both.bus() as bus:
        sender = bus.get_queue_sender(both.orders)
        large = ServiceBusMessage(b"x" * (LIMIT_BYTES - 160), session_id="s" * 100, message_id="large")
        assert sender.send_messages(large).side is NamespaceSide.PRIMARY
        bus.force_failover(both.orders, stay=True)
        with pytest.raises(TooLargeForDetour) as refused:
            sender.send_messages(large)
        error = refused.value
        assert error.limit_bytes == LIMIT_BYTES
        assert error.size_bytes > LIMIT_BYTES
        assert 0 < error.overhead_bytes < 500
        assert str(error.size_bytes) in str(error)
        receipt = error.receipt
        assert receipt is None or (receipt.accepted, receipt.in_doubt) == (0, False)
        with pytest.raises(TooLargeForDetour):
            sender.send_messages([ServiceBusMessage("small"), large])
        assert sender.send_messages(ServiceBusMessage("small")).side is NamespaceSide.BACKLOG
    assert both.backlog_texts() == ["small"]
    assert len(both.primary.messages(both.orders)) == 1


def test_while_all_is_well_too_large_is_warned_about_once_an_entity(both: PairHarness) -> None:
    with both.bus() as bus:
        heard = Heard(bus)
        for queue in (both.orders, both.orders, both.invoices):
            sender = bus.get_queue_sender(queue)
            for _ in range(2):
                sender.send_messages(ServiceBusMessage(b"x" * (LIMIT_BYTES - 300)))
        heard.wait_for("too_large_for_detour", 2)
        bus.close()
        assert [event.entity for event in heard.named("too_large_for_detour")] == [both.orders, both.invoices]


def test_a_reserved_name_is_warned_about_and_then_refused_by_name(both: PairHarness) -> None:
    message = ServiceBusMessage("42", application_properties={"x-ms-path": "mine", "x-ms-sessionid": "mine too"})
    with both.bus() as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(both.orders)
        for _ in range(2):
            assert sender.send_messages(message).side is NamespaceSide.PRIMARY
        assert "x-ms-path" in heard.wait_for("reserved_property").text
        bus.force_failover(both.orders, stay=True)
        with pytest.raises(ReservedProperty) as refused:
            sender.send_messages(message)
        assert set(refused.value.names) == {"x-ms-path", "x-ms-sessionid"}
        with pytest.raises(ReservedProperty):
            sender.send_messages([ServiceBusMessage("small"), message])
        bus.close()
        assert len(heard.named("reserved_property")) == 1
    one, _ = both.primary.messages(both.orders)
    assert plain(one.application_properties) == {"x-ms-path": "mine", "x-ms-sessionid": "mine too"}
    assert both.in_backlog() == []
