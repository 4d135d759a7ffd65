"""The end of a paired client: nothing stays behind, every waiting call gets an answer (P18)."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from paired import AIO, WAIT_S, Heard, PairHarness, wait_until
from wire_relay import Relay

import twinbus.aio
from twinbus import NamespaceSide, PairedServiceBusClient, Retry
from twinbus import SendAvailabilityPairedNamespaceOptions as Options
from twinbus.client.aio.links import ClientLinks
from twinbus.client.sdk.failures import LinkFailed
from twinbus.errors import NotSent, PairClosed, PairFaulted

QUICK = timedelta(seconds=2)


def sockets() -> int:
    """How many sockets this process has."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            found += str(link.readlink()).startswith("socket:")
        except OSError:  # it was closed while we looked
            continue
    return found


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if not thread.name.startswith(("test-helper", "loop-of"))}


def leaves_nothing(act: Callable[[], None]) -> None:
    gc.collect()
    wait_until(lambda: not any(thread.name.startswith("test-helper") for thread in threading.enumerate()))
    threads_before, sockets_before = threads(), sockets()
    act()
    wait_until(lambda: threads() <= threads_before)
    wait_until(lambda: sockets() <= sockets_before)


def send_on_a_thread(sender: Any, errors: list[BaseException]) -> threading.Thread:
    def send() -> None:
        try:
            sender.send_messages(ServiceBusMessage("1"))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=send, name="test-helper-sends", daemon=True)
    thread.start()
    return thread


def bring_down(harness: PairHarness, outage: str) -> None:
    if outage == "no-send":
        harness.primary.break_("no-send")
    elif outage == "silent":
        harness.primary.break_("unreachable", how="silent")
    elif outage == "killed":
        harness.primary.kill()


# --- nothing stays behind ---


@pytest.mark.parametrize("outage", ["none", "no-send", "silent", "killed"])
def test_a_clean_close_leaves_no_thread_and_no_socket(harness: PairHarness, outage: str) -> None:
    here, there = harness.primary.namespace, harness.secondary.namespace

    def live_and_close() -> None:
        with harness.client_of(here, there, attempt_timeout=QUICK) as bus:
            bus.on("*", lambda event: None)
            senders = [bus.get_queue_sender(queue) for queue in (harness.orders, harness.orders, harness.invoices)]
            for sender in senders:
                sender.send_messages(ServiceBusMessage("1"))
            receiver = bus.get_queue_receiver(harness.orders)
            assert len(receiver.receive_messages(1, max_wait_time=30)) == 1
            bring_down(harness, outage)
            for sender in senders:
                sender.send_messages(ServiceBusMessage("2"), timeout=WAIT_S)

    leaves_nothing(live_and_close)


@pytest.mark.parametrize("outage", ["no-send", "silent", "killed"])
async def test_a_clean_close_leaves_no_task_and_no_socket(harness: PairHarness, outage: str) -> None:
    here, there = harness.primary.namespace, harness.secondary.namespace
    gc.collect()
    before, tasks_before = sockets(), asyncio.all_tasks()
    options = Options(there, **harness.options(attempt_timeout=QUICK))
    async with twinbus.aio.PairedServiceBusClient(here, options) as bus:
        senders = [bus.get_queue_sender(queue) for queue in (harness.orders, harness.invoices)]
        for sender in senders:
            await sender.send_messages(ServiceBusMessage("1"))
        receiver = bus.get_queue_receiver(harness.orders)
        assert len(await receiver.receive_messages(1, max_wait_time=30)) == 1
        bring_down(harness, outage)
        for sender in senders:
            receipt = await sender.send_messages(ServiceBusMessage("2"), timeout=WAIT_S)
            assert receipt.side is NamespaceSide.BACKLOG
    assert asyncio.all_tasks() == tasks_before
    deadline = time.monotonic() + WAIT_S
    while sockets() > before:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def test_senders_that_were_forgotten_instead_of_closed_leave_nothing(harness: PairHarness) -> None:
    def forget() -> None:
        with harness.bus() as bus:
            for _ in range(3):
                bus.get_queue_sender(harness.orders).send_messages(ServiceBusMessage("1"))
            gc.collect()
            assert bus.status().entities[0].sent_to_primary == 3

    leaves_nothing(forget)


def test_a_pairing_that_failed_leaves_nothing(harness: PairHarness) -> None:
    def fail() -> None:
        bus = harness.client(create_backlog=False, attempt_timeout=QUICK)
        with pytest.raises(twinbus.errors.PairingError):
            bus.pair()
        bus.close()

    leaves_nothing(fail)


def test_closing_a_sender_ends_its_link_and_not_the_client(both: PairHarness) -> None:
    with (
        Relay(both.primary.port) as relay,
        both.client_of(both.primary.through(relay.port), both.secondary.namespace) as bus,
    ):
        with bus.get_queue_sender(both.orders) as sender:
            sender.send_messages(ServiceBusMessage("1"))
            assert relay.connections == 1
        with pytest.raises(PairClosed, match=both.orders):
            sender.send_messages(ServiceBusMessage("2"))
        relay.wait_until_all_left()
        assert bus.get_queue_sender(both.orders).send_messages(ServiceBusMessage("3")).side is NamespaceSide.PRIMARY
        assert bus.status().entities[0].sent_to_primary == 2, "what the closed one sent still counts"


# --- every waiting call gets an answer ---


def test_after_the_close_every_call_says_so(both: PairHarness) -> None:
    bus = both.client()
    heard = Heard(bus, "closed")
    with bus:
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("1"))
    bus.close()
    assert len(heard.events) == 1, "answered once, before close returns"
    for call in (
        lambda: sender.send_messages(ServiceBusMessage("2")),
        lambda: sender.schedule_messages(ServiceBusMessage("2"), heard.events[0].at),
        lambda: sender.cancel_scheduled_messages(1),
        sender.create_message_batch,
        lambda: bus.get_queue_sender(both.orders),
        lambda: bus.get_queue_receiver(both.orders),
        lambda: bus.force_failover(both.orders),
        lambda: bus.mark_healthy(both.orders),
        bus.recheck,
    ):
        with pytest.raises(PairClosed):
            call()
    assert bus.status().phase.value == "closed"
    assert both.primary.texts(both.orders) == ["1"]


def test_after_a_fault_every_call_says_why(both: PairHarness) -> None:
    bus = both.client()
    heard = Heard(bus, "faulted")
    bus.pair()
    sender = bus.get_queue_sender(both.orders)
    bus.fault("the other side was closed")
    for call in (
        lambda: sender.send_messages(ServiceBusMessage("2")),
        lambda: bus.get_queue_sender(both.orders),
        bus.pair,
    ):
        with pytest.raises(PairFaulted) as faulted:
            call()
        assert faulted.value.reason == "the other side was closed"
    bus.close()
    status = bus.status()
    assert (status.phase.value, status.fault) == ("faulted", "the other side was closed")
    assert [event.text for event in heard.events] == ["the other side was closed"]


def test_a_client_that_was_never_paired_is_closed_too(both: PairHarness) -> None:
    bus = both.client()
    bus.close()
    with pytest.raises(PairClosed):
        bus.pair()


def test_closed_is_the_last_event_though_a_ping_is_under_way(both: PairHarness) -> None:
    with both.bus(ping_primary_interval=timedelta(seconds=1), probe="ping") as bus:
        heard = Heard(bus)
        bus.get_queue_sender(both.orders).send_messages(ServiceBusMessage("first"))
        both.primary.break_("slow", both.orders, delay_ms=1_000)
        bus.force_failover(both.orders)
        heard.wait_for("ping_sent")
    assert heard.names()[-1] == "closed"
    assert heard.names().count("closed") == 1


def test_closing_ends_a_send_that_waits_for_a_busy_server(both: PairHarness) -> None:
    bus = both.client(retry=Retry(attempts=3))
    bus.pair()
    both.primary.break_("busy", both.orders)
    heard = Heard(bus, "busy")
    errors: list[BaseException] = []
    thread = send_on_a_thread(bus.get_queue_sender(both.orders), errors)
    heard.wait_for("busy")
    began = time.monotonic()
    bus.close()
    thread.join(20)
    assert time.monotonic() - began < 9
    assert [type(error).__name__ for error in errors] == ["NotSent"]


def test_closing_is_quick_while_both_sides_are_silent(both: PairHarness) -> None:
    bus = both.client(attempt_timeout=timedelta(seconds=30))
    bus.pair()
    sender = bus.get_queue_sender(both.orders)
    sender.send_messages(ServiceBusMessage("1"))
    for side in (both.primary, both.secondary):
        side.break_("unreachable", how="silent")
    errors: list[BaseException] = []
    thread = send_on_a_thread(sender, errors)
    wait_until(lambda: not thread.is_alive() or both.flavour == AIO or sender._lock.locked())
    began = time.monotonic()
    bus.close()
    assert time.monotonic() - began < 9  # it takes 2; waiting for what nobody ends would take 10, or 30
    thread.join(20)
    assert not thread.is_alive()
    assert len(errors) == 1


@pytest.mark.parametrize("side", ["primary", "secondary"])
def test_closing_does_not_wait_for_a_link_that_a_silent_namespace_never_opens(both: PairHarness, side: str) -> None:
    there = both.primary if side == "primary" else both.secondary
    took: list[float] = []
    for _ in range(3):
        bus = both.client(attempt_timeout=timedelta(seconds=30))
        bus.pair()
        sender = bus.get_queue_sender(both.orders)
        if side == "secondary":
            bus.force_failover(both.orders, stay=True)
            both.secondary.break_("unreachable", how="drop")  # the link that is kept warm
        there.break_("unreachable", how="silent")
        errors: list[BaseException] = []
        thread = send_on_a_thread(sender, errors)
        time.sleep(0.5)  # it opens a link meanwhile, and nothing shows that from outside
        began = time.monotonic()
        bus.close()
        took.append(time.monotonic() - began)
        thread.join(20)
        assert [type(error).__name__ for error in errors] == ["NotSent"]
        there.clear()
    assert max(took) < 9
    if both.flavour == AIO:
        assert min(took) < 1.5  # usually at once; waiting for the link would take 2, each time


def test_closing_in_the_middle_of_a_send_of_the_same_thread_does_not_wait_for_it(harness: PairHarness) -> None:
    bus = harness.client(attempt_timeout=timedelta(seconds=30))
    bus.pair()
    sender = bus.get_queue_sender(harness.orders)
    sender.send_messages(ServiceBusMessage("1"))
    harness.primary.break_("unanswered")
    took: list[float] = []

    def close(*_: object) -> None:
        began = time.monotonic()
        bus.close()
        took.append(time.monotonic() - began)

    before = signal.signal(signal.SIGUSR1, close)
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.5, lambda: signal.pthread_kill(main, signal.SIGUSR1))
    timer.name = "test-helper-timer"
    timer.start()
    try:
        with pytest.raises(NotSent):
            sender.send_messages(ServiceBusMessage("2"))
    finally:
        signal.signal(signal.SIGUSR1, before)
        timer.join()
    assert len(took) == 1
    assert took[0] < 9  # it takes 0 to 3; waiting for itself would take 10 more


async def test_a_link_that_opens_when_nobody_wants_it_any_more_is_discarded() -> None:
    class Link:
        is_discarded = False

        def discard(self) -> None:
            self.is_discarded = True

    openings, link = ClientLinks(), Link()

    async def open_link() -> Any:
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(task.cancel)  # in the turn of the loop in which the link is ready
        return link

    task = asyncio.create_task(openings.open(open_link()))
    await asyncio.wait({task})
    assert task.cancelled()
    assert link.is_discarded


async def test_once_openings_have_ended_none_begins_and_waiting_ones_fail() -> None:
    openings, answers = ClientLinks(), []

    async def never() -> Any:
        await asyncio.sleep(3600)

    async def wait() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        try:
            await openings.open(never())  # cancelled before, and goes on: that is not what ends this
        except LinkFailed as error:
            answers.append(error.failure.text)

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0.01)
    openings.end()
    await task
    with pytest.raises(LinkFailed):
        await openings.open(never())
    assert answers == ["the client is closed"]


def test_a_client_in_a_with_block_is_closed_when_that_fails(both: PairHarness) -> None:
    class Mistake(Exception):
        pass

    def fail(bus: PairedServiceBusClient) -> None:
        with bus:
            raise Mistake

    bus = both.client()
    with pytest.raises(Mistake):
        fail(bus)
    assert bus.status().phase.value == "closed"
