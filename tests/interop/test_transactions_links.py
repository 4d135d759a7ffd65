"""Transactions on the wire, as no client does them: requests in one, settled transfers, faults, memory, rights."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient
from engine_client import EngineClient

from twinbus.amqp.codec.composites import to_described
from twinbus.amqp.codec.encoding import Array
from twinbus.amqp.codec.outcomes import ACCEPTED, Accepted, Error, Outcome, Rejected, TransactionalState
from twinbus.amqp.codec.performatives import Coordinator, Declare, Discharge
from twinbus.amqp.codec.types import Timestamp
from twinbus.amqp.events import CreditChanged, Detached, DispositionArrived, TransferArrived
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.amqp.sending_link import SendingLink
from twinbus.testing import LocalNamespace

KEY = "a-key-that-is-long-enough-for-this"
LONG_CODE = 0x81


class TransactionClient(EngineClient):
    def __enter__(self) -> TransactionClient:
        return self

    def __init__(self, namespace: LocalNamespace) -> None:
        super().__init__(namespace.port, "RootManageSharedAccessKey", KEY)
        assert self.wait_open()
        self.coordinator = self.session.attach_sender(f"transactions-{uuid.uuid4().hex}", Coordinator())
        assert self._refusal(self.coordinator) is None
        self._next(CreditChanged, link=self.coordinator)

    def declare(self) -> bytes:
        self.coordinator.send(_value(Declare()), tag=b"d")
        transaction = self._next(DispositionArrived, link=self.coordinator).transaction
        assert transaction is not None
        return transaction

    def discharge(self, transaction: bytes, *, fail: bool = False) -> Outcome | None:
        self.coordinator.send(_value(Discharge(transaction, fail)), tag=b"d")
        return self._next(DispositionArrived, link=self.coordinator).outcome

    def send_in(self, link: SendingLink, name: str, transaction: bytes, *, settled: bool = False) -> bytes | None:
        """The transaction in the answer; None if there is none, or none was wanted."""
        link.send(_message(name), tag=name.encode(), settled=settled, transaction=transaction)
        return None if settled else self._next(DispositionArrived, link=link).transaction

    def request_in(self, address: str, operation: str, body: Any, transaction: bytes) -> dict[Any, Any]:
        asking, answers = self.sender(address), self.receiver(address)
        assert isinstance(asking, SendingLink)
        assert isinstance(answers, ReceivingLink)
        request = sections.encode_message(
            properties={PropertyField.MESSAGE_ID: "1", PropertyField.REPLY_TO: answers.name},
            application_properties={"operation": f"com.microsoft:{operation}"},
            value=body,
        )
        asking.send(request, tag=b"1", settled=True, transaction=transaction)
        response = self._next(TransferArrived, link=answers).payload
        return sections.read_application_properties(response, sections.walk(response))

    def opened(self, address: str) -> SendingLink:
        link = self.sender(address)
        assert isinstance(link, SendingLink)
        return link

    def end_of(self, link: SendingLink) -> Error | None:
        return self._next(Detached, link=link).error


def _value(wanted: Declare | Discharge) -> bytes:
    return sections.encode_message(value=to_described(wanted))


def _message(name: str, due_ms: int | None = None) -> bytes:
    annotations = None if due_ms is None else {"x-opt-scheduled-enqueue-time": Timestamp(due_ms)}
    return sections.encode_message(annotations=annotations, properties={PropertyField.MESSAGE_ID: name}, data=b"")


@pytest.fixture(scope="module")
def namespace() -> Iterator[LocalNamespace]:
    with LocalNamespace(key=KEY) as served:
        yield served


@pytest.fixture
def queue(namespace: LocalNamespace) -> str:
    name = f"queue-{uuid.uuid4().hex}"
    namespace.create_queue(name)
    return name


@pytest.fixture
def client(namespace: LocalNamespace) -> Iterator[TransactionClient]:
    with TransactionClient(namespace) as opened:
        yield opened


def found(namespace: LocalNamespace, queue: str) -> list[str]:
    with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        return [str(message.message_id) for message in client.get_queue_receiver(queue).peek_messages(250)]


def test_requests_to_schedule_and_to_cancel_wait_for_the_commit(
    client: TransactionClient, namespace: LocalNamespace, queue: str
) -> None:
    node, due_ms = f"{queue}/$management", 4_000_000_000_000
    entry = {"message-id": "later", "message": _message("later", due_ms)}
    first = client.declare()
    assert client.request_in(node, "schedule-message", {"messages": [entry]}, first)["statusCode"] == 200
    assert found(namespace, queue) == []
    assert client.discharge(first) == ACCEPTED
    assert found(namespace, queue) == ["later"]
    second = client.declare()
    cancelling = {"sequence-numbers": Array([1], LONG_CODE)}
    assert client.request_in(node, "cancel-scheduled-message", cancelling, second)["statusCode"] == 200
    assert found(namespace, queue) == ["later"]
    assert client.discharge(second) == ACCEPTED
    assert found(namespace, queue) == []


@pytest.mark.parametrize("operation", ["enumerate-rules", "receive-by-sequence-number"])
def test_requests_that_cannot_be_undone_are_refused(client: TransactionClient, queue: str, operation: str) -> None:
    body = {"skip": 0, "top": 1, "sequence-numbers": Array([1], LONG_CODE), "receiver-settle-mode": 0}
    status = client.request_in(f"{queue}/$management", operation, body, client.declare())
    assert (status["statusCode"], str(status["errorCondition"])) == (400, "amqp:not-allowed")


def test_a_refusal_that_nobody_waits_for_is_told_at_the_commit(
    client: TransactionClient, namespace: LocalNamespace, queue: str
) -> None:
    transaction, link = client.declare(), client.opened(queue)
    assert client.send_in(link, "a", transaction) == transaction
    for number in range(100):
        client.send_in(link, f"b{number}", transaction, settled=True)
    error = client.end_of(link)
    assert error is not None
    assert error.condition == "amqp:resource-limit-exceeded"
    outcome = client.discharge(transaction)
    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    assert outcome.error.condition == "amqp:transaction:rollback"
    assert found(namespace, queue) == []


def test_a_fault_that_refuses_sends_strikes_at_the_commit_and_rolls_back(
    client: TransactionClient, namespace: LocalNamespace, queue: str
) -> None:
    transaction, link = client.declare(), client.opened(queue)
    client.send_in(link, "a", transaction)
    namespace.faults.add("refuse", entities=[queue], condition="com.contoso:on-strike")
    outcome = client.discharge(transaction)
    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    assert outcome.error.condition == "com.contoso:on-strike"
    namespace.faults.clear()
    again = client.discharge(transaction)
    assert isinstance(again, Rejected)
    assert again.error is not None
    assert again.error.condition == "amqp:transaction:unknown-id"
    assert found(namespace, queue) == []


def test_a_commit_whose_answer_is_lost_has_happened(
    client: TransactionClient, namespace: LocalNamespace, queue: str
) -> None:
    transaction, link = client.declare(), client.opened(queue)
    client.send_in(link, "a", transaction)
    namespace.faults.add("unanswered", entities=[queue])
    client.coordinator.send(_value(Discharge(transaction)), tag=b"d")
    assert client.hears_nothing(DispositionArrived, 0.5)
    namespace.faults.clear()
    assert found(namespace, queue) == ["a"]


def test_what_transactions_hold_counts_to_their_connection(namespace: LocalNamespace, queue: str) -> None:
    with TransactionClient(namespace) as client:
        outcome = None
        for number in range(1_001):
            client.coordinator.send(_value(Declare()), tag=number.to_bytes(4, "big"))
        for _ in range(1_001):
            event = client._next(DispositionArrived, link=client.coordinator)
            outcome = event.outcome or outcome
            if event.outcome is not None:
                break
        assert isinstance(outcome, Rejected)
        assert outcome.error is not None
        assert outcome.error.condition == "amqp:resource-limit-exceeded"


def test_nonsense_for_a_coordinator_is_refused_and_the_link_goes_on(client: TransactionClient) -> None:
    for payload in (b"nonsense", sections.encode_message(value="declare"), sections.encode_message(data=b"x")):
        client.coordinator.send(payload, tag=b"n")
        assert isinstance(client._next(DispositionArrived, link=client.coordinator).outcome, Rejected)
    assert client.discharge(client.declare()) == Accepted()


def test_a_settlement_in_a_transaction_that_is_unknown_is_rejected(
    client: TransactionClient, namespace: LocalNamespace, queue: str
) -> None:
    client.send(client.opened(queue), _message("m"))
    receiver = client.receiver(queue, credit=1)
    assert isinstance(receiver, ReceivingLink)
    arrived = client._next(TransferArrived, link=receiver)
    state = TransactionalState(b"unknown", ACCEPTED)
    receiver.settle(arrived.delivery_id, arrived.delivery_id, state, settled=False)
    assert isinstance(client._next(DispositionArrived, link=receiver).outcome, Rejected)
    assert found(namespace, queue) == ["m"]


def test_a_transaction_that_a_delayed_fault_refuses_twice_gives_its_memory_back_once(
    client: TransactionClient, namespace: LocalNamespace, queue: str
) -> None:
    transaction, link = client.declare(), client.opened(queue)
    client.send_in(link, "a", transaction)
    namespace.faults.add("refuse", entities=[queue], condition="com.contoso:on-strike")
    namespace.faults.add("slow", entities=[queue], delay_ms=300)
    for tag in (b"1", b"2"):
        client.coordinator.send(_value(Discharge(transaction)), tag=tag)
    outcomes = [client._next(DispositionArrived, link=client.coordinator).outcome for _ in range(2)]
    namespace.faults.clear()
    assert [each.error.condition for each in outcomes if isinstance(each, Rejected) and each.error] == [
        "amqp:transaction:unknown-id",
        "com.contoso:on-strike",
    ]


def test_a_refusal_that_comes_late_is_told_at_a_commit_that_did_not_wait_for_it(
    client: TransactionClient, namespace: LocalNamespace, queue: str
) -> None:
    transaction, link = client.declare(), client.opened(queue)
    other = client.opened(queue)
    assert client.send_in(other, "a", transaction) == transaction
    namespace.faults.add("refuse", entities=[queue], condition="com.contoso:on-strike")
    namespace.faults.add("slow", entities=[queue], delay_ms=500)
    client.send_in(link, "b", transaction, settled=True)
    assert client.hears_nothing(Detached, 0.1)
    namespace.faults.clear()
    outcome = client.discharge(transaction)
    assert isinstance(outcome, Rejected)
    assert found(namespace, queue) == []


def test_a_settlement_that_nobody_waits_for_is_part_of_the_commit_behind_it(
    client: TransactionClient, namespace: LocalNamespace, queue: str
) -> None:
    client.send(client.opened(queue), _message("m"))
    receiver = client.receiver(queue, credit=1)
    assert isinstance(receiver, ReceivingLink)
    arrived = client._next(TransferArrived, link=receiver)
    transaction = client.declare()
    receiver.settle(arrived.delivery_id, arrived.delivery_id, TransactionalState(transaction, ACCEPTED), settled=True)
    assert client.discharge(transaction) == ACCEPTED
    assert found(namespace, queue) == []


def test_transactions_that_hold_too_much_are_refused_more_and_the_connection_stays() -> None:
    limits = {"held_bytes": 4 * 1024 * 1024, "message_bytes_max": 256 * 1024}
    with LocalNamespace(key=KEY, queues=["orders"], limits=limits) as small, TransactionClient(small) as client:
        transaction, link = client.declare(), client.opened("orders")
        payload = sections.encode_message(properties={PropertyField.MESSAGE_ID: "m"}, data=bytes(200_000))
        event: Any = None
        for number in range(30):
            link.send(payload, tag=number.to_bytes(4, "big"), transaction=transaction)
            event = client._next(DispositionArrived, Detached, link=link)
            if isinstance(event, Detached):
                break
        assert isinstance(event, Detached)
        assert event.error is not None
        assert event.error.condition == "amqp:resource-limit-exceeded"
        assert client.discharge(transaction) == ACCEPTED
        assert "m" in found(small, "orders"), "what was taken is committed"
