"""What is known of each message: how often each thing happened to it, and when."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from twinbus.ledger.kinds import Kind

MINUTE_MS = 60_000

ENTERED = (Kind.ACCEPTED, Kind.BACKLOGGED, Kind.IN_DOUBT)
ARRIVED = (Kind.ACCEPTED, Kind.SENT_HOME)

COUNTED: dict[str, tuple[Kind, ...]] = {
    "accepted": (Kind.ACCEPTED,),
    "backlogged": (Kind.BACKLOGGED,),
    "in_doubt": (Kind.IN_DOUBT,),
    "not_sent": (Kind.NOT_SENT,),
    "sent_home": (Kind.SENT_HOME,),
    "completed": (Kind.COMPLETED,),
    "returned": (Kind.RELEASED, Kind.LOCK_LOST),
    "redriven": (Kind.REDRIVEN,),
    "discarded": (Kind.DISCARDED, Kind.CANCELLED),
}
"""Columns that count steps, wherever they happened."""

COUNTED_BY_SIDE: dict[str, Kind] = {"dead": Kind.DEAD_LETTERED, "expired": Kind.EXPIRED}
COUNTED_AT_HOME: dict[str, Kind] = {
    "stored": Kind.STORED,
    "delivered": Kind.DELIVERED,
    "dropped": Kind.DUPLICATE,
}
KINDS = sorted(
    {kind for kinds in COUNTED.values() for kind in kinds} | {*COUNTED_BY_SIDE.values(), *COUNTED_AT_HOME.values()}
)


def accounts(steps: DataFrame) -> DataFrame:
    """One row per message: `entity`, `message_id`, how often each thing happened to it, and when.

    An entity is written in small letters, and of a subscription only its topic: that is what the message was sent to.
    Names of sessions and queues are 64-bit hashes here, so that all sums have a fixed size and are combined before
    they travel.
    """
    about = steps.where(F.col("kind").isin(*KINDS) & F.col("message_id").isNotNull() & (F.col("entity") != ""))
    return about.groupBy(sent_to().alias("entity"), "message_id").agg(*_counts(), *_moments(), *_places())


def at_home() -> Column:
    """Whether a step happened on the primary; steps in the backlog name their queue."""
    return F.col("queue") == ""


def sent_to() -> Column:
    return F.substring_index(F.lower("entity"), "/subscriptions/", 1)


def _is(*kinds: Kind) -> Column:
    return F.col("kind").isin(*map(str, kinds))


def _counts() -> list[Column]:
    everywhere = [F.count_if(_is(*kinds)).alias(name) for name, kinds in COUNTED.items()]
    there = [F.count_if(_is(kind) & at_home()).alias(name) for name, kind in COUNTED_AT_HOME.items()]
    by_side = [
        F.count_if(_is(kind) & (at_home() if side == "home" else ~at_home())).alias(f"{name}_{side}")
        for name, kind in COUNTED_BY_SIDE.items()
        for side in ("home", "backlog")
    ]
    return [*everywhere, *there, *by_side]


def _moments() -> list[Column]:
    """When the message was first heard of, was acknowledged by each side, is due, and was delivered."""
    at_ms = F.col("at_ms")
    return [
        F.min(at_ms).alias("first_ms"),
        F.min(F.when(_is(Kind.BACKLOGGED), at_ms)).alias("backlogged_ms"),
        F.min(F.when(_is(*ARRIVED) | (_is(Kind.STORED) & at_home()), at_ms)).alias("arrived_ms"),
        F.min(F.when(_is(Kind.SENT_HOME), at_ms)).alias("sent_home_ms"),
        F.min(F.when(_is(Kind.DELIVERED) & at_home(), at_ms)).alias("delivered_ms"),
        F.max(F.when(_is(*ARRIVED, Kind.BACKLOGGED), F.col("until_ms"))).alias("due_ms"),
    ]


def _places() -> list[Column]:
    reader = F.when(_is(Kind.DELIVERED) & at_home(), F.xxhash64(F.lower("entity")))
    return [
        F.max(F.when(F.col("session_id").isNotNull(), F.xxhash64("session_id"))).alias("session"),
        F.max(F.when(_is(Kind.BACKLOGGED), F.xxhash64("queue"))).alias("backlog_queue"),
        F.min(reader).alias("first_reader"),
        F.max(reader).alias("last_reader"),
    ]
