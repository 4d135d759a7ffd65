"""The official asyncio client, unmodified, against a real namespace: sessions, on queues and subscriptions."""

from __future__ import annotations

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import SessionCannotBeLockedError

from twinbus.testing import LocalNamespace

WAIT_S = 30


async def test_sessions_of_a_queue(namespace: LocalNamespace) -> None:
    namespace.create_queue("orders", requires_session=True)
    async with ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client:
        async with client.get_queue_sender("orders") as sender:
            for number in range(6):
                await sender.send_messages(ServiceBusMessage(str(number), session_id="ab"[number % 2]))
        async with client.get_queue_receiver("orders", session_id="a") as receiver:
            found: list[str] = []
            while len(found) < 3:
                for message in await receiver.receive_messages(3, max_wait_time=WAIT_S):
                    found.append(str(message))
                    await receiver.complete_message(message)
            assert found == ["0", "2", "4"]
            await receiver.session.set_state("done")
            assert await receiver.session.get_state() == b"done"
            await receiver.session.renew_lock()
            with pytest.raises(SessionCannotBeLockedError):
                async with client.get_queue_receiver("orders", session_id="a") as second:
                    await second.receive_messages(max_wait_time=1)
        async with client.get_queue_receiver("orders", session_id=NEXT_AVAILABLE_SESSION) as receiver:
            assert receiver.session.session_id == "b"


async def test_sessions_of_a_subscription(namespace: LocalNamespace) -> None:
    async with (
        ServiceBusAdministrationClient.from_connection_string(
            namespace.connection_string, connection_verify=str(namespace.ca_file), retry_total=0
        ) as admin,
        ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client,
    ):
        await admin.create_topic("events")
        await admin.create_subscription("events", "audit", requires_session=True)
        assert (await admin.get_subscription("events", "audit")).requires_session is True
        async with client.get_topic_sender("events") as sender:
            await sender.send_messages(ServiceBusMessage("1", session_id="s"))
        async with client.get_subscription_receiver(
            "events", "audit", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=WAIT_S
        ) as receiver:
            (message,) = await receiver.receive_messages(1, max_wait_time=WAIT_S)
            assert (str(message), receiver.session.session_id) == ("1", "s")
            await receiver.complete_message(message)
