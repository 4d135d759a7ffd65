"""What receivers of a paired client are done with is in its ledger: the namespaces here keep none, as in Azure (D4)."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageAlreadySettled, MessageLockLostError, ServiceBusError
from paired import PairHarness
from wire_relay import Relay

from twinbus.aio import PairedServiceBusClient as AioPairedServiceBusClient
from twinbus.ledger import LedgerReader, verify
from twinbus.ledger.schema import Record
from twinbus.testing import NamespacePair

WAIT_S = 30
"""Upper bound; what is there comes at once."""
DELETING = ServiceBusReceiveMode.RECEIVE_AND_DELETE
PING, LIKE_A_PING = b"application/vnd.ms-servicebus-ping", b"application/vnd.ms-servicebus-pong"


class Recorded(NamedTuple):
    """What was recorded of a message that somebody was done with."""

    kind: str
    entity: str
    outcome: str
    message_id: str


def records(ledger: Path) -> list[Record]:
    assert verify(ledger).is_complete
    return [record for record in LedgerReader(ledger).records() if record.kind in ("received", "dead_lettered")]


def recorded(ledger: Path) -> list[Recorded]:
    return [
        Recorded(record.kind, record.entity, record.outcome, message_id)
        for record in records(ledger)
        for message_id in record.message_ids
    ]


def completed(entity: str, *message_ids: str) -> list[Recorded]:
    return [Recorded("received", entity, "completed", message_id) for message_id in message_ids]


def named(*message_ids: str, **properties: Any) -> list[ServiceBusMessage]:
    return [ServiceBusMessage("x" * 100, message_id=message_id, **properties) for message_id in message_ids]


def received(receiver: Any, count: int) -> list[Any]:
    """So many messages, however many calls they take."""
    found: list[Any] = []
    while len(found) < count and (got := receiver.receive_messages(count - len(found), max_wait_time=WAIT_S)):
        found += got
    assert len(found) == count
    return found


def test_a_completed_message_is_recorded_once_and_one_that_stays_is_not(both: PairHarness, tmp_path: Path) -> None:
    with both.bus(ledger=tmp_path) as bus:
        bus.get_queue_sender(both.orders).send_messages(named("done", "given back", "deferred", "dead", "never"))
        receiver = bus.get_queue_receiver(both.orders)
        done, given_back, deferred, dead, _ = received(receiver, 5)
        receiver.complete_message(done)
        with pytest.raises(MessageAlreadySettled):
            receiver.complete_message(done)
        receiver.abandon_message(given_back)
        receiver.defer_message(deferred)
        receiver.dead_letter_message(dead, reason="no such customer", error_description="of any name")
        receiver.close()
    assert recorded(tmp_path) == [
        *completed(both.orders, "done"),
        Recorded("dead_lettered", both.orders, "told-by-receiver", "dead"),
    ]
    first, last = records(tmp_path)
    (sent,) = [record for record in LedgerReader(tmp_path).records() if record.kind == "accepted"]
    assert (first.namespace, first.sequence_numbers, first.sizes) == (both.name, (1,), sent.sizes[:1])
    assert last.reason == "no such customer"


def test_a_deferred_message_is_recorded_when_it_is_fetched_and_completed(both: PairHarness, tmp_path: Path) -> None:
    with both.bus(ledger=tmp_path) as bus:
        bus.get_queue_sender(both.orders).send_messages(named("fetched", "deleted"))
        receiver = bus.get_queue_receiver(both.orders)
        messages = received(receiver, 2)
        for message in messages:
            receiver.defer_message(message)
        fetched, deleted = (message.sequence_number for message in messages)
        (message,) = receiver.receive_deferred_messages(fetched)
        receiver.complete_message(message)
        receiver.close()
        deleting = bus.get_queue_receiver(both.orders, receive_mode=DELETING)
        assert len(deleting.receive_deferred_messages([deleted])) == 1
        deleting.close()
    assert recorded(tmp_path) == [
        *completed(both.orders, "fetched"),
        Recorded("received", both.orders, "received-and-deleted", "deleted"),
    ]


def test_a_completion_that_fails_is_not_recorded(both: PairHarness, tmp_path: Path) -> None:
    with both.bus(ledger=tmp_path) as bus:
        bus.get_queue_sender(both.orders).send_messages(named("a", "b"))
        receiver = bus.get_queue_receiver(both.orders)
        first, second = received(receiver, 2)
        both.primary.break_("refuse", both.orders, condition="com.microsoft:message-lock-lost", on="receives")
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(first)
        with pytest.raises(ServiceBusError):
            receiver.dead_letter_message(second)
        both.primary.clear()
        receiver.close()
    assert recorded(tmp_path) == []
    assert sorted(str(message.message_id) for message in both.primary.messages(both.orders)) == ["a", "b"]


def test_messages_that_are_deleted_as_they_are_received_are_recorded(both: PairHarness, tmp_path: Path) -> None:
    with both.bus(ledger=tmp_path) as bus:
        bus.get_queue_sender(both.orders).send_messages(named("a", "b", "c"))
        receiver = bus.get_queue_receiver(both.orders, receive_mode=DELETING)
        assert len(receiver.peek_messages(3)) == 3
        received(receiver, 3)
        receiver.close()
    assert recorded(tmp_path) == [Recorded("received", both.orders, "received-and-deleted", name) for name in "abc"]


def test_a_session_is_recorded_with_its_messages(both: PairHarness, tmp_path: Path) -> None:
    queue = f"{both.orders}-sessions"
    both.primary.admin.create_queue(queue, requires_session=True)
    with both.bus(ledger=tmp_path) as bus:
        bus.get_queue_sender(queue).send_messages(named("a", session_id="blue"))
        by_name = bus.get_queue_receiver(queue, session_id="blue")
        by_name.complete_message(received(by_name, 1)[0])
        by_name.close()
        bus.get_queue_sender(queue).send_messages(named("b", session_id="red"))
        next_one = bus.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION)
        next_one.complete_message(received(next_one, 1)[0])
        next_one.close()
    assert recorded(tmp_path) == completed(queue, "a", "b")
    assert [record.session_ids for record in records(tmp_path)] == [("blue",), ("red",)]


def test_a_subscription_and_dead_letters_are_recorded_under_their_own_names(both: PairHarness, tmp_path: Path) -> None:
    topic = f"{both.orders}-topic"
    both.primary.admin.create_topic(topic)
    both.primary.admin.create_subscription(topic, "all")
    path = f"{topic}/Subscriptions/all"
    with both.bus(ledger=tmp_path) as bus:
        bus.get_topic_sender(topic).send_messages(named("good", "bad"))
        receiver = bus.get_subscription_receiver(topic, "all")
        good, bad = received(receiver, 2)
        receiver.complete_message(good)
        receiver.dead_letter_message(bad)
        receiver.close()
        dead = bus.get_subscription_receiver(topic, "all", sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        dead.complete_message(received(dead, 1)[0])
        dead.close()
    assert recorded(tmp_path) == [
        *completed(path, "good"),
        Recorded("dead_lettered", path, "told-by-receiver", "bad"),
        *completed(f"{path}/$DeadLetterQueue", "bad"),
    ]


def test_an_id_that_is_no_text_is_recorded_as_its_sender_recorded_it(both: PairHarness, tmp_path: Path) -> None:
    ids = [UUID("12345678-1234-5678-1234-567812345678"), 42]
    with both.bus(ledger=tmp_path) as bus:
        sender = bus.get_queue_sender(both.orders)
        for each in ids:
            sender.send_messages(AmqpAnnotatedMessage(data_body=b"x", properties={"message_id": each}))
        receiver = bus.get_queue_receiver(both.orders)
        for message in received(receiver, 2):
            receiver.complete_message(message)
        receiver.close()
    assert recorded(tmp_path) == completed(both.orders, *map(str, ids))
    sent = [name for each in LedgerReader(tmp_path).records() if each.kind == "accepted" for name in each.message_ids]
    assert sent == list(map(str, ids))


def test_pings_are_not_recorded(both: PairHarness, tmp_path: Path) -> None:
    """An embedded namespace delivers none, so that a relay has to make one."""
    with both.primary.sending(both.orders) as plain:
        plain.send_messages(ServiceBusMessage("", content_type=LIKE_A_PING.decode(), message_id="ping"))
        plain.send_messages(named("message"))
    with Relay(both.primary.port) as relay:
        relay.swap = LIKE_A_PING, PING
        with both.client_of(both.primary.through(relay.port), both.secondary.namespace, ledger=tmp_path) as bus:
            receiver = bus.get_queue_receiver(both.orders, prefetch_count=5)
            receiver.complete_message(received(receiver, 1)[0])
            receiver.close()
    assert both.primary.messages(both.orders) == []
    assert recorded(tmp_path) == completed(both.orders, "message")


def test_messages_of_a_loop_are_recorded(harness: PairHarness, tmp_path: Path) -> None:
    with harness.bus(ledger=tmp_path) as bus:
        bus.get_queue_sender(harness.orders).send_messages(named("a", "b"))
        with bus.get_queue_receiver(harness.orders, max_wait_time=WAIT_S) as receiver:
            for message in islice(receiver, 2):
                receiver.complete_message(message)
        bus.get_queue_sender(harness.orders).send_messages(named("c", "d"))
        with bus.get_queue_receiver(harness.orders, max_wait_time=WAIT_S, receive_mode=DELETING) as deleting:
            assert next(deleting).message_id == "c"
            assert [message.message_id for message in islice(deleting, 1)] == ["d"]
    deleted = [Recorded("received", harness.orders, "received-and-deleted", name) for name in "cd"]
    assert recorded(tmp_path) == completed(harness.orders, "a", "b") + deleted


async def test_messages_of_an_asynchronous_loop_are_recorded(namespace_pair: NamespacePair, tmp_path: Path) -> None:
    primary, secondary = namespace_pair
    primary.create_queue("orders")
    ledger = tmp_path / "ledger"
    client = AioPairedServiceBusClient.from_connection_strings(
        primary.connection_string, secondary.connection_string, ledger=ledger, backlog_queue_count=1
    )
    async with client as bus:
        async with bus.get_queue_sender("orders") as sender:
            await sender.send_messages(named("a", "b"))
        async with bus.get_queue_receiver("orders", max_wait_time=WAIT_S) as receiver:
            async for message in receiver:
                await receiver.complete_message(message)
                if message.message_id == "b":
                    break
        async with bus.get_queue_sender("orders") as sender:
            await sender.send_messages(named("c"))
        async with bus.get_queue_receiver("orders", max_wait_time=WAIT_S, receive_mode=DELETING) as deleting:
            assert (await anext(aiter(deleting))).message_id == "c"
    assert recorded(ledger) == [
        *completed("orders", "a", "b"),
        Recorded("received", "orders", "received-and-deleted", "c"),
    ]
