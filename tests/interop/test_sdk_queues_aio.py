"""The official asyncio client, unmodified, against a real namespace: queues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import MessageSizeExceededError, MessagingEntityNotFoundError

from twinbus.testing import LocalNamespace

WAIT_S = 10


@pytest.fixture
async def client(namespace: LocalNamespace) -> AsyncIterator[ServiceBusClient]:
    namespace.create_queue("orders")
    async with ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client:
        yield client


async def receive(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    found: list[ServiceBusReceivedMessage] = []
    while len(found) < count:
        got = await receiver.receive_messages(count - len(found), max_wait_time=WAIT_S)
        assert got, f"only {len(found)} of {count} messages came within {WAIT_S} s"
        found += got
    return found


async def test_single_list_and_batch_are_sent_and_completed(client: ServiceBusClient) -> None:
    async with client.get_queue_sender("orders") as sender:
        batch = await sender.create_message_batch()
        batch.add_message(ServiceBusMessage("4"))
        await sender.send_messages(ServiceBusMessage("1"))
        await sender.send_messages([ServiceBusMessage("2"), ServiceBusMessage("3")])
        await sender.send_messages(batch)
    async with client.get_queue_receiver("orders") as receiver:
        messages = await receive(receiver, 4)
        for message in messages:
            await receiver.complete_message(message)
        assert await receiver.peek_messages(1, sequence_number=1) == []
    assert [str(message) for message in messages] == ["1", "2", "3", "4"]


async def test_abandon_defer_and_dead_letter_each_do_what_they_say(client: ServiceBusClient) -> None:
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages([ServiceBusMessage(text) for text in ("abandoned", "deferred", "dead")])
    async with client.get_queue_receiver("orders") as receiver:
        abandoned, deferred, dead = await receive(receiver, 3)
        await receiver.abandon_message(abandoned)
        await receiver.defer_message(deferred)
        await receiver.dead_letter_message(dead, reason="bad", error_description="text")
        (again,) = await receive(receiver, 1)
        assert (str(again), again.delivery_count) == ("abandoned", 1)
        await receiver.complete_message(again)
        assert deferred.sequence_number is not None
        (fetched,) = await receiver.receive_deferred_messages(deferred.sequence_number)
        await receiver.complete_message(fetched)
    async with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        (found,) = await receive(receiver, 1)
        await receiver.complete_message(found)
    assert (str(found), found.dead_letter_reason, found.dead_letter_error_description) == ("dead", "bad", "text")


async def test_receive_and_delete_and_renewal_work(client: ServiceBusClient) -> None:
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages([ServiceBusMessage("1"), ServiceBusMessage("2")])
    async with client.get_queue_receiver("orders") as receiver:
        (message,) = await receive(receiver, 1)
        assert await receiver.renew_message_lock(message) is not None
        await receiver.complete_message(message)
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    async with client.get_queue_receiver("orders", receive_mode=mode) as receiver:
        assert [str(message) for message in await receive(receiver, 1)] == ["2"]


async def test_many_tasks_send_at_the_same_time(client: ServiceBusClient) -> None:
    async def send(number: int) -> None:
        async with client.get_queue_sender("orders") as sender:
            for index in range(10):
                await sender.send_messages(ServiceBusMessage(f"{number}-{index}"))

    await asyncio.gather(*(send(number) for number in range(10)))
    async with client.get_queue_receiver("orders", prefetch_count=100) as receiver:
        got = await receive(receiver, 100)
        for message in got:
            await receiver.complete_message(message)
    assert {str(message) for message in got} == {f"{number}-{index}" for number in range(10) for index in range(10)}


async def test_refusals_are_the_same_exceptions(client: ServiceBusClient) -> None:
    async with client.get_queue_sender("orders") as sender:
        with pytest.raises(MessageSizeExceededError):
            await sender.send_messages(ServiceBusMessage(b"x" * 300_000))
    with pytest.raises(MessagingEntityNotFoundError):
        async with client.get_queue_sender("typo") as sender:
            await sender.send_messages(ServiceBusMessage("x"))
