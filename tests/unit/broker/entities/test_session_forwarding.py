"""Queues and subscriptions with sessions that forward: switched on and off, and nothing is lost or sent twice."""

from __future__ import annotations

from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st
from namespace_harness import QUEUE, NamespaceHarness, names

from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.broker.core.commands import (
    AcceptSession,
    Command,
    CreateQueue,
    CreateSubscription,
    CreateTopic,
    Grant,
    SendMessages,
    SettleMessages,
    UpdateQueue,
)
from twinbus.broker.core.replies import Delivery
from twinbus.broker.entities.settings import QueueSettings, TopicSettings
from twinbus.broker.message import Arrival, read_arrival
from twinbus.broker.operations import Abandon, Done, ReceiveMode, Refused, SessionAccepted
from twinbus.errors import NotAllowed

FIRST = "first"
_receivers = count(50_000)


def message(name: str, session: str) -> Arrival:
    fields = {PropertyField.MESSAGE_ID: name, PropertyField.GROUP_ID: session}
    return read_arrival(sections.encode_message(properties=fields, data=b"body"), lambda: "unused")


class Sessions(NamespaceHarness):
    """`first` has sessions and forwards to `orders`, or not."""

    def __init__(self, forward_to: str | None = QUEUE) -> None:
        super().__init__()
        self.make(CreateQueue(FIRST, QueueSettings(requires_session=True, forward_to=forward_to)))

    def make(self, command: Command[object]) -> None:
        assert isinstance(self.ask(command), Done)

    def forward(self, to: str | None) -> None:
        self.make(UpdateQueue(FIRST, QueueSettings(requires_session=True, forward_to=to)))
        self.pass_time(0)

    def give(self, *sent: str, path: str = FIRST) -> None:
        """Messages such as `a1` for session `a`."""
        reply = self.ask(SendMessages(path, tuple(message(each, each[0]) for each in sent)))
        assert isinstance(reply, Done), reply
        self.pass_time(0)

    def at(self, path: str) -> list[str | None]:
        return names(self.peek(path=path))

    def accept(self, session: str, credit: int = 10) -> list[Delivery]:
        """Lock a session and receive from it."""
        receiver = next(_receivers)
        self.take()
        found = self.ask(AcceptSession(receiver, FIRST, ReceiveMode.PEEK_LOCK, session, 1_000))
        if isinstance(found, SessionAccepted):
            self.do(Grant(receiver, credit))
            self.commit()
        return [each for each in self.deliveries() if each.receiver == receiver]


def test_messages_go_on_with_their_sessions_and_in_order() -> None:
    harness = Sessions()
    harness.give("a1", "b1", "a2")
    assert (harness.at(FIRST), harness.at(QUEUE)) == ([], ["a1", "b1", "a2"])
    assert [row.session_id for row in harness.peek()] == ["a", "b", "a"]


def test_nobody_receives_from_what_forwards() -> None:
    harness = Sessions()
    refused = harness.ask(AcceptSession(1, FIRST, ReceiveMode.PEEK_LOCK, "a", 1_000))
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, NotAllowed)
    assert "receive from there" in str(refused.error)


def test_a_message_still_needs_a_session() -> None:
    harness = Sessions()
    bare = read_arrival(sections.encode_message(data=b"body"), lambda: "bare")
    assert isinstance(harness.refusal(SendMessages(FIRST, (bare,))), NotAllowed)


def test_a_subscription_with_sessions_forwards() -> None:
    harness = NamespaceHarness()
    for command in (
        CreateTopic("events", TopicSettings()),
        CreateSubscription("events", "all", QueueSettings(requires_session=True, forward_to=QUEUE)),
        SendMessages("events", (message("a1", "a"),)),
    ):
        assert isinstance(harness.ask(command), Done)
    harness.pass_time(0)
    assert names(harness.peek()) == ["a1"]


def test_what_waits_is_forwarded_when_that_is_switched_on_also_what_was_locked() -> None:
    harness = Sessions(forward_to=None)
    harness.give("a1", "a2", "b1")
    locked = harness.accept("a")
    assert names(locked) == ["a1", "a2"]
    harness.settle(Abandon(), locked[0], path=FIRST)
    harness.forward(QUEUE)
    assert (harness.at(FIRST), harness.at(QUEUE)) == ([], ["a1", "a2", "b1"])
    harness.give("a3")
    assert harness.at(QUEUE) == ["a1", "a2", "b1", "a3"]


def test_what_comes_after_it_is_switched_off_is_received_in_sessions() -> None:
    harness = Sessions()
    harness.give("a1")
    harness.forward(None)
    harness.give("a2", "b2")
    assert harness.at(QUEUE) == ["a1"]
    assert names(harness.accept("a")) == ["a2"]


def test_a_restart_forwards_what_was_left() -> None:
    harness = Sessions(forward_to=None)
    harness.give("a1", "b1")
    harness.do(UpdateQueue(FIRST, QueueSettings(requires_session=True, forward_to=QUEUE)))
    harness.store.commit(1)
    harness.restart()
    harness.pass_time(0)
    harness.commit()
    assert (harness.at(FIRST), harness.at(QUEUE)) == ([], ["a1", "b1"])


ACTIONS = st.lists(
    st.sampled_from(["send", "send", "switch", "accept", "abandon", "commit", "commit-one", "wait", "restart"]),
    min_size=6,
    max_size=40,
)


@settings(max_examples=300)
@given(ACTIONS, st.booleans())
def test_nothing_is_lost_or_forwarded_twice_however_it_is_switched(actions: list[str], checks_duplicates: bool) -> None:
    harness = Sessions(forward_to=None)
    harness.make(CreateQueue("last", QueueSettings(requires_duplicate_detection=checks_duplicates)))
    numbers, is_forwarding = count(1), False
    locked: list[Delivery] = []
    for action in [*actions, "commit"]:
        match action:
            case "send":
                number = next(numbers)
                name = f"{'ab'[number % 2]}{number}"
                harness.do(SendMessages(FIRST, (message(name, name[0]),)), name)
            case "switch":
                is_forwarding = not is_forwarding
                target = "last" if is_forwarding else None
                harness.do(UpdateQueue(FIRST, QueueSettings(requires_session=True, forward_to=target)))
            case "accept":
                receiver = next(_receivers)
                harness.do(AcceptSession(receiver, FIRST, ReceiveMode.PEEK_LOCK, "ab"[receiver % 2], 100))
                harness.do(Grant(receiver, 2))
            case "abandon":
                locked += harness.deliveries()
                tokens = tuple(each.token for each in locked if each.token is not None)
                harness.do(SettleMessages(FIRST, tokens, Abandon()))
                locked = []
            case "commit":
                harness.commit()
            case "commit-one":
                harness.commit(min(1, len(harness.store._waiting)))
            case "wait":
                harness.pass_time(30_000)
            case "restart":
                harness.commit()
                harness.restart()
                locked = []
    harness.forward("last")
    harness.pass_time(0)
    harness.commit()
    answers = zip(harness.names, harness.replies, strict=True)
    stored = [name for name, reply in answers if name is not None and isinstance(reply, Done)]
    assert sorted(map(str, harness.at("last"))) == sorted(map(str, stored))
    assert harness.at(FIRST) == []
