"""The part of a queue that is in memory: its head.

A queue may hold millions of messages; memory holds a window at the front, limited in rows and bytes. New messages join
it directly while it has room and nothing waits on disk. Otherwise they stay on disk, and the window is refilled from
there when it is half empty. So every visible message with a sequence below `on_disk_from` is here (or locked), and
every other one is on disk only.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush

from twinbus.broker.entities.receivers import LOCKED_BYTES_MAX
from twinbus.broker.store.api import HeadRows, MessageRow


@dataclass(frozen=True, slots=True)
class WindowLimits:
    """What a queue may keep in memory."""

    rows_max: int = 4_000
    bytes_max: int = 8 * 1024 * 1024
    locked_bytes_max: int = LOCKED_BYTES_MAX
    """Of one receiver."""
    locks_bytes_max: int = 256 * 1024 * 1024
    """Of all receivers, also those that are gone; with the overhead of each lock."""


class Window:
    def __init__(
        self, entity_id: int, limits: WindowLimits, on_disk_from: int | None, session_id: str | None = None
    ) -> None:
        """With a session id: the head of that session."""
        self._entity_id = entity_id
        self._session_id = session_id
        self._limits = limits
        self.on_disk_from = on_disk_from
        self._fresh: deque[MessageRow] = deque()
        self._returned: list[tuple[int, MessageRow]] = []
        self._discarded: set[int] = set()
        self._bytes = 0
        self.asked: HeadRows | None = None
        """The read that is under way."""
        self._last_spill = 0

    def __len__(self) -> int:
        return len(self._fresh) + len(self._returned) - len(self._discarded)

    def arrive(self, row: MessageRow, number: int) -> None:
        """Add a message that became visible; its sequence is higher than any before."""
        if self.on_disk_from is None and self._has_room():
            self._fresh.append(row)
            self._bytes += len(row.payload)
            return
        if self.on_disk_from is None:
            self.on_disk_from = row.sequence
        self._last_spill = number

    def _has_room(self) -> bool:
        return len(self._fresh) < self._limits.rows_max and self._bytes < self._limits.bytes_max

    def put_back(self, row: MessageRow) -> None:
        """Add a message that was locked: it goes before everything with a higher sequence."""
        heappush(self._returned, (row.sequence, row))
        self._bytes += len(row.payload)

    def holds(self, sequence: int) -> bool:
        """Whether a visible message that is not locked is in memory."""
        return self.on_disk_from is None or sequence < self.on_disk_from

    def discard(self, sequence: int) -> None:
        """Remove a visible message that is not locked, if it is in memory."""
        if self.holds(sequence):
            self._discarded.add(sequence)

    def take(self) -> MessageRow | None:
        """Remove and return the message with the lowest sequence."""
        while True:
            if self._returned and (not self._fresh or self._returned[0][0] < self._fresh[0].sequence):
                row = heappop(self._returned)[1]
            elif self._fresh:
                row = self._fresh.popleft()
            else:
                return None
            self._bytes -= len(row.payload)
            if not self._discarded or row.sequence not in self._discarded:
                return row
            self._discarded.remove(row.sequence)

    @property
    def is_reading(self) -> bool:
        """Whether rows for the window are being read from disk."""
        return self.asked is not None

    def wanted_rows(self) -> HeadRows | None:
        """The read that refills the window; None if it is full enough, or being filled."""
        limits = self._limits
        if self.on_disk_from is None or self.asked is not None:
            return None
        if len(self._fresh) * 2 > limits.rows_max or self._bytes * 2 > limits.bytes_max:
            return None
        most = (limits.rows_max - len(self._fresh), limits.bytes_max - self._bytes)
        self.asked = HeadRows(self._entity_id, self.on_disk_from, *most, self._session_id)
        return self.asked

    def refill(self, rows: list[MessageRow], *, read_until: int, complete: bool, as_of: int) -> None:
        """Add rows that were read from disk; `read_until` is the last sequence that the read has seen."""
        self.asked = None
        self._fresh.extend(rows)
        self._bytes += sum(len(row.payload) for row in rows)
        # Messages committed after the moment of the read may be on disk: read again.
        nothing_behind = complete and self._last_spill <= as_of
        self.on_disk_from = None if nothing_behind else read_until + 1
