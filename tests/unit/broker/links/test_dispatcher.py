"""What a connection may rely on, frame by frame: the rules of the official clients and of hostile ones."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pytest
from connection_harness import MEGABYTE, NOW_MS, Hall

from twinbus.amqp import sections
from twinbus.amqp.events import DispositionArrived, Drained, LinkRefused, TransferArrived
from twinbus.amqp.outcomes import Accepted, Error, Modified, Outcome, Rejected, Released
from twinbus.amqp.performatives import Source
from twinbus.amqp.sections import PropertyField, encode_message
from twinbus.amqp.types import Int, Long, Symbol, Timestamp, ULong
from twinbus.broker.core.commands import DeleteEntity
from twinbus.broker.links import connection_context as reception


@pytest.fixture
def hall() -> Hall:
    return Hall()


def message(text: str, **parts: object) -> bytes:
    return encode_message(properties={PropertyField.MESSAGE_ID: text}, data=text.encode(), **parts)  # type: ignore[arg-type]


def bodies(events: Sequence[object]) -> list[bytes]:
    return [
        b"".join(sections.data_sections(event.payload, sections.walk(event.payload)))
        for event in events
        if isinstance(event, TransferArrived)
    ]


def status_of(answer: TransferArrived | None) -> int:
    assert answer is not None, "never answered"
    properties = sections.read_application_properties(answer.payload, sections.walk(answer.payload))
    return int(properties["statusCode"])


# --- requests and responses ---


@pytest.mark.parametrize("message_id", [uuid.uuid4(), "text", ULong(7), b"bytes"])
def test_a_response_is_correlated_with_an_id_of_the_same_type(hall: Hall, message_id: object) -> None:
    answer = hall.request(
        "orders", "com.microsoft:peek-message", {"from-sequence-number": Long(1), "message-count": 1}, message_id
    )
    assert answer is not None
    found = sections.read_property(answer.payload, sections.walk(answer.payload), PropertyField.CORRELATION_ID)
    assert (type(found), found) == (type(message_id), message_id)


def test_nothing_found_is_204_and_a_missing_sequence_404(hall: Hall) -> None:
    peek = hall.request("orders", "com.microsoft:peek-message", {"from-sequence-number": Long(1), "message-count": 5})
    assert status_of(peek) == 204
    deferred = hall.request("orders", "com.microsoft:receive-by-sequence-number", {"sequence-numbers": [Long(9)]})
    assert status_of(deferred) == 404


def test_a_peek_can_leave_the_bodies_out(hall: Hall) -> None:
    hall.deliver("orders", message("1", application_properties={"kept": True}))
    body = {"from-sequence-number": Long(1), "message-count": Int(5), "omit-message-body": True}
    answer = hall.request("orders", "com.microsoft:peek-message", body)
    assert answer is not None
    (found,) = sections.read_value(answer.payload, sections.walk(answer.payload))["messages"]
    layout = sections.walk(found["message"])
    assert layout.body is None
    assert sections.read_property(found["message"], layout, PropertyField.MESSAGE_ID) == "1"
    assert sections.read_application_properties(found["message"], layout) == {"kept": True}


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        ("peek-message", {"from-sequence-number": ULong(2**64 - 1), "message-count": Int(1)}),
        ("peek-message", {"from-sequence-number": Long(1), "message-count": Int(0)}),
        ("peek-message", {"from-sequence-number": "one", "message-count": Int(1)}),
        ("peek-message", None),
        ("receive-by-sequence-number", {"sequence-numbers": [ULong(2**64 - 1)]}),
        ("receive-by-sequence-number", {"sequence-numbers": []}),
        ("renew-lock", {"lock-tokens": ["no uuid"]}),
        ("update-disposition", {"disposition-status": "lost", "lock-tokens": [uuid.uuid4()]}),
        ("schedule-message", {"messages": [{"message": "text"}]}),
        ("schedule-message", {"messages": [{"message": b"\x00\x53\x75"}]}),
        ("no-such-operation", {}),
    ],
)
def test_a_wrong_request_is_answered_with_400_and_harms_nobody(hall: Hall, operation: str, body: object) -> None:
    assert status_of(hall.request("orders", f"com.microsoft:{operation}", body)) == 400
    assert hall.gate.failure is None


def test_scheduling_messages_is_held_to_what_can_be_written(hall: Hall) -> None:
    body = {"messages": [{"message": encode_message(data=b"x" * (MEGABYTE // 2))}] * 1}
    statuses = []
    for number in range(40):
        answer = hall.request(f"{'orders' if number % 2 else 'others'}", "com.microsoft:schedule-message", body)
        statuses.append(None if answer is None else status_of(answer))
    assert hall.dispatcher.unwritten_bytes <= 2 * MEGABYTE, "a queue of 1 MB takes one of these"
    hall.store.commit()
    assert hall.dispatcher.unwritten_bytes == 0


# --- messages that cannot be read ---

BROKEN_ANNOTATIONS = bytes.fromhex("005372c10302ffff")
BROKEN_DELIVERY_ANNOTATIONS = bytes.fromhex("005371c10302ffff")


@pytest.mark.parametrize("broken", [BROKEN_ANNOTATIONS, BROKEN_DELIVERY_ANNOTATIONS])
def test_a_message_that_could_not_be_delivered_is_refused_when_it_is_sent(hall: Hall, broken: bytes) -> None:
    link = hall.sender("orders")
    link.send(broken + message("x"), tag=b"t")
    (outcome,) = hall.outcomes().values()
    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    assert outcome.error.condition == "amqp:decode-error"


def test_a_schedule_that_is_no_timestamp_is_refused(hall: Hall) -> None:
    link = hall.sender("orders")
    link.send(message("x", annotations={"x-opt-scheduled-enqueue-time": ULong(2**64 - 1)}), tag=b"t")
    (outcome,) = hall.outcomes().values()
    assert isinstance(outcome, Rejected)
    link.send(message("y", annotations={"x-opt-scheduled-enqueue-time": Timestamp(2**63 - 1)}), tag=b"t")
    hall.exchange()
    hall.store.commit()
    assert [type(outcome) for outcome in hall.outcomes().values()] == [Accepted]


# --- receiving ---


def test_credit_that_came_with_the_end_of_its_link_lends_nothing(hall: Hall) -> None:
    hall.deliver("orders", message("1"), message("2"))
    for settled in (False, True):
        link = hall.receiver("orders", settled=settled)
        link.grant(2)
        link.detach()
        assert bodies(hall.exchange()) == []
        hall.store.commit()
    again = hall.receiver("orders")
    again.grant(5)
    assert bodies(hall.exchange()) == [b"1", b"2"]


def test_an_empty_queue_answers_a_drain_at_once(hall: Hall) -> None:
    link = hall.receiver("orders")
    link.grant(5)
    hall.exchange()
    link.drain()
    assert any(isinstance(event, Drained) for event in hall.exchange())


def test_a_drain_brings_what_is_there_first(hall: Hall) -> None:
    hall.deliver("orders", message("1"), message("2"))
    link = hall.receiver("orders")
    link.grant(5)
    link.drain()
    heard = hall.exchange()
    assert bodies(heard) == [b"1", b"2"]
    assert isinstance(heard[-1], Drained)


def test_a_drain_waits_for_deletions_that_are_being_written(hall: Hall) -> None:
    hall.deliver("orders", message("1"))
    link = hall.receiver("orders", settled=True)
    link.grant(5)
    link.drain()
    assert hall.exchange() == [], "the deletion is not durable: neither the message nor the end may be told"
    hall.store.commit()
    heard = hall.exchange()
    assert bodies(heard) == [b"1"]
    assert isinstance(heard[-1], Drained)


@pytest.mark.parametrize(
    ("said", "answered", "state"),
    [
        (Accepted(), Accepted(), (0, 0, 0)),
        (Modified(True, False), Modified(True, False), (1, 0, 0)),
        (Modified(None, False, {Symbol("k"): "v"}), Modified(None, False), (1, 0, 0)),
        (Modified(None, True, {"k": "v"}), Modified(None, True), (0, 1, 0)),
        (
            Rejected(Error("com.microsoft:dead-letter", None, {Symbol("DeadLetterReason"): "bad"})),
            Rejected(),
            (0, 0, 1),
        ),
        (Released(), Released(), (1, 0, 0)),
    ],
    ids=["complete", "abandon", "abandon-js", "defer-js", "dead-letter", "release"],
)
def test_a_settlement_is_answered_with_the_same_outcome_when_it_is_durable(
    hall: Hall, said: Outcome, answered: Outcome, state: tuple[int, int, int]
) -> None:
    hall.deliver("orders", message("1"))
    link = hall.receiver("orders")
    link.grant(1)
    (delivery,) = [event for event in hall.exchange() if isinstance(event, TransferArrived)]
    link.settle(delivery.delivery_id, delivery.delivery_id, said, settled=False)
    early = hall.exchange()
    assert bool(early) == isinstance(said, Released), "a release changes nothing on disk, the others do"
    hall.store.commit()
    (told,) = [event for event in early + hall.exchange() if isinstance(event, DispositionArrived)]
    assert (told.outcome, told.settled) == (answered, True)
    queue = hall.gate.machine.registry.find_queue("orders")
    assert queue.dead_letter is not None
    assert (queue.active, queue.deferred, queue.dead_letter.active) == state


def test_settling_what_is_not_locked_any_more_is_a_lost_lock(hall: Hall) -> None:
    hall.deliver("orders", message("1"))
    link = hall.receiver("orders")
    link.grant(1)
    (delivery,) = [event for event in hall.exchange() if isinstance(event, TransferArrived)]
    token = uuid.UUID(bytes_le=delivery.tag)
    answer = hall.request(
        "orders", "com.microsoft:update-disposition", {"disposition-status": "completed", "lock-tokens": [token]}
    )
    assert answer is None, "not durable yet"
    link.settle(delivery.delivery_id, delivery.delivery_id, Accepted(), settled=False)
    (told,) = [event for event in hall.exchange() if isinstance(event, DispositionArrived)]
    assert isinstance(told.outcome, Rejected)
    assert told.outcome.error is not None
    assert told.outcome.error.condition == "com.microsoft:message-lock-lost"


# --- links ---


@pytest.mark.parametrize("address", ["typo", "orders/$deadletterqueue", "", "/"])
def test_a_sender_to_what_cannot_be_sent_to_is_refused(hall: Hall, address: str) -> None:
    hall.session.attach_sender("link", address)
    (refusal,) = [event for event in hall.exchange() if isinstance(event, LinkRefused)]
    assert refusal.error is not None
    assert refusal.error.condition in ("amqp:not-found", "amqp:not-allowed")


@pytest.mark.parametrize("address", ["orders", "/orders", "amqps://host:5671/orders", "sb://host/Orders", "ORDERS/"])
def test_an_entity_is_found_under_every_form_of_its_address(hall: Hall, address: str) -> None:
    assert hall.sender(address).attached


@pytest.mark.parametrize("session", [5, "a", None])
def test_a_refused_receiver_is_forgotten(hall: Hall, session: object) -> None:
    hall.session.attach_receiver("link", Source("orders", filter={Symbol("com.microsoft:session-filter"): session}))
    assert [event for event in hall.exchange() if isinstance(event, LinkRefused)]
    assert hall.context.receivers == 0


# --- attaches that wait for the disk ---


def test_transfer_dead_letters_are_opened_when_they_have_been_made(hall: Hall) -> None:
    link = hall.session.attach_receiver("transfers", "orders/$transfer/$deadletterqueue")
    link.grant(5)
    hall.exchange()
    assert not link.attached
    hall.context.unflushed.clear()
    hall.store.commit()
    assert hall.dispatcher in hall.context.unflushed, "nobody would send the answer"
    hall.exchange()
    assert link.attached


def test_who_leaves_before_transfer_dead_letters_are_made_leaves_no_receiver(hall: Hall) -> None:
    link = hall.session.attach_receiver("transfers", "orders/$transfer/$deadletterqueue")
    hall.exchange()
    link.detach()
    hall.exchange()
    hall.store.commit()
    hall.exchange()
    assert hall.gate.machine.registry.find_queue("orders/$transfer/$deadletterqueue").receivers.all == {}


def test_of_very_many_receivers_that_lose_their_queue_some_are_told_at_a_time(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reception, "LOST_AT_ONCE", 2)
    links = [hall.receiver("orders") for _ in range(5)]
    hall.gate.do(DeleteEntity("orders"), NOW_MS)
    hall.store.commit()
    told = []
    for later_ms in (0, reception.LOST_EVERY_MS, 2 * reception.LOST_EVERY_MS):
        hall.context.delayed.run_due(NOW_MS + later_ms)
        hall.exchange()
        told.append(sum(not link.attached for link in links))
    assert told == [2, 4, 5]
