"""What the ledger of a proxy says of applications that know nothing of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from local_proxy import LocalProxy
from promises import of_kind, records_of

from twinbus.ledger.kinds import Kind
from twinbus.testing import LocalNamespace


def test_a_cancellation_through_the_proxy_is_in_the_ledger(tmp_path: Path) -> None:
    with (
        LocalNamespace("local", queues=("Orders",)) as primary,
        LocalNamespace("backup") as secondary,
    ):
        with (
            LocalProxy(
                primary.connection_string, secondary.connection_string, ledger=tmp_path, backlog_queue_count=1
            ) as proxy,
            ServiceBusClient.from_connection_string(proxy.connection_string) as client,
            client.get_queue_sender("Orders") as sender,
        ):
            due = datetime.now(UTC) + timedelta(hours=1)
            numbers = sender.schedule_messages([ServiceBusMessage("42", message_id="order-42")], due)
            sender.cancel_scheduled_messages(numbers)
        (record,) = of_kind(records_of(tmp_path), Kind.CANCELLED)
    assert (list(record.message_ids), list(record.sequence_numbers)) == (["order-42"], numbers)
