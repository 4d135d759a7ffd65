"""A client records when a scheduled message is due: what comes later by intent is no damage to order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from azure.servicebus import ServiceBusMessage

from twinbus.client.flows.send_request import SendRequest
from twinbus.client.reporting.ledger_events import ClientRecorder
from twinbus.client.sdk.messages import due_times, prepare
from twinbus.ledger import Kind, Ledger, LedgerReader
from twinbus.pairing.sending.receipt import NamespaceSide, SendReceipt

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
AT_MS = round(AT.timestamp() * 1000)
QUEUE = "contoso/x-servicebus-transfer/0"


def scheduled(name: str, minutes: int | None) -> ServiceBusMessage:
    when = None if minutes is None else AT + timedelta(minutes=minutes)
    return ServiceBusMessage("x", message_id=name, scheduled_enqueue_time_utc=when)


def recorded(ledger: Path) -> list[tuple[str, tuple[str, ...], int]]:
    return [
        (record.kind, record.message_ids, record.until_ms)
        for record in LedgerReader(ledger).records()
        if record.kind in (Kind.ACCEPTED, Kind.BACKLOGGED)
    ]


def test_a_message_says_when_it_is_due() -> None:
    assert due_times(scheduled("a", 1)) == (AT_MS + 60_000,)
    assert due_times(scheduled("a", None)) == ()
    assert due_times([scheduled("a", None), scheduled("b", 2)]) == (0, AT_MS + 120_000)


def test_what_the_primary_accepted_is_recorded_with_the_time_it_is_due(tmp_path: Path) -> None:
    messages = prepare([scheduled("a", None), scheduled("b", 2), scheduled("c", 2), scheduled("d", 3)])
    with Ledger.at(tmp_path) as ledger:
        recorder = ClientRecorder(ledger, "contoso", "backup")
        recorder.accepted("orders", messages.ids, (1, 2, 3, 4), 0.1, due_times(messages.message))
        recorder.accepted("orders", ("e",), (5,), 0.1)
    assert recorded(tmp_path) == [
        (Kind.ACCEPTED, ("a",), 0),
        (Kind.ACCEPTED, ("b", "c"), AT_MS + 120_000),
        (Kind.ACCEPTED, ("d",), AT_MS + 180_000),
        (Kind.ACCEPTED, ("e",), 0),
    ]


def test_what_is_scheduled_during_an_outage_is_recorded_with_the_time_it_is_due(tmp_path: Path) -> None:
    by_call = SendRequest(prepare([scheduled("a", None), scheduled("b", None)]), "orders", AT)
    by_itself = SendRequest(prepare([scheduled("c", 1), scheduled("d", None)]), "orders")
    with Ledger.at(tmp_path) as ledger:
        recorder = ClientRecorder(ledger, "contoso", "backup")
        recorder.sent(
            SendReceipt("orders", ("a", "b"), NamespaceSide.BACKLOG, 2, backlog_queues=(QUEUE, QUEUE)), by_call
        )
        recorder.sent(
            SendReceipt("orders", ("c", "d"), NamespaceSide.BACKLOG, 2, backlog_queues=(QUEUE, QUEUE)), by_itself
        )
        recorder.sent(SendReceipt("orders", ("a", "b"), NamespaceSide.PRIMARY, 2, sequence_numbers=(7, 8)), by_call)
    assert recorded(tmp_path) == [
        (Kind.BACKLOGGED, ("a", "b"), AT_MS),
        (Kind.BACKLOGGED, ("c",), AT_MS + 60_000),
        (Kind.BACKLOGGED, ("d",), 0),
        (Kind.ACCEPTED, ("a", "b"), AT_MS),
    ]
