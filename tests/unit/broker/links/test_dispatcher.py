"""What a connection may rely on, frame by frame: the rules of the official clients and of hostile ones."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pytest
from connection_harness import MEGABYTE, NOW_MS, ConnectionHarness

from twinbus.amqp.codec.outcomes import Accepted, Error, Modified, Outcome, Rejected, Released
from twinbus.amqp.codec.performatives import Source
from twinbus.amqp.codec.types import Int, Long, Symbol, Timestamp, ULong
from twinbus.amqp.events import DispositionArrived, Drained, LinkRefused, TransferArrived
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField, encode_message
from twinbus.broker.core.commands import DeleteEntity
from twinbus.broker.links import connection_context


@pytest.fixture
def harness() -> ConnectionHarness:
    return ConnectionHarness()


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
def test_a_response_is_correlated_with_an_id_of_the_same_type(harness: ConnectionHarness, message_id: object) -> None:
    answer = harness.request(
        "orders", "com.microsoft:peek-message", {"from-sequence-number": Long(1), "message-count": 1}, message_id
    )
    assert answer is not None
    found = sections.read_property(answer.payload, sections.walk(answer.payload), PropertyField.CORRELATION_ID)
    assert (type(found), found) == (type(message_id), message_id)


def test_nothing_found_is_204_and_a_missing_sequence_404(harness: ConnectionHarness) -> None:
    peek = harness.request(
        "orders", "com.microsoft:peek-message", {"from-sequence-number": Long(1), "message-count": 5}
    )
    assert status_of(peek) == 204
    deferred = harness.request("orders", "com.microsoft:receive-by-sequence-number", {"sequence-numbers": [Long(9)]})
    assert status_of(deferred) == 404


def test_a_peek_can_leave_the_bodies_out(harness: ConnectionHarness) -> None:
    harness.deliver("orders", message("1", application_properties={"kept": True}))
    body = {"from-sequence-number": Long(1), "message-count": Int(5), "omit-message-body": True}
    answer = harness.request("orders", "com.microsoft:peek-message", body)
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
def test_a_wrong_request_is_answered_with_400_and_harms_nobody(
    harness: ConnectionHarness, operation: str, body: object
) -> None:
    assert status_of(harness.request("orders", f"com.microsoft:{operation}", body)) == 400
    assert harness.gate.failure is None


def test_scheduling_messages_is_held_to_what_can_be_written(harness: ConnectionHarness) -> None:
    body = {"messages": [{"message": encode_message(data=b"x" * (MEGABYTE // 2))}] * 1}
    statuses = []
    for number in range(40):
        answer = harness.request(f"{'orders' if number % 2 else 'others'}", "com.microsoft:schedule-message", body)
        statuses.append(None if answer is None else status_of(answer))
    assert harness.dispatcher.unwritten_bytes <= 2 * MEGABYTE, "a queue of 1 MB takes one of these"
    harness.store.commit()
    assert harness.dispatcher.unwritten_bytes == 0


@pytest.mark.parametrize("operation", ["schedule-message", "Schedule-Message", "COM.MICROSOFT:schedule-message"])
def test_how_the_name_of_a_request_is_written_does_not_matter(harness: ConnectionHarness, operation: str) -> None:
    body = {"messages": [{"message": encode_message(data=b"x")}]}
    assert harness.request("orders", operation, body) is None, "the answer waits for the disk"
    assert harness.dispatcher.unwritten_bytes > 0


# --- messages that cannot be read ---

BROKEN_ANNOTATIONS = bytes.fromhex("005372c10302ffff")
BROKEN_DELIVERY_ANNOTATIONS = bytes.fromhex("005371c10302ffff")


@pytest.mark.parametrize("broken", [BROKEN_ANNOTATIONS, BROKEN_DELIVERY_ANNOTATIONS])
def test_a_message_that_could_not_be_delivered_is_refused_when_it_is_sent(
    harness: ConnectionHarness, broken: bytes
) -> None:
    link = harness.sender("orders")
    link.send(broken + message("x"), tag=b"t")
    (outcome,) = harness.outcomes().values()
    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    assert outcome.error.condition == "amqp:decode-error"


def test_a_schedule_that_is_no_timestamp_is_refused(harness: ConnectionHarness) -> None:
    link = harness.sender("orders")
    link.send(message("x", annotations={"x-opt-scheduled-enqueue-time": ULong(2**64 - 1)}), tag=b"t")
    (outcome,) = harness.outcomes().values()
    assert isinstance(outcome, Rejected)
    link.send(message("y", annotations={"x-opt-scheduled-enqueue-time": Timestamp(2**63 - 1)}), tag=b"t")
    harness.exchange()
    harness.store.commit()
    assert [type(outcome) for outcome in harness.outcomes().values()] == [Accepted]


# --- receiving ---


def test_credit_that_came_with_the_end_of_its_link_delivers_nothing(harness: ConnectionHarness) -> None:
    harness.deliver("orders", message("1"), message("2"))
    for settled in (False, True):
        link = harness.receiver("orders", settled=settled)
        link.grant(2)
        link.detach()
        assert bodies(harness.exchange()) == []
        harness.store.commit()
    again = harness.receiver("orders")
    again.grant(5)
    assert bodies(harness.exchange()) == [b"1", b"2"]


def test_an_empty_queue_answers_a_drain_at_once(harness: ConnectionHarness) -> None:
    link = harness.receiver("orders")
    link.grant(5)
    harness.exchange()
    link.drain()
    assert any(isinstance(event, Drained) for event in harness.exchange())


def test_a_drain_brings_what_is_there_first(harness: ConnectionHarness) -> None:
    harness.deliver("orders", message("1"), message("2"))
    link = harness.receiver("orders")
    link.grant(5)
    link.drain()
    heard = harness.exchange()
    assert bodies(heard) == [b"1", b"2"]
    assert isinstance(heard[-1], Drained)


def test_a_drain_waits_for_deletions_that_are_being_written(harness: ConnectionHarness) -> None:
    harness.deliver("orders", message("1"))
    link = harness.receiver("orders", settled=True)
    link.grant(5)
    link.drain()
    assert harness.exchange() == [], "the deletion is not durable: neither the message nor the end may be told"
    harness.store.commit()
    heard = harness.exchange()
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
    harness: ConnectionHarness, said: Outcome, answered: Outcome, state: tuple[int, int, int]
) -> None:
    harness.deliver("orders", message("1"))
    link = harness.receiver("orders")
    link.grant(1)
    (delivery,) = [event for event in harness.exchange() if isinstance(event, TransferArrived)]
    link.settle(delivery.delivery_id, delivery.delivery_id, said, settled=False)
    early = harness.exchange()
    assert bool(early) == isinstance(said, Released), "a release changes nothing on disk, the others do"
    harness.store.commit()
    (disposition,) = [event for event in early + harness.exchange() if isinstance(event, DispositionArrived)]
    assert (disposition.outcome, disposition.settled) == (answered, True)
    queue = harness.gate.machine.registry.find_queue("orders")
    assert queue.dead_letter is not None
    assert (queue.active, queue.deferred, queue.dead_letter.active) == state


def test_settling_what_is_not_locked_any_more_is_a_lost_lock(harness: ConnectionHarness) -> None:
    harness.deliver("orders", message("1"))
    link = harness.receiver("orders")
    link.grant(1)
    (delivery,) = [event for event in harness.exchange() if isinstance(event, TransferArrived)]
    token = uuid.UUID(bytes_le=delivery.tag)
    answer = harness.request(
        "orders", "com.microsoft:update-disposition", {"disposition-status": "completed", "lock-tokens": [token]}
    )
    assert answer is None, "not durable yet"
    link.settle(delivery.delivery_id, delivery.delivery_id, Accepted(), settled=False)
    (disposition,) = [event for event in harness.exchange() if isinstance(event, DispositionArrived)]
    assert isinstance(disposition.outcome, Rejected)
    assert disposition.outcome.error is not None
    assert disposition.outcome.error.condition == "com.microsoft:message-lock-lost"


def test_settlements_that_came_together_are_answered_together_but_for_those_that_failed(
    harness: ConnectionHarness,
) -> None:
    harness.deliver("orders", *[message(str(number)) for number in range(5)])
    link = harness.receiver("orders")
    link.grant(5)
    deliveries = [event for event in harness.exchange() if isinstance(event, TransferArrived)]
    token = uuid.UUID(bytes_le=deliveries[1].tag)
    body = {"disposition-status": "completed", "lock-tokens": [token]}
    harness.request("orders", "com.microsoft:update-disposition", body)
    harness.store.commit()
    harness.exchange()
    ids = [delivery.delivery_id for delivery in deliveries]
    link.settle(ids[0], ids[-1], Accepted(), settled=False)
    harness.exchange()
    harness.store.commit()
    answers = [event for event in harness.exchange() if isinstance(event, DispositionArrived)]
    found = [([at for at, _ in event.deliveries], type(event.outcome)) for event in answers]
    assert sorted(found) == [(ids[:1], Accepted), (ids[1:2], Rejected), (ids[2:], Accepted)]


# --- links ---


@pytest.mark.parametrize("address", ["typo", "orders/$deadletterqueue", "", "/"])
def test_a_sender_to_what_cannot_be_sent_to_is_refused(harness: ConnectionHarness, address: str) -> None:
    harness.session.attach_sender("link", address)
    (refusal,) = [event for event in harness.exchange() if isinstance(event, LinkRefused)]
    assert refusal.error is not None
    assert refusal.error.condition in ("amqp:not-found", "amqp:not-allowed")


@pytest.mark.parametrize("address", ["orders", "/orders", "amqps://host:5671/orders", "sb://host/Orders", "ORDERS/"])
def test_an_entity_is_found_under_every_form_of_its_address(harness: ConnectionHarness, address: str) -> None:
    assert harness.sender(address).attached


@pytest.mark.parametrize("session", [5, "a", None])
def test_a_refused_receiver_is_forgotten(harness: ConnectionHarness, session: object) -> None:
    harness.session.attach_receiver("link", Source("orders", filter={Symbol("com.microsoft:session-filter"): session}))
    assert [event for event in harness.exchange() if isinstance(event, LinkRefused)]
    assert harness.context.receivers == 0


# --- attaches that wait for the disk ---


def test_transfer_dead_letters_are_opened_when_they_have_been_made(harness: ConnectionHarness) -> None:
    link = harness.session.attach_receiver("transfers", "orders/$transfer/$deadletterqueue")
    link.grant(5)
    harness.exchange()
    assert not link.attached
    harness.context.unflushed.clear()
    harness.store.commit()
    assert harness.dispatcher in harness.context.unflushed, "nobody would send the answer"
    harness.exchange()
    assert link.attached


def test_who_leaves_before_transfer_dead_letters_are_made_leaves_no_receiver(harness: ConnectionHarness) -> None:
    link = harness.session.attach_receiver("transfers", "orders/$transfer/$deadletterqueue")
    harness.exchange()
    link.detach()
    harness.exchange()
    harness.store.commit()
    harness.exchange()
    assert harness.gate.machine.registry.find_queue("orders/$transfer/$deadletterqueue").receivers.all == {}


def test_of_very_many_receivers_that_lose_their_queue_some_are_detached_at_a_time(
    harness: ConnectionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_context, "LOST_AT_ONCE", 2)
    links = [harness.receiver("orders") for _ in range(5)]
    harness.gate.do(DeleteEntity("orders"), NOW_MS)
    harness.store.commit()
    disposition = []
    for later_ms in (0, connection_context.LOST_EVERY_MS, 2 * connection_context.LOST_EVERY_MS):
        harness.context.delayed.run_due(NOW_MS + later_ms)
        harness.exchange()
        disposition.append(sum(not link.attached for link in links))
    assert disposition == [2, 4, 5]
