"""The official asyncio clients, unmodified, against a real namespace: topics, subscriptions and rules."""

from __future__ import annotations

from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import CorrelationRuleFilter, SqlRuleAction, SqlRuleFilter

from twinbus.testing import LocalNamespace

WAIT_S = 10


async def test_a_topic_with_rules_from_its_making_to_its_end(namespace: LocalNamespace) -> None:
    async with (
        ServiceBusAdministrationClient.from_connection_string(
            namespace.connection_string, connection_verify=str(namespace.ca_file), retry_total=0
        ) as admin,
        ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client,
    ):
        await admin.create_topic("events")
        for name in ("all", "some"):
            await admin.create_subscription("events", name)
        await admin.delete_rule("events", "some", "$Default")
        await admin.create_rule("events", "some", "paid", filter=CorrelationRuleFilter(properties={"paid": True}))
        action = SqlRuleAction("SET checked = 'yes'")
        await admin.create_rule("events", "some", "large", filter=SqlRuleFilter("amount > 100"), action=action)
        async with client.get_topic_sender("events") as sender:
            await sender.send_messages(ServiceBusMessage("a", application_properties={"paid": True, "amount": 1}))
            await sender.send_messages(ServiceBusMessage("b", application_properties={"paid": 1, "amount": 101}))
        assert await received(client, "all", 2) == ["a", "b"]
        assert await received(client, "some", 2) == ["a", "b"]
        assert [rule.name async for rule in admin.list_rules("events", "some")] == ["large", "paid"]
        assert (await admin.get_subscription_runtime_properties("events", "some")).active_message_count == 0
        await admin.delete_topic("events")
        assert [topic.name async for topic in admin.list_topics()] == []


async def received(client: ServiceBusClient, subscription: str, count: int) -> list[str]:
    found: list[str] = []
    async with client.get_subscription_receiver("events", subscription) as receiver:
        while len(found) < count:
            got = await receiver.receive_messages(count - len(found), max_wait_time=WAIT_S)
            assert got, f"only {len(found)} of {count} messages came"
            for message in got:
                found.append(str(message))
                await receiver.complete_message(message)
    return found


async def test_dead_letters_of_a_subscription(namespace: LocalNamespace) -> None:
    namespace.create_topic("events", "audit")
    async with ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client:
        async with client.get_topic_sender("events") as sender:
            await sender.send_messages(ServiceBusMessage("bad"))
        async with client.get_subscription_receiver("events", "audit") as receiver:
            (message,) = await receiver.receive_messages(1, max_wait_time=WAIT_S)
            await receiver.dead_letter_message(message, reason="broken")
        async with client.get_subscription_receiver(
            "events", "audit", sub_queue=ServiceBusSubQueue.DEAD_LETTER
        ) as receiver:
            (dead,) = await receiver.receive_messages(1, max_wait_time=WAIT_S)
            assert (str(dead), dead.dead_letter_reason) == ("bad", "broken")
