"""A message as the namespace sees it: encoded bytes, and the few facts in them that decide its fate.

The only file of the entities' world that looks inside the bytes. A message is stored as it was sent;
what the service adds (sequence number, times, delivery count, lock) is put in front on its way out.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple

from twinbus.amqp import sections
from twinbus.amqp.sections import Header, Layout, PropertyField
from twinbus.amqp.types import encode
from twinbus.errors import DecodeError
from twinbus.namespace.store.api import MessageRow

BATCH_FORMAT = 0x80013700
"""The vendor's message format of an envelope whose data sections are whole messages."""

SCHEDULED_TIME = "x-opt-scheduled-enqueue-time"
PING_CONTENT_TYPE = "application/vnd.ms-servicebus-ping"
_DECIDING_FIELDS = (PropertyField.MESSAGE_ID, PropertyField.CONTENT_TYPE, PropertyField.GROUP_ID)


class Arrival(NamedTuple):
    """A message at the door, before it has a number."""

    payload: bytes
    message_id: str | None
    session_id: str | None
    ttl_ms: int | None
    due_at_ms: int | None
    """When it asks to be enqueued; None: at once."""
    is_ping: bool = False
    """It only asks whether the entity can be sent to: checked like any message, and then dropped."""


def read_arrival(payload: bytes, new_message_id: Callable[[], str]) -> Arrival:
    """Read what decides a message's fate; raises `DecodeError` if it is no message.

    One without an id is given a new one: some clients cannot settle a message that has none.
    """
    layout = sections.walk(payload)
    message_id, content_type, session_id = sections.read_properties(payload, layout, _DECIDING_FIELDS)
    ttl_ms = sections.read_header(payload, layout).ttl_ms if layout.header else None
    due_at_ms = None
    if layout.message_annotations:
        due_at_ms = sections.read_annotation(payload, layout, SCHEDULED_TIME)
        if due_at_ms is not None and not isinstance(due_at_ms, int):
            raise DecodeError(f"{SCHEDULED_TIME} must be a timestamp, got {type(due_at_ms).__name__}")
    if message_id is None:
        message_id = new_message_id()
        payload = sections.rewrite(payload, layout, set_properties={PropertyField.MESSAGE_ID: message_id})
    if session_id is not None and not isinstance(session_id, str):
        raise DecodeError(f"group-id must be a string, got {type(session_id).__name__}")
    return Arrival(
        payload,
        message_id if isinstance(message_id, str) else str(message_id),
        session_id,
        ttl_ms,
        None if due_at_ms is None else int(due_at_ms),
        content_type == PING_CONTENT_TYPE,
    )


def time_to_live_ms(payload: bytes) -> int | None:
    """How long a message says it may live; None if it does not say."""
    layout = sections.walk(payload)
    return sections.read_header(payload, layout).ttl_ms if layout.header else None


def unpack_batch(envelope: bytes) -> list[bytes]:
    """The messages of a batch, in order. What the envelope says beside them is only a copy of the first."""
    layout = sections.walk(envelope)
    if layout.body_kind != "data":
        raise DecodeError("a batch must consist of data sections, one for each message")
    return list(sections.data_sections(envelope, layout))


def with_properties(payload: bytes, properties: dict[str, Any] | None) -> bytes:
    """The message with these application properties set; everything else keeps its bytes."""
    if not properties:
        return payload
    return sections.rewrite(payload, set_application_properties=properties)


# --- on the way out --------------------------------------------------------------------------------

_LONG = Struct(">Bq")
_LONG_CODE, _TIMESTAMP_CODE = 0x81, 0x83


def _key(name: str) -> bytes:
    return bytes((0xA3, len(name))) + name.encode("ascii")


_SEQUENCE = _key("x-opt-sequence-number")
_ENQUEUED = _key("x-opt-enqueued-time")
_ENQUEUE_SEQUENCE = _key("x-opt-enqueue-sequence-number")
_STATE = _key("x-opt-message-state")
_LOCKED_UNTIL = _key("x-opt-locked-until")
_DEAD_LETTER_SOURCE = _key("x-opt-deadletter-source")
_SHADOWED = frozenset(
    name.encode("ascii")
    for name in (
        "x-opt-sequence-number",
        "x-opt-enqueued-time",
        "x-opt-enqueue-sequence-number",
        "x-opt-message-state",
        "x-opt-locked-until",
        "x-opt-deadletter-source",
    )
)
"""Annotations that are the service's to give: what a sender wrote there is not passed on."""

LOCK_TOKEN = "x-opt-lock-token"  # noqa: S105 - the name of an annotation, not a secret
_LOCK_TOKEN_HEAD = bytes((0x00, 0x53, 0x71, 0xC1, 1 + 2 + len(LOCK_TOKEN) + 17, 2)) + _key(LOCK_TOKEN) + b"\x98"


def lock_token_uuid(token: bytes) -> bytes:
    """The sixteen bytes of a token in the order of an AMQP uuid (a delivery tag has them in .NET's order)."""
    return token[3::-1] + token[5:3:-1] + token[7:5:-1] + token[8:]


lock_token_from_uuid = lock_token_uuid
"""The way back is the same swap of bytes."""


def outgoing(row: MessageRow, token: bytes | None = None, locked_until_ms: int | None = None) -> bytes:
    """The bytes a receiver gets: the message as sent, with what the service knows of it."""
    payload = row.payload
    layout = sections.walk(payload)
    annotations, count = _service_annotations(row, locked_until_ms)
    delivery_annotations = b""
    if token is not None:
        payload, layout, delivery_annotations = _with_lock_token(payload, layout, token)
    return sections.delivery_form(
        payload,
        layout,
        _outgoing_header(payload, layout, row.delivery_count),
        delivery_annotations,
        annotations,
        count,
        _SHADOWED,
    )


def _outgoing_header(payload: bytes, layout: Layout, delivery_count: int) -> Header:
    if layout.header is None:
        return Header(durable=False, priority=None, ttl_ms=None, first_acquirer=False, delivery_count=delivery_count)
    return sections.read_header(payload, layout)._replace(delivery_count=delivery_count)


def _with_lock_token(payload: bytes, layout: Layout, token: bytes) -> tuple[bytes, Layout, bytes]:
    """Message, layout and the delivery annotations to put in front; the sender's own are kept beside the token."""
    if layout.delivery_annotations is None:
        return payload, layout, _LOCK_TOKEN_HEAD + lock_token_uuid(token)
    own = sections.read_delivery_annotations(payload, layout)
    own.pop(LOCK_TOKEN, None)
    entries = b"".join(encode(part) for pair in own.items() for part in pair)
    entries += _key(LOCK_TOKEN) + b"\x98" + lock_token_uuid(token)
    body = (2 * len(own) + 2).to_bytes(4, "big") + entries
    return payload, layout, b"\x00\x53\x71\xd1" + len(body).to_bytes(4, "big") + body


def _service_annotations(row: MessageRow, locked_until_ms: int | None) -> tuple[bytes, int]:
    """Encoded annotation entries and how many they are."""
    parts = [
        _SEQUENCE,
        _LONG.pack(_LONG_CODE, row.sequence),
        _ENQUEUED,
        _LONG.pack(_TIMESTAMP_CODE, row.enqueued_at_ms),
        _ENQUEUE_SEQUENCE,
        _LONG.pack(_LONG_CODE, row.enqueue_sequence),
        _STATE,
        bytes((0x54, row.state)),
    ]
    if locked_until_ms is not None:
        parts += (_LOCKED_UNTIL, _LONG.pack(_TIMESTAMP_CODE, locked_until_ms))
    if row.dead_letter_source is not None:
        parts += (_DEAD_LETTER_SOURCE, encode(row.dead_letter_source))
    return b"".join(parts), len(parts) // 2
