"""Runs every query of a report on a store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812

from twinbus.cost.bill import Bill, Use, beside, bills
from twinbus.cost.prices import Prices
from twinbus.cost.stages import Stage
from twinbus.spark.compaction.clocks import find_clocks
from twinbus.spark.compaction.compaction import CompactedLedger
from twinbus.spark.compaction.coverage import StoreCoverage, ending_of, find_coverage
from twinbus.spark.compaction.namespace_records import primary_records, secondary_records
from twinbus.spark.compaction.primaries import split_name, unidentified_namespaces
from twinbus.spark.jobs import kept_findings
from twinbus.spark.jobs.balance_frames import BalanceFrames, collect_rows, open_balance
from twinbus.spark.jobs.compaction import steps_of_files
from twinbus.spark.jobs.findings import (
    CHECKED_CLASSES,
    MINOR_SKEW_MS,
    WRONG_CLOCK_MS,
    Findings,
    Reconciliation,
    Row,
    hours_out,
    widen_horizon,
    with_clock_warning,
)
from twinbus.spark.jobs.tables import AT_ONCE
from twinbus.spark.transforms import availability as outage_times
from twinbus.spark.transforms import ordering as order
from twinbus.spark.transforms.accounts import holder_number
from twinbus.spark.transforms.classes import ACCEPTED_CLASSES, WAITING
from twinbus.spark.transforms.cost import uses
from twinbus.spark.transforms.message_states import IN_BACKLOG, without_removed
from twinbus.spark.transforms.queue_contents import with_place
from twinbus.spark.transforms.reconciliation import Evidence, named, reconciliation, verdicts
from twinbus.spark.transforms.traffic import flow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAMED_MAX, SESSIONS_MAX = 200, 50


def analyse(
    spark: SparkSession,
    compacted: CompactedLedger,
    prices: Prices,
    *,
    horizon_min: int,
    tell: Callable[[str], None],
    note: Callable[[str], None] | None = None,
    name: Callable[[Row], None] | None = None,
) -> Findings:
    """All results of a report; what earlier runs have read is not read again.

    `tell` gets progress, `note` what has to be read, `name` every message to check, also those beyond the first.
    """
    tell("accounting for every message")
    with open_balance(spark, compacted, note=note or tell) as frames:
        tell("looking at outages, order, flow and cost")
        found = _run_queries(frames, prices, horizon_min, name)
        kept_findings.save(frames.compacted, prices, found, horizon_min=horizon_min)
        return found


def _run_queries(
    frames: BalanceFrames, prices: Prices, horizon_min: int, name: Callable[[Row], None] | None
) -> Findings:
    """All queries at once: most of the time of a small one goes into planning it."""
    coverage = find_coverage(frames.compacted)
    evidence = find_evidence(frames.compacted, coverage, horizon_min)
    outages = outage_times.outages(outage_times.detours(frames.changes))
    with ThreadPoolExecutor(AT_ONCE) as at_once:
        in_order = at_once.submit(_check_order, frames)
        reconciled = at_once.submit(
            lambda: reconcile(frames.state_counts, _watched(frames, evidence), coverage, evidence, name)
        )
        out = at_once.submit(collect_rows, outages)
        available = at_once.submit(collect_rows, outage_times.availability(outages, frames.observed))
        moved = at_once.submit(collect_rows, flow(frames.traffic))
        paid = at_once.submit(actual_cost, frames.traffic, prices)
    by_entity, sessions_hurt = in_order.result()
    unidentified = unidentified_namespaces(frames.compacted.manifest.processes.values())
    return Findings(
        coverage=with_clock_warning(coverage, reconciled.result()),
        reconciliation=_doubt_if_unidentified(reconciled.result(), unidentified),
        outages=out.result(),
        availability=available.result(),
        ordering=by_entity,
        sessions_hurt=sessions_hurt,
        flow=moved.result(),
        bucket_ms=frames.balance.bucket_ms,
        bills=paid.result(),
        prices_as_of=prices.as_of,
        alternatives=[
            beside(each, hours_out(each.month, out.result(), coverage.last_ms), prices) for each in paid.result()
        ],
    )


def _watched(frames: BalanceFrames, evidence: Evidence) -> DataFrame:
    watched = without_removed(frames.watched, frames.removals)
    if not evidence.secondary.is_kept:
        return watched
    steps = steps_of_files(frames.spark, frames.compacted.store, frames.compacted.manifest.files)
    return with_place(watched, IN_BACKLOG, steps)


def find_evidence(compacted: CompactedLedger, coverage: StoreCoverage, horizon_min: int) -> Evidence:
    """What the manifest shows beside the messages themselves."""
    processes = compacted.manifest.processes
    killed = [
        holder_number(name)
        for name, process in processes.items()
        if ending_of(name, process, compacted.running) == "killed"
    ]
    primary, secondary = primary_records(compacted, coverage), secondary_records(compacted, coverage)
    missing = {each.process for each in coverage.missing}
    clocks = find_clocks(processes, primary.processes, secondary.processes, missing)
    return Evidence(horizon_min, coverage.missing_until_ms, primary, tuple(killed), secondary, clocks)


def reconcile(
    state_counts: DataFrame,
    watched: DataFrame,
    coverage: StoreCoverage,
    evidence: Evidence,
    name: Callable[[Row], None] | None = None,
) -> Reconciliation:
    """How many messages have which verdict; computed twice if clocks disagree by more than a second.

    `name` gets every message to check.
    """
    found = verdicts(watched, state_counts, evidence)
    rows = collect_rows(reconciliation(state_counts, found))
    backwards_ms = max((row["backwards_ms"] or 0 for row in rows), default=0)
    if backwards_ms > MINOR_SKEW_MS:
        horizon_min, until_ms = widen_horizon(evidence.horizon_min, evidence.missing_until_ms, backwards_ms)
        evidence = evidence._replace(horizon_min=horizon_min, missing_until_ms=until_ms)
        found = verdicts(watched, state_counts, evidence)
        rows = collect_rows(reconciliation(state_counts, found))
    to_check = named(found, CHECKED_CLASSES)
    if name is not None:
        for each in to_check.toLocalIterator():
            name(each.asDict())
    has_named = any(row["verdict"] in CHECKED_CLASSES for row in rows)
    entities: dict[str, dict[str, int]] = {}
    for row in sorted(rows, key=lambda row: (row["entity"], row["verdict"])):
        counted = entities.setdefault(row["entity"], {})
        counted[row["verdict"]] = counted.get(row["verdict"], 0) + row["messages"]
    is_in_time = backwards_ms <= WRONG_CLOCK_MS
    return Reconciliation(
        entities=entities,
        overtaken=sum(row["overtaken"] for row in rows if row["verdict"] == WAITING),
        named=collect_rows(to_check.limit(NAMED_MAX)) if has_named else [],
        horizon_min=evidence.horizon_min,
        backwards_ms=backwards_ms,
        coverage_is_complete=coverage.is_complete and is_in_time,
        knows_all_accepted=coverage.knows_all_accepted and is_in_time,
        held=sum(row["held"] for row in rows),
        held_since_ms=min((row["held_ms"] for row in rows if row["held"]), default=0),
    )


def _doubt_if_unidentified(found: Reconciliation, namespaces: Collection[str]) -> Reconciliation:
    """The same; unknown if one of these namespaces may be the primary under another name."""
    ours = {entity for entity, classes in found.entities.items() if set(classes) & set(ACCEPTED_CLASSES)}
    theirs = [split_name(entity) for entity in found.entities]
    unclear = sorted({namespace for namespace, path in theirs if namespace in namespaces and path in ours})
    if not unclear:
        return found
    text = (
        f"{', '.join(unclear)} keeps a ledger about entities that clients send to, but they call their primary by "
        "another name: give both the same (primary_name=, or TwinbusNamespace= in the connection string)"
    )
    return replace(found, unsure=(text,))


def _check_order(frames: BalanceFrames) -> tuple[list[Row], list[Row]]:
    """Damage to order: by entity, and the sessions with the most late messages."""
    stretches = order.with_later_arrivals(frames.stretches)
    with _persisted(order.session_totals(order.replace_torn(stretches, frames.repaired))) as by_session:
        by_entity = collect_rows(order.ordering(by_session))
        if not any(row["sessions_hurt"] for row in by_entity):
            return by_entity, []
        basis = [(row["entity"], row["basis"]) for row in by_entity]
        known = by_session.sparkSession.createDataFrame(basis, "entity STRING, basis STRING")
        hurt = order.sessions_hurt(by_session, known).orderBy(F.desc("late"), "session", "entity")
        worst = F.broadcast(hurt.limit(SESSIONS_MAX).select("entity", "session", "messages", "late"))
        with_names = frames.sessions.distinct().join(worst, "session", "right")
        in_order = with_names.orderBy(F.desc("late"), "session_id", "entity")
        return by_entity, collect_rows(in_order.select("entity", "session_id", "messages", "late"))


@contextmanager
def _persisted(frame: DataFrame) -> Iterator[DataFrame]:
    """The frame, computed once: in memory or, where that is too small, on disk."""
    held = frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield held
    finally:
        held.unpersist()


def actual_cost(traffic: DataFrame, prices: Prices) -> list[Bill]:
    """A bill for each month."""
    used = (
        (row["month"], Stage(row["stage"]), Use(row["messages"], row["documents"], row["full"], row["bytes"]))
        for row in collect_rows(uses(traffic))
    )
    return bills(used, prices)
