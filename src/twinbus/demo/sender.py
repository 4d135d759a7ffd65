"""The demo's sender, a process of its own: `python -m twinbus.demo.sender NAMESPACE JOURNAL COUNT QUEUE...`

It uses the official SDK and sends numbered messages, each until it is acknowledged. The connection string, which
contains a key, comes in the environment.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from twinbus.demo.crew import CONNECTION_VARIABLE
from twinbus.demo.journal import JournalWriter

SEND_WAIT_S = 5.0
RETRY_PAUSE_S = 0.2
PACE_S = 0.001
"""Between two sends: leaves time to see what happens."""


class NumberedSender:
    def __init__(self, namespace: str, queues: list[str], count: int, journal: JournalWriter) -> None:
        self._namespace = namespace
        self._queues = queues
        self._count = count
        self._journal = journal
        self._number = 0

    def send_all(self, connection_string: str) -> None:
        """Returns when every message is acknowledged, however often the namespace goes away."""
        while self._number < self._count:
            try:
                self._send_while_it_works(connection_string)
            except (AzureError, OSError) as error:
                self._journal.write("failed", self._message_id, f"{type(error).__name__}: {error}")
                time.sleep(RETRY_PAUSE_S)

    @property
    def _message_id(self) -> str:
        return f"{self._namespace}-{self._number:06d}"

    def _send_while_it_works(self, connection_string: str) -> None:
        # No retries inside the SDK: the journal is to show each failure.
        with ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client:
            senders = [client.get_queue_sender(queue) for queue in self._queues]
            while self._number < self._count:
                turn = self._number % len(senders)
                message = ServiceBusMessage(f"order {self._number}", message_id=self._message_id)
                senders[turn].send_messages(message, timeout=SEND_WAIT_S)
                self._journal.write("acknowledged", self._message_id, self._queues[turn])
                self._number += 1
                time.sleep(PACE_S)


if __name__ == "__main__":
    namespace, journal_path, count, *queues = sys.argv[1:]
    journal = JournalWriter(Path(journal_path))
    NumberedSender(namespace, queues, int(count), journal).send_all(os.environ[CONNECTION_VARIABLE])
