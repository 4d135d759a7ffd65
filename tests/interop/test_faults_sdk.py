"""Faults as the official client meets them: exactly what the documents say, and nothing outside their scope.

Without retries, each call makes one attempt: what is raised is what the namespace said.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ServiceRequestError, ServiceResponseError
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.aio import ServiceBusClient as AioServiceBusClient
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)
from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus.control import control_client
from twinbus.errors import OptionsError, TwinbusError
from twinbus.testing import LocalNamespace, NamespacePair

WAIT_S = 10
"""Upper bound; what is there comes at once."""
SHORTLY = timedelta(milliseconds=600)
A_WHILE = timedelta(seconds=8)
"""Long enough to be met by who tries at once, also on a machine that stalls."""


@pytest.fixture
def bus(namespace: LocalNamespace) -> LocalNamespace:
    namespace.create_queue("orders")
    namespace.create_queue("invoices")
    return namespace


@contextmanager
def client_of(namespace: LocalNamespace) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client:
        yield client


def send(namespace: LocalNamespace, queue: str = "orders", text: str = "42", **options: Any) -> None:
    with client_of(namespace) as client, client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage(text), **options)


def receive(namespace: LocalNamespace, queue: str = "orders") -> list[str]:
    """One message, completed."""
    with client_of(namespace) as client, client.get_queue_receiver(queue) as receiver:
        found = receiver.receive_messages(1, max_wait_time=WAIT_S)
        for message in found:
            receiver.complete_message(message)
        return [str(message) for message in found]


def peek(namespace: LocalNamespace, queue: str = "orders") -> list[str]:
    with client_of(namespace) as client, client.get_queue_receiver(queue) as receiver:
        return [str(message) for message in receiver.peek_messages(10)]


def admin_of(namespace: LocalNamespace) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        namespace.connection_string, retry_total=0, connection_verify=str(namespace.ca_file)
    )


def queue_names(namespace: LocalNamespace) -> set[str]:
    with admin_of(namespace) as admin:
        return {queue.name for queue in admin.list_queues()}


def condition_of(raised: pytest.ExceptionInfo[ServiceBusError]) -> str:
    """The AMQP condition behind an exception of the official client."""
    condition = getattr(raised.value, "_condition", None)
    text = getattr(condition, "value", condition)
    return text.decode() if isinstance(text, bytes) else str(text)


def first_byte(namespace: LocalNamespace) -> bytes:
    """What the port says to who says nothing."""
    with socket.create_connection(("127.0.0.1", namespace.port), timeout=WAIT_S) as link:
        return link.recv(1)


def wait_until(is_true: Callable[[], bool]) -> None:
    """For what happens by itself after a while; a bound, not a pace."""
    deadline = time.monotonic() + 3 * WAIT_S
    while not is_true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def assert_works(namespace: LocalNamespace, queue: str) -> None:
    """Everything can be done with a queue."""
    send(namespace, queue, "still here")
    assert "still here" in peek(namespace, queue)
    assert receive(namespace, queue) == ["still here"]


# --- the four abilities of S2 ---


def test_no_send_refuses_sends_to_the_entity_and_nothing_else(bus: LocalNamespace) -> None:
    send(bus)
    with client_of(bus) as client, client.get_queue_sender("orders") as opened:
        opened.send_messages(ServiceBusMessage("43"))
        bus.faults.add("no-send", entities=["orders"])
        with pytest.raises(ServiceBusError, match="cannot be sent to") as raised:
            opened.send_messages(ServiceBusMessage("44"))
        assert type(raised.value) is ServiceBusError
        assert condition_of(raised) == "amqp:internal-error"
    with pytest.raises(ServiceBusError, match="cannot be sent to") as raised:
        send(bus, text="45")
    assert condition_of(raised) == "amqp:internal-error"
    assert peek(bus) == ["42", "43"]
    assert receive(bus) == ["42"]
    assert_works(bus, "invoices")
    assert queue_names(bus) == {"orders", "invoices"}


def test_no_send_refuses_scheduling_too(bus: LocalNamespace) -> None:
    bus.faults.add("no-send", entities=["orders"])
    with client_of(bus) as client, client.get_queue_sender("invoices") as sender:
        sender.schedule_messages(ServiceBusMessage("later"), datetime.now(UTC) + timedelta(hours=1))
    bus.faults.clear()
    with client_of(bus) as client, client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("opens the link"))
        bus.faults.add("no-send", entities=["orders"])
        with pytest.raises(ServiceBusError, match="cannot be sent to"):
            sender.schedule_messages(ServiceBusMessage("later"), datetime.now(UTC) + timedelta(hours=1))


def test_no_receive_refuses_receivers_of_the_entity_and_nothing_else(bus: LocalNamespace) -> None:
    send(bus)
    bus.faults.add("no-receive", entities=["orders"])
    with pytest.raises(ServiceBusError, match="cannot be received from") as raised:
        receive(bus)
    assert condition_of(raised) == "amqp:internal-error"
    send(bus, text="43")
    assert_works(bus, "invoices")
    assert queue_names(bus) == {"orders", "invoices"}
    bus.faults.clear()
    assert [receive(bus), receive(bus)] == [["42"], ["43"]]


def test_no_receive_ends_open_receivers_and_loses_nothing(bus: LocalNamespace) -> None:
    with client_of(bus) as client, client.get_queue_receiver("orders") as receiver:
        assert receiver.receive_messages(1, max_wait_time=0.5) == []
        bus.faults.add("no-receive", entities=["orders"])
        send(bus)
        with pytest.raises(ServiceBusError, match="cannot be received from"):
            receiver.receive_messages(1, max_wait_time=WAIT_S)
    bus.faults.clear()
    assert receive(bus) == ["42"]


def test_without_receiving_nothing_can_be_settled(bus: LocalNamespace) -> None:
    send(bus)
    with client_of(bus) as client, client.get_queue_receiver("orders") as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=WAIT_S)
        bus.faults.add("refuse", entities=["orders"], condition="amqp:internal-error", on="receives", count=1)
        with pytest.raises(ServiceBusError) as raised:
            receiver.complete_message(message)
        assert condition_of(raised) == "amqp:internal-error"
    assert peek(bus) == ["42"]


def test_no_manage_is_http_503_and_management_500_and_messages_flow_on(bus: LocalNamespace) -> None:
    bus.faults.add("no-manage", entities=["orders"])
    with admin_of(bus) as admin:
        with pytest.raises(HttpResponseError) as answered:
            admin.get_queue("orders")
        assert answered.value.status_code == 503
        assert admin.get_queue("invoices").name == "invoices"
    with pytest.raises(ServiceBusError, match="cannot be managed") as raised:
        peek(bus)
    assert condition_of(raised) == "amqp:internal-error"
    send(bus)
    assert receive(bus) == ["42"]
    assert_works(bus, "invoices")


def test_a_namespace_that_cannot_be_managed_lists_and_creates_nothing(bus: LocalNamespace) -> None:
    bus.faults.add("no-manage")
    with admin_of(bus) as admin:
        for act in (
            lambda: admin.create_queue("new"),
            lambda: list(admin.list_queues()),
            admin.get_namespace_properties,
        ):
            with pytest.raises(HttpResponseError) as answered:
                act()
            assert answered.value.status_code == 503
    bus.faults.clear()
    assert queue_names(bus) == {"orders", "invoices"}


def test_a_namespace_that_refuses_connections_comes_back_by_itself(namespace_pair: NamespacePair) -> None:
    primary, secondary = namespace_pair
    for namespace in namespace_pair:
        namespace.create_queue("orders")
    with client_of(primary) as client, client.get_queue_sender("orders") as opened:
        opened.send_messages(ServiceBusMessage("before"))
        primary.faults.add("unreachable", how="refuse", length=A_WHILE)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", primary.port), timeout=WAIT_S).close()
        with pytest.raises(ServiceBusConnectionError):
            opened.send_messages(ServiceBusMessage("during"))
    assert_works(secondary, "orders")
    wait_until(lambda: primary.faults.list() == [])
    assert receive(primary) == ["before"]


def test_a_namespace_that_drops_connections_answers_and_resets(bus: LocalNamespace) -> None:
    with client_of(bus) as client, client.get_queue_sender("orders") as opened:
        opened.send_messages(ServiceBusMessage("before"))
        bus.faults.add("unreachable", how="drop")
        with pytest.raises(ServiceBusConnectionError):
            opened.send_messages(ServiceBusMessage("during"))
    with pytest.raises(ConnectionResetError):
        first_byte(bus)
    with pytest.raises(ServiceBusConnectionError):
        send(bus)
    bus.faults.clear()
    assert receive(bus) == ["before"]


async def test_a_silent_namespace_takes_connections_and_says_nothing(bus: LocalNamespace) -> None:
    """With the asyncio client: the sync one waits for ever for the first byte."""
    bus.faults.add("unreachable", how="silent")
    with socket.create_connection(("127.0.0.1", bus.port), timeout=WAIT_S) as link:
        link.sendall(b"AMQP\x03\x01\x00\x00")
        link.settimeout(0.3)
        with pytest.raises(TimeoutError):
            link.recv(1)
    async with AioServiceBusClient.from_connection_string(
        bus.connection_string, retry_total=0, try_timeout=1
    ) as client:
        sender = client.get_queue_sender("orders")
        with pytest.raises(ServiceBusError):
            await sender.send_messages(ServiceBusMessage("during"), timeout=1)
    bus.faults.clear()
    assert_works(bus, "orders")


@pytest.mark.parametrize("how", ["refuse", "drop"])
def test_an_entity_that_cannot_be_reached_fails_like_a_lost_connection(bus: LocalNamespace, how: str) -> None:
    send(bus)
    bus.faults.add("unreachable", entities=["orders"], how=how)
    for act in (send, receive):
        with pytest.raises(ServiceBusConnectionError):
            act(bus)
    assert_works(bus, "invoices")
    bus.faults.clear()
    assert receive(bus) == ["42"]


def test_the_administration_of_an_entity_that_cannot_be_reached_fails_in_the_same_way(bus: LocalNamespace) -> None:
    bus.faults.add("unreachable", entities=["orders"], how="refuse")
    with admin_of(bus) as admin, pytest.raises(HttpResponseError) as answered:
        admin.get_queue("orders")
    assert answered.value.status_code == 503
    for how in ("drop", "silent"):
        bus.faults.clear()
        bus.faults.add("unreachable", entities=["orders"], how=how)
        with admin_of(bus) as admin:
            with pytest.raises((ServiceResponseError, ServiceRequestError)):
                admin.get_queue("orders", read_timeout=1)
            assert admin.get_queue("invoices").name == "invoices"


def test_a_silent_entity_answers_nothing_and_stores_nothing(bus: LocalNamespace) -> None:
    with client_of(bus) as client, client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("before"))
        bus.faults.add("unreachable", entities=["orders"], how="silent")
        with pytest.raises(OperationTimeoutError):
            sender.send_messages(ServiceBusMessage("during"), timeout=1)
    assert_works(bus, "invoices")
    bus.faults.clear()
    assert peek(bus) == ["before"]


def test_an_open_receiver_of_a_silent_entity_gets_its_messages_afterwards(bus: LocalNamespace) -> None:
    with client_of(bus) as client, client.get_queue_receiver("orders") as receiver:
        assert receiver.receive_messages(1, max_wait_time=0.3) == []
        bus.faults.add("unreachable", entities=["orders"], how="silent")
        bus.faults.add("late", entities=["orders"], delay=timedelta(milliseconds=1))
        assert receiver.receive_messages(1, max_wait_time=0.3) == []
        bus.faults.clear()
        send(bus)
        assert [str(message) for message in receiver.receive_messages(1, max_wait_time=WAIT_S)] == ["42"]


# --- any refusal ---


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("condition", "error"),
    [
        ("amqp:internal-error", ServiceBusError),
        ("com.microsoft:server-busy", ServiceBusServerBusyError),
        ("com.microsoft:timeout", OperationTimeoutError),
        ("amqp:not-found", MessagingEntityNotFoundError),
        ("com.microsoft:entity-disabled", MessagingEntityDisabledError),
        ("amqp:unauthorized-access", ServiceBusAuthorizationError),
        ("amqp:link:message-size-exceeded", MessageSizeExceededError),
        ("amqp:resource-limit-exceeded", ServiceBusQuotaExceededError),
        ("amqp:link:detach-forced", ServiceBusConnectionError),
        ("amqp:not-allowed", ServiceBusError),
        ("com.microsoft:operation-cancelled", ServiceBusError),
        ("com.example:made-up", ServiceBusError),
    ],
)
def test_any_condition_reaches_the_sender_as_its_exception(
    bus: LocalNamespace, condition: str, error: type[ServiceBusError]
) -> None:
    with client_of(bus) as client, client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("before"))
        bus.faults.add("refuse", entities=["orders"], condition=condition, on="sends", text="on purpose")
        with pytest.raises(error, match="on purpose") as raised:
            sender.send_messages(ServiceBusMessage("during"))
        assert type(raised.value) is error
    with pytest.raises(error) as raised:
        send(bus)
    assert type(raised.value) is error
    assert receive(bus) == ["before"]
    assert_works(bus, "invoices")


def test_a_counted_refusal_is_over_after_so_many_sends(bus: LocalNamespace) -> None:
    bus.faults.add("refuse", entities=["orders"], condition="amqp:not-allowed", on="sends", count=2)
    with client_of(bus) as client, client.get_queue_sender("orders") as sender:
        for _ in range(2):
            with pytest.raises(ServiceBusError):
                sender.send_messages(ServiceBusMessage("during"))
        sender.send_messages(ServiceBusMessage("after"))
    assert bus.faults.list() == []
    assert receive(bus) == ["after"]


def test_a_receiver_sees_the_condition_it_is_refused_with(bus: LocalNamespace) -> None:
    send(bus)
    with client_of(bus) as client, client.get_queue_receiver("orders") as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=WAIT_S)
        lost = "com.microsoft:message-lock-lost"
        bus.faults.add("refuse", entities=["orders"], condition=lost, on="receives", count=1)
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(message)
    bus.faults.add("refuse", entities=["orders"], condition="com.microsoft:entity-disabled", on="receives")
    with pytest.raises(MessagingEntityDisabledError):
        receive(bus)
    send(bus, text="43")


# --- busy, slow, late, unanswered, restart ---


def test_busy_denies_what_comes_too_often_and_says_to_wait(bus: LocalNamespace) -> None:
    bus.faults.add("busy", entities=["orders"], per_second=2)
    with client_of(bus) as client, client.get_queue_sender("orders") as sender:
        with pytest.raises(ServiceBusServerBusyError, match="wait 10 seconds"):
            _send_many(sender, 100)
        wait_until(lambda: _is_sent(sender))
    assert_works(bus, "invoices")


def _send_many(sender: ServiceBusSender, count: int) -> None:
    for number in range(count):
        sender.send_messages(ServiceBusMessage(str(number)))


def _is_sent(sender: ServiceBusSender) -> bool:
    try:
        sender.send_messages(ServiceBusMessage("again"))
    except ServiceBusServerBusyError:
        return False
    return True


def test_busy_without_a_number_denies_links_requests_and_http(bus: LocalNamespace) -> None:
    bus.faults.add("busy")
    for act in (send, receive, peek):
        with pytest.raises(ServiceBusServerBusyError):
            act(bus)
    with pytest.raises(HttpResponseError) as answered:
        queue_names(bus)
    assert answered.value.status_code == 503


def test_slow_answers_take_as_long_as_they_should(bus: LocalNamespace) -> None:
    with client_of(bus) as client, client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("before"))
        bus.faults.add("slow", entities=["orders"], delay=SHORTLY)
        began = time.monotonic()
        sender.send_messages(ServiceBusMessage("during"))
        assert time.monotonic() - began >= SHORTLY.total_seconds()
        bus.faults.clear()
        assert min(_seconds(sender, "after") for _ in range(5)) < SHORTLY.total_seconds()
    assert peek(bus) == ["before", "during", *["after"] * 5]


def _seconds(sender: ServiceBusSender, text: str) -> float:
    """How long a send takes."""
    began = time.monotonic()
    sender.send_messages(ServiceBusMessage(text))
    return time.monotonic() - began


def test_slow_deliveries_come_late_and_in_order(bus: LocalNamespace) -> None:
    with client_of(bus) as client, client.get_queue_sender("orders") as sender:
        sender.send_messages([ServiceBusMessage(str(number)) for number in range(20)])
    bus.faults.add("slow", entities=["orders"], delay=timedelta(milliseconds=5), jitter=timedelta(milliseconds=200))
    with client_of(bus) as client, client.get_queue_receiver("orders") as receiver:
        assert _texts(receiver, 20) == [str(number) for number in range(20)]


def _texts(receiver: ServiceBusReceiver, count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        got = receiver.receive_messages(count - len(found), max_wait_time=WAIT_S)
        assert got, f"only {found} came"
        found += [str(message) for message in got]
    return found


@pytest.mark.long
def test_late_messages_are_accepted_at_once_and_survive_a_restart(bus: LocalNamespace) -> None:
    delay_s = 8
    with (
        client_of(bus) as client,
        client.get_queue_sender("orders") as sender,
        client.get_queue_receiver("orders") as receiver,
    ):
        assert receiver.receive_messages(1, max_wait_time=0.1) == []
        sender.send_messages(ServiceBusMessage("before"))
        bus.faults.add("late", entities=["orders"], delay=timedelta(seconds=delay_s))
        began = time.monotonic()
        sender.send_messages(ServiceBusMessage("late"))
        (message,) = receiver.receive_messages(1, max_wait_time=WAIT_S)
        receiver.complete_message(message)
        assert receiver.receive_messages(1, max_wait_time=0.5) == []
        assert time.monotonic() - began < delay_s
    bus.restart()
    assert receive(bus) == ["late"]
    assert time.monotonic() - began >= delay_s


def test_late_is_for_its_own_entities(bus: LocalNamespace) -> None:
    bus.faults.add("late", entities=["orders"], delay=timedelta(minutes=15))
    assert_works(bus, "invoices")


def test_unanswered_messages_are_stored_and_their_senders_never_know(bus: LocalNamespace) -> None:
    with client_of(bus) as client, client.get_queue_sender("orders") as sender:
        bus.faults.add("unanswered", entities=["orders"], count=1)
        with pytest.raises(OperationTimeoutError):
            sender.send_messages(ServiceBusMessage("stored"), timeout=3)
    send(bus, text="answered")
    assert peek(bus) == ["stored", "answered"]
    assert_works(bus, "invoices")


@pytest.mark.long
def test_a_restarting_group_is_unavailable_then_slow_then_well_and_leaves_a_dump(bus: LocalNamespace) -> None:
    send(bus)
    bus.faults.add(
        "restart",
        entities=["orders"],
        length=timedelta(seconds=12),
        slow_for=timedelta(minutes=5),
        delay=timedelta(milliseconds=300),
    )
    for act in (send, receive, peek):
        with pytest.raises(ServiceBusError, match="is restarting"):
            act(bus)
    assert_works(bus, "invoices")
    wait_until(lambda: "slow after a restart" in bus.faults.list()[0]["text"])
    began = time.monotonic()
    send(bus, text="slowly")
    assert time.monotonic() - began >= 0.3
    bus.faults.clear()
    assert peek(bus) == ["42", "slowly"]
    dumps = list(_home(bus).glob("dumps/*-restart.json"))
    assert len(dumps) == 1
    assert bus.connection_string.partition("SharedAccessKey=")[2].partition(";")[0] not in dumps[0].read_text()
    assert "orders" in dumps[0].read_text()


@pytest.mark.long
def test_a_restarting_namespace_is_gone_for_a_while(bus: LocalNamespace) -> None:
    send(bus)
    bus.faults.add("restart", length=A_WHILE, slow_for=timedelta(0))
    with pytest.raises(ServiceBusConnectionError):
        send(bus)
    wait_until(lambda: bus.faults.list() == [])
    assert receive(bus) == ["42"]


def _home(namespace: LocalNamespace) -> Any:
    assert namespace._data is not None
    return namespace._data / namespace.name


# --- the handle ---


def test_faults_are_listed_and_cleared_and_end_with_the_server(bus: LocalNamespace) -> None:
    first = bus.faults.add("no-send", pattern="ord*", length=timedelta(hours=1))
    second = bus.faults.add("slow", delay=timedelta(milliseconds=1))
    assert [one["id"] for one in bus.faults.list()] == [first, second]
    bus.faults.clear(first)
    assert [one["id"] for one in bus.faults.list()] == [second]
    with pytest.raises(TwinbusError, match="in force are"):
        bus.faults.clear(first)
    with pytest.raises(OptionsError, match="no fault is called"):
        bus.faults.add("earthquake")
    with pytest.raises(OptionsError, match="entities must be a list"):
        bus.faults.add("no-send", entities="orders")
    bus.restart()
    assert bus.faults.list() == []
    assert_works(bus, "orders")


def test_a_fault_can_be_given_through_the_control_socket_while_the_port_is_closed(bus: LocalNamespace) -> None:
    path = _home(bus) / control_client.CONTROL_SOCKET
    control_client.ask(path, "fault.add", {"fault": "unreachable"})
    with pytest.raises(ServiceBusConnectionError):
        send(bus)
    assert control_client.ask(path, "fault.clear") == ["unreachable-1"]
    assert_works(bus, "orders")
    bus.stop()
    assert not path.exists()
