"""What Spark has for streams since 4.2; None in older versions."""

from __future__ import annotations

__all__ = ["ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow"]

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # pragma: no cover
    SupportsTriggerAvailableNow = object  # type: ignore[misc, assignment]
    ReadAllAvailable = ReadLimit = ReadMaxRows = None  # type: ignore[misc, assignment]
