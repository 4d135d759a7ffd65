"""Where tasks differ from threads; `sync/concurrency.py` has the same names for threads."""

from __future__ import annotations

import asyncio
from asyncio import Event, Lock, Semaphore, sleep
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

__all__ = [
    "Event",
    "Lock",
    "Semaphore",
    "acquire_within",
    "caller",
    "each_of",
    "guard_of_the_core",
    "in_thread",
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


async def within(seconds: float, act: Callable[[], Awaitable[Result]]) -> Result:
    """What `act` returns or raises, within this time; raises `TimeoutError` otherwise."""
    async with asyncio.timeout(seconds):
        return await act()


async def each_of(
    items: Iterable[Item], act: Callable[[Item], Awaitable[Result]], at_once: int, _name: str
) -> tuple[Result, ...]:
    """What `act` returns for each of them, in their order; at most `at_once` run at a time."""
    room = Semaphore(at_once)

    async def act_in_turn(item: Item) -> Result:
        async with room:
            return await act(item)

    return tuple(await asyncio.gather(*(act_in_turn(item) for item in items)))
