"""The files of accounts: which of them something new is about, and what takes their place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import functions as F  # noqa: N812

from twinbus.spark.jobs import at_hand
from twinbus.spark.jobs.run import Run
from twinbus.spark.jobs.tables import first_ms_in, has_any, with_key
from twinbus.spark.session import is_little
from twinbus.spark.transforms.accounts import KEY, about_messages, accounts, each_step, merged, sums
from twinbus.spark.transforms.sums import Sums

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILES_MAX = 128
ACCOUNTS_PER_FILE = 50_000
FEW_PER_FILE = 20_000
"""In the files of a run that adds to others: what comes next is about the latest messages, and replaces whole files."""
LITTLE_SHARE = 4
"""If more than a quarter is new, looking for what it touches takes longer than writing everything again."""


class Accounts(NamedTuple):
    """The files of accounts after a run."""

    new: list[str]
    kept: list[str]
    replaced: list[str]

    @property
    def all(self) -> list[str]:
        return [*self.kept, *self.new]


def account_for(run: Run) -> Accounts:
    """One row per message in all files: those with a message of which there is something new are replaced."""
    before = run.before.files("accounts")
    adding = sums()  # made once: that takes longer than what is done with them here
    fresh = with_key(each_step(run.steps(), adding)).toArrow() if is_little(run.new) else None
    replaced = _replaced(run, before, fresh) if before else []
    rows = run.new + run.rows(replaced)
    if fresh is not None and is_little(rows):
        new = _written_here(run, fresh, adding, replaced, rows)
    else:
        new = run.write("accounts", _together(run, replaced, rows))
    return Accounts(new, [file for file in before if file not in replaced], replaced)


def _replaced(run: Run, before: list[str], fresh: Any) -> list[str]:
    """Files with a message that something is new about; of many files the smaller half as well."""
    if run.new * LITTLE_SHARE > run.before.steps:
        return before
    if fresh is None:
        fresh = with_key(about_messages(run.steps())).select("key").toArrow()
    chosen = set(has_any(run.store, before, np.unique(fresh["key"].to_numpy())))
    if len(before) > FILES_MAX:
        by_size = sorted(before, key=lambda file: (run.store / file).stat().st_size)
        chosen.update(by_size[: len(before) // 2])
    return [file for file in before if file in chosen]


def _together(run: Run, replaced: list[str], rows: int) -> DataFrame:
    """The accounts of what is new, and of what is in the files to be replaced."""
    fresh = with_key(accounts(run.steps()))
    together = with_key(merged(run.read("accounts", replaced, rows).unionByName(fresh))) if replaced else fresh
    first_ms, width_ms, files = _cut(run, replaced, rows)
    at = F.floor((F.col("first_ms") - first_ms) / width_ms)
    return together.repartitionById(files, F.least(F.greatest(at, F.lit(0)), F.lit(files - 1)).cast("int"))


def _written_here(run: Run, fresh: Any, adding: Sums, replaced: list[str], rows: int) -> list[str]:
    parts = pa.concat_tables([run.read_here("accounts", replaced), fresh.cast(run.schema("accounts"))])
    together = at_hand.put_together(parts, (*KEY, "key"), adding)
    first_ms, width_ms, files = _cut(run, replaced, rows)
    at = np.clip((together["first_ms"].to_numpy() - first_ms) // width_ms, 0, files - 1)
    return run.write_here("accounts", *at_hand.split(together, at))


def _cut(run: Run, replaced: list[str], rows: int) -> tuple[int, int, int]:
    """Messages of the same time together: what comes next is about the latest, and leaves the other files alone.

    The first moment, how much time is in a file, and how many files there are.
    """
    per_file = ACCOUNTS_PER_FILE if not run.before.files("accounts") else FEW_PER_FILE
    files = max(1, min(FILES_MAX // 2, rows // per_file))
    first_ms, last_ms = run.span_ms
    begins_ms = min((first_ms_in(run.store / file) for file in replaced), default=first_ms)
    return begins_ms, max(1, (last_ms - begins_ms) // files + 1), files
