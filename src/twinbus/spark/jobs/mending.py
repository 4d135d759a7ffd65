"""Torn stretches, looked at with an eye on later ones: once, for as long as neither they nor those change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import functions as F  # noqa: N812

from twinbus.spark.jobs.accounting import Accounts
from twinbus.spark.jobs.run import Run
from twinbus.spark.jobs.tables import name_of
from twinbus.spark.transforms import ordering as order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def mended(run: Run, accounted: Accounts, stretches: list[str]) -> list[str]:
    """The files with all stretches that are torn, mended.

    Those that are torn in another way by now, or not any more, stay without a meaning until there are many files.
    """
    before = run.before.files("mended")
    if not accounted.new:
        return before
    rows = run.rows(stretches)
    torn = _torn(run, stretches, rows).select("torn_as").toArrow()["torn_as"]
    known = run.read_here("mended", before, ["torn_as"])["torn_as"]
    unknown = torn.filter(pc.invert(pc.is_in(torn, value_set=known)))
    if not len(unknown):
        return before
    fresh = _mended(run, accounted, stretches, unknown)
    kept, many = run.spared(before)
    if many:
        old = run.read("mended", many, rows)
        fresh = old.join(_among(old, torn), "torn_as", "semi").unionByName(fresh)
    return [*kept, *run.write("mended", fresh.coalesce(1))]


def _torn(run: Run, stretches: list[str], rows: int) -> DataFrame:
    return order.together(run.read("stretches", stretches, rows)).where("is_torn")


def _among(frame: DataFrame, numbers: Any) -> DataFrame:
    return F.broadcast(frame.sparkSession.createDataFrame(pa.table({"torn_as": numbers})))


def _mended(run: Run, accounted: Accounts, stretches: list[str], unknown: Any) -> DataFrame:
    """Those of which nothing is known yet."""
    torn = _torn(run, stretches, run.rows(stretches))
    found = torn.join(_among(torn, unknown), "torn_as", "semi").select(F.explode("files").alias("file"))
    names = {row["file"] for row in found.distinct().collect()}
    files = [file for file in accounted.all if name_of(file) in names]
    rows = run.rows(stretches) + run.rows(files)
    torn = _torn(run, stretches, rows)
    wanted = torn.join(_among(torn, unknown), "torn_as", "semi")
    return order.mended(wanted, order.journeys(run.read("accounts", files, rows)))
