"""Two hundred clients on two namespaces: an outage that all of them see, on one board, at the forecast cost (X6)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from paired import PairHarness

from twinbus import Retry, SendAvailabilityPairedNamespaceOptions
from twinbus.aio import PairedServiceBusClient
from twinbus.board.fleet import Fleet, FleetVerdict, ProcessWord
from twinbus.board.queue import LIFE_S, board_path
from twinbus.board.reader import BoardReader
from twinbus.cost.forecast import POSTS_PER_OUTAGE, Usage

CLIENTS, AT_ONCE = 200, 20
INTERVAL_S = 5.0
SLACK_S = 60.0
"""For two hundred clients of the SDK in one process, on a busy machine."""


def options(harness: PairHarness) -> SendAvailabilityPairedNamespaceOptions:
    wishes: dict[str, Any] = harness.options(
        failover_interval=timedelta(seconds=INTERVAL_S),
        ping_primary_interval=timedelta(seconds=2),
        attempt_timeout=timedelta(seconds=60),
        retry=Retry(attempts=1),
        backlog_queue_count=1,
        board=True,
    )
    return SendAvailabilityPairedNamespaceOptions(harness.secondary.namespace, **wishes)


async def for_all(clients: list[PairedServiceBusClient], act: Any) -> None:
    room = asyncio.Semaphore(AT_ONCE)

    async def one(client: PairedServiceBusClient) -> None:
        async with room:
            await act(client)

    await asyncio.gather(*map(one, clients))


async def look_until(reader: BoardReader, is_so: Any) -> Fleet:
    async with asyncio.timeout(3 * SLACK_S):
        while not is_so(fleet := await reader.look()):
            await asyncio.sleep(0.25)
        return fleet


def count(fleet: Fleet, word: ProcessWord) -> int:
    return sum(each.word is word for each in fleet.processes)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_hundred_clients_see_an_outage_and_the_board_shows_all_of_them(harness: PairHarness) -> None:
    asyncio.run(scene(harness))


async def scene(harness: PairHarness) -> None:
    clients = [PairedServiceBusClient(harness.primary.namespace, options(harness)) for _ in range(CLIENTS)]
    senders: dict[PairedServiceBusClient, Any] = {}
    began = time.monotonic()

    async def begin(client: PairedServiceBusClient) -> None:
        await client.pair()
        senders[client] = client.get_queue_sender(harness.orders)
        await senders[client].send_messages(ServiceBusMessage("healthy"))

    async def send(client: PairedServiceBusClient) -> None:
        with contextlib.suppress(Exception):  # until the interval is over, it raises
            await senders[client].send_messages(ServiceBusMessage("in the outage"))

    async with BoardReader(harness.secondary.namespace.dial(60.0), harness.name, attempt_s=60.0) as reader:
        await begin(clients[0])  # it makes the queues
        await for_all(clients[1:], begin)
        fleet = await look_until(reader, lambda fleet: count(fleet, ProcessWord.REPORTING) == CLIENTS)
        assert fleet.verdict is FleetVerdict.HEALTHY
        harness.primary.break_("no-send", harness.orders)
        down_at = time.monotonic()
        await for_all(clients, send)
        fleet = await look_until(reader, lambda fleet: fleet.entities()[0].failed_over == CLIENTS)
        seen_s = time.monotonic() - down_at
        assert seen_s < INTERVAL_S + SLACK_S
        assert fleet.verdict is FleetVerdict.FAILED_OVER
        harness.primary.clear()
        await look_until(reader, lambda fleet: fleet.verdict is FleetVerdict.HEALTHY)
        wrong_s, all_s = time.monotonic() - down_at, time.monotonic() - began
        posts = sum(status.posts for client in clients if (status := client.status().board) is not None)
        await for_all(clients, lambda client: client.close())
        await look_until(reader, lambda fleet: count(fleet, ProcessWord.ENDED) == CLIENTS)
    check_cost(harness, posts, wrong_s, all_s)


def check_cost(harness: PairHarness, posts: int, wrong_s: float, all_s: float) -> None:
    """The forecast of this run: reports by time, calm and in trouble, and at changes; and what the meter counted."""
    usage = Usage(clients=CLIENTS, syphons=0, board=True, outages=1, outage_s=wrong_s, failover_s=0)
    by_time_and_change = usage.posts - Usage(clients=CLIENTS, syphons=0, board=True, outages=0).posts
    forecast = by_time_and_change + CLIENTS * all_s / 60
    assert posts <= forecast + 2 * CLIENTS, "with the first report of each, and the one that is due"
    assert posts >= CLIENTS * (POSTS_PER_OUTAGE - 1), "begun, suspect or failed over, healthy"
    board = harness.secondary.operations(board_path(harness.name))
    assert board["send"] == posts + CLIENTS, "each has said goodbye"
    assert all_s < LIFE_S, "or some were over before they were counted"
