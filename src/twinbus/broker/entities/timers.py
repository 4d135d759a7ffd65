"""Timers: entities that have to be woken, locks of sessions that end, receivers that have waited long enough."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Key = TypeVar("Key", int, str)


class DueTimes(Generic[Key]):
    """At most one timer per key."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, Key]] = []
        self._set: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, key: Key, at_ms: int) -> None:
        """Set a timer, in place of the one that was set."""
        self._set[key] = at_ms
        heappush(self._heap, (at_ms, key))
        self._drop_replaced()

    def set_earlier(self, key: Key, at_ms: int | None) -> None:
        """Set a timer unless an earlier one is set: an entity that is woken too early sets its timer again."""
        if at_ms is not None and at_ms < self._set.get(key, at_ms + 1):
            self.set(key, at_ms)

    def remove(self, key: Key) -> None:
        """Remove a timer, if it is set."""
        self._set.pop(key, None)
        self._drop_replaced()

    def _drop_replaced(self) -> None:
        """Forget timers that were replaced or removed, so that the heap does not outgrow the others."""
        if len(self._heap) > 2 * len(self._set) + 64:
            self._heap = [(at_ms, key) for key, at_ms in self._set.items()]
            heapify(self._heap)

    def next_ms(self) -> int | None:
        while self._heap and self._set.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int) -> Iterator[Key]:
        """The keys whose timer is due; each timer is removed as its key is yielded."""
        while (at_ms := self.next_ms()) is not None and at_ms <= now_ms:
            key = heappop(self._heap)[1]
            del self._set[key]
            yield key
