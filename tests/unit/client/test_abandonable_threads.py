"""A pool for which nobody waits who is interrupted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from twinbus.client.sdk.abandonable_threads import leavable_pool

WAIT_S = 60


def left_by_an_interrupt(call: Callable[[], None]) -> Future[None]:
    """The second of two calls in a pool that has a thread for one."""
    with suppress(KeyboardInterrupt), leavable_pool(1, "asking") as pool:
        pool.submit(call)
        second = pool.submit(call)
        raise KeyboardInterrupt
    return second


def test_who_is_interrupted_waits_for_no_call() -> None:
    answer, ended = threading.Event(), threading.Event()

    def ask() -> None:
        answer.wait(WAIT_S)
        ended.set()

    never = left_by_an_interrupt(ask)
    assert not ended.is_set()
    assert never.cancelled()
    answer.set()
    assert ended.wait(WAIT_S)


def test_who_is_not_interrupted_waits_for_all_of_them() -> None:
    gate, passed = threading.Event(), list[int]()

    def pass_by(number: int) -> None:
        assert gate.wait(WAIT_S)
        passed.append(number)

    with leavable_pool(2, "asking") as pool:
        for number in range(5):
            pool.submit(pass_by, number)
        gate.set()
    assert sorted(passed) == [0, 1, 2, 3, 4]
