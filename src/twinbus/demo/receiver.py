"""The demo's receiver, a process of its own: `python -m twinbus.demo.receiver JOURNAL QUEUE...`

It uses the official SDK, completes each message and writes it down, and ends when all queues have been empty for a
while. It reads the primary only: that anything was ever elsewhere is none of its business.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from azure.servicebus import ServiceBusClient

from twinbus.demo.crew import PRIMARY_VARIABLE
from twinbus.demo.journal import JournalWriter

EMPTY_WAIT_S = 2.0
BATCH_SIZE = 100


def receive_all(connection_string: str, queue: str, journal: JournalWriter) -> None:
    """Returns when the queue has been empty for a while."""
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        while messages := receiver.receive_messages(max_message_count=BATCH_SIZE, max_wait_time=EMPTY_WAIT_S):
            for message in messages:
                receiver.complete_message(message)
                journal.write("received", str(message.message_id), queue)


if __name__ == "__main__":
    journal_path, *queues = sys.argv[1:]
    journal = JournalWriter(Path(journal_path))
    with ThreadPoolExecutor(len(queues)) as pool:  # SDK clients are not made to be shared: one per queue
        for done in [pool.submit(receive_all, os.environ[PRIMARY_VARIABLE], queue, journal) for queue in queues]:
            done.result()
