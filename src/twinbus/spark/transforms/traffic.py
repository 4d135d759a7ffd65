"""Traffic: how many messages, operations and bytes of each kind, by time; flow and cost follow from it."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from twinbus.cost.stages import AS_SENT, NOT_SETTLED, STEP_BYTES, TOLD_DEAD_LETTERED
from twinbus.ledger.kinds import DELIVERY_BYTES, TOLD_BY_RECEIVER, Kind
from twinbus.spark.transforms.accounts import TO_BACKLOG, is_kind
from twinbus.spark.transforms.sums import Sum, Sums, add_up, merge_parts

DAY_MS = 86_400_000
KEY = ("bucket_ms", "kind", "in_backlog", "is_settled")
RECORDED_TWICE = (Kind.STORED, Kind.DELIVERED, Kind.DEAD_LETTERED, Kind.EXPIRED, Kind.THROTTLED)
"""What a namespace records about its backlog queues without knowing the entity: clients and syphons record it, too."""
LEFT_BACKLOG = (Kind.COMPLETED, Kind.DEAD_LETTERED, Kind.EXPIRED)


def traffic(steps: DataFrame, *, bucket_ms: int = DAY_MS) -> DataFrame:
    """One row per bucket of time (`bucket_ms` is its start), kind, side, and whether no settlement was due: `messages`,
    `operations`, operations by started 64 KB (`sized_operations`), and `bytes`.

    The rows of parts of a ledger can be added up. A bucket is a day or divides one. Entities of other namespaces are
    left out.
    """
    is_repeat = is_kind(*RECORDED_TWICE) & (F.col("queue") != "") & (F.col("entity") == "")
    counted = steps.where(~is_repeat & ~F.col("is_foreign") if "is_foreign" in steps.columns else ~is_repeat)
    is_told = (F.col("kind") == Kind.DEAD_LETTERED) & (F.col("outcome") == TOLD_BY_RECEIVER)
    keys = {
        "kind": F.when(is_told, TOLD_DEAD_LETTERED).otherwise(F.col("kind")),
        "bucket_ms": _bucket_start(F.col("at_ms"), bucket_ms),
        "in_backlog": F.col("queue") != "",
        "is_settled": F.col("outcome").isin(*NOT_SETTLED),
    }
    return add_up(counted.withColumns(keys), KEY, sums())


def sums() -> Sums:
    """The columns of traffic."""
    return {
        "messages": Sum("sum", F.col("message_id").isNotNull().cast("bigint")),
        "operations": Sum("sum", _operations()),
        "sized_operations": Sum("sum", _sized_operations()),
        "bytes": Sum("sum", _size() + F.col("bytes")),
    }


def coarser(traffic: DataFrame, *, bucket_ms: int) -> DataFrame:
    """The same, in longer buckets."""
    renamed = traffic.withColumn("bucket_ms", _bucket_start(F.col("bucket_ms"), bucket_ms))
    return merge_parts(renamed, KEY, sums())


def flow(traffic: DataFrame) -> DataFrame:
    """One row per bucket in which messages moved: `bucket_ms` (its start), messages that were `accepted`, `backlogged`,
    `sent_home`, `delivered` (recorded by the namespace), `received` (recorded by receivers), those that `left` the
    backlog, and its `depth` at the end.
    """

    def messages(*kinds: Kind, in_backlog: bool = False) -> Column:
        happened = is_kind(*kinds)
        counts = happened & F.col("in_backlog") if in_backlog else happened
        return F.sum(F.when(counts, F.col("messages")).otherwise(0))

    counted = traffic.groupBy("bucket_ms").agg(
        messages(Kind.ACCEPTED).alias("accepted"),
        messages(*TO_BACKLOG).alias("backlogged"),
        messages(Kind.SENT_HOME).alias("sent_home"),
        messages(Kind.DELIVERED).alias("delivered"),
        messages(Kind.RECEIVED).alias("received"),
        messages(*LEFT_BACKLOG, in_backlog=True).alias("left"),
    )
    counted = counted.where(F.greatest("accepted", "backlogged", "sent_home", "delivered", "received", "left") > 0)
    so_far = Window.orderBy("bucket_ms").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return counted.withColumn("depth", F.sum(F.col("backlogged") - F.col("left")).over(so_far)).orderBy("bucket_ms")


def _bucket_start(at_ms: Column, bucket_ms: int) -> Column:
    return at_ms - F.pmod(at_ms, F.lit(bucket_ms))


def _operations() -> Column:
    """One for each message; without messages one for each of `count`, or one if there is no count."""
    return F.col("message_id").isNotNull().cast("bigint") + _unlisted()


def _unlisted() -> Column:
    """How many operations a step has besides its message. Messages listed by number alone have a step each."""
    is_listed = F.col("message_id").isNotNull()
    by_number = ~is_listed & F.col("sequence_number").isNotNull()
    return F.when(by_number, 1).when(is_listed, F.col("count")).otherwise(F.greatest("count", F.lit(1)))


def _sized_operations() -> Column:
    """The same, with one for each started 64 KB of a message. Messages without a size count as equally large."""
    listed = F.when(F.col("message_id").isNotNull(), _steps_in(_size())).otherwise(0)
    each = F.when(F.col("count") > 0, F.col("bytes") / F.col("count")).otherwise(F.col("bytes"))
    return listed + _unlisted() * _steps_in(each)


def _size() -> Column:
    """Of the message on the wire; 0 if unknown."""
    added = F.when(F.col("kind").isin(*map(str, AS_SENT)), DELIVERY_BYTES).otherwise(0)
    return F.coalesce(F.col("size") + added, F.lit(0))


def _steps_in(size: Column) -> Column:
    return F.greatest(F.ceil(size / STEP_BYTES), F.lit(1)).cast("bigint")
