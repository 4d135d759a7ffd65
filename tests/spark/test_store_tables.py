"""The tables of a store: their columns are those of the transforms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from twinbus.spark.jobs.compaction import steps_of_files
from twinbus.spark.jobs.tables import COLUMNS, with_key
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
