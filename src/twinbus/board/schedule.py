"""When a process posts a report: at a change, every 20 s while anything is wrong, once a minute otherwise.

Changes that come thick and fast are posted together, so what an unsteady process costs is bounded.
"""

from __future__ import annotations

CALM_EVERY_S, BUSY_EVERY_S = 60.0, 20.0
EARLIER = 0.1
"""Reports come up to this share before their time, so that processes do not post in step and none comes late."""
CHANGE_PAUSE_S, CHANGE_PAUSE_MAX_S = 1.0, 20.0
"""The shortest time between two reports; it doubles while every report follows a change, and starts anew after calm."""
CLEAR_EVERY_S = 300.0
"""How often a process with Listen looks whether the service keeps what is over."""
RETRY_S, RETRY_MAX_S = 1.0, 20.0
"""After a report that could not be posted."""


def every_s(*, is_calm: bool) -> float:
    """The time that a report promises until the next one."""
    return CALM_EVERY_S if is_calm else BUSY_EVERY_S


class PostSchedule:
    """Not for several threads at once. Times are monotonic seconds; `chance` is from 0 to 1."""

    def __init__(self, at: float) -> None:
        self._due_at = at
        self._posted_at: float | None = None
        self._posted: object = None
        self._pause_s = CHANGE_PAUSE_S
        self._retry_s = RETRY_S
        self._is_retrying = False

    @property
    def due_at(self) -> float:
        """When the next report is to be posted."""
        return self._due_at

    def changed(self, at: float, essence: object) -> None:
        """The report would be this one now: due soon, if it differs from what was posted."""
        if essence == self._posted or self._is_retrying:
            return
        earliest = at if self._posted_at is None else max(at, self._posted_at + self._pause_s)
        self._due_at = min(self._due_at, earliest)

    def posted(self, at: float, essence: object, *, is_calm: bool, chance: float) -> None:
        """A report was stored."""
        is_change = essence != self._posted
        is_soon = self._posted_at is not None and at - self._posted_at < 2 * CHANGE_PAUSE_MAX_S
        self._pause_s = min(2 * self._pause_s, CHANGE_PAUSE_MAX_S) if is_change and is_soon else CHANGE_PAUSE_S
        self._posted_at, self._posted = at, essence
        self._retry_s, self._is_retrying = RETRY_S, False
        self._due_at = at + every_s(is_calm=is_calm) * (1 - EARLIER * chance)

    def failed(self, at: float) -> None:
        """A report could not be stored."""
        self._due_at, self._is_retrying = at + self._retry_s, True
        self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)
