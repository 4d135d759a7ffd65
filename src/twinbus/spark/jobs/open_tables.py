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
from twinbus.spark.jobs.delta_log import DeltaFile, publish, published_files, schema_of
from twinbus.spark.jobs.tables import COLUMNS
from twinbus.storage import Folder

_DATE = re.compile(r"date=([^/]+)/")
_STEPS = schema_of(f"{STEP_DDL}, date DATE")


def publish_tables(store: Folder, manifest: Manifest, balance: Balance) -> None:
    """Let other engines see the steps and accounts that count now."""
    publish_merges(store, manifest)
    publish(store.below(STEPS), "steps", _STEPS, _known(store, STEPS, manifest.files), ("date",))
    accounts = schema_of(COLUMNS["accounts"])
    publish(store.below(ACCOUNTS), "accounts", accounts, _known(store, ACCOUNTS, balance.files("accounts")))


def publish_merges(store: Folder, manifest: Manifest) -> None:
    """Let other engines see merged step files in place of those that they were made of, as the same rows.

    If the run that merged them has died, the next one does it: before it removes files that the log still names.
    """
    if not manifest.replaced:
        return
    published = {f"{STEPS}/{name}" for name in published_files(store.below(STEPS))}
    if published.isdisjoint(manifest.replaced):
        return
    now = [name for name in manifest.files if name in published or name in manifest.merged]
    publish(store.below(STEPS), "steps", _STEPS, _known(store, STEPS, now), ("date",), is_rearranged=True)


def _known(store: Folder, table: str, files: Iterable[str]) -> dict[str, DeltaFile]:
    """The files by their names below the table."""
    there = {each.name: each for each in store.files(table)}
    found = ((name.removeprefix(f"{table}/"), there[name]) for name in files)
    return {name: DeltaFile(each.bytes, each.modified_ms, _partition(name)) for name, each in found}


def _partition(name: str) -> tuple[tuple[str, str], ...]:
    date = _DATE.match(name)
    return (("date", date[1]),) if date else ()
