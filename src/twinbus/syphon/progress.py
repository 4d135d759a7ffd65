"""How far a syphon is, as values: for a progress bar, a log line, a metric or a page."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from twinbus.syphon.peeking.depth_watch import BacklogSnapshot

_RATE_OVER_MS = 10_000


@dataclass(slots=True)
class SyphonCounts:
    """Counts since the start; a message is counted under everything that happened to it."""

    received: int = 0
    """Deliveries from the backlog, repeated ones too."""
    moved: int = 0
    """Stored at home and gone from the backlog."""
    moved_bytes: int = 0
    """Of what was stored at home."""
    stored: int = 0
    """Stored at home, completed or not."""
    batches: int = 0
    """Transfers to the primary."""
    repeated: int = 0
    """Stored at home, but the lock was lost before the completion: delivered again, with the same id."""
    in_doubt: int = 0
    """Sent, but no outcome came: delivered again, with the same id."""
    refused: int = 0
    """Dead-lettered, because they can never be stored at home."""
    expired: int = 0
    """Dead-lettered, because their time to live ended in the backlog."""
    released: int = 0
    """Released to the backlog: their destination is down, or they are not wanted now."""
    unlisted: int = 0
    """For entities that are not listed: they stay in the backlog."""
    to_backlog: int = 0
    """Of a spool: stored in backlog queues, because their entity was down."""
    locks_renewed: int = 0
    grants: int = 0
    """Grants of credit: what a bill calls receives."""

    @property
    def gone(self) -> int:
        return self.moved + self.refused + self.expired


@dataclass(frozen=True, slots=True)
class DestinationProgress:
    path: str
    state: str
    """`open`, `opening`, `closed` or `resting`."""
    reason: str | None
    """Why it rests, or rested until it last opened."""
    waiting: int
    in_flight: int


@dataclass(frozen=True, slots=True)
class Progress:
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
    """Since when the message at the head of the oldest queue waits; None: none is known to be there."""
    left: int | None
    """About how many are still to come; None: not counted."""
    seconds_left: float | None
    """What that takes at the present rate; None: unknown, or nothing moves at the moment."""
    destinations: tuple[DestinationProgress, ...]
    troubles: tuple[str, ...]
    """Backlog queues that cannot be read, and why."""
    backlog: BacklogSnapshot | None = None
    """The latest snapshot of the backlog; None: there is none yet."""
    outside: int = 0
    """Messages for entities that are not listed: they stay in the backlog."""
    to_backlog: int = 0
    """Of a spool: messages that went to backlog queues, because their entity was down."""

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return asdict(self)


class RateGauge:
    def __init__(self, now_ms: int) -> None:
        self._samples: deque[tuple[int, int]] = deque([(now_ms, 0)])

    def add_sample(self, now_ms: int, moved: int) -> None:
        if now_ms - self._samples[-1][0] >= 100:
            self._samples.append((now_ms, moved))
        while len(self._samples) > 2 and now_ms - self._samples[1][0] >= _RATE_OVER_MS:
            self._samples.popleft()

    def rate(self, now_ms: int, moved: int) -> float:
        since_ms, before = self._samples[0]
        return (moved - before) * 1000 / (now_ms - since_ms) if now_ms > since_ms else 0.0
