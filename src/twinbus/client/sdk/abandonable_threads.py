"""Calls on threads that can be left behind: nothing stops a thread from outside, but nobody has to wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

Result = TypeVar("Result")


def call_on_thread(act: Callable[[], Result], name: str) -> Future[Result]:
    """What `act` will return or raise, on a daemon thread of its own."""
    answer: Future[Result] = Future()

    def run() -> None:
        try:
            answer.set_result(act())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return answer


def within(seconds: float, act: Callable[[], Result]) -> Result:
    """What `act` returns or raises, within this time; raises `TimeoutError` and leaves it behind otherwise."""
    answer = call_on_thread(act, "twinbus-bounded")
    if not wait([answer], seconds).done:
        raise TimeoutError(f"no answer within {seconds:g} s")
    return answer.result()


@contextmanager
def leavable_pool(threads: int, name: str) -> Iterator[ThreadPoolExecutor]:
    """All calls have ended when the block ends; not so when it is left by an exception, as by Ctrl-C.

    The pool's own `with` would wait for them there too: for silent namespaces, as long as they may be silent.
    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
