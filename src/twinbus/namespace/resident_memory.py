"""How much memory the process has, asked often and looked up seldom."""

from __future__ import annotations

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
        """Raise `OptionsError` where nobody can tell."""
        if not self._statistics.exists():
            raise OptionsError(f"busy_memory_bytes needs {self._statistics}, which this system does not have")

    def __call__(self) -> int:
        now_s = self._clock()
        if now_s - self._looked_at_s >= LOOK_EVERY_S:
            self._looked_at_s = now_s
            self._bytes = int(self._statistics.read_text().split()[1]) * self._page_bytes
        return self._bytes
