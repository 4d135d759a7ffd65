"""What a paired client does is in its ledger: where messages went, what happened to entities, and nothing missing."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from paired import WAIT_S, wait_until

from twinbus import PairedServiceBusClient, Retry
from twinbus.aio import PairedServiceBusClient as AioPairedServiceBusClient
from twinbus.errors import BothNamespacesUnavailable, OptionsError
from twinbus.ledger import LedgerReader, verify
from twinbus.ledger.schema import Record
from twinbus.testing import LocalNamespace, NamespacePair

QUICK = {
    "failover_interval": timedelta(0),
    "ping_primary_interval": timedelta(seconds=1),
    "attempt_timeout": timedelta(seconds=10),
    "retry": Retry(attempts=1),
    "backlog_queue_count": 2,
}


def records(folder: Path) -> list[Record]:
    coverage = verify(folder)
    assert coverage.is_complete
    return list(LedgerReader(folder).records())


def ids(found: list[Record], kind: str) -> list[str]:
    return [message_id for record in found if record.kind == kind for message_id in record.message_ids]


def test_every_message_is_in_the_ledger_where_it_went(namespace_pair: NamespacePair, tmp_path: Path) -> None:
    primary, secondary = namespace_pair
    primary.create_queue("orders")
    ledger = tmp_path / "ledger"
    bus = PairedServiceBusClient.from_connection_strings(
        primary.connection_string, secondary.connection_string, ledger=ledger, **QUICK
    )
    with bus, bus.get_queue_sender("orders") as sender:
        for number in range(3):
            sender.send_messages(ServiceBusMessage("x" * 100, message_id=f"home-{number}"))
        primary.faults.add("no-send", entities=["orders"])
        sender.send_messages([ServiceBusMessage("y" * 50, message_id=f"away-{number}") for number in range(2)])
        secondary.faults.add("no-send")
        with pytest.raises(BothNamespacesUnavailable):
            sender.send_messages(ServiceBusMessage("z", message_id="nowhere"))
    found = records(ledger)
    assert ids(found, "accepted") == ["home-0", "home-1", "home-2"]
    assert ids(found, "backlogged") == ["away-0", "away-1"]
    assert ids(found, "not_sent") == ["nowhere"]
    kinds = Counter(record.kind for record in found)
    assert kinds["paired"] == kinds["failed_over"] == kinds["queue_checked"] == 1
    assert kinds["queue_created"] == 2
    assert kinds["queue_left_out"] == 2
    (backlogged,) = [record for record in found if record.kind == "backlogged"]
    assert (backlogged.entity, backlogged.namespace) == ("orders", "backup")
    assert backlogged.queue.startswith("contoso/x-servicebus-transfer/")
    assert min(backlogged.sizes) > 50
    assert all(record.sizes[0] >= 100 for record in found if record.kind == "accepted")


def test_a_received_message_that_is_sent_on_has_one_id_in_all_ledgers(tmp_path: Path) -> None:
    """The official client sends it on with bytes where it received texts."""
    ledgers = {name: tmp_path / name for name in ("contoso", "backup", "client")}
    with (
        LocalNamespace("contoso", queues=["inbox", "orders"], ledger=ledgers["contoso"]) as primary,
        LocalNamespace("backup", ledger=ledgers["backup"]) as secondary,
        PairedServiceBusClient.from_connection_strings(
            primary.connection_string,
            secondary.connection_string,
            ledger=ledgers["client"],
            enable_syphon=True,
            **QUICK,
        ) as bus,
        bus.get_queue_sender("orders") as sender,
    ):
        with bus.get_queue_sender("inbox") as first:
            first.send_messages([ServiceBusMessage("x", message_id="home"), ServiceBusMessage("y", message_id="away")])
        with bus.get_queue_receiver("inbox") as inbox:
            received: list[ServiceBusReceivedMessage] = []
            while len(received) < 2 and (got := inbox.receive_messages(2 - len(received), max_wait_time=WAIT_S)):
                received += got
            home, away = received
            sender.send_messages(home)
            primary.faults.add("no-send", entities=["orders"])
            sender.send_messages(away)
        primary.faults.clear()
        with bus.get_queue_receiver("orders") as receiver:
            wait_until(lambda: len(receiver.peek_messages(10, sequence_number=1)) == 2)
    found = {name: [each for each in records(folder) if each.entity != "inbox"] for name, folder in ledgers.items()}
    assert ids(found["client"], "accepted") == ["home"]
    assert ids(found["contoso"], "stored") == ["home", "away"]
    assert ids(found["backup"], "stored") == ids(found["backup"], "delivered") == ["away"]
    for kind in ("backlogged", "received_from_backlog", "sent_home", "completed"):
        assert set(ids(found["client"], kind)) == {"away"}, kind


async def test_tasks_have_the_same_in_their_ledger(namespace_pair: NamespacePair, tmp_path: Path) -> None:
    primary, secondary = namespace_pair
    await asyncio.to_thread(primary.create_queue, "orders")
    ledger = tmp_path / "ledger"
    options = QUICK | {"attempt_timeout": timedelta(seconds=3)}  # one of them is waited for
    bus = AioPairedServiceBusClient.from_connection_strings(
        primary.connection_string, secondary.connection_string, ledger=ledger, **options
    )
    async with bus, bus.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x", message_id="first"))
        await sender.send_messages(ServiceBusMessage("x", message_id="second"))
        await asyncio.to_thread(primary.faults.add, "unanswered", entities=["orders"])
        await sender.send_messages(ServiceBusMessage("x", message_id="doubtful"))
    found = await asyncio.to_thread(records, ledger)
    assert ids(found, "accepted") == ["first", "second"]
    assert ids(found, "in_doubt") == ["doubtful"]
    assert ids(found, "backlogged") == ["doubtful"]


def test_a_scheduled_message_and_its_cancellation_are_in_the_ledger(
    namespace_pair: NamespacePair, tmp_path: Path
) -> None:
    from datetime import UTC, datetime

    primary, secondary = namespace_pair
    primary.create_queue("orders")
    ledger = tmp_path / "ledger"
    bus = PairedServiceBusClient.from_connection_strings(
        primary.connection_string, secondary.connection_string, ledger=ledger, **QUICK
    )
    with bus, bus.get_queue_sender("orders") as sender:
        numbers = sender.schedule_messages(ServiceBusMessage("x"), datetime.now(UTC) + timedelta(hours=1))
        sender.cancel_scheduled_messages(numbers)
    found = records(ledger)
    (accepted,) = [record for record in found if record.kind == "accepted"]
    (cancelled,) = [record for record in found if record.kind == "cancelled"]
    assert list(accepted.sequence_numbers) == list(cancelled.sequence_numbers) == numbers


def test_a_folder_that_cannot_hold_a_ledger_is_reported_when_pairing_and_leaves_nothing(
    namespace_pair: NamespacePair, tmp_path: Path
) -> None:
    primary, secondary = namespace_pair
    no_folder = tmp_path / "file"
    no_folder.write_text("not a folder")
    bus = PairedServiceBusClient.from_connection_strings(
        primary.connection_string, secondary.connection_string, ledger=no_folder, **QUICK
    )
    before = set(threading.enumerate())
    with pytest.raises(OptionsError):
        bus.pair()
    wait_until(lambda: not [one for one in threading.enumerate() if one not in before and one.is_alive()])
    bus.close()
