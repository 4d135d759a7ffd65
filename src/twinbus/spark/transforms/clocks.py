"""How exact the times of another machine's records are.

The clock of a machine is compared with the primary's by messages that both recorded. By the primary's clock, an event
of a process happened at most its *reach* earlier or later: the most by which both clocks were seen to differ, and by
how much each was set. A process on the primary's machine has the primary's clock. A process that nothing compares has
no reach, and neither has one whose clock, or the primary's, was not measured.
"""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from twinbus.spark.compaction.clocks import ProcessClock, ProcessClocks
from twinbus.spark.transforms.accounts import MINUTE_MS
from twinbus.spark.transforms.local_rows import frame_of

SAME_CLOCK_MS = 1000
"""How far apart two records of one event on one machine may be."""
_FLAGS = ("is_primarys", "is_secondarys", "is_missing", "is_missings")
_SCHEMA = pa.schema(
    [
        ("process", pa.string()),
        ("machine", pa.string()),
        ("set_ms", pa.int64()),
        *((name, pa.bool_()) for name in _FLAGS),
    ]
)


def by_process(apart: DataFrame, clocks: ProcessClocks) -> DataFrame:
    """One row per process, by its number: `machine`, `set_ms`, the flags of its clock, and `process_reach_ms`."""
    rows = [dict(zip(ProcessClock._fields, each, strict=True)) for each in clocks.known]
    listed = frame_of(apart.sparkSession, rows, _SCHEMA).select(
        F.xxhash64("process").alias("process"),
        F.xxhash64("machine").alias("machine"),
        "set_ms",
        *_FLAGS,
    )
    seen = apart.select(F.col("acked_by").alias("process"), "apart_ms")
    together = listed.unionByName(seen, allowMissingColumns=True)
    found = together.groupBy("process").agg(
        *(F.max(name).alias(name) for name in together.columns if name != "process")
    )
    of_machine = F.max("apart_ms").over(Window.partitionBy("machine"))
    differ = F.coalesce("apart_ms", F.when(F.col("is_primarys"), SAME_CLOCK_MS), of_machine)
    reach = differ + F.col("set_ms") + _or_null(clocks.primary_set_ms)
    return found.withColumn("process_reach_ms", reach).drop("apart_ms")


def _or_null(ms: int | None) -> Column:
    return F.lit(ms).cast("bigint")


def with_reach(frame: DataFrame, by_process: DataFrame, clocks: ProcessClocks) -> DataFrame:
    """Add `reach_ms` of the acknowledging process; of the sender `machine`, `set_ms`, `is_secondarys` and
    `is_missings`; and `missing_reach_ms`: by how much the times of the sender, and of processes with missing records,
    may differ.
    """
    col, located = F.col, frame
    for name in ("acked_by", "last_acked_by"):
        known = by_process.select(col("process").alias(name), col("process_reach_ms").alias(f"_{name}_ms"))
        located = located.join(F.broadcast(known), name, "left")
    of_sender = by_process.select(
        col("process").alias("sender"),
        col("machine").alias("_machine"),
        "set_ms",
        "is_secondarys",
        "is_missings",
        col("process_reach_ms").alias("_sender_ms"),
    )
    missing = by_process.where("is_missing")
    most = F.when(F.count("process_reach_ms") == clocks.missing, F.coalesce(F.max("process_reach_ms"), F.lit(0)))
    first, last = col("_acked_by_ms"), col("_last_acked_by_ms")
    return (
        located.join(F.broadcast(of_sender), "sender", "left")
        .crossJoin(F.broadcast(missing.agg(most.alias("_missing_ms"))))
        .withColumns(
            {
                "reach_ms": F.when(first.isNotNull() & last.isNotNull(), F.greatest(first, last)),
                "machine": F.coalesce("_machine", "sender"),
                "missing_reach_ms": col("_sender_ms") + col("_missing_ms"),
            }
        )
        .drop("_acked_by_ms", "_last_acked_by_ms", "_machine", "_sender_ms", "_missing_ms")
    )


def by_machine(own_home: DataFrame, by_process: DataFrame) -> DataFrame:
    """One row per entity, backlog queue and machine: `own_home_to_min`."""
    known = by_process.select(F.col("process").alias("sender"), F.col("machine").alias("_machine"))
    located = own_home.join(F.broadcast(known), "sender", "left")
    machine = F.coalesce("_machine", "sender").alias("machine")
    return located.groupBy("entity", "backlog_queue", machine).agg(F.max("own_home_to_min").alias("own_home_to_min"))


def queue_reach_ms(clocks: ProcessClocks) -> Column:
    """The same as `reach_ms`, for the secondary's records about its queues."""
    apart = F.coalesce("queue_apart_ms", F.when(F.col("is_secondarys"), SAME_CLOCK_MS))
    reach = F.greatest(apart, F.lit(SAME_CLOCK_MS)) + F.col("set_ms") + _or_null(clocks.secondary_set_ms)
    return F.when(apart.isNotNull() & F.col("sender").isNotNull(), reach)


def in_minutes(ms: Column) -> Column:
    """In whole minutes, rounded up."""
    return F.ceil(ms / MINUTE_MS).cast("bigint")
