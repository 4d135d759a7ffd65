"""What fates come to, small enough to be kept: with it every message can be judged without being looked at again.

A verdict depends on the message and on how far others have gone. Most messages are at their end: no record of another
changes what is said of them, and they are only counted. Those that are not, and those that a report names, are
*watched*. Nothing here depends on the horizon, on what is in the dark, or on removals: tallies of parts of the messages
can be put together.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from twinbus.spark.transforms.classes import DISCARDED, DUPLICATED, IN_DOUBT, WAITING
from twinbus.spark.transforms.reconciliation import (
    BACKLOG_KEY,
    CLOCK_KEY,
    ENTITY_KEY,
    OPEN_STATES,
    SENDER_KEY,
    Frontiers,
    Known,
    came_home_from_one,
    judged,
    reconciliation,
)
from twinbus.spark.transforms.sums import Sum, Sums, added_up

KEY = ("file", "entity", "session", "backlog_queue", "acked_by", "sender", "state")
WATCHED = (*OPEN_STATES, DUPLICATED, IN_DOUBT)
FRONTIERS = {
    "delivered_to_min": ENTITY_KEY,
    "stored_to_min": ("entity",),
    "home_to_min": BACKLOG_KEY,
    "own_home_to_min": SENDER_KEY,
    "apart_ms": CLOCK_KEY,
}


def tallies(fates: DataFrame) -> DataFrame:
    """One row per entity, session, backlog queue, process that told of the acknowledgement, sender, and state (and
    file, if the fates have one): `messages`, `backwards_ms`, and how far they have gone, as frontiers are.
    """
    return added_up(fates, [name for name in KEY if name in fates.columns], sums())


def sums() -> Sums:
    """What a tally consists of."""
    return {
        "messages": Sum("sum", F.lit(1).cast("bigint")),
        "backwards_ms": Sum("max", F.col("backwards_ms")),
        "delivered_to_min": Sum("max", F.when(F.col("was_delivered"), F.col("arrived_min"))),
        "stored_to_min": Sum("max", F.when(F.col("was_stored"), F.col("arrived_min"))),
        "home_to_min": Sum("max", F.when(F.col("came_home"), F.col("backlogged_at_min"))),
        "own_home_to_min": Sum("max", F.when(came_home_from_one(), F.col("backlogged_at_min"))),
        "apart_ms": Sum("max", F.col("apart_ms")),
    }


def watched(fates: DataFrame) -> DataFrame:
    """The fates that a tally is not enough for."""
    return fates.where(is_watched())


def is_watched() -> Column:
    return F.col("state").isin(*WATCHED)


def reached(tallies: DataFrame) -> Frontiers:
    """The frontiers of all messages, as `reconciliation.frontiers` has them."""
    return Frontiers(
        *(
            tallies.where(F.col(name).isNotNull()).groupBy(*key).agg(F.max(name).alias(name))
            for name, key in FRONTIERS.items()
        )
    )


def verdicts(fates: DataFrame, tallies: DataFrame, known: Known) -> DataFrame:
    """`reconciliation.verdicts` of some messages; `tallies` are of all there are."""
    return judged(fates, reached(tallies), known)


def without_removed(watched: DataFrame, removals: DataFrame) -> DataFrame:
    """The same, but what waited in an entity when that was deleted is discarded."""
    located = watched.join(F.broadcast(removals), "entity", "left")
    instead = {name: F.when(_gone(name), DISCARDED).otherwise(F.col(name)) for name in ("state", "otherwise")}
    return located.withColumns(instead).drop("removed_ms")


def _gone(state: str) -> Column:
    return (F.col(state) == WAITING) & (F.col("stored_ms") <= F.col("removed_ms"))


def counts(tallies: DataFrame, verdicts: DataFrame) -> DataFrame:
    """`reconciliation` of all messages; `verdicts` are those of the watched ones. In no order, and the rows of an
    entity and a verdict may be two.
    """
    settled = tallies.where(~is_watched()).groupBy("entity", F.col("state").alias("verdict"))
    columns = (
        F.sum("messages").alias("messages"),
        F.lit(0).cast("bigint").alias("overtaken"),
        F.lit(0).cast("bigint").alias("held"),
        F.lit(None).cast("bigint").alias("held_ms"),
        F.max("backwards_ms").alias("backwards_ms"),
    )
    return settled.agg(*columns).unionByName(reconciliation(verdicts))
