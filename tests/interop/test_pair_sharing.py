"""Many threads, tasks and senders: shared safely, and cheap (DESIGN: Sharing)."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from paired import AIO, SYNC, Heard, PairHarness, wait_until

import twinbus.aio
from twinbus import NamespaceSide, Retry, SendReceipt
from twinbus import SendAvailabilityPairedNamespaceOptions as Options
from twinbus.client.core.link_rules import LINKS_MAX

THREADS, TASKS, SENDERS = 20, 50, 1_000
FEW = 10
"""Far less than one for each sender."""


def aio_bus(harness: PairHarness, **wishes: Any) -> twinbus.aio.PairedServiceBusClient:
    options = Options(harness.secondary.namespace, **harness.options(**wishes))
    return twinbus.aio.PairedServiceBusClient(harness.primary.namespace, options)


def account(harness: PairHarness, receipts: list[SendReceipt]) -> None:
    """Every message is where its receipt says; a copy more only where that is in doubt."""
    primary = [message.message_id for message in harness.primary.messages(harness.orders)]
    backlog = [message.message_id for message in harness.in_backlog()]
    for receipt in receipts:
        (message_id,) = receipt.message_ids
        home = primary if receipt.side is NamespaceSide.PRIMARY else backlog
        assert message_id in home
        assert primary.count(message_id) + backlog.count(message_id) <= 1 + receipt.copies_in_doubt
    sent = {receipt.message_ids[0] for receipt in receipts}
    assert {*primary, *backlog} <= sent
    assert len(sent) == len(receipts)


def test_twenty_threads_share_a_sender_through_an_outage(harness: PairHarness) -> None:
    receipts: list[SendReceipt] = []
    is_over = threading.Event()
    with harness.bus() as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(harness.orders)

        def send() -> None:
            while not is_over.is_set():
                receipts.append(sender.send_messages(ServiceBusMessage("x")))

        with ThreadPoolExecutor(THREADS) as pool:
            work = [pool.submit(send) for _ in range(THREADS)]
            wait_until(lambda: len(receipts) > 100)
            harness.primary.kill()
            heard.wait_for("failed_over")
            during = len(receipts)
            wait_until(lambda: len(receipts) > during + 100)
            harness.primary.start()
            heard.wait_for("recovered")
            after = len(receipts)
            wait_until(lambda: len(receipts) > after + 100)
            is_over.set()
            for one in work:
                one.result(60)
        assert len(heard.named("failed_over")) == 1
        status = bus.status().entities[0]
        sides = [receipt.side for receipt in receipts]
        assert (status.sent_to_primary, status.sent_to_backlog) == (
            sides.count(NamespaceSide.PRIMARY),
            sides.count(NamespaceSide.BACKLOG),
        )
    account(harness, receipts)


@pytest.mark.long
async def test_fifty_tasks_share_a_sender_through_an_outage(harness: PairHarness) -> None:
    receipts: list[SendReceipt] = []
    is_over = asyncio.Event()

    async def reach(count: int) -> None:
        async with asyncio.timeout(40):
            while len(receipts) < count:
                await asyncio.sleep(0.01)

    async with aio_bus(harness) as bus:
        recovered, failed_over = asyncio.Event(), asyncio.Event()
        bus.on("recovered", lambda event: recovered.set())
        bus.on("failed_over", lambda event: failed_over.set())
        sender = bus.get_queue_sender(harness.orders)

        async def send() -> None:
            while not is_over.is_set():
                receipts.append(await sender.send_messages(ServiceBusMessage("x")))

        work = [asyncio.create_task(send()) for _ in range(TASKS)]
        await reach(100)
        harness.primary.kill()
        await asyncio.wait_for(failed_over.wait(), 40)
        await reach(len(receipts) + 100)
        await asyncio.to_thread(harness.primary.start)
        await asyncio.wait_for(recovered.wait(), 40)
        await reach(len(receipts) + 100)
        is_over.set()
        await asyncio.gather(*work)
        assert bus.status().entities[0].failovers == 1
    await asyncio.to_thread(account, harness, receipts)


async def test_a_cancelled_send_leaves_a_sender_that_works(harness: PairHarness) -> None:
    async with aio_bus(harness, attempt_timeout=timedelta(seconds=20)) as bus:
        sender = bus.get_queue_sender(harness.orders)
        await sender.send_messages(ServiceBusMessage("1"))
        await asyncio.to_thread(harness.primary.break_, "unreachable", how="silent")
        for _ in range(2):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await sender.send_messages(ServiceBusMessage("cancelled"))
        await asyncio.to_thread(harness.primary.clear)
        assert bus.status().is_healthy, "nothing was found out"
        assert (await sender.send_messages(ServiceBusMessage("2"))).side is NamespaceSide.PRIMARY


@pytest.mark.parametrize("flavour", [SYNC, AIO])
def test_a_thousand_senders_share_a_few_connections_and_one_ping_schedule(harness: PairHarness, flavour: str) -> None:
    entities = [f"{harness.orders}-{number}" for number in range(5)]
    with harness.bus(flavour, pings_to_return=100) as bus:
        began = time.monotonic()
        for entity in entities:
            bus.get_queue_sender(entity)
            bus.force_failover(entity)
        before, threads_before = harness.secondary.connections, threading.active_count()
        senders = [bus.get_queue_sender(entities[number % 5]) for number in range(SENDERS)]
        if flavour == SYNC:
            with ThreadPoolExecutor(16, "test-helper") as pool:
                receipts = list(pool.map(lambda sender: sender.send_messages(ServiceBusMessage("x")), senders))
                assert harness.secondary.connections - before <= 2 * LINKS_MAX
            assert threading.active_count() - threads_before < 40
        else:
            receipts = [sender.send_messages(ServiceBusMessage("x")) for sender in senders]
            assert harness.secondary.connections - before <= 2 * LINKS_MAX
            assert threading.active_count() - threads_before < 2 * FEW
        assert {receipt.side for receipt in receipts} == {NamespaceSide.BACKLOG}
        primary = harness.primary.connections
        assert primary < 30, "pings come and go, five at a time"
        pings = [entity.pings_sent for entity in bus.status().entities]
        assert len(pings) == 5
        assert max(pings) <= (time.monotonic() - began) / 0.9 + 1, "one a second, whoever sends"
        bus.close()
    assert len(harness.in_backlog()) == SENDERS


def test_a_thousand_idle_senders_cost_no_connection_and_no_thread(harness: PairHarness) -> None:
    with harness.bus() as bus:
        wait_until(lambda: bus._runner.pool.links == 1)
        before = harness.primary.connections, harness.secondary.connections, threading.active_count()
        senders = [bus.get_queue_sender(harness.orders) for _ in range(SENDERS)]
        after = harness.primary.connections, harness.secondary.connections, threading.active_count()
        # The client's own threads may still be starting, and those of earlier tests are ending.
        assert all(now <= then + FEW for now, then in zip(after, before, strict=True))
        began = time.monotonic()
        del senders[10:]
    assert time.monotonic() - began < 20


def test_two_threads_that_fail_over_together_do_it_once(harness: PairHarness) -> None:
    with harness.bus(attempt_timeout=timedelta(seconds=4)) as bus:
        heard = Heard(bus)
        senders = [bus.get_queue_sender(harness.orders) for _ in range(8)]
        for sender in senders:
            sender.send_messages(ServiceBusMessage("1"))
        harness.primary.break_("unreachable", how="silent")
        with ThreadPoolExecutor(8) as pool:
            receipts = list(pool.map(lambda sender: sender.send_messages(ServiceBusMessage("2")), senders))
        assert {receipt.side for receipt in receipts} == {NamespaceSide.BACKLOG}
        assert len(heard.named("failed_over")) == 1
        assert bus.status().entities[0].failovers == 1


def test_sends_that_queue_at_a_slow_primary_are_no_outage(both: PairHarness) -> None:
    with both.bus(attempt_timeout=timedelta(seconds=3), retry=Retry(attempts=1)) as bus:
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("first"))
        both.primary.break_("slow", both.orders, delay_ms=500)  # the last of them wait for longer than one may take
        with ThreadPoolExecutor(8) as pool:
            receipts = list(pool.map(lambda number: sender.send_messages(ServiceBusMessage(str(number))), range(8)))
    assert {receipt.side for receipt in receipts} == {NamespaceSide.PRIMARY}
