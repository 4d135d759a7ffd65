"""The tables of a store: their columns are those of the transforms."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from twinbus.spark.jobs.compaction import steps_of_files
from twinbus.spark.jobs.tables import COLUMNS, read_table, with_key
from twinbus.spark.transforms.accounts import accounts
from twinbus.spark.transforms.availability import changes
from twinbus.spark.transforms.message_states import message_states, state_counts, watched
from twinbus.spark.transforms.ordering import (
    repaired_stretches,
    sent_messages,
    session_names,
    stretches,
    with_later_arrivals,
)
from twinbus.storage.local_folder import LocalFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twinbus.spark.compaction.compaction import CompactedLedger


def columns_of(ddl: str) -> StructType:
    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found


def test_columns_are_those_of_the_transforms(spark: SparkSession) -> None:
    steps = steps_of_files(spark, LocalFolder(Path()), [])
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
    derived = {
        name: [(each.name, each.dataType.simpleString()) for each in frame.schema] for name, frame in frames.items()
    }
    kept = {
        name: [(each.name, each.dataType.simpleString()) for each in columns_of(columns)]
        for name, columns in COLUMNS.items()
    }
    assert kept == derived


@pytest.mark.parametrize("table", ["steps", "changes"])
def test_a_file_that_is_gone_is_an_error_whatever_the_session_ignores(
    spark: SparkSession, compacted: CompactedLedger, tmp_path: Path, table: str
) -> None:
    (tmp_path / "steps" / "date=2025-03-09").mkdir(parents=True)
    files = [f"steps/date=2025-03-09/{name}.parquet" for name in ("here", "gone")]
    for file in files:
        shutil.copy(compacted.store.path() / compacted.manifest.files[0], tmp_path / file)
    store, name = LocalFolder(tmp_path), "spark.sql.files.ignoreMissingFiles"
    read = steps_of_files if table == "steps" else partial(read_table, table=table)
    spark.conf.set(name, "true")
    try:
        rows = read(spark, store, files=files)
        (tmp_path / files[1]).unlink()
        with pytest.raises(Exception, match=r"gone\.parquet"):
            rows.collect()
    finally:
        spark.conf.unset(name)
