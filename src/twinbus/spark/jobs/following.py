"""What follows from the accounts: tallies, messages to watch, and order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import functions as F  # noqa: N812

from twinbus.spark.jobs import at_hand
from twinbus.spark.jobs.accounting import Accounts
from twinbus.spark.jobs.run import Run
from twinbus.spark.jobs.tables import name_of
from twinbus.spark.session import is_little
from twinbus.spark.transforms import ordering as order
from twinbus.spark.transforms import tallies as tally
from twinbus.spark.transforms.accounts import POSITIONS_MAX
from twinbus.spark.transforms.reconciliation import fates

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS_PER_FILE = 1_000_000
PLACE = ["sender", "stretch"]


def judged(run: Run, accounted: Accounts) -> dict[str, list[str]]:
    """The files of the tables `tallies` and `watched`.

    Rows about files of accounts that were replaced stay, without a meaning, until there are many.
    """
    if not accounted.new:
        return {table: _before(run, table, accounted) for table in ("tallies", "watched")}
    found = fates(run.accounts(accounted.new))
    if is_little(run.rows(accounted.new)):
        fresh = _judged_here(found)
        return {table: _added_here(run, table, rows, accounted) for table, rows in fresh.items()}
    much = {"tallies": tally.tallies(found.drop("message_id")), "watched": tally.watched(found)}
    return {table: _added(run, table, frame, accounted) for table, frame in much.items()}


def _judged_here(found: DataFrame) -> dict[str, Any]:
    """Both tables as Arrow, from one look at the accounts."""
    total = tally.sums()
    adds = {f"adds_{name}": each.value for name, each in total.items()}
    rows = found.withColumns(adds).toArrow()
    parts = rows.select([*tally.KEY, *adds]).rename_columns([*tally.KEY, *total])
    is_watched = pc.is_in(rows["state"], value_set=pa.array(tally.WATCHED))
    return {
        "tallies": at_hand.put_together(parts, tally.KEY, total),
        "watched": rows.drop_columns([*adds]).filter(is_watched),
    }


def _before(run: Run, table: str, accounted: Accounts) -> list[str]:
    """The files of a table that are still about something."""
    return run.before.files(table) if accounted.kept else []


def _added(run: Run, table: str, fresh: DataFrame, accounted: Accounts) -> list[str]:
    kept, many = run.spared(_before(run, table, accounted))
    if many:
        old = run.read(table, many, run.rows([*many, *accounted.new]))
        fresh = old.where(F.col("file").isin(*map(name_of, accounted.kept))).unionByName(fresh)
    return [*kept, *run.write(table, fresh.coalesce(1 + run.new // ROWS_PER_FILE))]


def _added_here(run: Run, table: str, fresh: Any, accounted: Accounts) -> list[str]:
    kept, many = run.spared(_before(run, table, accounted))
    if many:
        old = run.read_here(table, many)
        counts = pc.is_in(old["file"], value_set=pa.array(map(name_of, accounted.kept), pa.string()))
        fresh = pa.concat_tables([old.filter(counts), fresh.cast(run.schema(table))])
    return [*kept, *run.write_here(table, fresh)]


def stretches(run: Run, accounted: Accounts) -> list[str]:
    """The files of all stretches; those are looked at again of which a message is in a file that is new or was
    replaced.
    """
    before = run.before.files("stretches")
    if not accounted.new:
        return before
    if not accounted.kept:
        all_new = order.stretches(order.journeys(run.accounts(accounted.new)))
        return run.write("stretches", all_new.coalesce(1 + run.new // ROWS_PER_FILE))
    if is_little(run.rows([*before, *accounted.new])):
        return _stretched_here(run, accounted, run.read_here("stretches", before))
    return _stretched_there(run, accounted, before)


def _stretched_here(run: Run, accounted: Accounts, old: Any) -> list[str]:
    touched, is_touched = _touched(run, accounted, old)
    files = [*accounted.new, *_beside(accounted, pc.list_flatten(old.filter(is_touched)["files"]).to_pylist())]
    found = order.journeys(run.accounts(files))
    places = F.broadcast(found.sparkSession.createDataFrame(touched))
    again = order.stretches(found.join(places, PLACE, "semi")).toArrow()
    untouched = old.filter(pc.invert(is_touched))
    return run.write_here("stretches", pa.concat_tables([untouched, again.cast(old.schema)]))


def _touched(run: Run, accounted: Accounts, old: Any) -> tuple[Any, Any]:
    """The places of the stretches to look at again, and for each stretch so far whether it is one of them."""
    sent = run.read_here("accounts", accounted.new, ["sender", "sent_place", "due_ms"])
    sent = sent.filter(sent["sender"].is_valid())
    due = np.minimum(pc.fill_null(sent["due_ms"], 0).to_numpy(), order.DUE_MS_MAX) * POSITIONS_MAX
    # A message is in one of two: looking at the other one again changes nothing.
    now = pa.concat_tables(
        pa.table({"sender": sent["sender"], "stretch": place // (order.STRETCH_RECORDS * POSITIONS_MAX)})
        for place in (sent["sent_place"].to_numpy(), due)
    )
    was_there = old.filter(at_hand.rows_naming(old["files"], {name_of(file) for file in accounted.replaced}))
    places = pa.concat_tables([now, was_there.select(PLACE)]).group_by(PLACE).aggregate([])
    return places, at_hand.rows_with(old, PLACE, places)


def _stretched_there(run: Run, accounted: Accounts, before: list[str]) -> list[str]:
    """The same where there are many messages or many stretches: nothing of it comes here."""
    rows = run.rows(before)
    old = run.read("stretches", before, rows + run.rows(accounted.new))
    now = order.journeys(run.accounts(accounted.new, rows))
    replaced = F.array(*(F.lit(name_of(file)) for file in accounted.replaced)).cast("array<string>")
    was_there = old.where(F.arrays_overlap("files", replaced)).select(*PLACE)
    touched = was_there.unionByName(now.select(*PLACE)).distinct()
    names = old.join(touched, PLACE, "semi").select(F.explode("files").alias("file")).distinct().collect()
    files = [*accounted.new, *_beside(accounted, [row["file"] for row in names])]
    again = order.stretches(order.journeys(run.accounts(files, rows)).join(touched, PLACE, "semi"))
    whole = old.join(touched, PLACE, "anti").unionByName(again)
    return run.write("stretches", whole.coalesce(1 + rows // ROWS_PER_FILE))


def _beside(accounted: Accounts, names: Iterable[str]) -> list[str]:
    """Files that were kept and are among the names."""
    wanted = set(names)
    return [file for file in accounted.kept if name_of(file) in wanted]
