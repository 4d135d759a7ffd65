"""Torn stretches, looked at with an eye on later ones: once, for as long as neither they nor those change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import functions as F  # noqa: N812

from twinbus.spark.jobs.accounting import Accounts
from twinbus.spark.jobs.run import Run
from twinbus.spark.jobs.tables import name_of
from twinbus.spark.session import is_little
from twinbus.spark.transforms import ordering as order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def mended(run: Run, accounted: Accounts, stretches: list[str]) -> list[str]:
    """The files of all stretches that are torn, mended."""
    rows = run.rows(stretches)
    torn = _torn(run, stretches, rows).select("torn_as", "files").toArrow()
    files = run.before.files("mended")
    known = run.read_here("mended", files)
    holds = pc.is_in(known["torn_as"], value_set=torn["torn_as"])
    unknown = torn.filter(pc.invert(pc.is_in(torn["torn_as"], value_set=known["torn_as"])))
    if not unknown.num_rows and pc.all(holds, min_count=0).as_py():
        return files
    kept = known.filter(holds)
    if not unknown.num_rows:
        return run.write_here("mended", kept)
    names = set(pc.list_flatten(unknown["files"]).unique().to_pylist())
    apart = [file for file in accounted.all if name_of(file) in names]
    return _written(run, kept, _mended(run, unknown, stretches, apart), rows + run.rows(apart))


def _torn(run: Run, stretches: list[str], rows: int) -> DataFrame:
    return order.together(run.read("stretches", stretches, rows)).where("is_torn")


def _mended(run: Run, unknown: Any, stretches: list[str], files: list[str]) -> DataFrame:
    """Those of which nothing is known yet; their messages are in these files of accounts."""
    rows = run.rows(stretches) + run.rows(files)
    torn = _torn(run, stretches, rows)
    wanted = F.broadcast(torn.sparkSession.createDataFrame(unknown.select(["torn_as"])))
    return order.mended(torn.join(wanted, "torn_as", "semi"), order.journeys(run.read("accounts", files, rows)))


def _written(run: Run, kept: Any, fresh: DataFrame, rows: int) -> list[str]:
    if is_little(rows):
        return run.write_here("mended", pa.concat_tables([kept, fresh.toArrow().cast(kept.schema)]))
    return [*run.write("mended", fresh.coalesce(1)), *run.write_here("mended", kept)]
