"""What happens to an operation under faults, and the queue of actions that a fault delays."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Final, NamedTuple

from twinbus.errors import NamespaceError


class Proceed(NamedTuple):
    """Carry it out."""

    delay_ms: int = 0
    """Delay the answer (of a delivery: the delivery)."""
    late_ms: int = 0
    """The message that is sent appears later by this time."""
    unanswered: bool = False
    """Carry it out, and never answer."""


class Refuse(NamedTuple):
    """Do nothing and answer with an error."""

    error: NamespaceError
    delay_ms: int = 0


class Ignore(NamedTuple):
    """Do nothing and never answer."""


class Drop(NamedTuple):
    """Do nothing and reset the connection."""


FaultDecision = Proceed | Refuse | Ignore | Drop

PROCEED: Final = Proceed()
"""No fault: compare with `is`."""


WAITING_MAX = 100_000


class DelayedActions:
    """Answers and deliveries that a fault delays, in the order of their time."""

    def __init__(self, waiting_max: int = WAITING_MAX) -> None:
        self._waiting_max = waiting_max
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, at_ms: int, action: Callable[[], None]) -> bool:
        """Keep an action until its time. False if too many wait already: then run it at once."""
        if len(self._heap) >= self._waiting_max:
            return False
        heappush(self._heap, (at_ms, next(self._order), action))
        return True

    def next_ms(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def run_due(self, now_ms: int) -> None:
        """Run what is due, earliest first, in the order of `put` for equal times."""
        while self._heap and self._heap[0][0] <= now_ms:
            heappop(self._heap)[2]()
