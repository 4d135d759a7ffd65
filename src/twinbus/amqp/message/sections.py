"""Find, read and rewrite sections of a message without decoding all of it.

`walk` finds the sections; everything else takes the message with the Layout from `walk`. The only exception, whatever
the bytes are, is DecodeError.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache

from twinbus.amqp.codec.decoding import after_descriptor, count_elements, cut_short, decode, item_offsets, skip
from twinbus.amqp.codec.types import Symbol, ULong, Value
from twinbus.amqp.message.message_builder import (
    APPLICATION_PROPERTIES,
    DELIVERY_ANNOTATIONS,
    MESSAGE_ANNOTATIONS,
    NOTHING,
    BodyKind,
    Header,
    Layout,
    PropertyField,
    Span,
    encode_header,
    encode_message,
)
from twinbus.amqp.message.rewriting import delivery_form, edit_map, edit_properties, pair_offsets, text_key
from twinbus.errors import DecodeError

__all__ = [
    "NOTHING",
    "BodyKind",
    "Header",
    "Layout",
    "PropertyField",
    "Span",
    "bare_message_start",
    "check_elements",
    "data_sections",
    "delivery_form",
    "encode_header",
    "encode_message",
    "read_annotation",
    "read_annotations",
    "read_application_properties",
    "read_application_property",
    "read_delivery_annotations",
    "read_header",
    "read_properties",
    "read_property",
    "read_value",
    "rewrite",
    "walk",
]

_U32 = struct.Struct(">I")

# Sections are counted from the header: 0 is 0x70.
_DELIVERY_ANNOTATIONS, _DATA, _SEQUENCE, _VALUE, _FOOTER = 1, 5, 6, 7, 8
_BODY_KINDS: dict[int, BodyKind] = {_DATA: "data", _SEQUENCE: "sequence", _VALUE: "value"}
_NAMES = (
    "header:list",
    "delivery-annotations:map",
    "message-annotations:map",
    "properties:list",
    "application-properties:map",
    "data:binary",
    "amqp-sequence:list",
    "amqp-value:*",
    "footer:map",
)
_BY_SYMBOL = {f"amqp:{name}": index for index, name in enumerate(_NAMES)}
_CONSTRUCTORS = {"list": (0x45, 0xC0, 0xD0), "map": (0xC1, 0xD1), "binary": (0xA0, 0xB0)}
_ONE_BYTE_SIZE, _FOUR_BYTE_SIZE, _NO_SIZE = 1, 4, 0


def _sizes() -> dict[int, int]:
    """By section and constructor (section * 256 + constructor): how the size of the section is found."""
    sizes = {(_VALUE << 8) + code: _NO_SIZE for code in range(256)}
    by_category = (
        {0x4: _NO_SIZE} | dict.fromkeys((0xA, 0xC), _ONE_BYTE_SIZE) | dict.fromkeys((0xB, 0xD), _FOUR_BYTE_SIZE)
    )
    for index, name in enumerate(_NAMES):
        for code in _CONSTRUCTORS.get(name.partition(":")[2], ()):
            sizes[(index << 8) + code] = by_category[code >> 4]
    return sizes


_SIZES = _sizes()


class TooManySections(DecodeError):
    """The body of a message has more sections than the reader accepts."""


def walk(message: bytes, body_sections_max: int | None = None) -> Layout:
    """Where the sections are. A message may have no body.

    Delivery annotations may also come last: the official Python client writes them there.
    Raises `TooManySections` as soon as the body has more than `body_sections_max`.
    """
    spans: list[Span | None] = [None] * 9
    at, length, last = 0, len(message), -1
    more_max = sys.maxsize if body_sections_max is None else body_sections_max - 1
    try:
        while at < length:
            start = at
            if message[at] == 0x00 and message[at + 1] == 0x53:
                index = message[at + 2] - 0x70
                at += 3
            else:
                index, at = _descriptor(message, at)
            size = _SIZES.get((index << 8) + message[at])
            if size == _ONE_BYTE_SIZE:
                at += 2 + message[at + 1]
            elif size == _FOUR_BYTE_SIZE:
                at += 5 + _U32.unpack_from(message, at + 1)[0]
            elif size == _NO_SIZE:
                at = skip(message, at)
            else:
                raise _wrong_section(message, start, index)
            if index > last:
                spans[index] = (start, at)
                last = index
            else:
                last = _place_again(spans, index, last, (start, at))
                more_max -= index != _DELIVERY_ANNOTATIONS
                if more_max < 0:
                    raise TooManySections(f"the body of the message has more than {body_sections_max} sections")
    except (IndexError, struct.error):
        raise cut_short(message, at) from None
    if at > length:
        raise cut_short(message, start)
    return _layout(spans)


def _descriptor(message: bytes, start: int) -> tuple[int, int]:
    """Section number and start of its value, for the rarer forms of a descriptor."""
    if message[start] == 0x00:
        descriptor, at = decode(message, start + 1)
        if isinstance(descriptor, ULong):
            return descriptor - 0x70, at
        if isinstance(descriptor, Symbol) and descriptor in _BY_SYMBOL:
            return _BY_SYMBOL[descriptor], at
    raise DecodeError(f"no message section starts at offset {start}")


def _wrong_section(message: bytes, start: int, index: int) -> DecodeError:
    if 0 <= index < len(_NAMES):
        code = message[after_descriptor(message, start)]
        return DecodeError(f"section amqp:{_NAMES[index]} at offset {start} cannot have constructor 0x{code:02x}")
    return DecodeError(f"no message section starts at offset {start}")


def _place_again(spans: list[Span | None], index: int, last: int, span: Span) -> int:
    """Accept a section that does not come after the last one: a body in parts, trailing delivery annotations."""
    before = spans[index]
    if index == last and index in (_DATA, _SEQUENCE) and before is not None:
        spans[index] = (before[0], span[1])
        return last
    if index == _DELIVERY_ANNOTATIONS and before is None:
        spans[index] = span
        return _FOOTER + 1  # nothing may follow
    raise DecodeError(f"section amqp:{_NAMES[index]} at offset {span[0]} is repeated or out of order")


def _layout(spans: list[Span | None]) -> Layout:
    header, delivery, annotations, properties, application, data, sequence, value, footer = spans
    body, kind = data, _BODY_KINDS[_DATA] if data is not None else None
    if sequence is not None or value is not None:
        if (data, sequence, value).count(None) < 2:
            raise DecodeError("a message has one kind of body: data, sequence or value")
        body, kind = (sequence, "sequence") if sequence is not None else (value, "value")
    # What `Layout(...)` calls, without a call more: this is done for every message.
    return tuple.__new__(Layout, (header, delivery, annotations, properties, application, body, kind, footer))


_NARROW_HEADER = b"\x00\x53\x70\xc0"
_NARROW_PARTS = frozenset(
    bytes((0x00, 0x53, *part)) for part in ((0x73, 0xC0), (0x74, 0xC1), (0x75, 0xA0), (0x78, 0xC1))
)
_WIDE_PARTS = frozenset(bytes((0x00, 0x53, *part)) for part in ((0x73, 0xD0), (0x74, 0xD1), (0x75, 0xB0), (0x78, 0xD1)))


def bare_message_start(message: bytes) -> int | None:
    """Where the part after the header starts if there are no annotations; None if there are, or may be.

    A shortcut for most messages, for one that `walk` has accepted: nothing is checked again.
    """
    at = 5 + message[4] if message.startswith(_NARROW_HEADER) else 0
    start, length = at, len(message)
    while at < length:  # to the end: delivery annotations may come last
        part = message[at : at + 4]
        if part in _NARROW_PARTS:
            at += 5 + message[at + 4]
        elif part in _WIDE_PARTS:
            at += 8 + int(_U32.unpack_from(message, at + 4)[0])
        else:
            return None
    return start


def read_header(message: bytes, layout: Layout) -> Header:
    """The header; missing fields are None, a missing delivery count is 0."""
    if layout.header is None:
        return _NO_HEADER
    start, end = layout.header
    return (_header if end - start <= _HEADER_BYTES_KEPT else _header_from)(message[start:end])


_NO_HEADER = Header()
_HEADER_BYTES_KEPT = 64  # real headers are shorter; peers must not fill the cache with large ones


def _header_from(encoded: bytes) -> Header:
    fields, _ = decode(encoded, after_descriptor(encoded, 0))
    durable, priority, ttl_ms, first_acquirer, delivery_count = (*fields, *[None] * 5)[:5]
    return Header(
        _flag("durable", durable),
        None if priority is None else _count("priority", priority, 2**8),
        None if ttl_ms is None else _count("ttl", ttl_ms, 2**32),
        _flag("first-acquirer", first_acquirer),
        0 if delivery_count is None else _count("delivery-count", delivery_count, 2**32),
    )


_header = lru_cache(maxsize=1024)(_header_from)  # applications send the same few headers again and again


def _flag(name: str, value: Value) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise DecodeError(f"{name} in the header must be a boolean, got {value!r:.100}")


def _count(name: str, value: Value, limit: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit:
        return int(value)
    raise DecodeError(f"{name} in the header must be a number from 0 to {limit - 1}, got {value!r:.100}")


def read_property(message: bytes, layout: Layout, index: PropertyField) -> Value:
    """One field of the properties; None if it is missing."""
    return read_properties(message, layout, (index,))[0]


def read_properties(message: bytes, layout: Layout, fields: tuple[int, ...]) -> tuple[Value, ...]:
    """These fields of the properties, in this order, None if missing; other fields are not decoded."""
    if layout.properties is None:
        return (None,) * len(fields)
    start, end = layout.properties
    if fields[0] == _ID and message.startswith(_NARROW_PROPERTIES, start) and end - start > 7:
        id_end = start + 8 + message[start + 7]
        if message[start + 6] == 0xA1 and id_end <= end <= id_end + _FIELD_BYTES_KEPT:
            try:
                message_id = str(message[start + 8 : id_end], "utf-8")
            except UnicodeDecodeError:
                raise DecodeError(f"the message id at offset {start + 8} is not UTF-8") from None
            return message_id, *_fields_after_id(message[id_end:end], message[start + 5] - 1, fields)
    offsets = item_offsets(message, after_descriptor(message, start))
    count = len(offsets) - 1
    return tuple([decode(message, offsets[field])[0] if field < count else None for field in fields])


_ID = int(PropertyField.MESSAGE_ID)
_NARROW_PROPERTIES = b"\x00\x53\x73\xc0"
_FIELD_BYTES_KEPT = 128


@lru_cache(maxsize=1024)  # messages of an application often differ in their id only
def _fields_after_id(encoded: bytes, count: int, fields: tuple[int, ...]) -> tuple[Value, ...]:
    whole = bytes((0xC0, len(encoded) + 2, count + 1, 0x40)) + encoded  # with a null in place of the id
    offsets = item_offsets(whole, 0)
    return tuple([decode(whole, offsets[field])[0] if field <= count else None for field in fields[1:]])


def read_annotation(message: bytes, layout: Layout, key: str) -> Value:
    """The message annotation with this key (symbol or string); None if it is missing."""
    return _read_entry(message, layout.message_annotations, key)


def read_application_property(message: bytes, layout: Layout, key: str) -> Value:
    """The application property with this key; None if it is missing."""
    return _read_entry(message, layout.application_properties, key)


def _read_entry(message: bytes, span: Span | None, key: str) -> Value:
    text = key.encode()
    # Most keys asked for are missing, and a search for the bytes is far cheaper than a walk.
    if span is None or message.find(text, span[0], span[1]) < 0:
        return None
    offsets = pair_offsets(message, span)
    for pair in range(len(offsets) - 3, -1, -2):  # of two equal keys the last counts, as in a dict
        if text_key(message, offsets[pair], offsets[pair + 1]) == text:
            return decode(message, offsets[pair + 1])[0]
    return None


def read_annotations(message: bytes, layout: Layout) -> dict[Value, Value]:
    return _read_map(message, layout.message_annotations)


def read_delivery_annotations(message: bytes, layout: Layout) -> dict[Value, Value]:
    return _read_map(message, layout.delivery_annotations)


def read_application_properties(message: bytes, layout: Layout) -> dict[Value, Value]:
    return _read_map(message, layout.application_properties)


def _read_map(message: bytes, span: Span | None) -> dict[Value, Value]:
    if span is None:
        return {}
    content: dict[Value, Value] = decode(message, after_descriptor(message, span[0]))[0]
    return content


def check_map(message: bytes, span: Span | None) -> None:
    """Raise `DecodeError` if a map section cannot be split into its entries."""
    if span is not None:
        pair_offsets(message, span)


def large_values(message: bytes, span: Span, bytes_max: int) -> Iterator[tuple[Value, int]]:
    """The keys of a map section whose values have more than `bytes_max` bytes, with the size of each."""
    offsets = pair_offsets(message, span)
    for at in range(0, len(offsets) - 1, 2):
        size = offsets[at + 2] - offsets[at + 1]
        if size > bytes_max:
            yield decode(message, offsets[at])[0], size


def check_elements(message: bytes, layout: Layout, most: int) -> None:
    """Raise `DecodeError` if properties, application properties and a value body have more than `most` values.

    Call it before decoding all of them: it builds nothing.
    """
    value = layout.body if layout.body_kind == "value" else None
    for span in (layout.properties, layout.application_properties, value):
        if span is not None:
            most -= count_elements(message, span[0], most)


def data_sections(message: bytes, layout: Layout) -> Iterator[bytes]:
    """The content of each data section; none if the body is of another kind."""
    if layout.body is None or layout.body_kind != "data":
        return
    at, end = layout.body
    while at < end:
        at = after_descriptor(message, at)
        start = at + (2 if message[at] == 0xA0 else 5)
        at = skip(message, at)
        yield message[start:at]


def read_value(message: bytes, layout: Layout) -> Value:
    """The value of an amqp-value body. Raises DecodeError if the body is missing or of another kind."""
    if layout.body is None or layout.body_kind != "value":
        raise DecodeError(f"the message body must be an amqp-value, got {layout.body_kind or 'none'}")
    return decode(message, after_descriptor(message, layout.body[0]))[0]


def rewrite(
    message: bytes,
    layout: Layout | None = None,
    *,
    header: Header | None = None,
    set_delivery_annotations: Mapping[str, Value] | None = None,
    set_annotations: Mapping[str, Value] | None = None,
    remove_annotations: Collection[str] = (),
    set_properties: Mapping[PropertyField, Value] | None = None,
    set_application_properties: Mapping[str, Value] | None = None,
    remove_application_properties: Collection[str] = (),
) -> bytes:
    """The message with these entries added, replaced or removed; everything else keeps its bytes.

    `header=None` keeps the header. None in `set_properties` clears the field. A map that becomes empty is dropped.
    """
    found = walk(message) if layout is None else layout

    def own(span: Span | None) -> bytes:
        return b"" if span is None else message[span[0] : span[1]]

    def edited(span: Span | None, code: int, put: Mapping[str, Value] | None, drop: Collection[str] = ()) -> bytes:
        return edit_map(message, span, code, put or {}, drop)

    return b"".join(
        (
            own(found.header) if header is None else encode_header(header),
            edited(found.delivery_annotations, DELIVERY_ANNOTATIONS, set_delivery_annotations),
            edited(found.message_annotations, MESSAGE_ANNOTATIONS, set_annotations, remove_annotations),
            edit_properties(message, found.properties, set_properties or {}),
            edited(
                found.application_properties,
                APPLICATION_PROPERTIES,
                set_application_properties,
                remove_application_properties,
            ),
            own(found.body),
            own(found.footer),
        )
    )
