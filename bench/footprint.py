"""Memory, threads and open files of this process over time, and whether they grow.

Outages make threads and sockets come and go, so what is compared are floors: the least of an early and of the last
fifth of the time. And when all clients are closed, threads and files have to be what they were before the first one.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import NamedTuple

GROWTH_MB_MAX = 16.0
THREADS_MORE_MAX, FILES_MORE_MAX = 8, 16
"""Between two floors: how much of an outage is in the air differs."""
CLOSING_S = 10.0
FIFTHS = 5


class Reading(NamedTuple):
    at_s: float
    memory_mb: float
    threads: int
    files: int

    def __str__(self) -> str:
        return f"{self.memory_mb:.0f} MB, {self.threads} threads, {self.files} files"


class Footprint:
    def __init__(self) -> None:
        self._before = read()
        self._readings: list[Reading] = []
        self._after: Reading | None = None

    def look(self, at_s: float) -> None:
        self._readings.append(read(at_s))

    @property
    def now(self) -> Reading:
        return self._readings[-1] if self._readings else self._before

    def after_closing(self) -> None:
        """Waits, for a while, until threads and files are what they were; what is closed may take a second or two."""
        deadline = time.monotonic() + CLOSING_S
        while True:
            self._after = read()
            is_back = self._after.threads <= self._before.threads and self._after.files <= self._before.files
            if is_back or time.monotonic() > deadline:
                return
            time.sleep(0.2)

    def floor(self, fifth: int) -> Reading:
        """The least of each in one fifth of the time, counted from 0."""
        end_s = self._readings[-1].at_s
        low, high = end_s * fifth / FIFTHS, end_s * (fifth + 1) / FIFTHS
        within = [reading for reading in self._readings if low <= reading.at_s <= high]
        return Reading(low, *(min(column) for column in list(zip(*within, strict=True))[1:]))

    def problems(self) -> list[str]:
        early, late = self.floor(1), self.floor(FIFTHS - 1)
        found = []
        if late.memory_mb > early.memory_mb + GROWTH_MB_MAX:
            found.append(f"memory has grown from {early.memory_mb:.0f} to {late.memory_mb:.0f} MB")
        if late.threads > early.threads + THREADS_MORE_MAX or late.files > early.files + FILES_MORE_MAX:
            found.append(f"threads or files have grown from {early} to {late}")
        if self._after is not None and self._after.threads > self._before.threads:
            left = [thread.name for thread in threading.enumerate()][self._before.threads :]
            found.append(f"threads are left after closing: {', '.join(left[:5])}")
        if self._after is not None and self._after.files > self._before.files:
            found.append(f"{self._after.files - self._before.files} files are left open after closing")
        return found

    def __str__(self) -> str:
        early, late = self.floor(1), self.floor(FIFTHS - 1)
        return f"at least {early} in the second fifth, {late} in the last; {self._before} before, {self._after} after"


def read(at_s: float = 0.0) -> Reading:
    return Reading(at_s, _resident_mb(), threading.active_count(), len(list(Path("/proc/self/fd").iterdir())))


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
