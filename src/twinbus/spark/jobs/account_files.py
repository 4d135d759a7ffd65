"""The files of accounts: those with a message that has new steps are replaced; and the state tables made of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pyspark.sql import functions as F  # noqa: N812

from twinbus.spark.jobs.merge_run import MergeRun, split_files
from twinbus.spark.jobs.tables import files_with_keys, first_ms_in, with_key
from twinbus.spark.transforms.accounts import about_messages, accounts, merge_accounts
from twinbus.spark.transforms.message_states import message_states, state_counts, watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILES_MAX = 128
ACCOUNTS_PER_FILE = 50_000
FEW_PER_FILE = 20_000
"""In the files of a run that adds to others: the next steps are about the latest messages, and replace whole files."""
LITTLE_SHARE = 4
"""If more than a quarter is new, searching for the files it changes takes longer than writing everything again."""
ROWS_PER_FILE = 1_000_000


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
    files = max(1, min(FILES_MAX // 2, rows // (FEW_PER_FILE if before else ACCOUNTS_PER_FILE)))
    first_ms = min((first_ms_in(run.store / file) for file in replaced), default=run.span_ms[0])
    width_ms = max(1, (run.span_ms[1] - first_ms) // files + 1)
    at = F.least(F.greatest(F.floor((F.col("first_ms") - first_ms) / width_ms), F.lit(0)), F.lit(files - 1))
    new = run.write("accounts", together.repartitionById(files, at.cast("int")))
    return AccountFiles(new, [file for file in before if file not in replaced], replaced)


def _find_replaced(run: MergeRun, before: list[str]) -> list[str]:
    """Files with a message that has new steps; of many files the smaller half as well."""
    if run.new * LITTLE_SHARE > run.before.steps:
        return before
    keys = with_key(about_messages(run.steps())).select("key").toArrow()["key"]
    chosen = set(files_with_keys(run.store, before, np.unique(keys.to_numpy())))
    if len(before) > FILES_MAX:
        by_size = sorted(before, key=lambda file: (run.store / file).stat().st_size)
        chosen.update(by_size[: len(before) // 2])
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
