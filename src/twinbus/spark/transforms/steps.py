"""Steps out of ledger lines, for programs that read the segments themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from twinbus.ledger.schema import CORRUPT_COLUMN, SCHEMA_VERSION
from twinbus.spark.compaction.steps import DAY_MS, LINE_SCHEMA, STEP_DDL, to_steps


def steps(lines: DataFrame) -> DataFrame:
    """One row for each message of each line, or for a line without messages, as compaction makes them.

    `lines` is what `spark.read.schema(SPARK_SCHEMA).json(...)` gives. Damaged lines and those of a newer schema are
    left out; checksums are not checked and repeated records stay: compaction does both.
    """
    whole = lines.where(F.col(CORRUPT_COLUMN).isNull() & (F.col("v") <= SCHEMA_VERSION)).select(*LINE_SCHEMA.names)
    date = F.date_from_unix_date(F.floor(F.col("at_ms") / DAY_MS).cast("int"))
    return whole.mapInArrow(_to_step_batches, STEP_DDL).withColumn("date", date)


def _to_step_batches(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa  # type: ignore[import-untyped]

    for batch in batches:
        yield from to_steps(pa.Table.from_batches([batch]).cast(LINE_SCHEMA)).to_batches()
