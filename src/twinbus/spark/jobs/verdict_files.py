"""Writes the verdict table of a report as Parquet, in a folder that other engines read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from twinbus.errors import OptionsError
from twinbus.spark.jobs.delta_log import LOG, DeltaFile, publish
from twinbus.spark.jobs.spark_files import spark_files
from twinbus.storage import open_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WRITTEN_BY_REPORTS = re.compile(r"\.?part-[^/]*\.parquet(\.crc)?|\.?_SUCCESS(\.crc)?|_delta_log/[^/]*")


class VerdictFiles(NamedTuple):
    """The folder of a verdict table."""

    url: str
    overwrite: bool = False

    def check(self) -> list[str]:
        """The files of an earlier table. Raises `OptionsError` if the folder has some and must not be replaced, or has
        other files: nothing that a report did not write is deleted.
        """
        folder = open_folder(self.url)
        folder.check_replaces()
        names = [each.name for each in folder.files()]
        if names and not self.overwrite:
            raise OptionsError(f"--verdicts {self.url} is not empty: --overwrite replaces the table in it")
        others = [name for name in names if _WRITTEN_BY_REPORTS.fullmatch(name) is None]
        if others:
            raise OptionsError(f"--verdicts {self.url} has files that are no verdict table, e.g. {others[0]}")
        return names

    def write(self, table: DataFrame) -> None:
        """The old table goes when the new one is complete; a reader in between sees both, with their `report_ms`."""
        before = self.check()
        folder = open_folder(self.url)
        there = spark_files(table.sparkSession, folder)
        written = there.write(table, "", before)
        there.forget(written)
        gone = [name for name in before if not name.startswith((LOG, "_SUCCESS"))]
        facts = {each.name: each for each in folder.files()}
        counted = {name: DeltaFile(facts[name].bytes, facts[name].modified_ms) for name in written}
        publish(folder, "verdicts", table.schema.json(), counted)
        folder.delete(gone)
