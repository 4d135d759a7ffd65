"""Transactions by Qpid Proton, an independent client: what belongs to one happens as a whole, or not at all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient
from proton import Message
from proton.utils import BlockingConnection

from support.proton_transactions import Controller, connect
from twinbus.testing import LocalNamespace

KEY = "a-key-that-is-long-enough-for-this"


@pytest.fixture(scope="module")
def namespace() -> Iterator[LocalNamespace]:
    with LocalNamespace(key=KEY) as served:
        yield served


@pytest.fixture
def queues(namespace: LocalNamespace, request: pytest.FixtureRequest) -> tuple[str, str]:
    """Two queues for a test alone."""
    names = (f"one-{abs(hash(request.node.name))}", f"two-{abs(hash(request.node.name))}")
    for name in names:
        namespace.create_queue(name)
    return names


@pytest.fixture
def connection(namespace: LocalNamespace) -> Iterator[BlockingConnection]:
    opened = connect(namespace.port, KEY)
    yield opened
    opened.close()


def found(namespace: LocalNamespace, queue: str) -> list[str]:
    with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        return [str(message.message_id) for message in client.get_queue_receiver(queue).peek_messages(250)]


def message(name: str) -> Message:
    return Message(name, id=name)


def test_messages_are_stored_when_their_transaction_is_committed_and_not_before(
    namespace: LocalNamespace, connection: BlockingConnection, queues: tuple[str, str]
) -> None:
    controller, sender = Controller(connection), connection.create_sender(queues[0])
    transaction = controller.declare()
    for name in ("a", "b"):
        controller.send(sender, message(name), transaction)
    assert found(namespace, queues[0]) == []
    controller.commit(transaction)
    assert found(namespace, queues[0]) == ["a", "b"]
