"""Transactions by Qpid Proton, an independent client: what belongs to one happens as a whole, or not at all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient
from proton import Delivery, Message
from proton.utils import BlockingConnection, LinkDetached
from proton_transactions import Controller, Refused, SettledSecond, Via, connect, next_delivery

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


def test_nothing_of_a_transaction_that_is_rolled_back_is_stored(
    namespace: LocalNamespace, connection: BlockingConnection, queues: tuple[str, str]
) -> None:
    controller, sender = Controller(connection), connection.create_sender(queues[0])
    transaction = controller.declare()
    controller.send(sender, message("a"), transaction)
    controller.roll_back(transaction)
    sender.send(message("b"))
    assert found(namespace, queues[0]) == ["b"]


def test_a_message_is_completed_and_another_sent_in_one_transaction(
    namespace: LocalNamespace, connection: BlockingConnection, queues: tuple[str, str]
) -> None:
    controller, sender = Controller(connection), connection.create_sender(queues[0])
    sender.send(message("order"))
    receiver = connection.create_receiver(queues[0], credit=1)
    _, delivery = next_delivery(receiver)
    transaction = controller.declare()
    controller.settle(delivery, transaction)
    controller.send(sender, message("bill"), transaction)
    assert found(namespace, queues[0]) == ["order"]
    controller.commit(transaction)
    connection.wait(lambda: delivery.settled)
    assert found(namespace, queues[0]) == ["bill"]


def test_after_a_rollback_the_receiver_still_has_the_message_and_can_release_it(
    connection: BlockingConnection, queues: tuple[str, str]
) -> None:
    connection.create_sender(queues[0]).send(message("order"))
    controller = Controller(connection)
    receiver = connection.create_receiver(queues[0], credit=1)
    _, delivery = next_delivery(receiver)
    transaction = controller.declare()
    controller.settle(delivery, transaction)
    controller.roll_back(transaction)
    delivery.update(Delivery.RELEASED)
    delivery.settle()
    receiver.flow(1)
    again, _ = next_delivery(receiver)
    assert (again.id, again.delivery_count) == ("order", 0)


def test_a_receiver_that_waits_for_the_settlement_gets_it_with_the_answer(
    namespace: LocalNamespace, connection: BlockingConnection, queues: tuple[str, str]
) -> None:
    connection.create_sender(queues[0]).send(message("order"))
    controller = Controller(connection)
    receiver = connection.create_receiver(queues[0], credit=1, options=SettledSecond())
    _, delivery = next_delivery(receiver)
    transaction = controller.declare()
    controller.settle(delivery, transaction)
    assert delivery.settled
    controller.commit(transaction)
    assert found(namespace, queues[0]) == []


def test_a_message_that_a_transaction_settles_cannot_be_settled_outside_of_it(
    namespace: LocalNamespace, connection: BlockingConnection, queues: tuple[str, str]
) -> None:
    connection.create_sender(queues[0]).send(message("order"))
    controller = Controller(connection)
    receiver = connection.create_receiver(queues[0], credit=1)
    _, delivery = next_delivery(receiver)
    transaction = controller.declare()
    controller.settle(delivery, transaction)
    delivery.update(Delivery.ACCEPTED)
    connection.wait(lambda: delivery.remote_state == Delivery.REJECTED)
    assert "settled by a transaction that has not ended" in delivery.remote.condition.description
    assert found(namespace, queues[0]) == ["order"]
    controller.commit(transaction)
    assert found(namespace, queues[0]) == []


def test_transactions_span_one_queue_unless_their_links_share_a_session_with_the_coordinator(
    namespace: LocalNamespace, connection: BlockingConnection, queues: tuple[str, str]
) -> None:
    """All links of this client's connection are on one session: the first entity is the one via which is sent."""
    controller, one = Controller(connection), connection.create_sender(queues[0])
    other = connection.create_sender(queues[1])
    transaction = controller.declare()
    controller.send(one, message("a"), transaction)
    controller.send(other, message("b"), transaction)
    controller.commit(transaction)
    assert [found(namespace, queue) for queue in queues] == [["a"], ["b"]]
    with pytest.raises(LinkDetached, match="cannot span multiple top-level entities"):
        connection.create_receiver(queues[1])


def test_a_link_may_send_via_another_entity(
    namespace: LocalNamespace, connection: BlockingConnection, queues: tuple[str, str]
) -> None:
    onward = connection.create_sender(queues[0], name="onward", options=Via(queues[1]))
    controller = Controller(connection)
    transaction = controller.declare()
    controller.send(onward, message("a"), transaction)
    controller.commit(transaction)
    assert [found(namespace, queue) for queue in queues] == [[], ["a"]]
    with pytest.raises(LinkDetached, match="could not be found"):
        connection.create_sender(queues[0], name="nowhere", options=Via("nowhere"))


def test_an_id_that_is_unknown_or_used_up_is_refused(
    connection: BlockingConnection, namespace: LocalNamespace, queues: tuple[str, str]
) -> None:
    """A sender hears of it by the end of its link: the Java client takes a rejection there for a success."""
    controller = Controller(connection)
    over = controller.declare()
    controller.commit(over)
    stranger = connect(namespace.port, KEY)
    foreign = Controller(stranger).declare()
    for transaction in (over, foreign, b"unheard of"):
        with pytest.raises(LinkDetached) as detached:
            controller.send(connection.create_sender(queues[0]), message("a"), transaction)
        assert detached.value.condition == "amqp:transaction:unknown-id"
        for end in (controller.commit, controller.roll_back):
            with pytest.raises(Refused) as refused:
                end(transaction)
            assert refused.value.condition == "amqp:transaction:unknown-id"
    stranger.close()
    assert found(namespace, queues[0]) == []


def test_a_transaction_has_at_most_a_hundred_messages(
    namespace: LocalNamespace, connection: BlockingConnection, queues: tuple[str, str]
) -> None:
    controller, sender = Controller(connection), connection.create_sender(queues[0])
    transaction = controller.declare()
    for number in range(100):
        controller.send(sender, message(str(number)), transaction)
    with pytest.raises(LinkDetached, match="Cannot send more than 100 messages in a single transaction") as refused:
        controller.send(sender, message("one too many"), transaction)
    assert refused.value.condition == "amqp:resource-limit-exceeded"
    controller.commit(transaction)
    assert len(found(namespace, queues[0])) == 100


def test_a_transaction_ends_with_the_link_to_its_coordinator(
    namespace: LocalNamespace, connection: BlockingConnection, queues: tuple[str, str]
) -> None:
    controller, sender = Controller(connection), connection.create_sender(queues[0])
    transaction = controller.declare()
    controller.send(sender, message("a"), transaction)
    controller.close()
    with pytest.raises(LinkDetached) as detached:
        controller.send(sender, message("b"), transaction)
    assert detached.value.condition == "amqp:transaction:unknown-id"
    assert found(namespace, queues[0]) == []


def test_a_transaction_ends_with_its_connection_and_its_locks_stay(
    namespace: LocalNamespace, connection: BlockingConnection, queues: tuple[str, str]
) -> None:
    sender = connection.create_sender(queues[0])
    sender.send(message("order"))
    leaving = connect(namespace.port, KEY)
    controller = Controller(leaving)
    _, delivery = next_delivery(leaving.create_receiver(queues[0], credit=1))
    transaction = controller.declare()
    controller.settle(delivery, transaction)
    controller.send(leaving.create_sender(queues[0]), message("bill"), transaction)
    leaving.close()
    sender.send(message("next"))
    assert next_delivery(connection.create_receiver(queues[0], credit=1))[0].id == "next"
    assert found(namespace, queues[0]) == ["order", "next"]


def test_every_subscription_gets_its_copy_at_the_commit(
    namespace: LocalNamespace, connection: BlockingConnection
) -> None:
    namespace.create_topic("news", "a", "b")
    controller, sender = Controller(connection), connection.create_sender("news")
    transaction = controller.declare()
    controller.send(sender, message("1"), transaction)
    controller.send(sender, message("2"), transaction)
    copies = ("news/Subscriptions/a", "news/Subscriptions/b")
    assert [found_copies(namespace, each) for each in copies] == [[], []]
    controller.commit(transaction)
    assert [found_copies(namespace, each) for each in copies] == [["1", "2"], ["1", "2"]]


def found_copies(namespace: LocalNamespace, path: str) -> list[str]:
    topic, _, name = path.partition("/Subscriptions/")
    with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        return [str(each.message_id) for each in client.get_subscription_receiver(topic, name).peek_messages(9)]


def test_a_transaction_of_several_namespaces_is_refused(connection: BlockingConnection) -> None:
    with pytest.raises(Refused, match="without a global id"):
        Controller(connection).declare(b"global")
