"""Apache Qpid Proton, which knows AMQP 1.0 and nothing of Service Bus, as the README of this folder says.

It has no retries of its own: a link or a connection that is lost is opened anew by the next command. There is no
`$management` in it either, so that locks are not renewed and nothing is peeked at; a message is scheduled by its
annotation, and a batch is one message after the other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

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
from proton import Message, Timeout, symbol, timestamp
from proton.utils import BlockingConnection

ATTEMPT_S = 60


class Link:
    """A connection with one link; Proton's blocking connections are for one thread."""

    def __init__(self, make: Callable[[BlockingConnection], Any]) -> None:
        parts = dict(part.split("=", 1) for part in os.environ["BUS"].split(";") if part)
        self._address = parts["Endpoint"].rstrip("/").replace("sb://", "amqp://")
        self._user, self._key = parts["SharedAccessKeyName"], parts["SharedAccessKey"]
        self._make = make
        self._connection: BlockingConnection | None = None
        self._link: Any = None

    def get(self) -> Any:
        if self._link is None:
            self._connection = BlockingConnection(
                self._address,
                timeout=ATTEMPT_S,
                allowed_mechs="PLAIN",
                allow_insecure_mechs=True,
                user=self._user,
                password=self._key,
            )
            self._link = self._make(self._connection)
        return self._link

    def drop(self) -> None:
        """Open it anew the next time."""
        connection, self._connection, self._link = self._connection, None, None
        if connection is not None:
            try:
                connection.close()
            except Exception:
                return  # it is gone, as wanted


class Client(ThreadedClient):
    def __init__(self) -> None:
        super().__init__()
        self._senders: dict[str, Link] = {}
        self._receivers: dict[str, Link] = {}

    def _send(self, entity: str, how: str, ids: list[str]) -> None:
        link = self._senders.setdefault(entity, Link(lambda connection: connection.create_sender(entity)))
        for each in ids:
            message = Message(body=each, id=each, durable=True)
            if how == "schedule":
                due_ms = int((time.time() + DUE_S) * 1000)
                message.annotations = {symbol("x-opt-scheduled-enqueue-time"): timestamp(due_ms)}
            try:
                link.get().send(message)
            except Exception:
                link.drop()
                raise

    def receive(self, command: Command) -> Answer:
        """One message, and it is not kept: settling is for the loop."""
        entity = command["entity"]
        link = self._receivers.setdefault(entity, receiving(entity))
        try:
            message = link.get().receive(timeout=command["wait_ms"] / 1000)
        except Timeout:
            return {"messages": []}
        except Exception:
            link.drop()
            raise
        link.get().release(delivered=False)
        link.drop()
        return {"messages": [described(message)]}

    def _keep_sending(self, command: Command, file: IdFile) -> None:
        for how, ids in rounds(command["prefix"]):
            if self._stopping.wait(command["pause_ms"] / 1000):
                return
            for each in ids:  # one by one: the first may be accepted and the next refused
                try:
                    self._send(command["entity"], how, [each])
                except Exception as error:
                    file.add(*failed_lines([each], error))
                    self._stopping.wait(AFTER_FAILURE_S)
                else:
                    file.add(("accepted", each))

    def _keep_receiving(self, command: Command, file: IdFile) -> None:
        link = receiving(command["entity"])
        while not self._stopping.is_set():
            try:
                receiver = link.get()
                message = receiver.receive(timeout=1)
                values = described(message)
                file.add(("received", values["id"], values["sequence"], values["delivery_count"]))
                receiver.accept()
            except Timeout:
                continue
            except Exception as error:
                file.add(("problem", kind_of(error), error))
                link.drop()
                self._stopping.wait(AFTER_FAILURE_S)
        link.drop()

    def close(self) -> None:
        for link in (*self._senders.values(), *self._receivers.values()):
            link.drop()


def receiving(entity: str) -> Link:
    return Link(lambda connection: connection.create_receiver(entity, credit=1))


def described(message: Message) -> Answer:
    annotations: dict[symbol, Any] = message.annotations or {}
    return {
        "id": message.id,
        "sequence": int(annotations[symbol("x-opt-sequence-number")]),
        "delivery_count": message.delivery_count,
    }


def main() -> None:
    client = Client()
    serve(client)
    client.close()


if __name__ == "__main__":
    main()
