"""The official Python client on tasks, as the README of this folder says."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from commands import (
    AFTER_FAILURE_S,
    DUE_S,
    Answer,
    Command,
    IdFile,
    answer,
    counts_of,
    error_values,
    failed_lines,
    kind_of,
    method_of,
    rounds,
)


class Client:
    def __init__(self) -> None:
        self._client = ServiceBusClient.from_connection_string(os.environ["BUS"])
        self._senders: dict[str, ServiceBusSender] = {}
        self._receivers: dict[str, ServiceBusReceiver] = {}
        self._kept: dict[str, tuple[ServiceBusReceiver, ServiceBusReceivedMessage]] = {}
        self._stopping = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        self._files: list[IdFile] = []

    async def send(self, command: Command) -> Answer:
        await self._send(command["entity"], command["how"], command["ids"])
        return {}

    async def _send(self, entity: str, how: str, ids: list[str]) -> None:
        sender = self._senders.get(entity) or self._client.get_queue_sender(entity)
        self._senders[entity] = sender
        messages = [ServiceBusMessage(each, message_id=each) for each in ids]
        if how == "schedule":
            await sender.schedule_messages(messages, datetime.now(UTC) + timedelta(seconds=DUE_S))
        elif how == "batch":
            batch = await sender.create_message_batch()
            for message in messages:
                batch.add_message(message)
            await sender.send_messages(batch)
        else:
            await sender.send_messages(messages[0])

    def _receiver(self, entity: str) -> ServiceBusReceiver:
        receiver = self._receivers.get(entity) or self._client.get_queue_receiver(entity)
        self._receivers[entity] = receiver
        return receiver

    async def receive(self, command: Command) -> Answer:
        receiver = self._receiver(command["entity"])
        messages = await receiver.receive_messages(command["max"], max_wait_time=command["wait_ms"] / 1000)
        self._kept |= {str(message.message_id): (receiver, message) for message in messages}
        return {"messages": [described(message) for message in messages]}

    async def settle(self, command: Command) -> Answer:
        receiver, message = self._kept[command["message"]]
        if command["how"] == "complete":
            await receiver.complete_message(message)
        else:
            await receiver.abandon_message(message)
        return {}

    async def renew(self, command: Command) -> Answer:
        receiver, message = self._kept[command["message"]]
        await receiver.renew_message_lock(message)
        return {}

    async def peek(self, command: Command) -> Answer:
        messages = await self._receiver(command["entity"]).peek_messages(command["max"])
        return {"messages": [described(message) for message in messages]}

    async def start_sending(self, command: Command) -> Answer:
        return self._start(self._keep_sending, command)

    async def start_receiving(self, command: Command) -> Answer:
        return self._start(self._keep_receiving, command)

    def _start(self, loop: Callable[[Command, IdFile], Coroutine[Any, Any, None]], command: Command) -> Answer:
        file = IdFile(command["file"])
        self._files.append(file)
        self._loops.append(asyncio.create_task(loop(command, file)))
        return {}

    async def _keep_sending(self, command: Command, file: IdFile) -> None:
        for how, ids in rounds(command["prefix"]):
            if self._stopping.is_set():
                return
            try:
                await self._send(command["entity"], how, ids)
            except Exception as error:
                file.add(*failed_lines(ids, error))
                await asyncio.sleep(AFTER_FAILURE_S)
            else:
                file.add(*[("accepted", each) for each in ids])
            await asyncio.sleep(command["pause_ms"] / 1000)

    async def _keep_receiving(self, command: Command, file: IdFile) -> None:
        receiver = self._client.get_queue_receiver(command["entity"])
        while not self._stopping.is_set():
            try:
                for message in await receiver.receive_messages(20, max_wait_time=1):
                    file.add(("received", message.message_id, message.sequence_number, message.delivery_count))
                    await receiver.complete_message(message)
            except Exception as error:
                file.add(("problem", kind_of(error), error))
                await asyncio.sleep(AFTER_FAILURE_S)

    async def stop(self, _: Command) -> Answer:
        self._stopping.set()
        for loop in self._loops:
            await loop
        return counts_of(self._files)

    async def close(self) -> None:
        await self._client.close()


def described(message: ServiceBusReceivedMessage) -> Answer:
    return {
        "id": message.message_id,
        "sequence": message.sequence_number,
        "delivery_count": message.delivery_count,
    }


async def main() -> None:
    client = Client()
    while line := await asyncio.to_thread(sys.stdin.readline):
        command = json.loads(line)
        began = time.monotonic()
        try:
            values = await method_of(client, command)(command)
        except Exception as error:
            values = error_values(error)
        answer(command, began, values)
    await client.close()


if __name__ == "__main__":
    asyncio.run(main())
