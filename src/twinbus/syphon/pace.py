"""How much may be sent now, and what is to be sent at all: rate, canary, pause, chosen entities, cut-off time."""

from __future__ import annotations

import math
from enum import Enum

from twinbus.syphon.options import SyphonOptions

_BURST_S = 0.1
"""How much of a second's share may go out at once."""


class Gait(Enum):
    """What the syphon as a whole is doing."""

    RUNNING = "running"
    PAUSED = "paused"
    CANARY = "paused after the canary"
    STOPPED = "stopped"


class Pace:
    """Counts what was sent against what was allowed. Time is an argument."""

    def __init__(self, options: SyphonOptions, now_ms: int) -> None:
        self.gait = Gait.RUNNING
        self._rate = options.rate
        self._canary = options.canary
        self._moved = 0
        self._under_way = 0
        self._entities = None if options.entities is None else {name.strip("/").casefold() for name in options.entities}
        self._cutoff_ms = options.cutoff_ms
        self._burst = 0.0 if options.rate is None else max(1.0, options.rate * _BURST_S)
        self._tokens = min(self._burst, 1.0)
        self._filled_ms = now_ms

    @property
    def is_running(self) -> bool:
        return self.gait is Gait.RUNNING

    def pause(self) -> None:
        if self.gait is not Gait.STOPPED:
            self.gait = Gait.PAUSED

    def resume(self) -> None:
        """Go on; after a canary without a bound."""
        if self.gait is Gait.CANARY:
            self._canary = None
        if self.gait is not Gait.STOPPED:
            self.gait = Gait.RUNNING

    def stop(self) -> None:
        self.gait = Gait.STOPPED

    def wants(self, path: str, enqueued_ms: int | None) -> bool:
        """Whether a message for this entity is to be moved at all."""
        return self.allows(path) and self.is_in_time(enqueued_ms)

    def allows(self, path: str) -> bool:
        """Whether messages may go to this entity; names are the same in any case."""
        return self._entities is None or path.casefold() in self._entities

    def is_in_time(self, enqueued_ms: int | None) -> bool:
        return self._cutoff_ms is None or enqueued_ms is None or enqueued_ms < self._cutoff_ms

    def allowance(self, now_ms: int) -> int:
        """How many messages may be sent at this moment."""
        if self.gait is not Gait.RUNNING:
            return 0
        allowed: float = math.inf
        if self._rate is not None:
            self._fill(now_ms)
            allowed = self._tokens
        if self._canary is not None:
            allowed = min(allowed, self._canary - self._moved - self._under_way)
        return _MOST if allowed >= _MOST else max(0, int(allowed))

    def next_ms(self, now_ms: int) -> int | None:
        """When the rate allows the next message; None if it is not the rate that forbids one."""
        if self._rate is None or self.gait is not Gait.RUNNING:
            return None
        self._fill(now_ms)
        return now_ms if self._tokens >= 1 else now_ms + math.ceil((1 - self._tokens) * 1000 / self._rate)

    def sent(self, count: int) -> None:
        self._under_way += count
        if self._rate is not None:
            self._tokens -= count

    def ended(self, count: int, *, moved: bool) -> None:
        """Messages that were under way are home, or are not going to be this time."""
        self._under_way -= count
        if moved:
            self._moved += count
        if self._canary is not None and self._moved >= self._canary and self.gait is Gait.RUNNING:
            self.gait = Gait.CANARY

    def window(self, wanted: int, lock_ms: int) -> int:
        """How many messages to borrow at a time: no more than can be sent in a part of their lock."""
        if self._rate is not None:
            wanted = min(wanted, max(1, int(self._rate * lock_ms / 4_000)))
        if self._canary is not None:
            wanted = min(wanted, max(1, self._canary - self._moved))
        return wanted

    def _fill(self, now_ms: int) -> None:
        assert self._rate is not None
        if now_ms > self._filled_ms:
            earned = (now_ms - self._filled_ms) * self._rate / 1000
            self._tokens = min(self._burst, self._tokens + earned)
            self._filled_ms = now_ms


_MOST = 1_000_000
