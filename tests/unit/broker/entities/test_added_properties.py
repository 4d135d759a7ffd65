"""What receivers and the namespace write on messages: whatever it is, one stays near the size it was sent with."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from namespace_harness import DEAD_LETTERS, QUEUE, NamespaceHarness, arrival, names, properties_of
from seeds import examples

from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import Header, PropertyField
from twinbus.broker.core.commands import (
    CloseReceiver,
    CreateQueue,
    CreateSubscription,
    CreateTopic,
    SendMessages,
    UpdateQueue,
)
from twinbus.broker.core.delivery_format import encode_delivery
from twinbus.broker.core.replies import Delivery
from twinbus.broker.entities.queue import Queue
from twinbus.broker.entities.settings import QueueSettings, QueueStatus, TopicSettings
from twinbus.broker.message import HEADER_BYTES_MAX, read_arrival
from twinbus.broker.operations import Abandon, Complete, DeadLetter, Defer, SettlementOutcome
from twinbus.broker.store.api import MessageState
from twinbus.errors import MessageTooLarge, NotAllowed, QuotaExceeded

REASON, DESCRIPTION = "DeadLetterReason", "DeadLetterErrorDescription"
GROWTH_BYTES_MAX = HEADER_BYTES_MAX + 2 * 4096 * 4 + 200
"""All properties, a reason and a description of 4096 characters beside them, and the number of hops."""
MEGABYTE = 1024 * 1024
LOCK_MS, TTL_MS = 60_000, 600_000
TARGET = "later"
TRANSFERS = f"{QUEUE}/$transfer/$deadletterqueue"

SMILE = "\U0001f600"
LONG = "z" * 30_000
NOTES: dict[str, dict[str, object]] = {
    "none": {},
    "one": {"a": LONG},
    "another": {"b": LONG},
    "nested": {"c": [1, "a" * 9_000]},
    "too long": {"a": "w" * 40_000},
    "reasons": {REASON: SMILE * 4_500, DESCRIPTION: SMILE * 4_500},
    "bytes": {REASON: b"\xff" * 31_000, DESCRIPTION: b"\xff" * 31_000},
    "reason and more": {REASON: LONG, "d": LONG},
}
notes = st.sampled_from(list(NOTES))
"""By their names: hypothesis prints what it tries."""
kinds = st.sampled_from([Abandon, Defer, DeadLetter])


class MessagesWithNotes(RuleBasedStateMachine):
    """Receivers without mercy at a queue whose dead letters are forwarded, or cannot be."""

    def __init__(self) -> None:
        super().__init__()
        own = QueueSettings(
            lock_ms=LOCK_MS,
            max_delivery_count=3,
            dead_letter_on_expiration=True,
            forward_dead_letters_to=TARGET,
        )
        self.harness = NamespaceHarness()
        self.harness.ask(CreateQueue(TARGET, QueueSettings(lock_ms=LOCK_MS, max_delivery_count=2)))
        self.harness.ask(UpdateQueue(QUEUE, own))
        self.names = count(1)
        self.sizes: dict[str | None, int] = {}

    @rule(property_bytes=st.sampled_from([0, 30_000]), has_two=st.booleans(), expires=st.booleans())
    def send(self, property_bytes: int, has_two: bool, expires: bool) -> None:
        name = str(next(self.names))
        own: dict[str, object] = dict.fromkeys(("a", "e") if has_two else ("a",), "p" * property_bytes)
        sent = encoded(name, own, ttl_ms=TTL_MS if expires else None)
        self.harness.send(read_arrival(sent, lambda: ""))
        self.sizes[name] = len(sent)

    @precondition(lambda self: self.places())
    @rule(data=st.data(), kind=kinds, notes=notes)
    def settle(self, data: st.DataObject, kind: type[Abandon | Defer | DeadLetter], notes: str) -> None:
        place = data.draw(st.sampled_from(self.places()))
        outcome = kind(NOTES[notes])
        for delivery in self.receive(place):
            failures = self.harness.settle(outcome, delivery, path=place)
            if failures:
                assert isinstance(failures[delivery.token or b""], MessageTooLarge | NotAllowed), failures
                assert self.harness.settle(Abandon(), delivery, path=place) == {}

    @precondition(lambda self: self.places())
    @rule(data=st.data())
    def let_a_lock_end(self, data: st.DataObject) -> None:
        self.receive(data.draw(st.sampled_from(self.places())))
        self.harness.pass_time(LOCK_MS)

    @rule()
    def let_time_pass(self) -> None:
        self.harness.pass_time(TTL_MS)

    @initialize(status=st.sampled_from([QueueStatus.ACTIVE, QueueStatus.SEND_DISABLED]))
    def begin(self, status: QueueStatus) -> None:
        self.open_or_close_the_way_on(status)
        self.send(property_bytes=0, has_two=False, expires=False)

    @rule(status=st.sampled_from([QueueStatus.ACTIVE, QueueStatus.SEND_DISABLED]))
    def open_or_close_the_way_on(self, status: QueueStatus) -> None:
        self.harness.ask(UpdateQueue(TARGET, QueueSettings(lock_ms=LOCK_MS, max_delivery_count=2, status=status)))

    def places(self) -> list[str]:
        """Where there is something to receive."""
        queues = [each for each in self.harness.gate.machine.registry.all() if isinstance(each, Queue)]
        return [each.row.path for each in queues if each.destination is None and each.active + each.deferred]

    def receive(self, place: str) -> list[Delivery]:
        """One message, if there is one."""
        deferred = [row for row in self.harness.peek(path=place) if row.state is MessageState.DEFERRED]
        if deferred:
            lent = self.harness.receive_deferred(deferred[0].sequence, path=place).found
            return [Delivery(0, each.row, each.token, each.locked_until_ms) for each in lent]
        got = self.harness.receive(path=place)
        self.harness.do(CloseReceiver(self.harness.last_receiver))
        return got

    @invariant()
    def no_stored_message_has_grown_past_its_bound_and_each_can_be_read(self) -> None:
        for entity in list(self.harness.gate.machine.registry.all()):
            for row in self.harness.peek(path=entity.row.path):
                assert len(row.payload) <= self.sizes[row.message_id] + GROWTH_BYTES_MAX
                delivered = encode_delivery(row)
                sections.read_application_properties(delivered, sections.walk(delivered))

    def teardown(self) -> None:
        """Whatever was done to them, all of them can be received and completed."""
        self.open_or_close_the_way_on(QueueStatus.ACTIVE)
        self.harness.pass_time(LOCK_MS)
        for place in self.places():
            while lent := self.receive(place):
                assert self.harness.settle(Complete(), *lent, path=place) == {}
        left = [
            row for each in self.harness.gate.machine.registry.all() for row in self.harness.peek(path=each.row.path)
        ]
        assert left == []


def encoded(name: str, properties: dict[str, object], *, ttl_ms: int | None = None) -> bytes:
    return sections.encode_message(
        header=None if ttl_ms is None else Header(ttl_ms=ttl_ms),
        properties={PropertyField.MESSAGE_ID: name},
        application_properties=properties,
        data=b"body",
    )


TestMessagesWithNotes = MessagesWithNotes.TestCase
TestMessagesWithNotes.settings = settings(max_examples=examples(600, 60), stateful_step_count=25, deadline=None)


def test_a_reason_can_be_given_for_a_message_whose_properties_have_no_room_left() -> None:
    harness = NamespaceHarness()
    full = encoded("a", {"a": "p" * 32_000, "b": "p" * 32_000})
    harness.send(read_arrival(full, lambda: ""))
    (lent,) = harness.receive()
    assert isinstance(harness.settle(Abandon({"c": "q" * 2_000}), lent)[lent.token or b""], MessageTooLarge)
    assert harness.settle(DeadLetter({REASON: "Unreadable", DESCRIPTION: SMILE * 5_000}), lent) == {}
    (dead,) = harness.peek(path=DEAD_LETTERS)
    assert properties_of(dead)[REASON] == "Unreadable"
    assert properties_of(dead)[DESCRIPTION] == SMILE * 4_096


def test_the_reason_of_the_namespace_is_no_longer_than_one_of_a_receiver() -> None:
    harness = NamespaceHarness()
    harness.ask(CreateQueue(TARGET, QueueSettings(status=QueueStatus.SEND_DISABLED)))
    harness.ask(UpdateQueue(QUEUE, QueueSettings(forward_dead_letters_to=TARGET)))
    harness.send("a")
    harness.settle(DeadLetter({REASON: "r" * 4_000, DESCRIPTION: "d" * 4_000}), *harness.receive())
    (dead,) = harness.peek(path=TRANSFERS)
    text = str(properties_of(dead)[DESCRIPTION])
    assert len(text) == 4_096
    assert "could not be forwarded to 'later'" in text
    assert "It had been dead-lettered before: rrr" in text


@pytest.mark.parametrize(
    "outcome", [Abandon({"a": "p" * 20_000}), Defer({"a": "p" * 20_000}), DeadLetter({"a": "p" * 20_000})]
)
def test_what_receivers_write_on_messages_counts_against_the_maximum_size(outcome: SettlementOutcome) -> None:
    harness = NamespaceHarness(QueueSettings(max_size_mb=1))
    harness.send(arrival("a"), arrival("b"), arrival("c", body=bytes(MEGABYTE - 30_000)))
    lent, other = harness.receive(2)
    assert list(harness.settle(outcome, lent, other)) == [other.token]  # there is room for one of them
    (problem,) = harness.settle(outcome, other).values()
    assert isinstance(problem, QuotaExceeded)
    assert "settle the message without them" in str(problem)
    assert harness.settle(DeadLetter({REASON: "Unreadable", DESCRIPTION: "y" * 12_000}), other) == {}
    assert "b" in names(harness.peek(path=DEAD_LETTERS))


@pytest.mark.parametrize(
    "outcome", [Abandon({"a": "p" * 2_000}), Defer({"a": "p" * 2_000}), DeadLetter({"a": "p" * 2_000, REASON: "r"})]
)
@pytest.mark.parametrize("is_own", [True, False])
def test_receivers_cannot_make_a_message_larger_than_one_may_be_sent(outcome: SettlementOutcome, is_own: bool) -> None:
    settings = QueueSettings(max_message_kb=1024) if is_own else QueueSettings()
    harness = NamespaceHarness(settings, message_bytes_max=None if is_own else MEGABYTE)
    harness.send(arrival("a", body=bytes(MEGABYTE - 1_000)), arrival("b", body=bytes(MEGABYTE - 3_000)))
    lent, other = harness.receive(2)
    (problem,) = harness.settle(outcome, lent, other).values()
    assert isinstance(problem, MessageTooLarge)
    assert "settle it without them" in str(problem)
    assert harness.settle(type(outcome)(), lent) == {}  # it is still there, locked, and as it was


def test_a_reason_can_be_given_for_a_message_that_is_as_large_as_one_may_be() -> None:
    harness = NamespaceHarness(message_bytes_max=MEGABYTE)
    harness.send(arrival("a", body=bytes(MEGABYTE - 100)))
    (lent,) = harness.receive()
    assert harness.settle(DeadLetter({REASON: "Unreadable", DESCRIPTION: "y" * 4_000}), lent) == {}
    (dead,) = harness.peek(path=DEAD_LETTERS)
    assert properties_of(dead)[REASON] == "Unreadable"


def test_a_subscription_takes_messages_as_large_as_its_topic() -> None:
    harness = NamespaceHarness()
    harness.ask(CreateTopic("events", TopicSettings(max_message_kb=1024)))
    harness.ask(CreateSubscription("events", "s", QueueSettings()))
    harness.ask(SendMessages("events", (arrival("a", body=bytes(MEGABYTE - 1_000)),)))
    path = "events/subscriptions/s"
    (lent,) = harness.receive(path=path)
    (problem,) = harness.settle(Abandon({"a": "p" * 2_000}), lent, path=path).values()
    assert isinstance(problem, MessageTooLarge)
