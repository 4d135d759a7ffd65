"""Two namespaces with a backlog between them, for tests of the syphon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusReceivedMessage, ServiceBusSubQueue

from twinbus.amqp import sections
from twinbus.amqp.events import DispositionArrived
from twinbus.amqp.outcomes import ACCEPTED
from twinbus.amqp.sections import PropertyField
from twinbus.client.namespace import Namespace
from twinbus.pairing.encoded_messages import encode_batch
from twinbus.pairing.envelope import address
from twinbus.syphon import Alert, Syphon, SyphonOptions
from twinbus.testing import LocalNamespace, NamespacePair
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.dial import Dial
from twinbus.transport.link_handler import LinkHandler

WAIT_S = 60.0
QUICK: dict[str, Any] = {"backoff_s": (0.1, 0.5), "busy_s": 0.5, "attempt_s": 5.0}
"""Pauses that suit a test."""


def with_backlog(pair: NamespacePair) -> NamespacePair:
    """With two destinations and two backlog queues."""
    for name in ("orders", "invoices"):
        pair.primary.create_queue(name)
    for index in range(2):
        pair.secondary.create_queue(backlog(index), max_delivery_count=2_147_483_647)
    return pair


def backlog(index: int) -> str:
    return f"contoso/x-servicebus-transfer/{index}"


def dial(namespace: LocalNamespace) -> Dial:
    return Namespace.from_connection_string(namespace.connection_string).dial()


def letter(path: str, message_id: str, body: bytes = b"body", **parts: Any) -> bytes:
    properties = {PropertyField.MESSAGE_ID: message_id}
    return address(sections.encode_message(properties=properties, data=body, **parts), path)


class Filling(LinkHandler):
    def __init__(self) -> None:
        super().__init__()
        self.stored = asyncio.Event()

    def on_disposition(self, event: DispositionArrived) -> None:
        assert event.outcome == ACCEPTED
        self.stored.set()


async def fill(namespace: LocalNamespace, index: int, letters: list[bytes]) -> None:
    """Put letters into a backlog queue."""
    connection = NamespaceConnection(dial(namespace), attempt_s=10.0)
    await connection.open()
    filling = Filling()
    link = await connection.open_sender(backlog(index), filling)
    for start in range(0, len(letters), 100):
        filling.stored.clear()
        payload, message_format = encode_batch(letters[start : start + 100])
        link.send(payload, tag=start.to_bytes(4, "big"), message_format=message_format)
        connection.flush()
        await asyncio.wait_for(filling.stored.wait(), WAIT_S)
    await connection.close()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not is_so():
            await asyncio.sleep(0.01)


async def messages_at(
    namespace: LocalNamespace, queue: str, count: int, sub_queue: ServiceBusSubQueue | None = None
) -> list[ServiceBusReceivedMessage]:
    """Receive and remove what is there, with the official client."""

    def receive() -> list[ServiceBusReceivedMessage]:
        found: list[ServiceBusReceivedMessage] = []
        with (
            ServiceBusClient.from_connection_string(namespace.connection_string) as client,
            client.get_queue_receiver(queue, sub_queue=sub_queue, receive_mode="receiveanddelete") as receiver,
        ):
            while len(found) < count:
                more = receiver.receive_messages(count - len(found), max_wait_time=5)
                if not more:
                    break
                found += more
        return found

    return await asyncio.to_thread(receive)


def ids_of(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    return sorted(str(message.message_id) for message in messages)


@asynccontextmanager
async def running(pair: NamespacePair, alerts: list[Alert] | None = None, **options: Any) -> AsyncIterator[Syphon]:
    chosen = SyphonOptions(**(QUICK | options))
    on_alert = None if alerts is None else alerts.append
    pump = Syphon(dial(pair.primary), dial(pair.secondary), "contoso", 2, chosen, on_alert=on_alert)
    async with pump:
        yield pump
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert left == [], "a stopped syphon leaves no task behind"
