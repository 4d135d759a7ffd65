"""The tables about order: stretches of what was sent, and those that are torn, repaired.

A stretch is computed again only if one of its messages is in a file of accounts that is new or was replaced. A torn one
is repaired again only if it, or what arrived first of later stretches, has changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark.sql import functions as F  # noqa: N812

from twinbus.spark.jobs.account_files import ROWS_PER_FILE, AccountFiles
from twinbus.spark.jobs.merge_run import MergeRun, split_files
from twinbus.spark.transforms.ordering import repaired_stretches, sent_messages, stretches, with_later_arrivals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PLACE = ["sender", "stretch"]


def write_stretches(run: MergeRun, files: AccountFiles) -> list[str]:
    """The files of the table `stretches`."""
    before = run.before.files("stretches")
    if not files.new:
        return before
    rows = run.rows(before)
    if not files.kept:
        fresh = stretches(sent_messages(run.accounts(files.new)))
        return run.write("stretches", fresh.coalesce(1 + run.new // ROWS_PER_FILE))
    old = run.read("stretches", before, rows + run.rows(files.new))
    now = sent_messages(run.accounts(files.new, rows))
    replaced = F.array(*(F.lit(Path(file).name) for file in files.replaced)).cast("array<string>")
    was_there = old.where(F.arrays_overlap("files", replaced)).select(*PLACE)
    changed = was_there.unionByName(now.select(*PLACE)).distinct()
    names = _file_names(old.join(changed, PLACE, "semi"))
    beside = _named(files.kept, names)
    again = stretches(sent_messages(run.accounts([*files.new, *beside], rows)).join(changed, PLACE, "semi"))
    whole = old.join(changed, PLACE, "anti").unionByName(again)
    return run.write("stretches", whole.coalesce(1 + rows // ROWS_PER_FILE))


def write_repaired(run: MergeRun, files: AccountFiles, stretch_files: list[str]) -> list[str]:
    """The files of the table `mended`: all torn stretches, repaired.

    Those that are no longer torn, or torn in another way, stay without a meaning until there are many files.
    """
    before = run.before.files("mended")
    if not files.new:
        return before
    rows = run.rows(stretch_files)
    torn = _torn(run, stretch_files, rows).select("torn_as").toArrow()["torn_as"]
    known = [pq.read_table(run.store / file, columns=["torn_as"])["torn_as"] for file in before]
    unknown = torn
    for each in known:
        unknown = unknown.filter(pc.invert(pc.is_in(unknown, value_set=each)))
    if not len(unknown):
        return before
    fresh = _repair(run, files, stretch_files, unknown)
    kept, many = split_files(before)
    if many:
        old = run.read("mended", many, rows)
        fresh = old.join(_listed(old, torn), "torn_as", "semi").unionByName(fresh)
    return [*kept, *run.write("mended", fresh.coalesce(1))]


def _repair(run: MergeRun, files: AccountFiles, stretch_files: list[str], unknown: Any) -> DataFrame:
    """The torn stretches with these numbers, repaired."""
    rows = run.rows(stretch_files)
    torn = _torn(run, stretch_files, rows)
    found = _named(files.all, _file_names(torn.join(_listed(torn, unknown), "torn_as", "semi")))
    rows += run.rows(found)
    torn = _torn(run, stretch_files, rows)
    wanted = torn.join(_listed(torn, unknown), "torn_as", "semi")
    return repaired_stretches(wanted, sent_messages(run.read("accounts", found, rows)))


def _torn(run: MergeRun, stretch_files: list[str], rows: int) -> DataFrame:
    return with_later_arrivals(run.read("stretches", stretch_files, rows)).where("is_torn")


def _listed(frame: DataFrame, numbers: Any) -> DataFrame:
    return F.broadcast(frame.sparkSession.createDataFrame(pa.table({"torn_as": numbers})))


def _file_names(stretches: DataFrame) -> set[str]:
    return {row["file"] for row in stretches.select(F.explode("files").alias("file")).distinct().collect()}


def _named(files: Iterable[str], names: set[str]) -> list[str]:
    return [file for file in files if Path(file).name in names]
