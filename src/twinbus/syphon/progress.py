"""How far a syphon is, as values: for a bar, a log line, a metric or a page."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from twinbus.syphon.backlog_look import BacklogLook
from twinbus.syphon.tally import Tally

_RATE_OVER_MS = 10_000


@dataclass(frozen=True, slots=True)
class DestinationProgress:
    path: str
    state: str
    """`open`, `opening`, `closed` or `resting`."""
    reason: str | None
    """Why it rests, or did until now."""
    waiting: int
    in_flight: int


@dataclass(frozen=True, slots=True)
class Progress:
    """One look at a syphon."""

    state: str
    """`running`, `paused`, `paused after the canary` or `stopped`."""
    seconds: float
    """Since the start."""
    moved: int
    """Stored at home and gone from the backlog."""
    moved_bytes: int
    rate: float
    """Messages a second, over the last ten seconds."""
    received: int
    repeated: int
    in_doubt: int
    refused: int
    expired: int
    released: int
    held: int
    """Messages under lock right now."""
    oldest_age_s: float | None
    """How long the message at the head of the oldest queue has lain in the backlog; None: none is known to be there."""
    left: int | None
    """About how many are still to come; None: nobody has counted."""
    seconds_left: float | None
    """What that takes at the present rate; None: unknown, or nothing moves at the moment."""
    destinations: tuple[DestinationProgress, ...]
    troubles: tuple[str, ...]
    """Backlog queues that cannot be reached, and why."""
    backlog: BacklogLook | None = None
    """What the latest look into the backlog has found; None: nobody has looked yet."""
    outside: int = 0
    """Messages that were met for entities which are not among those that were named: they stay in the backlog."""

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return asdict(self)


class RateGauge:
    """Messages a second over the last moments."""

    def __init__(self, now_ms: int) -> None:
        self._marks: deque[tuple[int, int]] = deque([(now_ms, 0)])

    def note(self, now_ms: int, moved: int) -> None:
        if now_ms - self._marks[-1][0] >= 100:
            self._marks.append((now_ms, moved))
        while len(self._marks) > 2 and now_ms - self._marks[1][0] >= _RATE_OVER_MS:
            self._marks.popleft()

    def rate(self, now_ms: int, moved: int) -> float:
        since_ms, before = self._marks[0]
        return (moved - before) * 1000 / (now_ms - since_ms) if now_ms > since_ms else 0.0


def amount_left(counted: int | None, tally: Tally) -> int | None:
    """What is left of an amount that was counted at the start."""
    return None if counted is None else max(0, counted - tally.moved - tally.refused - tally.expired)
