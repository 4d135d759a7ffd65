"""How much moved, minute by minute (or hour by hour): into the backlog, out of it, and home."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from twinbus.ledger.kinds import Kind

LEFT_BACKLOG = (Kind.COMPLETED, Kind.DEAD_LETTERED, Kind.EXPIRED)


def flow(traffic: DataFrame) -> DataFrame:
    """One row per stretch of time in which something moved: `bucket_ms` (its beginning), messages that were `accepted`,
    `backlogged`, `sent_home`, `delivered` (as the namespace tells) and `received` (as receivers tell), those that
    `left` the backlog, and its `depth` at the end.
    """

    def times(*kinds: Kind, in_backlog: bool = False) -> Column:
        happened = F.col("kind").isin(*map(str, kinds))
        counts = happened & F.col("in_backlog") if in_backlog else happened
        return F.sum(F.when(counts, F.col("messages")).otherwise(0))

    counted = traffic.groupBy("bucket_ms").agg(
        times(Kind.ACCEPTED).alias("accepted"),
        times(Kind.BACKLOGGED).alias("backlogged"),
        times(Kind.SENT_HOME).alias("sent_home"),
        times(Kind.DELIVERED).alias("delivered"),
        times(Kind.RECEIVED).alias("received"),
        times(*LEFT_BACKLOG, in_backlog=True).alias("left"),
    )
    counted = counted.where(F.greatest("accepted", "backlogged", "sent_home", "delivered", "received", "left") > 0)
    so_far = Window.orderBy("bucket_ms").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return counted.withColumn("depth", F.sum(F.col("backlogged") - F.col("left")).over(so_far)).orderBy("bucket_ms")
