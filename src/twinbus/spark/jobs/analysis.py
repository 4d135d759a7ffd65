"""Asks a store everything that a report shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812

from twinbus.cost.alternatives import beside
from twinbus.cost.bill import Bill, Use, bills
from twinbus.cost.prices import Prices
from twinbus.cost.stages import Stage
from twinbus.spark.compaction.compaction import Compacted
from twinbus.spark.compaction.coverage import Coverage, coverage_of
from twinbus.spark.jobs.bookkeeping import Books, books, rows_of
from twinbus.spark.jobs.findings import WORTH_A_LOOK, Findings, Reconciliation, Row
from twinbus.spark.jobs.outage_hours import hours_out
from twinbus.spark.jobs.tables import AT_ONCE
from twinbus.spark.transforms import availability as outage_times
from twinbus.spark.transforms import ordering as order
from twinbus.spark.transforms import reconciliation as fate
from twinbus.spark.transforms.classes import WAITING
from twinbus.spark.transforms.cost import uses
from twinbus.spark.transforms.flow import flow
from twinbus.spark.transforms.tallies import counts, verdicts, without_removed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Tell = Callable[[str], None]
NAMED_MAX, SESSIONS_MAX = 200, 50
SKEW_HEEDED_MS = 1000


def analyse(spark: SparkSession, compacted: Compacted, prices: Prices, *, horizon_min: int, tell: Tell) -> Findings:
    """Everything that the store says. What earlier runs have looked at is not looked at again."""
    tell("accounting for every message")
    with books(spark, compacted) as found:
        tell("looking at outages, order, flow and cost")
        return asked(found, prices, horizon_min=horizon_min)


def asked(books: Books, prices: Prices, *, horizon_min: int) -> Findings:
    """All questions at once: most of the time that a small one takes goes into planning it."""
    coverage = coverage_of(books.compacted)
    with ThreadPoolExecutor(AT_ONCE) as at_once:
        in_order = at_once.submit(ordered, books)
        reconciled = at_once.submit(
            lambda: reconcile(books.tallies, looked_at(books), coverage, horizon_min=horizon_min)
        )
        out = at_once.submit(lambda: rows_of(outages(books)))
        available = at_once.submit(lambda: rows_of(outage_times.availability(outages(books), books.observed)))
        moved = at_once.submit(lambda: rows_of(flow(books.traffic)))
        paid = at_once.submit(lambda: actual_cost(books.traffic, prices))
    by_entity, sessions_hurt = in_order.result()
    out_times, months = out.result(), paid.result()
    return Findings(
        coverage=coverage,
        reconciliation=reconciled.result(),
        outages=out_times,
        availability=available.result(),
        ordering=by_entity,
        sessions_hurt=sessions_hurt,
        flow=moved.result(),
        bucket_ms=books.bucket_ms,
        bills=months,
        prices_as_of=prices.as_of,
        alternatives=[beside(each, hours_out(each.month, out_times, coverage.last_ms), prices) for each in months],
    )


def outages(books: Books) -> DataFrame:
    return outage_times.outages(outage_times.detours(books.changes))


def looked_at(books: Books) -> DataFrame:
    return without_removed(books.watched, books.removals)


def reconcile(tallies: DataFrame, watched: DataFrame, coverage: Coverage, *, horizon_min: int) -> Reconciliation:
    """Where every message is. Looked at twice if clocks disagree by more than a second: then the horizon is wider."""
    dark_until_ms, untold = coverage.dark_until_ms, coverage.untold
    judged = verdicts(watched, tallies, horizon_min=horizon_min, dark_until_ms=dark_until_ms, untold=untold)
    rows = rows_of(counts(tallies, judged))
    backwards_ms = max((row["backwards_ms"] or 0 for row in rows), default=0)
    if backwards_ms > SKEW_HEEDED_MS:
        horizon_min += -(-backwards_ms // 60_000)
        dark_until_ms += backwards_ms if dark_until_ms else 0
        judged = verdicts(watched, tallies, horizon_min=horizon_min, dark_until_ms=dark_until_ms, untold=untold)
        rows = rows_of(counts(tallies, judged))
    return Reconciliation(
        entities=_by_entity(rows),
        overtaken=sum(row["overtaken"] for row in rows if row["verdict"] == WAITING),
        named=_named(judged, rows),
        horizon_min=horizon_min,
        backwards_ms=backwards_ms,
        coverage_is_complete=coverage.is_complete,
        knows_all_accepted=coverage.knows_all_accepted,
    )


def _by_entity(rows: list[Row]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for row in sorted(rows, key=lambda row: (row["entity"], row["verdict"])):
        counted = found.setdefault(row["entity"], {})
        counted[row["verdict"]] = counted.get(row["verdict"], 0) + row["messages"]
    return found


def _named(judged: DataFrame, rows: list[Row]) -> list[Row]:
    """Messages to look at, by name: asked for only if there are any, because it takes the names along."""
    if not any(row["verdict"] in WORTH_A_LOOK for row in rows):
        return []
    return rows_of(fate.named(judged, WORTH_A_LOOK).limit(NAMED_MAX))


def ordered(books: Books) -> tuple[list[Row], list[Row]]:
    """Damage to order: entity by entity, and the sessions that suffered most, by name."""
    in_sessions = order.by_session(order.whole(order.together(books.stretches), books.mended))
    with kept(in_sessions) as by_session:
        by_entity = rows_of(order.ordering(by_session))
        if not any(row["sessions_hurt"] for row in by_entity):
            return by_entity, []
        basis = [(row["entity"], row["basis"]) for row in by_entity]
        known = by_session.sparkSession.createDataFrame(basis, "entity STRING, basis STRING")
        return by_entity, sessions_hurt(order.hurt(by_session, known), books.sessions)


@contextmanager
def kept(frame: DataFrame) -> Iterator[DataFrame]:
    """The frame, computed once for as long as it is needed; in memory or, where there is not enough, on disk."""
    held = frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield held
    finally:
        held.unpersist()


def sessions_hurt(hurt: DataFrame, names: DataFrame) -> list[Row]:
    """The sessions whose order suffered most, by name."""
    worst = hurt.orderBy(F.desc("late"), "session", "entity").limit(SESSIONS_MAX)
    named = names.distinct().join(
        F.broadcast(worst.select("entity", "session", "messages", "late")), "session", "right"
    )
    in_order = named.orderBy(F.desc("late"), "session_id", "entity")
    return rows_of(in_order.select("entity", "session_id", "messages", "late"))


def actual_cost(traffic: DataFrame, prices: Prices) -> list[Bill]:
    """A bill for each month."""
    used = (
        (row["month"], Stage(row["stage"]), Use(row["messages"], row["documents"], row["full"], row["bytes"]))
        for row in rows_of(uses(traffic))
    )
    return bills(used, prices)
