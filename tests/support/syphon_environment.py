"""Two namespaces with a backlog between them, for tests of the syphon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusReceivedMessage, ServiceBusSubQueue
from backlog_messages import put

from twinbus.client.namespace import Namespace
from twinbus.syphon import Alert, Syphon, SyphonOptions
from twinbus.testing import LocalNamespace, NamespacePair
from twinbus.transport.dial import Dial

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


async def fill(namespace: LocalNamespace, index: int, messages: list[bytes]) -> None:
    """Put messages into a backlog queue."""
    await put(namespace.connection_string, backlog(index), messages)


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
