"""What a slow fault holds back: in order, within bounds, and not for peers that are gone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from connection_harness import MEGABYTE, NOW_MS, ConnectionHarness

from twinbus.amqp.codec.types import Int, Long, Timestamp
from twinbus.amqp.events import ConnectionClosed, Drained, TransferArrived
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField, encode_message
from twinbus.amqp.sending_link import SendingLink
from twinbus.broker.faults.catalogue import read_fault
from twinbus.broker.ops.meter import Metered

DELAY_MS = 1_000


@pytest.fixture
def harness() -> ConnectionHarness:
    return ConnectionHarness()


def message(text: str) -> bytes:
    return encode_message(properties={PropertyField.MESSAGE_ID: text}, data=text.encode())


def bodies(events: Sequence[object]) -> list[bytes]:
    return [
        b"".join(sections.data_sections(event.payload, sections.walk(event.payload)))
        for event in events
        if isinstance(event, TransferArrived)
    ]


def slow_down(harness: ConnectionHarness) -> None:
    harness.context.faults.add(read_fault({"fault": "slow", "entities": ["orders"], "delay_ms": DELAY_MS}), NOW_MS)


def send(harness: ConnectionHarness, link: SendingLink, *texts: str) -> list[object]:
    """Send on a link that is there already, and see it stored; what is heard meanwhile."""
    for text in texts:
        link.send(message(text), tag=b"t")
    harness.exchange()
    harness.store.commit()
    return [*harness.exchange()]


def heard_after(harness: ConnectionHarness, passed_ms: int) -> list[object]:
    harness.context.delayed.run_due(NOW_MS + passed_ms)
    return [*harness.exchange()]


def test_a_receiver_whose_peer_left_before_its_answer_is_never_opened(harness: ConnectionHarness) -> None:
    harness.deliver("orders", message("1"))
    slow_down(harness)
    link = harness.session.attach_receiver("ghost", "orders", snd_settle_mode=0, rcv_settle_mode=1)
    link.grant(5)
    harness.exchange()
    harness.dispatcher.close(NOW_MS)
    heard_after(harness, DELAY_MS)
    queue = harness.gate.machine.registry.find_queue("orders")
    assert queue.receivers.all == {}
    assert len(queue.locks) == 0


def test_deliveries_keep_their_order_when_the_fault_ends_before_they_are_due(harness: ConnectionHarness) -> None:
    sender, link = harness.sender("orders"), harness.receiver("orders")
    link.grant(10)
    harness.exchange()
    slow_down(harness)
    assert bodies(send(harness, sender, "held 1", "held 2")) == []
    harness.context.faults.clear()
    assert bodies(send(harness, sender, "after")) == []
    assert bodies(heard_after(harness, 3 * DELAY_MS)) == [b"held 1", b"held 2", b"after"]
    assert bodies(send(harness, sender, "at once again")) == [b"at once again"]


def test_a_drain_does_not_overtake_what_is_held_back(harness: ConnectionHarness) -> None:
    sender, link = harness.sender("orders"), harness.receiver("orders")
    link.grant(10)
    harness.exchange()
    slow_down(harness)
    send(harness, sender, "held")
    harness.context.faults.clear()
    link.drain()
    assert harness.exchange() == []
    heard = heard_after(harness, 3 * DELAY_MS)
    assert bodies(heard) == [b"held"]
    assert isinstance(heard[-1], Drained)


def test_what_is_deleted_on_delivery_stays_in_the_queue_meanwhile(harness: ConnectionHarness) -> None:
    harness.deliver("orders", message("1"), message("2"))
    link = harness.receiver("orders", settled=True)
    slow_down(harness)
    link.grant(5)
    assert harness.exchange() == []
    harness.store.commit()
    assert harness.stored("orders") == 2, "a crash now must lose nothing"
    harness.context.delayed.run_due(NOW_MS + DELAY_MS)
    harness.store.commit()
    assert bodies(harness.exchange()) == [b"1", b"2"]


def test_answers_that_nobody_takes_end_the_connection(harness: ConnectionHarness) -> None:
    harness.deliver("orders", *[encode_message(data=b"x" * 200_000) for _ in range(4)])
    harness.ours.account.limit = 2 * MEGABYTE
    address = "orders/$management"
    answers = harness.receiver(address, settled=True)  # and never a credit
    asking = harness.session.attach_sender("ask", address)
    harness.exchange()
    request = encode_message(
        properties={PropertyField.MESSAGE_ID: "r", PropertyField.REPLY_TO: answers.name},
        application_properties={"operation": "com.microsoft:peek-message"},
        value={"from-sequence-number": Long(1), "message-count": Int(10)},
    )
    heard: list[object] = []
    for _ in range(4):
        asking.send(request, tag=b"t")
        heard += harness.exchange()
    (ended,) = [event for event in heard if isinstance(event, ConnectionClosed)]
    assert ended.error is not None
    assert ended.error.condition == "amqp:resource-limit-exceeded"


def test_requests_are_metered_by_what_they_did(harness: ConnectionHarness) -> None:
    scheduled = encode_message(
        annotations={"x-opt-scheduled-enqueue-time": Timestamp(NOW_MS + 60_000)}, data=b"x" * 100_000
    )
    harness.request("orders", "com.microsoft:schedule-message", {"messages": [{"message": scheduled}] * 2})
    harness.store.commit()
    harness.request("orders", "com.microsoft:peek-message", {"from-sequence-number": Long(1), "message-count": Int(5)})
    harness.request("orders", "com.microsoft:cancel-scheduled-message", {"sequence-numbers": [Long(77)]})
    readings = {reading.kind: reading for reading in harness.context.meter.readings() if reading.entity == "orders"}
    assert (readings[Metered.SEND].operations, readings[Metered.SEND].steps) == (2, 4)
    assert (readings[Metered.PEEK].operations, readings[Metered.PEEK].steps) == (2, 4)
    assert readings[Metered.PEEK].size > 200_000
    assert Metered.MANAGE not in readings, "what is refused is not counted"
