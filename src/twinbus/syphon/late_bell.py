"""A process that was stopped for a while listens first, and judges then."""

from __future__ import annotations

LATE_MS = 1_000
"""A timer that rings this much late: the process was stopped (Ctrl-Z, a frozen container, a lid) or had no turn."""


class LateBell:
    """Tells whether what came meanwhile should be heard before anybody's silence is judged.

    After a stop, Python rings its timers before it reads its sockets: answers that lie there would count as missing.
    """

    def __init__(self) -> None:
        self._has_listened = False

    def must_listen(self, due_ms: int, now_ms: int) -> bool:
        """Whether the bell, which was due then, rings so late that it should ring once more; never twice in a row."""
        self._has_listened = not self._has_listened and now_ms - due_ms >= LATE_MS
        return self._has_listened
