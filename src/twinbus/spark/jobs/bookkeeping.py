"""Brings the balance of a store forward: what is new is added, and all that is known is handed out as DataFrames."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import functions as F  # noqa: N812

from twinbus.spark.compaction import manifest as manifests
from twinbus.spark.compaction.compaction import Compacted
from twinbus.spark.jobs import balance as balances
from twinbus.spark.jobs.balance import Balance
from twinbus.spark.jobs.folding import Run
from twinbus.spark.jobs.tables import name_of, read_table, rows_in, schemas
from twinbus.spark.session import LITTLE_ROWS, for_little_data

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
JUDGED = ("tallies", "watched", "stretches", "changes")
REMOVALS_SCHEMA = pa.schema([("entity", pa.string()), ("removed_ms", pa.int64())])


@dataclass(frozen=True, slots=True)
class Books:
    """All that is known, as DataFrames; the store they are of."""

    compacted: Compacted
    bucket_ms: int
    accounts: DataFrame
    account_files: dict[str, str]
    """Where they are, by name."""
    tallies: DataFrame
    watched: DataFrame
    stretches: DataFrame
    changes: DataFrame
    sessions: DataFrame
    traffic: DataFrame
    observed: DataFrame
    removals: DataFrame
    for_much: Callable[[], Books]
    """The same on a session that is made for much data."""

    def for_accounts_in(self, names: list[str]) -> Books:
        """The same, on a session that suits as many rows as these files have."""
        rows = sum(rows_in(self.compacted.store / self.account_files[name]) for name in names)
        return self.for_much() if rows > LITTLE_ROWS else self

    def accounts_in(self, names: list[str]) -> DataFrame:
        """Those in some of the files."""
        files = [self.account_files[name] for name in names]
        return read_table(self.accounts.sparkSession, self.compacted.store, "accounts", files)


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
        rows = sum(rows_in(current.store / file) for name in JUDGED for file in balance.files(name))
        session = spark if rows > LITTLE_ROWS else for_little_data(spark)
        yield _opened(session, current, balance, lambda: _opened(spark, current, balance))


def _brought_forward(spark: SparkSession, compacted: Compacted) -> Balance:
    store, manifest = compacted.store, compacted.manifest
    balance = balances.load(store, manifest)
    folder = balances.fresh_folder(store)
    balances.sweep(store, balance)
    if not set(manifest.files) <= set(balance.folded):
        balance = Run(spark, compacted, balance, folder).balance()
        balances.save(store, balance)
        balances.sweep(store, balance)
    return balance


def _opened(
    spark: SparkSession, compacted: Compacted, balance: Balance, for_much: Callable[[], Books] | None = None
) -> Books:
    tables = {name: read_table(spark, compacted.store, name, balance.files(name)) for name in schemas()}
    files = {name_of(file): file for file in balance.files("accounts")}
    counts = F.col("file").isin(*files)
    rows = [msgspec.structs.asdict(row) for row in balance.traffic]
    gone = [{"entity": name, "removed_ms": at_ms} for name, at_ms in balance.removed.items()]
    seen = [{"entity": name, "first_ms": at[0], "last_ms": at[1]} for name, at in balance.observed.items()]
    return Books(
        compacted,
        balance.bucket_ms,
        tables["accounts"].drop("key"),
        files,
        tables["tallies"].where(counts),
        tables["watched"].where(counts),
        tables["stretches"],
        tables["changes"],
        tables["sessions"],
        spark.createDataFrame(pa.Table.from_pylist(rows, TRAFFIC_SCHEMA)),
        spark.createDataFrame(pa.Table.from_pylist(seen, OBSERVED_SCHEMA)),
        spark.createDataFrame(pa.Table.from_pylist(gone, REMOVALS_SCHEMA)),
        for_much or (lambda: _opened(spark, compacted, balance)),
    )


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]
