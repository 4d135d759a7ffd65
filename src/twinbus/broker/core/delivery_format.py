"""Messages as receivers get them: as they were sent, with what the service knows of them in front.

That is sequence number, times, delivery count and lock.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct

from twinbus.amqp.codec.encoding import encode
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import Layout
from twinbus.broker.message import HOPS
from twinbus.broker.store.api import MessageRow, MessageState

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

_USUAL_ENTRIES = sum(map(len, (_SEQUENCE, _ENQUEUED, _LOCKED_UNTIL))) + 3 * 9
_ANNOTATIONS_HEAD = bytes((0x00, 0x53, 0x72, 0xC1, 1 + _USUAL_ENTRIES, 2 * 3))
_NO_DELIVERY_ANNOTATIONS = b"\x00\x53\x71\xc1\x01\x00"
"""An empty map: what a message has that is deleted when it is received."""

LOCK_TOKEN = "x-opt-lock-token"  # noqa: S105 - the name of an annotation, not a secret
_LOCK_TOKEN_HEAD = bytes((0x00, 0x53, 0x71, 0xC1, 1 + 2 + len(LOCK_TOKEN) + 17, 2)) + _key(LOCK_TOKEN) + b"\x98"


def lock_token_uuid(token: bytes) -> bytes:
    """The sixteen bytes of a token in the order of an AMQP uuid (a delivery tag has them in .NET's order)."""
    return token[3::-1] + token[5:3:-1] + token[7:5:-1] + token[8:]


def encode_delivery(row: MessageRow, token: bytes | None = None, locked_until_ms: int | None = None) -> bytes:
    """The bytes a receiver gets: the message as sent, with what the service knows of it."""
    if token is not None and locked_until_ms is not None and _is_usual(row):
        start = sections.bare_message_start(row.payload)
        if start is not None:
            return _usual_form(row, start, token, locked_until_ms)
    return _any_form(row, token, locked_until_ms)


def encode_settled_delivery(row: MessageRow) -> bytes:
    """The same for a message that is deleted by being received: with delivery annotations, even if none are in them."""
    layout = sections.walk(row.payload)
    empty = _NO_DELIVERY_ANNOTATIONS if layout.delivery_annotations is None else b""
    return _form(row, layout, empty, None)


def _is_usual(row: MessageRow) -> bool:
    """Whether it is active, as sent to this entity: the service names neither state nor first number of those."""
    return row.dead_letter_source is None and row.state is _ACTIVE and row.enqueue_sequence == row.sequence


_ACTIVE = MessageState.ACTIVE
_TOKEN = Struct("<IHH8s")
_USUAL_ANNOTATIONS = (
    _LOCK_TOKEN_HEAD,
    _ANNOTATIONS_HEAD + _SEQUENCE + bytes((_LONG_CODE,)),
    _ENQUEUED + bytes((_TIMESTAMP_CODE,)),
    _LOCKED_UNTIL + bytes((_TIMESTAMP_CODE,)),
)
_USUAL = Struct(">{}sIHH8s{}sq{}sq{}sq".format(*map(len, _USUAL_ANNOTATIONS)))


def _usual_form(row: MessageRow, start: int, token: bytes, locked_until_ms: int) -> bytes:
    """The same as `_any_form`, in one go, for a locked message without annotations of its own: most of them."""
    lock, sequence, enqueued, until = _USUAL_ANNOTATIONS
    annotations = _USUAL.pack(
        *(lock, *_TOKEN.unpack(token)),
        *(sequence, row.sequence, enqueued, row.enqueued_at_ms, until, locked_until_ms),
    )
    payload = row.payload
    encode_header = _delivery_header if start <= _HEADER_BYTES_KEPT else _delivery_header_from
    return b"".join((encode_header(payload[:start], row.delivery_count), annotations, payload[start:]))


def _delivery_header_from(encoded: bytes, delivery_count: int) -> bytes:
    header = sections.read_header(encoded, sections.walk(encoded))
    return sections.encode_header(header._replace(delivery_count=delivery_count))


_HEADER_BYTES_KEPT = 64  # a real header is shorter; large ones must not fill the cache
_delivery_header = lru_cache(maxsize=1024)(_delivery_header_from)  # an application sends the same few again and again


def _any_form(row: MessageRow, token: bytes | None, locked_until_ms: int | None) -> bytes:
    layout = sections.walk(row.payload)
    delivery_annotations = b"" if token is None else _with_lock_token(row.payload, layout, token)
    return _form(row, layout, delivery_annotations, locked_until_ms)


def _form(row: MessageRow, layout: Layout, delivery_annotations: bytes, locked_until_ms: int | None) -> bytes:
    annotations, count = _service_annotations(row, locked_until_ms)
    header = sections.read_header(row.payload, layout)._replace(delivery_count=row.delivery_count)
    return sections.delivery_form(row.payload, layout, header, delivery_annotations, annotations, count, _SHADOWED)


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
    ]
    if row.enqueue_sequence != row.sequence:
        parts += (_ENQUEUE_SEQUENCE, _LONG.pack(_LONG_CODE, row.enqueue_sequence))
    if row.state is not _ACTIVE:
        parts += (_STATE, bytes((0x54, row.state)))
    if locked_until_ms is not None:
        parts += (_LOCKED_UNTIL, _LONG.pack(_TIMESTAMP_CODE, locked_until_ms))
    if row.dead_letter_source is not None:
        parts += (_DEAD_LETTER_SOURCE, encode(row.dead_letter_source))
    return b"".join(parts), len(parts) // 2


def without_body(payload: bytes) -> bytes:
    """The message without its body."""
    body = sections.walk(payload).body
    return payload if body is None else payload[: body[0]] + payload[body[1] :]
