"""What a peer asks for is done in steps, and what it says next waits while much of that is not done yet."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
from connection_harness import NOW_MS, ConnectionHarness

from twinbus.amqp.codec.outcomes import Accepted, Rejected
from twinbus.amqp.codec.types import Timestamp
from twinbus.amqp.events import Event, TransferArrived
from twinbus.amqp.message.sections import PropertyField, encode_message
from twinbus.amqp.sending_link import SendingLink
from twinbus.broker.core.commands import CreateQueue, CreateSubscription, CreateTopic
from twinbus.broker.core.namespace_backend import REQUESTS_AT_ONCE
from twinbus.broker.core.replies import WORK_PER_STEP
from twinbus.broker.entities.forwarding import HOP_WORK
from twinbus.broker.entities.settings import QueueSettings, TopicSettings
from twinbus.broker.links.dispatcher import MESSAGES_AT_ONCE, SMALL_AT_ONCE, SMALL_BYTES
from twinbus.broker.links.incoming import MESSAGES_PER_PART
from twinbus.broker.links.request_nodes import REQUEST_ELEMENTS
from twinbus.broker.message import BATCH_FORMAT, SCHEDULED_TIME

EMPTY = encode_message(value=None)


@pytest.fixture
def harness() -> ConnectionHarness:
    return ConnectionHarness()


def said(harness: ConnectionHarness) -> list[Event]:
    """Events of what the peer has sent, before the dispatcher takes them."""
    return harness.ours.receive(harness.peer.take_output(), NOW_MS)


def schedule(harness: ConnectionHarness, count: int, before: Callable[[], object] = lambda: None) -> None:
    """Ask so many times for a message to be scheduled; each is answered when it is written."""
    address = "orders/$management"
    answers = harness.receiver(address, settled=True)
    answers.grant(1_000)
    asking = harness.session.attach_sender("ask", address)
    harness.exchange()
    message = encode_message(annotations={SCHEDULED_TIME: Timestamp(NOW_MS + 60_000)}, value=None)
    asked = encode_message(
        properties={PropertyField.MESSAGE_ID: "asked", PropertyField.REPLY_TO: answers.name},
        application_properties={"operation": "com.microsoft:schedule-message"},
        value={"messages": [{"message": message}]},
    )
    before()
    for _ in range(count):
        asking.send(asked, tag=b"t", settled=True)


def batch(link: SendingLink, count: int) -> int:
    return link.send(encode_message(data=[EMPTY] * count), tag=b"t", message_format=BATCH_FORMAT)


def test_requests_wait_while_the_peer_has_enough_others_under_way(harness: ConnectionHarness) -> None:
    schedule(harness, 3 * REQUESTS_AT_ONCE)
    left = harness.dispatcher.take(said(harness), NOW_MS, lambda: harness.dispatcher.has_enough_to_do)
    assert len(left) == 2 * REQUESTS_AT_ONCE
    harness.store.commit()
    left = harness.dispatcher.take(left, NOW_MS, lambda: harness.dispatcher.has_enough_to_do)
    assert len(left) == REQUESTS_AT_ONCE
    assert harness.dispatcher.take(left, NOW_MS) == [], "who is not asked whether it is enough takes everything"
    harness.store.commit()
    assert len([event for event in harness.exchange() if isinstance(event, TransferArrived)]) == 3 * REQUESTS_AT_ONCE


def test_a_request_that_is_refused_is_done(harness: ConnectionHarness) -> None:
    for _ in range(2 * REQUESTS_AT_ONCE):
        harness.request("orders", "com.microsoft:schedule-message", {})
    assert not harness.dispatcher.has_enough_to_do


def test_a_large_batch_is_read_in_parts_and_stored_whole(harness: ConnectionHarness) -> None:
    link = harness.sender("orders")
    number = batch(link, 3 * MESSAGES_PER_PART)
    after = link.send(EMPTY, tag=b"t")
    left = said(harness)
    for _ in range(2):
        looks = iter((False, True))
        left = harness.dispatcher.take(left, NOW_MS, lambda looks=looks: next(looks))  # type: ignore[misc]
        assert len(left) == 2, "the batch is not whole yet"
        harness.store.commit()
        assert harness.stored("orders") == 0, "a batch is all or none"
    assert harness.dispatcher.take(left, NOW_MS) == []
    harness.store.commit()
    assert harness.stored("orders") == 3 * MESSAGES_PER_PART + 1
    assert {at: type(outcome) for at, outcome in harness.outcomes().items()} == {number: Accepted, after: Accepted}
    assert harness.dispatcher.unwritten_bytes == 0


def test_a_batch_with_one_wrong_message_in_a_later_part_is_refused_whole(harness: ConnectionHarness) -> None:
    link = harness.sender("orders")
    messages = [EMPTY] * (2 * MESSAGES_PER_PART) + [b"\x00\x53\x75"]
    broken = link.send(encode_message(data=messages), tag=b"t", message_format=BATCH_FORMAT)
    fine = batch(link, 1)
    left = said(harness)
    while left:
        looks = iter((False, True))
        left = harness.dispatcher.take(left, NOW_MS, lambda looks=looks: next(looks))  # type: ignore[misc]
    harness.store.commit()
    assert {at: type(outcome) for at, outcome in harness.outcomes().items()} == {broken: Rejected, fine: Accepted}
    assert harness.stored("orders") == 1


def test_batches_wait_while_as_many_messages_are_not_written_yet_as_one_may_have(harness: ConnectionHarness) -> None:
    link = harness.sender("orders")
    for _ in range(3):
        batch(link, MESSAGES_AT_ONCE)
    left = said(harness)
    left = harness.dispatcher.take(left, NOW_MS, lambda: harness.dispatcher.has_enough_to_do)
    assert len(left) == 2
    again = harness.dispatcher.take(left, NOW_MS, lambda: harness.dispatcher.has_enough_to_do)
    assert len(again) == 2, "nothing was written meanwhile"
    harness.store.commit()
    assert len(harness.dispatcher.take(left, NOW_MS, lambda: harness.dispatcher.has_enough_to_do)) == 1


def test_a_request_of_too_many_values_is_refused_before_it_is_decoded(harness: ConnectionHarness) -> None:
    asking = harness.session.attach_sender("ask", "orders/$management")
    harness.exchange()
    asked = encode_message(
        application_properties={"operation": "com.microsoft:schedule-message"},
        value={"messages": [[] for _ in range(REQUEST_ELEMENTS + 1)]},
    )
    number = asking.send(asked, tag=b"t")
    (outcome,) = harness.outcomes().items()
    assert outcome[0] == number
    assert isinstance(outcome[1], Rejected)
    assert outcome[1].error is not None
    assert "elements" in (outcome[1].error.description or "")


def test_a_token_is_a_few_values(harness: ConnectionHarness) -> None:
    asking = harness.session.attach_sender("ask", "$cbs")
    harness.exchange()
    asking.send(
        encode_message(application_properties={"operation": "put-token"}, value=[[] for _ in range(101)]), tag=b"t"
    )
    (outcome,) = harness.outcomes().values()
    assert isinstance(outcome, Rejected)


def test_messages_that_are_no_batch_are_handed_on_in_several_steps_and_need_not_line_up(
    harness: ConnectionHarness,
) -> None:
    """What lines up in a topic is written twice: only a batch, which is stored whole, has to."""
    harness.gate.do(CreateTopic("events", TopicSettings()), NOW_MS)
    for number in range(50):
        harness.gate.do(CreateSubscription("events", f"s{number}", QueueSettings()), NOW_MS)
    harness.store.commit()
    link = harness.sender("events")
    for _ in range(100):
        link.send(encode_message(data=b"x"), tag=b"t")
    harness.exchange()
    topic = harness.gate.machine.registry.find_topic("events")
    assert (topic.pending, topic.subscriptions["s0"].active) == (0, 100)
    harness.store.commit()
    harness.exchange()
    assert link.unsettled == {}


def test_one_step_takes_as_many_messages_as_their_copies_allow(harness: ConnectionHarness) -> None:
    machine = harness.gate.machine
    assert machine.messages_per_step("orders") is None
    assert machine.messages_per_step("not-there") is None
    harness.gate.do(CreateTopic("events", TopicSettings()), NOW_MS)
    assert machine.messages_per_step("events") == WORK_PER_STEP // 2
    for number in range(50):
        harness.gate.do(CreateSubscription("events", f"s{number}", QueueSettings()), NOW_MS)
    harness.store.commit()
    assert machine.messages_per_step("events") == WORK_PER_STEP // 2 // 51
    harness.gate.do(CreateQueue("forwards", QueueSettings(forward_to="events")), NOW_MS)
    harness.store.commit()
    assert machine.messages_per_step("forwards") == int(WORK_PER_STEP / 2 / (51 + HOP_WORK))


def looks(harness: ConnectionHarness) -> int:
    """How often it is asked whether what the peer has sent is enough; it never is."""
    asked = count()
    assert harness.dispatcher.take(said(harness), NOW_MS, lambda: next(asked) < 0) == []
    return next(asked)


def test_of_small_messages_several_are_taken_before_it_is_asked_again_whether_that_is_enough(
    harness: ConnectionHarness,
) -> None:
    link = harness.sender("orders")
    for _ in range(3 * SMALL_AT_ONCE):
        link.send(EMPTY, tag=b"t")
    assert looks(harness) == 3


def test_it_is_asked_after_everything_else_that_is_taken(harness: ConnectionHarness) -> None:
    link = harness.sender("orders")
    for _ in range(5):
        link.send(encode_message(data=bytes(SMALL_BYTES)), tag=b"t")
    assert looks(harness) == 5, "large messages"
    for _ in range(5):
        batch(link, 2)
    assert looks(harness) == 5, "batches, which may have many"
    schedule(harness, 5, before=lambda: link.send(EMPTY, tag=b"t"))
    assert looks(harness) == 5, "requests, and once for the small message before them"


def test_it_is_asked_after_each_message_that_is_sent_by_itself(
    harness: ConnectionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness.backend, "messages_per_send", lambda path: 1)  # as where one becomes a thousand copies
    link = harness.sender("orders")
    for _ in range(5):
        link.send(EMPTY, tag=b"t")
    assert looks(harness) == 5
    harness.store.commit()
    assert harness.stored("orders") == 5
