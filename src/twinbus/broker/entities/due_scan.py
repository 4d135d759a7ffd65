"""Scans for messages whose time has come: expired ones, and scheduled ones that are due.

A scan continues where the last one stopped: a message it has found once is either processed, its change perhaps still
on the way to the disk, or locked, and then it is processed when the lock ends. Otherwise expired messages that are
locked would be read again and again.
"""

from __future__ import annotations

Point = tuple[int, int]
"""A time and the sequence of a message that has it."""
BEFORE_ALL: Point = (-1, 0)


class DueScan:
    """When to scan next, and after which point in the order of (time, sequence)."""

    __slots__ = ("_appeared", "_is_reading", "_next_ms", "after")

    def __init__(self, next_ms: int | None) -> None:
        self.after = BEFORE_ALL
        """The last message that was found."""
        self._next_ms = next_ms
        self._is_reading = False
        self._appeared: Point | None = None
        """The earliest of the messages that a read under way may be too old to have seen."""

    @property
    def next_ms(self) -> int | None:
        """When there may be something to find; None also while a read is under way."""
        return None if self._is_reading else self._next_ms

    def watch(self, time_ms: int, sequence: int) -> None:
        """Add a message whose time will come, or came while its change was on its way to the disk."""
        if self._next_ms is None or time_ms < self._next_ms:
            self._next_ms = time_ms
        point = (time_ms, sequence)
        if self._is_reading:
            self._appeared = point if self._appeared is None else min(point, self._appeared)
        else:
            self._step_back(point)

    def _step_back(self, point: Point) -> None:
        if point <= self.after:
            self.after = (point[0], point[1] - 1)

    def is_due(self, now_ms: int) -> bool:
        """Whether to scan now."""
        return self._next_ms is not None and self._next_ms <= now_ms and not self._is_reading

    def begin(self) -> None:
        """A read from `after` on is requested."""
        self._next_ms = None
        self._is_reading = True

    def end(self, last: Point | None, next_ms: int | None) -> None:
        """The read is done: the last row it found, if any, and the time of the first one after it."""
        self._is_reading = False
        if last is not None:
            self.after = last
        if self._appeared is not None:
            self._step_back(self._appeared)
            self._appeared = None
        if next_ms is not None and (self._next_ms is None or next_ms < self._next_ms):
            self._next_ms = next_ms
