"""What a namespace tells its ledger: what became of each message, once it is durable and never before."""

from __future__ import annotations

from pathlib import Path

import pytest
from ledger_disks import RefusingDisk
from namespace_bench import QUEUE, START_MS, Bench, arrival

from twinbus.amqp import sections
from twinbus.amqp.sections import PropertyField
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
from twinbus.broker.entities.rules import FalseFilter, Rule
from twinbus.broker.entities.settings import QueueSettings, TopicSettings
from twinbus.broker.message import PING_CONTENT_TYPE, Arrival, read_arrival
from twinbus.broker.operations import Abandon, Complete, DeadLetter, Defer, Done, ReceiveMode
from twinbus.broker.ops.ledger_events import MESSAGES_PER_EVENT_MAX, MessageEventRecorder
from twinbus.ledger import Event, Kind, Ledger, LedgerOptions, LedgerReader, verify

GRAVE = f"{QUEUE}/$deadletterqueue"


class Recorded(Bench):
    """A bench with a ledger that is a list."""

    def __init__(self, settings: QueueSettings | None = None) -> None:
        self.events: list[Event] = []
        self.chronicle = MessageEventRecorder(self, "contoso")
        super().__init__(settings, tell=self.chronicle.record)

    def record(self, event: Event, /) -> None:
        self.events.append(event)

    def make(self, *commands: Command[object]) -> None:
        for command in commands:
            assert isinstance(self.ask(command), Done)

    def give(self, path: str, *sent: Arrival) -> None:
        self.make(SendMessages(path, sent))

    def told(self, kind: Kind) -> list[tuple[str, tuple[str, ...]]]:
        """Where, and to which messages."""
        return [(event.entity, event.message_ids) for event in self.events if event.kind == kind]

    def only(self, kind: Kind) -> Event:
        (event,) = [event for event in self.events if event.kind == kind]
        return event


@pytest.fixture
def bench() -> Recorded:
    return Recorded()


def in_session(name: str, session_id: str) -> Arrival:
    properties = {PropertyField.MESSAGE_ID: name, PropertyField.GROUP_ID: session_id}
    return read_arrival(sections.encode_message(properties=properties, data=b"body"), lambda: "unused")


# --- when ---


def test_nothing_is_told_before_it_is_durable(bench: Recorded) -> None:
    bench.do(SendMessages(QUEUE, (arrival("a"),)))
    assert bench.events == []
    bench.commit()
    assert bench.told(Kind.STORED) == [(QUEUE, ("a",))]


def test_what_could_not_be_written_is_never_told(bench: Recorded) -> None:
    bench.do(SendMessages(QUEUE, (arrival("a"),)))
    bench.store.fail("no space left")
    bench.gate.recover()
    bench.send("b")
    assert bench.told(Kind.STORED) == [(QUEUE, ("b",))]


def test_a_machine_that_nobody_listens_to_puts_no_story_together() -> None:
    silent = Bench()
    assert silent.gate.machine.apply(SendMessages(QUEUE, (arrival("a"),)), START_MS).events is None


# --- what ---


def test_a_stored_message_has_its_size_session_and_number(bench: Recorded) -> None:
    first, second = arrival("a"), in_session("b", "s")
    bench.give(QUEUE, first, second)
    assert bench.only(Kind.STORED) == Event(
        Kind.STORED,
        QUEUE,
        "contoso",
        message_ids=("a", "b"),
        sizes=(len(first.payload), len(second.payload)),
        session_ids=("", "s"),
        sequence_numbers=(1, 2),
    )


def test_a_ping_is_no_message(bench: Recorded) -> None:
    ping = sections.encode_message(properties={PropertyField.CONTENT_TYPE: PING_CONTENT_TYPE}, data=b"")
    bench.give(QUEUE, read_arrival(ping, lambda: "ping"))
    assert bench.events == []


def test_a_message_is_delivered_when_it_is_completed_and_not_when_it_is_lent(bench: Recorded) -> None:
    bench.send("a", "b")
    lent = bench.receive(2)
    assert bench.told(Kind.DELIVERED) == []
    bench.settle(Complete(), *lent)
    assert bench.told(Kind.DELIVERED) == [(QUEUE, ("a", "b"))]
    assert bench.only(Kind.DELIVERED).outcome == "completed"


def test_a_message_that_is_deleted_when_received_is_delivered_once_that_is_durable(bench: Recorded) -> None:
    bench.send("a")
    bench.open(1, credit=1, deletes=True)
    assert bench.told(Kind.DELIVERED) == []
    bench.commit()
    assert bench.only(Kind.DELIVERED).outcome == "received-and-deleted"


def test_a_deferred_message_that_is_deleted_when_received_is_delivered(bench: Recorded) -> None:
    (number,) = bench.send("a")
    bench.settle(Defer(), *bench.receive())
    bench.receive_deferred(number, deletes=True)
    assert bench.told(Kind.DELIVERED) == [(QUEUE, ("a",))]


def test_a_dead_letter_says_whose_decision_it_was_and_why() -> None:
    bench = Recorded(QueueSettings(max_delivery_count=1, dead_letter_on_expiration=True))
    bench.send("asked", arrival("tried"), arrival("old", ttl_ms=1_000))
    asked, tried = bench.receive(2)
    bench.settle(DeadLetter({"DeadLetterReason": "Unreadable"}), asked)
    bench.settle(Abandon(), tried)
    bench.pass_time(2_000)
    buried = [event for event in bench.events if event.kind == Kind.DEAD_LETTERED]
    assert [(event.message_ids[0], event.outcome, event.reason) for event in buried] == [
        ("asked", "by-receiver", "Unreadable"),
        ("tried", "by-namespace", "MaxDeliveryCountExceeded"),
        ("old", "by-namespace", "TTLExpiredException"),
    ]
    assert {event.entity for event in buried} == {QUEUE}


def test_a_dead_letter_that_is_received_is_delivered_from_where_it_lay(bench: Recorded) -> None:
    bench.send("a")
    bench.settle(DeadLetter(), *bench.receive())
    bench.settle(Complete(), *bench.receive(path=GRAVE), path=GRAVE)
    assert bench.told(Kind.DELIVERED) == [(GRAVE, ("a",))]


def test_a_message_that_is_too_old_has_expired(bench: Recorded) -> None:
    bench.give(QUEUE, arrival("a", ttl_ms=1_000))
    bench.pass_time(2_000)
    assert bench.told(Kind.EXPIRED) == [(QUEUE, ("a",))]


def test_a_duplicate_is_told_and_not_stored() -> None:
    bench = Recorded(QueueSettings(requires_duplicate_detection=True))
    bench.send("a")
    bench.send("a", "b")
    assert bench.told(Kind.STORED) == [(QUEUE, ("a",)), (QUEUE, ("b",))]
    assert bench.told(Kind.DUPLICATE) == [(QUEUE, ("a",))]


def test_a_scheduled_message_is_stored_once_and_may_be_cancelled(bench: Recorded) -> None:
    numbers = bench.send(arrival("a", due_at_ms=START_MS + 5_000), arrival("b", due_at_ms=START_MS + 5_000))
    bench.make(CancelScheduled(QUEUE, numbers[:1]))
    bench.pass_time(6_000)
    assert bench.told(Kind.STORED) == [(QUEUE, ("a", "b"))]
    assert bench.told(Kind.UNSCHEDULED) == [(QUEUE, ("a",))]


def test_of_a_scheduled_message_it_is_told_when_it_is_due(bench: Recorded) -> None:
    soon, later = START_MS + 5_000, START_MS + 6_000
    bench.give(
        QUEUE, arrival("now"), arrival("a", due_at_ms=soon), arrival("c", due_at_ms=later), arrival("b", due_at_ms=soon)
    )
    due = {event.until_ms: event.message_ids for event in bench.events if event.kind == Kind.STORED}
    assert due == {0: ("now",), soon: ("a", "b"), later: ("c",)}


def test_an_entity_that_is_deleted_takes_its_messages_along(bench: Recorded) -> None:
    bench.send("a", "b", "c")
    bench.settle(DeadLetter(), *bench.receive())
    bench.make(DeleteEntity(QUEUE))
    removed = {event.entity: event.count for event in bench.events if event.kind == Kind.REMOVED}
    assert removed == {QUEUE: 2, GRAVE: 1}


def test_a_grant_that_finds_nothing_is_a_long_poll(bench: Recorded) -> None:
    bench.send("a")
    bench.do(OpenReceiver(1, QUEUE, ReceiveMode.PEEK_LOCK))
    bench.do(Grant(1, 1))
    assert bench.told(Kind.LONG_POLL) == []
    bench.do(Grant(1, 2))
    assert bench.only(Kind.LONG_POLL).count == 1


def test_a_wait_at_a_backlog_queue_is_told_by_whoever_waits(bench: Recorded) -> None:
    path = "contoso/x-servicebus-transfer/3"
    bench.make(CreateQueue(path, QueueSettings()))
    bench.open(1, credit=1, path=path)
    assert bench.events == []


# --- topics and chains ---


def test_a_topic_stores_a_message_once_and_every_subscription_gets_a_copy(bench: Recorded) -> None:
    bench.make(CreateTopic("news", TopicSettings()))
    bench.make(*(CreateSubscription("news", name, QueueSettings()) for name in ("one", "two")))
    bench.give("news", arrival("a"), arrival("b"))
    assert bench.told(Kind.STORED) == [("news", ("a", "b"))]
    assert bench.told(Kind.COPIED) == [
        ("news/Subscriptions/one", ("a", "b")),
        ("news/Subscriptions/two", ("a", "b")),
    ]


def test_a_message_that_no_subscription_wants_is_unclaimed(bench: Recorded) -> None:
    nothing = Rule("nothing", FalseFilter())
    bench.make(CreateTopic("news", TopicSettings()), CreateSubscription("news", "one", QueueSettings(), nothing))
    bench.give("news", arrival("a"))
    assert bench.told(Kind.UNCLAIMED) == [("news", ("a",))]
    assert bench.told(Kind.COPIED) == []


def test_a_copy_that_lacks_its_session_is_a_dead_letter_of_its_subscription(bench: Recorded) -> None:
    bench.make(CreateTopic("news", TopicSettings()))
    bench.make(CreateSubscription("news", "one", QueueSettings(requires_session=True)))
    bench.give("news", arrival("a"))
    buried = bench.only(Kind.DEAD_LETTERED)
    assert (buried.entity, buried.reason) == ("news/Subscriptions/one", "Session ID is null.")


def test_a_forwarded_message_is_stored_where_it_was_sent_and_where_it_is(bench: Recorded) -> None:
    bench.make(CreateQueue("first", QueueSettings(forward_to=QUEUE)))
    bench.give("first", arrival("a"))
    assert bench.told(Kind.STORED) == [("first", ("a",)), (QUEUE, ("a",))]
    assert bench.told(Kind.FORWARDED) == [("first", ("a",))]


def test_a_message_that_cannot_be_forwarded_is_a_dead_letter_of_another_kind(bench: Recorded) -> None:
    bench.make(CreateQueue("first", QueueSettings(forward_to=QUEUE)), DeleteEntity(QUEUE))
    bench.give("first", arrival("a"))
    buried = bench.only(Kind.DEAD_LETTERED)
    assert (buried.entity, buried.outcome, buried.reason) == ("first", "not-forwarded", "MessagingEntityNotFound")


# --- where, and how much ---


def test_a_backlog_queue_is_no_entity_that_messages_are_for(bench: Recorded) -> None:
    path = "contoso/x-servicebus-transfer/3"
    bench.make(CreateQueue(path, QueueSettings()))
    bench.give(path, arrival("a"))
    assert (bench.only(Kind.STORED).entity, bench.only(Kind.STORED).queue) == ("", path)


def test_a_restart_begins_with_what_is_there(bench: Recorded) -> None:
    bench.send("a", "b")
    bench.restart()
    bench.chronicle.record_inventory(bench.gate.machine.registry.all())
    inventory = bench.only(Kind.INVENTORY)
    assert (inventory.entity, inventory.count) == (QUEUE, 2)
    assert inventory.bytes == bench.queue.payload_bytes


@pytest.mark.parametrize(("count", "length"), [(MESSAGES_PER_EVENT_MAX + 1, 1), (50, 100_000)])
def test_what_is_too_much_for_a_line_becomes_several(bench: Recorded, count: int, length: int) -> None:
    story = MessageEvents()
    for number in range(count):
        story.of(MessageEventKind.STORED, QUEUE).add(f"{number:0{length}}", "", 10, number)
    bench.chronicle.record(story)
    assert len(bench.events) > 1
    assert [int(each[-9:]) for event in bench.events for each in event.message_ids] == list(range(count))
    assert [each for event in bench.events for each in event.sequence_numbers] == list(range(count))


def test_a_full_disk_leaves_a_gap_and_nothing_is_refused(tmp_path: Path) -> None:
    disk = RefusingDisk(room=0)
    options = LedgerOptions(directory=tmp_path, memory_bytes_max=1 << 16, write_interval_s=0.01, free_bytes_min=0)
    ledger = Ledger(options, disk=disk)
    bench = Bench(tell=MessageEventRecorder(ledger, "contoso").record)
    for number in range(500):
        bench.send(f"m{number}")
    disk.room = None
    assert ledger.close()
    assert len(bench.peek(most=250)) == 250
    kinds = {record.kind for record in LedgerReader(tmp_path).records()}
    assert Kind.GAP in kinds
    assert not verify(tmp_path).is_complete
