"""A small load on a namespace: threads that send or receive, and what each call took."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from time import monotonic
from typing import Any

from twinbus.cli import interrupts
from twinbus.errors import TwinbusError

LOOK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Measured:
    """What a phase came to. Latencies are those of one call, in milliseconds."""

    what: str
    messages: int
    seconds: float
    per_second: float
    ms_p50: float
    ms_p95: float
    ms_p99: float
    ms_max: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def measured(what: str, messages: int, seconds: float, calls_s: Sequence[float]) -> Measured:
    """The numbers of a phase, from how long each call took."""
    ordered = sorted(calls_s)
    p50, p95, p99, longest = (1000 * at_share(ordered, share) for share in (0.5, 0.95, 0.99, 1.0))
    return Measured(what, messages, seconds, messages / seconds if seconds > 0 else 0.0, p50, p95, p99, longest)


def at_share(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all is not above; 0 of nothing."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


@dataclass(slots=True)
class Quota:
    """How many are still to be done, shared by all workers."""

    left: int
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, most: int) -> int:
        """So many are this worker's; 0: all is given out."""
        with self._lock:
            taken = min(most, self.left)
            self.left -= taken
            return taken

    def give_back(self, count: int) -> None:
        with self._lock:
            self.left += count


@dataclass(slots=True)
class Crew:
    """Workers on threads that can be left behind; each notes what its calls took."""

    calls_s: list[float] = field(default_factory=list)
    messages: int = 0
    errors: list[BaseException] = field(default_factory=list)
    is_stopping: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, began: float, messages: int) -> None:
        """A call is over."""
        with self._lock:
            self.calls_s.append(monotonic() - began)
            self.messages += messages

    def work(
        self, workers: Sequence[Callable[[Crew], None]], *, patience_s: float, show: Callable[[int], None]
    ) -> float:
        """Seconds until all are done. Raises what one of them raised, or `TwinbusError` if nothing moves any more."""
        threads = [threading.Thread(target=self._run, args=(one,), name="twinbus-load", daemon=True) for one in workers]
        began = moved_at = monotonic()
        before = 0
        for thread in threads:
            thread.start()
        try:
            while (busy := [thread for thread in threads if thread.is_alive()]) and not self.errors:
                busy[0].join(LOOK_EVERY_S)
                interrupts.check()
                if self.messages != before:
                    before, moved_at = self.messages, monotonic()
                    show(before)
                elif monotonic() - moved_at > patience_s:
                    raise TwinbusError(f"nothing has moved for {patience_s:g} s: the namespace does not answer")
        finally:
            self.is_stopping = True
        if self.errors:
            raise self.errors[0]
        return monotonic() - began

    def _run(self, worker: Callable[[Crew], None]) -> None:
        try:
            worker(self)
        except BaseException as error:
            self.errors.append(error)
