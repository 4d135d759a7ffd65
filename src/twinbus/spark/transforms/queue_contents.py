"""Whether a message is still in its backlog queue, by the ledger of the secondary.

A namespace does not know the entity of a message in a backlog queue, so its records are found by queue and id. They are
looked up in the steps for the few messages that did not come home, and are not stored.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from twinbus.ledger.kinds import Kind
from twinbus.spark.transforms.accounts import is_kind, queue_number

THERE, GONE, NEVER_STORED = "there", "gone", "never_stored"
KEY = ("backlog_queue", "message_id")


def with_place(watched: DataFrame, state: str, steps: DataFrame) -> DataFrame:
    """Add `in_queue` to messages of this state: `there`, `gone` or `never_stored`; null for others. And
    `queue_apart_ms`: by how much the clocks of their sender and of the secondary are seen to differ.

    Two entities may use the same id: the queue must have as many as are waited for.
    """
    waited_for = watched.where(F.col("state") == state).groupBy(*KEY).agg(F.count("*").alias("_waited_for"))
    of_queues = steps.where((F.col("entity") == "") & (F.col("queue") != "")).withColumn(
        "backlog_queue", queue_number()
    )
    removed = of_queues.where(is_kind(Kind.REMOVED)).groupBy("backlog_queue").agg(F.max("at_ms").alias("_removed_ms"))
    stored = is_kind(Kind.STORED)
    counts = (
        of_queues.join(F.broadcast(removed), "backlog_queue", "left")
        .where(is_kind(Kind.STORED, Kind.DELIVERED, Kind.EXPIRED))
        .join(F.broadcast(waited_for), [*KEY], "right")
        .groupBy(*KEY, "_waited_for")
        .agg(
            F.count_if(stored).alias("_stored"),
            F.min(F.when(stored, F.col("at_ms"))).alias("_stored_ms"),
            F.count_if(stored & (F.col("at_ms") > F.coalesce("_removed_ms", F.lit(0)))).alias("_since"),
            F.count_if(~stored & (F.col("at_ms") > F.coalesce("_removed_ms", F.lit(0)))).alias("_left"),
        )
    )
    place = (
        F.when(F.col("_since") - F.col("_left") >= F.col("_waited_for"), THERE)
        .when(F.col("_stored") > 0, GONE)
        .otherwise(NEVER_STORED)
    )
    is_one = (F.col("_stored") == 1) & (F.col("_waited_for") == 1)
    found = counts.select(*KEY, place.alias("_place"), F.when(is_one, F.col("_stored_ms")).alias("_stored_ms"))
    located = watched.join(F.broadcast(found), [*KEY], "left")
    compared = located.where((F.col("state") == state) & F.col("_stored_ms").isNotNull()).groupBy("sender")
    apart = compared.agg(F.max(F.abs(F.col("_stored_ms") - F.col("backlogged_ms"))).alias("queue_apart_ms"))
    return (
        located.join(F.broadcast(apart), "sender", "left")
        .withColumn("in_queue", F.when(F.col("state") == state, F.col("_place")))
        .drop("_place", "_stored_ms")
    )
