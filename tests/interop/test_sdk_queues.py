"""The official Python client, unmodified, against a real namespace: queues."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)
from engine_client import EngineClient
from received import receive_exactly

from twinbus.connection_string import ConnectionString
from twinbus.testing import LocalNamespace

WAIT_S = 30
"""Upper bound; what is there comes at once."""


@pytest.fixture
def client(namespace: LocalNamespace) -> Iterator[ServiceBusClient]:
    namespace.create_queue("orders")
    with ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client:
        yield client


def send(client: ServiceBusClient, *messages: Any, queue: str = "orders") -> None:
    with client.get_queue_sender(queue) as sender:
        for message in messages:
            sender.send_messages(message)


def number_of(message: ServiceBusReceivedMessage) -> int:
    assert message.sequence_number is not None
    return message.sequence_number


def is_empty(client: ServiceBusClient, queue: str = "orders") -> bool:
    with client.get_queue_receiver(queue) as receiver:
        return receiver.peek_messages(1, sequence_number=1) == []


def test_a_single_message_a_list_and_a_batch_arrive_in_order(client: ServiceBusClient) -> None:
    with client.get_queue_sender("orders") as sender:
        batch = sender.create_message_batch()
        batch.add_message(ServiceBusMessage("4"))
        batch.add_message(ServiceBusMessage("5"))
        sender.send_messages(ServiceBusMessage("1"))
        sender.send_messages([ServiceBusMessage("2"), ServiceBusMessage("3")])
        sender.send_messages(batch)
    with client.get_queue_receiver("orders") as receiver:
        messages = receive_exactly(receiver, 5, WAIT_S)
        for message in messages:
            receiver.complete_message(message)
    assert [str(message) for message in messages] == ["1", "2", "3", "4", "5"]
    assert [message.sequence_number for message in messages] == [1, 2, 3, 4, 5]
    assert {message.delivery_count for message in messages} == {0}
    assert is_empty(client)


def test_everything_a_sender_sets_reaches_the_receiver(client: ServiceBusClient) -> None:
    guid, when = uuid.uuid4(), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    properties: dict[str | bytes, Any] = {
        "text": "ü",
        "whole": 7,
        "part": 1.5,
        "flag": True,
        "guid": guid,
        "when": when,
    }
    sent = ServiceBusMessage(
        b"\x00\xffbody",
        message_id="id-1",
        correlation_id="c-1",
        subject="subject",
        to="to",
        reply_to="reply",
        reply_to_session_id="reply-session",
        content_type="text/plain",
        partition_key="p",
        time_to_live=timedelta(minutes=5),
        application_properties=properties,
    )
    send(client, sent)
    with client.get_queue_receiver("orders") as receiver:
        (got,) = receive_exactly(receiver, 1, WAIT_S)
        receiver.complete_message(got)
    assert b"".join(got.body) == b"\x00\xffbody"
    assert (got.message_id, got.correlation_id, got.subject, got.to) == ("id-1", "c-1", "subject", "to")
    assert (got.reply_to, got.reply_to_session_id, got.content_type) == ("reply", "reply-session", "text/plain")
    assert got.partition_key == "p"
    assert got.time_to_live == timedelta(minutes=5)
    assert got.enqueued_time_utc is not None
    assert got.expires_at_utc == got.enqueued_time_utc + timedelta(minutes=5)
    assert got.application_properties == {
        b"text": "ü".encode(),
        b"whole": 7,
        b"part": 1.5,
        b"flag": True,
        b"guid": guid,
        b"when": int(when.timestamp() * 1000),
    }


@pytest.mark.parametrize(
    "body",
    [{"data_body": [b"one", b"two"]}, {"sequence_body": [[1, "two"], [3.0]]}, {"value_body": {b"key": [1, 2]}}],
    ids=["data", "sequence", "value"],
)
def test_every_kind_of_body_is_passed_through(client: ServiceBusClient, body: dict[str, Any]) -> None:
    send(client, AmqpAnnotatedMessage(**body, annotations={"mine": 1}, footer={"sum": 2}))
    with client.get_queue_receiver("orders") as receiver:
        (got,) = receive_exactly(receiver, 1, WAIT_S)
        receiver.complete_message(got)
    raw = got.raw_amqp_message
    assert got.message_id, "a message without an id is given one"
    assert raw.annotations is not None
    assert raw.annotations[b"mine"] == 1
    assert raw.footer == {b"sum": 2}
    found = list(raw.body) if raw.body_type.value != "value" else raw.body
    expected = next(iter(body.values()))
    assert found == ([[1, b"two"], [3.0]] if "sequence_body" in body else expected)


def test_header_and_properties_of_a_raw_message_are_kept(client: ServiceBusClient) -> None:
    header = AmqpMessageHeader(durable=True, priority=7, first_acquirer=True)
    properties = AmqpMessageProperties(message_id="raw", user_id=b"me", group_sequence=3, content_encoding="utf-8")
    send(client, AmqpAnnotatedMessage(data_body=b"x", header=header, properties=properties))
    with client.get_queue_receiver("orders") as receiver:
        (got,) = receive_exactly(receiver, 1, WAIT_S)
        receiver.complete_message(got)
    raw = got.raw_amqp_message
    assert raw.header is not None
    assert raw.properties is not None
    assert (raw.header.durable, raw.header.priority) == (True, 7)
    assert (raw.properties.user_id, raw.properties.group_sequence) == (b"me", 3)


def test_an_abandoned_message_comes_back_at_the_front_with_one_more_delivery_counted(
    client: ServiceBusClient,
) -> None:
    send(client, ServiceBusMessage("first"), ServiceBusMessage("second"))
    with client.get_queue_receiver("orders") as receiver:
        (first,) = receive_exactly(receiver, 1, WAIT_S)
        receiver.abandon_message(first)
        again = receive_exactly(receiver, 2, WAIT_S)
        for message in again:
            receiver.complete_message(message)
    assert [(str(message), message.delivery_count) for message in again] == [("first", 1), ("second", 0)]


def test_a_deferred_message_is_had_by_its_sequence_number_only(client: ServiceBusClient) -> None:
    send(client, ServiceBusMessage("later"), ServiceBusMessage("now"))
    with client.get_queue_receiver("orders") as receiver:
        later, now = receive_exactly(receiver, 2, WAIT_S)
        receiver.defer_message(later)
        receiver.complete_message(now)
        assert receiver.receive_messages(1, max_wait_time=0.5) == []
        (deferred,) = receiver.receive_deferred_messages(number_of(later))
        assert str(deferred) == "later"
        receiver.complete_message(deferred)
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages(number_of(later))
    assert is_empty(client)


def test_a_dead_lettered_message_is_in_the_dead_letter_queue_with_its_reason(client: ServiceBusClient) -> None:
    send(client, ServiceBusMessage("poison", message_id="m", application_properties={"kept": 1}))
    with client.get_queue_receiver("orders") as receiver:
        (message,) = receive_exactly(receiver, 1, WAIT_S)
        receiver.dead_letter_message(message, reason="bad", error_description="cannot be read")
    with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        (dead,) = receive_exactly(receiver, 1, WAIT_S)
        receiver.complete_message(dead)
    assert (str(dead), dead.message_id) == ("poison", "m")
    assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("bad", "cannot be read")
    assert dead.dead_letter_source == "orders"
    assert dead.application_properties is not None
    assert dead.application_properties[b"kept"] == 1
    assert is_empty(client)
    assert is_empty(client, "orders/$deadletterqueue")


def test_a_message_that_fails_too_often_is_dead_lettered(namespace: LocalNamespace, client: ServiceBusClient) -> None:
    namespace.create_queue("twice", max_delivery_count=2)
    send(client, ServiceBusMessage("poison"), queue="twice")
    with client.get_queue_receiver("twice") as receiver:
        for _ in range(2):
            receiver.abandon_message(receive_exactly(receiver, 1, WAIT_S)[0])
    with client.get_queue_receiver("twice", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        (dead,) = receive_exactly(receiver, 1, WAIT_S)
        receiver.complete_message(dead)
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"


def test_receive_and_delete_removes_what_it_receives(client: ServiceBusClient) -> None:
    send(client, [ServiceBusMessage("1"), ServiceBusMessage("2")])
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_queue_receiver("orders", receive_mode=mode) as receiver:
        assert [str(message) for message in receive_exactly(receiver, 2, WAIT_S)] == ["1", "2"]
    assert is_empty(client)


def test_messages_a_closing_receiver_never_looked_at_are_not_counted_as_failed(client: ServiceBusClient) -> None:
    send(client, [ServiceBusMessage(str(number)) for number in range(10)])
    with client.get_queue_receiver("orders", prefetch_count=10) as receiver:
        receiver.complete_message(receive_exactly(receiver, 1, WAIT_S)[0])
    with client.get_queue_receiver("orders") as receiver:
        rest = receive_exactly(receiver, 9, WAIT_S)
        for message in rest:
            receiver.complete_message(message)
    assert sorted(int(str(message)) for message in rest) == list(range(1, 10))
    assert {message.delivery_count for message in rest} == {0}


def test_a_message_can_be_settled_from_another_receiver_by_its_lock(client: ServiceBusClient) -> None:
    send(client, ServiceBusMessage("one"))
    with client.get_queue_receiver("orders") as first:
        (message,) = receive_exactly(first, 1, WAIT_S)
    with client.get_queue_receiver("orders") as second:
        second.complete_message(message)
    assert is_empty(client)


def test_settling_with_a_lock_that_ended_is_refused(client: ServiceBusClient) -> None:
    send(client, ServiceBusMessage("one"))
    with client.get_queue_receiver("orders") as first:
        (message,) = receive_exactly(first, 1, WAIT_S)
    with client.get_queue_receiver("orders") as second:
        second.complete_message(message)
    message._settled = False
    with client.get_queue_receiver("orders") as third, pytest.raises(MessageLockLostError):
        third.complete_message(message)


def test_a_renewed_lock_ends_later(client: ServiceBusClient) -> None:
    send(client, ServiceBusMessage("one"))
    with client.get_queue_receiver("orders") as receiver:
        (message,) = receive_exactly(receiver, 1, WAIT_S)
        before = message.locked_until_utc
        after = receiver.renew_message_lock(message)
        receiver.complete_message(message)
    assert before is not None
    assert after >= before
    assert after.timestamp() == pytest.approx(datetime.now(UTC).timestamp() + 60, abs=30)


def test_a_scheduled_message_appears_at_its_time_and_a_cancelled_one_never(client: ServiceBusClient) -> None:
    due = datetime.now(UTC) + timedelta(seconds=6)
    with client.get_queue_sender("orders") as sender:
        sender.schedule_messages(ServiceBusMessage("scheduled"), due)
        cancelled = sender.schedule_messages(ServiceBusMessage("cancelled"), due)
        sender.send_messages(ServiceBusMessage("by property", scheduled_enqueue_time_utc=due))
        sender.cancel_scheduled_messages(cancelled)
        with pytest.raises(MessageNotFoundError):
            sender.cancel_scheduled_messages(cancelled)
    with client.get_queue_receiver("orders") as receiver:
        peeked = receiver.peek_messages(5, sequence_number=1)
        assert [(str(message), message.state.name) for message in peeked] == [
            ("scheduled", "SCHEDULED"),
            ("by property", "SCHEDULED"),
        ]
        got = receive_exactly(receiver, 2, WAIT_S)
        for message in got:
            receiver.complete_message(message)
    assert datetime.now(UTC) >= due
    assert [str(message) for message in got] == ["scheduled", "by property"]
    for message in got:
        assert message.enqueued_time_utc is not None
        late = message.enqueued_time_utc - due + timedelta(milliseconds=1)  # the wire knows no smaller parts
        assert timedelta(0) <= late < timedelta(seconds=30)


def test_a_message_whose_time_to_live_is_over_is_not_delivered(
    namespace: LocalNamespace, client: ServiceBusClient
) -> None:
    namespace.create_queue("strict", dead_letter_on_expiration=True)
    send(client, ServiceBusMessage("brief", time_to_live=timedelta(seconds=1)), queue="strict")
    with client.get_queue_receiver("strict", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        (dead,) = receive_exactly(receiver, 1, WAIT_S)
        receiver.complete_message(dead)
    assert dead.dead_letter_reason == "TTLExpiredException"
    assert is_empty(client, "strict")


def test_peek_shows_messages_without_taking_them(client: ServiceBusClient) -> None:
    send(client, [ServiceBusMessage(str(number)) for number in range(3)])
    with client.get_queue_receiver("orders") as receiver:
        for _ in range(2):
            peeked = receiver.peek_messages(10, sequence_number=1)
            assert [str(message) for message in peeked] == ["0", "1", "2"]
        assert len(receive_exactly(receiver, 3, WAIT_S)) == 3


def test_a_message_larger_than_many_frames_arrives_whole(client: ServiceBusClient) -> None:
    body = bytes(range(256)) * 1000
    send(client, ServiceBusMessage(body))
    with client.get_queue_receiver("orders") as receiver:
        (message,) = receive_exactly(receiver, 1, WAIT_S)
        receiver.complete_message(message)
    assert b"".join(message.body) == body


def test_a_namespace_takes_messages_up_to_the_limit_it_was_given() -> None:
    body = bytes(3_000_000)
    with (
        LocalNamespace(queues=["orders"], limits={"message_bytes_max": 4_000_000}) as namespace,
        ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client,
    ):
        send(client, ServiceBusMessage(body))
        with client.get_queue_receiver("orders") as receiver:
            (message,) = receive_exactly(receiver, 1, WAIT_S)
        with pytest.raises(MessageSizeExceededError, match="at most 4000000"):
            send(client, ServiceBusMessage(bytes(4_000_001)))
    assert b"".join(message.body) == body


@pytest.mark.parametrize("size", [262_144, 300 * 1024])
def test_a_message_over_the_limit_is_refused_and_the_sender_goes_on(client: ServiceBusClient, size: int) -> None:
    with client.get_queue_sender("orders") as sender:
        with pytest.raises(MessageSizeExceededError):
            sender.send_messages(ServiceBusMessage(b"x" * size))
        sender.send_messages(ServiceBusMessage("small"))
    with client.get_queue_receiver("orders") as receiver:
        (message,) = receive_exactly(receiver, 1, WAIT_S)
        assert str(message) == "small"


def test_a_full_queue_refuses_and_takes_again_when_there_is_room(
    namespace: LocalNamespace, client: ServiceBusClient
) -> None:
    namespace.create_queue("small", max_size_mb=1)
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_queue_sender("small") as sender:
        for _ in range(4):
            sender.send_messages(ServiceBusMessage(b"x" * 250_000))
        with pytest.raises(ServiceBusQuotaExceededError):
            sender.send_messages(ServiceBusMessage(b"x" * 250_000))
        with client.get_queue_receiver("small", receive_mode=mode) as receiver:
            receive_exactly(receiver, 4, WAIT_S)
        sender.send_messages(ServiceBusMessage(b"x" * 250_000))


def test_the_largest_message_with_the_most_that_can_be_written_on_it_is_received_and_dead_lettered(
    namespace: LocalNamespace, client: ServiceBusClient
) -> None:
    properties = 2 * 31_000 + 100
    body, text = b"x" * (262_144 - properties - 200), "\U0001f600" * 4_096
    send(client, ServiceBusMessage(body))
    root = ConnectionString.parse(namespace.connection_string)
    with (
        client.get_queue_receiver("orders") as receiver,
        client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead_letters,
        EngineClient(namespace.port, root.key_name, root.key) as listener,
    ):
        for name in ("a", "b", "c"):
            (message,) = receive_exactly(receiver, 1, WAIT_S)
            order = {
                "disposition-status": "abandoned",
                "lock-tokens": [message.lock_token],
                "properties-to-modify": {name: "y" * 31_000},
            }
            said = listener.ask("orders/$management", {"operation": "com.microsoft:update-disposition"}, order)
            assert said["statusCode"] == (400 if name == "c" else 200), said
        receiver.dead_letter_message(message, reason=text, error_description=text)
        (dead,) = receive_exactly(dead_letters, 1, WAIT_S)
        dead_letters.complete_message(dead)
    assert b"".join(dead.body) == body
    assert dead.dead_letter_reason == dead.dead_letter_error_description == text


def test_a_missing_queue_is_reported_as_such(client: ServiceBusClient) -> None:
    with pytest.raises(MessagingEntityNotFoundError), client.get_queue_sender("typo") as sender:
        sender.send_messages(ServiceBusMessage("x"))
    with pytest.raises(MessagingEntityNotFoundError), client.get_queue_receiver("typo") as receiver:
        receiver.receive_messages(1, max_wait_time=1)


def test_a_wrong_key_is_refused(namespace: LocalNamespace) -> None:
    namespace.create_queue("orders")
    wrong = namespace.connection_string.replace("SharedAccessKey=", "SharedAccessKey=x")
    with (
        ServiceBusClient.from_connection_string(wrong, retry_total=0) as client,
        pytest.raises(ServiceBusAuthenticationError),
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))


def test_a_session_receiver_on_a_queue_without_sessions_is_refused(client: ServiceBusClient) -> None:
    with pytest.raises(ServiceBusError), client.get_queue_receiver("orders", session_id="s") as receiver:
        receiver.receive_messages(1, max_wait_time=1)


def test_a_dead_letter_queue_cannot_be_sent_to(client: ServiceBusClient) -> None:
    with (
        pytest.raises(ServiceBusError, match="dead-letter queue"),
        client.get_queue_sender("orders/$DeadLetterQueue") as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))


def test_names_of_queues_are_found_in_any_case_and_may_have_slashes(
    namespace: LocalNamespace, client: ServiceBusClient
) -> None:
    namespace.create_queue("contoso/x-servicebus-transfer/0")
    send(client, ServiceBusMessage("x"), queue="Contoso/X-ServiceBus-Transfer/0")
    with client.get_queue_receiver("contoso/x-servicebus-transfer/0") as receiver:
        (message,) = receive_exactly(receiver, 1, WAIT_S)
        receiver.complete_message(message)


def test_several_receivers_share_a_queue_without_getting_a_message_twice(client: ServiceBusClient) -> None:
    send(client, [ServiceBusMessage(str(number)) for number in range(40)])
    with client.get_queue_receiver("orders") as one, client.get_queue_receiver("orders") as other:
        got = receive_exactly(one, 20, WAIT_S) + receive_exactly(other, 20, WAIT_S)
        for message in got[:20]:
            one.complete_message(message)
        for message in got[20:]:
            other.complete_message(message)
    assert sorted(int(str(message)) for message in got) == list(range(40))


def test_messages_survive_a_restart_with_their_numbers_and_counts(
    namespace: LocalNamespace, client: ServiceBusClient
) -> None:
    send(client, [ServiceBusMessage(str(number)) for number in range(5)])
    with client.get_queue_receiver("orders") as receiver:
        done, failed, deferred = receive_exactly(receiver, 3, WAIT_S)
        receiver.complete_message(done)
        receiver.abandon_message(failed)
        receiver.defer_message(deferred)
    namespace.restart()
    with client.get_queue_receiver("orders") as receiver:
        got = receive_exactly(receiver, 3, WAIT_S)
        (kept,) = receiver.receive_deferred_messages(number_of(deferred))
    assert [(str(message), message.delivery_count) for message in got] == [("1", 1), ("3", 0), ("4", 0)]
    assert [message.sequence_number for message in got] == [2, 4, 5]
    assert str(kept) == "2"
