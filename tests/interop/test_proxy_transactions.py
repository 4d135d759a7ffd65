"""Transactions through the proxy: they are the primary's, and never become anything in a backlog."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient
from local_proxy import LocalProxy
from proton import Described, Message, ulong
from proton.utils import BlockingConnection, LinkDetached
from proton_transactions import ACCEPTED, TRANSACTIONAL, Controller, Refused, connect, next_delivery

from twinbus.testing import LocalNamespace

KEY = "the-key-of-the-proxy"
BACKLOG = "primary/x-servicebus-transfer/0"


@pytest.fixture
def primary() -> Iterator[LocalNamespace]:
    with LocalNamespace("primary", queues=["orders", "bills"]) as served:
        yield served


@pytest.fixture
def secondary() -> Iterator[LocalNamespace]:
    with LocalNamespace("secondary") as served:
        yield served


@pytest.fixture
def proxy(primary: LocalNamespace, secondary: LocalNamespace) -> Iterator[LocalProxy]:
    strings = primary.connection_string, secondary.connection_string
    with LocalProxy(*strings, key=KEY, backlog_queue_count=1, failover_interval=timedelta(0)) as served:
        yield served


@pytest.fixture
def connection(proxy: LocalProxy) -> Iterator[BlockingConnection]:
    opened = connect(proxy.port, KEY)
    yield opened
    opened.close()


def found(namespace: LocalNamespace, queue: str) -> list[str]:
    with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        return [str(message.message_id) for message in client.get_queue_receiver(queue).peek_messages(250)]


def message(name: str) -> Message:
    return Message(name, id=name)


def test_a_transaction_is_committed_or_rolled_back_at_the_primary(
    primary: LocalNamespace, connection: BlockingConnection
) -> None:
    sender = connection.create_sender("orders")
    sender.send(message("order"))
    _, delivery = next_delivery(connection.create_receiver("orders", credit=1))
    controller = Controller(connection)
    over = controller.declare()
    controller.send(sender, message("never"), over)
    controller.roll_back(over)
    transaction = controller.declare()
    controller.settle(delivery, transaction)
    controller.send(connection.create_sender("bills"), message("bill"), transaction)
    assert [found(primary, queue) for queue in ("orders", "bills")] == [["order"], []]
    controller.commit(transaction)
    assert [found(primary, queue) for queue in ("orders", "bills")] == [[], ["bill"]]


def test_while_the_primary_is_down_transactions_are_refused_and_the_connection_stays(
    primary: LocalNamespace, secondary: LocalNamespace, connection: BlockingConnection
) -> None:
    controller = Controller(connection)
    sender = connection.create_sender("orders")
    transaction = controller.declare()
    controller.send(sender, message("half"), transaction)
    primary.stop()
    with pytest.raises(LinkDetached) as detached:
        controller.send(sender, message("other half"), transaction)
    assert detached.value.condition == "amqp:transaction:unknown-id"
    with pytest.raises(Refused) as refused:
        controller.commit(transaction)
    assert refused.value.condition == "amqp:transaction:rollback"
    with pytest.raises(LinkDetached, match="the primary namespace cannot be reached"):
        controller.send(connection.create_sender("orders", name="again"), message("lost"), controller.declare())
    connection.create_sender("orders", name="plain").send(message("without"))
    assert found(secondary, BACKLOG) == ["without"], "what is in no transaction takes the detour on the same connection"


def test_with_both_down_nothing_of_a_transaction_reaches_the_spool(
    primary: LocalNamespace, secondary: LocalNamespace, tmp_path: Path
) -> None:
    strings = primary.connection_string, secondary.connection_string
    with LocalProxy(*strings, key=KEY, failover_interval=timedelta(0), spool=tmp_path) as proxy:
        connection = connect(proxy.port, KEY)
        controller, sender = Controller(connection), connection.create_sender("orders")
        transaction = controller.declare()
        controller.send(sender, message("half"), transaction)
        for namespace in (primary, secondary):
            namespace.stop()
        with pytest.raises(LinkDetached):
            controller.send(sender, message("other half"), transaction)
        with pytest.raises(Refused):
            controller.commit(transaction)
        connection.create_sender("orders", name="plain").send(message("without"))
        spool = proxy.server.status().spool
        assert spool is not None
        assert spool.messages == 1
        connection.close()


def test_what_the_primary_refuses_is_refused_with_its_reason(
    primary: LocalNamespace, connection: BlockingConnection
) -> None:
    controller, sender = Controller(connection), connection.create_sender("orders")
    with pytest.raises(Refused) as refused:
        controller.commit(b"12345678")
    assert refused.value.condition == "amqp:transaction:unknown-id"
    transaction = controller.declare()
    for number in range(100):
        controller.send(sender, message(str(number)), transaction)
    with pytest.raises(LinkDetached, match="Cannot send more than 100 messages"):
        controller.send(sender, message("one too many"), transaction)
    controller.commit(transaction)
    assert len(found(primary, "orders")) == 100


def test_a_commit_is_refused_when_a_settlement_was_never_answered(
    primary: LocalNamespace, connection: BlockingConnection
) -> None:
    connection.create_sender("orders").send(message("order"))
    receiver: Any = connection.create_receiver("orders", credit=1)
    _, delivery = next_delivery(receiver)
    controller = Controller(connection)
    transaction = controller.declare()
    controller.send(connection.create_sender("orders", name="more"), message("more"), transaction)
    primary.faults.add("slow", entities=["orders"], delay=timedelta(seconds=60))
    delivery.local.data = [transaction, Described(ulong(ACCEPTED), [])]
    delivery.update(TRANSACTIONAL)
    receiver.close()
    with pytest.raises(Refused) as refused:
        controller.commit(transaction)
    assert refused.value.condition == "amqp:transaction:rollback"
    primary.faults.clear()
    assert found(primary, "orders") == ["order"]
