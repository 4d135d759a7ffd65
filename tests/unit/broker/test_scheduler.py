"""What nobody waits for is done when it is not at the expense of those who wait."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from twinbus.broker import scheduler as scheduler_module
from twinbus.broker.links.disk_fairness import SHARED_BYTES, DiskShare, SenderShare
from twinbus.broker.scheduler import Scheduler
from twinbus.broker.store.api import Committed, DueRows, HeadRows, Report, RowsRead

DUE = RowsRead(DueRows(1, 0, 10, 1000), (), complete=True, next_time_ms=None, as_of=0)
FOREGROUND = RowsRead(HeadRows(1, 1, 10, 1000), (), complete=True, next_time_ms=None, as_of=0)


class RecordingGate:
    """Notes what it hears; a commit leaves nothing to write."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.unwritten_bytes = 0

    def report(self, report: Report, now_ms: int) -> None:
        if isinstance(report, Committed):
            self.unwritten_bytes = 0
            self.heard.append("commit")
        else:
            self.heard.append("due" if report is DUE else "read")

    def next_wake_ms(self) -> None:
        return None


class SchedulerHarness:
    """A scheduler with a gate that only listens."""

    def __init__(self) -> None:
        self.gate, self.disk, self.now_ms = RecordingGate(), DiskShare(), 1_000_000
        context = SimpleNamespace(disk_share=self.disk, unflushed=set(), delayed=SimpleNamespace(next_ms=lambda: None))
        switch = SimpleNamespace(next_change_ms=lambda: None)
        arguments = (self.gate, context, switch, lambda: self.now_ms, lambda: None)
        self.scheduler = Scheduler(*cast("tuple[Any, Any, Any, Any, Any]", arguments))

    def share(self) -> None:
        for sender in (SenderShare(), SenderShare()):
            self.disk.add(sender, 1, 1, self.now_ms / 1000)

    def hear(self, *reports: Report) -> None:
        for report in reports:
            self.scheduler.take_report_from_thread(report)
        self.scheduler.take_reports()


@pytest.fixture
async def harness() -> SchedulerHarness:
    return SchedulerHarness()


async def _turns(number: int = 3) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_what_is_due_waits_while_much_of_several_senders_is_not_written(harness: SchedulerHarness) -> None:
    harness.share()
    harness.gate.unwritten_bytes = SHARED_BYTES + 1
    harness.hear(DUE, FOREGROUND)
    await _turns()
    assert harness.gate.heard == ["read"]
    harness.hear(Committed(1))
    async with asyncio.timeout(10):
        while "due" not in harness.gate.heard:
            await asyncio.sleep(0.001)
    assert harness.gate.heard == ["read", "commit", "due"]


async def test_each_read_of_what_is_due_is_put_off_only_so_long_however_many_there_are(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_module, "DUE_LATE_S", 0.2)
    harness.share()
    harness.gate.unwritten_bytes = SHARED_BYTES + 1
    loop = asyncio.get_running_loop()
    began = loop.time()
    harness.hear(*[DUE] * 50)
    async with asyncio.timeout(60):
        while len(harness.gate.heard) < 50:
            harness.share()  # others go on all the time
            await asyncio.sleep(0.001)
    assert harness.gate.heard == ["due"] * 50
    assert loop.time() - began < 0.2 * 25, "one after the other they would have taken 10 s"


async def test_a_read_that_goes_wrong_does_not_keep_the_others_from_being_acted_on(harness: SchedulerHarness) -> None:
    heard = harness.gate.report
    harness.gate.report = lambda *_: 1 / 0  # type: ignore[method-assign, assignment]
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context.get("exception")))
    harness.hear(DUE, DUE)
    await asyncio.sleep(0)
    harness.gate.report = heard  # type: ignore[method-assign]
    async with asyncio.timeout(10):
        while not harness.gate.heard:
            await asyncio.sleep(0.001)
    assert [type(problem) for problem in problems] == [ZeroDivisionError]


async def test_a_stopped_scheduler_acts_on_nothing_that_is_due(harness: SchedulerHarness) -> None:
    harness.hear(DUE)
    harness.scheduler.stop()
    await _turns()
    assert harness.gate.heard == []


async def test_a_peer_to_whom_nothing_can_be_sent_does_not_keep_the_others_from_their_answers(
    harness: SchedulerHarness,
) -> None:
    sends: list[str] = []

    class LinkDispatcher:
        def flush(self) -> None:
            sends.append("tried")
            raise OSError

    harness.scheduler._context.unflushed = cast("Any", {LinkDispatcher(), LinkDispatcher()})
    harness.scheduler.flush()
    assert sends == ["tried", "tried"]


async def test_what_is_due_is_done_at_once_while_nobody_or_one_connection_sends(harness: SchedulerHarness) -> None:
    harness.gate.unwritten_bytes = SHARED_BYTES + 1
    harness.hear(DUE)
    await _turns()
    assert harness.gate.heard == ["due"]
