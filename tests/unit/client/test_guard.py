"""The guard of an asyncio link: one timer for all its calls, on a clock that is moved by hand."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.client.aio.links import LOOK_S, Guard
from twinbus.client.sdk.watchdog import GRACE_S


class Timer:
    def __init__(self, due: float, act: Callable[[], None]) -> None:
        self._due = due
        self.act = act
        self.is_cancelled = False

    def when(self) -> float:
        return self._due

    def cancel(self) -> None:
        self.is_cancelled = True


class HandClock:
    """As much of an event loop as a guard needs."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []
        self.set = 0

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, act: Callable[[], None]) -> Timer:
        self.set += 1
        self.timers.append(Timer(self.now + seconds, act))
        return self.timers[-1]

    def go_to(self, at: float) -> None:
        while due := [timer for timer in self.waiting if timer.when() <= at]:
            timer = min(due, key=Timer.when)
            self.timers.remove(timer)
            self.now = max(self.now, timer.when())
            timer.act()
        self.now = at

    @property
    def waiting(self) -> list[Timer]:
        return [timer for timer in self.timers if not timer.is_cancelled]


def guarded() -> tuple[Guard, HandClock, list[float]]:
    clock, acted = HandClock(), list[float]()
    guard = Guard(lambda: acted.append(clock.now), cast("asyncio.AbstractEventLoop", clock), clock.time)
    return guard, clock, acted


def test_it_acts_when_the_time_has_passed_and_only_once() -> None:
    guard, clock, acted = guarded()
    guard.start(5, int, 0)
    clock.go_to(20)
    assert acted == [5 + GRACE_S]
    assert not clock.waiting


def test_it_does_not_act_once_cancelled() -> None:
    guard, clock, acted = guarded()
    guard.start(5, int, 0)
    clock.go_to(1)
    guard.cancel()
    clock.go_to(20)
    assert acted == []


def test_a_thousand_calls_share_a_few_timers() -> None:
    guard, clock, acted = guarded()
    for number in range(1_000):
        clock.go_to(number / 100)
        guard.start(5, int, 0)
        assert len(clock.waiting) == 1
        guard.cancel()
    assert acted == []
    assert len(clock.timers) <= 1
    assert clock.set <= 10 / LOOK_S + 1


def test_it_acts_soon_if_a_cancellation_was_swallowed() -> None:
    guard, clock, acted = guarded()
    answers = [1]
    guard.start(500, lambda: answers[0], 1)
    clock.go_to(7.5)
    assert acted == [], "what was there before the call is not about it"
    answers[0] = 2
    clock.go_to(600)
    assert acted == [8.0]
    assert not clock.waiting


def test_a_cancellation_after_the_call_is_nothing_to_it() -> None:
    guard, clock, acted = guarded()
    guard.start(500, lambda: 1, 0)
    clock.go_to(0.5)
    guard.cancel()
    clock.go_to(600)
    assert acted == []


def test_who_called_is_not_kept() -> None:
    class Task:
        def cancelling(self) -> int:
            return 0

    guard, _, _ = guarded()
    task = Task()
    is_there = weakref.ref(task)
    guard.start(5, task.cancelling, 0)
    guard.cancel()
    del task
    assert is_there() is None


def test_when_it_ends_nothing_is_left() -> None:
    guard, clock, acted = guarded()
    guard.start(5, int, 0)
    guard.end()
    assert not clock.waiting
    clock.go_to(20)
    assert acted == []


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9), st.booleans()), max_size=20))
def test_it_acts_exactly_at_the_end_of_a_call_that_nobody_cancelled(calls: list[tuple[int, int, bool]]) -> None:
    """A call: how long after the last one it begins, how long it may take, and whether it ends by itself."""
    guard, clock, acted = guarded()
    overdue = []
    for idle_s, seconds, is_cancelled in calls:
        clock.go_to(clock.now + idle_s)
        guard.start(seconds, int, 0)
        due = clock.now + seconds + GRACE_S
        if is_cancelled:
            clock.go_to(clock.now + seconds / 2)
            guard.cancel()
        else:
            overdue.append(due)
            clock.go_to(due + 0.001)
    clock.go_to(clock.now + 10)
    assert acted == pytest.approx(overdue)


def test_a_call_knows_that_its_caller_was_cancelled_though_the_link_was_discarded_meanwhile() -> None:
    guard, clock, acted = guarded()
    answers = [1]
    guard.start(500, lambda: answers[0], 1)
    answers[0] = 2
    guard.end()
    assert guard.is_cancelled
    clock.go_to(600)
    assert acted == []
