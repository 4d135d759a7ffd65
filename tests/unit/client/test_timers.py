"""Timers and workers for threads: jobs in time, replaced, cancelled, and all threads gone at the end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from functools import partial
from time import monotonic

import pytest

from twinbus.client.core.probes import WORKERS_MAX
from twinbus.client.sync.timers import STALE_DATES_MAX, Timers

SOON_S = 60.0
"""Longer than anything here takes; nobody waits for it unless something is broken."""
A_WHILE_S = 0.25
HOUR_S = 3_600.0


@pytest.fixture
def timers() -> Iterator[Timers]:
    made = Timers("timers-test")
    made.start()
    yield made
    made.stop(SOON_S)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("twinbus-timers-test-")]


def test_a_job_is_done_at_its_time_and_not_before(timers: Timers) -> None:
    done, at = threading.Event(), monotonic() + 0.05
    timers.schedule("job", at, done.set)
    assert done.wait(SOON_S)
    assert monotonic() >= at
    assert timers.pending == 0


def test_what_is_due_sooner_does_not_wait_for_what_was_ordered_earlier(timers: Timers) -> None:
    done = threading.Event()
    timers.schedule("later", monotonic() + HOUR_S, lambda: None)
    timers.schedule("sooner", monotonic(), done.set)
    assert done.wait(SOON_S)
    assert timers.pending == 1


def test_an_order_replaces_an_earlier_one_with_the_same_key(timers: Timers) -> None:
    at = 0.0
    while monotonic() >= at:  # again, if the orders came too late: the machine stood still meanwhile
        done, heard, at = threading.Event(), list[str](), monotonic() + A_WHILE_S
        timers.schedule("put off", at, partial(heard.append, "old"))
        timers.schedule("put off", at + HOUR_S, partial(heard.append, "new"))
        timers.schedule("brought forward", at + HOUR_S, partial(heard.append, "old"))
        timers.schedule("brought forward", at, done.set)
        pending = timers.pending
    assert pending == 2
    assert done.wait(SOON_S)
    timers.stop(SOON_S)
    assert heard == []


def test_a_job_that_was_cancelled_is_not_done(timers: Timers) -> None:
    done, at = threading.Event(), 0.0
    while monotonic() >= at:  # again, if the order came too late: the machine stood still meanwhile
        heard, at = list[str](), monotonic() + A_WHILE_S
        timers.schedule("job", at, partial(heard.append, "no"))
        timers.cancel("job")
    timers.cancel("never ordered")
    timers.schedule("after", at, done.set)
    assert done.wait(SOON_S)
    timers.stop(SOON_S)
    assert heard == []


def test_a_job_that_hangs_delays_no_other(timers: Timers) -> None:
    hanging, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        hanging.set()
        go_on.wait(SOON_S)

    timers.begin(hang)
    assert hanging.wait(SOON_S)
    timers.schedule("other", monotonic(), done.set)
    assert done.wait(SOON_S)
    go_on.set()


def test_there_are_never_more_workers_than_the_limit(timers: Timers) -> None:
    go_on, counted = threading.Event(), threading.Semaphore(0)

    def hang() -> None:
        counted.release()
        go_on.wait(SOON_S)

    for _ in range(WORKERS_MAX * 3):
        timers.begin(hang)
    for _ in range(WORKERS_MAX):
        assert counted.acquire(timeout=SOON_S)
    assert len([name for name in threads() if "worker" in name]) == WORKERS_MAX
    go_on.set()
    for _ in range(WORKERS_MAX * 2):
        assert counted.acquire(timeout=SOON_S), "those that had to wait are done as well"


def test_a_job_that_fails_is_logged_and_ends_nothing(timers: Timers, caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()

    def fail() -> None:
        raise ValueError("broken")

    with caplog.at_level(logging.ERROR, "twinbus.pairing"):
        timers.begin(fail)
        timers.schedule("after", monotonic() + 0.02, done.set)
        assert done.wait(SOON_S)
        timers.stop(SOON_S)
    assert "event=internal_error" in caplog.text
    assert "broken" in caplog.text


def test_a_job_may_order_the_next_one(timers: Timers) -> None:
    done, left = threading.Event(), [3]

    def again() -> None:
        left[0] -= 1
        if left[0]:
            timers.schedule("job", monotonic(), again)
        else:
            done.set()

    timers.schedule("job", monotonic(), again)
    assert done.wait(SOON_S)


def test_ordering_anew_all_day_long_takes_no_memory(timers: Timers) -> None:
    far = monotonic() + HOUR_S
    for number in range(10_000):
        timers.schedule("ping", far + number, lambda: None)
        timers.schedule(number, far, lambda: None)
        timers.cancel(number)
    assert timers.pending == 1
    assert len(timers._dates) <= 2 + STALE_DATES_MAX + 2


def test_after_stop_no_thread_is_left_and_nothing_is_done(timers: Timers) -> None:
    heard: list[str] = []
    timers.schedule("later", monotonic() + HOUR_S, lambda: heard.append("no"))
    busy = threading.Event()
    timers.begin(busy.set)
    assert busy.wait(SOON_S)
    timers.stop(SOON_S)
    assert threads() == []
    timers.begin(lambda: heard.append("no"))
    assert threads() == []
    assert heard == []


def test_stop_waits_no_longer_for_a_job_that_hangs_than_its_limit(timers: Timers) -> None:
    hanging, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        hanging.set()
        go_on.wait(SOON_S)

    timers.begin(hang)
    assert hanging.wait(SOON_S)
    began = monotonic()
    timers.stop(0.05)
    assert monotonic() - began < SOON_S / 2
    go_on.set()


def test_a_job_may_stop_the_timers_it_runs_on(timers: Timers) -> None:
    done = threading.Event()

    def end() -> None:
        timers.stop(SOON_S)
        done.set()

    timers.begin(end)
    assert done.wait(SOON_S)


def test_a_short_job_does_not_wait_for_workers_that_hang() -> None:
    timers, release, done = Timers("test"), threading.Event(), threading.Event()
    timers.start()
    try:

        def hang() -> None:
            release.wait(SOON_S)

        for _ in range(WORKERS_MAX + 5):
            timers.begin(hang)
        timers.schedule("short", monotonic(), done.set)
        assert done.wait(SOON_S)
    finally:
        release.set()
        timers.stop(SOON_S)


def test_a_short_job_may_order_another_one() -> None:
    timers, done = Timers("test"), threading.Event()
    timers.start()
    try:
        timers.schedule("first", monotonic(), lambda: timers.schedule("second", monotonic(), done.set))
        assert done.wait(SOON_S)
    finally:
        timers.stop(SOON_S)


def test_a_job_apart_waits_for_no_worker_and_its_thread_is_gone_at_the_end(timers: Timers) -> None:
    is_over, done = threading.Event(), threading.Event()

    def hang() -> None:
        is_over.wait(SOON_S)

    for _ in range(WORKERS_MAX):
        timers.begin(hang)
    timers.begin_apart(done.set, "apart")
    assert done.wait(SOON_S)
    is_over.set()
    timers.stop(SOON_S)
    assert threads() == []
    timers.begin_apart(done.clear, "too-late")
    assert done.is_set(), "after the end nothing is done"
