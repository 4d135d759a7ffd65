"""The demo's sender, a process of its own: `python -m twinbus.demo.sender JOURNAL COUNT SECONDS QUEUE...`

An application that sends numbered messages through a pair and writes down what it was told. The connection strings,
which contain keys, come in the environment.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusMessage

from twinbus import News, PairedServiceBusClient, PairedServiceBusSender, Retry
from twinbus.demo.crew import PRIMARY_VARIABLE, SECONDARY_VARIABLE
from twinbus.demo.journal import JournalWriter
from twinbus.errors import TwinbusError

PING_INTERVAL = timedelta(seconds=2)
RETRY_PAUSE_S = 0.2
WORTH_TELLING = ("failed_over", "recovered", "in_doubt", "backlog_queue_lost")


class NumberedSender:
    def __init__(self, queues: list[str], count: int, seconds: float, journal: JournalWriter) -> None:
        self._queues = queues
        self._count = count
        self._pace_s = seconds / count
        self._journal = journal

    def send_all(self, primary: str, secondary: str) -> None:
        """Returns when every message is stored somewhere. It takes about the seconds that were asked for, or longer."""
        bus = PairedServiceBusClient.from_connection_strings(
            primary,
            secondary,
            failover_interval=timedelta(0),
            ping_primary_interval=PING_INTERVAL,
            attempt_timeout=timedelta(seconds=2),
            retry=Retry(attempts=2),
        )
        for name in WORTH_TELLING:
            bus.on(name, self._tell)
        with bus:
            senders = [bus.get_queue_sender(queue) for queue in self._queues]
            for number in range(self._count):
                turn = number % len(senders)
                message = ServiceBusMessage(f"order {number}", message_id=f"{self._queues[turn]}-{number:06d}")
                self._send(senders[turn], message)
                time.sleep(self._pace_s)

    def _send(self, sender: PairedServiceBusSender, message: ServiceBusMessage) -> None:
        message_id = str(message.message_id)
        while True:
            try:
                receipt = sender.send_messages(message)
            except (AzureError, TwinbusError, OSError) as error:
                self._journal.write("failed", message_id, f"{type(error).__name__}: {error}")
                time.sleep(RETRY_PAUSE_S)
            else:
                self._journal.write("acknowledged", message_id, receipt.entity, receipt.places[0])
                return

    def _tell(self, news: News) -> None:
        self._journal.write("news", "", f"{news.name.value} {news.entity or ''}: {news.text}", news.name.value)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # the story is told elsewhere
    journal_path, count, seconds, *queues = sys.argv[1:]
    sender = NumberedSender(queues, int(count), float(seconds), JournalWriter(Path(journal_path)))
    sender.send_all(os.environ[PRIMARY_VARIABLE], os.environ[SECONDARY_VARIABLE])
