"""Each effect of the pairing core reaches its port, and nobody carries out effects in another way."""

from __future__ import annotations

import ast
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import get_args

import pytest

from twinbus.client.core.effect_runner import TRIAL, TimerKey, run_effects
from twinbus.pairing.effects import (
    Effect,
    ForgetWake,
    PingPrimary,
    ReportEvent,
    StopPings,
    TrySecondary,
    WakeMe,
    WakeWaiter,
)
from twinbus.pairing.entity import Entity
from twinbus.pairing.pair import Pair
from twinbus.pairing.rules import Rules

ROOT = Path(__file__).parents[3]
RUNNER = "src/twinbus/client/core/effect_runner.py"
EVENT = ReportEvent("busy", "too many requests")


class Ports:
    """Notes what it is called with, and does what is scheduled at once."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.lock = nullcontext()

    def schedule(self, key: TimerKey, at: float, job: Callable[[], None]) -> None:
        self.calls.append(("schedule", key, at))
        job()

    def cancel(self, key: TimerKey) -> None:
        self.calls.append(("cancel", key))

    def wake(self, ticket: int) -> None:
        self.calls.append(("wake", ticket))

    def report(self, entity: Entity | None, event: ReportEvent) -> None:
        self.calls.append(("report", entity, event))

    def time_came(self, entity: Entity) -> None:
        self.calls.append(("time_came", entity))

    def ping(self, entity: Entity) -> None:
        self.calls.append(("ping", entity))

    def try_secondary(self) -> None:
        self.calls.append(("try_secondary",))


PAIR = Pair(Rules())
ORDERS = PAIR.entity("orders")
HELD, WAITING = ORDERS.line.join(100), PAIR.take_ticket()

EXPECTED: list[tuple[Entity | None, Effect, list[tuple[object, ...]]]] = [
    (ORDERS, EVENT, [("report", ORDERS, EVENT)]),
    (None, EVENT, [("report", None, EVENT)]),
    (ORDERS, WakeWaiter(HELD), [("wake", HELD)]),
    (None, WakeWaiter(WAITING), [("wake", WAITING)]),
    (None, WakeWaiter(HELD + WAITING), []),  # nobody waits with that ticket
    (None, TrySecondary(5.0), [("schedule", TRIAL, 5.0), ("try_secondary",)]),
    (ORDERS, WakeMe(6.0), [("schedule", TimerKey("wake", ORDERS), 6.0), ("time_came", ORDERS)]),
    (ORDERS, ForgetWake(), [("cancel", TimerKey("wake", ORDERS))]),
    (ORDERS, PingPrimary(7.0), [("schedule", TimerKey("ping", ORDERS), 7.0), ("ping", ORDERS)]),
    (ORDERS, StopPings(), [("cancel", TimerKey("ping", ORDERS))]),
]


@pytest.mark.parametrize(("entity", "effect", "calls"), EXPECTED, ids=lambda each: type(each).__name__)
def test_an_effect_calls_its_port(entity: Entity | None, effect: Effect, calls: list[tuple[object, ...]]) -> None:
    ports = Ports()
    run_effects(PAIR, [(entity, effect)], ports)
    assert ports.calls == calls


def test_every_effect_has_a_test_here() -> None:
    assert {type(effect) for _, effect, _ in EXPECTED} == set(get_args(Effect))


def test_effects_are_carried_out_in_their_order() -> None:
    ports = Ports()
    run_effects(PAIR, [(entity, effect) for entity, effect, _ in EXPECTED], ports)
    assert ports.calls == [call for _, _, calls in EXPECTED for call in calls]


def _effects_matched_in(file: Path) -> set[str]:
    """The effects that the cases of `match` statements of this file name."""
    text = file.read_text(encoding="utf-8")
    if "twinbus.pairing.effects" not in text:
        return set()  # parsing everything takes seconds
    tree = ast.parse(text)
    imported = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "twinbus.pairing.effects"
        for alias in node.names
    }
    effects = {effect.__name__ for effect in get_args(Effect)}
    return {
        imported[pattern.cls.id]
        for node in ast.walk(tree)
        if isinstance(node, ast.Match)
        for case in node.cases
        for pattern in ast.walk(case.pattern)
        if isinstance(pattern, ast.MatchClass) and isinstance(pattern.cls, ast.Name)
        if imported.get(pattern.cls.id) in effects
    }


def test_nobody_else_carries_out_effects() -> None:
    files = [file for folder in ("src", "tests", "bench") for file in (ROOT / folder).rglob("*.py")]
    matching = {str(file.relative_to(ROOT)): _effects_matched_in(file) for file in files}
    everything = {effect.__name__ for effect in get_args(Effect)}
    timers = {"WakeMe", "ForgetWake"}  # the end of one side orders these two and an effect of its own
    assert matching[RUNNER] == everything
    assert {name for name, effects in matching.items() if effects - timers} == {RUNNER}


@pytest.mark.parametrize(
    "file",
    [
        "src/twinbus/client/aio/pair_runner.py",
        "src/twinbus/client/sync/pair_runner.py",
        "tests/sim/pair_shell.py",
        "tests/support/scripted_bus.py",
        "tests/properties/test_failover_machine.py",
    ],
)
def test_whoever_has_a_core_uses_the_runner(file: str) -> None:
    assert "run_effects(self.pair, " in (ROOT / file).read_text(encoding="utf-8")
