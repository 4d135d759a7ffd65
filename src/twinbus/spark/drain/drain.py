"""Rounds of tasks until nothing is left in the backlog. The driver looks and plans; it never touches a message."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from twinbus.errors import TwinbusError
from twinbus.pairing.backlog_queues import backlog_path
from twinbus.spark.browser import Browser, Extent, Unreachable
from twinbus.spark.drain.books import Books, books_of
from twinbus.spark.drain.options import DrainOptions
from twinbus.spark.drain.plan import Shard, plan
from twinbus.spark.drain.rounds import parallelism, refuse_speculation, run_round
from twinbus.spark.drain.shard import ShardReport
from twinbus.syphon.presence import FOR_GOOD
from twinbus.syphon.progress import RateGauge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_S = 2.0
Ending = Literal["empty", "stuck"]


@dataclass(frozen=True, slots=True)
class DrainProgress:
    """What can be seen from outside while tasks are at work: one peek a queue."""

    round: int
    tasks: int
    left: int
    """About how many are still in the backlog."""
    gone: int
    """About how many left it since the first look."""
    rate: float
    """Messages a second, over the last ten seconds."""
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"seconds": round(self.seconds, 1), "rate": round(self.rate)}


@dataclass(slots=True)
class Drained:
    """How a drain ended."""

    ending: Ending = "empty"
    rounds: int = 0
    seconds: float = 0.0
    found: int = 0
    """About how many were there at the first look."""
    left: int = 0
    reports: list[ShardReport] = field(default_factory=list)
    """Of the attempts that came to an end; those that were killed tell nothing here."""
    books: Books | None = None
    """What all attempts wrote down, the killed ones too; None without a ledger."""
    missing: dict[int, str] = field(default_factory=dict)
    """Backlog queues that do not exist or may not be read, and why."""
    out_of_sight: str = ""
    """Why nobody could look into the backlog after the last round: `left` is what was there before it."""

    @property
    def troubles(self) -> list[str]:
        told = [*(report.trouble for report in self.reports), self.out_of_sight]
        return list(dict.fromkeys(trouble for trouble in told if trouble))

    def count(self, name: str) -> int:
        """A sum over everybody: from the ledger where there is one."""
        if self.books is not None and hasattr(self.books, name):
            return int(getattr(self.books, name))
        return sum(getattr(report, name) for report in self.reports)

    @property
    def by_executor(self) -> dict[str, int]:
        """Who moved how many, as far as attempts came to an end."""
        shares: dict[str, int] = {}
        for report in self.reports:
            shares[report.executor] = shares.get(report.executor, 0) + report.moved
        return shares

    def as_dict(self) -> dict[str, Any]:
        counts = ("moved", "repeated", "in_doubt", "refused", "expired")
        return {
            "ending": self.ending,
            "rounds": self.rounds,
            "seconds": round(self.seconds, 3),
            "found": self.found,
            "left": self.left,
            **{name: self.count(name) for name in counts},
            "counted_from": "tasks" if self.books is None else "ledger",
            "killed_attempts": None if self.books is None else self.books.killed,
            "executors": self.by_executor,
            "troubles": self.troubles,
            "missing_queues": {str(index): text for index, text in self.missing.items()},
        }


def drain(
    spark: SparkSession,
    options: DrainOptions,
    *,
    on_progress: Callable[[DrainProgress], None] = lambda _progress: None,
    every_s: float = LOOK_S,
) -> Drained:
    """Bring the whole backlog home; how it went.

    `ending` is "empty" only if a look at the queues themselves, after the tasks, found nothing: messages that a killed
    task had under lock come back and are waited for. "stuck": a round moved nothing, or the secondary is gone, and
    `troubles` says why. Raises `TwinbusError` if the secondary cannot be looked into at first, or Spark gives up.
    """
    refuse_speculation(spark)
    with Browser(options.secondary.namespace().dial(options.attempt_s), options.attempt_s) as browser:
        driver = _Driver(spark, options, browser, on_progress, every_s)
        done = driver.run()
    if options.ledger is not None and done.rounds:
        done.books = books_of(options.ledger, options.run)
    return done


class _Driver:
    def __init__(
        self,
        spark: SparkSession,
        options: DrainOptions,
        browser: Browser,
        on_progress: Callable[[DrainProgress], None],
        every_s: float,
    ) -> None:
        self._spark = spark
        self._options = options
        self._browser = browser
        self._tell = on_progress
        self._every_s = every_s
        self._began_s = time.monotonic()
        self._gauge = RateGauge(0)
        self._done = Drained()
        self._paths = {index: backlog_path(options.primary_name, index) for index in range(options.queue_count)}

    def run(self) -> Drained:
        done = self._done
        extents = self._first_look()
        done.found = sum(each.depth for each in extents.values())
        while extents:
            done.rounds += 1
            reports = self._round(extents)
            done.reports += reports
            try:
                extents = self._waiting()
            except Unreachable as error:
                done.ending, done.out_of_sight = "stuck", str(error)
                break
            if extents and not sum(report.gone for report in reports):
                done.ending = "stuck"
                break
        done.left = sum(each.depth for each in extents.values())
        done.seconds = time.monotonic() - self._began_s
        return done

    def _first_look(self) -> dict[int, Extent]:
        """As `_waiting`; queues that can never be read are left out. Raises `TwinbusError` if not one can be."""
        found, refusals = self._browser.waiting_or_refused(list(self._paths.values()))
        for index, path in list(self._paths.items()):
            failure = refusals.get(path)
            if failure is None:
                continue
            if failure.kind not in FOR_GOOD:
                raise Unreachable(f"{path}: {failure}", failure)
            del self._paths[index]
            self._done.missing[index] = str(failure)
        if not self._paths:
            reason = next(iter(self._done.missing.values()))
            raise TwinbusError(f"no backlog queue of {self._options.primary_name} can be read: {reason}")
        return self._by_index(found)

    def _waiting(self) -> dict[int, Extent]:
        """The queues in which something waits, under lock or not, and about how much."""
        return self._by_index(self._browser.waiting(list(self._paths.values())))

    def _by_index(self, found: Mapping[str, Extent]) -> dict[int, Extent]:
        return {index: found[path] for index, path in self._paths.items() if path in found}

    def _round(self, extents: Mapping[int, Extent]) -> list[ShardReport]:
        options = self._options
        shards = plan(
            {index: extent.depth for index, extent in extents.items()},
            options.tasks or parallelism(self._spark),
            in_order=options.order is not None,
        )
        self._show(extents, shards)
        return run_round(
            self._spark, options, shards, every_s=self._every_s, look=lambda: self._show(self._rest(extents), shards)
        )

    def _rest(self, extents: Mapping[int, Extent]) -> dict[int, Extent]:
        """What is left of these, by the first number that is still there: one peek a queue."""
        try:
            firsts = self._browser.firsts({self._paths[index]: extent.first for index, extent in extents.items()})
        except Unreachable:
            return dict(extents)  # a look that failed is no news: the tasks know better
        left = {index: firsts[self._paths[index]] for index in extents if self._paths[index] in firsts}
        return {index: Extent(first, extents[index].last) for index, first in left.items()}

    def _show(self, extents: Mapping[int, Extent], shards: list[Shard]) -> None:
        left = sum(max(0, each.depth) for each in extents.values())
        gone = max(0, self._done.found - left)
        seconds = time.monotonic() - self._began_s
        now_ms = int(seconds * 1000)
        self._gauge.note(now_ms, gone)
        self._tell(DrainProgress(self._done.rounds, len(shards), left, gone, self._gauge.rate(now_ms, gone), seconds))
