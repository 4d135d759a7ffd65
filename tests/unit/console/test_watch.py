"""What the watch says of its sources: as of when each was seen, and why one cannot be seen now (X7)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from board_scene import failed_over, report
from console_crowd import PRIMARY, SECONDARY

from sim.proxy_loop import SimulatedLoop
from twinbus.board.fleet import Fleet, FleetProcess, ProcessWord
from twinbus.board.report import EntityFinding
from twinbus.client.inspection.freshness import FRESH_S, SHOWN_WITHIN_S, is_stale
from twinbus.client.inspection.reports import Inspection, QueueReport, SideReport
from twinbus.client.namespace import Namespace
from twinbus.console import watch as module
from twinbus.console.actions import ConsolePair
from twinbus.console.state import ConsoleState
from twinbus.console.watch import ConsoleWatch
from twinbus.errors import TwinbusError


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [1_000.0]
    monkeypatch.setattr(module, "time", lambda: clock[0])
    return clock


@pytest.fixture
def state() -> ConsoleState:
    return ConsoleState()


def watch_of(state: ConsoleState, every_s: float = 5.0) -> ConsoleWatch:
    sides = [Namespace.from_connection_string(text) for text in (PRIMARY, SECONDARY)]
    return ConsoleWatch(ConsolePair(sides[0], sides[1], "contoso", 10, 1.0, {}), state, every_s=every_s)


@pytest.fixture
def ask(state: ConsoleState) -> Callable[..., dict[str, Any]]:
    watch = watch_of(state)

    def asked(answer: bool | Exception) -> dict[str, Any]:
        async def act() -> bool:
            if isinstance(answer, Exception):
                raise answer
            return answer

        asyncio.run(watch._ask("the pair", act))
        row: dict[str, Any] = state.section("sources")["the pair"]
        return row

    return asked


def test_facts_are_as_old_as_the_look_that_has_seen_them(ask: Callable[..., dict[str, Any]], now: list[float]) -> None:
    assert ask(False)["at"] is None
    assert ask(True) == {"at": 1_000.0, "stale_at": 1_000.0 + FRESH_S, "problem": ""}
    now[0] = 1_010.0
    assert ask(False)["at"] == 1_000.0, "nothing was seen"
    assert ask(TwinbusError("no answer")) == {"at": 1_000.0, "stale_at": 1_000.0 + FRESH_S, "problem": "no answer"}
    assert ask(ZeroDivisionError())["problem"] == "unexpected ZeroDivisionError"
    assert ask(True) == {"at": 1_010.0, "stale_at": 1_010.0 + FRESH_S, "problem": ""}


def test_a_problem_that_lasts_is_one_event(ask: Callable[..., dict[str, Any]], state: ConsoleState) -> None:
    for answer in (TwinbusError("no answer"), TwinbusError("no answer"), True, TwinbusError("no answer")):
        ask(answer)
    assert [each["text"] for each in state.section("events").values()] == ["the pair cannot be read: no answer"] * 2


def test_a_board_that_cannot_be_read_was_not_seen(state: ConsoleState, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = watch_of(state)

    async def look() -> Fleet:
        return Fleet(has_board=None, problem="no answer in time")

    monkeypatch.setattr(watch._board, "look", look)
    asyncio.run(watch._ask("the board", watch._look_at_board))
    assert state.section("sources")["the board"]["at"] is None
    assert state.section("fleet")["problem"] == "no answer in time"


def healthy_pair(at: float) -> Inspection:
    sides = [SideReport(name=name, address="127.0.0.1:1", is_reachable=True) for name in ("contoso", "backup")]
    queue = QueueReport(path="q/0", exists=True, takes_messages=True, is_readable=True, active=0, dead_letters=0)
    return Inspection(at=at, primary=sides[0], secondary=sides[1], queues=(queue,))


def test_a_verdict_follows_the_board_and_nothing_old_of_it_is_certain(
    state: ConsoleState, monkeypatch: pytest.MonkeyPatch, now: list[float]
) -> None:
    watch, told = watch_of(state), [failed_over(), EntityFinding(entity="orders")]

    async def look() -> Fleet:
        said = report(entities=(told.pop(0),))
        return Fleet(processes=(FleetProcess(report=said, word=ProcessWord.REPORTING, age_s=2.0, sequence=1),))

    def verdict() -> str:
        return str(state.section("verdict")["pair"]["state"])

    monkeypatch.setattr(watch._board, "look", look)
    monkeypatch.setattr(module, "inspect", lambda *_, **__: healthy_pair(now[0]))
    asyncio.run(watch._look())
    assert verdict() == "healthy"
    asyncio.run(watch._look_at_board())
    assert verdict() == "failed over", "as soon as the board says so"
    asyncio.run(watch._look_at_board())
    assert verdict() == "healthy"
    now[0] += FRESH_S + 1
    asyncio.run(watch._look())
    assert verdict() == "unknown", "the board was not read again"


def test_answers_are_new_although_this_machine_cannot_be_looked_at(
    state: ConsoleState, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watch_of(state)

    def fail(_name: str) -> None:
        raise OSError("the register cannot be read")

    async def nothing() -> bool:
        return False

    monkeypatch.setattr(module, "running_syphons", fail)
    for name in ("_look", "_look_at_board", "_read_meters", "_look_into_quarantine", "_sample"):
        monkeypatch.setattr(watch, name, nothing)

    async def run() -> None:
        watch.start()
        await state.wait_for_change(state.version, 30.0)
        while not state.section("sources").get("this machine"):
            await state.wait_for_change(state.version, 30.0)
        await watch.stop()

    asyncio.run(run())
    assert "cannot be read" in state.section("sources")["this machine"]["problem"]
    assert state.section("advice")["loss"]["text"] == "The first look is under way."


LOOKS = ("_look", "_look_at_board", "_look_around", "_read_meters", "_advise", "_look_into_quarantine", "_sample")


def ages(monkeypatch: pytest.MonkeyPatch, every_s: float, took_s: float) -> list[float]:
    """How old what each source has seen is, second by second in ten minutes of virtual time, as soon as it is shown."""
    loop = SimulatedLoop(Random(1))
    monkeypatch.setattr(module, "time", loop.time)
    monkeypatch.setattr(module, "monotonic", loop.time)
    state = ConsoleState(loop.time)
    watch = watch_of(state, every_s)

    async def slow() -> bool:
        await asyncio.sleep(took_s)
        return True

    for name in LOOKS:
        monkeypatch.setattr(watch, name, slow)
    found: list[float] = []

    def read() -> None:
        rows = state.section("sources").values()
        found.extend(loop.now - row["at"] for row in rows)
        assert all((loop.now > row["stale_at"]) is is_stale(row["at"], loop.now) for row in rows)

    loop.call_soon(watch.start)
    loop.run_for(took_s + 1)
    for _ in range(600):
        loop.run_for(1)
        read()
    loop.run_until_complete(watch.stop())
    loop.close()
    assert len(state.section("sources")) == len(LOOKS)
    return found


@pytest.mark.parametrize("every_s", [2.0, 25.0])
@pytest.mark.parametrize("took_s", [0.1, 5.0, 11.0])
def test_nothing_on_the_page_is_older_than_thirty_seconds(
    monkeypatch: pytest.MonkeyPatch, every_s: float, took_s: float
) -> None:
    assert max(ages(monkeypatch, every_s, took_s)) <= FRESH_S - SHOWN_WITHIN_S + 0.1


def test_what_cannot_be_looked_at_fast_enough_is_stale_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ages(monkeypatch, 5.0, 20.0)
    assert min(found) < FRESH_S < max(found) <= 20.0 + 10.0 + 20.0 + 0.1
