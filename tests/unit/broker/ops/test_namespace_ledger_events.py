"""What a namespace tells its ledger: what became of each message, once it is durable and never before."""

from __future__ import annotations

from pathlib import Path

import pytest
from ledger_disks import RefusingDisk
from namespace_harness import DEAD_LETTERS, QUEUE, START_MS, NamespaceHarness, arrival

from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.broker.core.commands import (
    CancelScheduled,
    Command,
    CreateQueue,
    CreateSubscription,
    CreateTopic,
    DeleteEntity,
    Grant,
    OpenReceiver,
    SendMessages,
)
from twinbus.broker.core.message_events import MessageEventKind, MessageEvents
from twinbus.broker.entities.settings import QueueSettings, TopicSettings
from twinbus.broker.entities.topics.rules import FalseFilter, Rule
from twinbus.broker.message import PING_CONTENT_TYPE, Arrival, read_arrival
from twinbus.broker.operations import Abandon, Complete, DeadLetter, Defer, Done, ReceiveMode
from twinbus.broker.ops.ledger_events import MESSAGES_PER_EVENT_MAX, MessageEventRecorder
from twinbus.ledger import Event, Kind, Ledger, LedgerOptions, LedgerReader, verify


class Recorded(NamespaceHarness):
    """A harness with a ledger that is a list."""

    def __init__(self, settings: QueueSettings | None = None) -> None:
        self.events: list[Event] = []
        self.recorder = MessageEventRecorder(self, "contoso")
        super().__init__(settings, on_events=self.recorder.record)

    def record(self, event: Event, /) -> None:
        self.events.append(event)

    def make(self, *commands: Command[object]) -> None:
        for command in commands:
            assert isinstance(self.ask(command), Done)

    def give(self, path: str, *sent: Arrival) -> None:
        self.make(SendMessages(path, sent))

    def recorded(self, kind: Kind) -> list[tuple[str, tuple[str, ...]]]:
        """Where, and to which messages."""
        return [(event.entity, event.message_ids) for event in self.events if event.kind == kind]

    def only(self, kind: Kind) -> Event:
        (event,) = [event for event in self.events if event.kind == kind]
        return event


@pytest.fixture
def harness() -> Recorded:
    return Recorded()


def in_session(name: str, session_id: str) -> Arrival:
    properties = {PropertyField.MESSAGE_ID: name, PropertyField.GROUP_ID: session_id}
    return read_arrival(sections.encode_message(properties=properties, data=b"body"), lambda: "unused")


# --- when ---


def test_nothing_is_recorded_before_it_is_durable(harness: Recorded) -> None:
    harness.do(SendMessages(QUEUE, (arrival("a"),)))
    assert harness.events == []
    harness.commit()
    assert harness.recorded(Kind.STORED) == [(QUEUE, ("a",))]


def test_what_could_not_be_written_is_never_recorded(harness: Recorded) -> None:
    harness.do(SendMessages(QUEUE, (arrival("a"),)))
    harness.store.fail("no space left")
    harness.gate.recover()
    harness.send("b")
    assert harness.recorded(Kind.STORED) == [(QUEUE, ("b",))]


def test_a_machine_that_nobody_listens_to_collects_no_events() -> None:
    silent = NamespaceHarness()
    assert silent.gate.machine.apply(SendMessages(QUEUE, (arrival("a"),)), START_MS).events is None


# --- what ---


def test_a_stored_message_has_its_size_session_and_number(harness: Recorded) -> None:
    first, second = arrival("a"), in_session("b", "s")
    harness.give(QUEUE, first, second)
    assert harness.only(Kind.STORED) == Event(
        Kind.STORED,
        QUEUE,
        "contoso",
        message_ids=("a", "b"),
        sizes=(len(first.payload), len(second.payload)),
        session_ids=("", "s"),
        sequence_numbers=(1, 2),
    )


def test_a_ping_is_no_message(harness: Recorded) -> None:
    ping = sections.encode_message(properties={PropertyField.CONTENT_TYPE: PING_CONTENT_TYPE}, data=b"")
    harness.give(QUEUE, read_arrival(ping, lambda: "ping"))
    assert harness.events == []


def test_a_message_is_delivered_when_it_is_completed_and_not_when_it_is_locked(harness: Recorded) -> None:
    harness.send("a", "b")
    lent = harness.receive(2)
    assert harness.recorded(Kind.DELIVERED) == []
    harness.settle(Complete(), *lent)
    assert harness.recorded(Kind.DELIVERED) == [(QUEUE, ("a", "b"))]
    assert harness.only(Kind.DELIVERED).outcome == "completed"


def test_a_message_that_is_deleted_when_received_is_delivered_once_that_is_durable(harness: Recorded) -> None:
    harness.send("a")
    harness.open(1, credit=1, deletes=True)
    assert harness.recorded(Kind.DELIVERED) == []
    harness.commit()
    assert harness.only(Kind.DELIVERED).outcome == "received-and-deleted"


def test_a_deferred_message_that_is_deleted_when_received_is_delivered(harness: Recorded) -> None:
    (number,) = harness.send("a")
    harness.settle(Defer(), *harness.receive())
    harness.receive_deferred(number, deletes=True)
    assert harness.recorded(Kind.DELIVERED) == [(QUEUE, ("a",))]


def test_a_dead_letter_says_whose_decision_it_was_and_why() -> None:
    harness = Recorded(QueueSettings(max_delivery_count=1, dead_letter_on_expiration=True))
    harness.send("asked", arrival("tried"), arrival("old", ttl_ms=1_000))
    asked, tried = harness.receive(2)
    harness.settle(DeadLetter({"DeadLetterReason": "Unreadable"}), asked)
    harness.settle(Abandon(), tried)
    harness.pass_time(2_000)
    buried = [event for event in harness.events if event.kind == Kind.DEAD_LETTERED]
    assert [(event.message_ids[0], event.outcome, event.reason) for event in buried] == [
        ("asked", "by-receiver", "Unreadable"),
        ("tried", "by-namespace", "MaxDeliveryCountExceeded"),
        ("old", "by-namespace", "TTLExpiredException"),
    ]
    assert {event.entity for event in buried} == {QUEUE}


def test_a_dead_letter_that_is_received_is_delivered_from_where_it_lay(harness: Recorded) -> None:
    harness.send("a")
    harness.settle(DeadLetter(), *harness.receive())
    harness.settle(Complete(), *harness.receive(path=DEAD_LETTERS), path=DEAD_LETTERS)
    assert harness.recorded(Kind.DELIVERED) == [(DEAD_LETTERS, ("a",))]


def test_a_message_that_is_too_old_has_expired(harness: Recorded) -> None:
    harness.give(QUEUE, arrival("a", ttl_ms=1_000))
    harness.pass_time(2_000)
    assert harness.recorded(Kind.EXPIRED) == [(QUEUE, ("a",))]


def test_a_duplicate_is_reported_and_not_stored() -> None:
    harness = Recorded(QueueSettings(requires_duplicate_detection=True))
    harness.send("a")
    harness.send("a", "b")
    assert harness.recorded(Kind.STORED) == [(QUEUE, ("a",)), (QUEUE, ("b",))]
    assert harness.recorded(Kind.DUPLICATE) == [(QUEUE, ("a",))]


def test_a_scheduled_message_is_stored_once_and_may_be_cancelled(harness: Recorded) -> None:
    numbers = harness.send(arrival("a", due_at_ms=START_MS + 5_000), arrival("b", due_at_ms=START_MS + 5_000))
    harness.make(CancelScheduled(QUEUE, numbers[:1]))
    harness.pass_time(6_000)
    assert harness.recorded(Kind.STORED) == [(QUEUE, ("a", "b"))]
    assert harness.recorded(Kind.UNSCHEDULED) == [(QUEUE, ("a",))]


def test_of_a_scheduled_message_it_is_reported_when_it_is_due(harness: Recorded) -> None:
    soon, later = START_MS + 5_000, START_MS + 6_000
    harness.give(
        QUEUE, arrival("now"), arrival("a", due_at_ms=soon), arrival("c", due_at_ms=later), arrival("b", due_at_ms=soon)
    )
    due = {event.until_ms: event.message_ids for event in harness.events if event.kind == Kind.STORED}
    assert due == {0: ("now",), soon: ("a", "b"), later: ("c",)}


def test_an_entity_that_is_deleted_takes_its_messages_along(harness: Recorded) -> None:
    harness.send("a", "b", "c")
    harness.settle(DeadLetter(), *harness.receive())
    harness.make(DeleteEntity(QUEUE))
    removed = {event.entity: event.count for event in harness.events if event.kind == Kind.REMOVED}
    assert removed == {QUEUE: 2, DEAD_LETTERS: 1}


def test_a_grant_that_finds_nothing_is_a_long_poll(harness: Recorded) -> None:
    harness.send("a")
    harness.do(OpenReceiver(1, QUEUE, ReceiveMode.PEEK_LOCK))
    harness.do(Grant(1, 1))
    assert harness.recorded(Kind.LONG_POLL) == []
    harness.do(Grant(1, 2))
    assert harness.only(Kind.LONG_POLL).count == 1


def test_a_wait_at_a_backlog_queue_is_recorded_by_the_client_that_waits(harness: Recorded) -> None:
    path = "contoso/x-servicebus-transfer/3"
    harness.make(CreateQueue(path, QueueSettings()))
    harness.open(1, credit=1, path=path)
    assert harness.events == []


# --- topics and chains ---


def test_a_topic_stores_a_message_once_and_every_subscription_gets_a_copy(harness: Recorded) -> None:
    harness.make(CreateTopic("news", TopicSettings()))
    harness.make(*(CreateSubscription("news", name, QueueSettings()) for name in ("one", "two")))
    harness.give("news", arrival("a"), arrival("b"))
    assert harness.recorded(Kind.STORED) == [("news", ("a", "b"))]
    assert harness.recorded(Kind.COPIED) == [
        ("news/Subscriptions/one", ("a", "b")),
        ("news/Subscriptions/two", ("a", "b")),
    ]


def test_a_message_that_no_subscription_wants_is_unclaimed(harness: Recorded) -> None:
    nothing = Rule("nothing", FalseFilter())
    harness.make(CreateTopic("news", TopicSettings()), CreateSubscription("news", "one", QueueSettings(), nothing))
    harness.give("news", arrival("a"))
    assert harness.recorded(Kind.UNCLAIMED) == [("news", ("a",))]
    assert harness.recorded(Kind.COPIED) == []


def test_a_copy_that_lacks_its_session_is_a_dead_letter_of_its_subscription(harness: Recorded) -> None:
    harness.make(CreateTopic("news", TopicSettings()))
    harness.make(CreateSubscription("news", "one", QueueSettings(requires_session=True)))
    harness.give("news", arrival("a"))
    buried = harness.only(Kind.DEAD_LETTERED)
    assert (buried.entity, buried.reason) == ("news/Subscriptions/one", "Session ID is null.")


def test_a_forwarded_message_is_stored_where_it_was_sent_and_where_it_is(harness: Recorded) -> None:
    harness.make(CreateQueue("first", QueueSettings(forward_to=QUEUE)))
    harness.give("first", arrival("a"))
    assert harness.recorded(Kind.STORED) == [("first", ("a",)), (QUEUE, ("a",))]
    assert harness.recorded(Kind.FORWARDED) == [("first", ("a",))]


def test_a_message_that_cannot_be_forwarded_is_a_dead_letter_of_another_kind(harness: Recorded) -> None:
    harness.make(CreateQueue("first", QueueSettings(forward_to=QUEUE)), DeleteEntity(QUEUE))
    harness.give("first", arrival("a"))
    buried = harness.only(Kind.DEAD_LETTERED)
    assert (buried.entity, buried.outcome, buried.reason) == ("first", "not-forwarded", "MessagingEntityNotFound")


# --- where, and how much ---


def test_a_backlog_queue_is_no_entity_that_messages_are_for(harness: Recorded) -> None:
    path = "contoso/x-servicebus-transfer/3"
    harness.make(CreateQueue(path, QueueSettings()))
    harness.give(path, arrival("a"))
    assert (harness.only(Kind.STORED).entity, harness.only(Kind.STORED).queue) == ("", path)


def test_a_restart_begins_with_what_is_there(harness: Recorded) -> None:
    harness.send("a", "b")
    harness.restart()
    harness.recorder.record_inventory(harness.gate.machine.registry.all())
    inventory = harness.only(Kind.INVENTORY)
    assert (inventory.entity, inventory.count) == (QUEUE, 2)
    assert inventory.bytes == harness.queue.payload_bytes


@pytest.mark.parametrize(("count", "length"), [(MESSAGES_PER_EVENT_MAX + 1, 1), (50, 100_000)])
def test_what_is_too_much_for_a_line_becomes_several(harness: Recorded, count: int, length: int) -> None:
    events = MessageEvents()
    for number in range(count):
        events.of(MessageEventKind.STORED, QUEUE).add(f"{number:0{length}}", "", 10, number)
    harness.recorder.record(events)
    assert len(harness.events) > 1
    assert [int(each[-9:]) for event in harness.events for each in event.message_ids] == list(range(count))
    assert [each for event in harness.events for each in event.sequence_numbers] == list(range(count))


def test_a_full_disk_leaves_a_gap_and_nothing_is_refused(tmp_path: Path) -> None:
    disk = RefusingDisk(room=0)
    options = LedgerOptions(directory=tmp_path, memory_bytes_max=1 << 16, write_interval_s=0.01, free_bytes_min=0)
    ledger = Ledger(options, disk=disk)
    harness = NamespaceHarness(on_events=MessageEventRecorder(ledger, "contoso").record)
    for number in range(500):
        harness.send(f"m{number}")
    disk.room = None
    assert ledger.close()
    assert len(harness.peek(most=250)) == 250
    kinds = {record.kind for record in LedgerReader(tmp_path).records()}
    assert Kind.GAP in kinds
    assert not verify(tmp_path).is_complete
