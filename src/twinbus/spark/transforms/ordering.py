"""Was order kept? For each session, and for each entity, how many messages came after one that was sent later.

What was sent is in order within one sending process only. What arrived is looked at three times, as far as there are
records: as receivers were done with it, as the namespace stored it, and as the primary acknowledged it.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from twinbus.spark.transforms.accounts import ARRIVALS


def journeys(accounts: DataFrame) -> DataFrame:
    """One row per message that was sent: `entity`, `session`, `sender`, its place in what was sent, and for each way of
    looking at arrivals the moment and the place of the first.
    """
    arrivals = [f"{name}_{what}" for name in ARRIVALS for what in ("ms", "place")]
    return accounts.where(F.col("sent_place").isNotNull()).select(
        "entity", "session", "sender", "sent_place", *arrivals
    )


def with_lateness(journeys: DataFrame) -> DataFrame:
    """Add for each way of looking `<way>_late_ms`: how much later than one that was sent after it; null: not later."""
    before = (
        Window.partitionBy("entity", "session", "sender")
        .orderBy(F.desc("sent_place"))
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    for name in ARRIVALS:
        arrival = F.when(F.col(f"{name}_ms").isNotNull(), F.struct(f"{name}_ms", f"{name}_place"))
        earliest_of_later = F.min(arrival).over(before)
        late = F.when(arrival > earliest_of_later, F.col(f"{name}_ms") - earliest_of_later[f"{name}_ms"])
        journeys = journeys.withColumn(f"{name}_late_ms", late)
    return journeys


def ordering_by_session(journeys: DataFrame) -> DataFrame:
    """One row per entity and session (null: without): `messages`, and for each way of looking how many `arrived`, how
    many came `late`, after one that was sent later, and the `worst_ms` of it.
    """
    damage = with_lateness(journeys).groupBy("entity", "session")
    return damage.agg(F.count("*").alias("messages"), *(column for name in ARRIVALS for column in _damage(name)))


def _damage(name: str) -> list[Column]:
    return [
        F.count(f"{name}_ms").alias(f"{name}_arrived"),
        F.count(f"{name}_late_ms").alias(f"{name}_late"),
        F.max(f"{name}_late_ms").alias(f"{name}_worst_ms"),
    ]


def ordering(by_session: DataFrame) -> DataFrame:
    """One row per entity: `messages`, `sessions`, `basis` (the best way of looking that has records), `arrived`,
    `late`, `sessions_hurt` and `worst_ms`.
    """
    totals = by_session.groupBy("entity").agg(
        F.sum("messages").alias("messages"),
        F.count("session").alias("sessions"),
        *(column for name in ARRIVALS for column in _totals(name)),
    )
    basis = F.lit(None).cast("string")
    for name in reversed(ARRIVALS):
        basis = F.when(F.col(f"{name}_arrived") > 0, F.lit(name)).otherwise(basis)
    chosen = totals.withColumn("basis", basis)
    best = [_of_basis(column).alias(column) for column in ("arrived", "late", "sessions_hurt", "worst_ms")]
    return chosen.select("entity", "messages", "sessions", "basis", *best).orderBy("entity")


def _totals(name: str) -> list[Column]:
    return [
        F.sum(f"{name}_arrived").alias(f"{name}_arrived"),
        F.sum(f"{name}_late").alias(f"{name}_late"),
        F.count_if((F.col(f"{name}_late") > 0) & F.col("session").isNotNull()).alias(f"{name}_sessions_hurt"),
        F.max(f"{name}_worst_ms").alias(f"{name}_worst_ms"),
    ]


def _of_basis(column: str) -> Column:
    chosen: Column = F.lit(None).cast("bigint")
    for name in ARRIVALS:
        chosen = F.when(F.col("basis") == name, F.col(f"{name}_{column}")).otherwise(chosen)
    return chosen


def session_names(steps: DataFrame) -> DataFrame:
    """One row per session: `session` (its hash, as elsewhere) and `session_id`, its name."""
    named = steps.where(F.col("session_id").isNotNull())
    return named.select(F.xxhash64("session_id").alias("session"), "session_id").distinct()
