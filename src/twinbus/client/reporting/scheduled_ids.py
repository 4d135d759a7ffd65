"""Which ids scheduled messages have: whoever cancels them names numbers, and the ledger knows messages by id."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

REMEMBERED_MAX = 10_000
"""Of all entities together; older ones are forgotten first."""


class ScheduledIds:
    """The last messages that this client has scheduled. Threads may share it."""

    def __init__(self, most: int = REMEMBERED_MAX) -> None:
        self._most = most
        self._ids: dict[tuple[str, int], str] = {}
        self._lock = threading.Lock()

    def remember(self, entity: str, numbers: Sequence[int], message_ids: Sequence[str]) -> None:
        """Messages were scheduled in an entity, under these numbers; none: they were sent at once."""
        if not numbers:
            return
        with self._lock:
            for number, message_id in zip(numbers, message_ids, strict=False):
                self._ids.pop((entity, number), None)  # so that it counts as the youngest
                self._ids[entity, number] = message_id
            while len(self._ids) > self._most:
                del self._ids[next(iter(self._ids))]

    def take(self, entity: str, numbers: Iterable[int]) -> dict[int, str]:
        """The ids of those that are known, by number; they are forgotten then."""
        with self._lock:
            found = {number: self._ids.pop((entity, number), None) for number in numbers}
        return {number: message_id for number, message_id in found.items() if message_id is not None}
