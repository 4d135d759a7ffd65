"""Asks a store everything that a report shows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel

from twinbus.cost.bill import Bill, Use, bills
from twinbus.cost.prices import Prices
from twinbus.cost.stages import Stage
from twinbus.spark.compaction.compaction import Compacted
from twinbus.spark.compaction.coverage import Coverage, coverage_of
from twinbus.spark.jobs.compaction import steps_in
from twinbus.spark.jobs.findings import WORTH_A_LOOK, Findings, Reconciliation, Row
from twinbus.spark.transforms import availability as outage_times
from twinbus.spark.transforms import ordering as order
from twinbus.spark.transforms import reconciliation as fate
from twinbus.spark.transforms.accounts import accounts
from twinbus.spark.transforms.classes import WAITING
from twinbus.spark.transforms.cost import uses
from twinbus.spark.transforms.flow import flow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

Tell = Callable[[str], None]
NAMED_MAX, SESSIONS_MAX, POINTS_MAX = 200, 50, 240
SKEW_HEEDED_MS = 1000
BUCKETS_MS = [round(1000 * seconds) for seconds in (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 21_600, 86_400)]


def analyse(spark: SparkSession, compacted: Compacted, prices: Prices, *, horizon_min: int, tell: Tell) -> Findings:
    """Everything that the store says."""
    steps, coverage = steps_in(spark, compacted), coverage_of(compacted)
    tell("accounting for every message")
    reconciled = reconcile(steps, coverage, horizon_min=horizon_min)
    tell("looking at outages, order, flow and cost")
    detours = outage_times.outages(outage_times.detours(steps))
    bucket_ms = bucket_for(coverage.last_ms - coverage.first_ms)
    with _kept(order.ordering_by_session(order.journeys(steps))) as by_session:
        return Findings(
            coverage=coverage,
            reconciliation=reconciled,
            outages=_rows(detours),
            availability=_rows(outage_times.availability(detours, outage_times.observed(steps))),
            ordering=_rows(order.ordering(by_session)),
            sessions_hurt=sessions_hurt(steps, by_session),
            flow=_rows(flow(steps, bucket_ms=bucket_ms)),
            bucket_ms=bucket_ms,
            bills=actual_cost(steps, prices),
            prices_as_of=prices.as_of,
        )


def reconcile(steps: DataFrame, coverage: Coverage, *, horizon_min: int) -> Reconciliation:
    """Where every message is. Looked at twice if clocks disagree by more than a second: then the horizon is wider."""
    dark_until_ms = coverage.dark_until_ms
    with _kept(fate.fates(accounts(steps).drop("message_id"))) as fates:
        rows = _rows(fate.reconciliation(fate.verdicts(fates, horizon_min=horizon_min, dark_until_ms=dark_until_ms)))
        backwards_ms = max((row["backwards_ms"] or 0 for row in rows), default=0)
        if backwards_ms > SKEW_HEEDED_MS:
            horizon_min += -(-backwards_ms // 60_000)
            dark_until_ms += backwards_ms if dark_until_ms else 0
            again = fate.verdicts(fates, horizon_min=horizon_min, dark_until_ms=dark_until_ms)
            rows = _rows(fate.reconciliation(again))
    return Reconciliation(
        entities=_by_entity(rows),
        overtaken=sum(row["overtaken"] for row in rows if row["verdict"] == WAITING),
        named=_named(steps, rows, horizon_min, dark_until_ms),
        horizon_min=horizon_min,
        backwards_ms=backwards_ms,
        coverage_is_complete=coverage.is_complete,
    )


def _by_entity(rows: list[Row]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        found.setdefault(row["entity"], {})[row["verdict"]] = row["messages"]
    return found


def _named(steps: DataFrame, rows: list[Row], horizon_min: int, dark_until_ms: int) -> list[Row]:
    """Messages to look at, by name: asked for only if there are any, because it takes the names along."""
    if not any(row["verdict"] in WORTH_A_LOOK for row in rows):
        return []
    judged = fate.verdicts(fate.fates(accounts(steps)), horizon_min=horizon_min, dark_until_ms=dark_until_ms)
    return _rows(fate.named(judged, WORTH_A_LOOK).limit(NAMED_MAX))


def sessions_hurt(steps: DataFrame, by_session: DataFrame) -> list[Row]:
    """The sessions whose order suffered most, by name."""
    from pyspark.sql import functions as F  # noqa: N812

    late = F.coalesce(*(F.nullif(F.col(f"{name}_late"), F.lit(0)) for name in order.ARRIVALS), F.lit(0))
    hurt = by_session.where(F.col("session").isNotNull() & (late > 0)).withColumn("late", late)
    worst = hurt.orderBy(F.desc("late"), "session").limit(SESSIONS_MAX).select("entity", "session", "messages", "late")
    if worst.isEmpty():
        return []
    named = order.session_names(steps, worst).select("entity", "session_id", "messages", "late")
    return _rows(named.orderBy(F.desc("late"), "session_id"))


def actual_cost(steps: DataFrame, prices: Prices) -> list[Bill]:
    """A bill for each month."""
    used = (
        (row["month"], Stage(row["stage"]), Use(row["messages"], row["documents"], row["full"], row["bytes"]))
        for row in _rows(uses(steps))
    )
    return bills(used, prices)


def bucket_for(span_ms: int) -> int:
    """The shortest bucket that gives a plot no more points than it can show."""
    return next((each for each in BUCKETS_MS if span_ms / each <= POINTS_MAX), BUCKETS_MS[-1])


@contextmanager
def _kept(frame: DataFrame) -> Iterator[DataFrame]:
    """The frame, computed once for as long as it is needed; in memory or, where there is not enough, on disk."""
    kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield kept
    finally:
        kept.unpersist()


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]
