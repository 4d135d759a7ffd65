"""Every kind of entity at work, and the namespace is gone: killed, or without power. What it promised is still true.

All kinds work at the same time on one server, so that a commit holds changes of many of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from pathlib import Path

import pytest
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError
from crash_workloads import WORKLOADS, Work, Workload
from power_cut import PowerCutDisk
from served import Served

from twinbus.broker.server import NamespaceServer
from twinbus.broker.store.sqlite import SqliteStore
from twinbus.client.namespace import Namespace
from twinbus.options import NamespaceOptions

pytestmark = pytest.mark.timeout(400)
ENOUGH = 100
"""Messages of each kind that are stored before a crash, and again before the next one."""
CUTS = 2
WAIT_S = 150
NAMES = [kind.__name__ for kind in WORKLOADS]

Problems = dict[str, BaseException | None]
"""What is wrong, by kind."""


@asynccontextmanager
async def at_work(connection_string: str, workloads: Sequence[Workload]) -> AsyncIterator[list[asyncio.Task[None]]]:
    """All applications, until the block is over."""
    async with ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client:
        tasks = [asyncio.create_task(_do(work, client)) for workload in workloads for work in workload.works]
        try:
            yield tasks
        finally:
            await _end(tasks)


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()  # more than once: the SDK takes one of these for a failed attempt
        _, pending = await asyncio.wait(pending, timeout=0.2)


async def _do(work: Work, client: ServiceBusClient) -> None:
    await work(client)


async def until_each_has(enough: int, workloads: Sequence[Workload], tasks: Sequence[asyncio.Task[None]]) -> None:
    async with asyncio.timeout(WAIT_S):
        while min(len(workload.tally.stored) for workload in workloads) < enough:
            for task in tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.005)


def prepare(connection_string: str, workloads: Sequence[Workload]) -> None:
    with Namespace.from_connection_string(connection_string).admin_client(attempt_s=WAIT_S) as admin:
        for workload in workloads:
            workload.prepare(admin)


async def audit(connection_string: str, workloads: Sequence[Workload]) -> Problems:
    """What each workload finds wrong, all looking at the same time: the SDK takes its time to open links."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        found = await asyncio.gather(*(workload.audit(client) for workload in workloads), return_exceptions=True)
    return dict(zip(NAMES, found, strict=True))


# --- kill -9 ---


@pytest.fixture(scope="module")
def after_kill(tmp_path_factory: pytest.TempPathFactory) -> Problems:
    """What is wrong with a namespace that was killed in the middle and started again."""
    workloads = [kind() for kind in WORKLOADS]
    with Served("contoso", tmp_path_factory.mktemp("killed")) as served:
        prepare(served.connection_string, workloads)
        asyncio.run(_work_and_kill(served, workloads))
        served.start()
        return asyncio.run(audit(served.connection_string, workloads))


async def _work_and_kill(served: Served, workloads: Sequence[Workload]) -> None:
    async with at_work(served.connection_string, workloads) as tasks:
        await until_each_has(ENOUGH, workloads, tasks)
        served.kill()
        done, _ = await asyncio.wait(tasks, timeout=WAIT_S)
        unexpected = [task.exception() for task in done if not isinstance(task.exception(), ServiceBusError)]
        assert unexpected == [], "not the end of the namespace ended them"


@pytest.mark.parametrize("kind", NAMES)
def test_each_kind_keeps_its_promises_through_kill_9(after_kill: Problems, kind: str) -> None:
    problem = after_kill[kind]
    if problem is not None:
        raise problem


# --- loss of unsynced writes ---


@pytest.fixture(scope="module")
def after_cuts(tmp_path_factory: pytest.TempPathFactory) -> list[Problems]:
    """What is wrong with what each of several power cuts left."""
    return asyncio.run(_work_and_look(tmp_path_factory.mktemp("power")))


async def _work_and_look(folder: Path) -> list[Problems]:
    cuts = await _work_and_cut(folder)
    return list(await asyncio.gather(*(_look_at(left, workloads) for left, workloads in cuts)))


async def _work_and_cut(folder: Path) -> list[tuple[Path, list[Workload]]]:
    """What each cut left, and what had been promised by then."""
    workloads = [kind() for kind in WORKLOADS]
    cuts: list[tuple[Path, list[Workload]]] = []
    (folder / "disk").mkdir()
    with PowerCutDisk(folder / "disk") as disk:
        store = SqliteStore(disk.root / "store.sqlite", connect=disk.connect)
        async with NamespaceServer(NamespaceOptions(port=0), store=store) as server:
            await asyncio.to_thread(prepare, server.connection_string, workloads)
            async with at_work(server.connection_string, workloads) as tasks:
                for cut in range(1, CUTS + 1):
                    await until_each_has(cut * ENOUGH, workloads, tasks)
                    cuts.append((folder / f"after-{cut}", deepcopy(workloads)))
                    disk.crash_into(folder / f"after-{cut}")
    return cuts


async def _look_at(left: Path, workloads: Sequence[Workload]) -> Problems:
    store = SqliteStore(left / "store.sqlite")
    async with NamespaceServer(NamespaceOptions(port=0), store=store) as server:
        return await audit(server.connection_string, workloads)


@pytest.mark.sample(7)
@pytest.mark.parametrize("kind", NAMES)
def test_each_kind_keeps_its_promises_when_unsynced_writes_are_lost(after_cuts: list[Problems], kind: str) -> None:
    for problems in after_cuts:
        problem = problems[kind]
        if problem is not None:
            raise problem
