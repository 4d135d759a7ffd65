"""Asks a store everything that a report shows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812

from twinbus.cost.alternatives import beside
from twinbus.cost.bill import Bill, Use, bills
from twinbus.cost.prices import Prices
from twinbus.cost.stages import Stage
from twinbus.spark.compaction.compaction import Compacted
from twinbus.spark.compaction.coverage import Coverage, coverage_of, ending_of
from twinbus.spark.compaction.machines import clocks_of
from twinbus.spark.compaction.primaries import split_name, strangers
from twinbus.spark.compaction.told import silence_of, silence_of_secondary
from twinbus.spark.jobs import skew
from twinbus.spark.jobs.bookkeeping import Books, books, rows_of
from twinbus.spark.jobs.compaction import steps_of_files
from twinbus.spark.jobs.findings import WORTH_A_LOOK, Findings, Reconciliation, Row
from twinbus.spark.jobs.outage_hours import hours_out
from twinbus.spark.jobs.tables import AT_ONCE
from twinbus.spark.transforms import availability as outage_times
from twinbus.spark.transforms import ordering as order
from twinbus.spark.transforms import reconciliation as fate
from twinbus.spark.transforms.accounts import holder_number
from twinbus.spark.transforms.classes import ACCEPTED_CLASSES, WAITING
from twinbus.spark.transforms.cost import uses
from twinbus.spark.transforms.flow import flow
from twinbus.spark.transforms.in_queues import with_place
from twinbus.spark.transforms.reconciliation import Known
from twinbus.spark.transforms.tallies import counts, verdicts, without_removed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Tell = Callable[[str], None]
NAMED_MAX, SESSIONS_MAX = 200, 50


def analyse(
    spark: SparkSession,
    compacted: Compacted,
    prices: Prices,
    *,
    horizon_min: int,
    tell: Tell,
    note: Tell | None = None,
    name: Callable[[Row], None] | None = None,
) -> Findings:
    """Everything that the store says. What earlier runs have looked at is not looked at again.

    `note` is given what has to be read, `name` every message to look at, also those beyond the first.
    """
    tell("accounting for every message")
    with books(spark, compacted, note=note or tell) as found:
        tell("looking at outages, order, flow and cost")
        return asked(found, prices, horizon_min=horizon_min, name=name)


def asked(books: Books, prices: Prices, *, horizon_min: int, name: Callable[[Row], None] | None = None) -> Findings:
    """All questions at once: most of the time that a small one takes goes into planning it."""
    coverage = coverage_of(books.compacted)
    known = known_of(books.compacted, coverage, horizon_min)
    with ThreadPoolExecutor(AT_ONCE) as at_once:
        in_order = at_once.submit(ordered, books)
        reconciled = at_once.submit(lambda: reconcile(books.tallies, looked_at(books, known), coverage, known, name))
        strange = strangers(books.compacted.manifest.processes.values())
        out = at_once.submit(lambda: rows_of(outages(books)))
        available = at_once.submit(lambda: rows_of(outage_times.availability(outages(books), books.observed)))
        moved = at_once.submit(lambda: rows_of(flow(books.traffic)))
        paid = at_once.submit(lambda: actual_cost(books.traffic, prices))
    by_entity, sessions_hurt = in_order.result()
    out_times, months = out.result(), paid.result()
    return Findings(
        coverage=skew.told(coverage, reconciled.result().backwards_ms),
        reconciliation=_heeding(strange, reconciled.result()),
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


def looked_at(books: Books, known: Known) -> DataFrame:
    watched = without_removed(books.watched, books.removals)
    if not known.backlog.is_kept:
        return watched
    steps = steps_of_files(books.spark, books.compacted.store, books.compacted.manifest.files)
    return with_place(watched, fate.IN_BACKLOG, steps)


def known_of(compacted: Compacted, coverage: Coverage, horizon_min: int) -> Known:
    """What has to be known beside the messages of a store to judge them."""
    killed = [
        holder_number(name)
        for name, process in compacted.manifest.processes.items()
        if ending_of(name, process, compacted.running) == "killed"
    ]
    primary, secondary = silence_of(compacted, coverage), silence_of_secondary(compacted, coverage)
    missing = {each.process for each in coverage.unknown}
    clocks = clocks_of(compacted.manifest.processes, primary.processes, secondary.processes, missing)
    return Known(horizon_min, coverage.dark_until_ms, primary, tuple(killed), secondary, clocks)


def reconcile(
    tallies: DataFrame,
    watched: DataFrame,
    coverage: Coverage,
    known: Known,
    name: Callable[[Row], None] | None = None,
) -> Reconciliation:
    """Where every message is. Looked at twice if clocks disagree by more than a second.

    `name` is given every message to look at.
    """
    judged = verdicts(watched, tallies, known)
    rows = rows_of(counts(tallies, judged))
    backwards_ms = max((row["backwards_ms"] or 0 for row in rows), default=0)
    if backwards_ms > skew.HEEDED_MS:
        heeded = skew.heeded(skew.Heeded(known.horizon_min, known.dark_until_ms), backwards_ms)
        known = known._replace(horizon_min=heeded.horizon_min, dark_until_ms=heeded.dark_until_ms)
        judged = verdicts(watched, tallies, known)
        rows = rows_of(counts(tallies, judged))
    if name is not None:
        for row in fate.named(judged, WORTH_A_LOOK).toLocalIterator():
            name(row.asDict())
    held = [row["held_ms"] for row in rows if row["held"]]
    return Reconciliation(
        entities=_by_entity(rows),
        overtaken=sum(row["overtaken"] for row in rows if row["verdict"] == WAITING),
        named=_named(judged, rows),
        horizon_min=known.horizon_min,
        backwards_ms=backwards_ms,
        coverage_is_complete=coverage.is_complete and not skew.is_wrong(backwards_ms),
        knows_all_accepted=coverage.knows_all_accepted and not skew.is_wrong(backwards_ms),
        held=sum(row["held"] for row in rows),
        held_since_ms=min(held, default=0),
    )


def _heeding(strangers: Collection[str], found: Reconciliation) -> Reconciliation:
    """The same; unknown if a namespace keeps a ledger that may be the primary's by another name."""
    ours = {entity for entity, classes in found.entities.items() if set(classes) & set(ACCEPTED_CLASSES)}
    theirs = [split_name(entity) for entity in found.entities]
    unclear = sorted({namespace for namespace, path in theirs if namespace in strangers and path in ours})
    if not unclear:
        return found
    text = (
        f"{', '.join(unclear)} keeps a ledger about entities that clients send to, but they call their primary by "
        "another name: give both the same (primary_name=, or TwinbusNamespace= in the connection string)"
    )
    return replace(found, unsure=(text,))


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
