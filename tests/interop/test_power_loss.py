"""The power fails under a real server: what was acknowledged was synced, so it is there.

A killed process leaves its page cache to the kernel, so kill -9 proves less than it seems. Here the store's files
lie on a disk that forgets whatever was not synced.
"""

from __future__ import annotations

import asyncio
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError
from power_cut import PowerCutDisk

from twinbus.broker.server import NamespaceServer
from twinbus.broker.store.sqlite import SqliteStore
from twinbus.options import NamespaceOptions

SENDERS = 4
CUTS = 3
ACKNOWLEDGED_BETWEEN_CUTS = 150
SEND_WAIT_S = 20


async def send_until_over(
    client: ServiceBusClient, number: int, acknowledged: list[str], is_over: asyncio.Event
) -> None:
    """Send single messages and batches in turn. What fails is in doubt, and its names are never used again.

    Asked to end, not cancelled: a cancellation that comes with an answer is swallowed by the SDK.
    """
    async with client.get_queue_sender("orders") as sender:
        for index in takewhile(lambda _: not is_over.is_set(), count()):
            names = [f"{number}-{index}-{part}" for part in range(3 if index % 2 else 1)]
            messages = [ServiceBusMessage(name) for name in names]
            try:
                await sender.send_messages(messages if index % 2 else messages[0], timeout=SEND_WAIT_S)
            except ServiceBusError:
                continue
            acknowledged += names


async def cut_the_power_while_sending(tmp_path: Path, **wishes: Any) -> list[tuple[Path, set[str]]]:
    """Send without pause and cut the power several times; returns what each cut left, and what was promised by then."""
    cuts: list[tuple[Path, set[str]]] = []
    acknowledged: list[str] = []
    with PowerCutDisk(tmp_path / "disk") as disk:
        (tmp_path / "disk").mkdir()
        store = SqliteStore(disk.root / "store.sqlite", connect=disk.connect, **wishes)
        options = NamespaceOptions(port=0, queues=("orders",))
        async with (
            NamespaceServer(options, store=store) as server,
            ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client,
            asyncio.timeout(60),
        ):
            is_over = asyncio.Event()
            senders = [
                asyncio.create_task(send_until_over(client, number, acknowledged, is_over)) for number in range(SENDERS)
            ]
            for cut in range(1, CUTS + 1):
                while len(acknowledged) < cut * ACKNOWLEDGED_BETWEEN_CUTS:
                    await asyncio.sleep(0.001)
                    assert not any(sender.done() for sender in senders), "a sender gave up"
                promised = set(acknowledged)
                disk.crash_into(tmp_path / f"after-{cut}")
                cuts.append((tmp_path / f"after-{cut}", promised))
            is_over.set()
            await asyncio.gather(*senders)
    return cuts


async def received_after(left: Path, at_least: int = 0) -> list[str]:
    """What a server that starts on the remains delivers."""
    options = NamespaceOptions(port=0, queues=("orders",))
    found: list[str] = []
    async with (
        NamespaceServer(options, store=SqliteStore(left / "store.sqlite")) as server,
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_receiver("orders", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver,
    ):
        while got := await receiver.receive_messages(1_000, max_wait_time=20 if len(found) < at_least else 1):
            found += [str(message) for message in got]
    return found


async def test_nothing_acknowledged_is_missing_after_the_power_fails(tmp_path: Path) -> None:
    for left, promised in await cut_the_power_while_sending(tmp_path):
        received = await received_after(left, len(promised))
        assert promised - set(received) == set(), f"acknowledged and lost, {left.name}"
        assert len(received) == len(set(received)), f"stored twice, {left.name}"


@pytest.mark.long
async def test_without_syncing_the_same_test_finds_the_loss(tmp_path: Path) -> None:
    missing = [
        promised - set(await received_after(left))
        for left, promised in await cut_the_power_while_sending(tmp_path, synchronous="off")
    ]
    assert any(missing), "a store that never syncs looked safe: the test above proves nothing"
