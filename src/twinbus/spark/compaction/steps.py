"""Steps: lines of the ledger as Arrow tables, and the Parquet files they are written to.

A *step* is what one event did to one message, or an event about no message. The columns that an event has once
(`count`, `bytes`, `duration_us`) are in the first of its rows, so sums are right.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.json as pa_json  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from twinbus.errors import StoreError
from twinbus.ledger.schema import PER_MESSAGE_FIELDS, described_fields
from twinbus.spark.compaction.manifest import STEPS
from twinbus.storage import Folder

_TYPES = {
    "STRING": pa.string(),
    "BIGINT": pa.int64(),
    "ARRAY<STRING>": pa.list_(pa.string()),
    "ARRAY<BIGINT>": pa.list_(pa.int64()),
}
LINE_SCHEMA = pa.schema([(name, _TYPES[kind]) for name, (kind, _) in described_fields().items()])

ONCE = ("count", "bytes", "duration_us")
PER_MESSAGE = dict(zip(PER_MESSAGE_FIELDS, ("message_id", "size", "session_id", "sequence_number"), strict=True))
NOT_KEPT = ("v", "crc", "sync_us", "boot", *PER_MESSAGE_FIELDS)
PER_EVENT = [name for name in LINE_SCHEMA.names if name not in NOT_KEPT]

STEP_SCHEMA = pa.schema(
    [
        *((name, LINE_SCHEMA.field(name).type) for name in PER_EVENT),
        ("position", pa.int64()),
        *((column, LINE_SCHEMA.field(name).type.value_type) for name, column in PER_MESSAGE.items()),
    ]
)
STEP_DDL = ", ".join(f"{field.name} {'STRING' if field.type == pa.string() else 'BIGINT'}" for field in STEP_SCHEMA)
"""The same for `spark.read.schema(...)`, to which the partition column `date DATE` is added."""

DAY_MS = 86_400_000
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""Of the calendar: 0001-01-01 and 9999-12-31."""
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,149}")
_READABLE_MAX, _DIGEST_LENGTH = 80, 16


def parse_lines(lines: bytes) -> pa.Table:
    """Whole lines as a table; unknown fields are ignored. Raises `pyarrow.ArrowInvalid` if a line is not a record."""
    return pa_json.read_json(
        pa.BufferReader(lines),
        read_options=pa_json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        parse_options=pa_json.ParseOptions(explicit_schema=LINE_SCHEMA, unexpected_field_behavior="ignore"),
    ).combine_chunks()


def to_steps(events: pa.Table) -> pa.Table:
    """One row for each message of each event, in order; one for an event without messages."""
    lists = {name: _ListColumn(events[name]) for name in PER_MESSAGE}
    lengths = np.maximum(np.maximum.reduce([each.lengths for each in lists.values()]), 1)
    rows = np.repeat(np.arange(events.num_rows), lengths)
    position = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    columns = {name: _repeat(events[name], name, rows, position) for name in PER_EVENT}
    columns["position"] = pa.array(position)
    for name, column in PER_MESSAGE.items():
        columns[column] = lists[name].values_at(rows, position)
    session = columns["session_id"]
    columns["session_id"] = pc.if_else(pc.equal(session, ""), pa.scalar(None, pa.string()), session)
    return pa.table([columns[field.name] for field in STEP_SCHEMA], schema=STEP_SCHEMA)


def _repeat(column: Any, name: str, rows: Any, position: Any) -> Any:
    """A column of events for all their rows."""
    filled = column.combine_chunks().fill_null("" if LINE_SCHEMA.field(name).type == pa.string() else 0)
    if len(filled) == len(rows):
        return filled
    taken = filled.take(pa.array(rows))
    return pa.array(np.where(position == 0, taken.to_numpy(), 0)) if name in ONCE else taken


class _ListColumn:
    """A column of lists, read element by element."""

    def __init__(self, column: Any) -> None:
        array = column.combine_chunks()
        if isinstance(array, pa.ChunkedArray):  # that of an empty table
            array = pa.array([], column.type)
        self._flat = array.flatten()
        self.lengths = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        self._starts = np.cumsum(self.lengths) - self.lengths

    def values_at(self, rows: Any, position: Any) -> Any:
        """The value at each position of each row; null where the list is shorter."""
        absent = position >= self.lengths[rows]
        return self._flat.take(pa.array(np.where(absent, 0, self._starts[rows] + position), mask=absent))


class StepFiles:
    """Parquet files by day; each gets its name once it is whole."""

    def __init__(self, store: Folder, name: str) -> None:
        self._store = store
        self._name = name
        self._open: dict[int, tuple[str, Any]] = {}
        self._drafts = ExitStack()
        self.steps = 0

    def write(self, steps: Any) -> None:
        self.steps += steps.num_rows
        # A time beyond all calendars gets the nearest day that one has.
        day = np.clip(steps["at_ms"].to_numpy() // DAY_MS, FIRST_DAY, LAST_DAY)
        with write_errors(self._store):
            for each in np.unique(day):
                part = steps if (day == each).all() else steps.filter(pa.array(day == each))
                self._writer_of(int(each)).write_table(part)

    def _writer_of(self, day: int) -> Any:
        if day not in self._open:
            name = f"{STEPS}/date={np.datetime64(day, 'D')}/{self._name}"
            draft = self._drafts.enter_context(self._store.draft(name))
            self._open[day] = (name, pq.ParquetWriter(draft, STEP_SCHEMA, compression="zstd"))
        return self._open[day][1]

    def close(self) -> list[str]:
        """The names of the files, below the store; durable when this returns."""
        with write_errors(self._store), self._drafts:
            for _, writer in self._open.values():
                writer.close()
        return [name for name, _ in self._open.values()]


def file_name(segment: str, start: int) -> str:
    """The Parquet file for a segment from `start` on: named like the segment where that is safe, and always unique.

    Spark ignores files whose names begin with `_` or `.` and reads brackets, braces and stars as patterns; a JVM may
    not know letters beyond ASCII.
    """
    stem = str(Path(segment).with_suffix(""))
    if not _SAFE_NAME.fullmatch(stem):
        readable = re.sub(r"[^A-Za-z0-9.]+", "-", stem).strip("-.")[:_READABLE_MAX]
        stem = f"{readable or 'segment'}-{sha256(os.fsencode(stem)).hexdigest()[:_DIGEST_LENGTH]}"
    return f"{stem}-{start}.parquet"


@contextmanager
def write_errors(store: Folder) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"nothing can be written to {store.url}: {error.strerror or error}") from error
