"""A cancellation that the SDK swallows, as it does with Python 3.11 now and then, still cancels a send."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusConnectionError

from twinbus.aio import PairedServiceBusClient, PairedServiceBusSender
from twinbus.client.aio.links import SenderLink, all_closed
from twinbus.client.namespace import Namespace
from twinbus.pairing.sending.receipt import receipt_of
from twinbus.testing import LocalNamespace

WAIT_S = 60

Way = Callable[[PairedServiceBusSender], Coroutine[Any, Any, Any]]
WAYS: dict[str, Way] = {
    "one": lambda sender: sender.send_messages(ServiceBusMessage("1")),
    "list": lambda sender: sender.send_messages([ServiceBusMessage("1")]),
    "hurry": lambda sender: sender.send_messages(ServiceBusMessage("1"), timeout=WAIT_S),
    "later": lambda sender: sender.schedule_messages(ServiceBusMessage("1"), datetime.now(UTC) + timedelta(days=1)),
}
ENDS = ["well", "badly", "late"]


class Swallowing:
    """In the place of a call of the SDK's: lets nobody cancel it, once, and ends in its own way."""

    def __init__(self, end: str) -> None:
        self.is_under_way = asyncio.Event()
        self._end = end

    async def __call__(self, *_: Any, **__: Any) -> list[int]:
        self.is_under_way.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        if self._end == "badly":
            raise ServiceBusConnectionError(message="made of a cancellation")
        if self._end == "late":
            raise TimeoutError
        return [1]


@pytest.fixture(scope="module")
def primary() -> Iterator[LocalNamespace]:
    with LocalNamespace("contoso", queues=["orders"]) as running:
        yield running


@pytest.fixture(scope="module")
def secondary() -> Iterator[LocalNamespace]:
    with LocalNamespace("backup") as running:
        yield running


@pytest.fixture
async def bus(primary: LocalNamespace, secondary: LocalNamespace) -> AsyncIterator[PairedServiceBusClient]:
    strings = primary.connection_string, secondary.connection_string
    async with PairedServiceBusClient.from_connection_strings(*strings, backlog_queue_count=1) as paired:
        yield paired


def swallow(link: SenderLink, end: str) -> Swallowing:
    call: Any = Swallowing(end)
    link.sender.send_messages = call  # type: ignore[method-assign]
    link.sender.schedule_messages = call  # type: ignore[method-assign]
    return call  # type: ignore[no-any-return]


async def cancelled(work: Coroutine[Any, Any, Any], call: Swallowing | GoingOn) -> asyncio.CancelledError:
    """What a send ends with that is cancelled while the SDK is at it."""
    sending = asyncio.ensure_future(work)
    await call.is_under_way.wait()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError) as ended:
        await sending
    assert sending.cancelled()
    return ended.value


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("way", WAYS)
async def test_a_send_is_cancelled_and_in_doubt_though_the_sdk_swallowed_it(
    bus: PairedServiceBusClient, way: str, end: str
) -> None:
    sender = bus.get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage("first"))
    link = sender._link
    assert link is not None
    error = await cancelled(WAYS[way](sender), swallow(link, end))
    receipt = receipt_of(error)
    assert receipt is not None
    assert (receipt.accepted, receipt.copies_in_doubt) == (0, 1)
    status = bus.status().entities[0]
    assert (status.copies_in_doubt, status.failovers, status.state.value) == (1, 0, "healthy")
    assert not link.is_usable, "nobody knows what it is waiting for"
    assert (await sender.send_messages(ServiceBusMessage("next"))).accepted == 1


@pytest.mark.parametrize("end", ENDS)
async def test_a_call_on_a_link_is_cancelled_though_the_sdk_swallowed_it(primary: LocalNamespace, end: str) -> None:
    client = Namespace.from_connection_string(primary.connection_string).aio_client()
    link = await SenderLink.open(client, "orders", deadline_s=WAIT_S)
    await cancelled(link.send(ServiceBusMessage("1"), WAIT_S), swallow(link, end))
    assert not link.is_usable
    link.discard()
    await all_closed()


class GoingOn:
    """Around a call of the SDK's: lets nobody cancel it, and waits for its answer as if nothing had happened."""

    def __init__(self, call: Callable[..., Coroutine[Any, Any, Any]]) -> None:
        self.is_under_way = asyncio.Event()
        self._call = call

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        calling = asyncio.ensure_future(self._call(*args, **kwargs))
        self.is_under_way.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(calling)
        return await calling


def go_on(link: SenderLink) -> GoingOn:
    call: Any = GoingOn(link.sender.send_messages)
    link.sender.send_messages = call  # type: ignore[method-assign]
    return call  # type: ignore[no-any-return]


async def test_a_call_that_goes_on_after_its_cancellation_is_ended_soon(primary: LocalNamespace) -> None:
    client = Namespace.from_connection_string(primary.connection_string).aio_client()
    link = await SenderLink.open(client, "orders", deadline_s=WAIT_S)
    primary.faults.add("unanswered", entities=["orders"])
    try:
        began = time.monotonic()
        await cancelled(link.send(ServiceBusMessage("1"), 10 * WAIT_S), go_on(link))
        assert time.monotonic() - began < WAIT_S
    finally:
        primary.faults.clear()
    assert not link.is_usable
    link.discard()
    await all_closed()


@pytest.mark.parametrize("way", ["one", "list"])
async def test_a_send_that_goes_on_after_its_cancellation_is_ended_soon(
    primary: LocalNamespace, secondary: LocalNamespace, way: str
) -> None:
    strings = primary.connection_string, secondary.connection_string
    patient = PairedServiceBusClient.from_connection_strings(
        *strings, backlog_queue_count=1, attempt_timeout=timedelta(minutes=2)
    )
    async with patient, patient.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("first"))
        link = sender._link
        assert link is not None
        primary.faults.add("unanswered", entities=["orders"])
        try:
            began = time.monotonic()
            error = await cancelled(WAYS[way](sender), go_on(link))
            assert time.monotonic() - began < WAIT_S
        finally:
            primary.faults.clear()
        receipt = receipt_of(error)
        assert receipt is not None
        assert (receipt.accepted, receipt.copies_in_doubt) == (0, 1)
        assert (await sender.send_messages(ServiceBusMessage("next"))).accepted == 1


async def test_who_was_cancelled_before_can_still_say_goodbye(bus: PairedServiceBusClient) -> None:
    sender, is_waiting = bus.get_queue_sender("orders"), asyncio.Event()
    await sender.send_messages(ServiceBusMessage("first"))

    async def live() -> int:
        try:
            is_waiting.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            straight = await sender.send_messages(ServiceBusMessage("goodbye"))
            listed = await sender.send_messages([ServiceBusMessage("and")])
            scheduled = await sender.schedule_messages(ServiceBusMessage("later"), datetime.now(UTC))
            return straight.accepted + listed.accepted + len(scheduled)
        return 0

    living = asyncio.ensure_future(live())
    await is_waiting.wait()
    living.cancel()
    assert await living == 3
