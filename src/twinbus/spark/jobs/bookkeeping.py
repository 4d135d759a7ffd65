"""Brings the balance of a store forward: what is new is added, and all that is known is handed out as DataFrames."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812

from twinbus.spark.compaction import manifest as manifests
from twinbus.spark.compaction.compaction import Compacted
from twinbus.spark.compaction.coverage import coverage_of
from twinbus.spark.jobs import balance as balances
from twinbus.spark.jobs.balance import Balance, Traffic
from twinbus.spark.jobs.compaction import steps_of_files
from twinbus.spark.transforms.accounts import KEY, MINUTE_MS, accounts, merged, removals
from twinbus.spark.transforms.availability import changes, observed
from twinbus.spark.transforms.ordering import session_names
from twinbus.spark.transforms.traffic import traffic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

POINTS_MAX = 240
BUCKETS_MS = [round(1000 * seconds) for seconds in (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 21_600, 86_400)]
"""Each is a whole part of the next, so that sums of one can be added up to sums of the other."""
FILES_MAX = 64
ACCOUNTS_PER_FILE = 100_000
LITTLE_SHARE = 4
"""If more than a quarter is new, looking for what it touches takes longer than writing everything again."""
AT_ONCE = 4
TRAFFIC_SCHEMA = pa.schema(
    [
        ("bucket_ms", pa.int64()),
        ("kind", pa.string()),
        ("in_backlog", pa.bool_()),
        ("is_settled", pa.bool_()),
        *((name, pa.int64()) for name in ("messages", "operations", "sized_operations", "bytes")),
    ]
)
OBSERVED_SCHEMA = pa.schema([("entity", pa.string()), ("first_ms", pa.int64()), ("last_ms", pa.int64())])
REMOVALS_SCHEMA = pa.schema([("entity", pa.string()), ("removed_ms", pa.int64())])


@dataclass(frozen=True, slots=True)
class Books:
    """All that is known, as DataFrames; the store they are of."""

    compacted: Compacted
    bucket_ms: int
    accounts: DataFrame
    changes: DataFrame
    sessions: DataFrame
    traffic: DataFrame
    observed: DataFrame
    removals: DataFrame


@contextmanager
def books(spark: SparkSession, compacted: Compacted) -> Iterator[Books]:
    """The books of a store with everything in them that it has; their files stay until the block ends.

    Raises `StoreInUse` if another process is at it.
    """
    with ExitStack() as until_read:
        with manifests.held(compacted.store):
            current = replace(compacted, manifest=manifests.load(compacted.store))
            balance = _brought_forward(spark, current)
            until_read.enter_context(balances.read(compacted.store))
        yield _opened(spark, current, balance)


def _brought_forward(spark: SparkSession, compacted: Compacted) -> Balance:
    store, manifest = compacted.store, compacted.manifest
    balance = balances.load(store, manifest)
    folder = balances.fresh_folder(store)
    balances.sweep(store, balance)
    new = sorted(set(manifest.files) - set(balance.folded))
    if new:
        run = _Run(spark, compacted, balance, steps_of_files(spark, store, new), folder)
        balance = run.balance()
        balances.save(store, balance)
        balances.sweep(store, balance)
    return balance


def _opened(spark: SparkSession, compacted: Compacted, balance: Balance) -> Books:
    nothing = steps_of_files(spark, compacted.store, [])
    likes = {"accounts": _with_key(accounts(nothing)), "changes": changes(nothing), "sessions": session_names(nothing)}
    tables = {name: read_files(spark, compacted.store, balance.files(name), like) for name, like in likes.items()}
    rows = [msgspec.structs.asdict(row) for row in balance.traffic]
    gone = [{"entity": name, "removed_ms": at_ms} for name, at_ms in balance.removed.items()]
    seen = [{"entity": name, "first_ms": at[0], "last_ms": at[1]} for name, at in balance.observed.items()]
    return Books(
        compacted,
        balance.bucket_ms,
        tables["accounts"].drop("key"),
        tables["changes"],
        tables["sessions"],
        spark.createDataFrame(pa.Table.from_pylist(rows, TRAFFIC_SCHEMA)),
        spark.createDataFrame(pa.Table.from_pylist(seen, OBSERVED_SCHEMA)),
        spark.createDataFrame(pa.Table.from_pylist(gone, REMOVALS_SCHEMA)),
    )


def read_files(spark: SparkSession, store: Path, files: list[str], like: DataFrame) -> DataFrame:
    """Parquet files that have the columns of `like`; `like` has no rows."""
    if not files:
        return like
    return spark.read.schema(like.schema).parquet(*(str(store / file) for file in files))


class _Run:
    """One run: a balance, and steps that are not in it."""

    def __init__(
        self, spark: SparkSession, compacted: Compacted, before: Balance, steps: DataFrame, folder: Path
    ) -> None:
        self._spark, self._compacted, self._before = spark, compacted, before
        self._steps, self._folder = steps, folder
        coverage = coverage_of(compacted)
        self._span_ms = coverage.last_ms - coverage.first_ms
        self._new = compacted.manifest.steps - before.steps

    def balance(self) -> Balance:
        """The balance with the new steps in it; what it is made of is on disk."""
        bucket_ms = max(self._before.bucket_ms, bucket_for(self._span_ms))
        tables: dict[str, Callable[[], list[str]]] = {
            "accounts": self._accounts,
            "changes": lambda: self._appended("changes", changes(self._steps)),
            "sessions": lambda: self._appended("sessions", session_names(self._steps)),
        }
        with ThreadPoolExecutor(AT_ONCE) as at_once:
            written = {name: at_once.submit(work) for name, work in tables.items()}
            moved = at_once.submit(traffic(self._steps, bucket_ms=bucket_ms).collect)
            seen = at_once.submit(observed(self._steps).collect)
            gone = at_once.submit(removals(self._steps).collect)
        after = Balance(
            folded=self._compacted.manifest.files,
            steps=self._compacted.manifest.steps,
            tables={name: each.result() for name, each in written.items()},
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

    def _accounts(self) -> list[str]:
        """One row per message in all files: those with a message of which there is something new are replaced."""
        fresh, before = _with_key(accounts(self._steps)), self._before.files("accounts")
        if not before:
            return self._write("accounts", self._in_files(fresh, self._new))
        with kept(fresh) as fresh:
            replaced = self._replaced(fresh, before)
            old = read_files(self._spark, self._compacted.store, replaced, fresh)
            rows = self._new + sum(_rows_in(self._compacted.store / file) for file in replaced)
            together = _with_key(merged(old.unionByName(fresh))) if replaced else fresh
            return [*set(before).difference(replaced), *self._write("accounts", self._in_files(together, rows))]

    def _replaced(self, fresh: DataFrame, before: list[str]) -> list[str]:
        """Files with a message that is in `fresh` too; if there are many files, the smaller half of them as well."""
        if self._new * LITTLE_SHARE > self._before.steps:
            return before
        store = self._compacted.store
        old = read_files(self._spark, store, before, fresh).select("key", "_metadata.file_name")
        touched = old.join(F.broadcast(fresh.select("key")), "key", "semi").select("file_name").distinct().collect()
        names = {row["file_name"] for row in touched}
        if len(before) > FILES_MAX:
            by_size = sorted(before, key=lambda file: (store / file).stat().st_size)
            names |= {Path(file).name for file in by_size[: len(before) // 2]}
        return [file for file in before if Path(file).name in names]

    def _in_files(self, frame: DataFrame, rows: int) -> DataFrame:
        """Messages of the same time together: what comes next is about the latest, and leaves the other files alone."""
        files = max(1, min(FILES_MAX, rows // ACCOUNTS_PER_FILE))
        width_ms = max(MINUTE_MS, self._span_ms // (4 * files))
        return frame.repartition(files, F.floor(F.col("first_ms") / width_ms))

    def _appended(self, table: str, fresh: DataFrame) -> list[str]:
        before = self._before.files(table)
        if len(before) > FILES_MAX:
            old = read_files(self._spark, self._compacted.store, before, fresh)
            fresh, before = old.unionByName(fresh).distinct(), []
        return [*before, *self._write(table, fresh.coalesce(1))]

    def _write(self, table: str, frame: DataFrame) -> list[str]:
        """The names of the files; one without rows is none."""
        folder = self._folder / table
        frame.write.parquet(str(folder))
        files = [file for file in folder.glob("*.parquet") if _rows_in(file)]
        for file in files:
            with file.open("rb+") as opened:
                os.fsync(opened.fileno())
        return [str(file.relative_to(self._compacted.store)) for file in files]


def _with_key(accounts: DataFrame) -> DataFrame:
    """With one number for what a message is called, quick to look for; two messages may share it."""
    return accounts.withColumn("key", F.xxhash64(*KEY))


def _rows_in(file: Path) -> int:
    rows: int = pq.read_metadata(file).num_rows
    return rows


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


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]
