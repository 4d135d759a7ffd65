"""One run over what is new: files of accounts are added or replaced, and with them what follows from them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812

from twinbus.spark.compaction.compaction import Compacted
from twinbus.spark.compaction.coverage import coverage_of
from twinbus.spark.jobs import balance as balances
from twinbus.spark.jobs.balance import Balance, Traffic
from twinbus.spark.jobs.compaction import steps_of_files
from twinbus.spark.jobs.tables import first_ms_in, has_any, name_of, read_table, rows_in, with_file, with_key
from twinbus.spark.session import LITTLE_ROWS, for_little_data
from twinbus.spark.transforms import ordering as order
from twinbus.spark.transforms.accounts import about_messages, accounts, merged, removals
from twinbus.spark.transforms.availability import changes, observed
from twinbus.spark.transforms.reconciliation import fates
from twinbus.spark.transforms.tallies import tallies, watched
from twinbus.spark.transforms.traffic import traffic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

POINTS_MAX = 240
BUCKETS_MS = [round(1000 * seconds) for seconds in (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 21_600, 86_400)]
"""Each is a whole part of the next, so that sums of one can be added up to sums of the other."""
FILES_MAX = 128
ACCOUNTS_PER_FILE = 50_000
LITTLE_SHARE = 4
"""If more than a quarter is new, looking for what it touches takes longer than writing everything again."""
ROWS_PER_FILE = 1_000_000
AT_ONCE = 4
PLACE = ["sender", "stretch"]


class Accounts(NamedTuple):
    """The files of accounts after a run."""

    new: list[str]
    kept: list[str]
    replaced: list[str]

    @property
    def all(self) -> list[str]:
        return [*self.kept, *self.new]


class Run:
    """One run: a balance, and steps that are not in it."""

    def __init__(self, spark: SparkSession, compacted: Compacted, before: Balance, folder: Path) -> None:
        self._spark, self._quick = spark, for_little_data(spark)
        self._compacted, self._before, self._folder = compacted, before, folder
        self._steps_in = sorted(set(compacted.manifest.files) - set(before.folded))
        coverage = coverage_of(compacted)
        self._first_ms, self._last_ms = coverage.first_ms, coverage.last_ms
        self._new = compacted.manifest.steps - before.steps

    def balance(self) -> Balance:
        """The balance with the new steps in it; what it is made of is on disk."""
        bucket_ms = max(self._before.bucket_ms, bucket_for(self._last_ms - self._first_ms))
        steps = self._steps(self._new)
        with ThreadPoolExecutor(AT_ONCE) as at_once:
            written = {
                "changes": at_once.submit(lambda: self._appended("changes", changes(steps))),
                "sessions": at_once.submit(lambda: self._appended("sessions", order.session_names(steps))),
            }
            moved = at_once.submit(traffic(steps, bucket_ms=bucket_ms).collect)
            seen = at_once.submit(observed(steps).collect)
            gone = at_once.submit(removals(steps).collect)
            accounted = self._accounts()
            written |= {name: at_once.submit(work) for name, work in self._following(accounted).items()}
        after = Balance(
            folded=self._compacted.manifest.files,
            steps=self._compacted.manifest.steps,
            tables={"accounts": accounted.all} | {name: each.result() for name, each in written.items()},
            traffic=self._before.traffic,
            observed=dict(self._before.observed),
            removed=dict(self._before.removed),
        )
        after.add([Traffic(*row) for row in moved.result()], bucket_ms)
        for row in seen.result():
            after.see(*row)
        for entity, at_ms in gone.result():
            after.removed[entity] = max(at_ms, after.removed.get(entity, at_ms))
        balances.keep_names(self._folder)
        return after

    def _on(self, rows: int) -> SparkSession:
        """The session for so many rows."""
        return self._spark if rows > LITTLE_ROWS else self._quick

    def _steps(self, rows: int) -> DataFrame:
        """What is new, to be looked at together with so many rows."""
        return steps_of_files(self._on(rows), self._compacted.store, self._steps_in)

    def _accounts(self) -> Accounts:
        """One row per message in all files: those with a message of which there is something new are replaced."""
        before = self._before.files("accounts")
        replaced = self._replaced(before) if before else []
        rows = self._new + self._rows(replaced)
        fresh = with_key(accounts(self._steps(rows)))
        old = self._read("accounts", replaced, self._on(rows))
        together = with_key(merged(old.unionByName(fresh))) if replaced else fresh
        new = self._write("accounts", self._in_files(together, rows, replaced))
        return Accounts(new, [file for file in before if file not in replaced], replaced)

    def _rows(self, files: list[str]) -> int:
        return sum(rows_in(self._compacted.store / file) for file in files)

    def _replaced(self, before: list[str]) -> list[str]:
        """Files with a message that something is new about; of many files the smaller half as well."""
        if self._new * LITTLE_SHARE > self._before.steps:
            return before
        store = self._compacted.store
        named = about_messages(self._steps(self._new))
        keys = np.unique(with_key(named).select("key").toArrow()["key"].to_numpy())
        chosen = {file for file in before if has_any(store / file, keys)}
        if len(before) > FILES_MAX:
            by_size = sorted(before, key=lambda file: (store / file).stat().st_size)
            chosen.update(by_size[: len(before) // 2])
        return [file for file in before if file in chosen]

    def _in_files(self, frame: DataFrame, rows: int, replaced: list[str]) -> DataFrame:
        """Messages of the same time together: what comes next is about the latest, and leaves the other files alone."""
        files = max(1, min(FILES_MAX, rows // ACCOUNTS_PER_FILE))
        begins_ms = min((first_ms_in(self._compacted.store / file) for file in replaced), default=self._first_ms)
        width_ms = max(1, (self._last_ms - begins_ms) // files + 1)
        at = F.floor((F.col("first_ms") - begins_ms) / width_ms)
        return frame.repartitionById(files, F.least(F.greatest(at, F.lit(0)), F.lit(files - 1)).cast("int"))

    def _following(self, accounted: Accounts) -> dict[str, Callable[[], list[str]]]:
        """How the tables are made that follow from the accounts."""
        new = fates(self._with_files(accounted.new))
        return {
            "tallies": lambda: self._of_files("tallies", tallies(new.drop("message_id")), accounted),
            "watched": lambda: self._of_files("watched", watched(new), accounted),
            "stretches": lambda: self._stretches(accounted),
        }

    def _with_files(self, files: list[str], session: SparkSession | None = None) -> DataFrame:
        """The accounts in these files, with the names of the files."""
        session = session or self._on(self._rows(files))
        read = self._read("accounts", files, session)
        return with_file(read) if files else read.withColumn("file", F.lit(""))

    def _of_files(self, table: str, fresh: DataFrame, accounted: Accounts) -> list[str]:
        """Added to what is there; rows about files that were replaced stay, without a meaning, until there are many."""
        before = self._before.files(table) if accounted.kept else []
        if len(before) > FILES_MAX:
            old = self._read(table, before, fresh.sparkSession)
            fresh, before = old.where(F.col("file").isin(*map(name_of, accounted.kept))).unionByName(fresh), []
        return [*before, *self._write(table, fresh.coalesce(1 + self._new // ROWS_PER_FILE))]

    def _stretches(self, accounted: Accounts) -> list[str]:
        """All stretches; those are looked at again of which a message is in a file that is new or was replaced."""
        if not accounted.kept:
            all_new = order.stretches(order.journeys(self._with_files(accounted.new)))
            return self._write("stretches", all_new.coalesce(1 + self._new // ROWS_PER_FILE))
        files = [*accounted.new, *self._beside(accounted)]
        found = order.journeys(self._with_files(files))
        old, touched = self._touched(accounted, found.sparkSession)
        again = order.stretches(found.join(touched, PLACE, "semi"))
        return self._write("stretches", old.join(touched, PLACE, "anti").unionByName(again).coalesce(1))

    def _beside(self, accounted: Accounts) -> list[str]:
        """Files that were kept and have messages of the stretches that are looked at again."""
        old, touched = self._touched(accounted, self._on(self._rows(accounted.new)))
        found = old.join(touched, PLACE, "semi").select(F.explode("files").alias("file")).distinct().collect()
        names = {row["file"] for row in found}
        return [file for file in accounted.kept if name_of(file) in names]

    def _touched(self, accounted: Accounts, session: SparkSession) -> tuple[DataFrame, DataFrame]:
        """The stretches so far, and the places of those to look at again."""
        journeys = order.journeys(self._with_files(accounted.new, session))
        old = self._read("stretches", self._before.files("stretches"), session)
        replaced = F.array(*(F.lit(name_of(file)) for file in accounted.replaced)).cast("array<string>")
        was_there = old.where(F.arrays_overlap("files", replaced)).select(*PLACE)
        return old, was_there.unionByName(journeys.select(*PLACE)).distinct()

    def _appended(self, table: str, fresh: DataFrame) -> list[str]:
        before = self._before.files(table)
        if len(before) > FILES_MAX:
            old = self._read(table, before, fresh.sparkSession)
            fresh, before = old.unionByName(fresh).distinct(), []
        return [*before, *self._write(table, fresh.coalesce(1))]

    def _read(self, table: str, files: list[str], session: SparkSession) -> DataFrame:
        return read_table(session, self._compacted.store, table, files)

    def _write(self, table: str, frame: DataFrame) -> list[str]:
        """The names of the files; one without rows is none."""
        folder = self._folder / table
        frame.write.parquet(str(folder))
        files = [file for file in folder.glob("*.parquet") if rows_in(file)]
        for file in files:
            with file.open("rb+") as opened:
                os.fsync(opened.fileno())
        return [str(file.relative_to(self._compacted.store)) for file in files]


def bucket_for(span_ms: int) -> int:
    """The shortest bucket that gives a plot no more points than it can show."""
    return next((each for each in BUCKETS_MS if span_ms / each <= POINTS_MAX), BUCKETS_MS[-1])


@contextmanager
def kept(frame: DataFrame) -> Iterator[DataFrame]:
    """The frame, computed once for as long as it is needed; in memory or, where there is not enough, on disk."""
    held = frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield held
    finally:
        held.unpersist()
