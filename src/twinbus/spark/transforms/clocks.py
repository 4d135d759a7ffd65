"""How well it is known when something happened that another machine tells of.

The clock of a process is compared with the primary's by the messages that both tell of. What it tells happened, by the
primary's clock, at most its *reach* earlier or later: the most by which both were ever seen to differ, and by how much
each of them was set. A process on the primary's own machine has the primary's clock. One that nothing compares has no
reach.
"""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from twinbus.spark.compaction.machines import Clock, Clocks

MINUTE_MS = 60_000
SAME_CLOCK_MS = 1000
"""By how much two records of one machine may be apart that tell of the same."""
_SCHEMA = pa.schema(
    [
        ("process", pa.string()),
        ("machine", pa.string()),
        ("set_ms", pa.int64()),
        ("is_primarys", pa.bool_()),
        ("is_secondarys", pa.bool_()),
    ]
)


def by_process(apart: DataFrame, clocks: Clocks) -> DataFrame:
    """One row per process, by its number: `machine`, `set_ms`, `is_primarys`, `is_secondarys`, and `apart_ms`."""
    rows = [dict(zip(Clock._fields, each, strict=True)) for each in clocks.known]
    listed = apart.sparkSession.createDataFrame(pa.Table.from_pylist(rows, _SCHEMA)).select(
        F.xxhash64("process").alias("process"),
        F.xxhash64("machine").alias("machine"),
        "set_ms",
        "is_primarys",
        "is_secondarys",
    )
    seen = apart.select(F.col("acked_by").alias("process"), "apart_ms")
    together = listed.unionByName(seen, allowMissingColumns=True)
    return together.groupBy("process").agg(*(F.max(name).alias(name) for name in together.columns if name != "process"))


def with_reach(frame: DataFrame, by_process: DataFrame, clocks: Clocks) -> DataFrame:
    """Add `reach_ms` of who told of the acknowledgement, and of the sender `machine`, `set_ms`, `sender_apart_ms` and
    `is_secondarys`.
    """
    col = F.col
    reach = F.coalesce("apart_ms", F.when(col("is_primarys"), SAME_CLOCK_MS)) + F.coalesce("set_ms", F.lit(0))
    located = frame
    for name in ("acked_by", "last_acked_by"):
        known = by_process.select(col("process").alias(name), (reach + clocks.primary_set_ms).alias(f"_{name}_ms"))
        located = located.join(F.broadcast(known), name, "left")
    of_sender = by_process.select(
        col("process").alias("sender"),
        col("machine").alias("_machine"),
        "set_ms",
        "is_secondarys",
        col("apart_ms").alias("sender_apart_ms"),
    )
    first, last = col("_acked_by_ms"), col("_last_acked_by_ms")
    return (
        located.join(F.broadcast(of_sender), "sender", "left")
        .withColumns(
            {
                "reach_ms": F.when(first.isNotNull() & last.isNotNull(), F.greatest(first, last)),
                "machine": F.coalesce("_machine", "sender"),
                "set_ms": F.coalesce("set_ms", F.lit(0)),
            }
        )
        .drop("_acked_by_ms", "_last_acked_by_ms", "_machine")
    )


def by_machine(own_home: DataFrame, by_process: DataFrame) -> DataFrame:
    """One row per entity, backlog queue and machine: `own_home_to_min`."""
    known = by_process.select(F.col("process").alias("sender"), F.col("machine").alias("_machine"))
    located = own_home.join(F.broadcast(known), "sender", "left")
    machine = F.coalesce("_machine", "sender").alias("machine")
    return located.groupBy("entity", "backlog_queue", machine).agg(F.max("own_home_to_min").alias("own_home_to_min"))


def queue_reach_ms(clocks: Clocks) -> Column:
    """The same as `reach_ms`, for what the secondary tells of its queues."""
    apart = F.coalesce("queue_apart_ms", F.when(F.col("is_secondarys"), SAME_CLOCK_MS))
    reach = F.greatest(apart, F.lit(SAME_CLOCK_MS)) + F.col("set_ms") + clocks.secondary_set_ms
    return F.when(apart.isNotNull() & F.col("sender").isNotNull(), reach)


def in_minutes(ms: Column) -> Column:
    """So many whole minutes, or one more."""
    return F.ceil(ms / MINUTE_MS).cast("bigint")
