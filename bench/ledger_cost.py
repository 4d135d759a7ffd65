"""What a ledger adds to a paired send: CPU of a client that keeps one beside that of a client that keeps none.

Measured as in `pairing_cost`: the CPU time of the thread that sends, in turns, the median over all rounds. Lines are
made and written by a thread of the ledger's own, which is not counted: nobody waits for it.
"""

from __future__ import annotations

import asyncio
import gc
from contextlib import AsyncExitStack
from pathlib import Path

import twinbus.aio
from bench.namespaces import QUEUE, ServedNamespace
from bench.pairing_cost import KINDS, Kind, Spent, in_turns, in_turns_on_tasks, paired_client, row
from bench.results import Must, Row
from twinbus import PairedServiceBusClient

RATIO_MAX = 1.02


def measure(primary: ServedNamespace, secondary: ServedNamespace, folder: Path, rounds: int) -> list[Row]:
    """The rows, first on threads, then on tasks."""
    pair, rows = (primary, secondary), []
    gc.collect()
    gc.freeze()
    try:
        for kind in (each for each in KINDS if each.has_ids):
            rows.append(_row("threads", kind, *_on_threads(pair, folder, kind, rounds)))
            rows.append(_row("tasks", kind, *asyncio.run(_on_tasks(pair, folder, kind, rounds))))
        return rows
    finally:
        gc.unfreeze()


def _row(flavour: str, kind: Kind, without: Spent, recorded: Spent) -> Row:
    name = f"CPU, with ledger : without, {flavour}, {kind.name}"
    return row(name, kind, without, recorded, Must("<=", RATIO_MAX))


def _on_threads(
    pair: tuple[ServedNamespace, ServedNamespace], folder: Path, kind: Kind, rounds: int
) -> tuple[Spent, Spent]:
    with (
        paired_client(PairedServiceBusClient, *pair) as plain,
        paired_client(PairedServiceBusClient, *pair, folder) as telling,
        plain.get_queue_sender(QUEUE) as without,
        telling.get_queue_sender(QUEUE) as recorded,
    ):
        return in_turns((without, recorded), kind, rounds)


async def _on_tasks(
    pair: tuple[ServedNamespace, ServedNamespace], folder: Path, kind: Kind, rounds: int
) -> tuple[Spent, Spent]:
    async with AsyncExitStack() as stack:
        senders = []
        for ledger in (None, folder):
            client = paired_client(twinbus.aio.PairedServiceBusClient, *pair, ledger)
            bus = await stack.enter_async_context(client)
            senders.append(await stack.enter_async_context(bus.get_queue_sender(QUEUE)))
        return await in_turns_on_tasks((senders[0], senders[1]), kind, rounds)
