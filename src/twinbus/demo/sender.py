"""The demo's sender, a process of its own: `python -m twinbus.demo.sender JOURNAL LEDGER COUNT SECONDS`

An application that sends numbered messages through a pair and writes each receipt to its journal; or, if there is a
proxy, one that knows nothing of pairs: the official client, with the proxy's connection string. The connection strings,
which contain keys, come in the environment. It waits for lines on standard input at two points: however slow
the machine is, it has messages left to send when the primary is killed, and again when the primary is back.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSender

from twinbus import PairedServiceBusClient, PairedServiceBusSender, PairEvent, Retry
from twinbus.demo.entities import ENTITIES, DemoEntity
from twinbus.demo.journal import JournalEntry, JournalWriter
from twinbus.demo.processes import PRIMARY_VARIABLE, PROXY_VARIABLE, SECONDARY_VARIABLE
from twinbus.errors import TwinbusError

PING_INTERVAL = timedelta(seconds=2)
RETRY_PAUSE_S = 0.2
CUES_AT = (0.4, 0.8)
"""The shares of the messages after which a cue is waited for: that the primary is gone, and that it is back."""
NOTED_EVENTS = ("failed_over", "ping_sent", "ping_failed", "recovered", "in_doubt", "backlog_queue_lost")


class NumberedSender:
    def __init__(self, count: int, seconds: float, journal: JournalWriter, cues: Iterator[str]) -> None:
        self._count = count
        self._pace_s = seconds / count
        self._journal = journal
        self._cues = cues
        self._waits_before = {int(count * share) for share in CUES_AT}

    def send_paired(self, primary: str, secondary: str, ledger: Path) -> None:
        """Send everything through a pair."""
        bus = PairedServiceBusClient.from_connection_strings(
            primary,
            secondary,
            failover_interval=timedelta(0),
            ping_primary_interval=PING_INTERVAL,
            attempt_timeout=timedelta(seconds=2),
            retry=Retry(attempts=2),
            ledger=ledger,
        )
        for name in NOTED_EVENTS:
            bus.on(name, self._note_event)
        with bus:
            self._send_all([(entity, _sender_for(bus, entity)) for entity in ENTITIES])

    def send_through(self, proxy: str) -> None:
        """The same with the official client and nothing else."""
        with ServiceBusClient.from_connection_string(proxy) as client:
            self._send_all([(entity, _sender_for(client, entity)) for entity in ENTITIES])

    def _send_all(self, senders: Sequence[tuple[DemoEntity, PairedServiceBusSender | ServiceBusSender]]) -> None:
        """Returns when every message is stored somewhere. It takes about the seconds that were asked for, or longer.

        At the end of the input it no longer waits for cues.
        """
        for number in range(self._count):
            if number in self._waits_before:
                next(self._cues, None)
            due_s = time.monotonic() + self._pace_s
            entity, sender = senders[number % len(senders)]
            message_id = f"{entity.name}-{number:06d}"
            session = entity.session_of(number // len(senders))
            message = ServiceBusMessage(f"number {number}", message_id=message_id, session_id=session)
            self._send(entity.name, sender, message)
            time.sleep(max(0.0, due_s - time.monotonic()))

    def _send(self, entity: str, sender: PairedServiceBusSender | ServiceBusSender, message: ServiceBusMessage) -> None:
        message_id = str(message.message_id)
        while True:
            began_s = time.monotonic()
            try:
                receipt = sender.send_messages(message)
            except (AzureError, TwinbusError, OSError) as error:
                note = f"{type(error).__name__}: {error}"
                self._journal.write(JournalEntry(kind="failed", entity=entity, message_id=message_id, note=note))
                time.sleep(RETRY_PAUSE_S)
                continue
            took_s = time.monotonic() - began_s
            place = "" if receipt is None else receipt.places[0]
            self._journal.write(
                JournalEntry(kind="acknowledged", entity=entity, message_id=message_id, place=place, took_s=took_s)
            )
            return

    def _note_event(self, event: PairEvent) -> None:
        self._journal.write(
            JournalEntry(kind="event", entity=event.entity or "", event=event.name.value, note=event.text)
        )


def _sender_for(
    bus: PairedServiceBusClient | ServiceBusClient, entity: DemoEntity
) -> PairedServiceBusSender | ServiceBusSender:
    return bus.get_topic_sender(entity.name) if entity.kind == "topic" else bus.get_queue_sender(entity.name)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # the demo reports what happens
    journal_path, ledger_path, count, seconds = sys.argv[1:]
    sender = NumberedSender(int(count), float(seconds), JournalWriter(Path(journal_path)), sys.stdin)
    if PROXY_VARIABLE in os.environ:
        sender.send_through(os.environ[PROXY_VARIABLE])
    else:
        sender.send_paired(os.environ[PRIMARY_VARIABLE], os.environ[SECONDARY_VARIABLE], Path(ledger_path))
