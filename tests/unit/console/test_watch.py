"""What the watch says of its sources: as of when each was seen, and why one cannot be seen now (X7)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from console_crowd import PRIMARY, SECONDARY

from twinbus.client.inspection.freshness import FRESH_S
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


@pytest.fixture
def ask(state: ConsoleState) -> Callable[..., dict[str, Any]]:
    sides = [Namespace.from_connection_string(text) for text in (PRIMARY, SECONDARY)]
    watch = ConsoleWatch(ConsolePair(sides[0], sides[1], "contoso", 10, 1.0, {}), state)

    def asked(answer: bool | Exception) -> dict[str, Any]:
        async def act() -> bool:
            if isinstance(answer, Exception):
                raise answer
            return answer

        asyncio.run(watch._ask("the pair", act))
        return state.section("sources")["the pair"]

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
