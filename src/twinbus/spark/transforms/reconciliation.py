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

A namespace records what it stores before it acknowledges it. So what was acknowledged, and is not stored according to a
ledger of the primary that is complete for that time, is lost; likewise an id that was acknowledged for more sends than
it was stored or dropped as a duplicate. If records of the primary may be missing for that time, it is unknown.

When a message was sent, its sender's clock tells, which may be wrong. It is known as well as that clock is compared
with the namespace's (`transforms.clocks`); where that leaves open what follows from the namespace's silence, the
message is unknown. In the backlog a message is lost if others of the same machine, which have the same clock, have
overtaken it; if only those of other machines have, it is unknown.

A syphon that took a message from the backlog may hold it while others pass: it waits, until the syphon completes it or
gives it back. If that syphon was killed, nobody knows what it did last: unknown.

A secondary that keeps a ledger tells what its backlog queues have. A message that it has waits, whoever passed it; one
that was acknowledged there, and is not in a ledger that is complete for that time, is lost; one that is gone from its
queue, or of which records may be missing, is unknown if nobody says that it is home.

All other moments are whole minutes. Something that looks lost may have its other records in the dark: then it is
unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from twinbus.ledger.endings import FOREVER_MS
from twinbus.spark.compaction.machines import Clocks
from twinbus.spark.compaction.told import Silence
from twinbus.spark.compaction.untold import Stretch
from twinbus.spark.transforms.accounts import HOLDERS, MINUTE_MS
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
from twinbus.spark.transforms.clocks import by_machine, by_process, in_minutes, queue_reach_ms, with_reach
from twinbus.spark.transforms.in_queues import NEVER_STORED, THERE

_ACKNOWLEDGED, IN_BACKLOG, _GONE, _TOO_FEW = "acknowledged", "in_backlog", "gone", "too_few"
OPEN_STATES = (_ACKNOWLEDGED, WAITING, IN_BACKLOG, _GONE, _TOO_FEW)
"""States that are no verdict yet: how far others have gone decides, what is in the dark, or whether the entity is
still there."""
ENTITY_KEY, BACKLOG_KEY, CLOCK_KEY = ("entity", "session"), ("entity", "backlog_queue"), ("acked_by",)
SENDER_KEY, MACHINE_KEY = (*BACKLOG_KEY, "sender"), (*BACKLOG_KEY, "machine")


class Known(NamedTuple):
    """What has to be known beside the messages to judge them."""

    horizon_min: int
    dark_until_ms: int = 0
    """Records may be missing of anything that was first heard of before that."""
    silence: Silence = Silence()
    """What follows if the primary does not tell of a message."""
    killed: Collection[int] = ()
    """Numbers (`accounts.holder_number`) of processes that were killed."""
    backlog: Silence = Silence()
    """What follows if the secondary does not tell that a message is in its backlog queue."""
    clocks: Clocks = Clocks()
    """Which processes share a clock, and whose clock was set."""


def with_removals(accounts: DataFrame, removals: DataFrame) -> DataFrame:
    """Add `removed_ms`: when the entity was deleted; null: it was not."""
    return accounts.join(F.broadcast(removals), "entity", "left")


def with_state(accounts: DataFrame) -> DataFrame:
    """Add `state`: the class of a message as far as it can be told from its own records, and `removed_ms` if given."""
    is_known = "removed_ms" in accounts.columns
    was_removed = F.col("stored_ms") <= F.col("removed_ms") if is_known else F.lit(False)
    stated = accounts.withColumn("otherwise", _state(was_removed))
    return stated.withColumn("state", F.when(_is_too_few(), _TOO_FEW).otherwise(F.col("otherwise")))


def _is_too_few() -> Column:
    """Whether the primary acknowledged more sends of this id than it says it has stored or dropped. A message that came
    home twice is one.
    """
    col = F.col
    sends = col("accepted") + F.least(col("sent_home"), F.greatest(col("backlogged"), F.lit(1)))
    is_ours = col("accepted") + col("backlogged") > 0
    return is_ours & (col("stored") > 0) & (sends > col("stored") + col("dropped"))


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
        .when((col("backlogged") > 0) & (col("completed") == 0), IN_BACKLOG)
        .when(col("backlogged") > 0, _GONE)
        .otherwise(IN_DOUBT)
    )


def _of_others() -> Column:
    return F.when(F.col("not_sent") > 0, NOT_SENT).otherwise(SENT_ELSEWHERE)


def fates(accounts: DataFrame) -> DataFrame:
    """One row per message: only what the verdict needs. `message_id` and `file` stay if they are there."""
    names = ("file", "entity", "message_id", "session", "backlog_queue", "acked_by")
    keep = [name for name in names if name in accounts.columns]
    minute = {"arrived_ms": "arrived", "backlogged_ms": "backlogged_at", "first_ms": "first"}
    col, stated = F.col, with_state(accounts)
    is_in_one_queue = F.coalesce(F.col("backlog_queue") == F.col("other_queue"), F.lit(True))
    return stated.select(
        *keep,
        # Of which three or more tell, or that several sent, nobody knows by whose clock a time is.
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
        # In several queues, or given back by a syphon, it may be passed by others and be there all the same.
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


def verdicts(fates: DataFrame, known: Known) -> DataFrame:
    """The same rows with `verdict`, one of the classes, `overtaken`, and `why` (null: the verdict says it)."""
    return judged(fates, frontiers(fates), known)


class Frontiers(NamedTuple):
    """How far things have gone."""

    delivered: DataFrame
    """One row per entity and session: `delivered_to_min`, the latest minute of arrival of one that was delivered."""
    stored: DataFrame
    """One row per entity: `stored_to_min`, the same of those that the namespace recorded."""
    home: DataFrame
    """One row per entity and backlog queue: `home_to_min`, the latest minute of entry of one that came home."""
    own_home: DataFrame
    """The same for each sender by itself: `own_home_to_min`."""
    apart: DataFrame
    """One row per process that told of acknowledgements: `apart_ms`, the most its clock and the namespace's differ."""


def came_home_from_one() -> Column:
    """Whether a message came home that one process sent."""
    return F.col("came_home") & F.col("sender").isNotNull()


def frontiers(fates: DataFrame) -> Frontiers:
    """The frontiers of these messages."""
    delivered = fates.where("was_delivered").groupBy(*ENTITY_KEY).agg(F.max("arrived_min").alias("delivered_to_min"))
    stored = fates.where("was_stored").groupBy("entity").agg(F.max("arrived_min").alias("stored_to_min"))
    home = fates.where("came_home").groupBy(*BACKLOG_KEY).agg(F.max("backlogged_at_min").alias("home_to_min"))
    from_one = fates.where(came_home_from_one()).groupBy(*SENDER_KEY)
    own_home = from_one.agg(F.max("backlogged_at_min").alias("own_home_to_min"))
    apart = fates.where("apart_ms is not null").groupBy(*CLOCK_KEY).agg(F.max("apart_ms").alias("apart_ms"))
    return Frontiers(delivered, stored, home, own_home, apart)


def judged(fates: DataFrame, frontiers: Frontiers, known: Known) -> DataFrame:
    """`verdicts` of some messages; the frontiers are those of all there are."""
    clocks = by_process(frontiers.apart, known.clocks)
    located = (
        _left_join(fates.drop("apart_ms"), frontiers.delivered, ENTITY_KEY)
        .join(F.broadcast(frontiers.stored), "entity", "left")
        .transform(lambda frame: _left_join(frame, frontiers.home, BACKLOG_KEY))
        .transform(lambda frame: with_reach(frame, clocks, known.clocks))
        .transform(lambda frame: _left_join(frame, by_machine(frontiers.own_home, clocks), MACHINE_KEY))
    )
    if "in_queue" not in located.columns:  # the secondary keeps no ledger
        nothing = {"in_queue": F.lit(None).cast("string"), "queue_apart_ms": F.lit(None).cast("bigint")}
        located = located.withColumns(nothing)
    located = located.withColumn("queue_reach_ms", queue_reach_ms(known.clocks))
    overtaken = located.withColumn("overtaken", _overtaken(known.horizon_min, known.silence))
    found = overtaken.withColumn("_found", _found(known))
    return found.withColumns({"verdict": F.col("_found.verdict"), "why": F.col("_found.why")}).drop("_found")


def _left_join(frame: DataFrame, other: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """By a key that may be null on both sides."""
    renamed = other.select(*(F.col(name).alias(f"_{name}") for name in key), other.columns[-1])
    same = [frame[name].eqNullSafe(renamed[f"_{name}"]) for name in key]
    return frame.join(renamed, same, "left").drop(*(f"_{name}" for name in key))


def _overtaken(horizon_min: int, silence: Silence) -> Column:
    """Whether others have gone on that came later for certain; in the backlog, those of the same machine.

    What is stored has no reach: its times are the namespace's, or an acknowledgement that its sender has dated earlier.
    """
    col, reach_ms = F.col, F.when(F.col("was_stored"), 0).otherwise(F.coalesce("reach_ms", F.lit(0)))
    later = in_minutes(reach_ms) + horizon_min
    on_primary = (col("due_min") + later < col("delivered_to_min")) | (
        ~col("was_stored") & (col("arrived_min") + later < col("stored_to_min"))
    )
    reach = "if(was_stored, 0, coalesce(reach_ms, 0))"
    may_be_untold = _in_any(silence.untold, f"last_ack_ms + {reach}", f"arrived_ms - {reach}")
    is_compared = col("was_stored") | col("reach_ms").isNotNull() | (not silence.is_kept)
    own = in_minutes(col("set_ms")) + horizon_min
    in_backlog = ~col("may_be_passed") & (col("backlogged_at_min") + own < col("own_home_to_min"))
    found = (
        F.when(col("state").isin(_ACKNOWLEDGED, WAITING), on_primary & is_compared & ~may_be_untold)
        .when(col("state") == IN_BACKLOG, in_backlog)
        .otherwise(F.lit(False))
    )
    return F.coalesce(found, F.lit(False))


def _in_any(stretches: Sequence[Stretch], since: str = "arrived_ms", until: str = "arrived_ms") -> Column:
    """Whether `since` to `until` lies in one of the stretches."""
    text = " or ".join(f"{since} >= {since_ms} and {until} < {until_ms}" for since_ms, until_ms in stretches)
    return F.expr(f"coalesce({text}, false)") if text else F.lit(False)  # a text: there may be many


COMPLETED_ONLY = "completed in the backlog and never acknowledged by the primary"
PASSED_OVER = "others of the same machine that entered the same backlog queue later have come home"
OVERTAKEN = "others that came to the primary later have gone on"
NOT_STORED = "acknowledged by the primary, whose ledger for that time is complete and does not have it"
STORED_TOO_FEW = "the primary acknowledged more sends of this id than its complete ledger says it stored"
NOT_TOLD = "acknowledged by the primary, whose records for that time may be missing"
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
    "messages that entered the same backlog queue later have come home; but that is told by clocks of other machines, "
    "or by one that may have been set, and no records compare them"
)
IN_THE_DARK = "it looks lost, and records are missing that could tell"
MAYBE_IN_THE_DARK = (
    "it looks lost, and records of another machine are missing; no records compare the clocks, so nobody knows whether "
    "these could tell of it"
)
NEVER_IN_QUEUE = (
    "acknowledged by a backlog queue; the ledger of the secondary is complete for that time and does not have it"
)
NOT_IN_QUEUE = "nobody brought it home, and the secondary does not tell that it is in its backlog queue"
HELD, HELD_BY_KILLED = "held under lock by a syphon", "held under lock by a syphon that was killed"


def _found(known: Known) -> Column:
    """`verdict` and `why` in one."""
    col, is_dark = F.col, _is_dark(known)
    is_uncompared = _dark_reach().isNull() & (known.dark_until_ms < FOREVER_MS)
    state, silence = col("state"), known.silence

    def says(verdict: Column | str, why: str | None = None) -> Column:
        class_ = F.lit(verdict) if isinstance(verdict, str) else verdict
        return F.struct(class_.alias("verdict"), F.lit(why).cast("string").alias("why"))

    def lost(why: str) -> Column:
        unknown = F.when(is_uncompared, says(UNKNOWN, MAYBE_IN_THE_DARK)).otherwise(says(UNKNOWN, IN_THE_DARK))
        return F.when(is_dark, unknown).otherwise(says(LOST, why))

    settled = F.when(state == _ACKNOWLEDGED, STORED).when(state == _TOO_FEW, col("otherwise")).otherwise(state)
    is_held = col("held_ms").isNotNull()
    would_tell = _in_any(known.backlog.told, "backlogged_ms - queue_reach_ms", "backlogged_ms + queue_reach_ms")
    passed = ~col("may_be_passed") & (col("backlogged_at_min") + known.horizon_min < col("home_to_min"))
    backlog = (
        F.when(is_held & _is_any("holder", known.killed), says(UNKNOWN, HELD_BY_KILLED))
        .when(is_held, says(WAITING, HELD))
        .when(col("in_queue") == THERE, says(WAITING))
        .when((col("in_queue") == NEVER_STORED) & would_tell, lost(NEVER_IN_QUEUE))
        .when(
            col("in_queue").isNotNull() & _may_be_untold(known.backlog, known, "queue_reach_ms", "backlogged_ms"),
            says(UNKNOWN, NOT_IN_QUEUE),
        )
        .when(col("overtaken"), lost(PASSED_OVER))
        .when(passed, says(UNKNOWN, PASSED_BY_OTHERS))
        .otherwise(says(WAITING))
    )
    # A duplicate stays one, and one in doubt stays so: only what looks like a loss is told with the reason.
    moments = ("arrived_ms", "last_ack_ms")
    may_be_untold, is_open = _may_be_untold(silence, known, "reach_ms", *moments), _is_for_the_clocks(silence, *moments)
    on_primary = (
        F.when(_is_proven_absent(silence) & (state == _TOO_FEW), says(LOST, STORED_TOO_FEW))
        .when(_is_proven_absent(silence), says(LOST, NOT_STORED))
        .when(col("overtaken"), lost(OVERTAKEN))
        .when(may_be_untold & is_open & col("reach_ms").isNull(), says(UNKNOWN, NOT_COMPARED))
        .when(may_be_untold & is_open, says(UNKNOWN, CLOCKS_DIFFER))
        .when(may_be_untold, says(UNKNOWN, NOT_TOLD))
        .otherwise(says(settled))
    )
    return (
        F.when(state == _GONE, lost(COMPLETED_ONLY))
        .when(state == IN_BACKLOG, backlog)
        .when(state.isin(_ACKNOWLEDGED, _TOO_FEW), on_primary)
        .otherwise(says(state))
    )


def _is_dark(known: Known) -> Column:
    """Whether records may be missing about the message: it is not proven that it began after the time of these."""
    if not known.dark_until_ms:
        return F.lit(False)
    return F.coalesce(F.col("first_ms") - _dark_reach() <= known.dark_until_ms, F.lit(True))


def _dark_reach() -> Column:
    """By how much the times of the sender, and of those of whom records may be missing, may differ: if all have one
    clock, by how much that was set, else as each compares with the primary's. Null: nobody knows.
    """
    return F.when(F.col("is_missings"), F.col("set_ms")).otherwise(F.col("dark_reach_ms"))


def _is_any(column: str, numbers: Collection[int]) -> Column:
    return F.expr(f"{column} in ({', '.join(map(str, numbers))})") if numbers else F.lit(False)


def _is_proven_absent(silence: Silence) -> Column:
    """Whether the primary would have told of it, however its clock and that of whoever was told so may differ."""
    return _in_any(silence.told, "arrived_ms - reach_ms", "last_ack_ms + reach_ms - 1")


def _may_be_untold(silence: Silence, known: Known, reach: str, *moments: str) -> Column:
    """Whether a namespace keeps a ledger that may have had more to say about these moments, by clocks of that `reach`;
    not if it kept none then, and what is young may still be written down. Where there is no reach, it may.
    """
    if not silence.is_kept:
        return F.lit(False)
    since_ms = silence.read_ms - known.horizon_min * MINUTE_MS if silence.is_running else 1 << 62
    was_untold = (_in_any(silence.untold, f"{each} - {reach}", f"{each} + {reach}") for each in moments)
    return ~reduce(or_, was_untold) & F.expr(f"coalesce({moments[-1]} - {reach} < {since_ms}, true)")


def _is_for_the_clocks(silence: Silence, *moments: str) -> Column:
    """Whether nothing but the clocks leaves open what follows from the primary's silence."""
    return reduce(or_, (_in_any((*silence.told, *silence.untold), each, each) for each in moments))


def reconciliation(verdicts: DataFrame) -> DataFrame:
    """One row per entity and verdict: `messages`, how many of them were `overtaken`, how many are `held` by a syphon
    and since when at the longest (`held_ms`), and `backwards_ms`: by how much clocks disagree at least, seen from
    messages that arrived before they left (null or not positive: not at all).
    """
    return verdicts.groupBy("entity", "verdict").agg(
        F.count("*").alias("messages"),
        F.count_if("overtaken").alias("overtaken"),
        F.count_if(F.col("why") == HELD).alias("held"),
        F.min(F.when(F.col("why") == HELD, F.col("held_ms"))).alias("held_ms"),
        F.max("backwards_ms").alias("backwards_ms"),
    )


def named(verdicts: DataFrame, classes: tuple[str, ...] = (LOST, UNKNOWN, DUPLICATED, IN_DOUBT)) -> DataFrame:
    """One row per message of these classes: `verdict`, `entity`, `message_id`, `first_ms`, `why`; worst and oldest
    first.
    """
    order = F.array_position(F.array(*map(F.lit, classes)), F.col("verdict"))
    chosen = verdicts.where(F.col("verdict").isin(*classes))
    return chosen.select("verdict", "entity", "message_id", "first_ms", "why").orderBy(
        order, "first_ms", "message_id", "entity"
    )
