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
from crash_workloads import CHAPTERS, Chapter, Work
from power_cut import PowerCutDisk
from served import Served

from twinbus.broker.server import NamespaceServer
from twinbus.broker.store.sqlite import SqliteStore
from twinbus.client.namespace import Namespace
from twinbus.options import NamespaceOptions

pytestmark = pytest.mark.timeout(400)
ENOUGH = 200
"""Messages of each kind that are stored before a crash, and again before the next one."""
CUTS = 2
WAIT_S = 150
NAMES = [kind.__name__ for kind in CHAPTERS]

Problems = dict[str, BaseException | None]
"""What is wrong, by kind."""


@asynccontextmanager
async def at_work(connection_string: str, chapters: Sequence[Chapter]) -> AsyncIterator[list[asyncio.Task[None]]]:
    """All applications, until the block is over."""
    async with ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client:
        tasks = [asyncio.create_task(_do(work, client)) for chapter in chapters for work in chapter.works]
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


async def until_each_has(enough: int, chapters: Sequence[Chapter], tasks: Sequence[asyncio.Task[None]]) -> None:
    async with asyncio.timeout(WAIT_S):
        while min(len(chapter.books.stored) for chapter in chapters) < enough:
            for task in tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.005)


def prepare(connection_string: str, chapters: Sequence[Chapter]) -> None:
    with Namespace.from_connection_string(connection_string).admin_client(attempt_s=WAIT_S) as admin:
        for chapter in chapters:
            chapter.prepare(admin)


async def audit(connection_string: str, chapters: Sequence[Chapter]) -> Problems:
    """What each chapter finds wrong, all looking at the same time: the SDK takes its time to open links."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        found = await asyncio.gather(*(chapter.audit(client) for chapter in chapters), return_exceptions=True)
    return dict(zip(NAMES, found, strict=True))


# --- kill -9 ---


@pytest.fixture(scope="module")
def after_kill(tmp_path_factory: pytest.TempPathFactory) -> Problems:
    """What is wrong with a namespace that was killed in the middle and started again."""
    chapters = [kind() for kind in CHAPTERS]
    with Served("contoso", tmp_path_factory.mktemp("killed")) as served:
        prepare(served.connection_string, chapters)
        asyncio.run(_work_and_kill(served, chapters))
        served.start()
        return asyncio.run(audit(served.connection_string, chapters))


async def _work_and_kill(served: Served, chapters: Sequence[Chapter]) -> None:
    async with at_work(served.connection_string, chapters) as tasks:
        await until_each_has(ENOUGH, chapters, tasks)
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
    return list(await asyncio.gather(*(_look_at(left, chapters) for left, chapters in cuts)))


async def _work_and_cut(folder: Path) -> list[tuple[Path, list[Chapter]]]:
    """What each cut left, and what had been promised by then."""
    chapters = [kind() for kind in CHAPTERS]
    cuts: list[tuple[Path, list[Chapter]]] = []
    (folder / "disk").mkdir()
    with PowerCutDisk(folder / "disk") as disk:
        store = SqliteStore(disk.root / "store.sqlite", connect=disk.connect)
        async with NamespaceServer(NamespaceOptions(port=0), store=store) as server:
            await asyncio.to_thread(prepare, server.connection_string, chapters)
            async with at_work(server.connection_string, chapters) as tasks:
                for cut in range(1, CUTS + 1):
                    await until_each_has(cut * ENOUGH, chapters, tasks)
                    cuts.append((folder / f"after-{cut}", deepcopy(chapters)))
                    disk.crash_into(folder / f"after-{cut}")
    return cuts


async def _look_at(left: Path, chapters: Sequence[Chapter]) -> Problems:
    store = SqliteStore(left / "store.sqlite")
    async with NamespaceServer(NamespaceOptions(port=0), store=store) as server:
        return await audit(server.connection_string, chapters)


@pytest.mark.sample(7)
@pytest.mark.parametrize("kind", NAMES)
def test_each_kind_keeps_its_promises_when_unsynced_writes_are_lost(after_cuts: list[Problems], kind: str) -> None:
    for problems in after_cuts:
        problem = problems[kind]
        if problem is not None:
            raise problem
