"""Who waits for something of the whole pair is woken when it comes, on threads and on tasks, and does not sleep on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

import twinbus.aio
from twinbus import PairedServiceBusClient
from twinbus.amqp.message.sections import PropertyField, encode_message
from twinbus.client.aio.pair_runner import PairRunner as TaskRunner
from twinbus.client.core import answers
from twinbus.client.flows import ordered_sends
from twinbus.client.flows.io_requests import Answer, Ask, Sleep, ToPrimary, WaitTurn
from twinbus.client.flows.ordered_sends import sending_of
from twinbus.client.flows.send_record import Sendable
from twinbus.client.sync.pair_runner import PairRunner as ThreadRunner
from twinbus.pairing.backlog.envelope import address
from twinbus.pairing.backlog.ordering import DepartedMessage, key_of, mark_of, queue_for
from twinbus.pairing.backlog.rotation import QueueChoice
from twinbus.pairing.effects import WakeWaiter
from twinbus.pairing.pair import Pair
from twinbus.pairing.sending.receipt import NamespaceSide, SendReceipt

PRIMARY, SECONDARY = (
    f"Endpoint=sb://{name}.example;SharedAccessKeyName=k;SharedAccessKey=a2V5" for name in ("contoso", "backup")
)
LONG_S = 60.0
"""Whoever sleeps so long was not woken."""
ROUNDS = 5
USUAL_S = 0.5
MESSAGE = address(
    encode_message(properties={PropertyField.MESSAGE_ID: "m", PropertyField.GROUP_ID: "a"}, data=b"x"), "orders"
)


def thread_runner() -> ThreadRunner:
    return PairedServiceBusClient.from_connection_strings(
        PRIMARY, SECONDARY, order="session", enable_syphon=True
    )._runner


def task_runner() -> TaskRunner:
    return twinbus.aio.PairedServiceBusClient.from_connection_strings(
        PRIMARY, SECONDARY, order="session", enable_syphon=True
    )._runner


class OneMessage:
    """Of session *a*, sent now."""

    message_ids = ("m2",)
    size_bytes = 100
    session_ids: frozenset[str | None] = frozenset(["a"])
    has_order = True
    sizes = sizes_in_backlog = (100,)


def stand_before_the_primary(pair: Pair) -> None:
    """An earlier message of the session is in the backlog, and about to come home."""
    if not pair.rotation.queues:
        pair.use_queues(range(2), {}, 0.0)
        for queue in range(2):
            pair.seen_empty(queue, 0)
    crossing = pair.depart(pair.entity("orders"), key_of("orders", "a"), [mark_of(MESSAGE)])
    pair.arrived(crossing)


def fall(pair: Pair, number: int) -> None:
    queue = queue_for(key_of("orders", "a"), range(2))
    pair.came_home(queue, [DepartedMessage("orders", "a", number, mark_of(MESSAGE))])


def request() -> Sendable:
    return OneMessage()


# --- threads ---


def wait_for(is_true: Callable[[], object]) -> None:
    deadline = time.monotonic() + LONG_S
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_fence_that_falls_wakes_the_send_behind_it_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered_sends, "HAND_OVER_S", LONG_S)
    runner, latencies = thread_runner(), []
    for number in range(1, ROUNDS + 1):
        stand_before_the_primary(runner.pair)
        receipts: list[SendReceipt] = []
        thread = threading.Thread(target=lambda: receipts.append(_send(runner)))  # noqa: B023 - joined below
        thread.start()
        wait_for(lambda: runner._turns)
        began = time.monotonic()
        with runner.lock:
            fall(runner.pair, number)
        runner.settle()
        thread.join(LONG_S / 2)
        latencies.append(time.monotonic() - began)
        assert not thread.is_alive(), "it sleeps on though its fence fell"
        assert receipts[0].side is NamespaceSide.PRIMARY
        assert not runner._turns, "a turn is remembered for nobody"
    assert min(latencies) < USUAL_S, f"it took {latencies} s"


def _send(runner: ThreadRunner) -> SendReceipt:
    sending = sending_of(request(), runner.pair, runner.pair.entity("orders"), QueueChoice(), time.monotonic(), None)

    def perform(ask: Ask) -> Answer:
        assert isinstance(ask, ToPrimary | Sleep | WaitTurn), f"it takes the detour: {ask}"
        return answers.stored() if isinstance(ask, ToPrimary) else runner.wait(ask)

    try:
        return runner.run(sending.run(), perform)
    finally:
        for ticket in sending.tickets:
            runner.forget_turn(ticket)


def test_who_is_woken_before_the_wait_began_does_not_wait_on_threads() -> None:
    runner = thread_runner()
    ticket = runner.pair.take_ticket()
    runner.pair.order(None, WakeWaiter(ticket))
    runner.settle()
    began = time.monotonic()
    runner.wait(WaitTurn(ticket, LONG_S))
    assert time.monotonic() - began < LONG_S / 2


def test_nothing_is_kept_for_who_has_left_on_threads() -> None:
    runner = thread_runner()
    ticket = runner.pair.take_ticket()
    runner.pair.give_back(ticket)
    runner.pair.order(None, WakeWaiter(ticket))
    runner.settle()
    assert not runner._turns


# --- tasks ---


async def test_a_fence_that_falls_wakes_the_send_behind_it_on_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered_sends, "HAND_OVER_S", LONG_S)
    runner, latencies = task_runner(), []
    for number in range(1, ROUNDS + 1):
        stand_before_the_primary(runner.pair)
        task = asyncio.create_task(_send_on_loop(runner))
        while not runner._turns:
            await asyncio.sleep(0.001)
        began = time.monotonic()
        fall(runner.pair, number)
        runner.settle()
        receipt = await asyncio.wait_for(task, LONG_S / 2)
        latencies.append(time.monotonic() - began)
        assert receipt.side is NamespaceSide.PRIMARY
        assert not runner._turns, "a turn is remembered for nobody"
    assert min(latencies) < USUAL_S, f"it took {latencies} s"


async def _send_on_loop(runner: TaskRunner) -> SendReceipt:
    sending = sending_of(request(), runner.pair, runner.pair.entity("orders"), QueueChoice(), time.monotonic(), None)

    async def perform(ask: Ask) -> Answer:
        assert isinstance(ask, ToPrimary | Sleep | WaitTurn), f"it takes the detour: {ask}"
        return answers.stored() if isinstance(ask, ToPrimary) else await runner.wait(ask)

    try:
        return await runner.run(sending.run(), perform)
    finally:
        for ticket in sending.tickets:
            runner.forget_turn(ticket)


async def test_who_is_woken_before_the_wait_began_does_not_wait_on_tasks() -> None:
    runner = task_runner()
    ticket = runner.pair.take_ticket()
    runner.pair.order(None, WakeWaiter(ticket))
    runner.settle()
    await asyncio.wait_for(runner.wait(WaitTurn(ticket, LONG_S)), LONG_S / 2)


async def test_nothing_is_kept_for_who_has_left_on_tasks() -> None:
    runner = task_runner()
    ticket = runner.pair.take_ticket()
    runner.pair.give_back(ticket)
    runner.pair.order(None, WakeWaiter(ticket))
    runner.settle()
    assert not runner._turns
