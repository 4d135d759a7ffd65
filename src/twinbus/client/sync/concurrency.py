"""Where threads differ from tasks; `aio/concurrency.py` has the same names for tasks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from threading import Event, Lock, Semaphore
from threading import get_ident as caller
from time import sleep
from typing import Any, TypeVar

from twinbus.client.sdk.abandonable_threads import leavable_pool, within

__all__ = [
    "Event",
    "Lock",
    "Semaphore",
    "acquire_within",
    "called_where_it_runs",
    "caller",
    "each_of",
    "guard_of_the_core",
    "in_thread",
    "result_within",
    "sleep",
    "wait_for",
    "within",
]

Item = TypeVar("Item")
Result = TypeVar("Result")


def guard_of_the_core() -> AbstractContextManager[Any]:
    """Held for a step of a flow and never across I/O. A classifier of the application runs under it, and may ask for
    the status: so the thread that has it may take it again."""
    return threading.RLock()


def acquire_within(lock: threading.Lock | Semaphore, seconds: float) -> bool:
    """Whether the lock was free in time."""
    return lock.acquire(timeout=max(0.0, seconds))


def wait_for(event: Event, seconds: float) -> None:
    """Returns when the event is set, or the time is over."""
    event.wait(seconds)


def in_thread(act: Callable[[], Result]) -> Result:
    """What `act` returns: the caller's thread may block."""
    return act()


def called_where_it_runs() -> Callable[[Callable[[], None]], None]:
    """A function that other threads may use to have something done: any thread will do."""
    return lambda act: act()


def result_within(future: Future[Result], seconds: float) -> Result:
    """What another thread found; raises `TimeoutError` after this time."""
    return future.result(seconds)


def each_of(items: Iterable[Item], act: Callable[[Item], Result], at_once: int, name: str) -> tuple[Result, ...]:
    """What `act` returns for each of them, in their order; at most `at_once` run at a time, on threads of this name."""
    with leavable_pool(at_once, name) as pool:
        return tuple(pool.map(act, items))
