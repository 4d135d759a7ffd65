"""Was order kept? For each session, and for each entity, how many messages came after one that was sent later.

What was sent is in order within one sending process only. What arrived is looked at four times, as far as there are
records: as receivers were done with it, in the namespace's words and in their own, as the namespace stored it, and as
the primary acknowledged it.

What was scheduled for later comes later by intent. It is compared only with what was scheduled too, by when it was due;
if nobody recorded when that was, with nothing.

What a process sent is cut into *stretches*. Within one of them order can be looked at once and for all. Together, only
those are looked at again in which something came later than the first of all later stretches: they are *torn*.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from twinbus.spark.transforms.accounts import ARRIVALS, POSITIONS_MAX

STRETCH_RECORDS = 8192
DUE_MS_MAX = 1 << 42
"""In the year 2109: later ones count as due together, and fit into a whole number as a place."""
SENT_BY = ("entity", "session", "sender", "is_scheduled")
IN_STRETCH = (*SENT_BY, "stretch")


def journeys(accounts: DataFrame) -> DataFrame:
    """One row per message that was sent: `entity`, `session`, `sender`, whether it `is_scheduled`, its place in what
    was sent (of what is scheduled, in what is due) and the `stretch` that it is in, and for each way of looking at
    arrivals the moment and the place of the first. `file` stays.
    """
    keep = [name for name in ("file", "entity", "session", "sender") if name in accounts.columns]
    arrivals = [f"{name}_{what}" for name in ARRIVALS for what in ("ms", "place")]
    is_due_later = F.coalesce(F.col("due_ms") > F.coalesce("sent_ms", "first_ms"), F.lit(False))
    has_a_place = F.col("sent_place").isNotNull() & (is_due_later | (F.col("numbered") == 0))
    due_place = F.least(F.col("due_ms"), F.lit(DUE_MS_MAX)) * POSITIONS_MAX
    placed = accounts.where(has_a_place).select(
        *keep,
        is_due_later.alias("is_scheduled"),
        F.when(is_due_later, due_place).otherwise(F.col("sent_place")).alias("sent_place"),
        *arrivals,
    )
    return placed.select(*keep, "is_scheduled", "sent_place", _stretch().alias("stretch"), *arrivals)


def _stretch() -> Column:
    return F.floor(F.col("sent_place") / (STRETCH_RECORDS * POSITIONS_MAX))


def with_lateness(journeys: DataFrame, within: tuple[str, ...] = SENT_BY) -> DataFrame:
    """Add for each way of looking `<way>_late_ms`: how much later than one that was sent after it; null: not later.

    `within` says among which messages; if there is `<way>_beyond`, one that arrived then was sent later, too.
    """
    in_order = Window.partitionBy(*within).orderBy(F.desc("sent_place"))
    # By value: what two processes sent under one name may share its place with another message.
    before = in_order.rangeBetween(Window.unboundedPreceding, -1)
    # One step after the other, each for all ways: they share a window, and nothing is computed twice.
    looked_at = journeys.withColumns({f"_{name}": _arrival(name) for name in ARRIVALS})
    looked_at = looked_at.withColumns({f"_{name}_next": F.min(f"_{name}").over(before) for name in ARRIVALS})
    late = {f"{name}_late_ms": _late_ms(name, _beyond(name) in journeys.columns) for name in ARRIVALS}
    return looked_at.withColumns(late).select(*journeys.columns, *late)


def _late_ms(name: str, heeds_beyond: bool) -> Column:
    following = F.col(f"_{name}_next")
    if heeds_beyond:
        following = F.least(following, _beyond(name))
    return F.when(F.col(f"_{name}") > following, F.col(f"{name}_ms") - following[f"{name}_ms"])


def ordering_by_session(journeys: DataFrame) -> DataFrame:
    """One row per entity and session (null: without): `messages`, and for each way of looking how many `arrived`, how
    many came `late`, after one that was sent later, and the `worst_ms` of it.
    """
    damage = with_lateness(journeys).groupBy("entity", "session")
    return damage.agg(F.count("*").alias("messages"), *(column for name in ARRIVALS for column in _damage(name)))


def stretches(journeys: DataFrame) -> DataFrame:
    """One row per stretch of what a sender sent to an entity and session: `messages`, the `files` that they are in, and
    for each way of looking what `ordering_by_session` has, and the `first` and the `last` arrival.
    """
    damage = with_lateness(journeys, IN_STRETCH).groupBy(*IN_STRETCH)
    ends = [
        end(_arrival(name)).alias(f"{name}_{what}")
        for name in ARRIVALS
        for what, end in (("first", F.min), ("last", F.max))
    ]
    return damage.agg(
        F.count("*").alias("messages"),
        F.collect_set("file").alias("files"),
        *(column for name in ARRIVALS for column in _damage(name)),
        *ends,
    )


def together(stretches: DataFrame) -> DataFrame:
    """All stretches there are, with the first arrival of all later ones, `<way>_beyond`, whether they `is_torn`, and
    `torn_as`, one number for a stretch, what it is made of and what lies beyond: it changes if any of these does.
    """
    later = Window.partitionBy(*SENT_BY).orderBy(F.desc("stretch")).rowsBetween(Window.unboundedPreceding, -1)
    is_torn = F.lit(False)
    for name in ARRIVALS:
        stretches = stretches.withColumn(_beyond(name), F.min(f"{name}_first").over(later))
        is_torn = is_torn | F.coalesce(F.col(f"{name}_last") > F.col(_beyond(name)), F.lit(False))
    made_of = F.array_join(F.sort_array("files"), "/")
    torn_as = F.xxhash64(*IN_STRETCH, made_of, *map(_beyond, ARRIVALS))
    return stretches.withColumn("is_torn", is_torn).withColumn("torn_as", torn_as)


def mended(torn: DataFrame, journeys: DataFrame) -> DataFrame:
    """The torn stretches once more, with an eye on later ones; `journeys` are at least those of their messages."""
    beyond = torn.select(*(F.col(name).alias(f"_{name}") for name in IN_STRETCH), *map(_beyond, ARRIVALS), "torn_as")
    same = [journeys[name].eqNullSafe(beyond[f"_{name}"]) for name in IN_STRETCH]
    damage = with_lateness(journeys.join(beyond, same), IN_STRETCH).groupBy(*IN_STRETCH, "torn_as")
    return damage.agg(F.count("*").alias("messages"), *(column for name in ARRIVALS for column in _damage(name)))


def whole(stretches: DataFrame, mended: DataFrame) -> DataFrame:
    """What all stretches come to: those that are not torn, as `together` says, and the others mended; `mended` may have
    more than those.
    """
    columns = [name for name in mended.columns if name != "torn_as"]
    torn = stretches.where("is_torn").select("torn_as")
    instead = mended.join(torn, "torn_as", "semi").select(*columns)
    return stretches.where("not is_torn").select(*columns).unionByName(instead)


def by_session(stretches: DataFrame) -> DataFrame:
    """`ordering_by_session`, from stretches that are whole or mended."""
    sums = [F.sum(f"{name}_{what}").alias(f"{name}_{what}") for name in ARRIVALS for what in ("arrived", "late")]
    worst = [F.max(f"{name}_worst_ms").alias(f"{name}_worst_ms") for name in ARRIVALS]
    return stretches.groupBy("entity", "session").agg(F.sum("messages").alias("messages"), *sums, *worst)


def _arrival(name: str) -> Column:
    return F.when(F.col(f"{name}_ms").isNotNull(), F.struct(f"{name}_ms", f"{name}_place"))


def _beyond(name: str) -> str:
    return f"{name}_beyond"


def _damage(name: str) -> list[Column]:
    return [
        F.count(f"{name}_ms").alias(f"{name}_arrived"),
        F.count(f"{name}_late_ms").alias(f"{name}_late"),
        F.max(f"{name}_late_ms").alias(f"{name}_worst_ms"),
    ]


def ordering(by_session: DataFrame) -> DataFrame:
    """One row per entity: `messages`, `sessions`, `basis` (the best way of looking that has records), `arrived`,
    `late`, `sessions_hurt` and `worst_ms`.
    """
    totals = by_session.groupBy("entity").agg(
        F.sum("messages").alias("messages"),
        F.count("session").alias("sessions"),
        *(column for name in ARRIVALS for column in _totals(name)),
    )
    basis = F.lit(None).cast("string")
    for name in reversed(ARRIVALS):
        basis = F.when(F.col(f"{name}_arrived") > 0, F.lit(name)).otherwise(basis)
    chosen = totals.withColumn("basis", basis)
    best = [_of_basis(column).alias(column) for column in ("arrived", "late", "sessions_hurt", "worst_ms")]
    return chosen.select("entity", "messages", "sessions", "basis", *best).orderBy("entity")


def hurt(by_session: DataFrame, by_entity: DataFrame) -> DataFrame:
    """The sessions that have `late` messages, in the way of looking that is the `basis` of their entity."""
    based = by_session.where("session is not null").join(F.broadcast(by_entity.select("entity", "basis")), "entity")
    return based.withColumn("late", _of_basis("late")).where("late > 0")


def _totals(name: str) -> list[Column]:
    return [
        F.sum(f"{name}_arrived").alias(f"{name}_arrived"),
        F.sum(f"{name}_late").alias(f"{name}_late"),
        F.count_if((F.col(f"{name}_late") > 0) & F.col("session").isNotNull()).alias(f"{name}_sessions_hurt"),
        F.max(f"{name}_worst_ms").alias(f"{name}_worst_ms"),
    ]


def _of_basis(column: str) -> Column:
    chosen: Column = F.lit(None).cast("bigint")
    for name in ARRIVALS:
        chosen = F.when(F.col("basis") == name, F.col(f"{name}_{column}")).otherwise(chosen)
    return chosen


def session_names(steps: DataFrame) -> DataFrame:
    """One row per session: `session` (its hash, as elsewhere) and `session_id`, its name."""
    named = steps.where(F.col("session_id").isNotNull())
    return named.select(F.xxhash64("session_id").alias("session"), "session_id").distinct()
