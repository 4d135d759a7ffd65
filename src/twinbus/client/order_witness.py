"""Tells the core of a pair what its own syphon brought home, where order counts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from twinbus.pairing.order import Came
from twinbus.pairing.pair import Pair


class OrderWitness:
    """Called by the syphon, on its thread or in its loop."""

    def __init__(self, pair: Pair, lock: AbstractContextManager[Any], settle: Callable[[], None]) -> None:
        """`lock` guards the core; `settle` carries out what it orders then."""
        self._pair = pair
        self._lock = lock
        self._settle = settle
        self.queues: list[int] = []
        """The backlog queues of the syphon, as the core calls them."""

    def added(self, index: int) -> None:
        """The syphon has found one more queue."""
        self.queues.append(index)

    def came(self, queue: int, letters: list[Came]) -> None:
        """Letters are stored at home, or refused for good."""
        with self._lock:
            self._pair.came_home(self.queues[queue], letters)
        self._settle()

    def waits_for(self, queue: int) -> bool:
        """Whether anything would change if the queue was seen empty."""
        with self._lock:
            return self._pair.fences is not None and self._pair.fences.waits_for(self.queues[queue])

    def look_begins(self, _queue: int) -> int:
        """A look at whether a queue is empty begins: when, in the time of the fences."""
        with self._lock:
            return 0 if self._pair.fences is None else self._pair.fences.time

    def seen_empty(self, queue: int, look: int) -> None:
        """It found the queue empty."""
        with self._lock:
            self._pair.seen_empty(self.queues[queue], look)
        self._settle()
