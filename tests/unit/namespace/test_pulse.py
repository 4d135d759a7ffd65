"""What nobody waits for is done when it is not at the expense of those who wait."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from twinbus.namespace import pulse as pulse_module
from twinbus.namespace.disk_share import SHARED_BYTES, DiskShare, SenderShare
from twinbus.namespace.pulse import Pulse
from twinbus.namespace.store.api import Committed, DueRows, HeadRows, Report, RowsRead

DUE = RowsRead(DueRows(1, 0, 10, 1000), (), complete=True, next_time_ms=None, as_of=0)
FOREGROUND = RowsRead(HeadRows(1, 1, 10, 1000), (), complete=True, next_time_ms=None, as_of=0)


class Seam:
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


class Stage:
    """A pulse with a seam that only listens."""

    def __init__(self) -> None:
        self.seam, self.disk, self.now_ms = Seam(), DiskShare(), 1_000_000
        reception = SimpleNamespace(
            disk_share=self.disk, changed_doors=set(), postponed=SimpleNamespace(next_ms=lambda: None)
        )
        switch = SimpleNamespace(next_change_ms=lambda: None)
        arguments = (self.seam, reception, switch, lambda: self.now_ms, lambda: None)
        self.pulse = Pulse(*cast("tuple[Any, Any, Any, Any, Any]", arguments))

    def share(self) -> None:
        for sender in (SenderShare(), SenderShare()):
            self.disk.taken(sender, 1, 1, self.now_ms / 1000)

    def hear(self, *reports: Report) -> None:
        for report in reports:
            self.pulse.take_report_from_thread(report)
        self.pulse.take_reports()


@pytest.fixture
async def stage() -> Stage:
    return Stage()


async def _turns(number: int = 3) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_what_is_due_waits_while_much_of_several_senders_is_not_written(stage: Stage) -> None:
    stage.share()
    stage.seam.unwritten_bytes = SHARED_BYTES + 1
    stage.hear(DUE, FOREGROUND)
    await _turns()
    assert stage.seam.heard == ["read"]
    stage.hear(Committed(1))
    async with asyncio.timeout(10):
        while "due" not in stage.seam.heard:
            await asyncio.sleep(0.001)
    assert stage.seam.heard == ["read", "commit", "due"]


async def test_each_read_of_what_is_due_is_put_off_only_so_long_however_many_there_are(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse_module, "DUE_LATE_S", 0.2)
    stage.share()
    stage.seam.unwritten_bytes = SHARED_BYTES + 1
    loop = asyncio.get_running_loop()
    began = loop.time()
    stage.hear(*[DUE] * 50)
    async with asyncio.timeout(60):
        while len(stage.seam.heard) < 50:
            stage.share()  # others go on all the time
            await asyncio.sleep(0.001)
    assert stage.seam.heard == ["due"] * 50
    assert loop.time() - began < 0.2 * 25, "one after the other they would have taken 10 s"


async def test_a_read_that_goes_wrong_does_not_keep_the_others_from_being_acted_on(stage: Stage) -> None:
    heard = stage.seam.report
    stage.seam.report = lambda *_: 1 / 0  # type: ignore[method-assign, assignment]
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context.get("exception")))
    stage.hear(DUE, DUE)
    await asyncio.sleep(0)
    stage.seam.report = heard  # type: ignore[method-assign]
    async with asyncio.timeout(10):
        while not stage.seam.heard:
            await asyncio.sleep(0.001)
    assert [type(problem) for problem in problems] == [ZeroDivisionError]


async def test_a_stopped_pulse_acts_on_nothing_that_is_due(stage: Stage) -> None:
    stage.hear(DUE)
    stage.pulse.stop()
    await _turns()
    assert stage.seam.heard == []


async def test_a_peer_to_whom_nothing_can_be_sent_does_not_keep_the_others_from_their_answers(stage: Stage) -> None:
    told: list[str] = []

    class Door:
        def flush(self) -> None:
            told.append("tried")
            raise OSError

    stage.pulse._reception.changed_doors = cast("Any", {Door(), Door()})
    stage.pulse.flush()
    assert told == ["tried", "tried"]


async def test_what_is_due_is_done_at_once_while_nobody_or_one_connection_sends(stage: Stage) -> None:
    stage.seam.unwritten_bytes = SHARED_BYTES + 1
    stage.hear(DUE)
    await _turns()
    assert stage.seam.heard == ["due"]
