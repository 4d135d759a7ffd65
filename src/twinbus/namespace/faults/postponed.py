"""What happens later: answers and deliveries that a fault holds back, in the order of their time."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

WAITING_MAX = 100_000


class Postponed:
    def __init__(self, waiting_max: int = WAITING_MAX) -> None:
        self._waiting_max = waiting_max
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, at_ms: int, action: Callable[[], None]) -> bool:
        """Keep an action until its time. False if too many wait already: then do it at once."""
        if len(self._heap) >= self._waiting_max:
            return False
        heappush(self._heap, (at_ms, next(self._order), action))
        return True

    def next_ms(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def run_due(self, now_ms: int) -> None:
        """Do what is due, the earliest first, and of the same moment the first put first."""
        while self._heap and self._heap[0][0] <= now_ms:
            heappop(self._heap)[2]()
