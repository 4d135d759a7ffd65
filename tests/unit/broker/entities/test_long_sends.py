"""A send that makes very many copies is stored whole, and then handed on in steps: nobody waits long for it."""

from __future__ import annotations

from collections import defaultdict

import pytest
from namespace_harness import QUEUE, START_MS, NamespaceHarness, arrival, names, properties_of

from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.broker.core.commands import (
    CancelScheduled,
    Command,
    CreateQueue,
    CreateSubscription,
    CreateTopic,
    GetEntity,
    SendMessages,
    UpdateQueue,
    UpdateTopic,
)
from twinbus.broker.core.message_events import MessageEventKind, MessageEvents
from twinbus.broker.core.namespace_machine import NamespaceMachine
from twinbus.broker.core.replies import NOBODY, WORK_PER_STEP, Step, TopicDescription
from twinbus.broker.entities.settings import QueueSettings, TopicSettings
from twinbus.broker.entities.topics.rules import Rule, SqlAction, SqlFilter
from twinbus.broker.entities.topics.topic import Topic
from twinbus.broker.message import Arrival, read_arrival
from twinbus.broker.operations import Complete, Done, Refused
from twinbus.broker.store.api import (
    Committed,
    DiskSpaceChanged,
    MessageRow,
    MessageState,
    Read,
    ReadFailed,
    StoredNamespace,
)
from twinbus.errors import InternalError, MessageNotFound, QuotaExceeded

TOPIC = "events"
AUDIT = "events/subscriptions/audit"
BILLING = "events/subscriptions/billing"
MESSAGE_WORK = 3.1
"""Of a message to two subscriptions."""
TWO_MESSAGES = 6
SIX = tuple("abcdef")


class Watched(NamespaceHarness):
    """A harness that sees how much work each step was."""

    def __init__(self, work_per_step: int = TWO_MESSAGES, topic: TopicSettings | None = None) -> None:
        self.work: list[float] = []
        self.recorded: list[MessageEvents] = []
        super().__init__(on_events=self.recorded.append, work_per_step=work_per_step)
        self.make(CreateTopic(TOPIC, topic or TopicSettings()))
        for name in ("audit", "billing"):
            self.make(CreateSubscription(TOPIC, name, QueueSettings()))
        self.work.clear()

    def _build(self, stored: StoredNamespace) -> NamespaceMachine:
        machine = super()._build(stored)
        apply = machine.apply

        def watched(
            command: Command[object] | Committed | Read | ReadFailed, now_ms: int, request_id: int = NOBODY
        ) -> Step:
            step = apply(command, now_ms, request_id)
            self.work.append(step.work)
            return step

        machine.apply = watched  # type: ignore[method-assign]
        return machine

    @property
    def topic(self) -> Topic:
        return self.gate.machine.registry.find_topic(TOPIC)

    def make(self, command: Command[object]) -> None:
        assert isinstance(self.ask(command), Done)

    def begin(self, *sent: str | Arrival, path: str = TOPIC) -> None:
        """Send, without any commit."""
        self.do(SendMessages(path, tuple(arrival(each) if isinstance(each, str) else each for each in sent)), "sent")

    def answers(self) -> list[object]:
        return [reply for name, reply in self.take_named() if name == "sent"]

    def distributed(self) -> int:
        return self.gate.machine.registry.find_queue(AUDIT).active

    def finish(self) -> None:
        self.commit()
        self.pass_time(0)
        assert (self.topic.pending, self.topic.pending_bytes, self.topic.scheduled) == (0, 0, 0)

    def contents(self) -> list[str | None]:
        """What both subscriptions have."""
        found = names(self.peek(path=AUDIT))
        assert names(self.peek(path=BILLING)) == found
        return found


@pytest.fixture
def harness() -> Watched:
    return Watched()


# --- in steps ---


def test_a_large_send_is_acknowledged_whole_and_others_are_served_between_its_steps(harness: Watched) -> None:
    many = [f"{number:02}" for number in range(20)]
    harness.begin(*many)
    harness.commit(1)
    (done,) = harness.answers()
    assert isinstance(done, Done)
    assert done.sequences == tuple(range(1, 21))
    harness.do(SendMessages(QUEUE, (arrival("other"),)), "sent")
    harness.commit(harness.store.waiting_sets)
    assert isinstance(harness.answers()[0], Done)
    assert 0 < harness.distributed() < 20
    harness.finish()
    assert harness.contents() == many
    assert [row.enqueue_sequence for row in harness.peek(path=AUDIT)] == list(range(1, 21))


def test_a_small_send_is_handed_on_in_one_change_set(harness: Watched) -> None:
    harness.begin("a", "b")
    harness.commit(1)
    assert harness.topic.pending == 0
    assert harness.contents() == ["a", "b"]


@pytest.mark.parametrize("source", ["sent", "forwarded", "scheduled"])
def test_no_step_does_more_than_its_share_and_one_message(harness: Watched, source: str) -> None:
    if source == "forwarded":
        harness.make(UpdateQueue(QUEUE, QueueSettings(forward_to=TOPIC)))
    due_at_ms = START_MS + 1 if source == "scheduled" else None
    many = [arrival(f"{number:02}", due_at_ms=due_at_ms) for number in range(50)]
    harness.begin(*many, path=QUEUE if source == "forwarded" else TOPIC)
    harness.commit()
    harness.pass_time(1)
    harness.finish()
    assert max(harness.work) <= TWO_MESSAGES + MESSAGE_WORK + 2
    assert harness.contents() == [each.message_id for each in many]


def test_rules_that_have_to_be_asked_are_work_too() -> None:
    harness = Watched(work_per_step=100)
    for number in range(50):
        rule = Rule("costly", SqlFilter(f"size = {number}" + " AND colour IS NULL" * 10))
        harness.make(CreateSubscription(TOPIC, f"s{number}", QueueSettings(), rule))
    harness.work.clear()
    harness.begin("a", "b")
    assert harness.topic.pending == 2, "the first alone was enough"
    harness.finish()
    assert harness.contents() == ["a", "b"]


@pytest.mark.parametrize("due_at_ms", [None, START_MS + 5], ids=["sent", "scheduled"])
def test_one_message_with_very_many_rules_is_handed_on_in_steps_too(due_at_ms: int | None) -> None:
    harness = Watched(work_per_step=10)
    rules = [SqlFilter("1 = 1" + " AND sys.MessageId LIKE 'a%'" * 10), SqlFilter("sys.Label + 1 > 1")] * 10
    for number, given in enumerate(rules):
        action = SqlAction("SET colour = 'red'") if number % 4 == 0 else None
        harness.make(CreateSubscription(TOPIC, f"s{number}", QueueSettings(), Rule("costly", given, action)))
    harness.work.clear()
    harness.begin(arrival("a", due_at_ms=due_at_ms))
    harness.commit()
    harness.pass_time(5)
    assert sum(work > 0 for work in harness.work) > 5
    harness.finish()
    assert harness.contents() == ["a"]
    assert [len(harness.peek(path=f"{TOPIC}/subscriptions/s{number}")) for number in range(20)] == [1, 0] * 10


def test_a_rule_that_would_search_for_very_long_cannot_be_evaluated() -> None:
    harness = Watched()
    rule = Rule("costly", SqlFilter(" OR ".join(["colour LIKE pattern"] * 40)))
    harness.make(CreateSubscription(TOPIC, "costly", QueueSettings(), rule))
    properties = {"colour": "a" * 20_000, "pattern": "%a" + "_" * 900 + "b"}
    payload = sections.encode_message(properties={PropertyField.MESSAGE_ID: "a"}, application_properties=properties)
    harness.begin(read_arrival(payload, lambda: "unused"))
    harness.finish()
    assert harness.contents() == ["a"]
    (dead,) = harness.peek(path=f"{TOPIC}/subscriptions/costly/$deadletterqueue")
    assert properties_of(dead)["DeadLetterReason"] == "FilterEvaluationException"
    assert "too long" in str(properties_of(dead)["DeadLetterErrorDescription"])


def test_with_a_slow_disk_no_step_is_made_before_the_last_one_is_written(harness: Watched) -> None:
    harness.begin(*(f"{number}" for number in range(50)))
    harness.commit(1)
    assert harness.store.waiting_sets == 1
    assert harness.gate.next_wake_ms() is None
    harness.finish()
    assert len(harness.contents()) == 50


def test_all_entities_together_do_no_more_in_one_tick_than_one() -> None:
    harness = Watched(work_per_step=10)
    for number in range(30):
        harness.make(CreateQueue(f"q{number}", QueueSettings()))
        harness.begin(arrival("a", due_at_ms=START_MS + 5), path=f"q{number}")
    harness.commit()
    harness.work.clear()
    harness.pass_time(5)
    assert max(harness.work) == 10
    assert all(names(harness.peek(path=f"q{number}")) == ["a"] for number in range(30))


# --- nothing is lost, doubled or overtaken ---


@pytest.mark.parametrize("commits", range(5))
def test_a_crash_between_two_steps_loses_and_doubles_nothing(harness: Watched, commits: int) -> None:
    harness.begin(*SIX)
    for _ in range(commits):
        harness.commit(1)
    was_told = bool(harness.answers())
    harness.restart()
    harness.finish()
    assert was_told is (commits > 0)
    assert harness.contents() == (list(SIX) if was_told else [])


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("path", [TOPIC, QUEUE], ids=["sent", "forwarded"])
def test_what_comes_later_lines_up(harness: Watched, path: str, restarts: bool) -> None:
    harness.make(UpdateQueue(QUEUE, QueueSettings(forward_to=TOPIC)))
    harness.pass_time(0)
    harness.begin(*SIX)
    harness.commit(1)
    if restarts:
        harness.restart()
    harness.begin("small", path=path)
    harness.finish()
    assert harness.contents() == [*SIX, "small"]


def test_a_topic_that_cannot_be_read_takes_small_sends_and_refuses_large_ones(harness: Watched) -> None:
    harness.begin(*SIX)
    harness.topic.damage = "bad page"
    harness.begin("small")
    harness.commit()
    assert "small" in harness.contents()
    assert isinstance(harness.refusal(SendMessages(TOPIC, tuple(map(arrival, SIX)))), InternalError)


def test_a_topic_that_detects_duplicates_does_so_for_large_sends() -> None:
    harness = Watched(topic=TopicSettings(requires_duplicate_detection=True))
    for _ in range(2):
        harness.begin(*SIX, "a")
        harness.commit(1)
    harness.finish()
    assert harness.contents() == list(SIX)


def test_on_a_full_disk_the_line_waits_after_one_failure_and_receivers_go_on(harness: Watched) -> None:
    harness.begin(*SIX)
    harness.commit(1)
    harness.commit(1)
    harness.gate.report(DiskSpaceChanged("full"), harness.now_ms)
    harness.store.fail("database or disk is full")
    harness.gate.recover()
    waiting = harness.topic.pending
    for delivery in harness.receive(6, path=AUDIT):
        assert harness.settle(Complete(), delivery, path=AUDIT) == {}
    harness.pass_time(0)
    assert harness.failures == ["database or disk is full"]
    assert harness.topic.pending == waiting > 0
    harness.gate.report(DiskSpaceChanged(None), harness.now_ms)
    harness.pass_time(0)
    harness.finish()
    assert names(harness.peek(path=BILLING)) == list(SIX)


# --- as if it had been small ---


def events_with(work_per_step: int) -> dict[tuple[MessageEventKind, str], list[tuple[str, int, int]]]:
    """What the ledger hears of each message."""
    harness = Watched(work_per_step)
    harness.make(CreateSubscription(TOPIC, "by-session", QueueSettings(requires_session=True)))
    harness.recorded.clear()
    harness.begin(*SIX)
    harness.finish()
    found: dict[tuple[MessageEventKind, str], list[tuple[str, int, int]]] = defaultdict(list)
    for happened in (each for events in harness.recorded for each in events.all()):
        found[happened.what, happened.path] += zip(
            happened.message_ids, happened.sizes, happened.sequences, strict=True
        )
    return found


def test_the_ledger_hears_the_same_as_of_a_small_send() -> None:
    in_steps = events_with(3)
    assert in_steps == events_with(WORK_PER_STEP)
    assert {what for what, _ in in_steps} == {
        MessageEventKind.STORED,
        MessageEventKind.COPIED,
        MessageEventKind.DEAD_LETTERED,
    }


def times(row: MessageRow) -> tuple[int, int | None]:
    return row.enqueued_at_ms, row.expires_at_ms


def test_nothing_lives_longer_because_it_was_in_line() -> None:
    harness = Watched(topic=TopicSettings(default_ttl_ms=60_000))
    harness.make(CreateQueue("end", QueueSettings()))
    harness.make(CreateSubscription(TOPIC, "on", QueueSettings(forward_to="end")))
    harness.begin(*(arrival(name, ttl_ms=9_000 if name == "a" else 30_000) for name in SIX), "g")
    harness.commit(1)
    harness.now_ms += 10_000
    harness.restart()
    harness.finish()
    others, last = START_MS + 30_000, START_MS + 60_000
    found = {row.message_id: times(row) for row in harness.peek(path=AUDIT)}
    assert found == {**dict.fromkeys("bcdef", (START_MS, others)), "g": (START_MS, last)}
    assert [row.expires_at_ms for row in harness.peek(path="end")] == [*[others] * 5, last]


def test_a_late_subscription_is_as_late_as_for_a_small_send(harness: Watched) -> None:
    harness.delays = {AUDIT: 5_000}
    harness.begin(*SIX)
    harness.commit(1)
    harness.now_ms += 2_000
    harness.finish()
    assert {row.due_at_ms for row in harness.peek(path=AUDIT)} == {START_MS + 5_000}


@pytest.mark.parametrize("work_per_step", [1, 5, WORK_PER_STEP])
def test_hops_are_counted_through_the_line(work_per_step: int) -> None:
    harness = Watched(work_per_step)
    for name, target in (("to-ring", QUEUE), ("end", None)):
        harness.make(CreateSubscription(TOPIC, name, QueueSettings(forward_to=target)))
    harness.make(UpdateQueue(QUEUE, QueueSettings(forward_to=TOPIC)))
    harness.pass_time(0)
    harness.begin("a", "b")
    harness.finish()
    assert sorted(map(str, names(harness.peek(path=f"{TOPIC}/subscriptions/end")))) == ["a"] * 3 + ["b"] * 3
    put_aside = harness.peek(path=f"{TOPIC}/subscriptions/to-ring/$transfer/$deadletterqueue")
    assert sorted(map(str, names(put_aside))) == ["a", "b"]


def test_what_is_in_line_is_not_scheduled(harness: Watched) -> None:
    scheduled = arrival("later", due_at_ms=START_MS + 5_000)
    harness.begin(*SIX, scheduled)
    harness.commit(1)
    harness.do(GetEntity(TOPIC), "sent")
    found = harness.answers()[-1]
    assert isinstance(found, TopicDescription)
    assert harness.topic.pending
    assert found.scheduled == 1
    harness.begin(*SIX)
    harness.do(CancelScheduled(TOPIC, (8,)), "cancelled")
    harness.commit()
    (refused,) = [reply for reply in harness.replies if isinstance(reply, Refused)]
    assert isinstance(refused.error, MessageNotFound)
    harness.make(CancelScheduled(TOPIC, (7,)))
    harness.finish()
    assert harness.contents() == [*SIX, *SIX]


# --- room ---


def large(*sent: str) -> tuple[Arrival, ...]:
    return tuple(arrival(name, body=bytes(100_000)) for name in sent)


@pytest.fixture
def small(harness: Watched) -> Watched:
    """A topic of one megabyte. One of its subscriptions takes only messages of one name, and is full of them."""
    harness.make(CreateTopic("small", TopicSettings(max_size_mb=1)))
    harness.make(CreateSubscription("small", "all", QueueSettings()))
    harness.make(CreateSubscription("small", "some", QueueSettings(), Rule("some", SqlFilter("sys.MessageId = 'x'"))))
    for _ in range(10):
        assert isinstance(harness.ask(SendMessages("small", large("x"))), Done)
    for lent in harness.receive(10, path="small/subscriptions/all"):
        harness.settle(Complete(), lent, path="small/subscriptions/all")
    return harness


def test_a_large_send_needs_room_where_it_goes(small: Watched) -> None:
    small.begin(*large(*SIX), path="small")
    small.commit()
    assert [type(answer) for answer in small.answers()] == [Done]
    assert names(small.peek(path="small/subscriptions/all")) == list(SIX)
    full = small.refusal(SendMessages("small", large(*SIX)))
    assert isinstance(full, QuotaExceeded)
    assert "small/Subscriptions/all" in str(full)


def test_a_message_that_lines_up_needs_room_where_it_goes(small: Watched) -> None:
    small.begin(*[arrival(each) for each in SIX], path="small")
    small.begin(*large("g"), path="small")
    assert isinstance(small.refusal(SendMessages("small", large("x"))), QuotaExceeded)
    small.commit()
    assert [type(answer) for answer in small.answers()] == [Done, Done]
    assert names(small.peek(path="small/subscriptions/all")) == [*SIX, "g"]
    assert set(names(small.peek(path="small/subscriptions/some"))) == {"x"}


def test_what_lines_up_leaves_less_room_for_what_comes_after_it(small: Watched) -> None:
    for lent in small.receive(5, path="small/subscriptions/some"):
        small.settle(Complete(), lent, path="small/subscriptions/some")
    small.begin(*[arrival(each) for each in SIX], path="small")
    small.begin(*large(*"xxx"), path="small")
    assert isinstance(small.refusal(SendMessages("small", large(*"xxx"))), QuotaExceeded)
    small.commit()
    assert isinstance(small.ask(SendMessages("small", large(*"xx"))), Done)
    assert names(small.peek(path="small/subscriptions/some")) == ["x"] * 10


def test_what_is_in_line_for_others_takes_no_room(small: Watched) -> None:
    for lent in small.receive(5, path="small/subscriptions/some"):
        small.settle(Complete(), lent, path="small/subscriptions/some")
    small.begin(*large("x", *"abcde"), path="small")
    small.begin(*large("x", *"fgh"), path="small")
    small.commit()
    assert [type(answer) for answer in small.answers()] == [Done, Done]
    assert names(small.peek(path="small/subscriptions/some")) == ["x"] * 7


def test_rules_are_not_asked_for_long_whether_there_is_room(small: Watched) -> None:
    small.work.clear()
    refusal = small.refusal(
        SendMessages("small", tuple([arrival(str(number), body=bytes(2_000)) for number in range(40)]))
    )
    assert isinstance(refusal, QuotaExceeded)
    assert "send fewer messages at a time" in str(refusal)
    assert max(small.work) < 6 * TWO_MESSAGES


def test_what_is_in_line_counts_as_what_the_topic_holds(harness: Watched) -> None:
    harness.make(UpdateTopic(TOPIC, TopicSettings(max_size_mb=1)))
    harness.begin(*large(*SIX))
    assert harness.topic.payload_bytes > 600_000
    refusal = harness.refusal(SendMessages(TOPIC, (arrival("later", due_at_ms=START_MS + 1, body=bytes(500_000)),)))
    assert isinstance(refusal, QuotaExceeded)
    harness.finish()
    assert harness.topic.payload_bytes == 0
    assert all(row.state is MessageState.ACTIVE for row in harness.peek(path=AUDIT))
