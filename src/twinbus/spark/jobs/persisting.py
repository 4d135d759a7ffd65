"""Keeps the rows of a frame for as long as they are used more than once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark import StorageLevel

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@contextmanager
def persisted(frame: DataFrame) -> Iterator[DataFrame]:
    """The frame, computed once: in memory or, where that is too small, on disk."""
    held = frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield held
    finally:
        held.unpersist()
