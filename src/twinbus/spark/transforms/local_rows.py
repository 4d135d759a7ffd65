"""Frames of rows that this process knows, as clocks and totals."""

from __future__ import annotations

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

_IN_SPARK = {pa.string(): "STRING", pa.int64(): "BIGINT", pa.bool_(): "BOOLEAN"}


def frame_of(spark: SparkSession, rows: list[dict[str, Any]], schema: pa.Schema) -> DataFrame:
    """One row for each of these, or none: types are named because Spark Connect reads none from an empty table."""
    types = ", ".join(f"{field.name} {_IN_SPARK[field.type]}" for field in schema)
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema), types)
