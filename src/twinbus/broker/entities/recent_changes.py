"""Changes that a read from disk may not have seen yet.

A read shows the disk as of some commit; the machine is ahead of it. For rows that were changed after that moment the
memory is right, so they are left out of what was read. Changes are kept until no read under way can be older.
"""

from __future__ import annotations

from collections import deque

from twinbus.broker.store.api import ReadRequest


class RecentChanges:
    def __init__(self, committed: int) -> None:
        self._committed = committed
        self._changed: dict[int, int] = {}
        self._removed: dict[int, int] = {}
        self._order: deque[tuple[int, int]] = deque()
        self._reads: dict[ReadRequest, list[int]] = {}
        """Reads under way, oldest first, with what was committed when each of several equal ones began."""

    def __len__(self) -> int:
        return len(self._order)

    @property
    def known(self) -> int:
        """The last change set of the entity that is known to be committed."""
        return self._committed

    def note_change(self, sequence: int, number: int) -> None:
        self._changed[sequence] = number
        self._order.append((number, sequence))

    def note_removal(self, sequence: int, number: int) -> None:
        self.note_change(sequence, number)
        self._removed[sequence] = number

    def changed_at(self, sequence: int) -> int:
        """The number of the last change to a row; 0 if every later read shows it."""
        return self._changed.get(sequence, 0)

    def changed_since(self, sequence: int, as_of: int) -> bool:
        return self._changed.get(sequence, 0) > as_of

    def removed_since(self, sequence: int, as_of: int) -> bool:
        return self._removed.get(sequence, 0) > as_of

    def read_began(self, request: ReadRequest) -> None:
        self._reads.setdefault(request, []).append(self._committed)

    def is_reading(self, request: ReadRequest) -> bool:
        return request in self._reads

    def read_ended(self, request: ReadRequest) -> None:
        # An answer may belong to any of several equal reads: the oldest counts as under way until the last one ended.
        begun = self._reads.get(request)
        if begun is not None:
            begun.pop()
            if not begun:
                del self._reads[request]
        self._forget()

    def committed(self, number: int) -> None:
        self._committed = number
        if self._order:
            self._forget()

    @property
    def seen_by_all(self) -> int:
        """The last change set that every current and later read has seen."""
        for begun in self._reads.values():
            return begun[0]
        return self._committed

    def _forget(self) -> None:
        seen_by_all = self.seen_by_all
        while self._order and self._order[0][0] <= seen_by_all:
            number, sequence = self._order.popleft()
            if self._changed.get(sequence) == number:
                del self._changed[sequence]
            if self._removed.get(sequence) == number:
                del self._removed[sequence]
