"""One run that merges the new steps of a store into its balance: what it begins with, and where it writes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from twinbus.spark.compaction.compaction import CompactedLedger
from twinbus.spark.compaction.coverage import find_coverage
from twinbus.spark.compaction.primaries import primary_names
from twinbus.spark.jobs.balance import Balance
from twinbus.spark.jobs.compaction import steps_of_files
from twinbus.spark.jobs.tables import read_table, rows_in, with_file
from twinbus.spark.session import is_little, session_for
from twinbus.spark.transforms.namespaces import with_namespace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES_MAX = 128
"""Of a table; more of them take longer to open than to read."""


@dataclass(frozen=True)
class MergeRun:
    """A balance, and the steps that are not in it."""

    spark: SparkSession
    compacted: CompactedLedger
    before: Balance
    folder: Path
    """Where this run writes."""

    @property
    def store(self) -> Path:
        return self.compacted.store

    @cached_property
    def new(self) -> int:
        """How many steps are new."""
        return self.compacted.manifest.steps - self.before.steps

    @cached_property
    def span_ms(self) -> tuple[int, int]:
        """The times of the first and the last record of the store."""
        coverage = find_coverage(self.compacted)
        return coverage.first_ms, coverage.last_ms

    @cached_property
    def primary_names(self) -> frozenset[str]:
        return primary_names(self.compacted.manifest.processes.values())

    def steps(self) -> DataFrame:
        """The new steps, with the namespace before entities that are not the primary's."""
        files = sorted(set(self.compacted.manifest.files) - set(self.before.folded))
        fresh = steps_of_files(session_for(self.spark, self.new), self.store, files)
        return _in_one_piece(with_namespace(fresh, self.primary_names), self.new)

    def rows(self, files: list[str]) -> int:
        return sum(rows_in(self.store / file) for file in files)

    def read(self, table: str, files: list[str], rows: int) -> DataFrame:
        """The rows of some files of a table, in a session that suits this many rows."""
        return _in_one_piece(read_table(session_for(self.spark, rows), self.store, table, files), rows)

    def accounts(self, files: list[str], beside: int = 0) -> DataFrame:
        """The accounts in these files, with `file`, in a session that suits them and `beside` other rows."""
        rows = self.rows(files) + beside
        found = with_file(read_table(session_for(self.spark, rows), self.store, "accounts", files))
        return _in_one_piece(found, rows)

    def write(self, table: str, frame: DataFrame) -> list[str]:
        """The names of the new files, below the store; files without rows are left out."""
        folder = self.folder / table
        frame.write.parquet(str(folder))
        files = [file for file in folder.glob("*.parquet") if rows_in(file)]
        for file in files:
            with file.open("rb+") as opened:
                os.fsync(opened.fileno())
        return [str(file.relative_to(self.store)) for file in files]


def split_files(files: list[str]) -> tuple[list[str], list[str]]:
    """The files of a table that stay as they are, and those that are too many and become one."""
    return ([], files) if len(files) > FILES_MAX else (files, [])


def _in_one_piece(frame: DataFrame, rows: int) -> DataFrame:
    """Little data in one partition: nothing has to be shuffled."""
    return frame.coalesce(1) if is_little(rows) else frame
