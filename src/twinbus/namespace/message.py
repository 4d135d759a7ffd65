"""A message as the namespace sees it: encoded bytes, and the few facts in them that decide its fate.

The only file of the entities' world that looks inside the bytes. A message is stored as it was sent;
what the service adds (sequence number, times, delivery count, lock) is put in front on its way out.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple

from twinbus.amqp import sections
from twinbus.amqp.sections import Layout, PropertyField
from twinbus.amqp.types import Int, Timestamp, encode, text_of
from twinbus.errors import ArgumentError, DecodeError, MessageTooLarge
from twinbus.namespace.store.api import MessageRow

BATCH_FORMAT = 0x80013700
"""The vendor's message format of an envelope whose data sections are whole messages."""

SCHEDULED_TIME = "x-opt-scheduled-enqueue-time"
PARTITION_KEY = "x-opt-partition-key"
HOPS = "x-opt-forward-hops"
"""How often a message was forwarded, where it matters later; nobody outside gets to see it."""
HEADER_BYTES_MAX = 64 * 1024
"""Everything but the body."""
PROPERTY_BYTES_MAX = 32 * 1024
"""One application property."""
BODY_SECTIONS_MAX = 10_000
"""Sections that the body of a message may consist of: looking at more would keep others waiting."""
NAME_LENGTH_MAX = 128
"""Of a message id, a session id and a partition key."""
PING_CONTENT_TYPE = "application/vnd.ms-servicebus-ping"
_HOPS_BYTES = HOPS.encode("ascii")
_DECIDING_FIELDS = tuple(map(int, (PropertyField.MESSAGE_ID, PropertyField.CONTENT_TYPE, PropertyField.GROUP_ID)))


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
    partition_key: str | None = None


def read_arrival(payload: bytes, new_message_id: Callable[[], str]) -> Arrival:
    """Read what decides a message's fate; raises `DecodeError` if it is no message, and `MessageTooLarge`.

    One without an id is given a new one: some clients cannot settle a message that has none.
    """
    layout = sections.walk(payload, BODY_SECTIONS_MAX)
    if len(payload) > PROPERTY_BYTES_MAX:
        _check_header_size(payload, layout)
    message_id, content_type, session_id = sections.read_properties(payload, layout, _DECIDING_FIELDS)
    ttl_ms = sections.read_header(payload, layout).ttl_ms if layout.header else None
    due_at_ms = partition_key = None
    if layout.message_annotations:
        partition_key = _partition_key(sections.read_annotation(payload, layout, PARTITION_KEY))
        due_at_ms = sections.read_annotation(payload, layout, SCHEDULED_TIME)
        if due_at_ms is not None and not isinstance(due_at_ms, Timestamp):
            raise DecodeError(f"{SCHEDULED_TIME} must be a timestamp, got {type(due_at_ms).__name__}")
    if layout.message_annotations or layout.delivery_annotations:
        _check_annotations(payload, layout)
    if message_id is None:
        message_id = new_message_id()
        payload = sections.rewrite(payload, layout, set_properties={PropertyField.MESSAGE_ID: message_id})
    name = message_id if isinstance(message_id, str) else text_of(message_id)
    if session_id is not None and not isinstance(session_id, str):
        raise DecodeError(f"group-id must be a string, got {type(session_id).__name__}")
    if (
        len(name) > NAME_LENGTH_MAX
        or (session_id is not None and len(session_id) > NAME_LENGTH_MAX)
        or (partition_key is not None and len(partition_key) > NAME_LENGTH_MAX)
    ):
        raise ArgumentError(f"message ids, session ids and partition keys have at most {NAME_LENGTH_MAX} characters")
    return Arrival(
        payload,
        name,
        session_id,
        ttl_ms,
        None if due_at_ms is None else int(due_at_ms),
        content_type == PING_CONTENT_TYPE,
        partition_key,
    )


def _partition_key(given: object) -> str | None:
    """A client that sends on what it received has bytes where there was a string."""
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, bytes):
        with suppress(UnicodeDecodeError):
            return given.decode()
    raise DecodeError(f"{PARTITION_KEY} must be a string, got {type(given).__name__}")


def check_header_size(payload: bytes) -> None:
    """Raise `MessageTooLarge` if a message says more about itself than a message may."""
    _check_header_size(payload, sections.walk(payload))


def _check_header_size(payload: bytes, layout: Layout) -> None:
    spans = (layout.properties, layout.application_properties, layout.message_annotations)
    size = sum(span[1] - span[0] for span in spans if span is not None)
    if size > HEADER_BYTES_MAX:
        raise MessageTooLarge(f"the message's properties have {size} bytes, at most {HEADER_BYTES_MAX} are allowed")
    if size > PROPERTY_BYTES_MAX and layout.application_properties is not None:
        for name, size in sections.large_values(payload, layout.application_properties, PROPERTY_BYTES_MAX):
            text = f"the property {name!r:.60} has {size} bytes, at most {PROPERTY_BYTES_MAX} are allowed"
            raise MessageTooLarge(text)


def _check_annotations(payload: bytes, layout: Layout) -> None:
    """Raise `DecodeError` now for what could not be put in front of a receiver later."""
    sections.check_map(payload, layout.message_annotations)
    if layout.delivery_annotations:
        sections.read_delivery_annotations(payload, layout)


def time_to_live_ms(payload: bytes) -> int | None:
    """How long a message says it may live; None if it does not say."""
    layout = sections.walk(payload)
    return sections.read_header(payload, layout).ttl_ms if layout.header else None


def scheduled_time_ms(payload: bytes) -> int | None:
    """When a message asks to be enqueued; None: at once."""
    due_at_ms = sections.read_annotation(payload, sections.walk(payload), SCHEDULED_TIME)
    return int(due_at_ms) if isinstance(due_at_ms, Timestamp) else None


def hops_of(payload: bytes) -> int:
    """How often a message was forwarded, as far as it is written on it."""
    if _HOPS_BYTES not in payload:
        return 0
    layout = sections.walk(payload)
    hops = sections.read_annotation(payload, layout, HOPS) if layout.message_annotations else None
    return max(0, int(hops)) if isinstance(hops, int) else 0  # a sender may have written anything


def with_hops(payload: bytes, hops: int) -> bytes:
    """The message with that number written on it."""
    return sections.rewrite(payload, set_annotations={HOPS: Int(hops)})


def partition_key_of(payload: bytes) -> str | None:
    """To which partition a stored message belongs, if it says so."""
    layout = sections.walk(payload)
    return (
        _partition_key(sections.read_annotation(payload, layout, PARTITION_KEY)) if layout.message_annotations else None
    )


def unpack_batch(envelope: bytes, most: int) -> list[bytes]:
    """The messages of a batch, in order; raises `MessageTooLarge` if they are more than `most`.

    What the envelope says beside them is only a copy of the first.
    """
    try:
        layout = sections.walk(envelope, most)
    except sections.TooManySections:
        raise MessageTooLarge(f"a batch has at most {most} messages: send the rest in another one") from None
    if layout.body_kind != "data":
        raise DecodeError("a batch must consist of data sections, one for each message")
    return list(sections.data_sections(envelope, layout))


def with_properties(payload: bytes, properties: dict[str, Any] | None) -> bytes:
    """The message with these application properties set; everything else keeps its bytes."""
    if not properties:
        return payload
    return sections.rewrite(payload, set_application_properties=properties)


def without_properties(payload: bytes, names: list[str]) -> bytes:
    """The message without these application properties; everything else keeps its bytes."""
    return sections.rewrite(payload, remove_application_properties=names) if names else payload


def properties_of(payload: bytes) -> dict[str, Any]:
    """The application properties; raises `DecodeError` if they cannot be read."""
    return sections.read_application_properties(payload, sections.walk(payload))


def without_body(payload: bytes) -> bytes:
    """The message without its body, for somebody who only wants to know about it."""
    body = sections.walk(payload).body
    return payload if body is None else payload[: body[0]] + payload[body[1] :]


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
        HOPS,
    )
)
"""Annotations that are the service's to give: what a sender wrote there is not passed on."""

_USUAL_ENTRIES = sum(map(len, (_SEQUENCE, _ENQUEUED, _ENQUEUE_SEQUENCE, _STATE, _LOCKED_UNTIL))) + 4 * 9 + 2
_ANNOTATIONS_HEAD = bytes((0x00, 0x53, 0x72, 0xC1, 1 + _USUAL_ENTRIES, 2 * 5))

LOCK_TOKEN = "x-opt-lock-token"  # noqa: S105 - the name of an annotation, not a secret
_LOCK_TOKEN_HEAD = bytes((0x00, 0x53, 0x71, 0xC1, 1 + 2 + len(LOCK_TOKEN) + 17, 2)) + _key(LOCK_TOKEN) + b"\x98"


def lock_token_uuid(token: bytes) -> bytes:
    """The sixteen bytes of a token in the order of an AMQP uuid (a delivery tag has them in .NET's order)."""
    return token[3::-1] + token[5:3:-1] + token[7:5:-1] + token[8:]


lock_token_from_uuid = lock_token_uuid
"""The way back is the same swap of bytes."""


def outgoing(row: MessageRow, token: bytes | None = None, locked_until_ms: int | None = None) -> bytes:
    """The bytes a receiver gets: the message as sent, with what the service knows of it."""
    if token is not None and locked_until_ms is not None and row.dead_letter_source is None:
        start = sections.bare_message_start(row.payload)
        if start is not None:
            return _usual_form(row, start, token, locked_until_ms)
    return _any_form(row, token, locked_until_ms)


_TOKEN = Struct("<IHH8s")
_USUAL_ANNOTATIONS = (
    _LOCK_TOKEN_HEAD,
    _ANNOTATIONS_HEAD + _SEQUENCE + bytes((_LONG_CODE,)),
    _ENQUEUED + bytes((_TIMESTAMP_CODE,)),
    _ENQUEUE_SEQUENCE + bytes((_LONG_CODE,)),
    _STATE + b"\x54",
    _LOCKED_UNTIL + bytes((_TIMESTAMP_CODE,)),
)
_USUAL = Struct(">{}sIHH8s{}sq{}sq{}sq{}sB{}sq".format(*map(len, _USUAL_ANNOTATIONS)))


def _usual_form(row: MessageRow, start: int, token: bytes, locked_until_ms: int) -> bytes:
    """The same as `_any_form`, in one go, for a locked message without annotations of its own: most of them."""
    lock, sequence, enqueued, enqueue_sequence, state, until = _USUAL_ANNOTATIONS
    annotations = _USUAL.pack(
        *(lock, *_TOKEN.unpack(token)),
        *(sequence, row.sequence, enqueued, row.enqueued_at_ms, enqueue_sequence, row.enqueue_sequence),
        *(state, row.state, until, locked_until_ms),
    )
    payload = row.payload
    encode_header = _delivery_header if start <= _HEADER_BYTES_KEPT else _delivery_header_from
    return b"".join((encode_header(payload[:start], row.delivery_count), annotations, payload[start:]))


def _delivery_header_from(encoded: bytes, delivery_count: int) -> bytes:
    header = sections.read_header(encoded, sections.walk(encoded))
    return sections.encode_header(header._replace(delivery_count=delivery_count))


_HEADER_BYTES_KEPT = 64  # a real header is shorter; what a stranger sends must not fill the cache with big ones
_delivery_header = lru_cache(maxsize=1024)(_delivery_header_from)  # an application sends the same few again and again


def _any_form(row: MessageRow, token: bytes | None, locked_until_ms: int | None) -> bytes:
    payload = row.payload
    layout = sections.walk(payload)
    annotations, count = _service_annotations(row, locked_until_ms)
    delivery_annotations = b"" if token is None else _with_lock_token(payload, layout, token)
    header = sections.read_header(payload, layout)._replace(delivery_count=row.delivery_count)
    return sections.delivery_form(payload, layout, header, delivery_annotations, annotations, count, _SHADOWED)


def _with_lock_token(payload: bytes, layout: Layout, token: bytes) -> bytes:
    """The delivery annotations to put in front; the sender's own are kept beside the token."""
    if layout.delivery_annotations is None:
        return _LOCK_TOKEN_HEAD + lock_token_uuid(token)
    own = sections.read_delivery_annotations(payload, layout)
    own.pop(LOCK_TOKEN, None)
    entries = b"".join(encode(part) for pair in own.items() for part in pair)
    entries += _key(LOCK_TOKEN) + b"\x98" + lock_token_uuid(token)
    body = (2 * len(own) + 2).to_bytes(4, "big") + entries
    return b"\x00\x53\x71\xd1" + len(body).to_bytes(4, "big") + body


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
