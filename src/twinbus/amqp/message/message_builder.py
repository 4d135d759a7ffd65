"""What a message consists of, and building one from values.

Section descriptors are always written as smallulong (00 53 code): the official Python client reads no other form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias

from twinbus.amqp.codec.encoding import encode, encode_into, write_compound
from twinbus.amqp.codec.types import Symbol, Timestamp, UByte, UInt, ULong, Value

Span: TypeAlias = tuple[int, int]
BodyKind: TypeAlias = Literal["data", "sequence", "value"]

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = 0x70, 0x71, 0x72, 0x73, 0x74
DATA, AMQP_SEQUENCE, AMQP_VALUE, FOOTER = 0x75, 0x76, 0x77, 0x78


class Layout(NamedTuple):
    """Where the sections of a message lie, each from its descriptor to its end; None for a section that is absent."""

    header: Span | None
    delivery_annotations: Span | None
    message_annotations: Span | None
    properties: Span | None
    application_properties: Span | None
    body: Span | None
    body_kind: BodyKind | None
    footer: Span | None


class Header(NamedTuple):
    """The header section; without arguments, what an absent one means. None is what its sender did not say."""

    durable: bool | None = None
    priority: int | None = None
    ttl_ms: int | None = None
    first_acquirer: bool | None = None
    delivery_count: int = 0


class PropertyField(IntEnum):
    """Fields of the properties section, by their place in its list."""

    MESSAGE_ID = 0
    USER_ID = 1
    TO = 2
    SUBJECT = 3
    REPLY_TO = 4
    CORRELATION_ID = 5
    CONTENT_TYPE = 6
    CONTENT_ENCODING = 7
    ABSOLUTE_EXPIRY_TIME = 8
    CREATION_TIME = 9
    GROUP_ID = 10
    GROUP_SEQUENCE = 11
    REPLY_TO_GROUP_ID = 12


class _NoBody:
    """Tells "no value body" from a value body that is null."""

    def __repr__(self) -> str:
        return "NOTHING"


NOTHING: Final = _NoBody()

_PLAIN_FIELD_TYPES: dict[tuple[int, type], type] = {
    (PropertyField.MESSAGE_ID, int): ULong,
    (PropertyField.CORRELATION_ID, int): ULong,
    (PropertyField.CONTENT_TYPE, str): Symbol,
    (PropertyField.CONTENT_ENCODING, str): Symbol,
    (PropertyField.ABSOLUTE_EXPIRY_TIME, int): Timestamp,
    (PropertyField.CREATION_TIME, int): Timestamp,
    (PropertyField.GROUP_SEQUENCE, int): UInt,
}


def encode_message(
    *,
    header: Header | None = None,
    delivery_annotations: Mapping[str, Value] | None = None,
    annotations: Mapping[str, Value] | None = None,
    properties: Mapping[PropertyField, Value] | None = None,
    application_properties: Mapping[str, Value] | None = None,
    data: bytes | Sequence[bytes] | None = None,
    sequence: Sequence[Sequence[Value]] | None = None,
    value: Value = NOTHING,
) -> bytes:
    """A whole message. `data` and `sequence` may be several sections; at most one of the three kinds of body is given.

    Sections that are None are left out; an empty map is written as one. ValueError for two kinds of body.
    """
    sections = [encode_header(header)] if header is not None else []
    if delivery_annotations is not None:
        sections.append(encode_map_section(DELIVERY_ANNOTATIONS, delivery_annotations))
    if annotations is not None:
        sections.append(encode_map_section(MESSAGE_ANNOTATIONS, annotations))
    if properties is not None:
        sections.append(encode_fields({field: encode_field(field, item) for field, item in properties.items()}))
    if application_properties is not None:
        sections.append(encode_map_section(APPLICATION_PROPERTIES, application_properties))
    return b"".join((*sections, *_body(data, sequence, value)))


def _body(
    data: bytes | Sequence[bytes] | None, sequence: Sequence[Sequence[Value]] | None, value: Value
) -> Iterable[bytes]:
    if (data is not None) + (sequence is not None) + (value is not NOTHING) > 1:
        raise ValueError("a message has one kind of body: data, sequence or value")
    if data is not None:
        contents = [data] if isinstance(data, bytes | bytearray | memoryview) else data
        return [section(DATA, encode(bytes(content))) for content in contents]
    if sequence is not None:
        return [section(AMQP_SEQUENCE, encode(list(items))) for items in sequence]
    return [] if value is NOTHING else [section(AMQP_VALUE, encode(value))]


def section(code: int, encoded: bytes) -> bytes:
    return bytes((0x00, 0x53, code)) + encoded


# Every delivery has a header, and few different ones are alive at a time.
@lru_cache(maxsize=1024)
def encode_header(header: Header) -> bytes:
    """The header section with all five fields: the official clients show the delivery count as it is on the wire."""
    durable, priority, ttl_ms, first_acquirer, delivery_count = header
    fields = [
        None if durable is None else bool(durable),  # Header(1) is found in the cache as Header(True)
        None if priority is None else UByte(priority),
        None if ttl_ms is None else UInt(ttl_ms),
        None if first_acquirer is None else bool(first_acquirer),
        UInt(delivery_count),
    ]
    return section(HEADER, encode(fields))


def encode_map_section(code: int, entries: Mapping[str, Value]) -> bytes:
    return compound_section(code, 0xC1, 2 * len(entries), encode_entries(code, entries))


def encode_entries(code: int, entries: Mapping[str, Value]) -> bytes:
    """The keys and values for a map section: text keys are strings in application properties, symbols elsewhere."""
    text = str if code == APPLICATION_PROPERTIES else Symbol
    out = bytearray()
    for key, value in entries.items():
        encode_into(out, text(key))
        encode_into(out, value)
    return bytes(out)


def encode_field(field: int, value: Value) -> bytes:
    """One field of the properties section; plain text and numbers get the type that the field has."""
    kind = _PLAIN_FIELD_TYPES.get((field, type(value)))
    return encode(value if kind is None else kind(value))


def encode_fields(fields: Mapping[PropertyField, bytes]) -> bytes:
    """The properties section from encoded fields; those before the last that are not given are null."""
    count = max(fields, default=-1) + 1
    items = [b"\x40"] * count
    for field, encoded in fields.items():
        items[field] = encoded
    return compound_section(PROPERTIES, 0xC0, count, b"".join(items))


def compound_section(code: int, narrow: int, count: int, body: bytes) -> bytes:
    """A section whose list (narrow 0xc0) or map (0xc1) has these encoded entries."""
    out = bytearray((0x00, 0x53, code))
    write_compound(out, narrow, count, body)
    return bytes(out)
