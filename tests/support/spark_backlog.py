"""A pair of namespaces with a backlog, and secrets where executors find them."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.client.namespace import Namespace
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.spark.access import Access
from twinbus.spark.drain.options import DrainOptions
from twinbus.testing import LocalNamespace, NamespacePair
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.links.peek import pages

QUEUES = 2


class SparkBacklog:
    """The primary `contoso` with `orders`, the secondary with two backlog queues."""

    def __init__(self, pair: NamespacePair, folder: Path, lock_ms: int = 60_000) -> None:
        self.primary, self.secondary = pair
        self.folder = folder
        self.primary.create_queue("orders")
        for index in range(QUEUES):
            self.secondary.create_queue(self.path(index), max_delivery_count=2_147_483_647, lock_ms=lock_ms)
        self.lock_ms = lock_ms

    @staticmethod
    def path(index: int) -> str:
        return backlog_path("contoso", index)

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger"

    def secret(self, namespace: LocalNamespace, text: str | None = None) -> Access:
        """A file with its connection string, or with another text."""
        file = self.folder / f"{namespace.name}-{0 if text is None else abs(hash(text))}.secret"
        file.write_text(namespace.connection_string if text is None else text)
        return Access(f"file:{file}")

    def options(self, **wishes: Any) -> DrainOptions:
        known: dict[str, Any] = {
            "primary": self.secret(self.primary),
            "secondary": self.secret(self.secondary),
            "primary_name": "contoso",
            "queue_count": QUEUES,
            "ledger": str(self.ledger),
            "lock_s": self.lock_ms / 1000,
            "attempt_s": 30.0,
        }
        return DrainOptions(**known | wishes)


def peeks_of(namespace: LocalNamespace) -> dict[str, int]:
    """How often each entity was peeked into, as the meter of the namespace says."""
    key = namespace.connection_string.partition("SharedAccessKey=")[2].partition(";")[0]
    basic = base64.b64encode(f"RootManageSharedAccessKey:{key}".encode()).decode()
    url = f"https://127.0.0.1:{namespace.port}/metrics?format=json"
    request = urllib.request.Request(url, headers={"Authorization": f"Basic {basic}"})
    trusting = ssl.create_default_context(cafile=str(namespace.ca_file))
    with urllib.request.urlopen(request, context=trusting, timeout=20) as answer:
        counted = json.loads(answer.read())["operations"]
    return {one["entity"]: one["operations"] for one in counted if one["kind"] == "peek"}


def ids_in(namespace: LocalNamespace, queue: str) -> Counter[str]:
    """The ids of all messages in a queue, each as often as it is there."""
    return asyncio.run(ids_of(namespace.connection_string, queue))


async def ids_of(connection_string: str, queue: str) -> Counter[str]:
    """The same by a connection string."""
    dial = Namespace.from_connection_string(connection_string).dial()
    connection = NamespaceConnection(dial, attempt_s=30.0)
    await connection.open()
    found: Counter[str] = Counter()
    async for messages in pages(connection, queue):
        for message in messages:
            found[str(sections.read_property(message, sections.walk(message), PropertyField.MESSAGE_ID))] += 1
    await connection.close()
    return found
