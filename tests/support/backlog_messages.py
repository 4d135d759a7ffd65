"""Backlog queues with messages in them, as paired clients would leave them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from twinbus.amqp.codec.outcomes import ACCEPTED
from twinbus.amqp.events import DispositionArrived
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.client.namespace import Namespace
from twinbus.pairing.backlog.envelope import address
from twinbus.pairing.sending.encoded_messages import encode_batch
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.links.link_handler import LinkHandler

WAIT_S = 60.0
BATCH = 100


def backlog_message(path: str, message_id: str, body: bytes = b"body", **parts: Any) -> bytes:
    """A message with this id, addressed to an entity of the primary."""
    properties = {PropertyField.MESSAGE_ID: message_id}
    return address(sections.encode_message(properties=properties, data=body, **parts), path)


def backlog_messages_for(path: str, count: int, body: bytes = b"body") -> list[bytes]:
    return [backlog_message(path, f"{path}-{number}", body) for number in range(count)]


def unaddressed(body: bytes = b"not from a paired client") -> bytes:
    """A message that does not say where it belongs."""
    return sections.encode_message(properties={PropertyField.MESSAGE_ID: "stranger"}, data=body)


class _Answers(LinkHandler):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.changed = asyncio.Event()

    def on_disposition(self, event: DispositionArrived) -> None:
        assert event.outcome == ACCEPTED
        self.count += len(event.deliveries)
        self.changed.set()


async def put(connection_string: str, queue: str, messages: Sequence[bytes]) -> None:
    """Store messages in a queue, in batches."""
    dial = Namespace.from_connection_string(connection_string).dial()
    connection = NamespaceConnection(dial, attempt_s=WAIT_S)
    await connection.open()
    answers = _Answers()
    link = await connection.open_sender(queue, answers)
    sent = 0
    async with asyncio.timeout(WAIT_S + len(messages) / 1_000):
        for start in range(0, len(messages), BATCH):
            await answers.wait_for_credit(link, WAIT_S, queue)
            payload, message_format = encode_batch(list(messages[start : start + BATCH]))
            link.send(payload, tag=start.to_bytes(4, "big"), message_format=message_format)
            sent += 1
            connection.flush()
        while answers.count < sent:
            answers.changed.clear()
            await answers.changed.wait()
    await connection.close()


def fill(connection_string: str, queue: str, messages: Sequence[bytes]) -> None:
    """The same for whoever is not in a coroutine; on a thread, for Playwright has an event loop on this one."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, put(connection_string, queue, messages)).result()
