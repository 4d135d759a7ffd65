"""Steps out of ledger lines, for those who read the segments themselves."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from twinbus.ledger.events import CORRUPT_COLUMN, PER_MESSAGE_FIELDS, SCHEMA_VERSION, described_fields
from twinbus.spark.compaction.steps import NOT_KEPT
from twinbus.spark.transforms.traffic import DAY_MS

ONCE = ("count", "bytes", "duration_us")
PER_MESSAGE = dict(zip(PER_MESSAGE_FIELDS, ("message_id", "size", "session_id", "sequence_number"), strict=True))
PER_EVENT = {name: kind for name, (kind, _) in described_fields().items() if name not in NOT_KEPT}


def steps(lines: DataFrame) -> DataFrame:
    """One row for each message of each line, or for a line without messages.

    `lines` is what `spark.read.schema(SPARK_SCHEMA).json(...)` gives. Lines that are damaged or of a newer schema are
    left out; checksums are not checked and repeated records stay: compaction does both.
    """
    whole = lines.where(F.col(CORRUPT_COLUMN).isNull() & (F.col("v") <= SCHEMA_VERSION))
    rows = F.greatest(F.lit(1), *(F.coalesce(F.size(name), F.lit(0)) for name in PER_MESSAGE))
    numbered = whole.withColumn("position", F.explode(F.sequence(F.lit(0), rows - 1)))
    return numbered.select(
        *(_per_event(name, kind) for name, kind in PER_EVENT.items()),
        F.col("position").cast("bigint"),
        *(_per_message(name, column) for name, column in PER_MESSAGE.items()),
        F.date_from_unix_date(F.floor(F.col("at_ms") / DAY_MS).cast("int")).alias("date"),
    )


def _per_event(name: str, kind: str) -> Column:
    filled = F.coalesce(F.col(name), F.lit("" if kind == "STRING" else 0).cast(kind))
    return (F.when(F.col("position") == 0, filled).otherwise(0) if name in ONCE else filled).alias(name)


def _per_message(name: str, column: str) -> Column:
    value = F.get(name, F.col("position"))
    return (F.when(value != "", value) if column == "session_id" else value).alias(column)
