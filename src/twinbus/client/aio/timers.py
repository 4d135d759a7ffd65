"""What is done later or beside: timers and background tasks of one client, on its event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from time import monotonic

from twinbus.client.core.probes import WORKERS_MAX

LOGGER = logging.getLogger("twinbus.pairing")

Work = Callable[[], Awaitable[None]]


class Timers:
    def __init__(self, _name: str) -> None:
        self._timers: dict[Hashable, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_ended = False
        self.slots = asyncio.Semaphore(WORKERS_MAX)
        """For work of which there may be a lot at a time."""

    def start(self) -> None:
        """The loop keeps the time."""

    def schedule(self, key: Hashable, at: float, job: Callable[[], None]) -> None:
        """Do a short job at that time (monotonic); replaces what was scheduled under the same key."""
        self.cancel(key)
        if not self._has_ended:
            loop = asyncio.get_running_loop()
            self._timers[key] = loop.call_at(loop.time() + at - monotonic(), self._when_due, key, job)

    def cancel(self, key: Hashable) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def begin(self, work: Work) -> None:
        """Do this beside."""
        if not self._has_ended:
            task = asyncio.ensure_future(work())
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def begin_apart(self, work: Work, _name: str) -> bool:
        """The same for what must not wait for other work; always possible."""
        self.begin(work)
        return True

    def end(self) -> None:
        """Nothing begins any more."""
        self._has_ended = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    async def stop(self, patience_s: float) -> None:
        """End everything but the task that calls; what is under way gets so much time before it is cancelled."""
        self.end()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        if tasks:
            await asyncio.wait(tasks, timeout=patience_s)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=patience_s)

    def _when_due(self, key: Hashable, job: Callable[[], None]) -> None:
        self._timers.pop(key, None)
        job()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            LOGGER.error("event=internal_error reason=%r", "a background task failed", exc_info=error)
