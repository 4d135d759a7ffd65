"""Merges new steps into a balance: into the accounts, the tables made of them, and the totals of traffic.

Spark does all of it, whatever the size. Adding up small runs in this process with Arrow was measured beside it, each
time in a new process (CPU seconds of Python and JVM, one run each, 2 cores):

| events | report | Arrow for small runs | Spark alone |
|---|---|---|---|
| 2,000 | from nothing | 28 | 30 |
| 2,000 | 2 % new | 26 | 29 |
| 200,000 | from nothing | 45 | 45 |
| 200,000 | 1 % new | 35 | 39 |
| 200,000 | nothing new (same code) | 30 | 26 |

The gain is no larger than the difference of two runs of the same code in the last line, and it would be a second
program for every sum. In a warm session a report of 2,000 events takes 5 CPU seconds instead of 4. A small report
waits for the start of the JVM: see `session.QUICK_START`.

A stretch of sends is computed again only if one of its messages is in a file of accounts that is new or was replaced. A
torn one is repaired again only if it, or what arrived first of later stretches, has changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F  # noqa: N812

from twinbus.spark.compaction.compaction import CompactedLedger
from twinbus.spark.compaction.coverage import find_coverage
from twinbus.spark.compaction.primaries import primary_names
from twinbus.spark.jobs import balance as balances
from twinbus.spark.jobs.balance import Balance, TrafficRow
from twinbus.spark.jobs.compaction import steps_of_files
from twinbus.spark.jobs.persisting import persisted
from twinbus.spark.jobs.spark_files import spark_files
from twinbus.spark.jobs.stored_rows import least, rows_in
from twinbus.spark.jobs.tables import AT_ONCE, read_table, with_key
from twinbus.spark.session import is_little, session_for
from twinbus.spark.transforms.accounts import about_messages, accounts, merge_accounts, removals
from twinbus.spark.transforms.availability import changes, observed
from twinbus.spark.transforms.message_states import message_states, state_counts, watched
from twinbus.spark.transforms.ordering import (
    repaired_stretches,
    sent_messages,
    session_names,
    stretches,
    with_later_arrivals,
)
from twinbus.spark.transforms.steps import with_namespace
from twinbus.spark.transforms.traffic import traffic
from twinbus.storage import Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

POINTS_MAX = 240
BUCKETS_MS = [round(1000 * seconds) for seconds in (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 21_600, 86_400)]
"""Each divides the next, so the sums of one can be added up to those of the other."""
FILES_MAX = 128
"""Of a table; more of them take longer to open than to read."""
ACCOUNT_FILES_MAX = 128
ACCOUNTS_PER_FILE = 50_000
FEW_PER_FILE = 20_000
"""In the files of a run that adds to others: the next steps are about the latest messages, and replace whole files."""
LITTLE_SHARE = 4
"""If more than a quarter is new, searching for the files it changes takes longer than writing everything again."""
ROWS_PER_FILE = 1_000_000
PLACE = ["sender", "stretch"]


@dataclass(frozen=True)
class MergeRun:
    """A balance, and the steps that are not in it."""

    spark: SparkSession
    compacted: CompactedLedger
    before: Balance
    number: int
    """Of this run: its folders are called by it."""

    @property
    def store(self) -> Folder:
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
        manifest = self.compacted.manifest
        files = manifest.files_with(sorted(set(manifest.parts) - set(self.before.folded)))
        fresh = steps_of_files(session_for(self.spark, self.new), self.store, files)
        return _in_one_piece(with_namespace(fresh, self.primary_names), self.new)

    def rows(self, files: Collection[str]) -> int:
        return sum(rows_in(self.store, files).values())

    def read(self, table: str, files: list[str], rows: int) -> DataFrame:
        """The rows of some files of a table, in a session that suits this many rows."""
        return _in_one_piece(read_table(session_for(self.spark, rows), self.store, table, files), rows)

    def accounts(self, files: list[str], beside: int = 0) -> DataFrame:
        """The accounts in these files, with `file`, its name, in a session that suits them and `beside` other rows."""
        rows = self.rows(files) + beside
        found = read_table(session_for(self.spark, rows), self.store, "accounts", files)
        return _in_one_piece(with_file_name(found), rows)

    def write(self, table: str, frame: DataFrame) -> list[str]:
        """The names of the new files, below the store; files without rows are left out."""
        files = spark_files(self.spark, self.store).write(frame, balances.folder_of(self.number, table))
        return [file for file, rows in rows_in(self.store, files).items() if rows]


def with_file_name(frame: DataFrame) -> DataFrame:
    """Add `file`, the name of the file that a row is in, without its folder."""
    return frame.withColumn("file", F.col("_metadata.file_name"))


def split_files(files: list[str]) -> tuple[list[str], list[str]]:
    """The files of a table that stay as they are, and those that are too many and become one."""
    return ([], files) if len(files) > FILES_MAX else (files, [])


def _in_one_piece(frame: DataFrame, rows: int) -> DataFrame:
    """Little data in one partition: nothing has to be shuffled."""
    return frame.coalesce(1) if is_little(rows) else frame


def merge_new_steps(run: MergeRun) -> Balance:
    """The balance with the new steps in it; its files are durable when this returns."""
    bucket_ms = max(run.before.bucket_ms, choose_bucket_ms(run.span_ms[1] - run.span_ms[0]))
    steps = run.steps()
    with ThreadPoolExecutor(AT_ONCE) as at_once:
        moved = at_once.submit(traffic(steps, bucket_ms=bucket_ms).collect)
        seen = at_once.submit(observed(steps).collect)
        removed = at_once.submit(removals(steps).collect)
        changed = at_once.submit(_append, run, "changes", changes(steps))
        named = at_once.submit(_append, run, "sessions", session_names(steps))
        files = merge_account_files(run)
        states = at_once.submit(write_state_tables, run, files)
        stretch_files = write_stretches(run, files)
        repaired = write_repaired(run, files, stretch_files)
    after = Balance(
        folded=run.compacted.manifest.parts,
        homes=sorted(run.primary_names),
        steps=run.compacted.manifest.steps,
        tables={"accounts": files.all, "stretches": stretch_files, "mended": repaired}
        | states.result()
        | {"changes": changed.result(), "sessions": named.result()},
        traffic=run.before.traffic,
        observed=dict(run.before.observed),
        removed=dict(run.before.removed),
    )
    after.add_traffic([TrafficRow(*row) for row in moved.result()], bucket_ms)
    for entity, first_ms, last_ms in seen.result():
        after.add_observed(entity, first_ms, last_ms)
    for entity, at_ms in removed.result():
        after.removed[entity] = max(at_ms, after.removed.get(entity, at_ms))
    return after


def choose_bucket_ms(span_ms: int) -> int:
    """The shortest bucket with no more points than a plot can show."""
    return next((each for each in BUCKETS_MS if span_ms / each <= POINTS_MAX), BUCKETS_MS[-1])


def _append(run: MergeRun, table: str, fresh: DataFrame) -> list[str]:
    kept, many = split_files(run.before.files(table))
    if many:
        fresh = run.read(table, many, run.new).unionByName(fresh).distinct()
    return [*kept, *run.write(table, fresh.coalesce(1))]


# --- accounts ---


class AccountFiles(NamedTuple):
    """The files of accounts after a run."""

    new: list[str]
    kept: list[str]
    replaced: list[str]

    @property
    def all(self) -> list[str]:
        return [*self.kept, *self.new]


def merge_account_files(run: MergeRun) -> AccountFiles:
    """One row per message in all files: those with a message that has new steps are replaced."""
    before = run.before.files("accounts")
    replaced = _find_replaced(run, before) if before else []
    rows = run.new + run.rows(replaced)
    together = with_key(accounts(run.steps()))
    if replaced:
        together = with_key(merge_accounts(run.read("accounts", replaced, rows).unionByName(together)))
    # Messages of the same time in one file: the next steps are about the latest, and leave the other files alone.
    files = max(1, min(ACCOUNT_FILES_MAX // 2, rows // (FEW_PER_FILE if before else ACCOUNTS_PER_FILE)))
    first_ms = least(run.store, replaced, "first_ms")
    first_ms = run.span_ms[0] if first_ms is None else first_ms
    width_ms = max(1, (run.span_ms[1] - first_ms) // files + 1)
    at = F.least(F.greatest(F.floor((F.col("first_ms") - first_ms) / width_ms), F.lit(0)), F.lit(files - 1))
    new = run.write("accounts", together.repartitionById(files, at.cast("int")))
    return AccountFiles(new, [file for file in before if file not in replaced], replaced)


def _find_replaced(run: MergeRun, before: list[str]) -> list[str]:
    """Files with a message that has new steps; of many files the smaller half as well."""
    if run.new * LITTLE_SHARE > run.before.steps:
        return before
    rows = run.new + run.rows(before)
    new = with_key(about_messages(run.steps())).select("key").distinct()
    there = with_file_name(run.read("accounts", before, rows).select("key"))
    names = {row["file"] for row in there.join(new, "key", "semi").select("file").distinct().collect()}
    chosen = set(_named(before, names))
    if len(before) > ACCOUNT_FILES_MAX:
        stored = balances.stored_files(run.store)
        chosen.update(sorted(before, key=lambda file: stored[file].bytes)[: len(before) // 2])
    return [file for file in before if file in chosen]


def write_state_tables(run: MergeRun, files: AccountFiles) -> dict[str, list[str]]:
    """The files of the tables `tallies` and `watched`.

    Rows about replaced files of accounts stay, without a meaning, until there are many files.
    """
    before = {table: run.before.files(table) if files.kept else [] for table in ("tallies", "watched")}
    if not files.new:
        return before
    states = message_states(run.accounts(files.new))
    fresh = {"tallies": state_counts(states.drop("message_id")), "watched": watched(states)}
    return {table: _add_rows(run, table, fresh[table], before[table], files) for table in fresh}


def _add_rows(run: MergeRun, table: str, fresh: DataFrame, before: list[str], files: AccountFiles) -> list[str]:
    kept, many = split_files(before)
    if many:
        old = run.read(table, many, run.rows([*many, *files.new]))
        names = [Path(file).name for file in files.kept]
        fresh = old.where(F.col("file").isin(*names)).unionByName(fresh)
    return [*kept, *run.write(table, fresh.coalesce(1 + run.new // ROWS_PER_FILE))]


# --- order ---


def write_stretches(run: MergeRun, files: AccountFiles) -> list[str]:
    """The files of the table `stretches`."""
    before = run.before.files("stretches")
    if not files.new:
        return before
    rows = run.rows(before)
    if not files.kept:
        fresh = stretches(sent_messages(run.accounts(files.new)))
        return run.write("stretches", fresh.coalesce(1 + run.new // ROWS_PER_FILE))
    old = run.read("stretches", before, rows + run.rows(files.new))
    now = sent_messages(run.accounts(files.new, rows))
    replaced = F.array(*(F.lit(Path(file).name) for file in files.replaced)).cast("array<string>")
    was_there = old.where(F.arrays_overlap("files", replaced)).select(*PLACE)
    changed = was_there.unionByName(now.select(*PLACE)).distinct()
    names = _file_names(old.join(changed, PLACE, "semi"))
    beside = _named(files.kept, names)
    again = stretches(sent_messages(run.accounts([*files.new, *beside], rows)).join(changed, PLACE, "semi"))
    whole = old.join(changed, PLACE, "anti").unionByName(again)
    return run.write("stretches", whole.coalesce(1 + rows // ROWS_PER_FILE))


def write_repaired(run: MergeRun, files: AccountFiles, stretch_files: list[str]) -> list[str]:
    """The files of the table `mended`: all torn stretches, repaired.

    Those that are no longer torn, or torn in another way, stay without a meaning until there are many files.
    """
    before = run.before.files("mended")
    if not files.new:
        return before
    rows = run.rows(stretch_files) + run.rows(before)
    torn = with_later_arrivals(run.read("stretches", stretch_files, rows)).where("is_torn")
    known = run.read("mended", before, rows)
    with persisted(torn.join(known, "torn_as", "anti") if before else torn) as unknown:
        found = _named(files.all, _file_names(unknown))
        if not found:
            return before
        fresh = repaired_stretches(unknown, sent_messages(run.read("accounts", found, rows + run.rows(found))))
        kept, many = split_files(before)
        if many:
            fresh = known.join(torn, "torn_as", "semi").unionByName(fresh)
        return [*kept, *run.write("mended", fresh.coalesce(1))]


def _file_names(of_stretches: DataFrame) -> set[str]:
    return {row["file"] for row in of_stretches.select(F.explode("files").alias("file")).distinct().collect()}


def _named(files: Iterable[str], names: set[str]) -> list[str]:
    return [file for file in files if Path(file).name in names]
