"""Reconciliation: the verdict of every accepted message, or that it is lost.

The rules, in this order. *On the primary*: delivered more than once to the same reader, or stored more than once, is
duplicated; then delivered, as the namespace recorded or, where it recorded no delivery, as a receiver did;
dead-lettered; expired; cancelled, wanted by no subscription, or deleted with its entity is discarded; forwarded is
found where it went; a message that the namespace still has is waiting. *Acknowledged* by the primary and nothing more:
stored there, as far as is known. *In the backlog*: dead-lettered, expired, discarded on request, waiting, or completed
without having come home: lost. *In the spool* of its sender: dead-lettered or expired there, or waiting, however long:
only the process that brings it home records that it left. A message that was only in doubt stays in doubt.

A message is *overtaken* if others that came to the same place later have gone on. Queues keep order, so it is lost, but
only if they came a whole horizon later: messages that come together may pass each other. It is compared with what was
delivered of the same entity and session (or came home from the same backlog queue) and not with the clock: a receiver
that stopped or lags behind loses nothing. If the namespace still has the message, overtaken is not a loss: it may be
deferred.

How far deliveries have gone is taken from the namespace alone, which knows all receivers. A receiver does not know what
others took: its record makes a message delivered, and never makes another one lost. Messages from a time when the
namespace kept no ledger are not judged by its later records.

A namespace records what it stores before it acknowledges it. So a message that was acknowledged, and is not in a ledger
of the primary that is complete for that time, is lost; likewise an id with more acknowledged sends than were stored or
dropped as duplicates. If records of the primary may be missing for that time, it is unknown.

The time of a send is by its sender's clock, which may be wrong. It is as exact as that clock compares with the
namespace's (`transforms.clocks`); if that leaves open whether the namespace kept a ledger then, the message is unknown.
In the backlog a message is lost if others of the same machine, which has one clock, have overtaken it; if only those of
other machines have, it is unknown.

A syphon that took a message from the backlog may hold it while others pass: it waits, until the syphon completes it or
gives it back. If that syphon was killed, its last action is unknown.

A secondary with a ledger records what its backlog queues have. A message in it waits, whatever passed it; one that was
acknowledged there, and is not in a ledger that is complete for that time, is lost; one that is gone from its queue, or
whose records may be missing, is unknown unless it came home.

Other times are whole minutes. A message that looks lost is unknown if its other records may be missing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from twinbus.ledger.reading.process_end import FOREVER_MS
from twinbus.spark.compaction.clocks import ProcessClocks
from twinbus.spark.compaction.namespace_records import NamespaceRecords, Period
from twinbus.spark.transforms.accounts import MINUTE_MS
from twinbus.spark.transforms.clocks import by_machine, by_process, in_minutes, queue_reach_ms, with_reach
from twinbus.spark.transforms.message_states import ACKNOWLEDGED, GONE, IN_BACKLOG, IN_SPOOL, TOO_FEW, is_watched
from twinbus.spark.transforms.queue_contents import NEVER_STORED, THERE
from twinbus.spark.transforms.verdict_names import DUPLICATED, IN_DOUBT, LOST, STORED, UNKNOWN, WAITING

FRONTIERS = {
    "delivered_to_min": ("entity", "session"),
    "stored_to_min": ("entity",),
    "home_to_min": ("entity", "backlog_queue"),
    "own_home_to_min": ("entity", "backlog_queue", "sender"),
    "apart_ms": ("acked_by",),
}
"""How far messages have gone, and the key of each: the latest minute of arrival of one that was delivered, and of one
that the namespace recorded; the latest minute of entry into the backlog of one that came home, and for each sender; and
the most by which the clock of an acknowledging process and the namespace's differ."""


class Evidence(NamedTuple):
    """What is known beside the messages themselves."""

    horizon_min: int
    missing_until_ms: int = 0
    """Records may be missing of messages that began before that."""
    primary: NamespaceRecords = NamespaceRecords()
    """When the primary's ledger is complete."""
    killed: Collection[int] = ()
    """Numbers (`accounts.holder_number`) of processes that were killed."""
    secondary: NamespaceRecords = NamespaceRecords()
    """When the secondary's ledger is complete."""
    clocks: ProcessClocks = ProcessClocks()
    """Which processes share a clock, and which clocks were set."""


def verdicts(states: DataFrame, counts: DataFrame, evidence: Evidence) -> DataFrame:
    """The same messages with `verdict`, one of the classes, `overtaken`, and `why` (null: the verdict is enough).

    `counts` are the state counts of all messages.
    """
    reached = {
        name: counts.where(F.col(name).isNotNull()).groupBy(*key).agg(F.max(name).alias(name))
        for name, key in FRONTIERS.items()
    }
    clocks = by_process(reached["apart_ms"], evidence.clocks)
    own_home = by_machine(reached["own_home_to_min"], clocks)
    located = _left_join(states.drop("apart_ms"), reached["delivered_to_min"], FRONTIERS["delivered_to_min"])
    located = located.join(F.broadcast(reached["stored_to_min"]), "entity", "left")
    located = _left_join(located, reached["home_to_min"], FRONTIERS["home_to_min"])
    located = with_reach(located, clocks, evidence.clocks)
    located = _left_join(located, own_home, ("entity", "backlog_queue", "machine"))
    if "in_queue" not in located.columns:  # the secondary keeps no ledger
        nothing = {"in_queue": F.lit(None).cast("string"), "queue_apart_ms": F.lit(None).cast("bigint")}
        located = located.withColumns(nothing)
    located = located.withColumn("queue_reach_ms", queue_reach_ms(evidence.clocks))
    overtaken = located.withColumn("overtaken", _overtaken(evidence.horizon_min, evidence.primary))
    found = overtaken.withColumn("_found", _found(evidence))
    return found.withColumns({"verdict": F.col("_found.verdict"), "why": F.col("_found.why")}).drop("_found")


def _left_join(frame: DataFrame, other: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """By a key that may be null on both sides."""
    renamed = other.select(*(F.col(name).alias(f"_{name}") for name in key), other.columns[-1])
    same = [frame[name].eqNullSafe(renamed[f"_{name}"]) for name in key]
    return frame.join(renamed, same, "left").drop(*(f"_{name}" for name in key))


def _overtaken(horizon_min: int, primary: NamespaceRecords) -> Column:
    """Whether others that certainly came later have gone on; in the backlog, others of the same machine.

    A stored message has no reach: its times are the namespace's, or those of an earlier acknowledgement.
    """
    col, reach_ms = F.col, F.when(F.col("was_stored"), 0).otherwise(F.coalesce("reach_ms", F.lit(0)))
    later = in_minutes(reach_ms) + horizon_min
    on_primary = (col("due_min") + later < col("delivered_to_min")) | (
        ~col("was_stored") & (col("arrived_min") + later < col("stored_to_min"))
    )
    reach = "if(was_stored, 0, coalesce(reach_ms, 0))"
    was_not_kept = _in_any(primary.not_kept, f"last_ack_ms + {reach}", f"arrived_ms - {reach}")
    is_compared = col("was_stored") | col("reach_ms").isNotNull() | (not primary.is_kept)
    own = in_minutes(col("set_ms")) + horizon_min
    in_backlog = ~col("may_be_passed") & (col("backlogged_at_min") + own < col("own_home_to_min"))
    found = (
        F.when(col("state").isin(ACKNOWLEDGED, WAITING), on_primary & is_compared & ~was_not_kept)
        .when(col("state") == IN_BACKLOG, in_backlog)
        .otherwise(F.lit(False))
    )
    return F.coalesce(found, F.lit(False))


def _in_any(periods: Sequence[Period], since: str, until: str) -> Column:
    """Whether `since` to `until` lies in one of the periods."""
    text = " or ".join(f"{since} >= {since_ms} and {until} < {until_ms}" for since_ms, until_ms in periods)
    return F.expr(f"coalesce({text}, false)") if text else F.lit(False)  # a text: there may be many


COMPLETED_ONLY = "completed in the backlog and never acknowledged by the primary"
PASSED_OVER = "others of the same machine that entered the same backlog queue later have come home"
OVERTAKEN = "others that came to the primary later have gone on"
NOT_STORED = "acknowledged by the primary, whose ledger for that time is complete and does not have it"
STORED_TOO_FEW = "the primary acknowledged more sends of this id than its complete ledger says it stored"
NOT_RECORDED = "acknowledged by the primary, whose records for that time may be missing"
NOT_COMPARED = (
    "acknowledged by the primary, whose ledger does not have it; no records tell by how much its clock and the "
    "client's differ, so nobody knows whether that ledger was kept then: it would show from a "
    "message that both tell of, sent from the same machine since its start"
)
CLOCKS_DIFFER = (
    "acknowledged by the primary, whose ledger does not have it; by how much its clock and the client's differ leaves "
    "open whether that ledger was kept then"
)
PASSED_BY_OTHERS = (
    "messages that entered the same backlog queue later have come home; but only by clocks of other machines, "
    "or by one that may have been set, and no records compare them"
)
RECORDS_MISSING = "it looks lost, and records are missing that could tell"
RECORDS_MAY_BE_MISSING = (
    "it looks lost, and records of another machine are missing; no records compare the clocks, so nobody knows whether "
    "these could tell of it"
)
NEVER_IN_QUEUE = (
    "acknowledged by a backlog queue; the ledger of the secondary is complete for that time and does not have it"
)
NOT_IN_QUEUE = "nobody brought it home, and the secondary does not tell that it is in its backlog queue"
SPOOLED = "in the spool of its sender"
HELD, HELD_BY_KILLED = "held under lock by a syphon", "held under lock by a syphon that was killed"


def _found(evidence: Evidence) -> Column:
    """`verdict` and `why` in one."""
    col, is_missing = F.col, _may_be_missing(evidence)
    is_uncompared = _missing_reach().isNull() & (evidence.missing_until_ms < FOREVER_MS)
    state, primary = col("state"), evidence.primary

    def says(verdict: Column | str, why: str | None = None) -> Column:
        class_ = F.lit(verdict) if isinstance(verdict, str) else verdict
        return F.struct(class_.alias("verdict"), F.lit(why).cast("string").alias("why"))

    def lost(why: str) -> Column:
        unknown = F.when(is_uncompared, says(UNKNOWN, RECORDS_MAY_BE_MISSING)).otherwise(says(UNKNOWN, RECORDS_MISSING))
        return F.when(is_missing, unknown).otherwise(says(LOST, why))

    settled = F.when(state == ACKNOWLEDGED, STORED).when(state == TOO_FEW, col("otherwise")).otherwise(state)
    is_held = col("held_ms").isNotNull()
    secondary, reach = evidence.secondary, "queue_reach_ms"
    is_covered = _in_any(secondary.complete, f"backlogged_ms - {reach}", f"backlogged_ms + {reach}")
    passed = ~col("may_be_passed") & (col("backlogged_at_min") + evidence.horizon_min < col("home_to_min"))
    backlog = (
        F.when(is_held & _is_any("holder", evidence.killed), says(UNKNOWN, HELD_BY_KILLED))
        .when(is_held, says(WAITING, HELD))
        .when(col("in_queue") == THERE, says(WAITING))
        .when((col("in_queue") == NEVER_STORED) & is_covered, lost(NEVER_IN_QUEUE))
        .when(
            col("in_queue").isNotNull() & _may_be_unrecorded(secondary, evidence.horizon_min, reach, "backlogged_ms"),
            says(UNKNOWN, NOT_IN_QUEUE),
        )
        .when(col("overtaken"), lost(PASSED_OVER))
        .when(passed, says(UNKNOWN, PASSED_BY_OTHERS))
        .otherwise(says(WAITING))
    )
    # A duplicate stays one, and one in doubt stays so: only a loss gets the reason.
    moments = ("arrived_ms", "last_ack_ms")
    is_unrecorded = _may_be_unrecorded(primary, evidence.horizon_min, "reach_ms", *moments)
    is_open = _is_open_by_clocks(primary, *moments)
    on_primary = (
        F.when(_is_proven_absent(primary) & (state == TOO_FEW), says(LOST, STORED_TOO_FEW))
        .when(_is_proven_absent(primary), says(LOST, NOT_STORED))
        .when(col("overtaken"), lost(OVERTAKEN))
        .when(is_unrecorded & is_open & col("reach_ms").isNull(), says(UNKNOWN, NOT_COMPARED))
        .when(is_unrecorded & is_open, says(UNKNOWN, CLOCKS_DIFFER))
        .when(is_unrecorded, says(UNKNOWN, NOT_RECORDED))
        .otherwise(says(settled))
    )
    return (
        F.when(state == GONE, lost(COMPLETED_ONLY))
        .when(state == IN_BACKLOG, backlog)
        .when(state == IN_SPOOL, says(WAITING, SPOOLED))
        .when(state.isin(ACKNOWLEDGED, TOO_FEW), on_primary)
        .otherwise(says(state))
    )


def _may_be_missing(evidence: Evidence) -> Column:
    """Whether records of the message may be missing: it is not proven that it began after the time of these."""
    if not evidence.missing_until_ms:
        return F.lit(False)
    return F.coalesce(F.col("first_ms") - _missing_reach() <= evidence.missing_until_ms, F.lit(True))


def _missing_reach() -> Column:
    """By how much the times of the sender, and of processes with missing records, may differ: if all have one clock, by
    how much that was set, else as each compares with the primary's. Null: unknown.
    """
    return F.when(F.col("is_missings"), F.col("set_ms")).otherwise(F.col("missing_reach_ms"))


def _is_any(column: str, numbers: Collection[int]) -> Column:
    return F.expr(f"{column} in ({', '.join(map(str, numbers))})") if numbers else F.lit(False)


def _is_proven_absent(primary: NamespaceRecords) -> Column:
    """Whether the primary would have recorded it, however its clock and the acknowledging process's may differ."""
    return _in_any(primary.complete, "arrived_ms - reach_ms", "last_ack_ms + reach_ms - 1")


def _may_be_unrecorded(records: NamespaceRecords, horizon_min: int, reach: str, *moments: str) -> Column:
    """Whether a namespace with a ledger may have more records about these moments, by clocks of that `reach`; not from
    a time without a ledger, and recent ones may still be written. Without a reach, it may.
    """
    if not records.is_kept:
        return F.lit(False)
    since_ms = records.read_ms - horizon_min * MINUTE_MS if records.is_running else 1 << 62
    was_not_kept = (_in_any(records.not_kept, f"{each} - {reach}", f"{each} + {reach}") for each in moments)
    return ~reduce(or_, was_not_kept) & F.expr(f"coalesce({moments[-1]} - {reach} < {since_ms}, true)")


def _is_open_by_clocks(records: NamespaceRecords, *moments: str) -> Column:
    """Whether only the clocks leave open what follows from a missing record of the primary."""
    return reduce(or_, (_in_any((*records.complete, *records.not_kept), each, each) for each in moments))


def reconciliation(counts: DataFrame, verdicts: DataFrame) -> DataFrame:
    """One row per entity and verdict (two, if both arguments have it), in no order: `messages`, how many were
    `overtaken`, how many a syphon `held` and since when at the longest (`held_ms`), how many wait `away` from the
    primary, in the backlog or a spool, and since when at the longest (`away_ms`), and `backwards_ms`: the least by
    which clocks disagree, by messages that arrived before they left (null or not positive: not at all).

    `counts` are the state counts of all messages, `verdicts` those of the watched ones.
    """
    settled = counts.where(~is_watched()).groupBy("entity", F.col("state").alias("verdict"))
    ended = settled.agg(
        F.sum("messages").alias("messages"),
        F.lit(0).cast("bigint").alias("overtaken"),
        F.lit(0).cast("bigint").alias("held"),
        F.lit(None).cast("bigint").alias("held_ms"),
        F.lit(0).cast("bigint").alias("away"),
        F.lit(None).cast("bigint").alias("away_ms"),
        F.max("backwards_ms").alias("backwards_ms"),
    )
    is_held = F.col("why") == HELD
    is_away = (F.col("verdict") == WAITING) & F.col("state").isin(IN_BACKLOG, IN_SPOOL)
    judged = verdicts.groupBy("entity", "verdict").agg(
        F.count("*").alias("messages"),
        F.count_if("overtaken").alias("overtaken"),
        F.count_if(is_held).alias("held"),
        F.min(F.when(is_held, F.col("held_ms"))).alias("held_ms"),
        F.count_if(is_away).alias("away"),
        F.min(F.when(is_away, F.coalesce("backlogged_ms", "first_ms"))).alias("away_ms"),
        F.max("backwards_ms").alias("backwards_ms"),
    )
    return ended.unionByName(judged)


def named(verdicts: DataFrame, classes: tuple[str, ...] = (LOST, UNKNOWN, DUPLICATED, IN_DOUBT)) -> DataFrame:
    """One row per message of these classes: `verdict`, `entity`, `message_id`, `first_ms`, `why`; worst and oldest
    first.
    """
    order = F.array_position(F.array(*map(F.lit, classes)), F.col("verdict"))
    chosen = verdicts.where(F.col("verdict").isin(*classes))
    return chosen.select("verdict", "entity", "message_id", "first_ms", "why").orderBy(
        order, "first_ms", "message_id", "entity"
    )


VERDICT_COLUMNS = {
    "entity": "string",
    "message_id": "string",
    "verdict": "string",
    "why": "string",
    "first_ms": "bigint",
    "arrived_ms": "bigint",
    "stored_ms": "bigint",
    "backlogged_ms": "bigint",
    "last_ack_ms": "bigint",
    "held_ms": "bigint",
    "overtaken": "boolean",
    "report_ms": "bigint",
}
"""The verdict table: what other programs may rely on. Times are milliseconds since 1970 in UTC."""


def verdict_table(states: DataFrame, verdicts: DataFrame, report_ms: int) -> DataFrame:
    """One row per message, with `VERDICT_COLUMNS`; `states` of all messages, `verdicts` of the watched ones."""
    settled = states.where(~is_watched()).withColumns(
        {"verdict": F.col("state"), "why": F.lit(None).cast("string"), "overtaken": F.lit(False)}
    )
    is_held = F.col("why").isin(HELD, HELD_BY_KILLED)  # whoever took it has it no more once it came home
    together = settled.unionByName(verdicts, allowMissingColumns=True).withColumns(
        {"report_ms": F.lit(report_ms), "held_ms": F.when(is_held, F.col("held_ms"))}
    )
    return together.select(*(F.col(name).cast(kind).alias(name) for name, kind in VERDICT_COLUMNS.items()))
