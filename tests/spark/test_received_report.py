"""A pair whose namespaces keep no ledger, as in Azure: what its client sent and received is in the report."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import ServiceBusMessage
from paired import Heard, wait_until

from twinbus import PairedServiceBusClient, PairedServiceBusReceiver, Retry
from twinbus.cost.prices import Prices
from twinbus.ledger import verify
from twinbus.spark.compaction.compaction import compact_ledger, read_in_process
from twinbus.spark.jobs.findings import Findings
from twinbus.testing import NamespacePair

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STRAIGHT, DETOURED, PUBLISHED, DEAD, LEFT = 6, 4, 3, 2, 1
QUICK = {
    "failover_interval": timedelta(0),
    "ping_primary_interval": timedelta(seconds=1),
    "attempt_timeout": timedelta(seconds=30),
    "retry": Retry(attempts=1),
    "backlog_queue_count": 1,
    "enable_syphon": True,
}


def named(name: str, count: int) -> list[ServiceBusMessage]:
    return [ServiceBusMessage("x" * 100, message_id=f"{name}-{number}") for number in range(count)]


def send(bus: PairedServiceBusClient, pair: NamespacePair) -> None:
    """Some of it during an outage, and wait until that is home."""
    with bus.get_queue_sender("orders") as orders, bus.get_topic_sender("news") as news:
        news.send_messages(named("news", PUBLISHED))
        orders.send_messages(named("straight", STRAIGHT))
        heard = Heard(bus)
        fault = pair.primary.faults.add("no-send", entities=["orders"])
        for message in named("detoured", DETOURED):
            orders.send_messages(message)
        pair.primary.faults.clear(fault)
        heard.wait_for("recovered")
        wait_until(lambda: (syphon := bus.status().syphon) is not None and syphon.moved == DETOURED)
        orders.send_messages(named("dead", DEAD))
        orders.send_messages(named("left", LEFT))


def take(receiver: PairedServiceBusReceiver, count: int, *, is_good: bool = True) -> None:
    with receiver:
        for _ in range(count):
            (message,) = receiver.receive_messages(1, max_wait_time=60)
            if is_good:
                receiver.complete_message(message)
            else:
                receiver.dead_letter_message(message, reason="of no use")


@pytest.fixture
def findings(spark: SparkSession, namespace_pair: NamespacePair, tmp_path: Path) -> Findings:
    from twinbus.spark.jobs.analysis import analyse

    primary, secondary = namespace_pair
    primary.create_queue("orders")
    primary.create_topic("news", "one", "two")
    ledger = tmp_path / "ledger"
    with PairedServiceBusClient.from_connection_strings(
        primary.connection_string, secondary.connection_string, ledger=ledger, **QUICK
    ) as bus:
        send(bus, namespace_pair)
        take(bus.get_queue_receiver("orders"), STRAIGHT + DETOURED)
        take(bus.get_queue_receiver("orders"), DEAD, is_good=False)
        for subscription in ("one", "two"):
            take(bus.get_subscription_receiver("news", subscription), PUBLISHED)
    assert verify(ledger).is_complete
    return analyse(spark, compact_ledger(read_in_process, ledger), Prices(), horizon_min=15, tell=lambda _: None)


@pytest.mark.long
def test_what_was_received_by_a_paired_client_is_delivered_and_not_only_stored(findings: Findings) -> None:
    assert findings.reconciliation.entities == {
        "orders": {"delivered": STRAIGHT + DETOURED, "dead_lettered": DEAD, "stored_on_primary": LEFT},
        "news": {"delivered": PUBLISHED},
    }
    assert findings.reconciliation.verdict == "nothing lost"
    assert {row["entity"]: row["basis"] for row in findings.ordering} == {"orders": "received", "news": "received"}
    [bill] = findings.bills
    charged = {str(line.stage): line.use for line in bill.lines}
    received = STRAIGHT + DETOURED + 2 * PUBLISHED
    assert (charged["receive from primary"].messages, charged["settle on primary"].full) == (received, received)
    assert charged["receive from primary"].bytes >= received * 100
    assert sum(row["received"] for row in findings.flow) == received
