"""Crowds, interruptions and ends in the middle: they say nothing of a namespace, and nothing untrue to a caller."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from paired import Heard, PairHarness, wait_until

import twinbus.aio
from twinbus import NamespaceSide, Retry, SendReceipt, receipt_of
from twinbus import SendAvailabilityPairedNamespaceOptions as Options
from twinbus.client.reporting.status import EntityState
from twinbus.errors import NotSent


def crowd(size: int, act: Any) -> list[Any]:
    """What each of so many calls at a time returned or raised."""

    def one(number: int) -> Any:
        try:
            return act(number)
        except Exception as error:
            return error

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(one, range(size)))


def state_of(bus: Any, entity: str) -> EntityState:
    found = bus.status().entity(entity)
    assert found is not None
    state: EntityState = found.state
    return state


def test_callers_in_a_hurry_at_a_slow_primary_get_an_answer_and_nothing_fails_over(both: PairHarness) -> None:
    with both.bus() as bus:
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("first"))
        both.primary.break_("slow", both.orders, delay_ms=1_000)
        began = time.monotonic()
        results = crowd(40, lambda number: sender.send_messages(ServiceBusMessage(str(number)), timeout=20))
        assert time.monotonic() - began < 35, "one after the other would take forty seconds"
        assert state_of(bus, both.orders) is EntityState.HEALTHY
    for result in results:
        if isinstance(result, SendReceipt):
            assert result.side is NamespaceSide.PRIMARY
        else:
            assert isinstance(result, ServiceBusError)
    assert any(isinstance(result, SendReceipt) for result in results)


def test_a_crowd_of_schedules_is_no_outage_either(both: PairHarness) -> None:
    when = datetime.now(UTC) + timedelta(hours=1)
    with both.bus(attempt_timeout=timedelta(seconds=8), retry=Retry(attempts=1)) as bus:
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("first"))
        both.primary.break_("slow", both.orders, delay_ms=800)  # the last of them wait for longer than one may take
        results = crowd(12, lambda number: sender.schedule_messages(ServiceBusMessage(str(number)), when))
        assert state_of(bus, both.orders) is EntityState.HEALTHY
    assert all(number > 0 for numbers in results for number in numbers)


def test_a_crowd_at_a_slow_backlog_loses_no_queue(both: PairHarness) -> None:
    with both.bus(attempt_timeout=timedelta(seconds=8), retry=Retry(attempts=1)) as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(both.orders)
        bus.force_failover(both.orders, stay=True)
        sender.send_messages(ServiceBusMessage("first"))
        both.secondary.break_("slow", delay_ms=700)  # by eights, the last of them wait for longer than one may take
        results = crowd(100, lambda number: sender.send_messages(ServiceBusMessage(str(number))))
        assert [result for result in results if not isinstance(result, SendReceipt)] == []
        assert heard.named("backlog_queue_lost") == []


def test_closing_in_the_middle_of_an_unanswered_send_says_that_it_is_in_doubt(both: PairHarness) -> None:
    bus = both.client(attempt_timeout=timedelta(seconds=20))
    with bus:
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("first"))
        both.primary.break_("unanswered", both.orders)
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(sender.send_messages, ServiceBusMessage("x", message_id="doubtful"))
            wait_until(lambda: "doubtful" in [message.message_id for message in both.primary.messages(both.orders)])
            bus.close()
            error = sending.exception(timeout=30)
    assert isinstance(error, NotSent)
    assert "in doubt" in str(error)
    receipt = receipt_of(error)
    assert receipt is not None
    assert (receipt.message_ids, receipt.accepted, receipt.in_doubt) == (("doubtful",), 0, True)


def test_closing_one_sender_in_the_middle_says_nothing_of_its_entity(both: PairHarness) -> None:
    with both.bus(attempt_timeout=timedelta(seconds=10), retry=Retry(attempts=1)) as bus:
        one, other = bus.get_queue_sender(both.orders), bus.get_queue_sender(both.orders)
        for sender in (one, other):
            sender.send_messages(ServiceBusMessage("first"))
        both.primary.break_("unanswered", both.orders)
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(one.send_messages, ServiceBusMessage("x", message_id="doubtful"))
            wait_until(lambda: "doubtful" in [message.message_id for message in both.primary.messages(both.orders)])
            one.close()
            error = sending.exception(timeout=30)
        assert isinstance(error, NotSent)
        assert "the sender was closed" in str(error)
        both.primary.clear()
        assert other.send_messages(ServiceBusMessage("next")).side is NamespaceSide.PRIMARY


async def test_a_cancelled_send_is_in_doubt(harness: PairHarness) -> None:
    options = Options(harness.secondary.namespace, **harness.options(attempt_timeout=timedelta(seconds=20)))
    async with twinbus.aio.PairedServiceBusClient(harness.primary.namespace, options) as bus:
        doubts: list[object] = []
        bus.on("in_doubt", lambda event: doubts.append(event.details["message_ids"]))
        sender = bus.get_queue_sender(harness.orders)
        await sender.send_messages(ServiceBusMessage("first"))
        await asyncio.to_thread(harness.primary.break_, "unanswered", harness.orders)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sender.send_messages(ServiceBusMessage("x", message_id="straight")), 2)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sender.send_messages(ServiceBusMessage("x", message_id="by-flow")), 2)
        assert bus.status().entities[0].copies_in_doubt == 2
        async with asyncio.timeout(20):
            while len(doubts) < 2:
                await asyncio.sleep(0.01)
    assert doubts == [("straight",), ("by-flow",)]


def test_callbacks_come_in_the_order_of_the_events(harness: PairHarness) -> None:
    with harness.bus() as bus:
        sender = bus.get_queue_sender(harness.orders)
        sender.send_messages(ServiceBusMessage("first"))
        epochs: list[object] = []
        for name in ("failed_over", "recovered"):
            bus.on(name, lambda event: epochs.append(event.details["epoch"]))
        is_over = threading.Event()

        def go_back_and_forth() -> None:
            while not is_over.is_set():
                bus.force_failover(harness.orders, stay=True)
                bus.mark_healthy(harness.orders)

        with ThreadPoolExecutor(6) as pool:
            for _ in range(6):
                pool.submit(go_back_and_forth)
            wait_until(lambda: len(epochs) > 300)
            is_over.set()
    assert epochs == sorted(epochs, key=lambda epoch: int(str(epoch)))
