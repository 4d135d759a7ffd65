"""How a syphon behaves."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal

from twinbus.errors import OptionsError
from twinbus.ranges import check_ranges


def no_chance() -> float:
    """The middle, every time."""
    return 0.5


class Backoff:
    """Each pause is twice as long as the last, up to a maximum, and up to a fifth shorter by chance."""

    def __init__(self, range_s: tuple[float, float], chance: Callable[[], float]) -> None:
        """`range_s`: the first and the longest pause; `chance` returns numbers from 0 to 1."""
        self._first_ms, self._max_ms = range_s[0] * 1000, range_s[1] * 1000
        self._chance = chance
        self.failures = 0

    def next_ms(self) -> int:
        pause_ms = min(self._max_ms, self._first_ms * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return max(1, round(pause_ms * (0.8 + 0.2 * self._chance())))

    def reset(self) -> None:
        self.failures = 0


ATTEMPT_S_MIN = 5.0
"""The shortest attempt of a syphon inside a client. Its batches and peeks are larger than what callers send: with an
attempt that is too short for them nothing would ever come home."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonOptions:
    """The defaults bring everything home as fast as possible."""

    ttl: Literal["remaining", "restart"] = "remaining"
    """Whether the time in the backlog counts against the time to live."""
    rate: float | None = None
    """Messages a second at most, of all queues together; None: no limit."""
    concurrency: int = 8
    """Batches in flight to one destination at a time."""
    prefetch: int = 2_000
    """Messages of one queue to hold at a time."""
    canary: int | None = None
    """Move this many messages, then pause until `resume`."""
    entities: frozenset[str] | None = None
    """Only messages for these; None: for all. Case does not matter. Others stay in the backlog, and are counted."""
    enqueued_before: datetime | None = None
    """Only what was enqueued in the backlog before this time, by the secondary's clock."""
    until_empty: bool = False
    """End when nothing is left that this syphon would move."""
    order: Literal["session"] | None = None
    """"session": the messages of a session, or of an entity if they have none, come home in the order of their queue.
    None: in no particular order."""
    order_over: tuple[int, ...] | None = None
    """With `order`: the backlog queues, by index, over which senders spread sessions. A message in another queue than
    its own pauses the syphon, with the alert `order_unknown`; None: not checked."""
    batch_bytes_max: int = 1024 * 1024
    """The largest batch, if the destination allows it."""
    held_bytes_max: int = 64 * 1024 * 1024
    """Bytes to hold of all queues together: of large messages fewer are received at a time."""
    parked_max: int = 20_000
    """Messages of one queue that are parked, because their destination is down, to reach those behind them."""
    attempt_s: float = 15.0
    """How long a connection, a link, a batch or a request waits for its answer."""
    lock_s: float = 60.0
    """The lock duration of the backlog queues; with it the secondary's clock is derived from the locks."""
    backoff_s: tuple[float, float] = (1.0, 30.0)
    """The first and the longest pause after a failure."""
    busy_s: float = 10.0
    """How long a destination that throttles gets nothing."""
    refused_s: float = 60.0
    """How long all backlog queues must refuse our credential until the alert `refused` calls it useless."""
    renew_credit_s: float = 900.0
    """How often credit is granted to an idle queue: one long poll."""
    look_again_s: float = 900.0
    """How often to search backlog queues beyond the count; about as often as a long poll."""
    chance: Callable[[], float] = field(default=no_chance, compare=False, repr=False)
    """Numbers from 0 to 1 that keep many syphons from coming back at the same moment. A syphon sets a random source by
    itself; a pump alone, e.g. in a simulation, does not."""

    def __post_init__(self) -> None:
        OptionsError.raise_for(self._problems())
        check_ranges(self, _RANGES)

    def _problems(self) -> list[str]:
        problems: list[str] = []
        if self.ttl not in ("remaining", "restart"):
            problems.append(f'ttl must be "remaining" or "restart", got {self.ttl!r}')
        if self.order not in (None, "session"):
            problems.append(f'order must be "session" or None, got {self.order!r}')
        problems += rate_problems(self.rate) + first_problems("canary", self.canary)
        if self.enqueued_before is not None and self.enqueued_before.tzinfo is None:
            problems.append("enqueued_before needs a time zone, e.g. datetime.now(timezone.utc)")
        low, high = self.backoff_s
        if not 0 < low <= high <= _BACKOFF_S_MAX:
            problems.append(
                f"backoff_s must be two times from 0 to {_BACKOFF_S_MAX} s, the shorter first, got {low, high}"
            )
        return problems

    def new_backoff(self) -> Backoff:
        return Backoff(self.backoff_s, self.chance)

    @property
    def cutoff_ms(self) -> int | None:
        if self.enqueued_before is None:
            return None
        return int(self.enqueued_before.astimezone(UTC).timestamp() * 1000)


def rate_problems(rate: float | None) -> list[str]:
    """What is wrong with a limit of the rate; None: no limit."""
    if rate is None or 0 < rate <= _RATE_MAX:
        return []
    return [f"rate must be above 0 and at most {_RATE_MAX:g} messages a second, got {rate!r}"]


def first_problems(name: str, first: int | None) -> list[str]:
    """What is wrong with a number of messages after which to pause; None: no such number."""
    return [f"{name} must be 1 or more messages, got {first!r}"] if first is not None and first < 1 else []


def with_chance(options: SyphonOptions) -> SyphonOptions:
    """The same with a random source, unless one is set."""
    return replace(options, chance=random.random) if options.chance is no_chance else options


_RATE_MAX = 1e9
_BACKOFF_S_MAX = 3_600
_RANGES: dict[str, tuple[float, float]] = {
    "concurrency": (1, 1_000),
    "prefetch": (1, 100_000),
    "batch_bytes_max": (1_024, 100 * 1024 * 1024),
    "held_bytes_max": (1_024, 2**40),
    "parked_max": (1, 10_000_000),
    "attempt_s": (0.01, 600),
    "lock_s": (1, 300),
    "busy_s": (0.01, 3_600),
    "refused_s": (0.0, 86_400),
    "renew_credit_s": (0.01, 86_400),
    "look_again_s": (0.01, 86_400),
}
