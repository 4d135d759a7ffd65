"""The Parquet files of a balance: what is in them, and how they are read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from twinbus.spark.jobs.compaction import paths_of, steps_of_files
from twinbus.spark.transforms.accounts import KEY, accounts
from twinbus.spark.transforms.availability import changes
from twinbus.spark.transforms.ordering import journeys, mended, session_names, stretches, together
from twinbus.spark.transforms.reconciliation import fates
from twinbus.spark.transforms.tallies import tallies, watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

AT_ONCE = 4
"""Questions: most of the time that a small one takes goes into planning it."""


def read_table(spark: SparkSession, store: Path, table: str, files: list[str]) -> DataFrame:
    """What some files of a table have; without files no rows."""
    schema = schemas()[table]
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*paths_of(store, files))


@cache
def schemas() -> dict[str, StructType]:
    """The columns of every table. They are those of the transforms, and are asked for once: it takes a while."""
    steps = steps_of_files(SparkSession.active(), Path(), [])
    known = with_key(accounts(steps))
    in_files = known.withColumn("file", F.lit(""))
    frames = {
        "accounts": known,
        "tallies": tallies(fates(in_files)),
        "watched": watched(fates(in_files)),
        "stretches": stretches(journeys(in_files)),
        "mended": mended(together(stretches(journeys(in_files))), journeys(in_files)),
        "changes": changes(steps),
        "sessions": session_names(steps),
    }
    return {name: frame.schema for name, frame in frames.items()}


@cache
def arrow_schemas() -> dict[str, Any]:
    """The same as Arrow."""
    from pyspark.sql.pandas.types import to_arrow_schema

    asked = {name: to_arrow_schema(schema) for name, schema in schemas().items()}
    return {
        name: pa.schema([(each.name, _as_in_files(each.type)) for each in schema]) for name, schema in asked.items()
    }


def _as_in_files(kind: Any) -> Any:
    """Spark knows of some values that they are never empty; files do not."""
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, _as_in_files(each.type)) for each in kind])
    return pa.list_(_as_in_files(kind.value_type)) if pa.types.is_list(kind) else kind


def with_key(accounts: DataFrame) -> DataFrame:
    """With one number for what a message is called, quick to look for; two messages may share it."""
    return accounts.withColumn("key", F.xxhash64(*KEY))


def with_file(read: DataFrame) -> DataFrame:
    """With the name of the file that a row is in: no two files of a balance have the same."""
    return read.withColumn("file", F.col("_metadata.file_name"))


def name_of(file: str) -> str:
    return Path(file).name


def has_any(store: Path, files: list[str], keys: Any) -> list[str]:
    """The files of accounts that have one of these keys, which are in order. It is a column of whole numbers: read here
    it takes less time than Spark needs to begin.
    """
    if not len(keys):
        return []
    with ThreadPoolExecutor(AT_ONCE) as at_once:
        found = at_once.map(lambda file: _has_any(store / file, keys), files)
        return [file for file, has in zip(files, found, strict=True) if has]


def _has_any(file: Path, keys: Any) -> bool:
    there = pq.read_table(file, columns=["key"], use_threads=False)["key"].to_numpy()
    at = np.minimum(np.searchsorted(keys, there), len(keys) - 1)
    return bool((keys[at] == there).any())


def rows_in(file: Path) -> int:
    rows: int = pq.read_metadata(file).num_rows
    return rows


def first_ms_in(file: Path) -> int:
    """When the first message in a file of accounts was first heard of."""
    there = pq.read_table(file, columns=["first_ms"])["first_ms"]
    return int(there.to_numpy().min())
