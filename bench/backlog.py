"""Backlogs to empty: messages put into backlog queues as paired clients would, and what arrived at home."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from azure.servicebus.management import ServiceBusAdministrationClient

from bench.namespaces import ServedNamespace
from twinbus.amqp.codec.outcomes import ACCEPTED
from twinbus.amqp.events import DispositionArrived
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.pairing.backlog.envelope import address
from twinbus.pairing.sending.encoded_messages import encode_batch
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.links.link_handler import LinkHandler
from twinbus.transport.links.peek import pages

WAIT_S = 60.0
BATCH = 100


def backlog_message(path: str, message_id: str, body: bytes) -> bytes:
    """A durable message, addressed to an entity of the primary."""
    message = sections.encode_message(
        header=sections.Header(durable=True), properties={PropertyField.MESSAGE_ID: message_id}, data=body
    )
    return address(message, path)


def make_backlog(secondary: ServedNamespace, name: str, queues: int, **settings: Any) -> list[str]:
    """Backlog queues of a primary called so; their paths."""
    paths = [backlog_path(name, index) for index in range(queues)]
    admin: ServiceBusAdministrationClient = secondary.namespace.admin_client(attempt_s=WAIT_S)
    with admin:
        for path in paths:
            admin.create_queue(path, max_delivery_count=2_147_483_647, max_size_in_megabytes=5_120, **settings)
    return paths


class Answers(LinkHandler):
    """How many transfers were stored."""

    def __init__(self) -> None:
        super().__init__()
        self.stored = 0
        self._changed = asyncio.Event()

    def on_disposition(self, event: DispositionArrived) -> None:
        if event.outcome != ACCEPTED:
            raise SystemExit(f"bench: a backlog queue answered {event.outcome}")
        self.stored += len(event.deliveries)
        self._changed.set()

    async def until(self, count: int) -> None:
        while self.stored < count:
            self._changed.clear()
            await self._changed.wait()


async def put(namespace: ServedNamespace, queue: str, messages: Sequence[bytes], under_way: int = 20) -> None:
    """Store messages in a queue; when this returns every one of them was acknowledged."""
    connection = await _opened(namespace)
    answers = Answers()
    link = await connection.open_sender(queue, answers)
    for number, start in enumerate(range(0, len(messages), BATCH), 1):
        await answers.wait_for_credit(link, WAIT_S, queue)
        payload, message_format = encode_batch(list(messages[start : start + BATCH]))
        link.send(payload, tag=number.to_bytes(4, "big"), message_format=message_format)
        connection.flush()
        await answers.until(number - under_way)
    await answers.until(-(-len(messages) // BATCH))
    await connection.close()


async def found_in(namespace: ServedNamespace, queue: str) -> Counter[tuple[str, bytes]]:
    """Ids and bodies of all messages in a queue, each as often as it is there. Nothing is taken."""
    connection = await _opened(namespace)
    found: Counter[tuple[str, bytes]] = Counter()
    async for messages in pages(connection, queue):
        for message in messages:
            layout = sections.walk(message)
            message_id = sections.read_property(message, layout, PropertyField.MESSAGE_ID)
            found[str(message_id), b"".join(sections.data_sections(message, layout))] += 1
    await connection.close()
    return found


async def _opened(namespace: ServedNamespace) -> NamespaceConnection:
    connection = NamespaceConnection(namespace.namespace.dial(), attempt_s=WAIT_S)
    await connection.open()
    return connection
