"""The Parquet tables of a balance: their columns, and how they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from twinbus.spark.jobs.spark_files import WHOLE, spark_files
from twinbus.spark.transforms.accounts import (
    ARRIVALS,
    COUNTED,
    COUNTED_BY_SIDE,
    COUNTED_ON_PRIMARY,
    KEY,
)
from twinbus.storage import Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AT_ONCE = 4
"""Queries run at once: most of the time of a small one goes into planning it."""

_COUNTS = [
    *COUNTED,
    *COUNTED_ON_PRIMARY,
    *(f"{name}_{side}" for name in COUNTED_BY_SIDE for side in ("home", "backlog")),
]
_LATE = [f"{name}_{what}" for name in ARRIVALS for what in ("arrived", "late", "worst_ms")]


def _numbers(names: str | list[str]) -> str:
    return ", ".join(f"{name} BIGINT" for name in (names.split() if isinstance(names, str) else names))


def _place(name: str, end: str) -> str:
    return f"{name}_{end} STRUCT<{name}_ms: BIGINT, {name}_place: BIGINT>"


_STRETCH = "entity STRING, session BIGINT, sender BIGINT, is_scheduled BOOLEAN, stretch BIGINT"
COLUMNS = {
    "accounts": ", ".join(
        [
            "entity STRING, message_id STRING",
            _numbers(_COUNTS),
            _numbers("numbered first_ms backlogged_ms arrived_ms sent_home_ms due_ms last_ack_ms taken_ms returned_ms"),
            _numbers("session backlog_queue other_queue first_reader last_reader acked_by last_acked_by last_take"),
            _numbers("sender last_sender sent_place sent_ms"),
            _numbers([f"{name}_{what}" for name in ARRIVALS for what in ("ms", "place")]),
            "key BIGINT",
        ]
    ),
    "tallies": "file STRING, entity STRING, session BIGINT, backlog_queue BIGINT, acked_by BIGINT, sender BIGINT, "
    "state STRING, "
    + _numbers("messages backwards_ms delivered_to_min stored_to_min home_to_min own_home_to_min apart_ms"),
    "watched": "file STRING, entity STRING, message_id STRING, "
    + _numbers("session backlog_queue acked_by last_acked_by sender")
    + ", state STRING, otherwise STRING, "
    + _numbers(
        "first_ms arrived_ms stored_ms backlogged_ms last_ack_ms arrived_min backlogged_at_min first_min due_min"
    )
    + ", may_be_passed BOOLEAN, held_ms BIGINT, holder BIGINT, was_stored BOOLEAN, came_home BOOLEAN, "
    "was_delivered BOOLEAN, backwards_ms BIGINT, apart_ms BIGINT",
    "stretches": ", ".join(
        [
            f"{_STRETCH}, messages BIGINT, files ARRAY<STRING>",
            _numbers(_LATE),
            *(_place(name, end) for name in ARRIVALS for end in ("first", "last")),
        ]
    ),
    "mended": f"{_STRETCH}, torn_as BIGINT, messages BIGINT, {_numbers(_LATE)}",
    "changes": "entity STRING, process STRING, number BIGINT, kind STRING, at_ms BIGINT",
    "sessions": "session BIGINT, session_id STRING",
}
"""The columns of every table, by its name in stores. They are those of the transforms, as a test shows; deriving them
from these takes as long as a report of a few messages.
"""


def read_table(spark: SparkSession, store: Folder, table: str, files: list[str]) -> DataFrame:
    """The rows in some files of a table; none without files."""
    if not files:
        return spark.createDataFrame([], COLUMNS[table])
    return spark.read.schema(COLUMNS[table]).options(**WHOLE).parquet(*spark_files(spark, store).paths(files))


def with_key(accounts: DataFrame) -> DataFrame:
    """Add `key`: one number for entity and id, quick to search for; two messages may share it."""
    return accounts.withColumn("key", F.xxhash64(*KEY))
