"""Apache Qpid Proton, an independent AMQP 1.0 client, against a real namespace: name and key by SASL PLAIN."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient
from proton import Delivery, Message, symbol, ulong
from proton.reactor import AtMostOnce, LinkOption
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached, SendException

from twinbus.testing import LocalNamespace

KEY = "a+key/with=signs"
WAIT_S = 10


@pytest.fixture
def proton_namespace() -> Iterator[LocalNamespace]:
    with LocalNamespace(queues=["orders"], key=KEY) as namespace:
        yield namespace


@pytest.fixture
def connection(proton_namespace: LocalNamespace) -> Iterator[BlockingConnection]:
    connection = connect(proton_namespace, KEY)
    yield connection
    connection.close()


def connect(namespace: LocalNamespace, key: str) -> BlockingConnection:
    return BlockingConnection(
        f"amqp://127.0.0.1:{namespace.port}",
        timeout=WAIT_S,
        allowed_mechs="PLAIN",
        allow_insecure_mechs=True,
        user="RootManageSharedAccessKey",
        password=key,
    )


class SecondMode(LinkOption):
    """Settle as the official clients do: the server has the last word."""

    def apply(self, link: object) -> None:
        link.snd_settle_mode = 0  # type: ignore[attr-defined]
        link.rcv_settle_mode = 1  # type: ignore[attr-defined]


def receive_none(receiver: BlockingReceiver) -> bool:
    try:
        receiver.receive(timeout=0.3)
    except Exception as error:
        return type(error).__name__ == "Timeout"
    return False


def test_a_message_comes_back_as_it_was_sent(connection: BlockingConnection) -> None:
    properties = {"text": "ü", "number": ulong(2**40), "word": symbol("w")}
    sent = Message(body={"nested": [1, "two", None]}, id=ulong(7), subject="s", properties=properties, durable=True)
    assert connection.create_sender("orders").send(sent).remote_state == Delivery.ACCEPTED
    receiver = connection.create_receiver("orders", credit=1)
    got = receiver.receive()
    receiver.accept()
    assert (got.body, got.id, got.subject, got.durable) == (sent.body, sent.id, "s", True)
    assert got.properties == properties
    assert got.annotations[symbol("x-opt-sequence-number")] == 1
    assert receive_none(receiver)


def test_a_released_message_comes_again_uncounted_and_a_modified_one_counted(connection: BlockingConnection) -> None:
    connection.create_sender("orders").send(Message(body="x", id="1"))
    receiver = connection.create_receiver("orders", credit=1)
    assert receiver.receive().delivery_count == 0
    receiver.release(delivered=False)
    receiver.flow(1)
    assert receiver.receive().delivery_count == 0
    receiver.release(delivered=True)
    receiver.flow(1)
    assert receiver.receive().delivery_count == 1
    receiver.accept()


def test_a_rejected_message_is_in_the_dead_letter_queue(connection: BlockingConnection) -> None:
    connection.create_sender("orders").send(Message(body="poison", id="1"))
    receiver = connection.create_receiver("orders", credit=1)
    receiver.receive()
    receiver.reject()
    dead = connection.create_receiver("orders/$deadletterqueue", credit=1)
    assert dead.receive().body == "poison"
    dead.accept()


def test_receiving_settled_messages_deletes_them(connection: BlockingConnection) -> None:
    connection.create_sender("orders").send(Message(body="x", id="1"))
    receiver = connection.create_receiver("orders", credit=1, options=AtMostOnce())
    assert receiver.receive().body == "x"
    again = connection.create_receiver("orders", credit=1, name="again")
    assert receive_none(again)


def test_a_hundred_messages_keep_their_order(connection: BlockingConnection) -> None:
    sender = connection.create_sender("orders")
    for number in range(100):
        sender.send(Message(body=number, id=str(number)))
    receiver = connection.create_receiver("orders", credit=10, options=SecondMode())
    found = []
    for _ in range(100):
        found.append(receiver.receive().body)
        receiver.accept()
    assert found == list(range(100))


def test_a_large_message_is_refused_and_a_nearly_as_large_one_is_not(connection: BlockingConnection) -> None:
    sender = connection.create_sender("orders")
    with pytest.raises(SendException):
        sender.send(Message(body=b"x" * 300_000, id="1"))
    sender.send(Message(body=b"x" * 250_000, id="2"))
    receiver = connection.create_receiver("orders", credit=1)
    assert receiver.receive().body == b"x" * 250_000
    receiver.accept()


def test_a_receiver_cannot_make_a_message_larger_than_one_may_be_sent(
    connection: BlockingConnection, proton_namespace: LocalNamespace
) -> None:
    connection.create_sender("orders").send(Message(body=b"x" * 260_000, id="1"))
    receiver = connection.create_receiver("orders", credit=1, options=SecondMode())
    receiver.receive()
    assert receiver.fetcher is not None
    delivery = receiver.fetcher.unsettled[0]
    delivery.local.failed = True
    delivery.local.annotations = {symbol("note"): "y" * 4_000}
    delivery.update(Delivery.MODIFIED)
    connection.wait(lambda: delivery.remote_state, msg="the answer")
    assert delivery.remote_state == Delivery.REJECTED
    assert delivery.remote.condition.name == "amqp:link:message-size-exceeded"
    assert "settle it without them" in delivery.remote.condition.description
    with (
        ServiceBusClient.from_connection_string(proton_namespace.connection_string) as client,
        client.get_queue_receiver("orders") as browser,
    ):
        (kept,) = browser.peek_messages(2)
    assert (kept.application_properties, kept.delivery_count) == (None, 0)
    receiver.accept()
    assert receive_none(connection.create_receiver("orders", credit=1, name="again"))


def test_a_missing_queue_is_refused(connection: BlockingConnection) -> None:
    with pytest.raises(LinkDetached, match="could not be found"):
        connection.create_sender("typo")


def test_a_wrong_key_is_refused(proton_namespace: LocalNamespace) -> None:
    with pytest.raises(Exception, match=r"amqp:unauthorized-access|Authentication failed"):
        connect(proton_namespace, "wrong")
