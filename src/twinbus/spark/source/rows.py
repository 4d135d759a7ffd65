"""Messages as rows of Arrow batches, and back."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from twinbus.amqp.codec.types import Timestamp, Value, text_of
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import Header, Layout, PropertyField
from twinbus.errors import DecodeError, OptionsError
from twinbus.pairing.backlog.envelope import SCHEDULE_ANNOTATION
from twinbus.spark.source.columns import WRITTEN
from twinbus.spark.source.typed_text import from_text, to_text

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

_STATES = {0: "active", 1: "deferred", 2: "scheduled"}
_FIELDS = {
    "message_id": PropertyField.MESSAGE_ID,
    "session_id": PropertyField.GROUP_ID,
    "correlation_id": PropertyField.CORRELATION_ID,
    "subject": PropertyField.SUBJECT,
    "to": PropertyField.TO,
    "reply_to": PropertyField.REPLY_TO,
    "reply_to_session_id": PropertyField.REPLY_TO_GROUP_ID,
    "content_type": PropertyField.CONTENT_TYPE,
}
_ANNOTATIONS = {
    "sequence_number": "x-opt-sequence-number",
    "enqueued_sequence_number": "x-opt-enqueue-sequence-number",
    "partition_key": "x-opt-partition-key",
    "dead_letter_source": "x-opt-deadletter-source",
}
_TIMES = {"scheduled_enqueue_time_utc": SCHEDULE_ANNOTATION, "enqueued_time_utc": "x-opt-enqueued-time"}
_DEAD_LETTER = {
    "dead_letter_reason": "DeadLetterReason",
    "dead_letter_error_description": "DeadLetterErrorDescription",
}
_TTL_MS_MAX = 2**32 - 1
_EXPIRY_MS_MAX = 253_402_243_199_000
"""The last moment that the official clients write."""
_FIRST_MS, _LAST_MS = -62_135_424_000_000, _EXPIRY_MS_MAX
"""Of the moments that a column can hold, and Python show in every time zone, for which it looks a day back, too."""
_INT_MAX, _BIGINT_MIN, _BIGINT_MAX = 2**31 - 1, -(2**63), 2**63 - 1

# --- from a message ---


class DecodedMessage:
    """A message of which columns are read; the others are not decoded."""

    def __init__(self, entity: str, message: bytes) -> None:
        self.entity = entity
        self.message = message
        self.layout: Layout = sections.walk(message)
        self._annotations: dict[Value, Value] | None = None

    @property
    def annotations(self) -> dict[Value, Value]:
        if self._annotations is None:
            self._annotations = sections.read_annotations(self.message, self.layout)
        return self._annotations

    def property(self, field: PropertyField) -> Value:
        return sections.read_property(self.message, self.layout, field)

    def application_property(self, name: str) -> Value:
        return sections.read_application_property(self.message, self.layout, name)


def reader_of(column: str) -> Callable[[DecodedMessage], Any]:
    """What takes the value of a column from a message: times in microseconds since 1970, a map as pairs."""
    if column in _FIELDS:
        field = _FIELDS[column]
        return lambda opened: _text(opened.property(field))
    if column in _ANNOTATIONS:
        name = _ANNOTATIONS[column]
        if column.endswith("sequence_number"):
            return lambda opened: _whole(opened.annotations.get(name))
        return lambda opened: _text(opened.annotations.get(name))
    if column in _TIMES:
        name = _TIMES[column]
        return lambda opened: _micros(opened.annotations.get(name))
    if column in _DEAD_LETTER:
        name = _DEAD_LETTER[column]
        return lambda opened: _text(opened.application_property(name))
    return _READERS[column]


def _text(value: Value) -> str | None:
    return None if value is None else text_of(value)


def _whole(value: Value) -> int | None:
    """A number that tells messages apart: if the column cannot hold it, none is better than that of another one."""
    return int(value) if isinstance(value, int) and _BIGINT_MIN <= value <= _BIGINT_MAX else None


def _micros(value: Value) -> int | None:
    return _moment(int(value)) if isinstance(value, int) else None


def _moment(at_ms: int) -> int:
    """The nearest moment that a column can hold, in microseconds.

    Null would say that a message is not scheduled, or never expires: written elsewhere, it would be there at once.
    """
    return max(_FIRST_MS, min(at_ms, _LAST_MS)) * 1000


def _body(opened: DecodedMessage) -> bytes | None:
    """The bytes of a data body; of another kind its sections as they are."""
    layout = opened.layout
    if layout.body is None:
        return None
    if layout.body_kind == "data":
        return b"".join(sections.data_sections(opened.message, layout))
    return opened.message[layout.body[0] : layout.body[1]]


def _application_properties(opened: DecodedMessage) -> list[tuple[str, dict[str, str | None]]] | None:
    if opened.layout.application_properties is None:
        return None
    entries = sections.read_application_properties(opened.message, opened.layout)
    pairs = [(str(name), to_text(value)) for name, value in entries.items()]
    return [(name, {"type": kind, "value": text}) for name, (kind, text) in pairs]


def _ttl_ms(opened: DecodedMessage) -> int | None:
    """A time to live too long for the header is in the expiry, as the official clients write it."""
    ttl_ms = sections.read_header(opened.message, opened.layout).ttl_ms
    if ttl_ms == _TTL_MS_MAX:
        created, expires = (
            opened.property(field) for field in (PropertyField.CREATION_TIME, PropertyField.ABSOLUTE_EXPIRY_TIME)
        )
        if isinstance(created, Timestamp) and isinstance(expires, Timestamp):
            return max(_BIGINT_MIN, min(int(expires) - int(created), _BIGINT_MAX))
    return ttl_ms


def _expires(opened: DecodedMessage) -> int | None:
    ttl_ms, since = _ttl_ms(opened), opened.annotations.get("x-opt-enqueued-time")
    return None if ttl_ms is None or not isinstance(since, int) else _moment(int(since) + ttl_ms)


def _delivery_count(opened: DecodedMessage) -> int:
    return min(sections.read_header(opened.message, opened.layout).delivery_count, _INT_MAX)


def _state(opened: DecodedMessage) -> str | None:
    state = opened.annotations.get("x-opt-message-state", 0)
    return _STATES.get(state) if isinstance(state, int) else None


_READERS: dict[str, Callable[[DecodedMessage], Any]] = {
    "entity": lambda opened: opened.entity,
    "body": _body,
    "body_type": lambda opened: opened.layout.body_kind,
    "application_properties": _application_properties,
    "time_to_live_ms": _ttl_ms,
    "expires_at_utc": _expires,
    "delivery_count": _delivery_count,
    "state": _state,
}

# --- to a message ---


def message_of(row: Mapping[str, Any], now_ms: int) -> bytes:
    """A durable message from the values of columns; None is what is not set. Raises `OptionsError`."""
    ttl_ms, body_type = row.get("time_to_live_ms"), row.get("body_type") or "data"
    if ttl_ms is not None and ttl_ms <= 0:
        raise OptionsError(f"time_to_live_ms must be above 0, got {ttl_ms}")
    fields: dict[PropertyField, Value] = {
        field: row[name] for name, field in _FIELDS.items() if row.get(name) is not None
    }
    if ttl_ms is not None and ttl_ms > _TTL_MS_MAX:
        fields[PropertyField.CREATION_TIME] = Timestamp(now_ms)
        fields[PropertyField.ABSOLUTE_EXPIRY_TIME] = Timestamp(min(now_ms + ttl_ms, _EXPIRY_MS_MAX))
    annotations: dict[str, Value] = {}
    if row.get("partition_key") is not None:
        annotations["x-opt-partition-key"] = row["partition_key"]
    if row.get("scheduled_enqueue_time_utc") is not None:
        annotations[SCHEDULE_ANNOTATION] = Timestamp(row["scheduled_enqueue_time_utc"] // 1000)
    content = row.get("body")
    body = content.encode() if isinstance(content, str) else content
    try:
        message = sections.encode_message(
            header=Header(durable=True, ttl_ms=None if ttl_ms is None else min(ttl_ms, _TTL_MS_MAX)),
            annotations=annotations or None,
            properties=fields or None,
            application_properties=_encode_properties(row.get("application_properties")),
            data=(body or b"") if body_type == "data" else None,
        )
    except (ValueError, struct.error) as error:
        raise OptionsError(f"it cannot be encoded: {error}") from None
    return message if body_type == "data" else _append_sections(message, body_type, body)


def _encode_properties(pairs: Any) -> dict[str, Value] | None:
    """From a map of texts, or of types with texts."""
    if pairs is None:
        return None
    entries = pairs.items() if isinstance(pairs, dict) else pairs
    return {name: _encode_property(name, value) for name, value in entries}


def _encode_property(name: str, value: Any) -> Value:
    if not isinstance(value, dict):
        return value
    try:
        return from_text(value.get("type") or "string", value.get("value"))
    except OptionsError as error:
        raise OptionsError(f"application property {name}: {error}") from None


def _append_sections(message: bytes, body_type: str, body: bytes | None) -> bytes:
    """With a body that is given as it lies on the wire."""
    whole = message + (body or b"")
    try:
        if sections.walk(whole).body_kind == body_type and body_type in ("value", "sequence"):
            return whole
    except DecodeError:
        pass
    raise OptionsError(
        f"the body is not an AMQP {body_type}: body_type must be data, value or sequence, and fit the body"
    )


# --- batches ---


def batch_of(entity: str, messages: Sequence[bytes], schema: pa.Schema) -> pa.RecordBatch:
    """One row a message, with the columns of this schema."""
    import pyarrow as pa

    opened = [DecodedMessage(entity, message) for message in messages]
    columns = []
    for field in schema:
        read = reader_of(field.name)
        columns.append(pa.array([read(each) for each in opened], type=field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def encode_rows(
    batch: pa.RecordBatch, entity: str | None, now_ms: int, *, makes_ids: bool
) -> Iterator[tuple[str, bytes]]:
    """The target and the message of each row. Raises `OptionsError` that names the wrong row."""
    columns = {name: _values(batch, name) for name in batch.schema.names if name in WRITTEN}
    for number, values in enumerate(zip(*columns.values(), strict=True)):
        row: dict[str, Any] = dict(zip(columns, values, strict=True))
        if not row.get("message_id"):  # an empty one identifies nothing either
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
    if name == "scheduled_enqueue_time_utc":
        import pyarrow as pa

        column = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    found: list[Any] = column.to_pylist()
    return found
