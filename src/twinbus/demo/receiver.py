"""One receiver of the demo, a process of its own: `python -m twinbus.demo.receiver JOURNAL ENTITY`

It uses the official SDK, completes each message, writes it to its journal, and ends when the namespace reports that the
entity is empty: a pause may also mean that the machine is busy. It reads the primary only.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import OperationTimeoutError
from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus.client.namespace import Namespace
from twinbus.demo.entities import CUSTOMERS, SUBSCRIPTION, DemoEntity, entity_called
from twinbus.demo.journal import JournalEntry, JournalWriter
from twinbus.demo.processes import PRIMARY_VARIABLE

NOTHING_WAIT_S = 0.5
BATCH_SIZE = 100


def receive_all(connection_string: str, entity: DemoEntity, journal: JournalWriter) -> None:
    """Returns when the entity is empty."""
    receive = _receive_sessions if entity.kind == "session queue" else _receive_queue
    with Namespace.from_connection_string(connection_string).admin_client() as admin:
        receive(connection_string, entity, journal)
        while not _is_empty(admin, entity):
            receive(connection_string, entity, journal)


def _is_empty(admin: ServiceBusAdministrationClient, entity: DemoEntity) -> bool:
    """Whether the namespace has no message for it, also none that somebody else has locked."""
    if entity.kind == "topic":
        return admin.get_subscription_runtime_properties(entity.name, SUBSCRIPTION).active_message_count == 0
    return admin.get_queue_runtime_properties(entity.name).active_message_count == 0


def _receive_queue(connection_string: str, entity: DemoEntity, journal: JournalWriter) -> None:
    with ServiceBusClient.from_connection_string(connection_string) as client:
        if entity.kind == "topic":
            _receive(client.get_subscription_receiver(entity.name, SUBSCRIPTION), entity, journal)
        else:
            _receive(client.get_queue_receiver(entity.name), entity, journal)


def _receive_sessions(connection_string: str, entity: DemoEntity, journal: JournalWriter) -> None:
    """All sessions at a time: each is waited for when it is empty."""
    with ThreadPoolExecutor(CUSTOMERS) as threads:
        done = [threads.submit(_receive_some_sessions, connection_string, entity, journal) for _ in range(CUSTOMERS)]
    for each in done:
        each.result()


def _receive_some_sessions(connection_string: str, entity: DemoEntity, journal: JournalWriter) -> None:
    """One session after the other, as long as there are any that nobody else has."""
    # No attempt but the first: that there is no session any more would take the SDK twenty seconds to believe.
    with ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client:
        while _receive_session(client, entity, journal):
            pass


def _receive_session(client: ServiceBusClient, entity: DemoEntity, journal: JournalWriter) -> bool:
    """Receive one whole session; False if no session has a message."""
    try:
        session = client.get_queue_receiver(
            entity.name, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=NOTHING_WAIT_S
        )
        _receive(session, entity, journal)
    except OperationTimeoutError:
        return False
    return True


def _receive(opened: ServiceBusReceiver, entity: DemoEntity, journal: JournalWriter) -> None:
    with opened as receiver:
        while messages := receiver.receive_messages(max_message_count=BATCH_SIZE, max_wait_time=NOTHING_WAIT_S):
            for message in messages:
                receiver.complete_message(message)
                name, session = str(message.message_id), message.session_id
                journal.write(JournalEntry(kind="received", entity=entity.name, message_id=name, session=session))


if __name__ == "__main__":
    journal_path, entity_name = sys.argv[1:]
    receive_all(os.environ[PRIMARY_VARIABLE], entity_called(entity_name), JournalWriter(Path(journal_path)))
