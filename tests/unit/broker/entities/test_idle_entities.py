"""Entities that remove themselves when nobody uses them, and partitioned ones."""

from __future__ import annotations

import pytest
from namespace_harness import DEAD_LETTERS, QUEUE, START_MS, NamespaceHarness, arrival, names

from twinbus.amqp.codec.types import Symbol
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.broker.core import registry
from twinbus.broker.core.commands import (
    AcceptSession,
    CloseReceiver,
    CreateQueue,
    CreateRule,
    CreateSubscription,
    CreateTopic,
    GetEntity,
    PeekMessages,
    RenewMessageLocks,
    SendMessages,
    UpdateQueue,
    UpdateRule,
)
from twinbus.broker.core.replies import LocksRenewed, Reply
from twinbus.broker.entities.settings import QueueSettings, TopicSettings
from twinbus.broker.entities.topics.rules import Rule
from twinbus.broker.message import HEADER_BYTES_MAX, PROPERTY_BYTES_MAX, read_arrival
from twinbus.broker.operations import Done, ReceiveMode, Refused
from twinbus.errors import ArgumentError, DecodeError, EntityNotFound, MessageTooLarge, NotAllowed, QuotaExceeded

IDLE_MS = 300_000


@pytest.fixture
def harness() -> NamespaceHarness:
    return NamespaceHarness(QueueSettings(auto_delete_on_idle_ms=IDLE_MS))


def exists(harness: NamespaceHarness, path: str = QUEUE) -> bool:
    """Looking at the settings of an entity is no use of it."""
    return not isinstance(harness.ask(GetEntity(path)), Refused)


def test_what_nobody_uses_is_removed_with_everything_in_it(harness: NamespaceHarness) -> None:
    harness.send("a")
    harness.pass_time(IDLE_MS - 1)
    assert exists(harness)
    harness.pass_time(1)
    assert not exists(harness)
    assert isinstance(harness.refusal(PeekMessages(DEAD_LETTERS, 0, 1)), EntityNotFound)
    harness.restart()
    assert harness.store.load().entities == ()


@pytest.mark.parametrize("use", ["send", "peek", "update", "receive"])
def test_every_use_begins_the_time_anew(harness: NamespaceHarness, use: str) -> None:
    harness.send("a")
    harness.pass_time(IDLE_MS - 1)
    match use:
        case "send":
            harness.send("b")
        case "peek":
            harness.peek()
        case "update":
            harness.ask(UpdateQueue(QUEUE, QueueSettings(auto_delete_on_idle_ms=IDLE_MS)))
        case "receive":
            harness.receive()
            harness.do(CloseReceiver(1_001))
    harness.pass_time(IDLE_MS - 1)
    assert exists(harness)


def test_a_receiver_that_waits_is_use_enough(harness: NamespaceHarness) -> None:
    harness.open(1, credit=1)
    harness.pass_time(3 * IDLE_MS)
    assert exists(harness)
    harness.do(CloseReceiver(1))
    harness.pass_time(IDLE_MS)
    assert not exists(harness)


def test_the_time_begins_when_the_last_receiver_goes(harness: NamespaceHarness) -> None:
    harness.open(1, credit=1)
    harness.pass_time(IDLE_MS)  # it is looked at, and in use
    harness.pass_time(IDLE_MS - 1)
    harness.do(CloseReceiver(1))
    harness.pass_time(IDLE_MS - 1)
    assert exists(harness)
    harness.pass_time(1)
    assert not exists(harness)


def test_the_time_begins_when_a_session_is_lost() -> None:
    harness = NamespaceHarness(QueueSettings(auto_delete_on_idle_ms=IDLE_MS, requires_session=True, lock_ms=IDLE_MS))
    harness.pass_time(1)
    harness.do(AcceptSession(1, QUEUE, ReceiveMode.PEEK_LOCK, "s", 0))
    harness.pass_time(IDLE_MS)
    harness.pass_time(IDLE_MS - 1)
    assert exists(harness)
    harness.pass_time(1)
    assert not exists(harness)


def test_a_topic_is_in_use_until_the_last_receiver_of_a_subscription_goes(harness: NamespaceHarness) -> None:
    harness.ask(CreateTopic("events", TopicSettings(auto_delete_on_idle_ms=IDLE_MS)))
    harness.ask(CreateSubscription("events", "s", QueueSettings()))
    harness.open(1, credit=1, path="events/subscriptions/s")
    harness.pass_time(IDLE_MS)
    harness.pass_time(IDLE_MS - 1)
    harness.do(CloseReceiver(1))
    harness.pass_time(IDLE_MS - 1)
    assert exists(harness, "events")
    harness.pass_time(1)
    assert not exists(harness, "events")


@pytest.mark.parametrize("dead_letter_queues", [DEAD_LETTERS, "orders/$transfer/$deadletterqueue"])
def test_who_looks_after_dead_letters_keeps_their_queue(harness: NamespaceHarness, dead_letter_queues: str) -> None:
    harness.pass_time(IDLE_MS - 1)
    harness.peek(path=dead_letter_queues)
    harness.pass_time(IDLE_MS - 1)
    harness.open(1, credit=1, path=dead_letter_queues)
    harness.pass_time(3 * IDLE_MS)
    assert exists(harness)
    harness.do(CloseReceiver(1))
    harness.pass_time(IDLE_MS)
    assert not exists(harness)


def test_a_scheduled_message_keeps_its_queue(harness: NamespaceHarness) -> None:
    harness.send(arrival("later", due_at_ms=START_MS + 2 * IDLE_MS))
    harness.pass_time(2 * IDLE_MS)
    assert names(harness.peek()) == ["later"]


def test_the_time_begins_when_a_scheduled_message_is_due(harness: NamespaceHarness) -> None:
    harness.send(arrival("later", due_at_ms=START_MS + 2 * IDLE_MS - 1))
    harness.pass_time(IDLE_MS)
    harness.pass_time(IDLE_MS - 1)
    harness.pass_time(IDLE_MS - 1)
    assert exists(harness)
    harness.pass_time(1)
    assert not exists(harness)


def test_whoever_keeps_a_lock_alive_uses_the_queue(harness: NamespaceHarness) -> None:
    harness.ask(UpdateQueue(QUEUE, QueueSettings(auto_delete_on_idle_ms=IDLE_MS, lock_ms=IDLE_MS)))
    harness.send("a")
    (lent,) = harness.receive()
    harness.do(CloseReceiver(harness.last_receiver))
    harness.pass_time(IDLE_MS - 1)
    assert isinstance(harness.ask(RenewMessageLocks(QUEUE, (lent.token or b"",))), LocksRenewed)
    harness.pass_time(IDLE_MS - 1)
    assert exists(harness)


def test_after_a_restart_the_time_runs_from_the_beginning(harness: NamespaceHarness) -> None:
    harness.send("a")
    harness.pass_time(IDLE_MS - 1)
    harness.restart()
    harness.pass_time(0)
    harness.pass_time(IDLE_MS - 1)
    assert exists(harness)
    harness.pass_time(1)
    assert not exists(harness)


def test_a_topic_is_used_when_its_subscriptions_are_and_goes_with_them(harness: NamespaceHarness) -> None:
    harness.ask(CreateTopic("events", TopicSettings(auto_delete_on_idle_ms=IDLE_MS)))
    harness.ask(CreateSubscription("events", "s", QueueSettings()))
    harness.pass_time(IDLE_MS - 1)
    harness.peek(path="events/subscriptions/s")
    harness.pass_time(IDLE_MS - 1)
    assert exists(harness, "events")
    harness.pass_time(1)
    assert not exists(harness, "events")
    assert not exists(harness, "events/subscriptions/s")


def test_a_new_or_changed_rule_is_a_use_of_its_subscription(harness: NamespaceHarness) -> None:
    harness.ask(CreateTopic("events", TopicSettings()))
    harness.ask(CreateSubscription("events", "s", QueueSettings(auto_delete_on_idle_ms=IDLE_MS)))
    for command in (CreateRule, UpdateRule):
        harness.pass_time(IDLE_MS - 1)
        assert isinstance(harness.ask(command("events/subscriptions/s", Rule("r"))), Done)
    harness.pass_time(IDLE_MS - 1)
    assert exists(harness, "events/subscriptions/s")


def test_a_subscription_may_go_alone(harness: NamespaceHarness) -> None:
    harness.ask(CreateTopic("events", TopicSettings()))
    harness.ask(CreateSubscription("events", "s", QueueSettings(auto_delete_on_idle_ms=IDLE_MS)))
    harness.pass_time(1)
    harness.ask(SendMessages("events", (arrival("a"),)))
    harness.pass_time(IDLE_MS)
    assert exists(harness, "events")
    assert not exists(harness, "events/subscriptions/s")
    assert isinstance(harness.ask(SendMessages("events", (arrival("b"),))), Done)


# --- partitioned ---


def sent(harness: NamespaceHarness, key: str | None, session: str | None) -> Reply:
    return harness.ask(SendMessages("parts", (arrival("a")._replace(partition_key=key, session_id=session),)))


def test_a_message_belongs_to_one_partition(harness: NamespaceHarness) -> None:
    harness.ask(CreateQueue("parts", QueueSettings(partitioned=True)))
    assert isinstance(sent(harness, "a", "a"), Done)
    assert isinstance(sent(harness, "a", None), Done)
    refusal = sent(harness, "a", "b")
    assert isinstance(refusal, Refused)
    assert isinstance(refusal.error, NotAllowed)
    harness.ask(CreateTopic("events", TopicSettings(partitioned=True)))
    harness.ask(CreateSubscription("events", "s", QueueSettings()))
    known = harness.gate.machine.registry
    assert [known.is_partitioned(path) for path in ("Parts", "events", "events/subscriptions/s", QUEUE, "x")] == [
        True, True, True, False, False,
    ]  # fmt: skip


def test_messages_of_a_partition_keep_their_order(harness: NamespaceHarness) -> None:
    harness.ask(CreateQueue("parts", QueueSettings(partitioned=True)))
    for number in range(6):
        harness.ask(SendMessages("parts", (arrival(str(number))._replace(partition_key="ab"[number % 2]),)))
    assert names(harness.receive(6, path="parts")) == ["0", "1", "2", "3", "4", "5"]


def test_there_is_a_bound_to_partitioned_entities(harness: NamespaceHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "PARTITIONED_MAX", 2)
    assert isinstance(harness.ask(CreateQueue("parts", QueueSettings(partitioned=True))), Done)
    assert isinstance(harness.ask(CreateTopic("events", TopicSettings(partitioned=True))), Done)
    assert isinstance(harness.refusal(CreateTopic("more", TopicSettings(partitioned=True))), QuotaExceeded)
    assert isinstance(harness.ask(CreateQueue("plain", QueueSettings())), Done)


def test_whether_it_is_partitioned_is_decided_when_it_is_made(harness: NamespaceHarness) -> None:
    assert "cannot be changed" in str(harness.refusal(UpdateQueue(QUEUE, QueueSettings(partitioned=True))))


# --- headers ---


def test_properties_have_a_bound() -> None:
    def encoded(size: int) -> bytes:
        properties = {PropertyField.MESSAGE_ID: "a"}
        return sections.encode_message(properties=properties, application_properties={"x": "y" * size}, data=b"")

    assert read_arrival(encoded(PROPERTY_BYTES_MAX - 10), lambda: "").message_id == "a"
    with pytest.raises(MessageTooLarge, match="the property 'x' has 32773 bytes, at most 32768"):
        read_arrival(encoded(PROPERTY_BYTES_MAX), lambda: "")


def test_all_properties_together_have_a_bound() -> None:
    def encoded(count: int) -> bytes:
        properties = {f"x{number}": "y" * 1000 for number in range(count)}
        return sections.encode_message(
            properties={PropertyField.MESSAGE_ID: "a"}, application_properties=properties, data=b""
        )

    assert read_arrival(encoded(63), lambda: "").message_id == "a"
    with pytest.raises(MessageTooLarge, match=f"at most {HEADER_BYTES_MAX}"):
        read_arrival(encoded(66), lambda: "")


@pytest.mark.parametrize("field", [PropertyField.MESSAGE_ID, PropertyField.GROUP_ID])
def test_ids_have_at_most_128_characters(field: PropertyField) -> None:
    def encoded(length: int) -> bytes:
        return sections.encode_message(properties={PropertyField.MESSAGE_ID: "a", field: "y" * length}, data=b"")

    read_arrival(encoded(128), lambda: "")
    with pytest.raises(ArgumentError, match="at most 128 characters"):
        read_arrival(encoded(129), lambda: "")


def test_a_partition_key_may_be_the_bytes_that_a_client_received() -> None:
    def keyed(key: str | bytes | int) -> bytes:
        return sections.encode_message(annotations={Symbol("x-opt-partition-key"): key}, data=b"")

    assert read_arrival(keyed("north"), lambda: "").partition_key == "north"
    assert read_arrival(keyed(b"north"), lambda: "").partition_key == "north"
    for wrong in (7, b"\xff"):
        with pytest.raises(DecodeError, match="must be a string"):
            read_arrival(keyed(wrong), lambda: "")
