"""What a client records of its operations is what the meters of the namespaces have counted (C1)."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from paired import Heard, PairHarness
from promises import of_kind, records_of
from served import Served

from twinbus.ledger import Kind
from twinbus.ledger.schema import Record

QUEUES = 2


def counted(served: Served, *entities: str) -> Counter[tuple[str, str]]:
    """Operations and bytes of these entities, by kind; without entities, of the namespace itself."""
    found: Counter[tuple[str, str]] = Counter()
    for reading in served.readings():
        if reading["entity"] in [entity.lower() for entity in entities or ("",)]:
            found[reading["kind"], "operations"] += reading["operations"]
            found[reading["kind"], "bytes"] += reading["bytes"]
    return found


def recorded(records: list[Record], kind: Kind, namespace: str = "") -> tuple[int, int]:
    """Operations and bytes of all events of a kind."""
    found = [each for each in of_kind(records, kind) if namespace in ("", each.namespace)]
    return sum(len(each.message_ids) or each.count for each in found), sum(
        sum(each.sizes) + each.bytes for each in found
    )


def test_every_send_is_recorded_with_the_bytes_that_the_meter_has(both: PairHarness, tmp_path: Path) -> None:
    with both.bus(ledger=tmp_path) as bus, bus.get_queue_sender(both.orders) as sender:
        heard = Heard(bus)
        for number in range(3):  # opens a link, rests on it, and is on the straight way
            sender.send_messages(ServiceBusMessage("x", message_id=f"m{number}"))
        sender.send_messages(ServiceBusMessage(b"", session_id="s", subject="y", application_properties={"a": 1}))
        sender.send_messages([ServiceBusMessage("x" * size) for size in (1, 300, 70_000)])
        batch = sender.create_message_batch()
        batch.add_message(ServiceBusMessage("in a batch"))
        sender.send_messages(batch)
        sender.send_messages([])
        sender.schedule_messages(ServiceBusMessage("later"), datetime.now(UTC) + timedelta(hours=1))
        bus.force_failover(both.orders, stay=True)
        sender.send_messages([ServiceBusMessage("y" * size, time_to_live=timedelta(hours=1)) for size in (1, 300)])
        bus.mark_healthy(both.orders)
        heard.wait_for("recovered")
    records = records_of(tmp_path)
    home = counted(both.primary, both.orders)
    assert recorded(records, Kind.ACCEPTED) == (home["send", "operations"], home["send", "bytes"])
    away = counted(both.secondary, *map(both.backlog, range(QUEUES)))
    assert recorded(records, Kind.BACKLOGGED) == (away["send", "operations"], away["send", "bytes"])
    assert away["send", "operations"] == 2


def test_pings_are_recorded_with_the_bytes_and_the_number_that_the_meter_has(both: PairHarness, tmp_path: Path) -> None:
    """Those that were refused are recorded as such, and no meter has them."""
    with both.bus(ledger=tmp_path, probe="ping", pings_to_return=2) as bus:
        heard = Heard(bus)
        both.primary.break_("no-send", both.orders)
        bus.get_queue_sender(both.orders).send_messages(ServiceBusMessage("x"))
        heard.wait_for("ping_failed")
        both.primary.clear()
        heard.wait_for("recovered")
    pings = of_kind(records_of(tmp_path), Kind.PING)
    taken = [ping for ping in pings if ping.outcome == "ok"]
    home = counted(both.primary, both.orders)
    assert len(taken) == home["ping", "operations"] == 2
    assert sum(ping.bytes for ping in taken) == home["ping", "bytes"] > 0
    assert {ping.outcome for ping in pings if ping not in taken} <= {"refused", "not-sent"}
    assert len(pings) > len(taken)


def test_pairing_and_every_look_are_recorded_as_the_meter_counts_them(both: PairHarness, tmp_path: Path) -> None:
    before = counted(both.secondary)["manage", "operations"], counted(both.primary)["manage", "operations"]
    with both.bus(ledger=tmp_path, backlog_queue_count=QUEUES, entities=[both.orders]) as bus:
        bus.recheck()
        bus.get_queue_sender(both.orders)
        bus.force_failover(both.orders, stay=True)
        bus.get_queue_sender(both.orders).send_messages(ServiceBusMessage("x" * 500))
        bus.recheck()
    records = records_of(tmp_path)
    queues = [both.backlog(index) for index in range(QUEUES)]
    listed = counted(both.secondary)["manage", "operations"] - before[0]
    assert recorded(records, Kind.QUEUE_CHECKED, "backup")[0] == listed == 1 + 2 * 2, (
        "one listing, and two for each look"
    )
    assert [each.queue for each in of_kind(records, Kind.QUEUE_CREATED)] == queues
    there = counted(both.secondary, *queues)
    assert there["manage", "operations"] == QUEUES
    peeks, size = recorded(records, Kind.PEEKED)
    assert peeks == there["peek", "operations"] == 2 * QUEUES
    assert size == pytest.approx(there["peek", "bytes"], rel=0.15)
    assert size > 500
    read = counted(both.primary, both.orders)["manage", "operations"] - 1  # it was created before
    assert recorded(records, Kind.QUEUE_CHECKED, both.name)[0] == read == 1
