"""A pair whose client, syphon and namespaces keep one ledger: an outage, and what the report says of it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode, ServiceBusReceiver
from paired import Heard, wait_until

from twinbus import PairedServiceBusClient, Retry
from twinbus.cost.prices import Prices
from twinbus.ledger import verify
from twinbus.spark.compaction.compaction import compact_ledger, read_in_process
from twinbus.spark.jobs.findings import Findings
from twinbus.testing import LocalNamespace, NamespacePair

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK = {
    "failover_interval": timedelta(0),
    "ping_primary_interval": timedelta(seconds=1),
    "attempt_timeout": timedelta(seconds=30),
    "retry": Retry(attempts=1),
    "backlog_queue_count": 1,
}
BEFORE, DURING, AFTER, PUBLISHED = 5, 4, 1, 3


def paired(pair: NamespacePair, ledger: Path, *, enable_syphon: bool = False) -> PairedServiceBusClient:
    return PairedServiceBusClient.from_connection_strings(
        pair.primary.connection_string,
        pair.secondary.connection_string,
        ledger=ledger,
        enable_syphon=enable_syphon,
        **QUICK,
    )


def named(name: str, count: int) -> list[ServiceBusMessage]:
    return [ServiceBusMessage("x" * 100, message_id=f"{name}-{number}") for number in range(count)]


def send_through_an_outage(pair: NamespacePair, ledger: Path) -> None:
    """Some before it, some during it, and one when the primary is back but the backlog is not home yet."""
    with paired(pair, ledger) as bus, bus.get_queue_sender("orders") as orders, bus.get_topic_sender("news") as news:
        heard = Heard(bus)
        news.send_messages(named("news", PUBLISHED))
        for message in named("before", BEFORE):
            orders.send_messages(message)
        fault = pair.primary.faults.add("no-send", entities=["orders"])
        for message in named("during", DURING):
            orders.send_messages(message)
        pair.primary.faults.clear(fault)
        heard.wait_for("recovered")
        orders.send_messages(named("after", AFTER))


def bring_home(pair: NamespacePair, ledger: Path) -> None:
    with paired(pair, ledger, enable_syphon=True) as bus:

        def is_home() -> bool:
            syphon = bus.status().syphon
            return syphon is not None and syphon.moved == DURING

        wait_until(is_home)


def take(receiver: ServiceBusReceiver, count: int, *, completes: bool = True) -> None:
    with receiver:
        while count > 0:
            for message in receiver.receive_messages(max_message_count=count, max_wait_time=60):
                count -= 1
                if completes:
                    receiver.complete_message(message)


def take_everything(primary: LocalNamespace) -> None:
    deleting = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with ServiceBusClient.from_connection_string(primary.connection_string) as client:
        take(client.get_queue_receiver("orders"), BEFORE + DURING + AFTER)
        take(client.get_subscription_receiver("news", "one"), PUBLISHED)
        take(client.get_subscription_receiver("news", "two", receive_mode=deleting), PUBLISHED, completes=False)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a pair that has been through an outage, and in which everything was received."""
    folder = tmp_path_factory.mktemp("ledger")
    ledger = folder / "ledger"
    with (
        LocalNamespace("contoso", data=folder, ledger=ledger) as primary,
        LocalNamespace("backup", data=folder, ledger=ledger) as secondary,
    ):
        primary.create_queue("orders")
        primary.create_topic("news", "one", "two")
        pair = NamespacePair(primary, secondary)
        send_through_an_outage(pair, ledger)
        bring_home(pair, ledger)
        take_everything(primary)
    return ledger


@pytest.fixture(scope="module")
def findings(spark: SparkSession, ledger: Path) -> Findings:
    from twinbus.spark.jobs.analysis import analyse

    compacted = compact_ledger(read_in_process, ledger)
    return analyse(spark, compacted, Prices(), horizon_min=15, tell=lambda _: None)


def test_every_process_has_recorded_everything(ledger: Path) -> None:
    coverage = verify(ledger)
    assert coverage.is_complete
    assert {"client", "syphon", "contoso", "backup"} <= {process.program for process in coverage.processes}


@pytest.mark.long
def test_everything_that_was_accepted_was_delivered(findings: Findings) -> None:
    assert findings.reconciliation.entities == {
        "orders": {"delivered": BEFORE + DURING + AFTER},
        "news": {"delivered": PUBLISHED},
    }
    assert findings.reconciliation.verdict == "nothing lost"
    assert findings.reconciliation.lost == 0


def test_what_the_detour_did_to_order_is_measured(findings: Findings) -> None:
    by_entity = {row["entity"]: row for row in findings.ordering}
    assert by_entity["orders"]["basis"] == "delivered"
    assert by_entity["orders"]["late"] == DURING
    assert by_entity["news"]["late"] == 0


def test_a_message_that_took_the_detour_is_charged_four_times(findings: Findings) -> None:
    [bill] = findings.bills
    charged = {str(line.stage): line.use for line in bill.lines}
    detour = ("send to backlog", "receive from backlog", "send home to primary")
    assert {stage: (charged[stage].messages, charged[stage].documents) for stage in detour} == dict.fromkeys(
        detour, (DURING, DURING)
    )
    received = BEFORE + DURING + AFTER + 2 * PUBLISHED
    assert charged["receive from primary"].messages == received
    assert charged["settle on primary"].full == received - PUBLISHED  # one of the subscriptions deletes what it takes
    assert charged["send to primary"].messages == BEFORE + AFTER + PUBLISHED
    assert charged["receive from primary"].bytes > received * 100


def test_the_outage_is_on_the_timeline(findings: Findings) -> None:
    [outage] = findings.outages
    assert outage["entity"] == "orders"
    assert outage["recovered_ms"] > outage["failed_over_ms"]
