"""Order: for each session and each entity, how many messages came after one that was sent later.

Sends are ordered within one process only. Arrivals are compared in four ways, as far as there are records: as receivers
completed messages, by the namespace's records and by their own, as the namespace stored them, and as the primary
acknowledged them.

Scheduled messages come later by intent. They are compared only with each other, by the time they were due; if that was
not recorded, with nothing.

The sends of a process are cut into *stretches* of records. Order within a stretch is computed once. A stretch is *torn*
if a message in it came after the first of a later stretch: only torn ones are computed again (repaired).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from twinbus.spark.transforms.accounts import ARRIVALS, POSITIONS_MAX

STRETCH_RECORDS = 8192
DUE_MS_MAX = 1 << 42
"""The year 2109: later messages count as due together; a place fits into a whole number."""
SENT_BY = ("entity", "session", "sender", "is_scheduled")
IN_STRETCH = (*SENT_BY, "stretch")


def sent_messages(accounts: DataFrame, *also: str) -> DataFrame:
    """One row per message that was sent: `entity`, `session`, `sender`, whether it `is_scheduled`, its place among the
    sends (if scheduled, among those due), its `stretch`, and for each way to see arrivals the time and the place of the
    first. `file` stays, and so do the columns `also`.
    """
    keep = [name for name in ("file", "entity", "session", "sender", *also) if name in accounts.columns]
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
    stretch = F.floor(F.col("sent_place") / (STRETCH_RECORDS * POSITIONS_MAX)).alias("stretch")
    return placed.select(*keep, "is_scheduled", "sent_place", stretch, *arrivals)


def with_lateness(sent: DataFrame, within: tuple[str, ...] = SENT_BY) -> DataFrame:
    """Add for each way `<way>_late_ms`: how much later a message came than one that was sent after it; null: not later.

    Messages that agree in `within` are compared; `<way>_beyond`, if it exists, is an arrival that was sent later, too.
    """
    in_order = Window.partitionBy(*within).orderBy(F.desc("sent_place"))
    # By value: a message that two processes sent may share its place with another.
    before = in_order.rangeBetween(Window.unboundedPreceding, -1)
    # Step by step for all ways: they share a window, and nothing is computed twice.
    compared = sent.withColumns({f"_{name}": _arrival(name) for name in ARRIVALS})
    compared = compared.withColumns({f"_{name}_next": F.min(f"_{name}").over(before) for name in ARRIVALS})
    late = {f"{name}_late_ms": _late_ms(name, _beyond(name) in sent.columns) for name in ARRIVALS}
    return compared.withColumns(late).select(*sent.columns, *late)


def _late_ms(name: str, has_beyond: bool) -> Column:
    following = F.col(f"_{name}_next")
    if has_beyond:
        following = F.least(following, _beyond(name))
    return F.when(F.col(f"_{name}") > following, F.col(f"{name}_ms") - following[f"{name}_ms"])


def ordering_by_session(sent: DataFrame, chosen: Column | None = None) -> DataFrame:
    """One row per entity and session (null: without): `messages`, and for each way how many `arrived`, how many came
    `late`, after one that was sent later, and the `worst_ms` of it. Of the `chosen` messages only, but compared with
    all of them.
    """
    compared = with_lateness(sent)
    damage = (compared if chosen is None else compared.where(chosen)).groupBy("entity", "session")
    return damage.agg(F.count("*").alias("messages"), *(column for name in ARRIVALS for column in _damage(name)))


def stretches(sent: DataFrame) -> DataFrame:
    """One row per stretch of sends to an entity and session: `messages`, the `files` that they are in, and for each way
    what `ordering_by_session` has, and the `first` and the `last` arrival.
    """
    damage = with_lateness(sent, IN_STRETCH).groupBy(*IN_STRETCH)
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


def with_later_arrivals(stretches: DataFrame) -> DataFrame:
    """Add the first arrival of all later stretches, `<way>_beyond`, whether a stretch `is_torn`, and `torn_as`: a
    number that changes if the stretch, its files or the later arrivals do. `stretches` are all there are.
    """
    later = Window.partitionBy(*SENT_BY).orderBy(F.desc("stretch")).rowsBetween(Window.unboundedPreceding, -1)
    is_torn = F.lit(False)
    for name in ARRIVALS:
        stretches = stretches.withColumn(_beyond(name), F.min(f"{name}_first").over(later))
        is_torn = is_torn | F.coalesce(F.col(f"{name}_last") > F.col(_beyond(name)), F.lit(False))
    made_of = F.array_join(F.sort_array("files"), "/")
    torn_as = F.xxhash64(*IN_STRETCH, made_of, *map(_beyond, ARRIVALS))
    return stretches.withColumn("is_torn", is_torn).withColumn("torn_as", torn_as)


def repaired_stretches(torn: DataFrame, sent: DataFrame) -> DataFrame:
    """The torn stretches again, compared with later ones; `sent` has at least their messages."""
    beyond = torn.select(*(F.col(name).alias(f"_{name}") for name in IN_STRETCH), *map(_beyond, ARRIVALS), "torn_as")
    same = [sent[name].eqNullSafe(beyond[f"_{name}"]) for name in IN_STRETCH]
    damage = with_lateness(sent.join(beyond, same), IN_STRETCH).groupBy(*IN_STRETCH, "torn_as")
    return damage.agg(F.count("*").alias("messages"), *(column for name in ARRIVALS for column in _damage(name)))


def replace_torn(stretches: DataFrame, repaired: DataFrame) -> DataFrame:
    """All stretches, with the repaired ones in place of those that are torn; `repaired` may have more than those."""
    columns = [name for name in repaired.columns if name != "torn_as"]
    torn = stretches.where("is_torn").select("torn_as")
    instead = repaired.join(torn, "torn_as", "semi").select(*columns)
    return stretches.where("not is_torn").select(*columns).unionByName(instead)


def session_totals(stretches: DataFrame) -> DataFrame:
    """`ordering_by_session`, from stretches that are not torn or repaired."""
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
    """One row per entity: `messages`, `sessions`, `basis` (the best way that has records), `arrived`,
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


def sessions_hurt(by_session: DataFrame, by_entity: DataFrame) -> DataFrame:
    """The sessions with `late` messages, in the way that is the `basis` of their entity."""
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
    """One row per session: `session` (its hash) and `session_id`, its name."""
    named = steps.where(F.col("session_id").isNotNull())
    return named.select(F.xxhash64("session_id").alias("session"), "session_id").distinct()
