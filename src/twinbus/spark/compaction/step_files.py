"""The Parquet files that steps are written into, by day."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from twinbus.errors import StoreError
from twinbus.ledger.disk import Disk
from twinbus.spark.compaction.manifest import STEPS
from twinbus.spark.compaction.steps import STEP_SCHEMA

DAY_MS = 86_400_000
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""Of the calendar: 0001-01-01 and 9999-12-31."""


class StepFiles:
    """Parquet files by day, in place only when they are whole."""

    def __init__(self, store: Path, name: str) -> None:
        self._store = store
        self._name = name
        self._open: dict[int, tuple[Path, Path, Any]] = {}
        self.steps = 0

    def write(self, steps: Any) -> None:
        self.steps += steps.num_rows
        # A clock that is wrong beyond all calendars has the nearest day that one has.
        day = np.clip(steps["at_ms"].to_numpy() // DAY_MS, FIRST_DAY, LAST_DAY)
        with _written_into(self._store):
            for each in np.unique(day):
                part = steps if (day == each).all() else steps.filter(pa.array(day == each))
                self._writer_of(int(each)).write_table(part)

    def _writer_of(self, day: int) -> Any:
        if day not in self._open:
            folder = self._store / STEPS / f"date={np.datetime64(day, 'D')}"
            folder.mkdir(parents=True, exist_ok=True)
            fresh = folder / f".{self._name}.{os.getpid()}.new"
            self._open[day] = (fresh, folder / self._name, pq.ParquetWriter(fresh, STEP_SCHEMA, compression="zstd"))
        return self._open[day][2]

    def close(self) -> list[str]:
        """Names of the files, below the store; they survive a power cut."""
        with _written_into(self._store):
            for fresh, final, writer in self._open.values():
                writer.close()
                with fresh.open("rb+") as file:
                    os.fsync(file.fileno())
                fresh.replace(final)
                Disk().sync_names(final.parent)
        return [str(final.relative_to(self._store)) for _, final, _ in self._open.values()]


@contextmanager
def _written_into(store: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"nothing can be written to {store}: {error.strerror or error}") from error
