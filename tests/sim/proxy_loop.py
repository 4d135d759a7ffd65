"""An asyncio event loop in virtual time, and the simulated processes that share it.

What ships runs here unchanged, shells included: only the clock, the sockets (`proxy_network.py`) and the threads are
simulated. A process can be killed at any moment: its tasks and timers are gone, and only its wires tell of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from itertools import count
from random import Random
from typing import Any, TypeVar

from sim.clock import START_MS
from sim.invariants import Violation

R = TypeVar("R")
TURNS_MAX = 200_000
"""A simulation with more turns of the loop will never end; usual are some thousands."""
TURN_S = 1e-6
"""Every turn takes a moment: timers fire a little late, never early."""
THREAD_S = 0.002
"""What is done on a thread takes at most this long."""

_process: ContextVar[Process | None] = ContextVar("process", default=None)


class Process:
    """Everything that is called by way of `run`, and all that comes of it, belongs to the process."""

    def __init__(self, name: str, loop: SimulatedLoop) -> None:
        self.name = name
        self.loop = loop
        self.is_alive = True
        self.tasks: list[asyncio.Task[Any]] = []
        self._context = copy_context()
        self._context.run(_process.set, self)

    def __repr__(self) -> str:
        return self.name

    def run(self, job: Callable[..., R], *args: Any) -> R | None:
        """Call something in this process; None if it is dead."""
        return self._context.copy().run(job, *args) if self.is_alive else None

    def context(self) -> Context:
        return self._context.copy()

    def kill(self) -> None:
        """As by kill -9: nothing of it runs any more, and what it knew is gone."""
        if not self.is_alive:
            return
        self.is_alive = False
        self.loop.forget(self)
        for task in self.tasks:
            if not task.done():
                self._context.copy().run(_end, task)
        self.tasks.clear()


def _end(task: asyncio.Task[Any]) -> None:
    """End a task here and now: left to the garbage collector, it would end in the middle of something else."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine = task.get_coro()
    with contextlib.suppress(RuntimeError):  # it waits for something even now; nobody ever calls it again
        if coroutine is not None:
            coroutine.close()


class NumberedTask(asyncio.Task[Any]):
    """Sets of tasks have an order that the seed decides."""

    def __init__(self, coroutine: Any, *, number: int, **options: Any) -> None:
        self._number = number
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class SimulatedLoop(asyncio.BaseEventLoop):
    """What happens next is whatever is due first. Nothing here waits for real."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self.now = 0.0
        self.problem: BaseException | None = None
        """The first exception that nobody caught, in whatever process."""
        self.create_connection: Any = None  # the network sets it
        self._random = random
        self._selector = self  # the part that waits, as the base class calls it
        self._turns_left = TURNS_MAX
        self._numbers = count()
        self.set_exception_handler(self._note_problem)

    # --- time ---

    def time(self) -> float:
        return self.now

    def now_ms(self) -> int:
        """The time of day."""
        return START_MS + int(self.now * 1000)

    def select(self, timeout: float | None) -> list[Any]:
        """Instead of waiting for sockets."""
        self._turns_left -= 1
        if self._turns_left <= 0:
            raise Violation(f"something goes on for ever ({TURNS_MAX} turns of the loop)")
        if timeout is None:
            raise Violation("nothing will ever happen again")
        self.now += timeout + TURN_S
        return []

    def run_for(self, seconds: float) -> None:
        """Let happen what is due in this time; raises what nobody caught."""
        self.call_later(seconds, self.stop)
        self.run_forever()
        if self.problem is not None:
            raise self.problem

    def _note_problem(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Errors that are found by the garbage collector are left out: when it runs is not decided by the seed."""
        error = context.get("exception")
        if self.problem is None and "never retrieved" not in context["message"]:
            self.problem = error if isinstance(error, BaseException) else Violation(context["message"])
        self.stop()

    # --- processes ---

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        handle: asyncio.Handle = self._own(super().call_soon(callback, *args, context=context))
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:  # type: ignore[override]
        handle: asyncio.TimerHandle = self._own(super().call_at(when, callback, *args, context=context))
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        return self.call_soon(callback, *args, context=context)

    def create_task(self, coroutine: Any, **options: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        task = NumberedTask(coroutine, loop=self, number=next(self._numbers), **options)
        owner = _process.get()
        if owner is not None:
            if len(owner.tasks) > 100:
                owner.tasks = [each for each in owner.tasks if not each.done()]
            owner.tasks.append(task)
            if not owner.is_alive:
                _end(task)
        return task

    def run_in_executor(self, _executor: Any, job: Callable[..., R], *args: Any) -> asyncio.Future[R]:  # type: ignore[override]
        """There are no threads: it is done a little later, at once."""
        future: asyncio.Future[R] = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(job(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_later(self._random.random() * THREAD_S, work)
        return future

    def forget(self, process: Process) -> None:
        """Nothing is called any more that this process wanted called."""
        for handle in (*self._ready, *self._scheduled):  # type: ignore[attr-defined]
            if _owner(handle) is process:
                handle.cancel()

    def _own(self, handle: Any) -> Any:
        owner = _owner(handle)
        if owner is not None and not owner.is_alive:
            handle.cancel()
        return handle

    # --- what the base class wants of a loop that has sockets ---

    def _process_events(self, _events: list[Any]) -> None: ...

    def _write_to_self(self) -> None: ...


def _owner(handle: Any) -> Process | None:
    owner: Process | None = handle._context.get(_process)
    return owner


def current_process() -> Process:
    """Whose code is running."""
    found = _process.get()
    assert found is not None, "this belongs to no process"
    return found


class ErrorLog(logging.Handler):
    """An exception that is logged is a problem, too: no simulated process has a reason for one but our own mistakes."""

    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__(logging.ERROR)
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        owner = _process.get()
        if record.exc_info and (owner is None or owner.is_alive):
            if self._loop.problem is None:
                self._loop.problem = record.exc_info[1] or Violation(f"logged: {record.getMessage()}")
            self._loop.stop()


def start(process: Process, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Begin a task in a process; what it raises is a problem."""

    def begin() -> None:
        task = process.loop.create_task(work())
        task.add_done_callback(_check_done)

    process.run(begin)


def _check_done(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        error = task.exception()
        if error is not None:
            raise error
