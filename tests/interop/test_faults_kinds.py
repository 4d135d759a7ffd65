"""Faults of a topic, of a queue with sessions and of a partitioned one: felt as those of any queue."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import ServiceBusError, ServiceBusServerBusyError

from twinbus.client.namespace import Namespace
from twinbus.testing import LocalNamespace

WAIT_S = 20
"""Upper bound; what is there comes at once."""
NAME = "orders"


@dataclass(frozen=True)
class Kind:
    name: str
    is_topic: bool = False
    session: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    def make(self, namespace: LocalNamespace) -> None:
        if self.is_topic:
            namespace.create_topic(NAME, "all", **self.settings)
        else:
            namespace.create_queue(NAME, requires_session=self.session is not None, **self.settings)

    def scheduled_in(self, namespace: LocalNamespace) -> int:
        """How many messages wait for their time."""
        with Namespace.from_connection_string(namespace.connection_string).admin_client(attempt_s=WAIT_S) as admin:
            look = admin.get_topic_runtime_properties if self.is_topic else admin.get_queue_runtime_properties
            return look(NAME).scheduled_message_count or 0

    def sender(self, client: ServiceBusClient) -> ServiceBusSender:
        return client.get_topic_sender(NAME) if self.is_topic else client.get_queue_sender(NAME)

    def receiver(self, client: ServiceBusClient) -> ServiceBusReceiver:
        path = f"{NAME}/Subscriptions/all" if self.is_topic else NAME
        session: Any = {"session_id": NEXT_AVAILABLE_SESSION} if self.session else {}
        return client.get_queue_receiver(path, keep_alive=0, **session)

    def message(self, text: str) -> ServiceBusMessage:
        return ServiceBusMessage(text, session_id=self.session)


KINDS = (
    Kind("topic", is_topic=True),
    Kind("queue with sessions", session="customer-7"),
    Kind("partitioned queue", settings={"partitioned": True}),
)


@pytest.fixture
async def client(namespace: LocalNamespace) -> AsyncIterator[ServiceBusClient]:
    async with ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client:
        yield client


async def send(kind: Kind, client: ServiceBusClient, text: str) -> None:
    async with kind.sender(client) as sender:
        await sender.send_messages(kind.message(text))


async def received(kind: Kind, client: ServiceBusClient) -> list[str]:
    """One message, completed."""
    async with kind.receiver(client) as receiver:
        found = await receiver.receive_messages(1, max_wait_time=WAIT_S)
        for message in found:
            await receiver.complete_message(message)
        return [str(message) for message in found]


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_each_kind_can_be_closed_to_senders_and_to_receivers(
    namespace: LocalNamespace, client: ServiceBusClient, kind: Kind
) -> None:
    kind.make(namespace)
    await send(kind, client, "1")
    no_send = namespace.faults.add("no-send", entities=[NAME])
    with pytest.raises(ServiceBusError, match="cannot be sent to"):
        await send(kind, client, "refused")
    assert await received(kind, client) == ["1"]
    namespace.faults.clear(no_send)
    namespace.faults.add("no-receive", entities=[NAME])
    await send(kind, client, "2")
    with pytest.raises(ServiceBusError, match="cannot be received from"):
        await received(kind, client)
    namespace.faults.clear()
    assert await received(kind, client) == ["2"]


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_each_kind_can_be_busy_and_late(namespace: LocalNamespace, client: ServiceBusClient, kind: Kind) -> None:
    kind.make(namespace)
    busy = namespace.faults.add("busy", entities=[NAME])
    with pytest.raises(ServiceBusServerBusyError):
        await send(kind, client, "refused")
    namespace.faults.clear(busy)
    namespace.faults.add("late", entities=[NAME], delay=timedelta(minutes=15))
    await send(kind, client, "late")
    namespace.faults.clear()
    await send(kind, client, "on time")
    assert await received(kind, client) == ["on time"]
    assert kind.scheduled_in(namespace) == 1
