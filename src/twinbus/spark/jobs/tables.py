"""The Parquet files of a balance: what is in them, and how they are read."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from twinbus.spark.jobs.compaction import steps_of_files
from twinbus.spark.transforms.accounts import KEY, accounts
from twinbus.spark.transforms.availability import changes
from twinbus.spark.transforms.ordering import journeys, session_names, stretches
from twinbus.spark.transforms.reconciliation import fates
from twinbus.spark.transforms.tallies import tallies, watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def read_table(spark: SparkSession, store: Path, table: str, files: list[str]) -> DataFrame:
    """What some files of a table have; without files no rows."""
    schema = schemas()[table]
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*(str(store / file) for file in files))


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
        "changes": changes(steps),
        "sessions": session_names(steps),
    }
    return {name: frame.schema for name, frame in frames.items()}


def with_key(accounts: DataFrame) -> DataFrame:
    """With one number for what a message is called, quick to look for; two messages may share it."""
    return accounts.withColumn("key", F.xxhash64(*KEY))


def with_file(read: DataFrame) -> DataFrame:
    """With the name of the file that a row is in: no two files of a balance have the same."""
    return read.withColumn("file", F.col("_metadata.file_name"))


def name_of(file: str) -> str:
    return Path(file).name


def has_any(file: Path, keys: Any) -> bool:
    """Whether a file of accounts has one of these keys, which are in order. It is a column of whole numbers: read here
    it takes less time than Spark needs to begin.
    """
    there = pq.read_table(file, columns=["key"])["key"].to_numpy()
    at = np.minimum(np.searchsorted(keys, there), len(keys) - 1)
    return len(keys) > 0 and bool((keys[at] == there).any())


def rows_in(file: Path) -> int:
    rows: int = pq.read_metadata(file).num_rows
    return rows


def first_ms_in(file: Path) -> int:
    """When the first message in a file of accounts was first heard of."""
    there = pq.read_table(file, columns=["first_ms"])["first_ms"]
    return int(there.to_numpy().min())
