"""Everything that can be wrong with a send, as each client sees it: one table, three clients.

The official clients try once (`retry_total=0`), so what they raise is what the namespace said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AioServiceBusClient
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)
from proton import Delivery, Message
from proton.utils import BlockingConnection, LinkDetached

from twinbus.broker.entities.settings import QueueStatus
from twinbus.testing import LocalNamespace

WAIT_S = 10
ROOT = "RootManageSharedAccessKey"
KEYS = {ROOT: "root-key", "reader": "reader-key"}


class Case(NamedTuple):
    """A send that fails, how the official clients say so, and the AMQP condition behind it."""

    error: type[ServiceBusError]
    condition: str
    text: str
    queue: str = "orders"
    rule: str = ROOT
    key: str | None = None
    size: int = 10


CASES = {
    "wrong key": Case(ServiceBusAuthenticationError, "amqp:client-error", "amqp:client-error", key="another-key"),
    "missing right": Case(ServiceBusAuthorizationError, "amqp:unauthorized-access", "the right 'Send'", rule="reader"),
    "missing queue": Case(MessagingEntityNotFoundError, "amqp:not-found", "could not be found", queue="missing"),
    "300 KB": Case(MessageSizeExceededError, "amqp:link:message-size-exceeded", "262144", size=300 * 1024),
    "full": Case(ServiceBusQuotaExceededError, "amqp:resource-limit-exceeded", "full", queue="full", size=200_000),
    "disabled": Case(MessagingEntityDisabledError, "com.microsoft:entity-disabled", "disabled", queue="disabled"),
    "busy": Case(ServiceBusServerBusyError, "com.microsoft:server-busy", "wait 10 seconds", queue="busy"),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@pytest.fixture(scope="module")
def troubled() -> Iterator[LocalNamespace]:
    """A namespace with a queue for every trouble."""
    rules = [f"reader:Listen:{KEYS['reader']}"]
    with LocalNamespace(queues=["orders", "busy"], key=KEYS[ROOT], rules=rules) as namespace:
        namespace.create_queue("disabled", status=QueueStatus.DISABLED)
        namespace.create_queue("full", max_size_mb=1)
        _fill(namespace, "full")
        namespace.faults.add("busy", entities=["busy"])
        yield namespace


def _fill(namespace: LocalNamespace, queue: str) -> None:
    with (
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
        client.get_queue_sender(queue) as sender,
    ):
        for _ in range(5):
            sender.send_messages(ServiceBusMessage(b"x" * 200_000))


def connection_string(namespace: LocalNamespace, case: Case) -> str:
    text = namespace.connection_string_for(case.rule)
    return text if case.key is None else text.replace(KEYS[case.rule], case.key)


@each_case
def test_the_python_client_raises_what_is_wrong(troubled: LocalNamespace, case: Case) -> None:
    text = connection_string(troubled, case)
    with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
        with pytest.raises(case.error, match=re.escape(case.text)) as raised:
            client.get_queue_sender(case.queue).send_messages(ServiceBusMessage(b"x" * case.size))
        assert type(raised.value) is case.error


@each_case
async def test_the_asynchronous_python_client_raises_what_is_wrong(troubled: LocalNamespace, case: Case) -> None:
    text = connection_string(troubled, case)
    async with AioServiceBusClient.from_connection_string(text, retry_total=0) as client:
        with pytest.raises(case.error, match=re.escape(case.text)) as raised:
            await client.get_queue_sender(case.queue).send_messages(ServiceBusMessage(b"x" * case.size))
        assert type(raised.value) is case.error


@pytest.mark.long
def test_with_its_own_retries_the_client_waits_and_then_raises_the_same(troubled: LocalNamespace) -> None:
    """Three more attempts, each after a pause of its own: about a quarter of a minute, here only once."""
    with (
        ServiceBusClient.from_connection_string(troubled.connection_string) as client,
        pytest.raises(ServiceBusServerBusyError, match="wait 10 seconds"),
    ):
        client.get_queue_sender("busy").send_messages(ServiceBusMessage("x"))


# --- a client of plain AMQP 1.0 ---


def connect(namespace: LocalNamespace, rule: str = ROOT) -> BlockingConnection:
    return BlockingConnection(
        f"amqp://127.0.0.1:{namespace.port}",
        timeout=WAIT_S,
        allowed_mechs="PLAIN",
        allow_insecure_mechs=True,
        user=rule,
        password=KEYS[rule],
    )


def conditions(connection: BlockingConnection, queue: str, *bodies: bytes) -> list[str | None]:
    """How sends end that do not wait for each other: the condition of each refusal, None for what is accepted."""
    sender = connection.create_sender(queue)
    sent: list[Any] = [sender.link.send(Message(body=body)) for body in bodies]
    connection.wait(lambda: all(delivery.remote_state for delivery in sent), timeout=WAIT_S)
    sender.close()  # type: ignore[no-untyped-call]
    return [None if each.remote_state == Delivery.ACCEPTED else each.remote.condition.name for each in sent]


def refusal(connection: BlockingConnection, case: Case) -> str:
    """What is said of a send, or already of the link for it."""
    try:
        (condition,) = conditions(connection, case.queue, b"x" * case.size)
    except LinkDetached as detached:
        return str(detached)
    return condition or "it was accepted"


@pytest.mark.parametrize("name", ["missing right", "full", "disabled", "busy"])
def test_proton_gets_the_condition(troubled: LocalNamespace, name: str) -> None:
    with closing(connect(troubled, CASES[name].rule)) as connection:
        assert CASES[name].condition in refusal(connection, CASES[name])


def test_a_namespace_that_has_too_much_memory_takes_nothing_in(tmp_path: Path) -> None:
    limits = {"busy_memory_bytes": 1024}
    with (
        LocalNamespace(data=tmp_path, queues=["orders"], key=KEYS[ROOT], limits=limits) as namespace,
        closing(connect(namespace)) as connection,
    ):
        assert conditions(connection, "orders", b"more") == ["com.microsoft:server-busy"]


def test_what_comes_faster_than_it_is_written_is_refused_as_busy(tmp_path: Path) -> None:
    limits = {"busy_unwritten_bytes": 1}
    with (
        LocalNamespace(data=tmp_path, queues=["orders"], key=KEYS[ROOT], limits=limits) as namespace,
        closing(connect(namespace)) as connection,
    ):
        answers = conditions(connection, "orders", *[b"x" * 100_000] * 40)
        assert answers[0] is None, "nothing waited before the first"
        assert set(answers) == {None, "com.microsoft:server-busy"}
        assert conditions(connection, "orders", b"later") == [None], "by now all is written"
