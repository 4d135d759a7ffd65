"""The syphon's clock, and what it means if a timer fires late."""

from __future__ import annotations

import time

LATE_MS = 1_000
"""If a timer fires this late, the process was suspended (Ctrl-Z, a frozen container, a closed lid) or starved."""


class SteadyClock:
    """Milliseconds since 1970, as they were at the start, and from then on by a clock that nobody can set."""

    def __init__(self) -> None:
        self._offset_ms = time.time() * 1000 - time.monotonic() * 1000

    def __call__(self) -> int:
        return int(self._offset_ms + time.monotonic() * 1000)


class SuspensionCheck:
    """Whether to read the sockets before anything counts as unanswered.

    After a suspension asyncio runs its timers before it reads its sockets: answers that already arrived would count
    as missing.
    """

    def __init__(self) -> None:
        self._has_waited = False

    def must_wait(self, due_ms: int, now_ms: int) -> bool:
        """Whether a timer that was due at `due_ms` should fire once more; never twice in a row."""
        self._has_waited = not self._has_waited and now_ms - due_ms >= LATE_MS
        return self._has_waited
