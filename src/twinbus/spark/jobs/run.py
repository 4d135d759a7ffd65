"""One run over what is new in a store: what it begins with, where it writes, and who does the work."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]

from twinbus.spark.compaction.compaction import Compacted
from twinbus.spark.compaction.coverage import coverage_of
from twinbus.spark.compaction.primaries import homes
from twinbus.spark.jobs import at_hand
from twinbus.spark.jobs.balance import Balance
from twinbus.spark.jobs.compaction import steps_of_files
from twinbus.spark.jobs.tables import arrow_schemas, read_table, rows_in, with_file
from twinbus.spark.session import is_little, session_for
from twinbus.spark.transforms.namespaces import named_by_namespace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


FILES_MAX = 128
"""Of a table; more of them take longer to open than to read."""


@dataclass(frozen=True)
class Run:
    """A balance, and steps that are not in it."""

    spark: SparkSession
    compacted: Compacted
    before: Balance
    folder: Path
    """What this run finds is written below it."""

    @property
    def store(self) -> Path:
        return self.compacted.store

    @cached_property
    def new(self) -> int:
        """How many steps are new."""
        return self.compacted.manifest.steps - self.before.steps

    @cached_property
    def span_ms(self) -> tuple[int, int]:
        """The first and the last moment that anything in the store is about."""
        coverage = coverage_of(self.compacted)
        return coverage.first_ms, coverage.last_ms

    @cached_property
    def _fresh(self) -> list[str]:
        return sorted(set(self.compacted.manifest.files) - set(self.before.folded))

    def steps(self) -> DataFrame:
        """Those that are new; entities of other namespaces than the primary have the name of theirs before them."""
        fresh = steps_of_files(session_for(self.spark, self.new), self.store, self._fresh)
        return self._whole(named_by_namespace(fresh, self.homes), self.new)

    @cached_property
    def homes(self) -> frozenset[str]:
        """What the primary is called."""
        return homes(self.compacted.manifest.processes.values())

    def rows(self, files: list[str]) -> int:
        return sum(rows_in(self.store / file) for file in files)

    @staticmethod
    def spared(files: list[str]) -> tuple[list[str], list[str]]:
        """Of the files of a table those that stay as they are, and those that are too many and become one."""
        return ([], files) if len(files) > FILES_MAX else (files, [])

    def read(self, table: str, files: list[str], rows: int) -> DataFrame:
        """What files of a table have, to be looked at together with so many rows."""
        return self._whole(read_table(session_for(self.spark, rows), self.store, table, files), rows)

    def accounts(self, files: list[str], beside: int = 0) -> DataFrame:
        """The accounts in these files, which are some, with the names of the files; to be looked at together with so
        many other rows.
        """
        rows = self.rows(files) + beside
        return self._whole(with_file(read_table(session_for(self.spark, rows), self.store, "accounts", files)), rows)

    def read_here(self, table: str, files: list[str], columns: list[str] | None = None) -> Any:
        """What files of a table have, as Arrow."""
        whole = self.schema(table)
        schema = whole if columns is None else pa.schema([whole.field(name) for name in columns])
        return at_hand.read(self.store, files, schema) if files else schema.empty_table()

    @staticmethod
    def schema(table: str) -> Any:
        """The columns of a table, as Arrow."""
        return arrow_schemas()[table]

    def write(self, table: str, frame: DataFrame) -> list[str]:
        """The names of the files, below the store; one without rows is none."""
        folder = self.folder / table
        frame.write.parquet(str(folder))
        files = [file for file in folder.glob("*.parquet") if rows_in(file)]
        for file in files:
            with file.open("rb+") as opened:
                os.fsync(opened.fileno())
        return [str(file.relative_to(self.store)) for file in files]

    def write_here(self, table: str, *parts: Any) -> list[str]:
        """The same for Arrow tables, a file each."""
        files = []
        for number, part in enumerate(parts):
            if part.num_rows:
                # Unlike any other file of the balance: no two runs write into the same folder.
                files.append(self.folder / table / f"{table}-{self.folder.name}-{number}.parquet")
                at_hand.write(part.select(self.schema(table).names), files[-1])
        return [str(file.relative_to(self.store)) for file in files]

    @staticmethod
    def _whole(frame: DataFrame, rows: int) -> DataFrame:
        """Little data in one piece: nothing has to travel to be added up."""
        return frame.coalesce(1) if is_little(rows) else frame
