"""Forwarding, in the machine: where messages end up, what becomes of those that cannot go on, and that chains end."""

from __future__ import annotations

import pytest
from namespace_harness import DEAD_LETTERS, QUEUE, START_MS, NamespaceHarness, arrival, names, properties_of

from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.broker.core.commands import (
    Command,
    CreateQueue,
    CreateSubscription,
    CreateTopic,
    DeleteEntity,
    GetEntity,
    OpenReceiver,
    PeekMessages,
    SendMessages,
    UpdateQueue,
    UpdateSubscription,
)
from twinbus.broker.core.delivery_format import encode_delivery
from twinbus.broker.core.replies import Forwarded, QueueDescription
from twinbus.broker.entities.loaded_head import WindowLimits
from twinbus.broker.entities.settings import QueueSettings, QueueStatus, TopicSettings
from twinbus.broker.message import HOPS, Arrival, hops_of, read_arrival
from twinbus.broker.operations import Abandon, Complete, DeadLetter, Done, ReceiveMode, ReceiverLost, Refused
from twinbus.broker.store.api import Change, InsertCopies, InsertMessages, MessageState
from twinbus.errors import ArgumentError, NotAllowed

TRANSFERS = "/$Transfer/$DeadLetterQueue"


class Chain(NamespaceHarness):
    """A harness with more queues than one."""

    def make(self, command: Command[object]) -> None:
        assert isinstance(self.ask(command), Done)

    def queue_named(self, path: str, forward_to: str | None = None, **settings: object) -> None:
        self.make(CreateQueue(path, QueueSettings(forward_to=forward_to, **settings)))  # type: ignore[arg-type]

    def update(self, path: str, **settings: object) -> None:
        self.make(UpdateQueue(path, QueueSettings(**settings)))  # type: ignore[arg-type]
        self.pass_time(0)

    def give(self, path: str, *sent: Arrival | str) -> tuple[int, ...]:
        batch = tuple(arrival(each) if isinstance(each, str) else each for each in sent)
        reply = self.ask(SendMessages(path, batch))
        assert isinstance(reply, Done), reply
        self.pass_time(0)
        return reply.sequences

    def at(self, path: str) -> list[str | None]:
        return names(self.peek(path=path))

    def reason(self, path: str) -> object:
        (row,) = self.peek(path=path)
        return properties_of(row)["DeadLetterReason"]


@pytest.fixture
def chain() -> Chain:
    """`first` forwards to `orders`."""
    chain = Chain()
    chain.queue_named("first", QUEUE)
    return chain


def forwards(chain: Chain) -> list[tuple[str, int]]:
    return [(reply.path, reply.size) for reply in chain.replies if isinstance(reply, Forwarded)]


# --- where messages end up ---


def test_what_is_sent_to_one_queue_is_received_from_the_other(chain: Chain) -> None:
    assert chain.give("first", "a", "b") == (1, 2)
    assert chain.at("first") == []
    assert names(chain.receive(5)) == ["a", "b"]


def test_a_whole_chain_is_one_change_set_and_nothing_is_stored_on_the_way(chain: Chain) -> None:
    chain.queue_named("zeroth", "first")
    before = chain.gate.machine._number
    chain.give("zeroth", "a")
    assert chain.gate.machine._number == before + 1
    assert chain.at(QUEUE) == ["a"]
    assert [path for path, _ in forwards(chain)] == ["first", "zeroth"]


def test_every_forward_is_recorded_once_with_its_size(chain: Chain) -> None:
    chain.give("first", "a")
    size = len(arrival("a").payload)
    assert forwards(chain) == [("first", size)]


def test_a_message_keeps_the_number_it_got_first(chain: Chain) -> None:
    chain.send("x", "y", "z")
    chain.give("first", "a")
    (row,) = chain.peek(4)
    assert (row.sequence, row.enqueue_sequence) == (4, 1)


def test_numbers_are_not_given_twice_after_a_restart(chain: Chain) -> None:
    chain.give("first", "a")
    chain.restart()
    assert chain.give("first", "b") == (2,)


def test_a_send_is_not_answered_before_it_is_durable_where_it_went(chain: Chain) -> None:
    chain.take()
    chain.do(SendMessages("first", (arrival("a"),)), "asker")
    assert chain.take() == []
    chain.restart()
    assert chain.at(QUEUE) == []


def test_the_name_of_the_target_is_found_in_any_case(chain: Chain) -> None:
    chain.queue_named("second", "ORDERS")
    chain.give("SECOND", "a")
    assert chain.at(QUEUE) == ["a"]
    assert "exists already" in str(chain.refusal(CreateQueue("First", QueueSettings())))


def test_a_topic_can_be_forwarded_to_and_its_subscriptions_forward(chain: Chain) -> None:
    chain.make(CreateTopic("events", TopicSettings()))
    chain.queue_named("last")
    chain.make(CreateSubscription("events", "kept", QueueSettings()))
    chain.make(CreateSubscription("events", "sent", QueueSettings(forward_to="last")))
    chain.queue_named("second", "events")
    chain.give("second", "a")
    assert chain.at("events/subscriptions/kept") == ["a"]
    assert chain.at("events/subscriptions/sent") == []
    assert chain.at("last") == ["a"]


def test_equal_copies_that_stay_still_share_a_payload(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    chain.make(CreateTopic("events", TopicSettings()))
    for name in ("a", "b"):
        chain.make(CreateSubscription("events", name, QueueSettings()))
    chain.make(CreateSubscription("events", "c", QueueSettings(forward_to=QUEUE)))
    written: list[Change] = []
    monkeypatch.setattr(chain.store, "submit", lambda number, changes: written.extend(changes))
    chain.do(SendMessages("events", (arrival("m"),)))
    assert [len(change.rows) for change in written if isinstance(change, InsertCopies)] == [2]
    assert [len(change.rows) for change in written if isinstance(change, InsertMessages)] == [1]


def test_a_ping_is_checked_and_goes_nowhere(chain: Chain) -> None:
    payload = sections.encode_message(
        properties={PropertyField.MESSAGE_ID: "p", PropertyField.CONTENT_TYPE: "application/vnd.ms-servicebus-ping"},
        data=b"",
    )
    assert chain.give("first", read_arrival(payload, lambda: "unused")) == ()
    assert chain.at(QUEUE) == []


# --- time ---


def test_a_scheduled_message_waits_where_it_was_sent_and_goes_on_at_its_time(chain: Chain) -> None:
    chain.give("first", arrival("a", due_at_ms=START_MS + 5_000))
    (waiting,) = chain.peek(path="first")
    assert waiting.state is MessageState.SCHEDULED
    chain.pass_time(5_000)
    assert chain.at("first") == []
    assert chain.at(QUEUE) == ["a"]


@pytest.mark.parametrize(
    ("own", "first", "second", "lives"),
    [(9_000, None, None, 9_000), (None, 4_000, 7_000, 4_000), (9_000, None, 3_000, 3_000)],
)
def test_the_shortest_time_to_live_on_the_way_counts(
    own: int | None, first: int | None, second: int | None, lives: int
) -> None:
    chain = Chain(QueueSettings(default_ttl_ms=second))
    chain.queue_named("first", QUEUE, default_ttl_ms=first)
    chain.give("first", arrival("a", ttl_ms=own))
    (row,) = chain.peek()
    assert row.expires_at_ms == START_MS + lives


def test_the_time_to_live_goes_on_while_a_message_waits_to_be_forwarded() -> None:
    chain = Chain()
    chain.queue_named("first")
    chain.give("first", arrival("a", ttl_ms=9_000))
    chain.pass_time(2_000)
    chain.update("first", forward_to=QUEUE)
    (row,) = chain.peek()
    assert (row.enqueued_at_ms, row.expires_at_ms) == (START_MS + 2_000, START_MS + 9_000)


def test_an_entity_that_forwards_is_never_idle() -> None:
    chain = Chain()
    chain.queue_named("first", QUEUE, auto_delete_on_idle_ms=300_000)
    chain.queue_named("other", auto_delete_on_idle_ms=300_000)
    chain.pass_time(1)
    chain.pass_time(1_000_000)
    chain.pass_time(1_000_000)
    chain.give("first", "a")
    assert isinstance(chain.ask(GetEntity("other")), Refused)


# --- what cannot go on ---


def test_chains_of_four_hops_are_long_enough_and_five_are_too_many() -> None:
    chain = Chain()
    for number, target in enumerate((QUEUE, "q0", "q1", "q2", "q3")):
        chain.queue_named(f"q{number}", target)
    chain.give("q3", "four")
    chain.give("q4", "five")
    assert chain.at(QUEUE) == ["four"]
    assert chain.at(f"q0{TRANSFERS}") == ["five"]
    assert chain.reason(f"q0{TRANSFERS}") == "MaxTransferHopCountExceeded"


def test_a_loop_ends() -> None:
    chain = Chain()
    chain.queue_named("ring")
    chain.update(QUEUE, forward_to="ring")
    chain.update("ring", forward_to=QUEUE)
    chain.send("a")
    assert chain.at(f"{QUEUE}{TRANSFERS}") == ["a"]
    assert chain.reason(f"{QUEUE}{TRANSFERS}") == "MaxTransferHopCountExceeded"


def test_a_loop_of_topics_that_multiplies_ends_too() -> None:
    chain = Chain(work_per_step=6)
    for topic in ("one", "two"):
        chain.make(CreateTopic(topic, TopicSettings()))
    for topic, target in (("one", "two"), ("two", "one")):
        for name in ("a", "b"):
            chain.make(CreateSubscription(topic, name, QueueSettings(forward_to=target)))
    chain.give("one", "m")
    chain.pass_time(1)
    dead = [
        row
        for topic in ("one", "two")
        for name in "ab"
        for row in chain.peek(path=f"{topic}/subscriptions/{name}{TRANSFERS}")
    ]
    assert len(dead) == 2**5
    assert all(properties_of(row)["DeadLetterReason"] == "MaxTransferHopCountExceeded" for row in dead)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (DeleteEntity(QUEUE), "MessagingEntityNotFound"),
        (UpdateQueue(QUEUE, QueueSettings(status=QueueStatus.DISABLED)), "MessagingEntityDisabled"),
        (UpdateQueue(QUEUE, QueueSettings(status=QueueStatus.SEND_DISABLED)), "MessagingEntityDisabled"),
        (UpdateQueue(QUEUE, QueueSettings(max_message_kb=1)), "MessageSizeExceeded"),
    ],
    ids=["gone", "disabled", "closed to senders", "too large"],
)
def test_what_its_target_does_not_take_is_a_transfer_dead_letter(
    chain: Chain, change: Command[object], reason: str
) -> None:
    chain.make(change)
    chain.give("first", arrival("a", body=bytes(2_000)))
    (dead,) = chain.peek(path=f"first{TRANSFERS}")
    assert (dead.message_id, dead.dead_letter_source) == ("a", "first")
    assert properties_of(dead)["DeadLetterReason"] == reason
    assert QUEUE in str(properties_of(dead)["DeadLetterErrorDescription"])
    chain.restart()
    assert chain.at(f"first{TRANSFERS}") == ["a"]


def test_a_full_target_takes_no_more_and_the_sender_sees_no_error() -> None:
    chain = Chain(QueueSettings(max_size_mb=1))
    chain.queue_named("first", QUEUE)
    for name in "abcde":
        chain.give("first", arrival(name, body=bytes(250_000)))
    assert chain.at(QUEUE) == ["a", "b", "c", "d"]
    assert chain.reason(f"first{TRANSFERS}") == "QuotaExceeded"


def test_transfer_dead_letters_count_against_the_size_of_their_queue() -> None:
    chain = Chain()
    chain.queue_named("first", QUEUE, max_size_mb=1)
    chain.make(DeleteEntity(QUEUE))
    for name in "abcd":
        chain.give("first", arrival(name, body=bytes(250_000)))
    assert "is full" in str(chain.refusal(SendMessages("first", (arrival("e", body=bytes(250_000)),))))


def test_a_target_that_is_made_again_gets_messages_again(chain: Chain) -> None:
    chain.make(DeleteEntity(QUEUE))
    chain.give("first", "a")
    chain.queue_named("Orders")
    chain.give("first", "b")
    assert chain.at(QUEUE) == ["b"]
    chain.update("first", forward_to=QUEUE, max_delivery_count=3)  # nothing wrong with what is there already


def test_sessions_can_be_forwarded_to_but_not_without_a_session_id() -> None:
    chain = Chain(QueueSettings(requires_session=True))
    chain.queue_named("first", QUEUE)
    payload = sections.encode_message(
        properties={PropertyField.MESSAGE_ID: "b", PropertyField.GROUP_ID: "s"}, data=b"body"
    )
    chain.give("first", "a", read_arrival(payload, lambda: "unused"))
    assert chain.at(QUEUE) == ["b"]
    assert chain.reason(f"first{TRANSFERS}") == "Session ID is null."


def test_transfer_dead_letters_are_received_settled_and_counted(chain: Chain) -> None:
    chain.make(DeleteEntity(QUEUE))
    chain.give("first", "a", "b")
    (one,) = chain.receive(path=f"first{TRANSFERS}")
    assert chain.settle(Complete(), one, path=f"first{TRANSFERS}") == {}
    found = chain.ask(GetEntity("first"))
    assert isinstance(found, QueueDescription)
    assert (found.active, found.dead_letters, found.transfer_dead_letters) == (0, 0, 1)


def test_there_are_transfer_dead_letters_to_look_at_before_there_is_one() -> None:
    chain = Chain()
    assert chain.at(f"{QUEUE}{TRANSFERS}") == []
    assert chain.receive(path=f"{QUEUE}{TRANSFERS}") == []
    chain.restart()
    assert chain.at(f"{QUEUE}{TRANSFERS}") == []
    assert isinstance(chain.refusal(SendMessages(f"{QUEUE}{TRANSFERS}", (arrival("a"),))), NotAllowed)
    assert "could not be found" in str(chain.refusal(PeekMessages(f"nothing{TRANSFERS}", 0, 1)))
    assert "could not be found" in str(chain.refusal(PeekMessages(f"{DEAD_LETTERS}{TRANSFERS}", 0, 1)))
    chain.make(DeleteEntity(QUEUE))
    assert "could not be found" in str(chain.refusal(PeekMessages(f"{QUEUE}{TRANSFERS}", 0, 1)))


# --- what was there before ---


def test_what_is_in_a_queue_goes_when_forwarding_begins_in_its_order_and_before_what_comes_later() -> None:
    chain = Chain(limits=WindowLimits(rows_max=3, bytes_max=10_000))
    chain.queue_named("first")
    old = [f"old{number}" for number in range(250)]
    chain.give("first", *old)
    chain.make(UpdateQueue("first", QueueSettings(forward_to=QUEUE)))
    chain.give("first", "new")
    chain.pass_time(0)
    assert chain.at("first") == []
    found = chain.peek(most=250) + chain.peek(251, most=250)
    assert names(found) == [*old, "new"]


def test_what_is_locked_when_forwarding_begins_goes_when_it_comes_back() -> None:
    chain = Chain()
    chain.queue_named("first")
    chain.give("first", "a", "b", "c")
    one, two, _ = chain.receive(3, path="first")
    chain.update("first", forward_to=QUEUE)
    assert chain.settle(Abandon(), one, path="first") == {}
    assert chain.settle(Complete(), two, path="first") == {}
    assert chain.at(QUEUE) == ["a"]
    chain.pass_time(60_000)
    assert chain.at(QUEUE) == ["a", "c"]


def test_receivers_are_detached_when_forwarding_begins_and_none_can_attach() -> None:
    chain = Chain()
    chain.queue_named("last")
    chain.open(1, credit=1)
    chain.update(QUEUE, forward_to="last")
    assert [reply.receiver for reply in chain.take() if isinstance(reply, ReceiverLost)] == [1]
    error = chain.refusal(OpenReceiver(2, QUEUE, ReceiveMode.PEEK_LOCK))
    assert isinstance(error, NotAllowed)
    assert "last" in str(error)


def test_when_forwarding_ends_messages_stay_and_are_received(chain: Chain) -> None:
    chain.give("first", "a")
    chain.update("first")
    chain.give("first", "b")
    assert names(chain.receive(path="first")) == ["b"]


def test_what_a_crash_left_in_a_queue_that_forwards_goes_on_after_it() -> None:
    chain = Chain()
    chain.queue_named("first")
    chain.give("first", "a", "b")
    chain.do(UpdateQueue("first", QueueSettings(forward_to=QUEUE)))
    chain.commit(1)
    chain.restart()
    chain.pass_time(0)
    assert chain.at(QUEUE) == ["a", "b"]


# --- dead letters ---


@pytest.fixture
def dead_letter_queues() -> Chain:
    """The dead letters of `orders` go to `errors`."""
    chain = Chain()
    chain.queue_named("errors")
    chain.update(QUEUE, forward_dead_letters_to="errors", dead_letter_on_expiration=True)
    return chain


def bury(chain: Chain, *sent: Arrival | str) -> None:
    chain.send(*sent)
    deliveries = chain.receive(len(sent))
    chain.settle(DeadLetter({"DeadLetterReason": "Asked"}), *deliveries)
    chain.pass_time(0)


def test_dead_letters_go_where_they_are_to_go_and_say_where_they_come_from(dead_letter_queues: Chain) -> None:
    bury(dead_letter_queues, "a")
    (row,) = dead_letter_queues.peek(path="errors")
    assert dead_letter_queues.at(DEAD_LETTERS) == []
    assert (row.dead_letter_source, row.delivery_count, row.enqueue_sequence) == (QUEUE, 0, 1)
    assert properties_of(row)["DeadLetterReason"] == "Asked"
    assert [path for path, _ in forwards(dead_letter_queues)] == [DEAD_LETTERS]


def test_a_dead_letter_gets_its_time_to_live_again(dead_letter_queues: Chain) -> None:
    dead_letter_queues.send(arrival("a", ttl_ms=5_000))
    dead_letter_queues.pass_time(6_000)
    (row,) = dead_letter_queues.peek(path="errors")
    assert properties_of(row)["DeadLetterReason"] == "TTLExpiredException"
    assert row.expires_at_ms == dead_letter_queues.now_ms + 5_000


def test_dead_letters_that_were_there_before_go_too() -> None:
    chain = Chain()
    chain.queue_named("errors")
    bury(chain, "a", "b")
    chain.update(QUEUE, forward_dead_letters_to="errors")
    assert chain.at("errors") == ["a", "b"]


def test_dead_letters_of_a_subscription_and_of_sessions_can_be_forwarded(dead_letter_queues: Chain) -> None:
    dead_letter_queues.make(CreateTopic("events", TopicSettings()))
    settings = QueueSettings(requires_session=True, forward_dead_letters_to="errors")
    dead_letter_queues.make(CreateSubscription("events", "audit", settings))
    dead_letter_queues.give("events", "a")
    (row,) = dead_letter_queues.peek(path="errors")
    assert row.dead_letter_source == "events/Subscriptions/audit"
    assert properties_of(row)["DeadLetterReason"] == "Session ID is null."


def test_a_dead_letter_that_cannot_be_forwarded_still_says_why_it_was_one(dead_letter_queues: Chain) -> None:
    dead_letter_queues.make(DeleteEntity("errors"))
    bury(dead_letter_queues, "a")
    (row,) = dead_letter_queues.peek(path=f"{QUEUE}{TRANSFERS}")
    assert properties_of(row)["DeadLetterReason"] == "MessagingEntityNotFound"
    assert "Asked" in str(properties_of(row)["DeadLetterErrorDescription"])


def test_a_ring_through_dead_letters_that_time_keeps_going_ends(dead_letter_queues: Chain) -> None:
    dead_letter_queues.update(
        "errors", default_ttl_ms=1_000, dead_letter_on_expiration=True, forward_dead_letters_to=QUEUE
    )
    dead_letter_queues.update(
        QUEUE, default_ttl_ms=1_000, dead_letter_on_expiration=True, forward_dead_letters_to="errors"
    )
    dead_letter_queues.send("a")
    for _ in range(10):
        dead_letter_queues.pass_time(1_000)
    assert dead_letter_queues.at(QUEUE) + dead_letter_queues.at("errors") == []
    (row,) = dead_letter_queues.peek(path=f"{QUEUE}{TRANSFERS}")
    assert properties_of(row)["DeadLetterReason"] == "MaxTransferHopCountExceeded"


def test_nobody_sees_the_number_that_is_written_on_a_message_nor_gains_by_forging_it(dead_letter_queues: Chain) -> None:
    bury(dead_letter_queues, "a")
    (row,) = dead_letter_queues.peek(path="errors")
    assert hops_of(row.payload) == 1
    assert HOPS.encode() not in encode_delivery(row, None, None)
    forged = sections.encode_message(annotations={HOPS: -100}, properties={PropertyField.MESSAGE_ID: "f"}, data=b"body")
    assert hops_of(forged) == 0


# --- targets that detect duplicates ---


@pytest.fixture
def guarded() -> Chain:
    """`first` forwards to `orders`, which detects duplicates."""
    chain = Chain(QueueSettings(requires_duplicate_detection=True))
    chain.queue_named("first", QUEUE)
    return chain


def test_duplicates_are_dropped_where_they_are_detected(guarded: Chain) -> None:
    guarded.send("a")
    guarded.give("first", "a", "b", "b", "c")
    guarded.send("c")
    assert guarded.at(QUEUE) == ["a", "b", "c"]
    assert guarded.at("first") == []


def test_a_message_on_its_way_is_lost_neither_with_the_process_nor_with_its_target(guarded: Chain) -> None:
    guarded.do(SendMessages("first", (arrival("a"),)))
    guarded.store.commit(1)
    guarded.restart()
    guarded.pass_time(0)
    assert guarded.at(QUEUE) == ["a"]
    guarded.make(DeleteEntity(QUEUE))
    guarded.give("first", "b")
    assert guarded.reason(f"first{TRANSFERS}") == "MessagingEntityNotFound"


def test_a_target_with_duplicate_detection_may_be_in_the_middle_and_a_topic() -> None:
    chain = Chain()
    chain.make(CreateTopic("events", TopicSettings(requires_duplicate_detection=True)))
    chain.make(CreateSubscription("events", "all", QueueSettings(forward_to=QUEUE)))
    chain.queue_named("second", "events")
    chain.queue_named("first", "second")
    chain.give("first", "a", "a", "b")
    assert chain.at(QUEUE) == ["a", "b"]


# --- what cannot be ---


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (CreateQueue("q", QueueSettings(forward_to="nowhere")), "could not be found"),
        (CreateQueue("q", QueueSettings(forward_dead_letters_to="nowhere")), "ForwardDeadLetteredMessagesTo"),
        (CreateQueue("q", QueueSettings(forward_to="q")), "could not be found"),
        (UpdateSubscription("events", "all", QueueSettings(forward_to="nowhere")), "could not be found"),
    ],
)
def test_what_cannot_be_forwarded_is_refused_and_nothing_is_made(command: Command[object], text: str) -> None:
    chain = Chain()
    chain.make(CreateTopic("events", TopicSettings()))
    chain.make(CreateSubscription("events", "all", QueueSettings()))
    error = chain.refusal(command)
    assert isinstance(error, ArgumentError)
    assert text in str(error)
    assert isinstance(chain.ask(GetEntity("q")), Refused)


def test_a_queue_may_forward_to_itself_and_four_hops_are_enough(chain: Chain) -> None:
    chain.make(UpdateQueue(QUEUE, QueueSettings(forward_to=QUEUE.upper())))
    chain.give(QUEUE, "a", "b")
    assert (chain.at(QUEUE), chain.at(QUEUE + "/$transfer/$deadletterqueue")) == ([], ["a", "b"])


def test_a_subscription_may_forward_to_its_own_topic(chain: Chain) -> None:
    chain.make(CreateTopic("news", TopicSettings()))
    chain.make(CreateSubscription("news", "kept", QueueSettings()))
    chain.make(CreateSubscription("news", "round", QueueSettings(forward_to="News")))
    chain.give("news", "a")
    assert chain.at("news/subscriptions/kept") == ["a"] * 5
    assert chain.at("news/subscriptions/round" + TRANSFERS) == ["a"]


def test_a_message_that_comes_back_to_its_topic_gets_another_number_there(chain: Chain) -> None:
    chain.make(CreateTopic("news", TopicSettings()))
    chain.queue_named("ring", "news")
    chain.make(CreateSubscription("news", "kept", QueueSettings()))
    chain.make(CreateSubscription("news", "round", QueueSettings(forward_to="ring")))
    chain.give("news", "a")
    chain.give("news", "b")
    numbers = [row.enqueue_sequence for row in chain.peek(path="news/Subscriptions/kept")]
    assert len(numbers) > 2
    assert len(set(numbers)) == len(numbers)
