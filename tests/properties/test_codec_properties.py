"""The codec under any values and any bytes, with the official client's codec as an independent peer."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from azure.servicebus._pyamqp import _decode as peer_decoding
from azure.servicebus._pyamqp import _encode as peer_encoding
from azure.servicebus._pyamqp import message as peer_message
from azure.servicebus._pyamqp.types import TYPE, VALUE, AMQPTypes
from hypothesis import given
from hypothesis import strategies as st
from integer_types import INTEGER_TYPES

from twinbus.amqp.codec.decoding import decode, skip
from twinbus.amqp.codec.encoding import Array, encode
from twinbus.amqp.codec.types import (
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float32,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from twinbus.amqp.message.sections import (
    Header,
    Layout,
    PropertyField,
    data_sections,
    delivery_form,
    encode_message,
    read_annotation,
    read_annotations,
    read_application_properties,
    read_application_property,
    read_delivery_annotations,
    read_header,
    read_properties,
    read_property,
    read_value,
    rewrite,
    walk,
)
from twinbus.errors import DecodeError

Values = st.SearchStrategy[Any]


def numbers(kind: Callable[[int], Any], low: int, high: int) -> Values:
    edges = st.sampled_from([n for n in (low, high, 0, 1, -1, 127, 128, -128, -129, 255, 256) if low <= n <= high])
    return (edges | st.integers(low, high)).map(kind)


TEXT = st.text(max_size=40) | st.text("aé漢😀", min_size=60, max_size=300)
BLOBS = st.binary(max_size=40) | st.integers(250, 260).map(bytes)
PRIMITIVES: list[Values] = [
    st.none(),
    st.booleans(),
    *[numbers(kind, low, high) for kind, low, high in INTEGER_TYPES],
    st.floats(),
    st.floats(width=32).map(Float32),
    st.characters(exclude_categories=["Cs"]).map(Char),
    TEXT,
    TEXT.map(Symbol),
    BLOBS,
    st.uuids(),
    st.binary(min_size=4, max_size=4).map(Decimal32),
    st.binary(min_size=8, max_size=8).map(Decimal64),
    st.binary(min_size=16, max_size=16).map(Decimal128),
]
SCALARS = st.one_of(PRIMITIVES)


def arrays(children: Values) -> Values:
    items = st.one_of([st.lists(kind, max_size=5) for kind in PRIMITIVES])
    nested = st.lists(st.lists(children, max_size=3), min_size=1, max_size=3)
    tables = st.lists(st.dictionaries(SCALARS, children, max_size=2), min_size=1, max_size=3)
    plain = st.one_of(items, nested, tables).map(Array)
    described = st.builds(
        lambda array, marks: Array(array.items, array.code, tuple(marks)), plain, st.lists(SCALARS, max_size=2)
    )
    return plain | described | st.lists(plain, min_size=1, max_size=2).map(Array)


VALUES = st.recursive(
    SCALARS,
    lambda children: st.one_of(
        st.lists(children, max_size=5),
        st.dictionaries(SCALARS, children, max_size=4),
        st.builds(Described, SCALARS, children),
        arrays(children),
    ),
    max_leaves=12,
)

PROPERTIES = st.dictionaries(st.sampled_from(PropertyField), st.one_of(TEXT, st.uuids(), st.none()), max_size=6)
ENTRIES = st.dictionaries(
    st.sampled_from(["a", "x-opt-b", "x-opt-bb", "é", "k" * 300]) | st.text(max_size=8), VALUES, max_size=4
)
HEADERS = st.builds(
    Header,
    st.none() | st.booleans(),
    st.none() | st.integers(0, 255),
    st.none() | st.integers(0, 2**32 - 1),
    st.none() | st.booleans(),
    st.integers(0, 2**32 - 1),
)
BODIES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"data": st.lists(BLOBS, min_size=1, max_size=3)}),
    st.fixed_dictionaries({"sequence": st.lists(st.lists(VALUES, max_size=3), min_size=1, max_size=3)}),
    st.fixed_dictionaries({"value": VALUES}),
)


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments for `encode_message`."""
    parts = {
        "header": HEADERS,
        "delivery_annotations": ENTRIES,
        "annotations": ENTRIES,
        "properties": PROPERTIES,
        "application_properties": ENTRIES,
    }
    return draw(BODIES) | {name: draw(st.none() | part) for name, part in parts.items()}


def same(left: Any, right: Any) -> bool:
    """Equal with equal types all the way down; NaN equals NaN."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return (math.isnan(left) and math.isnan(right)) or (left, math.copysign(1, left)) == (
            right,
            math.copysign(1, right),
        )
    if isinstance(left, dict):
        return same([*left.items()], [*right.items()])
    if isinstance(left, Array):
        return (left.code, len(left)) == (right.code, len(right)) and same(
            [*left, *left.descriptors], [*right, *right.descriptors]
        )
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


@given(VALUES)
def test_every_value_comes_back_with_its_type(value: Any) -> None:
    encoded = encode(value)
    decoded, end = decode(b"??" + encoded + b"!!", 2)
    assert same(decoded, value)
    assert end == 2 + len(encoded)
    assert encode(decoded) == encoded


@given(VALUES)
def test_skip_ends_where_decode_ends(value: Any) -> None:
    encoded = encode(value)
    assert skip(encoded, 0) == decode(encoded)[1] == len(encoded)
    assert decode(memoryview(encoded))[1] == decode(bytearray(encoded))[1] == len(encoded)


@given(VALUES, st.data())
def test_a_value_that_is_cut_short_is_a_decode_error(value: Any, data: st.DataObject) -> None:
    encoded = encode(value)
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    with pytest.raises(DecodeError):
        decode(cut)
    with pytest.raises(DecodeError):
        skip(cut, 0)


CONSTRUCTORS = bytes([0x00, *range(0x40, 0x46), *range(0x50, 0x57), 0x60, 0x61, *range(0x70, 0x75), *range(0x80, 0x85)])
CONSTRUCTORS += bytes(
    [0x94, 0x98, 0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3, 0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0, 0x01, 0x02, 0x03]
)
NOISE = st.binary(max_size=60) | st.lists(st.sampled_from(CONSTRUCTORS), max_size=60).map(bytes)


@st.composite
def damaged(draw: st.DrawFn, good: st.SearchStrategy[bytes]) -> bytes:
    """Good bytes with a few of them overwritten."""
    content = bytearray(draw(good))
    for _ in range(draw(st.integers(1, 4)) if content else 0):
        content[draw(st.integers(0, len(content) - 1))] = draw(st.sampled_from(CONSTRUCTORS) | st.integers(0, 255))
    return bytes(content)


@given(NOISE | damaged(VALUES.map(encode)))
def test_any_bytes_are_a_value_or_a_decode_error(content: bytes) -> None:
    try:
        value, end = decode(content)
    except DecodeError:
        return
    assert skip(content, 0) == end <= len(content)
    assert same(decode(encode(value))[0], value)


def read_everything(message: bytes, layout: Layout) -> None:
    for read in (
        lambda: read_header(message, layout),
        lambda: read_properties(message, layout, tuple(PropertyField)),
        lambda: read_annotation(message, layout, "a"),
        lambda: read_annotations(message, layout),
        lambda: read_delivery_annotations(message, layout),
        lambda: read_application_property(message, layout, "a"),
        lambda: read_application_properties(message, layout),
        lambda: list(data_sections(message, layout)),
        lambda: read_value(message, layout),
        lambda: rewrite(message, layout, set_annotations={"a": 1}, set_properties={PropertyField.TO: "t"}),
        lambda: rewrite(message, layout, set_delivery_annotations={"a": 1}, remove_application_properties=["a"]),
        lambda: delivery_form(message, layout, Header(), b"", b"\xa3\x01a\x40", 1, frozenset([b"a"])),
    ):
        try:
            read()
        except DecodeError:
            continue


@given(
    damaged(messages().map(lambda parts: encode_message(**parts))) | NOISE.map(lambda noise: b"\x00\x53\x73" + noise)
)
def test_any_bytes_are_a_message_or_a_decode_error(content: bytes) -> None:
    try:
        layout = walk(content)
    except DecodeError:
        return
    read_everything(content, layout)


def expected_map(entries: dict[str, Any] | None, kind: type) -> dict[Any, Any]:
    return {kind(key): value for key, value in (entries or {}).items()}


@given(messages())
def test_a_message_reads_back_as_it_was_built(parts: dict[str, Any]) -> None:
    message = encode_message(**parts)
    layout = walk(message)
    assert read_header(message, layout) == (parts["header"] or Header())
    assert same(read_annotations(message, layout), expected_map(parts["annotations"], Symbol))
    assert same(read_delivery_annotations(message, layout), expected_map(parts["delivery_annotations"], Symbol))
    assert same(read_application_properties(message, layout), expected_map(parts["application_properties"], str))
    for field in PropertyField:
        assert read_property(message, layout, field) == (parts["properties"] or {}).get(field)
    for key, value in (parts["annotations"] or {}).items():
        assert same(read_annotation(message, layout, key), value)
    assert list(data_sections(message, layout)) == parts.get("data", [])
    assert layout.body_kind == next((kind for kind in ("data", "sequence", "value") if kind in parts), None)
    if "value" in parts:
        assert same(read_value(message, layout), parts["value"])


CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "header": HEADERS,
        "set_delivery_annotations": ENTRIES,
        "set_annotations": ENTRIES,
        "remove_annotations": st.lists(st.sampled_from(["a", "x-opt-b", "é"]), max_size=2),
        "set_properties": PROPERTIES,
        "set_application_properties": ENTRIES,
        "remove_application_properties": st.lists(st.sampled_from(["a", "x-opt-b", "é"]), max_size=2),
    },
)


def changed(before: dict[str, Any] | None, put: dict[str, Any], drop: list[str], kind: type) -> dict[Any, Any]:
    kept = {key: value for key, value in (before or {}).items() if key not in put and key not in drop}
    return expected_map(kept | put, kind)


@given(messages(), CHANGES)
def test_a_rewritten_message_has_the_changes_and_all_else_as_before(
    parts: dict[str, Any], changes: dict[str, Any]
) -> None:
    old = encode_message(**parts)
    new = rewrite(old, **changes)
    before, after = walk(old), walk(new)
    assert read_header(new, after) == (changes.get("header") or read_header(old, before))
    wanted = changed(
        parts["annotations"], changes.get("set_annotations", {}), changes.get("remove_annotations", []), Symbol
    )
    assert same(read_annotations(new, after), wanted)
    wanted = changed(parts["delivery_annotations"], changes.get("set_delivery_annotations", {}), [], Symbol)
    assert same(read_delivery_annotations(new, after), wanted)
    put, drop = changes.get("set_application_properties", {}), changes.get("remove_application_properties", [])
    assert same(read_application_properties(new, after), changed(parts["application_properties"], put, drop, str))
    fields = (parts["properties"] or {}) | changes.get("set_properties", {})
    assert read_properties(new, after, tuple(PropertyField)) == tuple(fields.get(field) for field in PropertyField)
    assert after.body_kind == before.body_kind
    if before.body and after.body:
        assert new[slice(*after.body)] == old[slice(*before.body)]


@given(messages(), CHANGES)
def test_rewriting_twice_equals_rewriting_once(parts: dict[str, Any], changes: dict[str, Any]) -> None:
    once = rewrite(encode_message(**parts), **changes)
    assert rewrite(once, **changes) == once


@given(messages())
def test_a_rewrite_without_changes_returns_the_same_bytes(parts: dict[str, Any]) -> None:
    message = encode_message(**parts)
    assert rewrite(message) == message
    assert rewrite(message, set_annotations={}, remove_annotations=["not there at all"]) == message


@given(messages(), HEADERS, ENTRIES, st.booleans())
def test_the_delivery_form_is_the_rewrite_it_replaces(
    parts: dict[str, Any], header: Header, added: dict[str, Any], own_delivery_annotations: bool
) -> None:
    message = encode_message(**parts)
    pairs = b"".join(encode(Symbol(key)) + encode(value) for key, value in added.items())
    given_section = (
        b"" if own_delivery_annotations else encode_message(delivery_annotations={"x-opt-lock-token": uuid.UUID(int=7)})
    )
    shadowed = frozenset(key.encode() for key in added)
    delivered = delivery_form(message, walk(message), header, given_section, pairs, len(added), shadowed)
    if not own_delivery_annotations:
        parts = parts | {"delivery_annotations": {"x-opt-lock-token": uuid.UUID(int=7)}}
    if not parts["annotations"]:
        parts = parts | {"annotations": None}  # an empty map is dropped
    assert delivered == rewrite(encode_message(**parts), header=header, set_annotations=added)


# The official client's codec as a peer. It knows no UInt and the like: numbers come back plain, text as bytes.


def as_the_peer_shows(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, Described):
        return as_the_peer_shows(value.value)
    if isinstance(value, dict):
        return {as_the_peer_shows(key): as_the_peer_shows(item) for key, item in value.items()}
    if isinstance(value, list | Array):
        return [as_the_peer_shows(item) for item in value]
    return value


PEER_TYPES: list[tuple[Any, Values]] = [
    (AMQPTypes.boolean, st.booleans()),
    (AMQPTypes.ubyte, numbers(UByte, 0, 2**8 - 1)),
    (AMQPTypes.ushort, numbers(UShort, 0, 2**16 - 1)),
    (AMQPTypes.uint, numbers(UInt, 0, 2**32 - 1)),
    (AMQPTypes.ulong, numbers(ULong, 0, 2**64 - 1)),
    (AMQPTypes.byte, numbers(Byte, -(2**7), 2**7 - 1)),
    (AMQPTypes.short, numbers(Short, -(2**15), 2**15 - 1)),
    (AMQPTypes.int, numbers(Int, -(2**31), 2**31 - 1)),
    (AMQPTypes.long, numbers(Long, -(2**63), 2**63 - 1)),
    (AMQPTypes.timestamp, numbers(Timestamp, -(2**63), 2**63 - 1)),
    (AMQPTypes.double, st.floats(allow_nan=False)),
    (AMQPTypes.float, st.floats(width=32, allow_nan=False).map(Float32)),
    (AMQPTypes.uuid, st.uuids()),
    (AMQPTypes.binary, BLOBS),
    (AMQPTypes.string, TEXT),
    (AMQPTypes.symbol, TEXT.map(Symbol)),
]
PEER_SCALARS = st.one_of([st.tuples(st.just(kind), values) for kind, values in PEER_TYPES])


@given(PEER_SCALARS)
def test_what_the_official_client_encodes_is_decoded_with_its_type(typed: tuple[Any, Any]) -> None:
    kind, value = typed
    out = bytearray()
    peer_encoding.encode_value(out, {TYPE: kind, VALUE: value})
    decoded, end = decode(bytes(out))
    assert same(decoded, value)
    assert end == len(out)


PEER_VALUES = st.recursive(
    st.none() | PEER_SCALARS.map(lambda typed: typed[1]),
    lambda children: (
        st.lists(children, max_size=5)
        | st.dictionaries(TEXT, children, max_size=4)
        | st.lists(TEXT.map(Symbol), min_size=1, max_size=4).map(Array)
        | st.lists(st.uuids(), min_size=1, max_size=4).map(Array)
    ),
    max_leaves=10,
)


@given(PEER_VALUES)
def test_what_we_encode_is_understood_by_the_official_client(value: Any) -> None:
    encoded = memoryview(encode(value))
    rest, decoded = peer_decoding._DECODE_BY_CONSTRUCTOR[encoded[0]](encoded[1:])
    assert decoded == as_the_peer_shows(value)
    assert not rest


SMALL = st.one_of(st.booleans(), st.integers(-(2**31), 2**31 - 1), st.text(max_size=12), st.uuids())


@given(
    st.dictionaries(st.text("ab-é", min_size=1, max_size=8), SMALL, min_size=1, max_size=4),
    st.text(max_size=12) | st.uuids(),
    st.none() | st.text(max_size=12),
    st.integers(0, 2**32 - 1),
    st.lists(st.binary(max_size=300), min_size=1, max_size=3),
    st.booleans(),
)
def test_a_message_of_the_official_client_is_read_right(
    entries: dict[str | bytes, Any],
    message_id: Any,
    group_id: str | None,
    ttl_ms: int,
    data: list[bytes],
    with_delivery_annotations: bool,
) -> None:
    out = bytearray()
    peer = peer_message.Message(
        header=peer_message.Header(durable=True, ttl=ttl_ms),
        delivery_annotations=entries if with_delivery_annotations else None,
        message_annotations=entries,
        properties=peer_message.Properties(message_id=message_id, group_id=group_id, content_type="text/plain"),
        application_properties=entries,
        data=data,
    )
    message = bytes(peer_encoding.encode_payload(out, peer))
    layout = walk(message)
    assert read_header(message, layout) == Header(True, None, ttl_ms, None, 0)
    wanted = (PropertyField.GROUP_ID, PropertyField.MESSAGE_ID, PropertyField.CONTENT_TYPE, PropertyField.TO)
    assert read_properties(message, layout, wanted) == (group_id, message_id, Symbol("text/plain"), None)
    assert read_annotations(message, layout) == read_application_properties(message, layout) == entries
    assert read_delivery_annotations(message, layout) == (entries if with_delivery_annotations else {})
    assert list(data_sections(message, layout)) == data
    delivered = delivery_form(message, layout, Header(delivery_count=3), b"", b"", 0, frozenset())
    shown = peer_decoding.decode_payload(memoryview(delivered))
    assert shown.header is not None
    assert shown.header.delivery_count == 3
    assert shown.data == data
    assert shown.delivery_annotations == (as_the_peer_shows(entries) if with_delivery_annotations else None)
    assert shown.application_properties == as_the_peer_shows(entries)


@given(HEADERS, st.dictionaries(TEXT, SMALL, min_size=1, max_size=4), st.uuids(), SMALL)
def test_a_message_of_ours_is_read_right_by_the_official_client(
    header: Header, entries: dict[str, Any], message_id: uuid.UUID, value: Any
) -> None:
    message = encode_message(
        header=header,
        annotations=entries,
        properties={PropertyField.CORRELATION_ID: message_id},
        application_properties=entries,
        value=value,
    )
    shown = peer_decoding.decode_payload(memoryview(message))
    assert shown.header is not None
    assert shown.properties is not None
    assert (shown.header.durable, shown.header.priority, shown.header.ttl) == header[:3]
    assert shown.header.delivery_count == header.delivery_count
    assert shown.properties.correlation_id == message_id
    assert shown.message_annotations == shown.application_properties == as_the_peer_shows(entries)
    assert shown.value == as_the_peer_shows(value)
