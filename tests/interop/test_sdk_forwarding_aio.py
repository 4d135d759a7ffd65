"""The official asyncio clients, unmodified, against a real namespace: forwarding."""

from __future__ import annotations

from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from twinbus.testing import LocalNamespace

WAIT_S = 10


async def test_messages_go_on_and_what_cannot_is_kept(namespace: LocalNamespace) -> None:
    async with (
        ServiceBusAdministrationClient.from_connection_string(
            namespace.connection_string, connection_verify=str(namespace.ca_file), retry_total=0
        ) as admin,
        ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client,
    ):
        await admin.create_queue("last")
        await admin.create_topic("events")
        await admin.create_subscription("events", "all", forward_to="last", forward_dead_lettered_messages_to="last")
        assert (await admin.get_subscription("events", "all")).forward_to == f"sb://127.0.0.1:{namespace.port}/last"
        async with client.get_topic_sender("events") as sender:
            await sender.send_messages(ServiceBusMessage("a"))
            async with client.get_queue_receiver("last") as receiver:
                (message,) = await receiver.receive_messages(1, max_wait_time=WAIT_S)
                assert str(message) == "a"
                await receiver.complete_message(message)
            await admin.delete_queue("last")
            await sender.send_messages(ServiceBusMessage("b"))
        aside = ServiceBusSubQueue.TRANSFER_DEAD_LETTER
        async with client.get_subscription_receiver("events", "all", sub_queue=aside) as receiver:
            (message,) = await receiver.receive_messages(1, max_wait_time=WAIT_S)
            assert (str(message), message.dead_letter_reason) == ("b", "MessagingEntityNotFound")
            await receiver.complete_message(message)
        counts = await admin.get_subscription_runtime_properties("events", "all")
        assert counts.transfer_dead_letter_message_count == 0
