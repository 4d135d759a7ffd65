"""What is done later or beside: the timer thread of one client, and a few workers.

Short jobs run on the timer thread, everything else on workers, so that a ping that hangs delays no timer. All threads
are daemons and end at `stop`, or soon after if they are in the middle of something.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import nullcontext
from itertools import count
from time import monotonic

from twinbus.client.core.probes import WORKERS_MAX

LOGGER = logging.getLogger("twinbus.pairing")
WORKER_IDLE_S = 5.0
STALE_DATES_MAX = 64

Job = Callable[[], None]


class Timers:
    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._dates: list[tuple[float, int, Hashable]] = []
        self._jobs: dict[Hashable, tuple[int, Job]] = {}  # key -> number of its latest date, what to do
        self._numbers = count()
        self._due: deque[Job] = deque()
        self._workers = 0
        self._idle = 0
        self._threads: set[threading.Thread] = set()
        self._is_stopped = False
        self.slots = nullcontext()
        """For work of which there may be a lot at a time: there are no more workers than that."""

    def start(self) -> None:
        self._begin(self._keep_time, "clock")

    def schedule(self, key: Hashable, at: float, job: Job) -> None:
        """Do a short job at that time (monotonic); replaces what was scheduled under the same key."""
        with self._changed:
            if self._is_stopped:
                return
            number = next(self._numbers)
            self._jobs[key] = (number, job)
            heapq.heappush(self._dates, (at, number, key))
            if len(self._dates) > 2 * len(self._jobs) + STALE_DATES_MAX:
                self._drop_stale_dates()
            self._changed.notify_all()

    def cancel(self, key: Hashable) -> None:
        with self._changed:
            self._jobs.pop(key, None)

    def begin(self, job: Job) -> None:
        """Do this on a worker thread."""
        with self._changed:
            if self._is_stopped:
                return
            self._due.append(job)
            if self._idle < len(self._due) and self._workers < WORKERS_MAX:
                self._workers += 1
                try:
                    self._begin(self._work, f"worker-{self._workers}")
                except RuntimeError:  # there is no further thread: the others will come to it
                    self._workers -= 1
            self._changed.notify_all()

    def begin_apart(self, job: Job, name: str) -> bool:
        """Do this on a thread of its own: the workers may all be busy. False: there is no further thread."""
        with self._changed:
            if not self._is_stopped:
                try:
                    self._begin(lambda: _do(job), name)
                except RuntimeError:
                    return False
        return True

    @property
    def pending(self) -> int:
        """How many jobs wait for their time."""
        return len(self._jobs)

    def end(self) -> None:
        """Nothing begins any more."""
        with self._changed:
            self._is_stopped = True
            self._jobs.clear()
            self._due.clear()
            self._changed.notify_all()

    def stop(self, patience_s: float) -> None:
        """End all threads; those that are busy get so much time before they are left to end by themselves."""
        self.end()
        until = monotonic() + patience_s
        for thread in tuple(self._threads):
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - monotonic()))

    def _begin(self, work: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=self._live, args=(work,), name=f"twinbus-{self._name}-{name}", daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:
            self._threads.discard(thread)
            raise

    def _live(self, work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            self._threads.discard(threading.current_thread())

    def _keep_time(self) -> None:
        while (due := self._wait_for_due()) is not None:
            for job in due:  # without the lock: what they do may schedule something new
                _do(job)

    def _wait_for_due(self) -> list[Job] | None:
        """The jobs that are due; None: it is over."""
        with self._changed:
            while not self._is_stopped:
                now, due = monotonic(), list[Job]()
                while self._dates and self._dates[0][0] <= now:
                    _, number, key = heapq.heappop(self._dates)
                    if self._jobs.get(key, (None,))[0] == number:  # else it was cancelled, or scheduled anew
                        due.append(self._jobs.pop(key)[1])
                if due:
                    return due
                self._changed.wait(self._dates[0][0] - now if self._dates else None)
        return None

    def _drop_stale_dates(self) -> None:
        """Dates that were cancelled or ordered anew lie in the heap until their time; there may be many of them."""
        latest = {key: number for key, (number, _) in self._jobs.items()}
        self._dates = [date for date in self._dates if latest.get(date[2]) == date[1]]
        heapq.heapify(self._dates)

    def _work(self) -> None:
        while (job := self._next_job()) is not None:
            _do(job)

    def _next_job(self) -> Job | None:
        """The next job; None when there was none for a while, or it is over: the worker may go."""
        with self._changed:
            until = monotonic() + WORKER_IDLE_S
            self._idle += 1
            while not self._due and not self._is_stopped and (left := until - monotonic()) > 0:
                self._changed.wait(left)
            self._idle -= 1
            if self._due and not self._is_stopped:
                return self._due.popleft()
            self._workers -= 1
            return None


def _do(job: Job) -> None:
    try:
        job()
    except Exception:  # one broken job must not end the pings of all entities
        LOGGER.exception("event=internal_error reason=%r", "a background job failed")
