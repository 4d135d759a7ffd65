"""Message states: how far the records of a message alone decide its verdict, and counts of them.

A verdict depends on the message and on how far others have gone. Most messages are at their end: no record of another
message changes their verdict, and they are only counted. The others, and those that a report names, are *watched*.
Nothing here depends on the horizon, on missing records or on removals: counts of parts of the messages can be merged.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from twinbus.spark.transforms.accounts import HOLDERS, MINUTE_MS
from twinbus.spark.transforms.sums import Sum, Sums, add_up
from twinbus.spark.transforms.verdict_names import (
    DEAD_LETTERED,
    DELIVERED,
    DISCARDED,
    DUPLICATED,
    EXPIRED,
    FORWARDED,
    IN_DOUBT,
    NOT_SENT,
    SENT_ELSEWHERE,
    WAITING,
)

ACKNOWLEDGED, IN_BACKLOG, IN_SPOOL = "acknowledged", "in_backlog", "in_spool"
GONE, TOO_FEW = "gone", "too_few"
OPEN_STATES = (ACKNOWLEDGED, WAITING, IN_BACKLOG, IN_SPOOL, GONE, TOO_FEW)
"""States that are not a verdict yet: it depends on other messages, missing records, or whether the entity exists."""
WATCHED = (*OPEN_STATES, DUPLICATED, IN_DOUBT)
COUNTS_KEY = ("file", "entity", "session", "backlog_queue", "acked_by", "sender", "state")


def message_states(accounts: DataFrame) -> DataFrame:
    """One row per message: `state`, and what else the verdict needs. `message_id` and `file` stay if they are there."""
    names = ("file", "entity", "message_id", "session", "backlog_queue", "acked_by")
    keep = [name for name in names if name in accounts.columns]
    minute = {"arrived_ms": "arrived", "backlogged_ms": "backlogged_at", "first_ms": "first"}
    col = F.col
    stated = accounts.withColumn("otherwise", _state())
    stated = stated.withColumn("state", F.when(_is_too_few(), TOO_FEW).otherwise(col("otherwise")))
    is_in_one_queue = F.coalesce(F.col("backlog_queue") == F.col("other_queue"), F.lit(True))
    return stated.select(
        *keep,
        # With three or more acknowledgements, or several senders, the clock of a time is unknown.
        F.when(col("accepted") + col("sent_home") <= 2, col("last_acked_by"))
        .otherwise(F.when(col("acked_by") == col("last_acked_by"), col("acked_by")))
        .alias("last_acked_by"),
        F.when(col("sender") == col("last_sender"), col("sender")).alias("sender"),
        "state",
        "otherwise",
        "first_ms",
        "arrived_ms",
        "stored_ms",
        "backlogged_ms",
        F.coalesce("last_ack_ms", "arrived_ms").alias("last_ack_ms"),
        *((F.col(ms) / MINUTE_MS).cast("bigint").alias(f"{name}_min") for ms, name in minute.items()),
        (F.greatest("arrived_ms", "due_ms") / MINUTE_MS).cast("bigint").alias("due_min"),
        # In several queues, or given back by a syphon, it may be there although others passed it.
        ((F.col("returned") + F.col("taken") > 0) | ~is_in_one_queue).alias("may_be_passed"),
        F.when(F.col("taken_ms") > F.coalesce("returned_ms", F.lit(-1)), F.col("taken_ms")).alias("held_ms"),
        (F.col("last_take") % HOLDERS).alias("holder"),
        (F.col("stored") > 0).alias("was_stored"),
        ((F.col("sent_home") > 0) & is_in_one_queue).alias("came_home"),
        (F.col("delivered") > 0).alias("was_delivered"),
        F.greatest(
            F.when(F.col("sent_home_ms").isNotNull(), F.col("backlogged_ms") - F.col("sent_home_ms")),
            F.col("first_ms") - F.col("delivered_ms"),
            F.col("arrived_ms") - F.col("delivered_ms"),
        ).alias("backwards_ms"),
        F.when(
            (F.col("accepted") + F.col("sent_home") == 1) & (F.col("stored") == 1),
            F.abs(F.col("stored_ms") - F.col("acknowledged_ms")),
        ).alias("apart_ms"),
    )


def _state() -> Column:
    col = F.col
    there = F.when(col("stored") > 0, col("stored")).otherwise(col("accepted") + col("sent_home") - col("dropped"))
    # Both record the same deliveries: receivers count where the namespace recorded none.
    deliveries = F.when(col("delivered") > 0, col("delivered")).otherwise(col("received"))
    repeated = (deliveries > 1) & (col("first_reader") == col("last_reader"))
    not_accepted = F.when(col("not_sent") > 0, NOT_SENT).otherwise(SENT_ELSEWHERE)
    left_dead = col("dead_backlog") + col("dead_spool") > col("redriven") + col("discarded")
    away = col("backlogged") + col("spooled")
    return (
        F.when(col("accepted") + away + col("in_doubt") == 0, not_accepted)
        .when(repeated | (there > 1), DUPLICATED)
        .when(deliveries > 0, DELIVERED)
        .when(col("dead_home") > 0, DEAD_LETTERED)
        .when(col("expired_home") > 0, EXPIRED)
        .when(col("unwanted") > 0, DISCARDED)
        .when(col("forwarded") > 0, FORWARDED)
        .when((col("discarded") > 0) & (away == 0), DISCARDED)
        .when(col("stored") > 0, WAITING)
        .when(col("accepted") + col("sent_home") > 0, ACKNOWLEDGED)
        .when(left_dead, DEAD_LETTERED)
        .when(col("expired_backlog") + col("expired_spool") > 0, EXPIRED)
        .when(col("discarded") > 0, DISCARDED)
        .when((col("backlogged") > 0) & (col("completed") == 0), IN_BACKLOG)
        .when((col("spooled") > col("left_spool")), IN_SPOOL)
        .when(away > 0, GONE)
        .otherwise(IN_DOUBT)
    )


def _is_too_few() -> Column:
    """Whether the primary acknowledged more sends of this id than it stored or dropped. A message that came home twice
    is one.
    """
    col = F.col
    sends = col("accepted") + F.least(col("sent_home"), F.greatest("backlogged", "spooled", F.lit(1)))
    is_ours = col("accepted") + col("backlogged") + col("spooled") > 0
    return is_ours & (col("stored") > 0) & (sends > col("stored") + col("dropped"))


def state_counts(states: DataFrame) -> DataFrame:
    """One row per entity, session, backlog queue, acknowledging process, sender and state (and file, if the states have
    one): `messages`, `backwards_ms`, and how far they have gone.
    """
    return add_up(states, [name for name in COUNTS_KEY if name in states.columns], _counts())


def _counts() -> Sums:
    col, from_one = F.col, F.col("came_home") & F.col("sender").isNotNull()
    return {
        "messages": Sum("sum", F.lit(1).cast("bigint")),
        "backwards_ms": Sum("max", col("backwards_ms")),
        "delivered_to_min": Sum("max", F.when(col("was_delivered"), col("arrived_min"))),
        "stored_to_min": Sum("max", F.when(col("was_stored"), col("arrived_min"))),
        "home_to_min": Sum("max", F.when(col("came_home"), col("backlogged_at_min"))),
        "own_home_to_min": Sum("max", F.when(from_one, col("backlogged_at_min"))),
        "apart_ms": Sum("max", col("apart_ms")),
    }


def watched(states: DataFrame) -> DataFrame:
    """The states for which a count is not enough."""
    return states.where(is_watched())


def is_watched() -> Column:
    return F.col("state").isin(*WATCHED)


def without_removed(states: DataFrame, removals: DataFrame) -> DataFrame:
    """The same; messages that waited in an entity when that was deleted are discarded."""
    located = states.join(F.broadcast(removals), "entity", "left")
    was_removed = F.col("stored_ms") <= F.col("removed_ms")
    instead = {
        name: F.when((F.col(name) == WAITING) & was_removed, DISCARDED).otherwise(F.col(name))
        for name in ("state", "otherwise")
    }
    return located.withColumns(instead).drop("removed_ms")
