"""Which entity has to be woken next.

One timer per entity. Setting an earlier one replaces it, a later one is ignored: an entity woken too
early finds nothing to do and sets its timer again.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush


class EntityTimers:
    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        self._set: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, entity_id: int, at_ms: int | None) -> None:
        if at_ms is None:
            return
        current = self._set.get(entity_id)
        if current is None or at_ms < current:
            self._set[entity_id] = at_ms
            heappush(self._heap, (at_ms, entity_id))
            if len(self._heap) > 2 * len(self._set) + 64:
                # Timers that an earlier one replaced must not pile up.
                self._heap = [(at_ms, entity_id) for entity_id, at_ms in self._set.items()]
                heapify(self._heap)

    def next_ms(self) -> int | None:
        while self._heap and self._set.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int) -> Iterator[int]:
        """The entities whose timer is due; each timer is removed as its entity is yielded."""
        while (at_ms := self.next_ms()) is not None and at_ms <= now_ms:
            entity_id = heappop(self._heap)[1]
            del self._set[entity_id]
            yield entity_id
