"""What a drain is and was: its progress, and how it ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from twinbus.spark.drain.ledger_counts import DrainCounts
from twinbus.spark.drain.shard import ShardReport

Ending = Literal["empty", "chosen", "unsure", "stuck", "order unknown", "first"]


@dataclass(frozen=True, slots=True)
class DrainProgress:
    """What the driver sees while tasks run: one peek a queue."""

    round: int
    tasks: int
    left: int
    """About how many are still in the backlog."""
    gone: int
    """About how many left it since the beginning."""
    rate: float
    """Messages a second, over the last ten seconds."""
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"seconds": round(self.seconds, 1), "rate": round(self.rate)}


@dataclass(slots=True)
class DrainResult:
    ending: Ending = "empty"
    rounds: int = 0
    seconds: float = 0.0
    found: int = 0
    """About how many were there at the beginning."""
    left: int = 0
    reports: list[ShardReport] = field(default_factory=list)
    """Of the attempts that ended; those that were killed have none. Earlier ones of a machine are one sum."""
    recorded: DrainCounts | None = None
    """The counts of all attempts, by the ledger, killed ones too; None without a ledger."""
    extra: list[int] = field(default_factory=list)
    """Backlog queues beyond the count that had messages: a sender elsewhere has more. They are home too."""
    doubt: str | None = None
    """Why the backlog cannot be called empty, although everything that can be seen is home."""
    order_problem: str = ""
    """Why order cannot be promised any more; the messages concerned stay in the backlog."""
    quarantined: int | None = None
    """How many messages are in quarantine, of earlier runs too, up to 10,000; None: not counted, or not readable."""
    unlisted: int | None = None
    """How many messages stay because their entity is not listed, up to 10,000; None as above."""
    missing: dict[int, str] = field(default_factory=dict)
    """Backlog queues that do not exist or may not be read, and why."""
    unreadable: str = ""
    """Why the backlog could not be read after the last round: `left` is what was there before it."""

    def add(self, reports: Sequence[ShardReport]) -> None:
        """The reports of one more round. What kept tasks back that ended with their time is of the last round only."""
        kept = [replace(each, trouble="") if each.is_cut else each for each in self.reports]
        sums: dict[str, ShardReport] = {}
        for each in kept:
            if each.is_cut:
                sums[each.executor] = each.plus(sums[each.executor]) if each.executor in sums else each
        self.reports = [*sums.values(), *[each for each in kept if not each.is_cut], *reports]

    @property
    def troubles(self) -> list[str]:
        troubles = [*(report.trouble for report in self.reports), self.unreadable]
        return list(dict.fromkeys(trouble for trouble in troubles if trouble))

    def count(self, name: str) -> int:
        """A sum over all attempts, from the ledger if there is one."""
        if self.recorded is not None and hasattr(self.recorded, name):
            return int(getattr(self.recorded, name))
        return sum(getattr(report, name) for report in self.reports)

    def as_dict(self) -> dict[str, Any]:
        counts = ("moved", "repeated", "in_doubt", "refused", "expired")
        by_executor: Counter[str] = Counter()
        for report in self.reports:
            by_executor[report.executor] += report.moved
        return {
            "ending": self.ending,
            "rounds": self.rounds,
            "seconds": round(self.seconds, 3),
            "found": self.found,
            "left": self.left,
            **{name: self.count(name) for name in counts},
            "counted_from": "tasks" if self.recorded is None else "ledger",
            "killed_attempts": None if self.recorded is None else self.recorded.killed,
            "executors": dict(by_executor),
            "troubles": self.troubles,
            "extra_queues": self.extra,
            "doubt": self.doubt,
            "order_problem": self.order_problem or None,
            "quarantined": self.quarantined,
            "outside_left": self.unlisted,
            "missing_queues": {str(index): text for index, text in self.missing.items()},
        }
