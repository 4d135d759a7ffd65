"""Rounds of tasks until nothing is left in the backlog. The driver peeks and plans; it never takes a message."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from twinbus.errors import TwinbusError
from twinbus.ledger.options import LedgerOptions, ship_to_or_variable
from twinbus.ledger.upkeep.ship_thread import ShipThread
from twinbus.ledger.upkeep.shipping import place_for
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.pairing.sending.failure import Failure
from twinbus.spark.drain.ledger_counts import counts_of
from twinbus.spark.drain.options import DrainOptions
from twinbus.spark.drain.plan import QueueExtent, Shard, plan, share_pace, tasks_for
from twinbus.spark.drain.result import DrainProgress, DrainResult
from twinbus.spark.drain.rounds import refuse_speculation, run_round
from twinbus.spark.drain.shard import KILLED_AMONG_FIRST, ShardReport
from twinbus.spark.drain.steering import DrainSteering, steered
from twinbus.spark.drain.width import is_local, width_of
from twinbus.spark.queue_browser import QueueBrowser, QueueUnreachable
from twinbus.syphon.peeking.backlog_scan import (
    count_quarantined,
    count_unlisted,
    first_order_problem,
    has_wanted,
    order_error,
)
from twinbus.syphon.peeking.queue_discovery import ABSENT, FOR_GOOD, SHUT, DiscoveredQueues, QueueDiscovery
from twinbus.syphon.progress import RateGauge
from twinbus.syphon.pump.pace import Pace
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.failures import ConnectionFailed
from twinbus.transport.links.annotations import is_waiting, sequence_of
from twinbus.transport.links.peek import last_sequence, peek

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from twinbus.transport.dial import Dial

PROGRESS_S = 2.0
SHIP_S_MAX = 30.0
"""How long a drain may take longer for its ledger."""
TICKS = "rate-micro-batch"


def drain(
    spark: SparkSession,
    options: DrainOptions,
    *,
    on_progress: Callable[[DrainProgress], None] = lambda _progress: None,
    on_first: Callable[[int], bool] = lambda _moved: False,
    every_s: float = PROGRESS_S,
    counts_quarantine: bool = True,
) -> DrainResult:
    """Bring the whole backlog home; how it went. The values of `ending`:

    "empty": a check of all existing backlog queues, after the tasks, found nothing. Messages that a killed task had
    under lock are waited for. "chosen": only messages for entities that are not listed were left. "unsure": nothing
    was found, but there may be more queues, or one cannot be emptied; `doubt` says why. "stuck": a round moved
    nothing, or the secondary cannot be reached; `troubles` says why. "order unknown": a message is in a queue that is
    not its own. "first": as many as `first` said are home, and `on_first`, which gets their number, wants no
    more.

    Raises `TwinbusError` if the secondary cannot be read at first, if order cannot be promised from the start, or if
    Spark gives up. `counts_quarantine`: count what is in quarantine at the end; a peek a queue if nothing is.
    """
    refuse_speculation(spark)
    dial = options.secondary.namespace().dial(options.attempt_s)
    with QueueBrowser(dial, options.attempt_s) as browser:
        with DrainSteering(options, dial.ledger_name, is_local=is_local(spark)) as steering:
            driver = _Driver(spark, steering, dial, browser, on_progress, on_first, every_s)
            done = driver.run()
        if done.ending == "empty":
            driver.check_end(counts_quarantine=counts_quarantine)
    if options.ledger is not None and done.rounds:
        done.recorded = counts_of(options.ledger, options.run)
    return done


def extents_of(spark: SparkSession, options: DrainOptions) -> dict[int, QueueExtent]:
    """The backlog queues in which something waits, by index, and about how much. Raises as `drain` does."""
    dial = options.secondary.namespace().dial(options.attempt_s)
    with QueueBrowser(dial, options.attempt_s) as browser, DrainSteering(options, "", is_local=False) as steering:
        return _Driver(spark, steering, dial, browser, lambda _: None, lambda _: False, PROGRESS_S).look()


class _Driver:
    def __init__(
        self,
        spark: SparkSession,
        steering: DrainSteering,
        dial: Dial,
        browser: QueueBrowser,
        on_progress: Callable[[DrainProgress], None],
        on_first: Callable[[int], bool],
        every_s: float,
    ) -> None:
        options = steering.options
        self._spark = spark
        self._steering = steering
        self._options = options
        self._on_first = on_first
        self._dial = dial
        self._browser = browser
        self._discovery = QueueDiscovery(dial, options.primary_name, options.queue_count, attempt_s=options.attempt_s)
        self._on_progress = on_progress
        self._every_s = every_s
        self._began_s = time.monotonic()
        self._gauge = RateGauge(0)
        self._done = DrainResult()
        self._pace = Pace(options.syphon(), 0)
        self._paths: dict[int, str] = {}
        """By index, the queues that can be emptied."""
        self._shut: tuple[int, ...] = ()
        """Those that cannot; senders have spread sessions over them too."""

    def run(self) -> DrainResult:
        done = self._done
        extents = self.look()
        done.found = sum(each.depth for each in extents.values())
        moved_s = time.monotonic()
        with ExitStack() as stack:
            if extents:
                stack.enter_context(steered(self._steering))
                stack.enter_context(_shipped(self._options))
            while extents:
                asked = self._use_pace(self._steering.next_round())
                done.rounds += 1
                reports = self._round(extents)
                done.add(reports)
                self._steering.round_ended(reports, asked)
                try:
                    extents = self._waiting()
                except QueueUnreachable as error:
                    done.ending, done.unreadable = "stuck", str(error)
                    break
                if any(report.gone for report in reports) or self._steering.take_told():
                    moved_s = time.monotonic()
                if self._has_ended(reports, extents, time.monotonic() - moved_s):
                    break
        done.left = sum(each.depth for each in extents.values())
        done.seconds = time.monotonic() - self._began_s
        return done

    def _use_pace(self, options: DrainOptions) -> DrainOptions:
        self._options = replace(options, order_over=self._options.order_over)
        self._pace = Pace(self._options.syphon(), 0)
        return options

    def _has_ended(self, reports: Sequence[ShardReport], extents: Mapping[int, QueueExtent], idle_s: float) -> bool:
        """Whether there is no further round, although messages are left."""
        done = self._done
        done.order_problem = next((each.order_problem for each in reports if each.order_problem), "")
        if done.order_problem:
            done.ending = "order unknown"
        elif self._steering.is_first_over and extents:
            if self._on_first(sum(report.moved for report in done.reports)):
                self._steering.go_on()
            else:
                done.ending = "first"
        elif any(KILLED_AMONG_FIRST in each.trouble for each in reports):
            done.ending = "first"
        elif extents and not any(report.gone for report in reports):
            is_patient = all(report.is_cut for report in reports) and idle_s < self._options.patience_s
            done.ending = done.ending if is_patient else "stuck"
        return done.ending != "empty"

    def look(self) -> dict[int, QueueExtent]:
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
            raise order_error(problem)
        self._options = replace(options, order_over=over)

    def _waiting(self) -> dict[int, QueueExtent]:
        """The queues in which something waits, under lock or not, and about how much. Looks for further ones, too."""
        queues = self._find()
        self._shut = tuple(queues.shut)
        emptied = [index for index in queues.queues if index not in queues.shut]  # of the others `doubt` speaks
        paths = {index: backlog_path(self._options.primary_name, index) for index in emptied}
        found = self._browser.ask_all(list(paths.values()), _extent)
        for index, path in list(paths.items()):
            failure = found[path]
            if not isinstance(failure, Failure):
                continue
            if failure.kind not in FOR_GOOD | SHUT:
                raise QueueUnreachable(f"{path}: {failure}", failure)
            del paths[index]
            self._done.missing[index] = str(failure)
            if failure.kind not in ABSENT:
                self._done.doubt = f"unknown whether messages are in {path}: {failure}"
        self._paths = paths
        extents = {index: each for index, path in paths.items() if isinstance(each := found[path], QueueExtent)}
        if self._pace.has_filter:
            extents = {index: each for index, each in extents.items() if self._has_wanted(paths[index])}
        further = {*self._done.extra, *(index for index in extents if index >= queues.queue_count)}
        self._done.extra = sorted(further)
        return extents

    def _has_wanted(self, path: str) -> bool:
        return self._browser.ask(path, lambda connection: has_wanted(connection, path, self._pace.wants))

    def _find(self) -> DiscoveredQueues:
        found = self._browser.run("the backlog", self._discovery.search)
        self._done.doubt = found.doubt
        self._done.missing |= {index: str(failure) for index, failure in found.missing.items()}
        return found

    def check_end(self, *, counts_quarantine: bool) -> None:
        """Nothing waits any more in what can be seen: whether that is all, and what did not come home."""
        done = self._done
        if done.doubt is not None:
            done.ending = "unsure"
        name, queues, pace = self._options.primary_name, list(self._paths), self._pace
        try:
            done.unlisted = 0
            if self._options.entities is not None:
                done.unlisted = self._browser.ask(
                    "the backlog", lambda connection: count_unlisted(connection, name, queues, pace.allows)
                )
        except QueueUnreachable as error:
            done.ending, done.doubt = "unsure", f"unknown whether messages for other entities stay: {error}"
        if done.unlisted and done.ending == "empty":
            done.ending = "chosen"
        if self._options.enqueued_before is not None and done.ending == "empty":
            done.ending = "chosen"  # what came since is not looked at
        if not counts_quarantine:
            return
        try:
            done.quarantined = self._browser.ask(
                "the quarantine", lambda connection: count_quarantined(connection, name, queues, pace.wants)
            )
        except QueueUnreachable as error:
            done.ending, done.doubt = "unsure", f"unknown whether messages are in quarantine: {error}"

    def _round(self, extents: Mapping[int, QueueExtent]) -> list[ShardReport]:
        options = self._options
        depths = {index: each.depth for index, each in extents.items()}
        shards = shards_of(depths, options, options.tasks or width_of(self._spark, sum(depths.values())))
        self._show(extents, shards)
        return run_round(
            self._spark, options, shards, every_s=self._every_s, look=lambda: self._show(self._rest(extents), shards)
        )

    def _rest(self, extents: Mapping[int, QueueExtent]) -> dict[int, QueueExtent]:
        """What is left of these, by the first number that is still there: one peek a queue."""
        begins = {self._paths[index]: extent.first for index, extent in extents.items()}
        try:
            found = self._browser.ask_all(
                list(begins), lambda connection, path: peek(connection, path, begins[path], 1)
            )
        except QueueUnreachable:
            return dict(extents)  # the tasks know better whether that is an outage
        heads = {index: found[self._paths[index]] for index in extents}
        return {index: QueueExtent(sequence_of(head[0]), extents[index].last) for index, head in heads.items() if head}

    def _show(self, extents: Mapping[int, QueueExtent], shards: list[Shard]) -> None:
        left = sum(max(0, each.depth) for each in extents.values())
        gone = max(0, self._done.found - left)
        seconds = time.monotonic() - self._began_s
        now_ms = int(seconds * 1000)
        self._gauge.add_sample(now_ms, gone)
        rate = self._gauge.rate(now_ms, gone)
        progress = DrainProgress(self._done.rounds, len(shards), left, gone, rate, seconds)
        self._steering.show(progress)
        self._on_progress(progress)


@contextmanager
def _shipped(options: DrainOptions) -> Iterator[None]:
    """Segments that tasks finish are copied meanwhile; each task ends its own before it reports."""
    ship_to = ship_to_or_variable(options.ledger_ship_to)
    if options.ledger is None or ship_to is None:
        yield
        return
    ledger = LedgerOptions(directory=Path(options.ledger), ship_to=ship_to)
    place_for(ledger.directory, ship_to)
    shipping = ShipThread(ledger, process=None)
    shipping.start()
    try:
        yield
    finally:
        shipping.end(SHIP_S_MAX)


def shards_of(depths: Mapping[int, int], options: DrainOptions, width: int) -> list[Shard]:
    """The tasks of one round: as many as there is room for and as the pace needs."""
    tasks = tasks_for(width, options.rate, options.first)
    shards = plan(depths, tasks, in_order=options.order is not None)
    return share_pace(shards, options.rate, options.first)


async def _extent(connection: NamespaceConnection, path: str) -> QueueExtent | Failure | None:
    """None if no message waits, under lock or not; the failure if only this queue cannot be read."""
    try:
        found = await peek(connection, path, 1, 1)
        if not found:
            return None
        if not is_waiting(found[0]) and not await has_wanted(connection, path, lambda _path, _since_ms: True):
            return None
        first = sequence_of(found[0])
        return QueueExtent(first, await last_sequence(connection, path, first))
    except ConnectionFailed as error:
        if not connection.is_open:
            raise
        return error.failure


def drain_every(
    spark: SparkSession,
    options: DrainOptions,
    every_s: float,
    checkpoint: str,
    *,
    on_drained: Callable[[DrainResult], None],
    on_trouble: Callable[[TwinbusError], None],
    on_progress: Callable[[DrainProgress], None],
) -> StreamingQuery:
    """A running query that drains at each tick of a structured stream; `stop` ends it.

    A tick that is run again after a crash only means "drain now" once more. A tick that finds the backlog empty costs a
    peek a queue and a search for further queues, and starts no task. What fails at one tick goes to `on_trouble`.
    """
    refuse_speculation(spark)

    def tick(_rows: DataFrame, _number: int) -> None:
        try:
            fresh = replace(options, run=token_hex(4))
            on_drained(drain(spark, fresh, on_progress=on_progress, counts_quarantine=False))
        except TwinbusError as error:
            on_trouble(error)

    ticks = spark.readStream.format(TICKS).option("rowsPerBatch", 1).option("numPartitions", 1).load()
    writer = ticks.writeStream.foreachBatch(tick).option("checkpointLocation", checkpoint)
    return writer.trigger(processingTime=f"{round(every_s * 1000)} milliseconds").start()
