"""What steps say beside what they say of messages: traffic, who was seen when, what was removed, changes, and names."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import functions as F  # noqa: N812

from twinbus.spark.jobs import at_hand
from twinbus.spark.jobs.balance import Traffic
from twinbus.spark.jobs.run import Run
from twinbus.spark.jobs.tables import AT_ONCE
from twinbus.spark.session import is_little
from twinbus.spark.transforms import traffic as moves
from twinbus.spark.transforms.accounts import is_removal, removals
from twinbus.spark.transforms.availability import changes, is_change, is_sight, observed
from twinbus.spark.transforms.ordering import session_names
from twinbus.spark.transforms.sums import Sums

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Notes(NamedTuple):
    """What the new steps of a run say."""

    traffic: list[Traffic]
    observed: list[tuple[str, int, int]]
    """Entities, and when a client had to do with them for the first and the last time."""
    removed: list[tuple[str, int]]
    """Entities, and when they were deleted for the last time."""
    tables: dict[str, list[str]]
    """The files of the tables `changes` and `sessions`."""


def noted(run: Run, bucket_ms: int) -> Notes:
    """Everything, with traffic in stretches of `bucket_ms`."""
    return _noted_here(run, bucket_ms) if is_little(run.new) else _noted_there(run, bucket_ms)


def _noted_there(run: Run, bucket_ms: int) -> Notes:
    steps = run.steps()
    with ThreadPoolExecutor(AT_ONCE) as at_once:
        changed = at_once.submit(lambda: _appended(run, "changes", changes(steps)))
        named = at_once.submit(lambda: _appended(run, "sessions", session_names(steps)))
        moved = at_once.submit(moves.traffic(steps, bucket_ms=bucket_ms).collect)
        seen = at_once.submit(observed(steps).collect)
        gone = at_once.submit(removals(steps).collect)
    return Notes(
        [Traffic(*row) for row in moved.result()],
        [tuple(row) for row in seen.result()],
        [tuple(row) for row in gone.result()],
        {"changes": changed.result(), "sessions": named.result()},
    )


def _appended(run: Run, table: str, fresh: DataFrame) -> list[str]:
    kept, many = run.spared(run.before.files(table))
    if many:
        fresh = run.read(table, many, run.new).unionByName(fresh).distinct()
    return [*kept, *run.write(table, fresh.coalesce(1))]


def _noted_here(run: Run, bucket_ms: int) -> Notes:
    """The same from one look at the steps."""
    sums = moves.sums()
    rows = _marked(run.steps(), bucket_ms, sums).toArrow()
    moved = at_hand.put_together(rows.filter(rows["counts"]).select([*moves.KEY, *sums]), moves.KEY, sums)
    seen = rows.filter(rows["is_sight"]).group_by("entity").aggregate([("at_ms", "min"), ("at_ms", "max")])
    gone = rows.filter(rows["is_removal"]).group_by("entity").aggregate([("at_ms", "max")])
    fresh = {"changes": rows.filter(rows["is_change"]), "sessions": rows.filter(rows["session_id"].is_valid())}
    return Notes(
        [Traffic(**row) for row in moved.to_pylist()],
        [tuple(row.values()) for row in seen.to_pylist()],
        [tuple(row.values()) for row in gone.to_pylist()],
        {table: _appended_here(run, table, each) for table, each in fresh.items()},
    )


def _marked(steps: DataFrame, bucket_ms: int, sums: Sums) -> DataFrame:
    """Each step, what it adds to the traffic, and what else it is."""
    return steps.withColumns(moves.stretch(bucket_ms)).select(
        *moves.KEY,
        *(each.value.alias(name) for name, each in sums.items()),
        "process",
        "number",
        "at_ms",
        F.lower("entity").alias("entity"),
        "session_id",
        F.xxhash64("session_id").alias("session"),
        moves.counts(steps).alias("counts"),
        is_sight().alias("is_sight"),
        is_removal().alias("is_removal"),
        is_change().alias("is_change"),
    )


def _appended_here(run: Run, table: str, rows: Any) -> list[str]:
    kept, many = run.spared(run.before.files(table))
    schema = run.schema(table)
    fresh = pa.concat_tables([run.read_here(table, many), rows.select(schema.names).cast(schema)])
    return [*kept, *run.write_here(table, fresh.group_by(schema.names).aggregate([]))]
