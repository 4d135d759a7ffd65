"""What was used, stage by stage, by both rules of counting. Money comes later, from `twinbus.cost`."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from twinbus.cost.stages import CHARGES, IN_BACKLOG, RECEIVED_AND_DELETED, STEP_BYTES, Charge, Stage
from twinbus.ledger.kinds import Kind


def uses(steps: DataFrame) -> DataFrame:
    """One row per month and stage: `messages`, operations by the rules `documents` and `full`, and `bytes`."""
    tallies = steps.groupBy(
        F.date_format(F.timestamp_millis("at_ms"), "yyyy-MM").alias("month"),
        "kind",
        (F.col("queue") != "").alias("in_backlog"),
        (F.col("outcome") == RECEIVED_AND_DELETED).alias("is_settled"),
    ).agg(
        F.count("message_id").alias("messages"),
        F.sum(_operations()).alias("operations"),
        F.sum(_sized_operations()).alias("sized_operations"),
        F.sum(F.coalesce("size", F.lit(0)) + F.col("bytes")).alias("bytes"),
    )
    return _charged(tallies)


def _operations() -> Column:
    """One for each message; without messages one for each of `count`, or one if there is no count."""
    unlisted = F.when(F.col("message_id").isNull(), F.greatest("count", F.lit(1))).otherwise(F.col("count"))
    return F.col("message_id").isNotNull().cast("bigint") + unlisted


def _sized_operations() -> Column:
    """The same, with one for each started 64 KB of a message. What is not listed counts as evenly large."""
    listed = F.when(F.col("message_id").isNotNull(), _steps_in(F.coalesce("size", F.lit(0)))).otherwise(0)
    many = F.when(F.col("message_id").isNull(), F.greatest("count", F.lit(1))).otherwise(F.col("count"))
    each = F.when(F.col("count") > 0, F.col("bytes") / F.col("count")).otherwise(F.col("bytes"))
    return listed + many * _steps_in(each)


def _steps_in(size: Column) -> Column:
    return F.greatest(F.ceil(size / STEP_BYTES), F.lit(1)).cast("bigint")


def _charged(tallies: DataFrame) -> DataFrame:
    """The few rows of all kinds as charges, added up by stage."""
    charges = F.explode(F.array(*(_charge(each) for each in CHARGES))).alias("charge")
    charged = tallies.select("*", charges).where(F.col("charge.kind") == F.col("kind"))
    charged = charged.where(
        ~((F.col("charge.stage") == Stage.SETTLE) & (F.col("kind") == Kind.DELIVERED) & F.col("is_settled"))
    )
    operations = F.when(F.col("charge.by_size"), F.col("sized_operations")).otherwise(F.col("operations"))
    return (
        charged.groupBy("month", _stage().alias("stage"))
        .agg(
            F.sum("messages").alias("messages"),
            F.sum(F.when(F.col("charge.in_documents"), F.col("operations")).otherwise(0)).alias("documents"),
            F.sum(operations).alias("full"),
            F.sum(F.when(F.col("charge.carries"), F.col("bytes")).otherwise(0)).alias("bytes"),
        )
        .orderBy("month", "stage")
    )


def _charge(charge: Charge) -> Column:
    fields = {name: F.lit(str(value) if isinstance(value, str) else value) for name, value in charge._asdict().items()}
    return F.struct(*(value.alias(name) for name, value in fields.items()))


def _stage() -> Column:
    stage = F.col("charge.stage")
    instead = stage
    for usual, in_backlog in IN_BACKLOG.items():
        instead = F.when(F.col("in_backlog") & (stage == usual), F.lit(str(in_backlog))).otherwise(instead)
    return instead
