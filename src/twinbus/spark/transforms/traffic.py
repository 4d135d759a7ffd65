"""How much of what happened when: a small table from which flow and cost follow."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from twinbus.cost.stages import AS_SENT, NOT_SETTLED, STEP_BYTES
from twinbus.ledger.kinds import DELIVERY_BYTES, Kind
from twinbus.spark.transforms.sums import Sum, Sums, added_up, put_together

DAY_MS = 86_400_000
KEY = ("bucket_ms", "kind", "in_backlog", "is_settled")
TOLD_TWICE = (Kind.STORED, Kind.DELIVERED, Kind.DEAD_LETTERED, Kind.EXPIRED, Kind.THROTTLED)
"""What a namespace tells of its backlog queues, without knowing for which entity: whoever did it has told, too."""


def traffic(steps: DataFrame, *, bucket_ms: int = DAY_MS) -> DataFrame:
    """One row per stretch of time (`bucket_ms` is its beginning), kind, side, and whether nobody had to settle it:
    `messages`, `operations`, operations by started 64 KB (`sized_operations`), and `bytes`.

    The rows of parts of a ledger can be added up. A stretch is a day or a whole part of one.
    """
    return added_up(steps.where(counts(steps)).withColumns(stretch(bucket_ms)), KEY, sums())


def counts(steps: DataFrame) -> Column:
    """Whether a step is traffic of the pair, and neither hearsay nor about an entity of another namespace."""
    is_hearsay = F.col("kind").isin(*map(str, TOLD_TWICE)) & (F.col("queue") != "") & (F.col("entity") == "")
    return ~is_hearsay & ~F.col("is_foreign") if "is_foreign" in steps.columns else ~is_hearsay


def stretch(bucket_ms: int) -> dict[str, Column]:
    """What traffic is added up by, besides its kind."""
    return {
        "bucket_ms": _beginning(F.col("at_ms"), bucket_ms),
        "in_backlog": F.col("queue") != "",
        "is_settled": F.col("outcome").isin(*NOT_SETTLED),
    }


def sums() -> Sums:
    """What traffic consists of."""
    return {
        "messages": Sum("sum", F.col("message_id").isNotNull().cast("bigint")),
        "operations": Sum("sum", _operations()),
        "sized_operations": Sum("sum", _sized_operations()),
        "bytes": Sum("sum", _size() + F.col("bytes")),
    }


def coarser(traffic: DataFrame, *, bucket_ms: int) -> DataFrame:
    """The same added up in longer stretches."""
    renamed = traffic.withColumn("bucket_ms", _beginning(F.col("bucket_ms"), bucket_ms))
    return put_together(renamed, KEY, sums())


def _beginning(at_ms: Column, bucket_ms: int) -> Column:
    return at_ms - F.pmod(at_ms, F.lit(bucket_ms))


def _operations() -> Column:
    """One for each message; without messages one for each of `count`, or one if there is no count."""
    return F.col("message_id").isNotNull().cast("bigint") + _unlisted()


def _unlisted() -> Column:
    """How many a step stands for besides its message. What is listed by number alone has a step for each."""
    is_listed = F.col("message_id").isNotNull()
    by_number = ~is_listed & F.col("sequence_number").isNotNull()
    return F.when(by_number, 1).when(is_listed, F.col("count")).otherwise(F.greatest("count", F.lit(1)))


def _sized_operations() -> Column:
    """The same, with one for each started 64 KB of a message. What is not listed counts as evenly large."""
    listed = F.when(F.col("message_id").isNotNull(), _steps_in(_size())).otherwise(0)
    each = F.when(F.col("count") > 0, F.col("bytes") / F.col("count")).otherwise(F.col("bytes"))
    return listed + _unlisted() * _steps_in(each)


def _size() -> Column:
    """Of the message, as it travelled; nothing if it is not known."""
    added = F.when(F.col("kind").isin(*map(str, AS_SENT)), DELIVERY_BYTES).otherwise(0)
    return F.coalesce(F.col("size") + added, F.lit(0))


def _steps_in(size: Column) -> Column:
    return F.greatest(F.ceil(size / STEP_BYTES), F.lit(1)).cast("bigint")
