"""Brings the balance of a store forward: what is new is added, and all that is known is handed out as DataFrames."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import functions as F  # noqa: N812

from twinbus.spark.compaction import manifest as manifests
from twinbus.spark.compaction.compaction import Compacted
from twinbus.spark.jobs import at_hand
from twinbus.spark.jobs import balance as balances
from twinbus.spark.jobs.balance import Balance
from twinbus.spark.jobs.folding import brought_forward
from twinbus.spark.jobs.run import Run
from twinbus.spark.jobs.tables import arrow_schemas, name_of, read_table, rows_in
from twinbus.spark.session import same_active_session, session_for

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

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
ASKED = ("tallies", "watched", "stretches", "mended", "changes")
REMOVALS_SCHEMA = pa.schema([("entity", pa.string()), ("removed_ms", pa.int64())])


@dataclass(frozen=True)
class Books:
    """All that is known, as DataFrames; the store they are of."""

    spark: SparkSession
    for_much: SparkSession
    """The session for much data; the other one may be for little."""
    compacted: Compacted
    balance: Balance

    @property
    def bucket_ms(self) -> int:
        return self.balance.bucket_ms

    @property
    def accounts(self) -> DataFrame:
        return self._table("accounts").drop("key")

    @cached_property
    def tallies(self) -> DataFrame:
        return self._table("tallies").where(self._counts())

    @cached_property
    def watched(self) -> DataFrame:
        return self._table("watched").where(self._counts())

    @cached_property
    def stretches(self) -> DataFrame:
        return self._table("stretches")

    @cached_property
    def mended(self) -> DataFrame:
        """The stretches that are torn."""
        return self._table("mended")

    @cached_property
    def changes(self) -> DataFrame:
        return self._table("changes")

    @cached_property
    def sessions(self) -> DataFrame:
        return self._table("sessions")

    @cached_property
    def traffic(self) -> DataFrame:
        return self._rows([msgspec.structs.asdict(row) for row in self.balance.traffic], TRAFFIC_SCHEMA)

    @cached_property
    def observed(self) -> DataFrame:
        seen = [{"entity": name, "first_ms": at[0], "last_ms": at[1]} for name, at in self.balance.observed.items()]
        return self._rows(seen, OBSERVED_SCHEMA)

    @cached_property
    def removals(self) -> DataFrame:
        gone = [{"entity": name, "removed_ms": at_ms} for name, at_ms in self.balance.removed.items()]
        return self._rows(gone, REMOVALS_SCHEMA)

    def _table(self, name: str) -> DataFrame:
        files, store = self.balance.files(name), self.compacted.store
        if files and self._is_little and name in ASKED:  # read once, however many questions are about it
            with balances.trouble_in_a_line(store):
                return self._whole(self.spark.createDataFrame(at_hand.read(store, files, arrow_schemas()[name])))
        return self._whole(read_table(self.spark, store, name, files))

    def _rows(self, rows: list[dict[str, Any]], schema: Any) -> DataFrame:
        return self._whole(self.spark.createDataFrame(pa.Table.from_pylist(rows, schema)))

    @property
    def _is_little(self) -> bool:
        return self.spark is not self.for_much

    def _whole(self, frame: DataFrame) -> DataFrame:
        """Little data in one piece: nothing has to travel."""
        return frame.coalesce(1) if self._is_little else frame

    def _counts(self) -> Column:
        """Whether a row is about a file of accounts that there still is."""
        names = ", ".join(f"'{name}'" for name in map(name_of, self.balance.files("accounts")))
        return F.expr(f"file in ({names})") if names else F.lit(False)  # a text: a call for each name takes long


@contextmanager
def books(
    spark: SparkSession, compacted: Compacted, *, note: Callable[[str], None] = lambda _: None
) -> Iterator[Books]:
    """The books of a store with everything in them that it has; their files stay until the block ends.

    `note` is given a line if what earlier reports have kept cannot be used, and is made again.

    Raises `StoreInUse` if another process is at it, `StoreDamaged` if a file of the balance cannot be read, and
    `StoreError` if none can be written.
    """
    with same_active_session(), ExitStack() as until_read:
        with manifests.held(compacted.store), balances.trouble_in_a_line(compacted.store):
            current = replace(compacted, manifest=manifests.load(compacted.store))
            balance = _brought_forward(spark, current, note)
            until_read.enter_context(balances.read(compacted.store))
            rows = sum(rows_in(current.store / file) for name in ASKED for file in balance.files(name))
        yield Books(session_for(spark, rows), spark, current, balance)


def _brought_forward(spark: SparkSession, compacted: Compacted, note: Callable[[str], None]) -> Balance:
    store, manifest = compacted.store, compacted.manifest
    balance = balances.load(store, manifest)
    if balance.made_again:
        note(f"what earlier reports found is made again because {balance.made_again}")
    folder = balances.fresh_folder(store)
    balances.sweep(store, balance)
    if not set(manifest.files) <= set(balance.folded):
        balance = brought_forward(Run(spark, compacted, balance, folder))
        balances.save(store, balance)
        balances.sweep(store, balance)
    return balance


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]
