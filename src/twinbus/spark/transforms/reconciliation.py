"""Where every accepted message is, or that it is lost.

The rules, in this order. *On the primary*: delivered more than once by the same reader, or there more than once, is
duplicated; then delivered, as the namespace says or, where it told of no delivery, as a receiver says; dead-lettered,
expired; cancelled, wanted by no subscription, or deleted with its entity is discarded; forwarded is to be looked for
where it went; one that the namespace says it has is waiting. *Acknowledged* by the primary and nothing more: stored
there, as far as anybody knows. *In the backlog*: dead-lettered, expired, discarded because somebody asked for it,
waiting, or completed without ever having come home: lost. What was only in doubt stays in doubt.

A message that lies somewhere while others that came there later have gone on was *overtaken*. Queues keep order, so it
is lost, but only if they came a whole horizon later: those that come together may pass each other. It is measured
against what was delivered of the same entity and session (or came home from the same backlog queue) and not against
the clock: a receiver that has stopped, or lags behind, loses nothing. Where only the namespace itself says that it has
a message, overtaken is no loss but worth a look: it may be deferred.

How far deliveries have gone is taken from the namespace alone, which knows all receivers. A receiver knows nothing of
what others took, and they may keep no ledger: its word makes a message delivered, and never makes another one lost.
What came to the namespace while that kept no ledger is not judged by what it told later.

All moments are whole minutes. Something that looks lost may have its other records in the dark: then it is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from twinbus.spark.transforms.accounts import MINUTE_MS
from twinbus.spark.transforms.classes import (
    DEAD_LETTERED,
    DELIVERED,
    DISCARDED,
    DUPLICATED,
    EXPIRED,
    FORWARDED,
    IN_DOUBT,
    LOST,
    NOT_SENT,
    SENT_ELSEWHERE,
    STORED,
    UNKNOWN,
    WAITING,
)

_ACKNOWLEDGED, _IN_BACKLOG, _GONE = "acknowledged", "in_backlog", "gone"
OPEN_STATES = (_ACKNOWLEDGED, WAITING, _IN_BACKLOG, _GONE)
"""States that are no verdict yet: how far others have gone decides, what is in the dark, or whether the entity is
still there."""
ENTITY_KEY, BACKLOG_KEY = ("entity", "session"), ("entity", "backlog_queue")


def with_removals(accounts: DataFrame, removals: DataFrame) -> DataFrame:
    """Add `removed_ms`: when the entity was deleted; null: it was not."""
    return accounts.join(F.broadcast(removals), "entity", "left")


def with_state(accounts: DataFrame) -> DataFrame:
    """Add `state`: the class of a message as far as it can be told from its own records, and `removed_ms` if given."""
    is_known = "removed_ms" in accounts.columns
    return accounts.withColumn(
        "state", _state(F.col("arrived_ms") <= F.col("removed_ms") if is_known else F.lit(False))
    )


def _state(was_removed: Column) -> Column:
    col = F.col
    there = F.when(col("stored") > 0, col("stored")).otherwise(col("accepted") + col("sent_home") - col("dropped"))
    # Both tell of the same deliveries: receivers are heard where the namespace told of none.
    deliveries = F.when(col("delivered") > 0, col("delivered")).otherwise(col("received"))
    repeated = (deliveries > 1) & (col("first_reader") == col("last_reader"))
    left_dead = col("dead_backlog") > col("redriven") + col("discarded")
    return (
        F.when(col("accepted") + col("backlogged") + col("in_doubt") == 0, _of_others())
        .when(repeated | (there > 1), DUPLICATED)
        .when(deliveries > 0, DELIVERED)
        .when(col("dead_home") > 0, DEAD_LETTERED)
        .when(col("expired_home") > 0, EXPIRED)
        .when(col("unwanted") > 0, DISCARDED)
        .when(col("forwarded") > 0, FORWARDED)
        .when((col("stored") > 0) & was_removed, DISCARDED)
        .when((col("discarded") > 0) & (col("backlogged") == 0), DISCARDED)
        .when(col("stored") > 0, WAITING)
        .when(col("accepted") + col("sent_home") > 0, _ACKNOWLEDGED)
        .when(left_dead, DEAD_LETTERED)
        .when(col("expired_backlog") > 0, EXPIRED)
        .when(col("discarded") > 0, DISCARDED)
        .when((col("backlogged") > 0) & (col("completed") == 0), _IN_BACKLOG)
        .when(col("backlogged") > 0, _GONE)
        .otherwise(IN_DOUBT)
    )


def _of_others() -> Column:
    return F.when(F.col("not_sent") > 0, NOT_SENT).otherwise(SENT_ELSEWHERE)


def fates(accounts: DataFrame) -> DataFrame:
    """One row per message: only what the verdict needs. `message_id` and `file` stay if they are there."""
    keep = [name for name in ("file", "entity", "message_id", "session", "backlog_queue") if name in accounts.columns]
    minute = {"arrived_ms": "arrived", "backlogged_ms": "backlogged_at", "first_ms": "first"}
    stated = with_state(accounts)
    return stated.select(
        *keep,
        "state",
        "first_ms",
        "arrived_ms",
        *((F.col(ms) / MINUTE_MS).cast("bigint").alias(f"{name}_min") for ms, name in minute.items()),
        (F.greatest("arrived_ms", "due_ms") / MINUTE_MS).cast("bigint").alias("due_min"),
        (F.col("returned") > 0).alias("was_returned"),
        (F.col("stored") > 0).alias("was_stored"),
        (F.col("sent_home") > 0).alias("came_home"),
        (F.col("delivered") > 0).alias("was_delivered"),
        F.greatest(
            F.when(F.col("sent_home_ms").isNotNull(), F.col("backlogged_ms") - F.col("sent_home_ms")),
            F.col("first_ms") - F.col("delivered_ms"),
            F.col("arrived_ms") - F.col("delivered_ms"),
        ).alias("backwards_ms"),
    )


def verdicts(
    fates: DataFrame, *, horizon_min: int, dark_until_ms: int = 0, untold: Sequence[tuple[int, int]] = ()
) -> DataFrame:
    """The same rows with `verdict`, one of the classes, and `overtaken`.

    `dark_until_ms`: records may be missing of anything that was first heard of before that.
    `untold`: when the primary kept no ledger. What came to it then is not overtaken by what it tells of.
    """
    return judged(fates, frontiers(fates), horizon_min=horizon_min, dark_until_ms=dark_until_ms, untold=untold)


def frontiers(fates: DataFrame) -> tuple[DataFrame, DataFrame, DataFrame]:
    """How far things have gone. One row per entity and session: `delivered_to_min`, the latest minute of arrival of a
    message that was delivered. One row per entity: `stored_to_min`, the same of those that the namespace recorded.
    One row per entity and backlog queue: `home_to_min`, the latest minute of entry of one that came home.
    """
    delivered = fates.where("was_delivered").groupBy(*ENTITY_KEY).agg(F.max("arrived_min").alias("delivered_to_min"))
    stored = fates.where("was_stored").groupBy("entity").agg(F.max("arrived_min").alias("stored_to_min"))
    home = fates.where("came_home").groupBy(*BACKLOG_KEY).agg(F.max("backlogged_at_min").alias("home_to_min"))
    return delivered, stored, home


def judged(
    fates: DataFrame,
    frontiers: tuple[DataFrame, DataFrame, DataFrame],
    *,
    horizon_min: int,
    dark_until_ms: int,
    untold: Sequence[tuple[int, int]],
) -> DataFrame:
    """`verdicts` of some messages; the frontiers are those of all there are."""
    delivered, stored, home = frontiers
    located = (
        _left_join(fates, delivered, ENTITY_KEY)
        .join(F.broadcast(stored), "entity", "left")
        .transform(lambda frame: _left_join(frame, home, BACKLOG_KEY))
    )
    return located.withColumn("overtaken", _overtaken(horizon_min, untold)).withColumn(
        "verdict", _verdict(dark_until_ms)
    )


def _left_join(frame: DataFrame, other: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """By a key that may be null on both sides."""
    renamed = other.select(*(F.col(name).alias(f"_{name}") for name in key), other.columns[-1])
    same = [frame[name].eqNullSafe(renamed[f"_{name}"]) for name in key]
    return frame.join(renamed, same, "left").drop(*(f"_{name}" for name in key))


def _overtaken(horizon_min: int, untold: Sequence[tuple[int, int]]) -> Column:
    col = F.col
    on_primary = (col("due_min") + horizon_min < col("delivered_to_min")) | (
        ~col("was_stored") & (col("arrived_min") + horizon_min < col("stored_to_min"))
    )
    in_backlog = ~col("was_returned") & (col("backlogged_at_min") + horizon_min < col("home_to_min"))
    found = (
        F.when(col("state").isin(_ACKNOWLEDGED, WAITING), on_primary & ~_arrived_in(untold))
        .when(col("state") == _IN_BACKLOG, in_backlog)
        .otherwise(F.lit(False))
    )
    return F.coalesce(found, F.lit(False))


def _arrived_in(stretches: Sequence[tuple[int, int]]) -> Column:
    text = " or ".join(f"arrived_ms >= {since_ms} and arrived_ms < {until_ms}" for since_ms, until_ms in stretches)
    return F.expr(f"coalesce({text}, false)") if text else F.lit(False)  # a text: there may be many


def _verdict(dark_until_ms: int) -> Column:
    col = F.col
    lost = F.when(col("first_ms") <= dark_until_ms, UNKNOWN).otherwise(LOST)
    return (
        F.when(col("state") == _GONE, lost)
        .when(col("state").isin(_ACKNOWLEDGED, _IN_BACKLOG) & col("overtaken"), lost)
        .when(col("state") == _ACKNOWLEDGED, STORED)
        .when(col("state") == _IN_BACKLOG, WAITING)
        .otherwise(col("state"))
    )


def reconciliation(verdicts: DataFrame) -> DataFrame:
    """One row per entity and verdict: `messages`, how many of them were `overtaken`, and `backwards_ms`: by how much
    clocks disagree at least, seen from messages that arrived before they left (null or not positive: not at all).
    """
    return verdicts.groupBy("entity", "verdict").agg(
        F.count("*").alias("messages"),
        F.count_if("overtaken").alias("overtaken"),
        F.max("backwards_ms").alias("backwards_ms"),
    )


def named(verdicts: DataFrame, classes: tuple[str, ...] = (LOST, UNKNOWN, DUPLICATED, IN_DOUBT)) -> DataFrame:
    """One row per message of these classes: `verdict`, `entity`, `message_id`, `first_ms`; worst and oldest first."""
    order = F.array_position(F.array(*map(F.lit, classes)), F.col("verdict"))
    chosen = verdicts.where(F.col("verdict").isin(*classes))
    return chosen.select("verdict", "entity", "message_id", "first_ms").orderBy(
        order, "first_ms", "message_id", "entity"
    )
