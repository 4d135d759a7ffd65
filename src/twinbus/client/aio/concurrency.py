"""Where tasks differ from threads; `sync/concurrency.py` has the same names for threads."""

from __future__ import annotations

import asyncio
from asyncio import Event, Lock, Semaphore, sleep
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, TypeVar

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
    """Held for a step of a flow and never across an `await`: so tasks of one loop need none."""
    return nullcontext()


def caller() -> int:
    """Identifies the task that runs now, and does not keep it alive."""
    return id(asyncio.current_task())


async def acquire_within(lock: Lock | Semaphore, seconds: float) -> bool:
    """Whether the lock was free in time."""
    try:
        async with asyncio.timeout(seconds):
            await lock.acquire()
    except TimeoutError:
        return False
    return True


async def wait_for(event: Event, seconds: float) -> None:
    """Returns when the event is set, or the time is over."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass


async def in_thread(act: Callable[[], Result]) -> Result:
    """What `act` returns; it may block."""
    return await asyncio.to_thread(act)


def called_where_it_runs() -> Callable[[Callable[[], None]], None]:
    """A function that other threads may use to have something done on the client's event loop."""
    loop = asyncio.get_running_loop()

    def call(act: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(act)

    return call


async def result_within(future: Future[Result], seconds: float) -> Result:
    """What another thread found; raises `TimeoutError` after this time."""
    async with asyncio.timeout(seconds):
        return await asyncio.wrap_future(future)


async def within(seconds: float, act: Callable[[], Awaitable[Result]]) -> Result:
    """What `act` returns or raises, within this time; raises `TimeoutError` otherwise."""
    async with asyncio.timeout(seconds):
        return await act()


async def each_of(
    items: Iterable[Item], act: Callable[[Item], Awaitable[Result]], at_once: int, _name: str
) -> tuple[Result, ...]:
    """What `act` returns for each of them, in their order; at most `at_once` run at a time."""
    slots = Semaphore(at_once)

    async def act_in_turn(item: Item) -> Result:
        async with slots:
            return await act(item)

    return tuple(await asyncio.gather(*(act_in_turn(item) for item in items)))
