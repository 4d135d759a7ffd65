"""Outages and availability of each entity, as clients saw them."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812

from twinbus.ledger.kinds import Kind
from twinbus.spark.transforms.accounts import SENT, is_kind
from twinbus.spark.transforms.selection import LedgerSelection, is_chosen_entity, overlaps_window

CHANGES = (Kind.SUSPECTED, Kind.FAILED_OVER, Kind.RECOVERED)
BY_CLIENTS = (*CHANGES, *SENT, Kind.PING, Kind.PROBED, Kind.IN_DOUBT, Kind.NOT_SENT)


def changes(steps: DataFrame) -> DataFrame:
    """One row for each change of an entity's state in a process: `entity`, `process`, `number`, `kind`, `at_ms`."""
    is_change = is_kind(*CHANGES) & (F.col("entity") != "") & (F.col("position") == 0)
    return steps.where(is_change).select(F.lower("entity").alias("entity"), "process", "number", "kind", "at_ms")


def detours(changes: DataFrame) -> DataFrame:
    """One row for each failover of a process: `entity`, `process`, `suspected_ms` (when it began to fail),
    `failed_over_ms`, `recovered_ms` (null: not recorded).
    """
    in_order = Window.partitionBy("entity", "process").orderBy("number")
    known = changes.select(
        "entity",
        "process",
        "kind",
        F.col("at_ms").alias("failed_over_ms"),
        F.lag("kind").over(in_order).alias("kind_before"),
        F.lag("at_ms").over(in_order).alias("before_ms"),
        _next_recovered(in_order).alias("recovered_ms"),
    )
    suspected_ms = F.when(F.col("kind_before") == Kind.SUSPECTED, F.col("before_ms"))
    return known.where(F.col("kind") == Kind.FAILED_OVER).select(
        "entity",
        "process",
        F.coalesce(suspected_ms, "failed_over_ms").alias("suspected_ms"),
        "failed_over_ms",
        "recovered_ms",
    )


def _next_recovered(in_order: WindowSpec) -> Column:
    after = in_order.rowsBetween(1, Window.unboundedFollowing)
    return F.first(F.when(F.col("kind") == Kind.RECOVERED, F.col("at_ms")), ignorenulls=True).over(after)


def outages(detours: DataFrame) -> DataFrame:
    """One row per outage of an entity: overlapping detours of all processes together.

    `suspected_ms`, `failed_over_ms` (the first), `recovered_ms` (the last; null: one was not recorded), `processes`,
    `failovers` (more than processes: one failed over repeatedly).
    """
    far = F.lit(1 << 62)
    ends = F.coalesce("recovered_ms", far)
    before = Window.partitionBy("entity").orderBy("suspected_ms", "failed_over_ms", "process")
    so_far = before.rowsBetween(Window.unboundedPreceding, -1)
    begins = F.coalesce(F.col("suspected_ms") > F.max(ends).over(so_far), F.lit(True))
    islands = detours.withColumn("_begins", begins.cast("int")).withColumn(
        "outage", F.sum("_begins").over(before.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    )
    return (
        islands.groupBy("entity", "outage")
        .agg(
            F.min("suspected_ms").alias("suspected_ms"),
            F.min("failed_over_ms").alias("failed_over_ms"),
            F.nullif(F.max(ends), far).alias("recovered_ms"),
            F.count_distinct("process").alias("processes"),
            F.count("*").alias("failovers"),
        )
        .orderBy("entity", "outage")
    )


def availability(outages: DataFrame, observed: DataFrame) -> DataFrame:
    """One row per entity that was sent to: `first_ms` to `last_ms` was observed, `outages`, `out_ms`, and the `share`
    of that time in which the primary took messages. An outage without an end lasts as long as was observed.
    """
    out_ms = F.greatest(F.coalesce("recovered_ms", "last_ms") - F.col("suspected_ms"), F.lit(0))
    joined = observed.join(outages, "entity", "left")
    totals = joined.groupBy("entity", "first_ms", "last_ms").agg(
        F.count("outage").alias("outages"), F.coalesce(F.sum(out_ms), F.lit(0)).alias("out_ms")
    )
    span = F.col("last_ms") - F.col("first_ms")
    return totals.withColumn("share", F.when(span > 0, 1 - F.col("out_ms") / span)).orderBy("entity")


def cut_outages(outages: DataFrame, selection: LedgerSelection) -> DataFrame:
    """The part of each outage that is in the window; what began before or ended after it begins or ends with it."""
    found = outages.where(overlaps_window(selection, "suspected_ms", "recovered_ms") & is_chosen_entity(selection))
    return found.withColumns(
        {
            "suspected_ms": F.greatest("suspected_ms", F.lit(selection.begin_ms)),
            "failed_over_ms": F.least(F.greatest("failed_over_ms", F.lit(selection.begin_ms)), F.lit(selection.end_ms)),
            "recovered_ms": F.when(F.col("recovered_ms") < selection.end_ms, F.col("recovered_ms")),
        }
    )


def cut_observed(observed: DataFrame, selection: LedgerSelection) -> DataFrame:
    """The part of each entity's time that is in the window."""
    found = observed.where(overlaps_window(selection, "first_ms", "last_ms") & is_chosen_entity(selection))
    return found.select(
        "entity",
        F.greatest("first_ms", F.lit(selection.begin_ms)).alias("first_ms"),
        F.least("last_ms", F.lit(selection.end_ms)).alias("last_ms"),
    )


def observed(steps: DataFrame) -> DataFrame:
    """One row per entity that a client sent to or probed: `entity`, `first_ms`, `last_ms`."""
    about = steps.where(is_kind(*BY_CLIENTS) & (F.col("entity") != ""))
    return about.groupBy(F.lower("entity").alias("entity")).agg(
        F.min("at_ms").alias("first_ms"), F.max("at_ms").alias("last_ms")
    )
