"""One month in a minute: a pair of real namespaces, a sender, a syphon and a receiver, for everybody who counts."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusMessage
from paired import WAIT_S, Heard, wait_until

from twinbus import PairedServiceBusClient, Retry
from twinbus.cost.forecast import HOURS_A_MONTH, Usage
from twinbus.ledger import LedgerReader
from twinbus.testing import LocalNamespace, NamespacePair

QUEUES, PINGS, LOOKS = 3, 2, 2
"""Backlog queues; pings of each entity until it is taken for healthy; looks of each process."""
ENTITIES = ("orders", "invoices")
DIRECT, DETOURED, BODY = 8, 5, b"x" * 1_000
"""Messages of each entity."""
LARGE = b"x" * (64 * 1024 - 10)
"""With its properties it has more than one step of 64 KB."""

USAGE = Usage(
    entities=len(ENTITIES),
    clients=1,
    syphons=1,
    queues=QUEUES,
    outages=1,
    outage_s=PINGS,
    ping_s=1,
    failover_s=0,
    rate=len(ENTITIES) * DETOURED / PINGS,
    size_bytes=len(BODY) + 45,  # with its id, and what frames them
    look_s=HOURS_A_MONTH * 3600 / LOOKS,
)
"""The same for a forecast."""


def metered(namespace: LocalNamespace) -> Counter[tuple[str, str]]:
    """Operations, steps and bytes by what was done, of all entities of a namespace."""
    counted: Counter[tuple[str, str]] = Counter()
    for reading in namespace._running.context.meter.readings():
        for what in ("operations", "steps", "size"):
            counted[reading.kind.value, what] += getattr(reading, what)
    return counted


def run(pair: NamespacePair, ledger: Path, **wishes: Any) -> None:
    """Everything that the pairing does, once."""
    options: dict[str, Any] = {
        "failover_interval": timedelta(0),
        "ping_primary_interval": timedelta(seconds=1),
        "attempt_timeout": timedelta(seconds=30),
        "retry": Retry(attempts=1),
        "backlog_queue_count": QUEUES,
        "pings_to_return": PINGS,
        "probe": "ping",
        "ledger": ledger,
    }
    with paired(pair, options | wishes) as bus:
        look(bus)
        send(bus)
    with paired(pair, options | wishes | {"enable_syphon": True}) as bus:
        come_home(bus)
        look(bus)
        receive(bus)


def paired(pair: NamespacePair, options: dict[str, Any]) -> PairedServiceBusClient:
    primary, secondary = pair.primary.connection_string, pair.secondary.connection_string
    return PairedServiceBusClient.from_connection_strings(primary, secondary, **options)


def look(bus: PairedServiceBusClient) -> None:
    for _ in range(LOOKS):
        bus.recheck()


def send(bus: PairedServiceBusClient) -> None:
    heard = Heard(bus)
    senders = [bus.get_queue_sender(entity) for entity in ENTITIES]
    for sender in senders:
        sender.send_messages(ServiceBusMessage(LARGE, message_id="large"))
        sender.send_messages(ServiceBusMessage(b"s", message_id="small", session_id="s", subject="t"))
        sender.send_messages([message("list", number) for number in range(DIRECT - 4)])
        batch = sender.create_message_batch()
        batch.add_message(message("batch", 0))
        batch.add_message(message("batch", 1))
        sender.send_messages(batch)
    for entity in ENTITIES:
        bus.force_failover(entity)
    for number in range(DETOURED - 2):
        senders[0].send_messages(message("away", number))
    senders[0].send_messages([message("away", number) for number in range(DETOURED - 2, DETOURED)])
    senders[1].send_messages([message("away", number) for number in range(DETOURED)])
    heard.wait_for("recovered", len(ENTITIES))


def message(name: str, number: int) -> ServiceBusMessage:
    return ServiceBusMessage(BODY, message_id=f"{name}-{number}")


def come_home(bus: PairedServiceBusClient) -> None:
    def is_home() -> bool:
        syphon = bus.status().syphon
        return syphon is not None and syphon.moved == len(ENTITIES) * DETOURED

    wait_until(is_home)


def receive(bus: PairedServiceBusClient) -> None:
    for entity in ENTITIES:
        left = DIRECT + DETOURED
        with bus.get_queue_receiver(entity) as receiver:
            while left:
                for found in receiver.receive_messages(left, max_wait_time=WAIT_S):
                    receiver.complete_message(found)
                    left -= 1


def looks_of_clients(ledger: Path) -> int:
    """Peeks that were made by looks, and not by a syphon at its work."""
    found = [each for each in LedgerReader(ledger).records() if each.kind == "peeked" and each.program == "client"]
    return sum(each.count for each in found)
