"""The official Python client on threads, as the README of this folder says."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSender,
)
from commands import (
    AFTER_FAILURE_S,
    DUE_S,
    Answer,
    Command,
    IdFile,
    ThreadedClient,
    failed_lines,
    kind_of,
    rounds,
    serve,
)


class Client(ThreadedClient):
    def __init__(self) -> None:
        super().__init__()
        self._client = ServiceBusClient.from_connection_string(os.environ["BUS"])
        self._senders: dict[str, ServiceBusSender] = {}
        self._receivers: dict[str, ServiceBusReceiver] = {}
        self._kept: dict[str, tuple[ServiceBusReceiver, ServiceBusReceivedMessage]] = {}

    def _send(self, entity: str, how: str, ids: list[str]) -> None:
        sender = self._senders.get(entity) or self._client.get_queue_sender(entity)
        self._senders[entity] = sender
        messages = [ServiceBusMessage(each, message_id=each) for each in ids]
        if how == "schedule":
            sender.schedule_messages(messages, datetime.now(UTC) + timedelta(seconds=DUE_S))
        elif how == "batch":
            batch = sender.create_message_batch()
            for message in messages:
                batch.add_message(message)
            sender.send_messages(batch)
        else:
            sender.send_messages(messages[0])

    def _receiver(self, entity: str) -> ServiceBusReceiver:
        receiver = self._receivers.get(entity) or self._client.get_queue_receiver(entity)
        self._receivers[entity] = receiver
        return receiver

    def receive(self, command: Command) -> Answer:
        receiver = self._receiver(command["entity"])
        messages = receiver.receive_messages(command["max"], max_wait_time=command["wait_ms"] / 1000)
        self._kept |= {str(message.message_id): (receiver, message) for message in messages}
        return {"messages": [described(message) for message in messages]}

    def settle(self, command: Command) -> Answer:
        receiver, message = self._kept[command["message"]]
        if command["how"] == "complete":
            receiver.complete_message(message)
        else:
            receiver.abandon_message(message)
        return {}

    def renew(self, command: Command) -> Answer:
        receiver, message = self._kept[command["message"]]
        receiver.renew_message_lock(message)
        return {}

    def peek(self, command: Command) -> Answer:
        messages = self._receiver(command["entity"]).peek_messages(command["max"])
        return {"messages": [described(message) for message in messages]}

    def _keep_sending(self, command: Command, file: IdFile) -> None:
        for how, ids in rounds(command["prefix"]):
            if self._stopping.wait(command["pause_ms"] / 1000):
                return
            try:
                self._send(command["entity"], how, ids)
            except Exception as error:
                file.add(*failed_lines(ids, error))
                self._stopping.wait(AFTER_FAILURE_S)
            else:
                file.add(*[("accepted", each) for each in ids])

    def _keep_receiving(self, command: Command, file: IdFile) -> None:
        receiver = self._client.get_queue_receiver(command["entity"])
        while not self._stopping.is_set():
            try:
                for message in receiver.receive_messages(20, max_wait_time=1):
                    file.add(("received", message.message_id, message.sequence_number, message.delivery_count))
                    receiver.complete_message(message)
            except Exception as error:
                file.add(("problem", kind_of(error), error))
                time.sleep(AFTER_FAILURE_S)

    def close(self) -> None:
        self._client.close()


def described(message: ServiceBusReceivedMessage) -> Answer:
    return {
        "id": message.message_id,
        "sequence": message.sequence_number,
        "delivery_count": message.delivery_count,
    }


def main() -> None:
    client = Client()
    serve(client)
    client.close()


if __name__ == "__main__":
    main()
