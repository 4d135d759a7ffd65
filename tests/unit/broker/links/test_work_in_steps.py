"""What a peer asks for is done in steps, and what it says next waits while much of that is not done yet."""

from __future__ import annotations

import pytest
from connection_harness import NOW_MS, Hall

from twinbus.amqp.events import Event, TransferArrived
from twinbus.amqp.outcomes import Accepted, Rejected
from twinbus.amqp.sections import PropertyField, encode_message
from twinbus.amqp.sending_link import SendingLink
from twinbus.amqp.types import Timestamp
from twinbus.broker.core.commands import CreateQueue, CreateSubscription, CreateTopic
from twinbus.broker.core.replies import WORK_PER_STEP
from twinbus.broker.entities.forwarding import HOP_WORK
from twinbus.broker.entities.settings import QueueSettings, TopicSettings
from twinbus.broker.links.dispatcher import MESSAGES_AT_ONCE, REQUESTS_AT_ONCE
from twinbus.broker.links.incoming import MESSAGES_PER_PART
from twinbus.broker.links.request_nodes import REQUEST_ELEMENTS
from twinbus.broker.message import BATCH_FORMAT, SCHEDULED_TIME

EMPTY = encode_message(value=None)


@pytest.fixture
def hall() -> Hall:
    return Hall()


def said(hall: Hall) -> list[Event]:
    """What the peer has said, as the engine tells it; the door has not heard it yet."""
    return hall.ours.receive(hall.peer.take_output(), NOW_MS)


def schedule(hall: Hall, count: int) -> None:
    """Ask so many times for a message to be scheduled; each is answered when it is written."""
    address = "orders/$management"
    answers = hall.receiver(address, settled=True)
    answers.grant(1_000)
    asking = hall.session.attach_sender("ask", address)
    hall.exchange()
    message = encode_message(annotations={SCHEDULED_TIME: Timestamp(NOW_MS + 60_000)}, value=None)
    asked = encode_message(
        properties={PropertyField.MESSAGE_ID: "asked", PropertyField.REPLY_TO: answers.name},
        application_properties={"operation": "com.microsoft:schedule-message"},
        value={"messages": [{"message": message}]},
    )
    for _ in range(count):
        asking.send(asked, tag=b"t", settled=True)


def batch(link: SendingLink, count: int) -> int:
    return link.send(encode_message(data=[EMPTY] * count), tag=b"t", message_format=BATCH_FORMAT)


def test_requests_wait_while_the_peer_has_enough_others_under_way(hall: Hall) -> None:
    schedule(hall, 3 * REQUESTS_AT_ONCE)
    left = hall.dispatcher.take(said(hall), NOW_MS, lambda: hall.dispatcher.has_enough_to_do)
    assert len(left) == 2 * REQUESTS_AT_ONCE
    hall.store.commit()
    left = hall.dispatcher.take(left, NOW_MS, lambda: hall.dispatcher.has_enough_to_do)
    assert len(left) == REQUESTS_AT_ONCE
    assert hall.dispatcher.take(left, NOW_MS) == [], "who is not asked whether it is enough takes everything"
    hall.store.commit()
    assert len([event for event in hall.exchange() if isinstance(event, TransferArrived)]) == 3 * REQUESTS_AT_ONCE


def test_a_request_that_is_refused_is_done(hall: Hall) -> None:
    for _ in range(2 * REQUESTS_AT_ONCE):
        hall.request("orders", "com.microsoft:schedule-message", {})
    assert not hall.dispatcher.has_enough_to_do


def test_a_large_batch_is_read_in_parts_and_stored_whole(hall: Hall) -> None:
    link = hall.sender("orders")
    number = batch(link, 3 * MESSAGES_PER_PART)
    after = link.send(EMPTY, tag=b"t")
    left = said(hall)
    for _ in range(2):
        looks = iter((False, True))
        left = hall.dispatcher.take(left, NOW_MS, lambda looks=looks: next(looks))  # type: ignore[misc]
        assert len(left) == 2, "the batch is not whole yet"
        hall.store.commit()
        assert hall.stored("orders") == 0, "a batch is all or none"
    assert hall.dispatcher.take(left, NOW_MS) == []
    hall.store.commit()
    assert hall.stored("orders") == 3 * MESSAGES_PER_PART + 1
    assert {at: type(told) for at, told in hall.outcomes().items()} == {number: Accepted, after: Accepted}
    assert hall.dispatcher.unwritten_bytes == 0


def test_a_batch_with_one_wrong_message_in_a_later_part_is_refused_whole(hall: Hall) -> None:
    link = hall.sender("orders")
    messages = [EMPTY] * (2 * MESSAGES_PER_PART) + [b"\x00\x53\x75"]
    broken = link.send(encode_message(data=messages), tag=b"t", message_format=BATCH_FORMAT)
    fine = batch(link, 1)
    left = said(hall)
    while left:
        looks = iter((False, True))
        left = hall.dispatcher.take(left, NOW_MS, lambda looks=looks: next(looks))  # type: ignore[misc]
    hall.store.commit()
    assert {at: type(told) for at, told in hall.outcomes().items()} == {broken: Rejected, fine: Accepted}
    assert hall.stored("orders") == 1


def test_batches_wait_while_as_many_messages_are_not_written_yet_as_one_may_have(hall: Hall) -> None:
    link = hall.sender("orders")
    for _ in range(3):
        batch(link, MESSAGES_AT_ONCE)
    left = said(hall)
    left = hall.dispatcher.take(left, NOW_MS, lambda: hall.dispatcher.has_enough_to_do)
    assert len(left) == 2
    again = hall.dispatcher.take(left, NOW_MS, lambda: hall.dispatcher.has_enough_to_do)
    assert len(again) == 2, "nothing was written meanwhile"
    hall.store.commit()
    assert len(hall.dispatcher.take(left, NOW_MS, lambda: hall.dispatcher.has_enough_to_do)) == 1


def test_a_request_of_too_many_values_is_refused_before_it_is_decoded(hall: Hall) -> None:
    asking = hall.session.attach_sender("ask", "orders/$management")
    hall.exchange()
    asked = encode_message(
        application_properties={"operation": "com.microsoft:schedule-message"},
        value={"messages": [[] for _ in range(REQUEST_ELEMENTS + 1)]},
    )
    number = asking.send(asked, tag=b"t")
    (told,) = hall.outcomes().items()
    assert told[0] == number
    assert isinstance(told[1], Rejected)
    assert told[1].error is not None
    assert "elements" in (told[1].error.description or "")


def test_a_token_is_a_few_values(hall: Hall) -> None:
    asking = hall.session.attach_sender("ask", "$cbs")
    hall.exchange()
    asking.send(
        encode_message(application_properties={"operation": "put-token"}, value=[[] for _ in range(101)]), tag=b"t"
    )
    (told,) = hall.outcomes().values()
    assert isinstance(told, Rejected)


def test_messages_that_are_no_batch_are_handed_on_in_several_steps_and_need_not_line_up(hall: Hall) -> None:
    """What lines up in a topic is written twice: only a batch, which is stored whole, has to."""
    hall.gate.do(CreateTopic("events", TopicSettings()), NOW_MS)
    for number in range(50):
        hall.gate.do(CreateSubscription("events", f"s{number}", QueueSettings()), NOW_MS)
    hall.store.commit()
    link = hall.sender("events")
    for _ in range(100):
        link.send(encode_message(data=b"x"), tag=b"t")
    hall.exchange()
    topic = hall.gate.machine.registry.find_topic("events")
    assert (topic.pending, topic.subscriptions["s0"].active) == (0, 100)
    hall.store.commit()
    hall.exchange()
    assert link.unsettled == {}


def test_one_step_takes_as_many_messages_as_their_copies_allow(hall: Hall) -> None:
    machine = hall.gate.machine
    assert machine.messages_per_step("orders") is None
    assert machine.messages_per_step("not-there") is None
    hall.gate.do(CreateTopic("events", TopicSettings()), NOW_MS)
    assert machine.messages_per_step("events") == WORK_PER_STEP // 2
    for number in range(50):
        hall.gate.do(CreateSubscription("events", f"s{number}", QueueSettings()), NOW_MS)
    hall.store.commit()
    assert machine.messages_per_step("events") == WORK_PER_STEP // 2 // 51
    hall.gate.do(CreateQueue("forwards", QueueSettings(forward_to="events")), NOW_MS)
    hall.store.commit()
    assert machine.messages_per_step("forwards") == int(WORK_PER_STEP / 2 / (51 + HOP_WORK))
