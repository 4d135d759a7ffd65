"""Opens the balance of a store: merges what is new, and gives all that is known as DataFrames."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import functions as F  # noqa: N812

from twinbus.errors import TwinbusError
from twinbus.spark.compaction import manifest as manifests
from twinbus.spark.compaction.compaction import CompactedLedger
from twinbus.spark.compaction.step_merging import FileMerge, find_merges, note_merges
from twinbus.spark.failures import spark_errors
from twinbus.spark.jobs import balance as balances
from twinbus.spark.jobs.balance import Balance
from twinbus.spark.jobs.compaction import merge_on
from twinbus.spark.jobs.merge import MergeRun, merge_new_steps
from twinbus.spark.jobs.open_tables import publish_merges, publish_tables
from twinbus.spark.jobs.spark_files import spark_files
from twinbus.spark.jobs.stored_rows import rows_in
from twinbus.spark.jobs.tables import read_table
from twinbus.spark.session import is_little, restore_active_session, session_for
from twinbus.spark.transforms.local_rows import frame_of
from twinbus.storage import Folder, Lease

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
REMOVALS_SCHEMA = pa.schema([("entity", pa.string()), ("removed_ms", pa.int64())])
QUERIED = ("tallies", "watched", "stretches", "mended", "changes")


@dataclass(frozen=True)
class BalanceFrames:
    """All that is known of a store, as DataFrames."""

    spark: SparkSession
    is_little: bool
    """Whether the session is one for little data: tables are read in one partition."""
    compacted: CompactedLedger
    balance: Balance

    @property
    def accounts(self) -> DataFrame:
        return self._table("accounts").drop("key")

    @cached_property
    def state_counts(self) -> DataFrame:
        return self._table("tallies").where(self._is_current())

    @cached_property
    def watched(self) -> DataFrame:
        return self._table("watched").where(self._is_current())

    @cached_property
    def stretches(self) -> DataFrame:
        return self._table("stretches")

    @cached_property
    def repaired(self) -> DataFrame:
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
        return self._in_one_piece(read_table(self.spark, self.compacted.store, name, self.balance.files(name)))

    def _rows(self, rows: list[dict[str, Any]], schema: Any) -> DataFrame:
        return self._in_one_piece(frame_of(self.spark, rows, schema))

    def _in_one_piece(self, frame: DataFrame) -> DataFrame:
        return frame.coalesce(1) if self.is_little else frame

    def _is_current(self) -> Column:
        """Whether a row is about a file of accounts that still counts."""
        names = ", ".join(f"'{PurePosixPath(file).name}'" for file in self.balance.files("accounts"))
        return F.expr(f"file in ({names})") if names else F.lit(False)  # as text: a call for each name takes long


@contextmanager
def open_balance(
    spark: SparkSession, compacted: CompactedLedger, *, note: Callable[[str], None] = lambda _: None
) -> Iterator[BalanceFrames]:
    """The balance of a store with all its steps merged; its files stay until the block ends.

    `note` gets a line if the balance of earlier reports cannot be used and is made again.

    Raises `StoreInUse` if another process writes to it, `StoreDamaged` if a file of the balance cannot be read, and
    `StoreError` if none can be written.
    """
    with restore_active_session(), ExitStack() as until_read:
        store = compacted.store
        with manifests.lock_store(store) as lease, balances.store_errors(store):
            current = replace(compacted, manifest=manifests.load(store))
            balance = _merge(spark, current, lease, note)
            until_read.enter_context(balances.lock_for_reading(store))
            rows = sum(rows_in(store, [file for name in QUERIED for file in balance.files(name)]).values())
        session = session_for(spark, rows)
        yield BalanceFrames(session, session is not spark and is_little(rows), current, balance)


def _merge(spark: SparkSession, compacted: CompactedLedger, lease: Lease, note: Callable[[str], None]) -> Balance:
    store, manifest, now_ms = compacted.store, compacted.manifest, compacted.read_ms
    balance = balances.load(store, manifest)
    if balance.made_again:
        note(f"what earlier reports found is made again because {balance.made_again}")
    number = balances.new_run(store)
    gone = balances.remove_uncounted(store, balance, now_ms)
    if not set(manifest.parts) <= set(balance.folded):
        before, balance = balance, merge_new_steps(MergeRun(spark, compacted, balance, number))
        replaced = dict.fromkeys(before.all_files - balance.all_files, _now_ms())
        kept = {file: at_ms for file, at_ms in before.replaced.items() if at_ms + balances.KEPT_MS > now_ms}
        balance.replaced = {} if store.is_local else kept | replaced
        lease.check()
        balances.save(store, balance)
        publish_tables(store, manifest, balance)
        gone += balances.remove_uncounted(store, balance, now_ms)
    gone += _merge_step_files(spark, compacted, balance, lease, note)
    spark_files(spark, store).forget(gone)
    return balance


def _merge_step_files(
    spark: SparkSession, compacted: CompactedLedger, balance: Balance, lease: Lease, note: Callable[[str], None]
) -> list[str]:
    """Merge small step files, now that the balance has all of them; the names of files that are gone for it.

    The merged ones count from the moment that the manifest is replaced. Those that they were made of go after that.
    """
    store, manifest, now_ms = compacted.store, compacted.manifest, compacted.read_ms
    publish_merges(store, manifest)
    merges = find_merges(store, manifest)
    if merges and _write_merged(spark, merges, store, note):
        publish_tables(store, manifest, balance)  # so that the next version has no rows that this one has not
        note_merges(manifest, merges, _now_ms())
        lease.check()
        manifests.save(store, manifest)
        publish_merges(store, manifest)
    gone = balances.remove_merged(store, manifest, now_ms)
    if gone:
        lease.check()
        manifests.save(store, manifest)
    return gone


def _write_merged(spark: SparkSession, merges: list[FileMerge], store: Folder, note: Callable[[str], None]) -> bool:
    """Whether all merged files are written; if not, nothing else changes: a report needs none of them, and the next
    compaction removes those that are there.
    """
    try:
        with spark_errors():
            merge_on(spark)(merges, store)
    except TwinbusError as error:
        note(f"small files of the store are not merged: {error}")
        return False
    return True


def _now_ms() -> int:
    """When files are replaced: a run may begin long before, and another open them until then."""
    return time.time_ns() // 1_000_000


def collect_rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]
