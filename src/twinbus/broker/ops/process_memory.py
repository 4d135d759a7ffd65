"""Memory of the process: how much it has, and when Python looks for garbage that refers to itself."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from pathlib import Path

from twinbus.errors import OptionsError

LOOK_EVERY_S = 0.1
STATISTICS = Path("/proc/self/statm")


class ResidentMemory:
    """The resident memory in bytes, at most a tenth of a second old."""

    def __init__(self, statistics: Path = STATISTICS, clock: Callable[[], float] = time.monotonic) -> None:
        self._statistics = statistics
        self._clock = clock
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        self._looked_at_s = -LOOK_EVERY_S
        self._bytes = 0

    def check(self) -> None:
        """Raise `OptionsError` where the system does not report it."""
        if not self._statistics.exists():
            raise OptionsError(f"busy_memory_bytes needs {self._statistics}, which this system does not have")

    def __call__(self) -> int:
        now_s = self._clock()
        if now_s - self._looked_at_s >= LOOK_EVERY_S:
            self._looked_at_s = now_s
            self._bytes = int(self._statistics.read_text().split()[1]) * self._page_bytes
        return self._bytes


# --- garbage: everything waits while Python looks for it ---

NEW_OBJECTS, LOOKS_AT_NEW, LOOKS_AT_OLDER = 10_000, 3, 260
"""A look walks all objects that are new since the last look of its kind: some 40,000 at most, about 10 milliseconds."""

CONNECTIONS_PER_LOOK = 250
"""What these leave is about 1.5 MB. With more, to give it back would take too long."""


class ClosedConnections:
    """Counts connections that were closed: each leaves some 60 objects that refer to each other, about 6 KB.

    Python counts objects, not bytes, and would not look at old ones before there are ten million new ones.
    """

    def __init__(self, collect: Callable[[], object] = gc.collect) -> None:
        self._collect = collect
        self._count = 0

    def add(self) -> None:
        """One more; after very many, look for all that they left."""
        self._count += 1
        if self._count >= CONNECTIONS_PER_LOOK:
            self._count = 0
            self._collect()


def collect_seldom() -> None:
    """Look for garbage less often: messages never refer to themselves, and a look walks all that are under way."""
    gc.collect()
    gc.freeze()  # modules and settings stay for good
    gc.set_threshold(NEW_OBJECTS, LOOKS_AT_NEW, LOOKS_AT_OLDER)
