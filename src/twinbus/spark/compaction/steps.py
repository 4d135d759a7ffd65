"""Lines of the ledger as Arrow, one row for each message of an event.

A *step* is what one event did to one message, or an event that was about no message. The columns that an event has
once (`count`, `bytes`, `duration_us`) stand in the first of its rows, so that they can be summed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.json as pa_json  # type: ignore[import-untyped]

from twinbus.ledger.events import PER_MESSAGE_FIELDS, described_fields

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


def parsed(lines: bytes) -> pa.Table:
    """Whole lines as a table. Fields that are not known are ignored. Raises `pyarrow.ArrowInvalid` for what is none."""
    return pa_json.read_json(
        pa.BufferReader(lines),
        read_options=pa_json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        parse_options=pa_json.ParseOptions(explicit_schema=LINE_SCHEMA, unexpected_field_behavior="ignore"),
    ).combine_chunks()


def steps_of(events: pa.Table) -> pa.Table:
    """One row for each message of each event, in order; one for an event without messages."""
    lists = {name: _List(events[name]) for name in PER_MESSAGE}
    lengths = np.maximum.reduce([each.lengths for each in lists.values()])
    rows = np.repeat(np.arange(events.num_rows), np.maximum(lengths, 1))
    position = _positions(np.maximum(lengths, 1))
    columns = {name: _per_event(events[name], name, rows, position) for name in PER_EVENT}
    columns["position"] = pa.array(position)
    for name, column in PER_MESSAGE.items():
        columns[column] = lists[name].values_at(rows, position)
    columns["session_id"] = _empty_is_null(columns["session_id"])
    return pa.table([columns[field.name] for field in STEP_SCHEMA], schema=STEP_SCHEMA)


def _positions(lengths: Any) -> Any:
    """0, 1, 2 ... for each length, one after the other."""
    starts = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) - np.repeat(starts, lengths)


def _per_event(column: Any, name: str, rows: Any, position: Any) -> Any:
    kind = LINE_SCHEMA.field(name).type
    filled = column.combine_chunks().fill_null("" if kind == pa.string() else 0)
    if len(filled) == len(rows):
        return filled
    taken = filled.take(pa.array(rows))
    if name in ONCE:
        return pa.array(np.where(position == 0, taken.to_numpy(), 0))
    return taken


def _empty_is_null(texts: Any) -> Any:
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


class _List:
    """A column of lists, to be read element by element."""

    def __init__(self, column: Any) -> None:
        array = column.combine_chunks()
        if isinstance(array, pa.ChunkedArray):  # what an empty table has
            array = pa.array([], column.type)
        self._flat = array.flatten()
        self.lengths = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        self._starts = np.cumsum(self.lengths) - self.lengths

    def values_at(self, rows: Any, position: Any) -> Any:
        """The value at each position of each row; null where the list is shorter."""
        absent = position >= self.lengths[rows]
        return self._flat.take(pa.array(np.where(absent, 0, self._starts[rows] + position), mask=absent))
