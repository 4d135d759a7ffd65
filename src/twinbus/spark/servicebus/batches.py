"""Messages as batches of Arrow, and rows of such batches as messages."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from twinbus.errors import OptionsError
from twinbus.spark.servicebus.columns import WRITTEN
from twinbus.spark.servicebus.rows import Opened, message_of, reader_of

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

TIME = "scheduled_enqueue_time_utc"


def batch_of(entity: str, messages: Sequence[bytes], schema: pa.Schema) -> pa.RecordBatch:
    """One row a message, with the columns of this schema."""
    import pyarrow as pa

    opened = [Opened(entity, message) for message in messages]
    columns = []
    for field in schema:
        read = reader_of(field.name)
        columns.append(pa.array([read(each) for each in opened], type=field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def outgoing(batch: pa.RecordBatch, entity: str | None, now_ms: int, *, makes_ids: bool) -> Iterator[tuple[str, bytes]]:
    """Where each row goes, and as what. Raises `OptionsError` that says which row is wrong, and why."""
    columns = {name: _values(batch, name) for name in batch.schema.names if name in WRITTEN}
    for number, values in enumerate(zip(*columns.values(), strict=True)):
        row: dict[str, Any] = dict(zip(columns, values, strict=True))
        if not row.get("message_id"):  # an empty one tells nothing apart either
            if not makes_ids:
                raise OptionsError(f"row {number} has no message_id: by it a repeated send is recognised")
            row["message_id"] = str(uuid.uuid4())
        target = entity or row.get("entity")
        try:
            if not target:
                raise OptionsError("entity is null, and no queue is set")
            yield target, message_of(row, now_ms)
        except OptionsError as error:
            raise OptionsError(f"row {number}, message {row['message_id']!r:.60}: {error}") from None


def _values(batch: pa.RecordBatch, name: str) -> list[Any]:
    column = batch.column(batch.schema.get_field_index(name))
    if name == TIME:
        import pyarrow as pa

        column = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    found: list[Any] = column.to_pylist()
    return found
