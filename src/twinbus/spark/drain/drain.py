"""Rounds of tasks until nothing is left in the backlog. The driver looks and plans; it never touches a message."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from twinbus.errors import TwinbusError
from twinbus.pairing.backlog_queues import backlog_path
from twinbus.spark.browser import Browser, Extent, Unreachable
from twinbus.spark.drain.books import Books, books_of
from twinbus.spark.drain.options import DrainOptions
from twinbus.spark.drain.plan import Shard, plan
from twinbus.spark.drain.rounds import parallelism, refuse_speculation, run_round
from twinbus.spark.drain.shard import ShardReport
from twinbus.syphon.order_check import first_order_problem, order_refused
from twinbus.syphon.pace import Pace
from twinbus.syphon.progress import RateGauge
from twinbus.syphon.queue_search import ABSENT, FOR_GOOD, SHUT, BacklogQueues, QueueSearch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twinbus.dial import Dial

LOOK_S = 2.0
Ending = Literal["empty", "chosen", "unsure", "stuck", "order unknown"]


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
    extra: list[int] = field(default_factory=list)
    """Backlog queues beyond the count in which messages were: a sender elsewhere has more. They are home too."""
    doubt: str | None = None
    """Why the backlog cannot be called empty, though all that can be seen is home."""
    order_problem: str = ""
    """Why order cannot be promised any more; what is concerned stays in the backlog."""
    quarantined: int | None = None
    """How many messages are in quarantine, of earlier runs too, up to 10,000; None: nobody has looked, or could."""
    outside: int | None = None
    """How many messages stay, because the entity that they are for was not named, up to 10,000; None as above."""
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
            "extra_queues": self.extra,
            "doubt": self.doubt,
            "order_problem": self.order_problem or None,
            "quarantined": self.quarantined,
            "outside_left": self.outside,
            "missing_queues": {str(index): text for index, text in self.missing.items()},
        }


def drain(
    spark: SparkSession,
    options: DrainOptions,
    *,
    on_progress: Callable[[DrainProgress], None] = lambda _progress: None,
    every_s: float = LOOK_S,
    counts_quarantine: bool = True,
) -> Drained:
    """Bring the whole backlog home; how it went.

    `ending` is "empty" only if a look at all backlog queues there are, after the tasks, found nothing: messages that a
    killed task had under lock come back and are waited for. "chosen": only messages for entities that were not named
    were there. "unsure": the same, but nobody can say whether there are
    more queues, or one cannot be emptied, and `doubt` says why. "stuck": a round moved nothing, or the secondary is
    gone; `troubles` says why. "order unknown": a message lies in a queue that is not its own. Raises `TwinbusError` if
    the secondary cannot be looked into at first, if order cannot be promised from the start, or Spark gives up. With
    `counts_quarantine` it counts what is in quarantine at the end: a peek a queue if nothing is.
    """
    refuse_speculation(spark)
    dial = options.secondary.namespace().dial(options.attempt_s)
    with Browser(dial, options.attempt_s) as browser:
        driver = _Driver(spark, options, dial, browser, on_progress, every_s)
        done = driver.run()
        if done.ending == "empty":
            driver.judge(counts_quarantine=counts_quarantine)
    if options.ledger is not None and done.rounds:
        done.books = books_of(options.ledger, options.run)
    return done


class _Driver:
    def __init__(
        self,
        spark: SparkSession,
        options: DrainOptions,
        dial: Dial,
        browser: Browser,
        on_progress: Callable[[DrainProgress], None],
        every_s: float,
    ) -> None:
        self._spark = spark
        self._options = options
        self._dial = dial
        self._browser = browser
        self._search = QueueSearch(dial, options.primary_name, options.queue_count, attempt_s=options.attempt_s)
        self._tell = on_progress
        self._every_s = every_s
        self._began_s = time.monotonic()
        self._gauge = RateGauge(0)
        self._done = Drained()
        self._pace = Pace(options.syphon(), 0)
        self._paths: dict[int, str] = {}
        """By index, the queues that can be emptied."""
        self._shut: tuple[int, ...] = ()
        """Those that cannot; senders have spread sessions over them too."""

    def run(self) -> Drained:
        done = self._done
        extents = self._first_look()
        done.found = sum(each.depth for each in extents.values())
        while extents:
            done.rounds += 1
            reports = self._round(extents)
            done.reports += reports
            done.order_problem = next((each.order_problem for each in reports if each.order_problem), "")
            if done.order_problem:
                done.ending = "order unknown"
                break
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
        """As `_waiting`; queues that can never be read are left out. Raises `TwinbusError` if not one is there."""
        extents = self._waiting()
        if not self._paths and self._done.missing:
            reason = next(iter(self._done.missing.values()))
            raise TwinbusError(f"no backlog queue of {self._options.primary_name} can be read: {reason}")
        if self._options.order is not None:
            self._check_order()
        return extents

    def _check_order(self) -> None:
        """Raises `TwinbusError` if a message is in sight whose order is not known; every task looks at the others."""
        options, queues = self._options, list(self._paths)
        over = tuple(sorted([index for index in {*queues, *self._shut} if index < options.queue_count]))
        problem = self._browser.run(
            "the backlog",
            lambda: first_order_problem(
                self._dial, options.primary_name, queues, over, self._pace.wants, attempt_s=options.attempt_s
            ),
        )
        if problem is not None:
            raise order_refused(problem)
        self._options = replace(options, order_over=over)

    def _waiting(self) -> dict[int, Extent]:
        """The queues in which something waits, under lock or not, and about how much. Looks for further ones, too."""
        queues = self._find()
        self._shut = tuple(queues.shut)
        emptied = [index for index in queues.queues if index not in queues.shut]  # of the others `doubt` speaks
        paths = {index: backlog_path(self._options.primary_name, index) for index in emptied}
        found, refusals = self._browser.waiting_or_refused(list(paths.values()))
        for index, path in list(paths.items()):
            failure = refusals.get(path)
            if failure is None:
                continue
            if failure.kind not in FOR_GOOD | SHUT:
                raise Unreachable(f"{path}: {failure}", failure)
            del paths[index]
            self._done.missing[index] = str(failure)
            if failure.kind not in ABSENT:
                self._done.doubt = f"whether messages lie in {path} cannot be told: {failure}"
        self._paths = paths
        extents = {index: found[path] for index, path in paths.items() if path in found}
        if self._options.entities is not None:
            wants = self._pace.wants
            extents = {each: far for each, far in extents.items() if self._browser.has_wanted(paths[each], wants)}
        further = {*self._done.extra, *(index for index in extents if index >= queues.queue_count)}
        self._done.extra = sorted(further)
        return extents

    def _find(self) -> BacklogQueues:
        found = self._browser.run("the backlog", self._search.look)
        self._done.doubt = found.doubt
        self._done.missing |= {index: str(failure) for index, failure in found.missing.items()}
        return found

    def judge(self, *, counts_quarantine: bool) -> None:
        """Nothing waits any more in what can be seen: whether that is all, and what did not come home."""
        done = self._done
        if done.doubt is not None:
            done.ending = "unsure"
        name, queues, pace = self._options.primary_name, list(self._paths), self._pace
        try:
            done.outside = 0 if self._options.entities is None else self._browser.others(name, queues, pace.allows)
        except Unreachable as error:
            done.ending, done.doubt = "unsure", f"whether messages for other entities stay cannot be told: {error}"
        if done.outside and done.ending == "empty":
            done.ending = "chosen"
        if not counts_quarantine:
            return
        try:
            done.quarantined = self._browser.quarantined(name, queues, pace.wants)
        except Unreachable as error:
            done.ending, done.doubt = "unsure", f"whether messages are in quarantine cannot be told: {error}"

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
