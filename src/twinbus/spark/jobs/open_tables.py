"""Tables of a store that other engines read: steps and accounts, as Parquet files with the log of a Delta table.

Engines that know Delta see just the files that count, all of one moment. Others read the Parquet files: between two
reports, all that are there count, except where files that were replaced are kept for readers (`balance.KEPT_MS`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from twinbus.spark.compaction.manifest import STEPS, Manifest
from twinbus.spark.compaction.steps import STEP_DDL
from twinbus.spark.jobs.balance import ACCOUNTS, Balance
from twinbus.spark.jobs.delta_log import DeltaFile, publish, schema_of
from twinbus.spark.jobs.tables import COLUMNS
from twinbus.storage import Folder

_DATE = re.compile(r"date=([^/]+)/")


def publish_tables(store: Folder, manifest: Manifest, balance: Balance, *, is_rearranged: bool = False) -> None:
    """Let other engines see the steps and accounts that count now; if they are only rearranged, as the same rows."""
    steps = schema_of(f"{STEP_DDL}, date DATE")
    files = _known(store, STEPS, manifest.files)
    publish(store.below(STEPS), "steps", steps, files, ("date",), is_rearranged=is_rearranged)
    accounts = schema_of(COLUMNS["accounts"])
    publish(store.below(ACCOUNTS), "accounts", accounts, _known(store, ACCOUNTS, balance.files("accounts")))


def _known(store: Folder, table: str, files: Iterable[str]) -> dict[str, DeltaFile]:
    """The files by their names below the table."""
    there = {each.name: each for each in store.files(table)}
    found = ((name.removeprefix(f"{table}/"), there[name]) for name in files)
    return {name: DeltaFile(each.bytes, each.modified_ms, _partition(name)) for name, each in found}


def _partition(name: str) -> tuple[tuple[str, str], ...]:
    date = _DATE.match(name)
    return (("date", date[1]),) if date else ()
