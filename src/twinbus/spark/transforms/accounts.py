"""Accounts: what the records say about each message, how often each event happened to it, and when.

Every column is a sum, a minimum or a maximum, so accounts of parts of a ledger can be merged in any order.
"""

from __future__ import annotations

from zlib import crc32

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from twinbus.ledger.kinds import Kind
from twinbus.spark.transforms.sums import Sum, Sums, add_up, merge_parts

MINUTE_MS = 60_000
POSITIONS_MAX = 1 << 20
"""More messages than one event can have: numbers and positions fit into one whole number, in order."""
HOLDERS, SECONDS_MAX = 1 << 30, (1 << 33) - 1
"""A second and a number for a process fit into one whole number: the largest names the last process."""

KEY = ("entity", "message_id")
DEAD_LETTERS, SUBSCRIPTIONS = "/$deadletterqueue", "/subscriptions/"
SENT = (Kind.ACCEPTED, Kind.BACKLOGGED, Kind.SPOOLED)
"""What the sender recorded."""
TO_BACKLOG = (Kind.BACKLOGGED, Kind.MOVED_TO_BACKLOG)
ARRIVED = (Kind.ACCEPTED, Kind.SENT_HOME)

COUNTED: dict[str, tuple[Kind, ...]] = {
    "accepted": (Kind.ACCEPTED,),
    "backlogged": TO_BACKLOG,
    "spooled": (Kind.SPOOLED,),
    "in_doubt": (Kind.IN_DOUBT, Kind.SPOOL_IN_DOUBT),
    "not_sent": (Kind.NOT_SENT,),
    "sent_home": (Kind.SENT_HOME,),
    "completed": (Kind.COMPLETED,),
    "returned": (Kind.RELEASED, Kind.LOCK_LOST),
    "left_spool": (Kind.LEFT_SPOOL,),
    "dead_spool": (Kind.SPOOL_DEAD_LETTERED,),
    "expired_spool": (Kind.SPOOL_EXPIRED,),
    "redriven": (Kind.REDRIVEN,),
    "taken": (Kind.RECEIVED_FROM_BACKLOG,),
    "discarded": (Kind.DISCARDED, Kind.CANCELLED),
}
"""Columns that count steps, wherever they happened."""

COUNTED_BY_SIDE: dict[str, Kind] = {"dead": Kind.DEAD_LETTERED, "expired": Kind.EXPIRED}
COUNTED_ON_PRIMARY: dict[str, tuple[Kind, ...]] = {
    "stored": (Kind.STORED,),
    "delivered": (Kind.DELIVERED,),
    "received": (Kind.RECEIVED,),
    "dropped": (Kind.DUPLICATE,),
    "forwarded": (Kind.FORWARDED,),
    "unwanted": (Kind.UNCLAIMED, Kind.UNSCHEDULED),
}
KINDS = sorted(
    {kind for counted in (COUNTED, COUNTED_ON_PRIMARY) for kinds in counted.values() for kind in kinds}
    | {*COUNTED_BY_SIDE.values()}
)
ARRIVALS: dict[str, tuple[Kind, ...]] = {
    "delivered": (Kind.DELIVERED,),
    "received": (Kind.RECEIVED,),
    "stored": (Kind.STORED,),
    "acknowledged": ARRIVED,
}
"""Ways to see when a message arrived, the best one first."""


def accounts(steps: DataFrame) -> DataFrame:
    """One row per message: `entity`, `message_id`, how often each thing happened to it, and when.

    An entity is in lower case, and of a subscription only its topic: that is what the message was sent to. Steps among
    dead letters are left out: the message stays a dead letter. Names of sessions, queues and processes are 64-bit
    hashes: all columns have a fixed size.
    """
    # The steps of a message are in segments of different processes: adding up before the shuffle would gain nothing.
    return add_up(about_messages(steps).repartition(*KEY), KEY, sums())


def about_messages(steps: DataFrame) -> DataFrame:
    """The steps that count for accounts, with only the columns these need, and hashes instead of names."""
    counted = steps.where(is_kind(*KINDS) & F.col("message_id").isNotNull() & is_of_entity())
    return counted.select(
        F.substring_index(F.lower("entity"), SUBSCRIPTIONS, 1).alias("entity"),
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


def merge_accounts(parts: DataFrame) -> DataFrame:
    """One row per message, from accounts of parts of the ledger."""
    return merge_parts(parts, KEY, sums())


def removals(steps: DataFrame) -> DataFrame:
    """One row per queue or topic that was deleted: `entity` and `removed_ms`, the last time."""
    is_whole = is_of_entity() & ~F.lower("entity").contains(SUBSCRIPTIONS)
    removed = steps.where((F.col("kind") == Kind.REMOVED) & is_whole)
    return removed.groupBy(F.lower("entity").alias("entity")).agg(F.max("at_ms").alias("removed_ms"))


def is_on_primary() -> Column:
    """Whether a step happened on the primary; steps in the backlog name their queue."""
    return F.col("queue").isNull()


def is_of_entity() -> Column:
    """Whether a step is about an entity, and not about dead letters or a backlog without a known entity."""
    return (F.col("entity") != "") & ~F.lower("entity").endswith(DEAD_LETTERS)


def queue_number() -> Column:
    """The number of a backlog queue in accounts."""
    return F.xxhash64(F.lower("queue"))


def _take() -> Column:
    """A number that grows with the second of the step and names its process (`holder_number`)."""
    second = F.least(F.greatest(F.floor(F.col("at_ms") / 1000), F.lit(0)), F.lit(SECONDS_MAX))
    return second * HOLDERS + F.crc32("process") % HOLDERS


def holder_number(process: str) -> int:
    """The number of a process in `last_take`, modulo `HOLDERS`."""
    return crc32(process.encode()) % HOLDERS


def is_kind(*kinds: Kind) -> Column:
    return F.col("kind").isin(*map(str, kinds))


def sums() -> Sums:
    """The columns of an account."""
    return {**_counts(), **_moments(), **_places(), **_order()}


def _counts() -> Sums:
    happened = {name: is_kind(*kinds) for name, kinds in COUNTED.items()}
    happened |= {name: is_kind(*kinds) & is_on_primary() for name, kinds in COUNTED_ON_PRIMARY.items()}
    for name, kind in COUNTED_BY_SIDE.items():
        happened |= {
            f"{name}_home": is_kind(kind) & is_on_primary(),
            f"{name}_backlog": is_kind(kind) & ~is_on_primary(),
        }
    # The service gives a number to what is scheduled, and to no other send.
    happened["numbered"] = is_kind(Kind.ACCEPTED) & F.col("is_numbered")
    return {name: Sum("sum", condition.cast("bigint")) for name, condition in happened.items()}


def _moments() -> Sums:
    """When the message was first recorded, was acknowledged by each namespace, and is due."""
    at_ms = F.col("at_ms")
    return {
        "first_ms": Sum("min", at_ms),
        "backlogged_ms": Sum("min", F.when(is_kind(*TO_BACKLOG), at_ms)),
        "arrived_ms": Sum("min", F.when(is_kind(*ARRIVED) | (is_kind(Kind.STORED) & is_on_primary()), at_ms)),
        "sent_home_ms": Sum("min", F.when(is_kind(Kind.SENT_HOME), at_ms)),
        "due_ms": Sum("max", F.when(is_kind(*ARRIVED, *SENT, Kind.STORED), F.col("until_ms"))),
        "last_ack_ms": Sum("max", F.when(is_kind(*ARRIVED), at_ms)),
        "taken_ms": Sum("max", F.when(is_kind(Kind.RECEIVED_FROM_BACKLOG), at_ms)),
        "returned_ms": Sum("max", F.when(is_kind(*COUNTED["returned"]), at_ms)),
    }


def _places() -> Sums:
    reader = F.when(is_kind(Kind.DELIVERED, Kind.RECEIVED) & is_on_primary(), F.col("reader"))
    return {
        "session": Sum("max", F.col("session")),
        "backlog_queue": Sum("max", F.when(is_kind(*TO_BACKLOG), F.coalesce("queue", F.lit(0)))),
        "other_queue": Sum("min", F.when(is_kind(*TO_BACKLOG), F.coalesce("queue", F.lit(0)))),
        "first_reader": Sum("min", reader),
        "last_reader": Sum("max", reader),
        "acked_by": Sum("min", F.when(is_kind(*ARRIVED), F.col("process"))),
        "last_acked_by": Sum("max", F.when(is_kind(*ARRIVED), F.col("process"))),
        "last_take": Sum("max", F.when(is_kind(Kind.RECEIVED_FROM_BACKLOG), F.col("take"))),
    }


def _order() -> Sums:
    """Its place in what a process sent; and for each way to see arrivals, when and where in the records."""
    columns: Sums = {
        "sender": Sum("min", F.when(is_kind(*SENT), F.col("process"))),
        "last_sender": Sum("max", F.when(is_kind(*SENT), F.col("process"))),
        "sent_place": Sum("min", F.when(is_kind(*SENT), F.col("place"))),
        "sent_ms": Sum("min", F.when(is_kind(*SENT), F.col("at_ms"))),
    }
    for name, kinds in ARRIVALS.items():
        happened = is_kind(*kinds) & is_on_primary()
        columns[f"{name}_ms"] = Sum("min", F.when(happened, F.col("at_ms")))
        columns[f"{name}_place"] = Sum("min", F.when(happened, F.col("place")))
    return columns
