"""A time limit that a signal handler raises in the middle of a send is no trouble of the primary."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

import twinbus.aio
from twinbus import PairedServiceBusClient
from twinbus.client.reporting.status import EntityStatus
from twinbus.pairing.sending.receipt import receipt_of
from twinbus.testing import LocalNamespace

WAIT_S = 60

WAYS: dict[str, Callable[[Any], Any]] = {
    "one": lambda sender: sender.send_messages(ServiceBusMessage("1")),
    "list": lambda sender: sender.send_messages([ServiceBusMessage("1")]),
    "hurry": lambda sender: sender.send_messages(ServiceBusMessage("1"), timeout=WAIT_S),
    "later": lambda sender: sender.schedule_messages(ServiceBusMessage("1"), datetime.now(UTC) + timedelta(days=1)),
}


class OutOfTime(Exception):
    pass


@pytest.fixture(autouse=True)
def _limited() -> Iterator[None]:
    def give_up(*_: object) -> None:
        raise OutOfTime("the job took too long")

    before = signal.signal(signal.SIGUSR1, give_up)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.fixture(scope="module")
def strings() -> Iterator[tuple[str, str]]:
    with LocalNamespace("contoso", queues=["orders"]) as primary, LocalNamespace("backup") as secondary:
        yield primary.connection_string, secondary.connection_string


@pytest.fixture
def bus(strings: tuple[str, str]) -> Iterator[PairedServiceBusClient]:
    with PairedServiceBusClient.from_connection_strings(*strings, backlog_queue_count=1) as paired:
        yield paired


@pytest.fixture
async def aio_bus(strings: tuple[str, str]) -> AsyncIterator[twinbus.aio.PairedServiceBusClient]:
    async with twinbus.aio.PairedServiceBusClient.from_connection_strings(*strings, backlog_queue_count=1) as paired:
        yield paired


def ring(*_: Any, **__: Any) -> None:
    """The signal comes while the SDK waits for an answer."""
    signal.raise_signal(signal.SIGUSR1)


async def ring_async(*_: Any, **__: Any) -> None:
    ring()


def is_doubt_and_nothing_else(error: OutOfTime, status: EntityStatus) -> None:
    receipt = receipt_of(error)
    assert receipt is not None
    assert (receipt.accepted, receipt.copies_in_doubt, receipt.attempts) == (0, 1, 1)
    assert (status.copies_in_doubt, status.failovers, status.state.value) == (1, 0, "healthy")


@pytest.mark.parametrize("way", WAYS)
def test_what_a_signal_handler_raises_ends_a_send_on_a_thread(bus: PairedServiceBusClient, way: str) -> None:
    sender = bus.get_queue_sender("orders")
    sender.send_messages(ServiceBusMessage("first"))
    link = sender._link
    assert link is not None
    handler: Any = link.sender._handler
    handler.do_work = handler.mgmt_request = ring
    with pytest.raises(OutOfTime) as ended:
        WAYS[way](sender)
    is_doubt_and_nothing_else(ended.value, bus.status().entities[0])
    assert not link.is_usable, "nobody knows what it is waiting for"
    assert sender.send_messages(ServiceBusMessage("next")).accepted == 1


@pytest.mark.parametrize("way", WAYS)
async def test_what_a_signal_handler_raises_ends_a_send_on_a_task(
    aio_bus: twinbus.aio.PairedServiceBusClient, way: str
) -> None:
    sender = aio_bus.get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage("first"))
    link = sender._link
    assert link is not None
    handler: Any = link.sender._handler
    handler.do_work_async = handler.mgmt_request_async = ring_async
    with pytest.raises(OutOfTime) as ended:
        await WAYS[way](sender)
    is_doubt_and_nothing_else(ended.value, aio_bus.status().entities[0])
    assert not link.is_usable, "nobody knows what it is waiting for"
    assert (await sender.send_messages(ServiceBusMessage("next"))).accepted == 1


def test_what_a_signal_handler_raises_ends_a_cancellation_of_scheduled_messages(bus: PairedServiceBusClient) -> None:
    sender = bus.get_queue_sender("orders")
    numbers = sender.schedule_messages(ServiceBusMessage("1"), datetime.now(UTC) + timedelta(days=1))
    link = sender._link
    assert link is not None
    handler: Any = link.sender._handler
    handler.mgmt_request = ring
    with pytest.raises(OutOfTime):
        sender.cancel_scheduled_messages(numbers)
    assert not link.is_usable
    sender.cancel_scheduled_messages(numbers)
