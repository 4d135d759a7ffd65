"""Merges small step files: compaction writes one a segment and day.

A day with many small files gets larger ones. What is merged and still small is merged again, but only with many others,
so a step is rewritten a few times at most. Every report merges a bounded amount; the next one goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from twinbus.errors import StoreError
from twinbus.spark.compaction.manifest import STEPS, VERSION, Manifest
from twinbus.spark.compaction.steps import STEP_SCHEMA, write_errors
from twinbus.storage import Folder

SMALL_BYTES, MERGED_BYTES = 32 << 20, 128 << 20
"""Smaller files are merged, into files of about the second size."""
MANY = 16
"""Fewer small files of a day are left alone."""
BYTES_PER_RUN = 1 << 30
BATCH_ROWS, GROUP_ROWS = 1 << 16, 1 << 18
"""Rows that are read at once; rows that are written together, all in memory."""
DIGEST_LENGTH = 16


class FileMerge(msgspec.Struct, frozen=True):
    """Files of one day that become one. All names are below the store."""

    into: str
    files: list[str]
    bytes: int


def find_merges(store: Folder, manifest: Manifest) -> list[FileMerge]:
    """What to merge in this run."""
    counted = set(manifest.files)
    of_day: dict[str, list[tuple[str, int]]] = {}
    for each in store.files(STEPS):
        if each.name in counted and each.bytes < SMALL_BYTES:
            of_day.setdefault(each.name.rpartition("/")[0], []).append((each.name, each.bytes))
    result, left = list[FileMerge](), BYTES_PER_RUN
    for day, small in of_day.items():
        for merge in _merges_of_day(day, small) if len(small) >= MANY else ():
            if merge.bytes <= left:
                result.append(merge)
                left -= merge.bytes
    return result


def _merges_of_day(day: str, small: list[tuple[str, int]]) -> Iterator[FileMerge]:
    """In the order of their names, which begin with a time."""
    names, size = list[str](), 0
    for at, (name, added) in enumerate(small, 1):
        names.append(name)
        size += added
        if size < MERGED_BYTES and at < len(small):
            continue
        if len(names) > 1:
            digest = sha256("\n".join(names).encode()).hexdigest()[:DIGEST_LENGTH]
            yield FileMerge(f"{day}/merged-{digest}.parquet", names, size)
        names, size = [], 0


def merge_files(merge: FileMerge, store: Folder) -> None:
    """Write the merged file; durable when this returns. Doing it twice, or two at once, writes the same.

    Raises `StoreError` if a file cannot be read or written.
    """
    with (
        write_errors(store),
        store.draft(merge.into) as draft,
        pq.ParquetWriter(draft, STEP_SCHEMA, compression="zstd") as writer,
    ):
        for rows in _groups(store, merge.files):
            writer.write_table(rows)


def _groups(store: Folder, files: list[str]) -> Iterator[Any]:
    held = list[Any]()
    for file in files:
        for batch in _batches(store, file):
            held.append(batch)
            if sum(each.num_rows for each in held) >= GROUP_ROWS:
                yield pa.Table.from_batches(held, STEP_SCHEMA)
                held = []
    if held:
        yield pa.Table.from_batches(held, STEP_SCHEMA)


def _batches(store: Folder, file: str) -> Iterator[Any]:
    """The rows of a file; columns that it does not have yet are null."""
    try:
        with store.open(file) as source:
            for batch in pq.ParquetFile(source).iter_batches(BATCH_ROWS):
                known = {name: batch.column(name) for name in batch.schema.names}
                missing = {field.name: pa.nulls(batch.num_rows, field.type) for field in STEP_SCHEMA}
                yield pa.RecordBatch.from_pydict(missing | known, STEP_SCHEMA)
    except (OSError, pa.ArrowInvalid) as error:
        raise StoreError(f"{store.where(file)} cannot be read: {error}") from error


def note_merges(manifest: Manifest, merges: list[FileMerge], now_ms: int) -> None:
    """Let the merged files count, and those that they were made of no longer."""
    for merge in merges:
        parts = [part for file in merge.files for part in manifest.merged.pop(file, [file])]
        manifest.merged[merge.into] = parts
        manifest.replaced |= dict.fromkeys(merge.files, now_ms)
        manifest.version = VERSION
