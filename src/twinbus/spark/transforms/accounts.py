"""What is known of each message: how often each thing happened to it, and when.

Everything here is a count, a smallest or a largest. So accounts of parts of a ledger can be put together, in any
order, and are what they would be of the whole.
"""

from __future__ import annotations

from zlib import crc32

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from twinbus.ledger.kinds import Kind
from twinbus.spark.transforms.sums import Sum, Sums, added_up, each, put_together

MINUTE_MS = 60_000
POSITIONS_MAX = 1 << 20
"""More messages than one event can have: numbers and positions fit into one whole number, in order."""
HOLDERS, SECONDS_MAX = 1 << 30, (1 << 33) - 1
"""A second and a number for a process fit into one whole number: the largest tells who came last."""

KEY = ("entity", "message_id")
DEAD_LETTERS, SUBSCRIPTIONS = "/$deadletterqueue", "/subscriptions/"
SENT = (Kind.ACCEPTED, Kind.BACKLOGGED)
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
    "taken": (Kind.RECEIVED_FROM_BACKLOG,),
    "discarded": (Kind.DISCARDED, Kind.CANCELLED),
}
"""Columns that count steps, wherever they happened."""

COUNTED_BY_SIDE: dict[str, Kind] = {"dead": Kind.DEAD_LETTERED, "expired": Kind.EXPIRED}
COUNTED_AT_HOME: dict[str, tuple[Kind, ...]] = {
    "stored": (Kind.STORED,),
    "delivered": (Kind.DELIVERED,),
    "received": (Kind.RECEIVED,),
    "dropped": (Kind.DUPLICATE,),
    "forwarded": (Kind.FORWARDED,),
    "unwanted": (Kind.UNCLAIMED, Kind.UNSCHEDULED),
}
KINDS = sorted(
    {kind for counted in (COUNTED, COUNTED_AT_HOME) for kinds in counted.values() for kind in kinds}
    | {*COUNTED_BY_SIDE.values()}
)
ARRIVALS: dict[str, tuple[Kind, ...]] = {
    "delivered": (Kind.DELIVERED,),
    "received": (Kind.RECEIVED,),
    "stored": (Kind.STORED,),
    "acknowledged": ARRIVED,
}
"""Ways of looking at when a message arrived, the best one first."""


def accounts(steps: DataFrame) -> DataFrame:
    """One row per message: `entity`, `message_id`, how often each thing happened to it, and when.

    An entity is written in small letters, and of a subscription only its topic: that is what the message was sent to.
    What happens to a message among dead letters is left out: it stays a dead letter.
    Names of sessions, queues and processes are 64-bit hashes here: all sums have a fixed size.
    """
    # The steps of a message are in segments of different processes: adding up before they travel would gain nothing.
    together = about_messages(steps).repartition(*KEY)
    return added_up(together, KEY, sums())


def each_step(steps: DataFrame, adding: Sums) -> DataFrame:
    """An account of each step by itself, with these `sums`: `merged`, they are the accounts."""
    return each(about_messages(steps), KEY, adding)


def about_messages(steps: DataFrame) -> DataFrame:
    """The steps that count for accounts, with no more than is needed of each, and hashes instead of names."""
    return _slim(steps.where(F.col("kind").isin(*KINDS) & F.col("message_id").isNotNull() & is_of_an_entity()))


def merged(parts: DataFrame) -> DataFrame:
    """One row per message, from rows that are accounts of parts of the ledger."""
    return put_together(parts, KEY, sums())


def removals(steps: DataFrame) -> DataFrame:
    """One row per queue or topic that was deleted: `entity` and `removed_ms`, when that happened for the last time."""
    gone = steps.where(is_removal())
    return gone.groupBy(F.lower("entity").alias("entity")).agg(F.max("at_ms").alias("removed_ms"))


def is_removal() -> Column:
    """Whether a step tells that a queue or topic was deleted."""
    whole = is_of_an_entity() & ~F.lower("entity").contains(SUBSCRIPTIONS)
    return (F.col("kind") == Kind.REMOVED) & whole


def at_home() -> Column:
    """Whether a step happened on the primary; steps in the backlog name their queue."""
    return F.col("queue").isNull()


def is_of_an_entity() -> Column:
    """Whether a step happened to what was sent to an entity, and not among dead letters or in a nameless backlog."""
    return (F.col("entity") != "") & ~F.lower("entity").endswith(DEAD_LETTERS)


def sent_to() -> Column:
    return F.substring_index(F.lower("entity"), SUBSCRIPTIONS, 1)


def _slim(steps: DataFrame) -> DataFrame:
    return steps.select(
        sent_to().alias("entity"),
        "message_id",
        "kind",
        "at_ms",
        "until_ms",
        F.when(F.col("queue") != "", queue_number()).alias("queue"),
        F.when(F.col("session_id").isNotNull(), F.xxhash64("session_id")).alias("session"),
        F.xxhash64("process").alias("process"),
        (F.col("number") * POSITIONS_MAX + F.col("position")).alias("place"),
        F.xxhash64(F.lower("entity")).alias("reader"),
        _take().alias("take"),
        F.col("sequence_number").isNotNull().alias("is_numbered"),
    )


def queue_number() -> Column:
    """What a backlog queue is called in accounts."""
    return F.xxhash64(F.lower("queue"))


def _take() -> Column:
    """A number that grows with the second of the step, and says which process it is of (see `holder_number`)."""
    second = F.least(F.greatest(F.floor(F.col("at_ms") / 1000), F.lit(0)), F.lit(SECONDS_MAX))
    return second * HOLDERS + F.crc32("process") % HOLDERS


def holder_number(process: str) -> int:
    """The number of a process in `last_take`, modulo `HOLDERS`."""
    return crc32(process.encode()) % HOLDERS


def _is(*kinds: Kind) -> Column:
    return F.col("kind").isin(*map(str, kinds))


def sums() -> Sums:
    """What an account consists of."""
    return {**_counts(), **_moments(), **_places(), **_order()}


def _counts() -> Sums:
    happened = {name: _is(*kinds) for name, kinds in COUNTED.items()}
    happened |= {name: _is(*kinds) & at_home() for name, kinds in COUNTED_AT_HOME.items()}
    for name, kind in COUNTED_BY_SIDE.items():
        happened |= {f"{name}_home": _is(kind) & at_home(), f"{name}_backlog": _is(kind) & ~at_home()}
    # The service gives a number to what is scheduled, and to no other send.
    happened["numbered"] = _is(Kind.ACCEPTED) & F.col("is_numbered")
    return {name: Sum("sum", condition.cast("bigint")) for name, condition in happened.items()}


def _moments() -> Sums:
    """When the message was first heard of, was acknowledged by each side, and is due."""
    at_ms = F.col("at_ms")
    return {
        "first_ms": Sum("min", at_ms),
        "backlogged_ms": Sum("min", F.when(_is(Kind.BACKLOGGED), at_ms)),
        "arrived_ms": Sum("min", F.when(_is(*ARRIVED) | (_is(Kind.STORED) & at_home()), at_ms)),
        "sent_home_ms": Sum("min", F.when(_is(Kind.SENT_HOME), at_ms)),
        "due_ms": Sum("max", F.when(_is(*ARRIVED, Kind.BACKLOGGED, Kind.STORED), F.col("until_ms"))),
        "last_ack_ms": Sum("max", F.when(_is(*ARRIVED), at_ms)),
        "taken_ms": Sum("max", F.when(_is(Kind.RECEIVED_FROM_BACKLOG), at_ms)),
        "returned_ms": Sum("max", F.when(_is(*COUNTED["returned"]), at_ms)),
    }


def _places() -> Sums:
    reader = F.when(_is(Kind.DELIVERED, Kind.RECEIVED) & at_home(), F.col("reader"))
    return {
        "session": Sum("max", F.col("session")),
        "backlog_queue": Sum("max", F.when(_is(Kind.BACKLOGGED), F.coalesce("queue", F.lit(0)))),
        "other_queue": Sum("min", F.when(_is(Kind.BACKLOGGED), F.coalesce("queue", F.lit(0)))),
        "first_reader": Sum("min", reader),
        "last_reader": Sum("max", reader),
        "acked_by": Sum("min", F.when(_is(*ARRIVED), F.col("process"))),
        "last_acked_by": Sum("max", F.when(_is(*ARRIVED), F.col("process"))),
        "last_take": Sum("max", F.when(_is(Kind.RECEIVED_FROM_BACKLOG), F.col("take"))),
    }


def _order() -> Sums:
    """Its place in what a process sent; and for each way of looking at arrivals, when and where in the records."""
    columns: Sums = {
        "sender": Sum("min", F.when(_is(*SENT), F.col("process"))),
        "last_sender": Sum("max", F.when(_is(*SENT), F.col("process"))),
        "sent_place": Sum("min", F.when(_is(*SENT), F.col("place"))),
        "sent_ms": Sum("min", F.when(_is(*SENT), F.col("at_ms"))),
    }
    for name, kinds in ARRIVALS.items():
        happened = _is(*kinds) & at_home()
        columns[f"{name}_ms"] = Sum("min", F.when(happened, F.col("at_ms")))
        columns[f"{name}_place"] = Sum("min", F.when(happened, F.col("place")))
    return columns
