"""The keeper of time for threads: jobs in time, replaced, cancelled, and all threads gone at the end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from functools import partial
from time import monotonic

import pytest

from twinbus.client.keeper import STALE_DATES_MAX, WORKERS_MAX, Keeper

SOON_S = 60.0
"""Longer than anything here takes; nobody waits for it unless something is broken."""
A_WHILE_S = 0.25
HOUR_S = 3_600.0


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    made = Keeper("keeper-test")
    made.start()
    yield made
    made.stop(SOON_S)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("twinbus-keeper-test-")]


def test_a_job_is_done_at_its_time_and_not_before(keeper: Keeper) -> None:
    done, at = threading.Event(), monotonic() + 0.05
    keeper.call_at("job", at, done.set)
    assert done.wait(SOON_S)
    assert monotonic() >= at
    assert keeper.pending == 0


def test_what_is_due_sooner_does_not_wait_for_what_was_ordered_earlier(keeper: Keeper) -> None:
    done = threading.Event()
    keeper.call_at("later", monotonic() + HOUR_S, lambda: None)
    keeper.call_at("sooner", monotonic(), done.set)
    assert done.wait(SOON_S)
    assert keeper.pending == 1


def test_an_order_replaces_an_earlier_one_with_the_same_key(keeper: Keeper) -> None:
    at = 0.0
    while monotonic() >= at:  # again, if the orders came too late: the machine stood still meanwhile
        done, heard, at = threading.Event(), list[str](), monotonic() + A_WHILE_S
        keeper.call_at("put off", at, partial(heard.append, "old"))
        keeper.call_at("put off", at + HOUR_S, partial(heard.append, "new"))
        keeper.call_at("brought forward", at + HOUR_S, partial(heard.append, "old"))
        keeper.call_at("brought forward", at, done.set)
        pending = keeper.pending
    assert pending == 2
    assert done.wait(SOON_S)
    keeper.stop(SOON_S)
    assert heard == []


def test_a_job_that_was_cancelled_is_not_done(keeper: Keeper) -> None:
    done, at = threading.Event(), 0.0
    while monotonic() >= at:  # again, if the order came too late: the machine stood still meanwhile
        heard, at = list[str](), monotonic() + A_WHILE_S
        keeper.call_at("job", at, partial(heard.append, "no"))
        keeper.cancel("job")
    keeper.cancel("never ordered")
    keeper.call_at("after", at, done.set)
    assert done.wait(SOON_S)
    keeper.stop(SOON_S)
    assert heard == []


def test_a_job_that_hangs_delays_no_other(keeper: Keeper) -> None:
    hanging, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        hanging.set()
        go_on.wait(SOON_S)

    keeper.call_soon(hang)
    assert hanging.wait(SOON_S)
    keeper.call_at("other", monotonic(), done.set)
    assert done.wait(SOON_S)
    go_on.set()


def test_there_are_never_more_workers_than_the_limit(keeper: Keeper) -> None:
    go_on, counted = threading.Event(), threading.Semaphore(0)

    def hang() -> None:
        counted.release()
        go_on.wait(SOON_S)

    for _ in range(WORKERS_MAX * 3):
        keeper.call_soon(hang)
    for _ in range(WORKERS_MAX):
        assert counted.acquire(timeout=SOON_S)
    assert len([name for name in threads() if "worker" in name]) == WORKERS_MAX
    go_on.set()
    for _ in range(WORKERS_MAX * 2):
        assert counted.acquire(timeout=SOON_S), "those that had to wait are done as well"


def test_a_job_that_fails_is_logged_and_ends_nothing(keeper: Keeper, caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()

    def fail() -> None:
        raise ValueError("broken")

    with caplog.at_level(logging.ERROR, "twinbus.pairing"):
        keeper.call_soon(fail)
        keeper.call_at("after", monotonic() + 0.02, done.set)
        assert done.wait(SOON_S)
        keeper.stop(SOON_S)
    assert "event=internal_error" in caplog.text
    assert "broken" in caplog.text


def test_a_job_may_order_the_next_one(keeper: Keeper) -> None:
    done, left = threading.Event(), [3]

    def again() -> None:
        left[0] -= 1
        if left[0]:
            keeper.call_at("job", monotonic(), again)
        else:
            done.set()

    keeper.call_at("job", monotonic(), again)
    assert done.wait(SOON_S)


def test_ordering_anew_all_day_long_takes_no_memory(keeper: Keeper) -> None:
    far = monotonic() + HOUR_S
    for number in range(10_000):
        keeper.call_at("ping", far + number, lambda: None)
        keeper.call_at(number, far, lambda: None)
        keeper.cancel(number)
    assert keeper.pending == 1
    assert len(keeper._dates) <= 2 + STALE_DATES_MAX + 2


def test_after_stop_no_thread_is_left_and_nothing_is_done(keeper: Keeper) -> None:
    heard: list[str] = []
    keeper.call_at("later", monotonic() + HOUR_S, lambda: heard.append("no"))
    busy = threading.Event()
    keeper.call_soon(busy.set)
    assert busy.wait(SOON_S)
    keeper.stop(SOON_S)
    assert threads() == []
    keeper.call_soon(lambda: heard.append("no"))
    assert threads() == []
    assert heard == []


def test_stop_waits_no_longer_for_a_job_that_hangs_than_it_was_told(keeper: Keeper) -> None:
    hanging, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        hanging.set()
        go_on.wait(SOON_S)

    keeper.call_soon(hang)
    assert hanging.wait(SOON_S)
    began = monotonic()
    keeper.stop(0.05)
    assert monotonic() - began < SOON_S / 2
    go_on.set()


def test_a_job_may_stop_the_keeper_it_runs_on(keeper: Keeper) -> None:
    done = threading.Event()

    def end() -> None:
        keeper.stop(SOON_S)
        done.set()

    keeper.call_soon(end)
    assert done.wait(SOON_S)


def test_a_short_job_does_not_wait_for_workers_that_hang() -> None:
    keeper, release, done = Keeper("test"), threading.Event(), threading.Event()
    keeper.start()
    try:

        def hang() -> None:
            release.wait(SOON_S)

        for _ in range(WORKERS_MAX + 5):
            keeper.call_soon(hang)
        keeper.call_at("short", monotonic(), done.set, is_short=True)
        assert done.wait(SOON_S)
    finally:
        release.set()
        keeper.stop(SOON_S)


def test_a_short_job_may_order_another_one() -> None:
    keeper, done = Keeper("test"), threading.Event()
    keeper.start()
    try:
        keeper.call_at("first", monotonic(), lambda: keeper.call_at("second", monotonic(), done.set), is_short=True)
        assert done.wait(SOON_S)
    finally:
        keeper.stop(SOON_S)


def test_a_job_apart_waits_for_no_worker_and_its_thread_is_gone_at_the_end(keeper: Keeper) -> None:
    is_over, done = threading.Event(), threading.Event()

    def hang() -> None:
        is_over.wait(SOON_S)

    for _ in range(WORKERS_MAX):
        keeper.call_soon(hang)
    keeper.call_apart(done.set, "apart")
    assert done.wait(SOON_S)
    is_over.set()
    keeper.stop(SOON_S)
    assert threads() == []
    keeper.call_apart(done.clear, "too-late")
    assert done.is_set(), "after the end nothing is done"
