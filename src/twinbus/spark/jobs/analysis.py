"""Runs every query of a report on a store."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F  # noqa: N812

from twinbus.cost.bill import Bill, Use, beside, bills
from twinbus.cost.prices import Prices
from twinbus.cost.stages import Stage
from twinbus.spark.compaction.clocks import ProcessClocks, find_clocks
from twinbus.spark.compaction.compaction import CompactedLedger
from twinbus.spark.compaction.coverage import MissingRecords, StoreCoverage, ending_of, find_coverage
from twinbus.spark.compaction.namespace_records import primary_records, secondary_records
from twinbus.spark.compaction.primaries import split_name, unidentified_namespaces, unique_names
from twinbus.spark.jobs import kept_findings
from twinbus.spark.jobs.balance_frames import BalanceFrames, collect_rows, open_balance
from twinbus.spark.jobs.compaction import steps_of_files
from twinbus.spark.jobs.findings import (
    CHECKED_CLASSES,
    MINOR_SKEW_MS,
    WRONG_CLOCK_MS,
    AwayMessages,
    Findings,
    Reconciliation,
    Row,
    hours_out,
    widen_horizon,
    with_clock_warning,
)
from twinbus.spark.jobs.persisting import persisted
from twinbus.spark.jobs.presence import with_absent_in_window
from twinbus.spark.jobs.tables import AT_ONCE
from twinbus.spark.report.service_counts import CountComparison
from twinbus.spark.transforms import availability as outage_times
from twinbus.spark.transforms import ordering as order
from twinbus.spark.transforms.accounts import holder_number
from twinbus.spark.transforms.cost import uses
from twinbus.spark.transforms.message_states import (
    IN_BACKLOG,
    OPEN_STATES,
    message_states,
    state_counts,
    without_removed,
)
from twinbus.spark.transforms.queue_contents import with_place
from twinbus.spark.transforms.reconciliation import Evidence, named, reconciliation, verdict_table, verdicts
from twinbus.spark.transforms.selection import ALL, LedgerSelection, is_chosen, is_chosen_entity, overlaps_window
from twinbus.spark.transforms.traffic import flow
from twinbus.spark.transforms.verdict_names import ACCEPTED_CLASSES, WAITING
from twinbus.units import clock_time_or_ms

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NAMED_MAX, SESSIONS_MAX = 200, 50


class ChosenMessages(NamedTuple):
    """What a report is about, and what is asked for beside it."""

    selection: LedgerSelection = ALL
    write_verdicts: Callable[[DataFrame], None] | None = None
    """Gets the verdict table of the selection."""
    compare: Callable[[DataFrame], list[CountComparison]] | None = None
    """Gets the accounts of all messages, and compares them with counts that the service keeps."""


EVERYTHING = ChosenMessages()


def analyse(
    spark: SparkSession,
    compacted: CompactedLedger,
    prices: Prices,
    *,
    horizon_min: int,
    tell: Callable[[str], None],
    note: Callable[[str], None] | None = None,
    name: Callable[[Row], None] | None = None,
    chosen: ChosenMessages = EVERYTHING,
) -> Findings:
    """All results of a report; what earlier runs have read is not read again.

    `tell` gets progress, `note` what has to be read, `name` every message to check, also those beyond the first.
    """
    tell("accounting for every message")
    with open_balance(spark, compacted, note=note or tell) as frames:
        tell("looking at outages, order, flow and cost")
        found = _run_queries(frames, prices, horizon_min, name, chosen)
        if chosen == EVERYTHING:
            kept_findings.save(frames.compacted, prices, found, horizon_min=horizon_min)
        return found


def _run_queries(
    frames: BalanceFrames, prices: Prices, horizon_min: int, name: Callable[[Row], None] | None, chosen: ChosenMessages
) -> Findings:
    """All queries at once: most of the time of a small one goes into planning it."""
    selection = chosen.selection
    on_record = find_coverage(frames.compacted)
    coverage = with_absent_in_window(on_record, frames.compacted, selection)
    evidence = find_evidence(frames.compacted, on_record, horizon_min, coverage)
    outages = outage_times.outages(outage_times.detours(frames.changes))
    observed, traffic = frames.observed, frames.traffic
    cut = outages
    if not selection.is_all:
        cut, observed = outage_times.cut_outages(outages, selection), outage_times.cut_observed(observed, selection)
        traffic = traffic.where(_in_window(selection, frames.balance.bucket_ms))
        outages = outages.where(
            overlaps_window(selection, "suspected_ms", "recovered_ms") & is_chosen_entity(selection)
        )
    with ThreadPoolExecutor(AT_ONCE) as at_once:
        in_order = at_once.submit(_check_order, frames, selection)
        reconciled = at_once.submit(lambda: _reconcile(frames, coverage, evidence, name, chosen))
        out = at_once.submit(collect_rows, outages)
        cut_out = out if cut is outages else at_once.submit(collect_rows, cut)
        available = at_once.submit(collect_rows, outage_times.availability(cut, observed))
        # The depth of the backlog adds up from the beginning: all of it is computed, and then cut.
        moved = at_once.submit(
            collect_rows, flow(frames.traffic).where(_in_window(selection, frames.balance.bucket_ms))
        )
        paid = at_once.submit(actual_cost, traffic, prices)
        counted = at_once.submit(lambda: [] if chosen.compare is None else chosen.compare(frames.accounts))
    by_entity, sessions_hurt = in_order.result()
    processes = frames.compacted.manifest.processes.values()
    doubts = [*_unidentified(frames, selection), *(each.doubt for each in counted.result() if each.doubt)]
    doubts += _unproven_silence(coverage, reconciled.result())
    return Findings(
        coverage=with_clock_warning(coverage, reconciled.result()),
        reconciliation=replace(reconciled.result(), unsure=tuple(doubts)),
        outages=out.result(),
        availability=available.result(),
        ordering=by_entity,
        sessions_hurt=sessions_hurt,
        flow=moved.result(),
        bucket_ms=frames.balance.bucket_ms,
        bills=paid.result(),
        prices_as_of=prices.as_of,
        alternatives=[
            beside(each, hours_out(each.month, cut_out.result(), min(coverage.last_ms, selection.end_ms)), prices)
            for each in paid.result()
        ],
        selection=selection,
        made_ms=frames.compacted.read_ms,
        primaries=tuple(unique_names(name for each in processes for name in each.primaries)),
        secondaries=tuple(unique_names(name for each in processes for name in each.secondaries)),
        counts=counted.result(),
    )


def _in_window(selection: LedgerSelection, bucket_ms: int) -> Column:
    """Whether a bucket of time has a part in the window."""
    return overlaps_window(selection, "bucket_ms", F.col("bucket_ms") + (bucket_ms - 1))


def _reconcile(
    frames: BalanceFrames,
    coverage: StoreCoverage,
    evidence: Evidence,
    name: Callable[[Row], None] | None,
    chosen: ChosenMessages,
) -> Reconciliation:
    watched, selection = _watched(frames, evidence), chosen.selection
    states = message_states(frames.accounts.where(is_chosen(selection)))
    counts = frames.state_counts.where(is_chosen_entity(selection))
    if selection.has_window:  # the counts that are kept have no times
        counts = state_counts(states)
    write = None
    if (write_verdicts := chosen.write_verdicts) is not None:

        def write(found: DataFrame) -> None:
            write_verdicts(verdict_table(states, found, frames.compacted.read_ms))

    return reconcile(frames.state_counts, watched, coverage, evidence, name, ChosenCounts(selection, counts, write))


def _watched(frames: BalanceFrames, evidence: Evidence) -> DataFrame:
    watched = without_removed(frames.watched, frames.removals)
    if not evidence.secondary.is_kept:
        return watched
    steps = steps_of_files(frames.spark, frames.compacted.store, frames.compacted.manifest.files)
    return with_place(watched, IN_BACKLOG, steps)


def find_evidence(
    compacted: CompactedLedger, coverage: StoreCoverage, horizon_min: int, in_window: StoreCoverage | None = None
) -> Evidence:
    """What the manifest shows beside the messages themselves.

    Whoever is absent `in_window` takes nothing from what a namespace's own ledger proves: when that was not kept, it
    shows itself. What it hides is what became of the others: syphons bring messages home, clients receive them.
    """
    processes = compacted.manifest.processes
    killed = [
        holder_number(name)
        for name, process in processes.items()
        if ending_of(name, process, compacted.running) == "killed"
    ]
    primary, secondary = primary_records(compacted, coverage), secondary_records(compacted, coverage)
    gaps = (in_window or coverage).missing
    missing = {each.process for each in gaps}
    clocks = find_clocks(processes, primary.processes, secondary.processes, missing)
    until_ms = max((each.until_ms for each in gaps), default=0)
    return Evidence(horizon_min, until_ms, primary, tuple(killed), secondary, clocks)


class ChosenCounts(NamedTuple):
    """Which messages to judge."""

    selection: LedgerSelection = ALL
    counts: DataFrame | None = None
    """The state counts of these; None: of all."""
    write: Callable[[DataFrame], None] | None = None
    """Gets the verdicts of those that are watched."""


def reconcile(
    state_counts: DataFrame,
    watched: DataFrame,
    coverage: StoreCoverage,
    evidence: Evidence,
    name: Callable[[Row], None] | None = None,
    chosen: ChosenCounts | None = None,
) -> Reconciliation:
    """How many messages have which verdict; computed twice if clocks disagree by more than a second.

    `name` gets every message to check. Those that were not chosen are still evidence: how far they have gone, and how
    clocks compare by them, decides about the others.
    """
    chosen = chosen or ChosenCounts()
    selection, counts = chosen.selection, state_counts if chosen.counts is None else chosen.counts
    found = verdicts(watched, state_counts, evidence).where(is_chosen(selection))
    rows = collect_rows(reconciliation(counts, found))
    seen = rows if selection.is_all else collect_rows(state_counts.agg(F.max("backwards_ms").alias("backwards_ms")))
    backwards_ms = max((row["backwards_ms"] or 0 for row in seen), default=0)
    if backwards_ms > MINOR_SKEW_MS:
        horizon_min, until_ms = widen_horizon(evidence.horizon_min, evidence.missing_until_ms, backwards_ms)
        evidence = evidence._replace(horizon_min=horizon_min, missing_until_ms=until_ms)
        found = verdicts(watched, state_counts, evidence).where(is_chosen(selection))
        rows = collect_rows(reconciliation(counts, found))
    if chosen.write is not None:
        chosen.write(found)
    to_check = named(found, CHECKED_CLASSES)
    if name is not None:
        for each in to_check.toLocalIterator():
            name(each.asDict())
    has_named = any(row["verdict"] in CHECKED_CLASSES for row in rows)
    entities: dict[str, dict[str, int]] = {}
    for row in sorted(rows, key=lambda row: (row["entity"], row["verdict"])):
        counted = entities.setdefault(row["entity"], {})
        counted[row["verdict"]] = counted.get(row["verdict"], 0) + row["messages"]
    away = {row["entity"]: AwayMessages(row["away"], row["away_ms"]) for row in rows if row["away"]}
    is_in_time = backwards_ms <= WRONG_CLOCK_MS
    return Reconciliation(
        entities=entities,
        overtaken=sum(row["overtaken"] for row in rows if row["verdict"] == WAITING),
        named=collect_rows(to_check.limit(NAMED_MAX)) if has_named else [],
        horizon_min=evidence.horizon_min,
        backwards_ms=backwards_ms,
        coverage_is_complete=coverage.is_complete and is_in_time,
        knows_all_accepted=knows_all_accepted(coverage, selection, evidence.clocks) and is_in_time,
        is_kept_throughout=selection.has_window and coverage.unkept is None,
        held=sum(row["held"] for row in rows),
        held_since_ms=min((row["held_ms"] for row in rows if row["held"]), default=0),
        away=away,
    )


def knows_all_accepted(coverage: StoreCoverage, selection: LedgerSelection, clocks: ProcessClocks) -> bool:
    """Whether every message of the selection that was accepted has a record of it.

    A process records an acceptance with its own clock. So records that are missing before or after the window hide no
    acceptance in it, if that clock was measured, also allowing for how far it was set.
    """
    set_ms = {each.process: each.set_ms for each in clocks.known}

    def may_hide(each: MissingRecords) -> bool:
        by_ms = set_ms.get(each.process)
        return by_ms is None or selection.overlaps(each.since_ms - by_ms, each.until_ms + by_ms)

    return not any(each.hides_accepted and may_hide(each) for each in coverage.missing)


def _unidentified(frames: BalanceFrames, selection: LedgerSelection) -> list[str]:
    """Why the answer is unknown, whatever the records say: a namespace may be the primary under another name, or a
    name that was asked for is nowhere.
    """
    namespaces = unidentified_namespaces(frames.compacted.manifest.processes.values())
    if not namespaces and not selection.entities:
        return []
    rows = collect_rows(frames.state_counts.select("entity", "state").distinct())
    ours = {row["entity"] for row in rows if row["state"] in (*ACCEPTED_CLASSES, *OPEN_STATES)}
    theirs = [split_name(row["entity"]) for row in rows]
    unclear = sorted({namespace for namespace, path in theirs if namespace in namespaces and path in ours})
    called = {*(row["entity"] for row in rows), *frames.balance.observed}
    asked = [LedgerSelection(entities=(each,)) for each in selection.entities]
    absent = [each.entities[0] for each in asked if not any(map(each.has_entity, called))]
    unknown = [f"no entity on record is called {each}" for each in absent]
    if not unclear:
        return unknown
    text = (
        f"{', '.join(unclear)} keeps a ledger about entities that clients send to, but they call their primary by "
        "another name: give both the same (primary_name=, or TwinbusNamespace= in the connection string)"
    )
    return [text, *unknown]


def _unproven_silence(coverage: StoreCoverage, found: Reconciliation) -> list[str]:
    """Why the answer is unknown if a window has no message: for a while nobody who takes messages kept a ledger."""
    if found.accepted or coverage.unkept is None:
        return []
    since, until = map(clock_time_or_ms, coverage.unkept)
    return [f"no message is on record, and from {since} to {until} UTC nobody who takes messages kept a ledger"]


def _by_session(frames: BalanceFrames, selection: LedgerSelection) -> DataFrame:
    if not selection.has_window:
        stretches = order.with_later_arrivals(frames.stretches)
        return order.session_totals(order.replace_torn(stretches, frames.repaired)).where(is_chosen_entity(selection))
    # Stretches have no times. What was sent before the window delays nothing in it; what was sent after it may.
    since = selection._replace(until_ms=None)
    sent = order.sent_messages(frames.accounts.where(is_chosen(since)), "first_ms")
    return order.ordering_by_session(sent, is_chosen(selection))


def _check_order(frames: BalanceFrames, selection: LedgerSelection = ALL) -> tuple[list[Row], list[Row]]:
    """Damage to order: by entity, and the sessions with the most late messages."""
    with persisted(_by_session(frames, selection)) as by_session:
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


def actual_cost(traffic: DataFrame, prices: Prices) -> list[Bill]:
    """A bill for each month."""
    used = (
        (row["month"], Stage(row["stage"]), Use(row["messages"], row["documents"], row["full"], row["bytes"]))
        for row in collect_rows(uses(traffic))
    )
    return bills(used, prices)
