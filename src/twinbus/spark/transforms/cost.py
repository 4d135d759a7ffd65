"""Billable use by month and stage, by both rules of counting; `twinbus.cost` computes the price."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from twinbus.cost.stages import (
    CHARGES,
    IN_BACKLOG,
    RECORDED_BY_NAMESPACES,
    RECORDED_BY_RECEIVERS,
    Charge,
    Stage,
)
from twinbus.ledger.kinds import Kind
from twinbus.spark.transforms.traffic import DAY_MS

LAST_MS = 253_402_300_799_999
"""The end of the year 9999: a time beyond all calendars counts in their last month."""


def uses(traffic: DataFrame) -> DataFrame:
    """One row per month and stage: `messages`, operations by the rules `documents` and `full`, and `bytes`.

    What receivers recorded counts in months without deliveries recorded by the namespace.
    """
    at_ms = F.least(F.greatest("bucket_ms", F.lit(0)), F.lit(LAST_MS))
    # By days since 1970 and not as a timestamp: that would be a month of the session's time zone.
    day = F.date_from_unix_date(F.floor(at_ms / DAY_MS).cast("int"))
    month = F.substring(day.cast("string"), 1, 7).alias("month")
    totals = traffic.groupBy(month, "kind", "in_backlog", "is_settled").agg(
        *(F.sum(name).alias(name) for name in ("messages", "operations", "sized_operations", "bytes"))
    )
    return _charged(totals)


def _charged(totals: DataFrame) -> DataFrame:
    """The few rows of all kinds as charges, added up by stage."""
    charges = F.explode(F.array(*(_charge(each) for each in CHARGES))).alias("charge")
    charged = totals.select("*", charges).where(F.col("charge.kind") == F.col("kind"))
    is_free = F.col("is_settled") & ((F.col("charge.stage") == Stage.SETTLE) | (F.col("kind") == Kind.DEAD_LETTERED))
    # What a syphon puts among the dead letters of the backlog has a record of its receiving.
    is_received_before = (
        F.col("in_backlog") & (F.col("kind") == Kind.DEAD_LETTERED) & (F.col("charge.stage") == Stage.RECEIVE)
    )
    charged = charged.where(~is_free & ~is_received_before)
    was_taken = ~((F.col("charge.stage") == Stage.PING) & F.col("is_settled"))
    sized = F.when(F.col("charge.by_size"), F.col("sized_operations")).otherwise(F.col("operations"))
    operations = F.when(was_taken, sized).otherwise(0)
    return (
        charged.groupBy("month", _stage().alias("stage"))
        .agg(
            _total(F.col("messages")).alias("messages"),
            _total(F.when(F.col("charge.in_documents"), F.col("operations")).otherwise(0)).alias("documents"),
            _total(operations).alias("full"),
            _total(F.when(F.col("charge.carries") & was_taken, F.col("bytes")).otherwise(0)).alias("bytes"),
        )
        .orderBy("month", "stage")
    )


def _total(value: Column) -> Column:
    """What receivers took counts once: as the namespace recorded it or, if it recorded nothing, as receivers did."""
    kind = F.col("kind")
    without_receivers = F.sum(F.when(~kind.isin(*map(str, RECORDED_BY_RECEIVERS)), value))
    return F.when(F.bool_or(kind.isin(*map(str, RECORDED_BY_NAMESPACES))), without_receivers).otherwise(F.sum(value))


def _charge(charge: Charge) -> Column:
    fields = {name: F.lit(str(value) if isinstance(value, str) else value) for name, value in charge._asdict().items()}
    return F.struct(*(value.alias(name) for name, value in fields.items()))


def _stage() -> Column:
    stage = F.col("charge.stage")
    # A syphon waits at backlog queues; other waits are the application's.
    instead = F.when((stage == Stage.IDLE) & ~F.col("in_backlog"), F.lit(str(Stage.RECEIVE))).otherwise(stage)
    for usual, in_backlog in IN_BACKLOG.items():
        instead = F.when(F.col("in_backlog") & (stage == usual), F.lit(str(in_backlog))).otherwise(instead)
    return instead
