"""What each error does to a paired sender: nothing while all is well, and the table of error classes (P3, P4, S3)."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
    ServiceBusServerBusyError,
)
from paired import Heard, PairHarness, wait_until
from served import KEY

from twinbus import (
    ErrorClass,
    Failure,
    FailureKind,
    Namespace,
    NamespaceSide,
    PairedServiceBusSender,
    Retry,
    receipt_of,
)
from twinbus.client.reporting.status import EntityState

LATER = datetime.now(UTC) + timedelta(hours=1)


# --- while all is well ---


def test_a_healthy_send_is_one_operation_on_the_primary_and_none_on_the_secondary(both: PairHarness) -> None:
    with both.bus() as bus:
        before = both.secondary.operations(both.backlog(0)), both.secondary.operations(both.backlog(1))
        sender = bus.get_queue_sender(both.orders)
        for _ in range(3):
            sender.send_messages(ServiceBusMessage("1"))
        sender.send_messages([ServiceBusMessage("2"), ServiceBusMessage("3")])
        batch = sender.create_message_batch()
        batch.add_message(ServiceBusMessage("4"))
        sender.send_messages(batch)
        assert both.primary.operations(both.orders) == {"send": 6, "manage": 1}, "the queue was created, and six sends"
        sender.cancel_scheduled_messages(sender.schedule_messages(ServiceBusMessage("5"), LATER))
        assert (both.secondary.operations(both.backlog(0)), both.secondary.operations(both.backlog(1))) == before
    assert both.primary.texts(both.orders) == ["1", "1", "1", "2", "3", "4"]


def test_a_healthy_message_is_stored_as_the_sdk_alone_stores_it(both: PairHarness) -> None:
    def message() -> ServiceBusMessage:
        return ServiceBusMessage(
            b"\x00body",
            application_properties={"number": 7, "text": "ü", "yes": True},
            message_id="given",
            session_id="session",
            correlation_id="c",
            subject="s",
            to="t",
            reply_to="r",
            content_type="text/plain",
            time_to_live=timedelta(minutes=5),
        )

    with both.primary.sending(both.orders) as plain:
        plain.send_messages(message())
    with both.bus() as bus:
        bus.get_queue_sender(both.orders).send_messages(message())
    one, other = both.primary.messages(both.orders)
    same = "message_id session_id correlation_id subject to reply_to content_type time_to_live application_properties"
    for field in same.split():
        assert getattr(one, field) == getattr(other, field)
    assert list(one.body) == list(other.body)
    assert one.raw_amqp_message.annotations.keys() == other.raw_amqp_message.annotations.keys()  # type: ignore[union-attr]


def test_a_message_without_an_id_is_given_one_and_keeps_it(both: PairHarness) -> None:
    with both.bus() as bus:
        sender = bus.get_queue_sender(both.orders)
        raw, mapping = ServiceBusMessage("1"), {"body": "2"}
        receipts = [sender.send_messages(raw), sender.send_messages(mapping)]
        own = sender.send_messages(ServiceBusMessage("3", message_id="mine"))
    assert own.message_ids == ("mine",)
    assert mapping == {"body": "2"}, "the caller's own"
    ids = [message.message_id for message in both.primary.messages(both.orders)]
    assert ids == [receipts[0].message_ids[0], receipts[1].message_ids[0], "mine"]
    assert len(set(ids)) == 3


Act = Callable[[Any], Any]

WRONG_CALLS: dict[str, Act] = {
    "no message": lambda sender: sender.send_messages("text"),
    "a list with one that is none": lambda sender: sender.send_messages([ServiceBusMessage("1"), 2]),
    "nothing at all": lambda sender: sender.send_messages(None),
    "no time": lambda sender: sender.send_messages(ServiceBusMessage("1"), timeout=0),
    "too large": lambda sender: sender.send_messages(ServiceBusMessage(b"x" * 300_000)),
    "a value that cannot be encoded": lambda sender: sender.send_messages(
        ServiceBusMessage("1", application_properties={"x": object()})  # type: ignore[dict-item]
    ),
    "a batch larger than the link": lambda sender: sender.create_message_batch(max_size_in_bytes=10_000_000),
    "what is not a schedule": lambda sender: sender.schedule_messages("text", LATER),
    "a number that nobody has": lambda sender: sender.cancel_scheduled_messages(123_456),
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("call", WRONG_CALLS)
def test_a_wrong_call_raises_what_the_sdk_alone_raises(both: PairHarness, call: str) -> None:
    with both.primary.sending(both.orders) as plain, pytest.raises(Exception) as expected:  # noqa: PT011
        WRONG_CALLS[call](plain)
    with both.bus() as bus:
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("opens the link"))
        with pytest.raises(type(expected.value)) as raised:
            WRONG_CALLS[call](sender)
        assert type(raised.value) is type(expected.value)
        assert bus.status().is_healthy
        assert sender.send_messages(ServiceBusMessage("goes on")).side is NamespaceSide.PRIMARY


def test_an_empty_list_sends_nothing(both: PairHarness) -> None:
    with both.bus() as bus:
        sender = bus.get_queue_sender(both.orders)
        receipt = sender.send_messages([])
        assert (receipt.accepted, receipt.message_ids, receipt.attempts) == (0, (), 0)
        assert sender.schedule_messages([], LATER) == []
    assert both.primary.operations(both.orders).keys() == {"manage"}, "it was created, and that is all"


def test_too_large_is_raised_and_is_no_outage(both: PairHarness) -> None:
    with both.bus() as bus:
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("opens the link"))
        with pytest.raises(MessageSizeExceededError) as raised:
            sender.send_messages(ServiceBusMessage(b"x" * 300_000))
        receipt = receipt_of(raised.value)
        assert receipt is not None
        assert (receipt.accepted, receipt.in_doubt) == (0, False)
        assert bus.status().is_healthy


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_link_that_died_while_nobody_sent_is_no_outage(both: PairHarness, how: str) -> None:
    with both.bus() as bus:
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("1"))
        both.primary.kill() if how == "killed" else both.primary.stop()
        both.primary.start()
        receipt = sender.send_messages(ServiceBusMessage("2"))
        assert (receipt.side, receipt.in_doubt) == (NamespaceSide.PRIMARY, False)
        assert bus.status().is_healthy
    assert both.primary.texts(both.orders) == ["1", "2"]


# --- not found ---


def test_a_name_that_nobody_has_seen_is_a_typing_error(both: PairHarness) -> None:
    with both.bus() as bus:
        with pytest.raises(MessagingEntityNotFoundError):
            bus.get_queue_sender("ordres").send_messages(ServiceBusMessage("42"))
        assert bus.status().is_healthy
    assert both.in_backlog() == []


def test_a_declared_name_that_is_not_found_is_an_outage(both: PairHarness) -> None:
    with both.bus(entities=["Announced"]) as bus:
        receipt = bus.get_queue_sender("announced").send_messages(ServiceBusMessage("42"))
        assert receipt.side is NamespaceSide.BACKLOG
    (message,) = both.in_backlog()
    assert str(message) == "42"


# --- rights ---


def test_without_the_right_to_send_nothing_is_hidden(both: PairHarness) -> None:
    here = Namespace.from_connection_string(both.primary.rule_strings["reader"])
    with both.client_of(here, both.secondary.namespace, entities=[both.orders]) as bus:
        with pytest.raises(ServiceBusAuthorizationError) as raised:
            bus.get_queue_sender(both.orders).send_messages(ServiceBusMessage("42"))
        receipt = receipt_of(raised.value)
        assert receipt is not None
        assert (receipt.attempts, receipt.accepted) == (1, 0)
        assert bus.status().is_healthy
    assert both.in_backlog() == []


def test_a_wrong_key_of_the_primary_is_raised_at_once(both: PairHarness) -> None:
    wrong = Namespace.from_connection_string(both.primary.connection_string.replace(KEY, "another-key"))
    with both.client_of(wrong, both.secondary.namespace, entities=[both.orders]) as bus:
        with pytest.raises(ServiceBusAuthenticationError):
            bus.get_queue_sender(both.orders).send_messages(ServiceBusMessage("42"))
        assert bus.status().is_healthy
    assert both.in_backlog() == []


# --- busy ---


@pytest.mark.long
def test_a_busy_server_is_given_ten_seconds_and_never_failed_over(both: PairHarness) -> None:
    with both.bus(retry=Retry(attempts=3)) as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("1"))
        both.primary.break_("busy", both.orders, length_ms=5_000)
        began = time.monotonic()
        receipt = sender.send_messages(ServiceBusMessage("2"))
        assert 10 <= time.monotonic() - began < 20
        assert (receipt.side, receipt.attempts) == (NamespaceSide.PRIMARY, 2)
        assert heard.names() == ["busy"]
    assert both.primary.texts(both.orders) == ["1", "2"]


def test_busy_is_raised_when_there_is_no_time_to_wait(both: PairHarness) -> None:
    with both.bus(retry=Retry(attempts=3)) as bus:
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("1"))
        both.primary.break_("busy", both.orders)
        began = time.monotonic()
        with pytest.raises(ServiceBusServerBusyError) as raised:
            sender.send_messages(ServiceBusMessage("2"), timeout=9)
        assert time.monotonic() - began < 8.5, "it would be too early to try again"
        receipt = receipt_of(raised.value)
        assert receipt is not None
        assert (receipt.attempts, receipt.in_doubt) == (1, False)
        assert bus.status().entities[0].state is EntityState.HEALTHY
        assert sender._link is not None, "the link is as good as before"
    assert both.in_backlog() == []


def test_busy_is_raised_when_the_attempts_are_used_up(both: PairHarness) -> None:
    with both.bus() as bus:
        both.primary.break_("busy", both.orders)
        with pytest.raises(ServiceBusServerBusyError):
            bus.get_queue_sender(both.orders).send_messages(ServiceBusMessage("2"))
        assert bus.status().is_healthy


# --- the application's own opinion ---


def test_an_application_can_have_its_own_verdicts(both: PairHarness) -> None:
    heard: list[Failure] = []

    def judge(failure: Failure) -> ErrorClass | None:
        heard.append(failure)
        return ErrorClass.RAISE if failure.kind is FailureKind.INTERNAL else None

    with both.bus(classifier=judge) as bus:
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("1"))
        fault = both.primary.break_("no-send", both.orders)
        with pytest.raises(ServiceBusError, match="cannot be sent to"):
            sender.send_messages(ServiceBusMessage("raised"))
        both.primary.clear(fault)
        both.primary.break_("refuse", both.orders, condition="com.microsoft:entity-disabled", on="sends")
        assert sender.send_messages(ServiceBusMessage("saved")).side is NamespaceSide.BACKLOG
    assert [failure.kind for failure in heard] == [FailureKind.INTERNAL, FailureKind.DISABLED]
    assert heard[0].condition == "amqp:internal-error"


def test_by_the_documents_rule_time_outs_count_and_lost_connections_do_not(both: PairHarness) -> None:
    with both.bus(classifier="documented", attempt_timeout=timedelta(seconds=3)) as bus:
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("1"))
        fault = both.primary.break_("unreachable", how="refuse")
        with pytest.raises(ServiceBusError):
            sender.send_messages(ServiceBusMessage("raised"))
        both.primary.clear(fault)
        assert sender.send_messages(ServiceBusMessage("2")).side is NamespaceSide.PRIMARY
        both.primary.break_("unreachable", how="silent")
        assert sender.send_messages(ServiceBusMessage("saved")).side is NamespaceSide.BACKLOG


def test_sends_that_waited_while_others_failed_over_follow_them_whatever_the_verdicts(both: PairHarness) -> None:
    with both.bus(classifier="documented", attempt_timeout=timedelta(seconds=3), entities=[both.orders]) as bus:
        sender = bus.get_queue_sender(both.orders)
        both.primary.break_("unreachable", how="silent")
        with ThreadPoolExecutor(3) as pool:
            first = pool.submit(sender.send_messages, ServiceBusMessage("1"))
            began = time.monotonic()
            wait_until(lambda: time.monotonic() - began > 0.7)  # the first one is in the middle of its attempt
            rest = [pool.submit(sender.send_messages, ServiceBusMessage(text)) for text in "23"]
            assert [one.result(60).side for one in (first, *rest)] == [NamespaceSide.BACKLOG] * 3


def test_the_sender_has_the_sdks_own_attributes(harness: PairHarness) -> None:
    with (
        harness.bus() as bus,
        bus.get_queue_sender(harness.orders) as sender,
        ServiceBusClient.from_connection_string(harness.primary.connection_string) as client,
    ):
        plain = client.get_queue_sender(harness.orders)
        assert isinstance(sender, PairedServiceBusSender)
        assert sender.entity_name == plain.entity_name
        for method in (
            "send_messages",
            "schedule_messages",
            "cancel_scheduled_messages",
            "create_message_batch",
            "close",
        ):
            assert callable(getattr(plain, method))
            assert callable(getattr(sender, method))
