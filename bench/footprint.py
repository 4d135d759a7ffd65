"""Memory, threads and open files of this process over time, and whether they grow.

Memory is the resident set after the allocator was asked to give back what it does not use: what it keeps for later
depends on the worst moment so far, and would look like a leak. Threads and sockets come and go with outages, so only
readings without an outage are compared: the medians of the second and of the last fifth of the time. And when all
clients are closed, threads and files have to be what they were before the first one.
"""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

GROWTH_MB_MAX = 16.0
THREADS_MORE_MAX, FILES_MORE_MAX = 10, 20
"""Between two fair spells: how long ago the last outage was differs."""
LOOK_EVERY_S = 1.0
CLOSING_S = 10.0
FIFTHS = 5


class Reading(NamedTuple):
    at_s: float
    memory_mb: float
    threads: float
    files: float

    def __str__(self) -> str:
        return f"{self.memory_mb:.0f} MB, {self.threads:.0f} threads, {self.files:.0f} files"


class Footprint:
    def __init__(self) -> None:
        self._before = read()
        self._all = [self._before]
        self._fair: list[Reading] = []
        self._after: Reading | None = None

    def look(self, at_s: float, *, is_fair: bool) -> None:
        """Take a reading, unless the last one is too recent."""
        if at_s - self.now.at_s < LOOK_EVERY_S:
            return
        self._all.append(read(at_s))
        if is_fair:
            self._fair.append(self.now)

    @property
    def now(self) -> Reading:
        return self._all[-1]

    def after_closing(self) -> None:
        """Waits, for a while, until threads and files are what they were; what is closed may take a second or two."""
        deadline = time.monotonic() + CLOSING_S
        while True:
            self._after = read()
            is_back = self._after.threads <= self._before.threads and self._after.files <= self._before.files
            if is_back or time.monotonic() > deadline:
                return
            time.sleep(0.2)

    def usual(self, fifth: int) -> Reading | None:
        """What was usual in the fair spells of one fifth of the time, counted from 0; None: there were none."""
        end_s = self.now.at_s
        low, high = end_s * fifth / FIFTHS, end_s * (fifth + 1) / FIFTHS
        within = [reading for reading in self._fair if low <= reading.at_s <= high]
        return Reading(*(median(column) for column in zip(*within, strict=True))) if within else None

    def problems(self) -> list[str]:
        return [*self._growth(), *self._leftovers()]

    def _growth(self) -> list[str]:
        early, late = self.usual(1), self.usual(FIFTHS - 1)
        if early is None or late is None:
            return ["there was no time without an outage to compare: let it run for longer"]
        found = []
        if late.memory_mb > early.memory_mb + GROWTH_MB_MAX:
            found.append(f"memory has grown from {early.memory_mb:.0f} to {late.memory_mb:.0f} MB")
        if late.threads > early.threads + THREADS_MORE_MAX or late.files > early.files + FILES_MORE_MAX:
            found.append(f"threads or files have grown, from {early} to {late}")
        return found

    def _leftovers(self) -> list[str]:
        found, after = [], self._after or self._before
        if after.threads > self._before.threads:
            names = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
            found.append(f"threads are left after closing: {', '.join(names[:5])}")
        if after.files > self._before.files:
            found.append(f"{after.files - self._before.files:.0f} files are left open after closing")
        return found

    def __str__(self) -> str:
        usual = f"usually {self.usual(1)} in the second fifth, {self.usual(FIFTHS - 1)} in the last"
        return f"{usual}; {self._before} before, {self._after} after"


def read(at_s: float = 0.0) -> Reading:
    gc.collect()
    with suppress(OSError, AttributeError):  # only the GNU library has it
        ctypes.CDLL(None).malloc_trim(0)
    files = len(list(Path("/proc/self/fd").iterdir()))
    return Reading(at_s, _resident_mb(), threading.active_count(), files)


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
