"""The Parquet tables of a balance: their columns, and how they are read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from twinbus.spark.jobs.compaction import escape_paths, steps_of_files
from twinbus.spark.transforms.accounts import KEY, accounts
from twinbus.spark.transforms.availability import changes
from twinbus.spark.transforms.message_states import message_states, state_counts, watched
from twinbus.spark.transforms.ordering import (
    repaired_stretches,
    sent_messages,
    session_names,
    stretches,
    with_later_arrivals,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

AT_ONCE = 4
"""Queries run at once: most of the time of a small one goes into planning it."""


def read_table(spark: SparkSession, store: Path, table: str, files: list[str]) -> DataFrame:
    """The rows in some files of a table; none without files."""
    schema = schemas()[table]
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*escape_paths(store, files))


@cache
def schemas() -> dict[str, StructType]:
    """The columns of every table, by its name in stores: those of the transforms. Deriving them takes a while."""
    steps = steps_of_files(SparkSession.active(), Path(), [])
    known = with_key(accounts(steps))
    in_files = known.withColumn("file", F.lit(""))
    states, sent = message_states(in_files), sent_messages(in_files)
    frames = {
        "accounts": known,
        "tallies": state_counts(states),
        "watched": watched(states),
        "stretches": stretches(sent),
        "mended": repaired_stretches(with_later_arrivals(stretches(sent)), sent),
        "changes": changes(steps),
        "sessions": session_names(steps),
    }
    return {name: frame.schema for name, frame in frames.items()}


def with_key(accounts: DataFrame) -> DataFrame:
    """Add `key`: one number for entity and id, quick to search for; two messages may share it."""
    return accounts.withColumn("key", F.xxhash64(*KEY))


def files_with_keys(store: Path, files: list[str], keys: Any) -> list[str]:
    """The files of accounts that have one of these sorted keys. It is a column of numbers: read in this process, it
    takes less time than Spark needs to start a job.
    """
    if not len(keys):
        return []

    def has_any(file: str) -> bool:
        present = pq.read_table(store / file, columns=["key"], use_threads=False)["key"].to_numpy()
        at = np.minimum(np.searchsorted(keys, present), len(keys) - 1)
        return bool((keys[at] == present).any())

    with ThreadPoolExecutor(AT_ONCE) as at_once:
        return [file for file, has in zip(files, at_once.map(has_any, files), strict=True) if has]


def rows_in(file: Path) -> int:
    rows: int = pq.read_metadata(file).num_rows
    return rows
