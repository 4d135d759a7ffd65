from __future__ import annotations

import threading
from time import monotonic

import pytest

from twinbus.client.sdk import watchdog
from twinbus.client.sdk.watchdog import GRACE_S, LOOK_EVERY_S, Watchdog

WAIT_S = 60


class Call:
    """A call that hangs until it is cut."""

    def __init__(self, busy_until: float | None) -> None:
        self.busy_until = busy_until
        self.was_cut = threading.Event()

    def cut(self) -> None:
        self.was_cut.set()
        self.busy_until = None


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def watching(clock: Clock, *calls: Call) -> Watchdog:
    """A watchdog that is asked to look by hand, beside its thread, which follows the same clock."""
    dog = Watchdog(clock)
    for call in calls:
        dog.watch(call)
    return dog


def test_a_call_is_cut_when_it_is_overdue_and_not_before(clock: Clock) -> None:
    call = Call(clock.now + 5)
    dog = watching(clock, call)
    clock.now += 5 + GRACE_S
    dog.look()
    assert not call.was_cut.is_set()
    clock.now += 0.001
    dog.look()
    assert call.was_cut.is_set()
    dog.stop()


def test_who_is_not_busy_is_left_alone(clock: Clock) -> None:
    call = Call(None)
    dog = watching(clock, call)
    clock.now += 1_000_000
    dog.look()
    dog.stop()
    assert not call.was_cut.is_set()


def test_who_is_forgotten_is_left_alone(clock: Clock) -> None:
    call = Call(clock.now)
    dog = watching(clock, call)
    dog.forget(call)
    clock.now += 1_000
    dog.look()
    assert not call.was_cut.is_set()
    dog.stop()


def test_a_thread_looks_by_itself() -> None:
    dog = Watchdog()
    call = Call(monotonic())
    dog.watch(call)
    assert call.was_cut.wait(WAIT_S)
    dog.stop()


def test_a_call_is_cut_as_soon_as_it_is_overdue_and_not_only_at_the_next_regular_look() -> None:
    dog = Watchdog()
    late_s = []
    for _ in range(5):
        due = monotonic() + LOOK_EVERY_S + 0.03  # just after a regular look
        call = Call(due - GRACE_S)
        dog.watch(call)
        assert call.was_cut.wait(WAIT_S)
        late_s.append(monotonic() - due)
        dog.forget(call)
    dog.stop()
    assert min(late_s) < 0.1, "a busy machine may be late now and then"


def dogs_since(before: set[threading.Thread]) -> int:
    """Those of earlier tests may end at any time."""
    return len([each for each in threading.enumerate() if each.name == "twinbus-watchdog" and each not in before])


def test_without_anything_to_watch_there_is_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "STOP_WAIT_S", WAIT_S)
    before = set(threading.enumerate())
    dog = Watchdog()
    assert dogs_since(before) == 0
    dog.watch(Call(None))
    assert dogs_since(before) == 1
    dog.stop()
    assert dogs_since(before) == 0


def test_stopping_cuts_whatever_is_busy(clock: Clock) -> None:
    call = Call(clock.now + 1_000)
    dog = watching(clock, call)
    dog.stop()
    assert call.was_cut.is_set()


def test_it_can_be_stopped_twice_and_watches_again(clock: Clock) -> None:
    dog = watching(clock, Call(None))
    dog.stop()
    dog.stop()
    late = Call(clock.now)
    dog.watch(late)
    dog.look()
    assert not late.was_cut.is_set()
    clock.now += 10
    assert late.was_cut.wait(WAIT_S)
    dog.stop()
