"""What the ledger of a proxy says of applications that know nothing of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from local_proxy import LocalProxy
from promises import of_kind, records_of

from twinbus.ledger.kinds import Kind
from twinbus.testing import LocalNamespace


@contextmanager
def client_of_proxy(ledger: Path) -> Iterator[ServiceBusClient]:
    """An official client of a proxy that records; the ledger is complete when the block has ended."""
    with (
        LocalNamespace("local", queues=("Orders",)) as primary,
        LocalNamespace("backup") as secondary,
        LocalProxy(
            primary.connection_string, secondary.connection_string, ledger=ledger, backlog_queue_count=1
        ) as proxy,
        ServiceBusClient.from_connection_string(proxy.connection_string) as client,
    ):
        yield client


def test_a_cancellation_through_the_proxy_is_in_the_ledger(tmp_path: Path) -> None:
    with client_of_proxy(tmp_path) as client, client.get_queue_sender("Orders") as sender:
        due = datetime.now(UTC) + timedelta(hours=1)
        numbers = sender.schedule_messages([ServiceBusMessage("42", message_id="order-42")], due)
        sender.cancel_scheduled_messages(numbers)
    (record,) = of_kind(records_of(tmp_path), Kind.CANCELLED)
    assert (list(record.message_ids), list(record.sequence_numbers)) == (["order-42"], numbers)


def test_deferred_messages_that_are_settled_by_request_are_in_the_ledger(tmp_path: Path) -> None:
    with client_of_proxy(tmp_path) as client:
        with client.get_queue_sender("Orders") as sender:
            sender.send_messages([ServiceBusMessage(name, message_id=name) for name in ("done", "dead", "back")])
        with client.get_queue_receiver("Orders") as receiver:
            numbers: list[int] = []
            while len(numbers) < 3:
                for message in receiver.receive_messages(max_message_count=3, max_wait_time=30):
                    numbers.append(message.sequence_number or 0)
                    receiver.defer_message(message)
            deferred = receiver.receive_deferred_messages(numbers)
            done, dead, back = sorted(deferred, key=lambda each: int(each.sequence_number or 0))
            receiver.complete_message(done)
            receiver.dead_letter_message(dead, reason="Old")
            receiver.abandon_message(back)
    records = records_of(tmp_path)
    assert [list(record.message_ids) for record in of_kind(records, Kind.RECEIVED)] == [["done"]]
    assert [list(record.message_ids) for record in of_kind(records, Kind.DEAD_LETTERED)] == [["dead"]]


def test_what_is_received_by_request_and_deleted_at_once_is_in_the_ledger(tmp_path: Path) -> None:
    with client_of_proxy(tmp_path) as client:
        with client.get_queue_sender("Orders") as sender:
            sender.send_messages(ServiceBusMessage("42", message_id="order-42"))
        with client.get_queue_receiver("Orders") as receiver:
            (message,) = receiver.receive_messages(max_wait_time=30)
            receiver.defer_message(message)
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        with client.get_queue_receiver("Orders", receive_mode=mode) as receiver:
            assert message.sequence_number is not None
            assert len(receiver.receive_deferred_messages([message.sequence_number])) == 1
    (record,) = of_kind(records_of(tmp_path), Kind.RECEIVED)
    assert list(record.message_ids) == ["order-42"]
