"""Changing entries of an encoded message.

Only the keys of a changed map are decoded. Kept entries, the body and other sections keep their bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from itertools import pairwise

from twinbus.amqp.codec.decoding import after_descriptor, item_offsets
from twinbus.amqp.codec.types import Value
from twinbus.amqp.message.message_builder import (
    PROPERTIES,
    Header,
    Layout,
    PropertyField,
    Span,
    compound_section,
    encode_entries,
    encode_field,
    encode_header,
)
from twinbus.errors import DecodeError

_WIDE_MAP = struct.Struct(">II")
_ANNOTATIONS_START = b"\x00\x53\x72"


def pair_offsets(message: bytes, span: Span) -> list[int]:
    """The offsets of keys and values, in turn, of the map section at `span`; then where the last value ends."""
    offsets = item_offsets(message, after_descriptor(message, span[0]))
    if not len(offsets) % 2:
        raise DecodeError(f"map at offset {span[0]} has a key without a value")
    return offsets


def text_key(message: bytes, start: int, end: int) -> bytes | None:
    """The bytes of the symbol or string from `start` to `end`; None for any other value."""
    code = message[start]
    if code in (0xA3, 0xA1):
        return message[start + 2 : end]
    if code in (0xB3, 0xB1):
        return message[start + 5 : end]
    return None


def _kept(message: bytes, span: Span | None, dropped: Collection[bytes]) -> list[bytes]:
    """The pairs of the map section whose key is not in `dropped`, as they are."""
    if span is None:
        return []
    offsets = pair_offsets(message, span)
    return [
        message[key:end]
        for key, value, end in zip(offsets[:-1:2], offsets[1::2], offsets[2::2], strict=True)
        if text_key(message, key, value) not in dropped
    ]


def edit_map(message: bytes, span: Span | None, code: int, put: Mapping[str, Value], drop: Collection[str]) -> bytes:
    """The map section without the keys of `put` and `drop`, then the entries of `put`; b"" if nothing is left."""
    if not put and not drop:
        return b"" if span is None else message[span[0] : span[1]]
    kept = _kept(message, span, {key.encode() for key in (*put, *drop)})
    if not put and span is not None and 2 * len(kept) == len(pair_offsets(message, span)) - 1:
        return message[span[0] : span[1]]
    count = 2 * (len(kept) + len(put))
    if not count:
        return b""
    return compound_section(code, 0xC1, count, b"".join((*kept, encode_entries(code, put))))


def edit_properties(message: bytes, span: Span | None, put: Mapping[PropertyField, Value]) -> bytes:
    """The properties section with these fields set; None clears a field."""
    if not put:
        return b"" if span is None else message[span[0] : span[1]]
    offsets = item_offsets(message, after_descriptor(message, span[0])) if span is not None else [0]
    items = [message[start:end] for start, end in pairwise(offsets)]
    given = {
        field: encode_field(field, value) for field, value in put.items() if value is not None or field < len(items)
    }
    if span is None and not given:
        return b""
    items += [b"\x40"] * (max(given, default=-1) + 1 - len(items))
    for field, encoded in given.items():
        items[field] = encoded
    return compound_section(PROPERTIES, 0xC0, len(items), b"".join(items))


def delivery_form(
    message: bytes,
    layout: Layout,
    header: Header,
    delivery_annotations: bytes,
    annotations: bytes,
    annotation_count: int,
    shadowed: frozenset[bytes],
) -> bytes:
    """The message as delivered: this header, these annotations, and the bytes from the properties on.

    `delivery_annotations` is a whole section (empty: the message keeps its own). `annotations` are `annotation_count`
    encoded pairs; they follow the message's own, of which those with a key in `shadowed` (UTF-8 text) are left out.
    """
    rest_start, rest_end = _from_properties_on(message, layout)
    if not delivery_annotations and layout.delivery_annotations is not None:
        delivery_annotations = message[layout.delivery_annotations[0] : layout.delivery_annotations[1]]
    kept = _kept(message, layout.message_annotations, shadowed)
    own = b"".join(kept)
    return b"".join(
        (
            encode_header(header),
            delivery_annotations,
            _annotations_start(len(own) + len(annotations), 2 * (len(kept) + annotation_count)),
            own,
            annotations,
            message[rest_start:rest_end],
        )
    )


def _annotations_start(size: int, count: int) -> bytes:
    if not count:
        return b""
    if size < 255 and count < 256:
        return bytes((0x00, 0x53, 0x72, 0xC1, size + 1, count))
    return _ANNOTATIONS_START + b"\xd1" + _WIDE_MAP.pack(size + 4, count)


def _from_properties_on(message: bytes, layout: Layout) -> Span:
    """The part after header and annotations, without delivery annotations that came last (see `walk`)."""
    end = len(message)
    early = layout.delivery_annotations
    if early is not None and early[1] == end:
        end, early = early[0], None
    before = layout.message_annotations or early or layout.header
    return (before[1] if before is not None else 0), end
