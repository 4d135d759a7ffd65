"""Messages by example: walking, picking, rewriting, and what is refused."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest

from twinbus.amqp.codec.encoding import encode
from twinbus.amqp.codec.types import Described, Int, Long, Symbol, Timestamp, UInt, ULong, Value
from twinbus.amqp.message.sections import (
    Header,
    PropertyField,
    TooManySections,
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

HEADER = bytes.fromhex("00 53 70 c0 02 01 41")
ANNOTATIONS = bytes.fromhex("00 53 72 c1 07 02 a3 01 6b a1 01 76")
PROPERTIES = bytes.fromhex("00 53 73 c0 04 01 a1 01 69")
APPLICATION = bytes.fromhex("00 53 74 c1 05 02 a1 01 61 41")
DATA = bytes.fromhex("00 53 75 a0 02 6869")
VALUE = bytes.fromhex("00 53 77 54 07")
SEQUENCE = bytes.fromhex("00 53 76 c0 02 01 40")
DELIVERY = bytes.fromhex("00 53 71 c1 07 02 a3 01 64 a1 01 76")
FOOTER = bytes.fromhex("00 53 78 c1 01 00")
ALL = HEADER + DELIVERY + ANNOTATIONS + PROPERTIES + APPLICATION + DATA + DATA + FOOTER


def test_a_walk_finds_every_section_with_its_descriptor() -> None:
    layout = walk(ALL)
    cut = [ALL[slice(*span)] for span in layout if isinstance(span, tuple)]
    assert cut == [HEADER, DELIVERY, ANNOTATIONS, PROPERTIES, APPLICATION, DATA + DATA, FOOTER]
    assert layout.body_kind == "data"


@pytest.mark.parametrize(("body", "kind"), [(b"", None), (DATA, "data"), (SEQUENCE * 2, "sequence"), (VALUE, "value")])
def test_each_kind_of_body_is_distinguished_and_may_be_absent(body: bytes, kind: str | None) -> None:
    layout = walk(HEADER + body)
    assert layout.body_kind == kind
    assert layout.body == ((len(HEADER), len(HEADER + body)) if body else None)


def test_a_body_of_more_sections_than_asked_for_is_refused_and_the_rest_of_it_is_not_looked_at() -> None:
    assert walk(HEADER + DATA * 5, 5).body_kind == "data"
    assert walk(HEADER + DATA * 5 + DELIVERY, 5).body_kind == "data", "late annotations are no part of the body"
    for body in (DATA * 6, SEQUENCE * 6, DATA * 6 + b"no section"):
        with pytest.raises(TooManySections, match="more than 5 sections"):
            walk(HEADER + body, 5)


def test_an_empty_message_has_no_sections() -> None:
    assert set(walk(b"")) == {None}


def described(descriptor: Value, value: Value) -> bytes:
    return encode(Described(descriptor, value))


def test_descriptors_may_be_wide_numbers_or_symbols() -> None:
    wide = bytes.fromhex("00 80 0000000000000073 c0 04 01 a1 01 69")
    symbols = described(Symbol("amqp:header:list"), [True]) + described(
        Symbol("amqp:application-properties:map"), {"a": 1}
    )
    message = symbols[: symbols.index(b"\x00\xa3", 1)] + wide + symbols[symbols.index(b"\x00\xa3", 1) :]
    message += described(Symbol("amqp:data:binary"), b"hi") + described(Symbol("amqp:data:binary"), b"ho")
    layout = walk(message)
    assert read_header(message, layout).durable
    assert read_property(message, layout, PropertyField.MESSAGE_ID) == "i"
    assert read_application_property(message, layout, "a") == 1
    assert list(data_sections(message, layout)) == [b"hi", b"ho"]
    changed = rewrite(message, set_application_properties={"b": 2}, set_properties={PropertyField.TO: "t"})
    assert read_application_properties(changed, walk(changed)) == {"a": 1, "b": 2}
    assert read_properties(changed, walk(changed), (PropertyField.MESSAGE_ID, PropertyField.TO)) == ("i", "t")


REFUSED = [
    (PROPERTIES + HEADER, "out of order"),
    (HEADER + HEADER, "repeated"),
    (DATA + HEADER, "out of order"),
    (DATA + APPLICATION, "out of order"),
    (DATA + FOOTER + DATA, "out of order"),
    (VALUE + VALUE, "repeated"),
    (DATA + VALUE, "one kind of body"),
    (DATA + SEQUENCE, "one kind of body"),
    (SEQUENCE + DATA, "out of order"),
    (DELIVERY + DATA + DELIVERY, "repeated"),
    (DATA + DELIVERY + DATA, "out of order"),
    (DATA + DELIVERY + FOOTER, "out of order"),
    (DATA[:-1], "does not end"),
    (b"\x00\x53", "does not end"),
    (b"\x00\x53\x75", "does not end"),
    (b"\x00", "does not end"),
    (b"\x41", "no message section starts at offset 0"),
    (b"\x00\x53\x79\x40", "no message section starts at offset 0"),
    (b"\x00\x53\x10\x45", "no message section starts at offset 0"),
    (b"\x00\x40\x45", "no message section starts at offset 0"),
    (b"\x00\x53\x75\xa1\x01a", "amqp:data:binary at offset 0 cannot have constructor 0xa1"),
    (b"\x00\x53\x74\x45", "amqp:application-properties:map"),
    (b"\x00\x53\x73\xc1\x01\x00", "amqp:properties:list"),
    (b"\x00\x53\x77\x01", "0x01 at offset 3"),
]


@pytest.mark.parametrize(("message", "text"), REFUSED)
def test_sections_in_the_wrong_place_or_shape_are_a_decode_error(message: bytes, text: str) -> None:
    with pytest.raises(DecodeError, match=re.escape(text)):
        walk(message)


@pytest.mark.parametrize("before", [b"", HEADER, HEADER + ANNOTATIONS, ANNOTATIONS + PROPERTIES + DATA, DATA + FOOTER])
def test_delivery_annotations_may_come_last_and_are_delivered_in_their_place(before: bytes) -> None:
    message = before + DELIVERY
    layout = walk(message)
    assert read_delivery_annotations(message, layout) == {"d": "v"}
    delivered = delivery_form(message, layout, Header(), b"", b"", 0, frozenset())
    header = encode_message(header=Header())
    rest = before.removeprefix(HEADER)
    assert delivered == header + DELIVERY + rest
    assert rewrite(message, header=Header()) == delivered


@pytest.mark.parametrize(
    ("fields", "header"),
    [
        ([], Header()),
        ([True], Header(durable=True)),
        ([None, None, UInt(5)], Header(ttl_ms=5)),
        ([False, UInt(9), UInt(2**32 - 1), True, UInt(3)], Header(False, 9, 2**32 - 1, True, 3)),
        ([None] * 5, Header()),
        ([False, None, None, False], Header(durable=False, first_acquirer=False)),
    ],
)
def test_the_header_is_read_as_it_was_written(fields: list[Any], header: Header) -> None:
    message = described(ULong(0x70), fields)
    assert read_header(message, walk(message)) == header


def test_an_absent_header_says_nothing() -> None:
    assert read_header(DATA, walk(DATA)) == Header(None, None, None, None, 0)


@pytest.mark.parametrize(
    "fields", [[1], [None, 256], [None, True], [None, None, -1], [None, None, "5"], [None, None, None, 0]]
)
def test_a_header_field_of_another_type_is_a_decode_error(fields: list[Any]) -> None:
    message = described(ULong(0x70), fields)
    with pytest.raises(DecodeError, match="in the header must be"):
        read_header(message, walk(message))


def test_a_header_with_a_long_tail_is_read_too() -> None:
    message = described(ULong(0x70), [True, None, None, None, UInt(2), "x" * 100])
    assert read_header(message, walk(message)) == Header(durable=True, delivery_count=2)


def test_properties_beyond_the_end_of_the_list_are_none() -> None:
    layout = walk(PROPERTIES)
    assert read_property(PROPERTIES, layout, PropertyField.REPLY_TO_GROUP_ID) is None
    assert read_properties(PROPERTIES, layout, (PropertyField.GROUP_ID, PropertyField.MESSAGE_ID)) == (None, "i")
    assert read_properties(DATA, walk(DATA), (PropertyField.MESSAGE_ID, PropertyField.TO)) == (None, None)


def test_a_field_keeps_its_type() -> None:
    identity = uuid.uuid4()
    message = encode_message(properties={PropertyField.MESSAGE_ID: identity, PropertyField.CORRELATION_ID: ULong(5)})
    assert read_property(message, walk(message), PropertyField.MESSAGE_ID) == identity
    assert isinstance(read_property(message, walk(message), PropertyField.CORRELATION_ID), ULong)


def test_plain_values_get_the_type_their_field_has() -> None:
    given = {
        PropertyField.MESSAGE_ID: 7,
        PropertyField.CONTENT_TYPE: "text/plain",
        PropertyField.CREATION_TIME: 1000,
        PropertyField.GROUP_SEQUENCE: 3,
        PropertyField.SUBJECT: "s",
    }
    built = encode_message(properties=given)
    for message in (built, rewrite(b"", set_properties=given)):
        read = read_properties(message, walk(message), tuple(given))
        assert read == tuple(given.values())
        assert [type(value) for value in read] == [ULong, Symbol, Timestamp, UInt, str]


def test_an_annotation_is_found_by_symbol_or_string_in_every_width() -> None:
    entries = (
        b"\xa1\x01a\x54\x01" + b"\xb3\x00\x00\x00\x01b\x54\x02" + b"\xb1\x00\x00\x00\x01c\x54\x03" + b"\x53\x09\x54\x04"
    )
    message = b"\x00\x53\x72\xc1" + bytes((len(entries) + 1, 8)) + entries
    layout = walk(message)
    assert [read_annotation(message, layout, key) for key in "abcd"] == [1, 2, 3, None]
    assert read_annotations(message, layout) == {"a": 1, "b": 2, "c": 3, 9: 4}
    changed = rewrite(message, set_annotations={"b": 5}, remove_annotations=["a", "c"])
    assert read_annotations(changed, walk(changed)) == {9: 4, "b": 5}


def test_a_key_that_is_only_part_of_a_value_or_of_another_key_is_not_found() -> None:
    message = encode_message(annotations={"x-key": "key", "keys": "\xa3\x03key"})
    assert read_annotation(message, walk(message), "key") is None


def test_of_equal_keys_the_last_counts() -> None:
    message = bytes.fromhex("00 53 72 c1 09 04 a3 01 61 41 a1 01 61 42")
    layout = walk(message)
    assert read_annotation(message, layout, "a") is read_annotations(message, layout)["a"] is False
    assert rewrite(message, set_annotations={"a": None}) == bytes.fromhex("00 53 72 c1 05 02 a3 01 61 40")


MALFORMED_MAP = [
    bytes.fromhex("00 53 72 c1 05 01 a3 01 61 41"),
    bytes.fromhex("00 53 72 c1 04 01 a3 01 61"),
    bytes.fromhex("00 53 72 c1 06 03 a3 01 61 41 41"),
    bytes.fromhex("00 53 72 c1 04 02 a3 01 61"),
    bytes.fromhex("00 53 72 c1 06 02 a3 01 61 41 41"),
    bytes.fromhex("00 53 72 d1 00000008 ffffffff a3 01 61 41"),
    bytes.fromhex("00 53 72 c1 04 03 a3 01 61"),
]


@pytest.mark.parametrize("message", MALFORMED_MAP)
def test_a_map_that_does_not_fit_its_section_is_a_decode_error(message: bytes) -> None:
    message += DATA
    layout = walk(message)
    with pytest.raises(DecodeError):
        read_annotation(message, layout, "a")
    with pytest.raises(DecodeError):
        read_annotations(message, layout)
    with pytest.raises(DecodeError):
        rewrite(message, set_annotations={"b": 1})
    with pytest.raises(DecodeError):
        delivery_form(message, layout, Header(), b"", b"", 0, frozenset())


def test_a_batch_is_an_envelope_of_whole_messages() -> None:
    inner = [encode_message(data=b"one"), encode_message(data=b"2" * 300)]
    envelope = encode_message(annotations={"x-opt-partition-key": "p"}, data=inner)
    assert list(data_sections(envelope, walk(envelope))) == inner
    assert list(data_sections(VALUE, walk(VALUE))) == []
    assert list(data_sections(b"", walk(b""))) == []


def test_a_value_body_is_decoded_and_other_bodies_are_a_decode_error() -> None:
    assert read_value(VALUE, walk(VALUE)) == Int(7)
    null = encode_message(value=None)
    assert read_value(null, walk(null)) is None
    for message in (DATA, b""):
        with pytest.raises(DecodeError, match="must be an amqp-value"):
            read_value(message, walk(message))


def test_two_kinds_of_body_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="one kind of body"):
        encode_message(data=b"", value=None)


def test_a_rewrite_keeps_odd_encodings_of_what_it_does_not_touch() -> None:
    kept = b"\xb3\x00\x00\x00\x01k\x81\x00\x00\x00\x00\x00\x00\x00\x05"
    message = b"\x00\x53\x72\xd1" + (len(kept) + 4 + 4).to_bytes(4) + (4).to_bytes(4) + kept + b"\xa3\x01z\x40" + DATA
    changed = rewrite(message, set_annotations={"z": 1})
    assert changed == b"\x00\x53\x72\xc1" + bytes((len(kept) + 6, 4)) + kept + b"\xa3\x01z\x55\x01" + DATA


def test_absent_sections_are_created_in_their_place() -> None:
    message = rewrite(
        DATA + FOOTER,
        header=Header(durable=True),
        set_delivery_annotations={"d": "v"},
        set_annotations={"k": "v"},
        set_properties={PropertyField.MESSAGE_ID: "i"},
        set_application_properties={"a": True},
    )
    rest = DELIVERY + ANNOTATIONS + PROPERTIES + APPLICATION + DATA + FOOTER
    assert message == encode_message(header=Header(durable=True)) + rest


def test_a_map_that_ends_up_empty_is_dropped() -> None:
    assert rewrite(ANNOTATIONS + DATA, remove_annotations=["k"]) == DATA
    assert rewrite(APPLICATION + DATA, remove_application_properties=["a", "b"]) == DATA


def test_none_clears_a_property_and_creates_nothing() -> None:
    cleared = rewrite(PROPERTIES + DATA, set_properties={PropertyField.MESSAGE_ID: None, PropertyField.GROUP_ID: None})
    assert cleared == bytes.fromhex("00 53 73 c0 02 01 40") + DATA
    assert rewrite(DATA, set_properties={PropertyField.GROUP_ID: None}) == DATA


def test_a_section_that_grows_over_255_bytes_becomes_wide() -> None:
    entries = {f"key-{number}": number for number in range(200)}
    message = rewrite(ALL, set_annotations=entries, set_properties={PropertyField.TO: "t" * 300})
    layout = walk(message)
    assert read_annotations(message, layout) == {"k": "v"} | entries
    assert read_property(message, layout, PropertyField.TO) == "t" * 300
    assert read_property(message, layout, PropertyField.MESSAGE_ID) == "i"


def pairs(entries: dict[str, Any]) -> bytes:
    return b"".join(encode(Symbol(key)) + encode(value) for key, value in entries.items())


def test_the_delivery_form_has_the_brokers_annotations_and_the_senders_rest() -> None:
    message = (
        HEADER + DELIVERY + encode_message(annotations={"own": 1, "x-opt-sequence-number": 99}) + PROPERTIES + DATA
    )
    added = {"x-opt-sequence-number": Long(7), "x-opt-enqueued-time": Timestamp(5)}
    shadowed = frozenset(key.encode() for key in added)
    token = encode_message(delivery_annotations={"x-opt-lock-token": uuid.UUID(int=1)})
    header = Header(durable=True, delivery_count=2)
    delivered = delivery_form(message, walk(message), header, token, pairs(added), 2, shadowed)
    layout = walk(delivered)
    assert read_header(delivered, layout) == header
    assert read_delivery_annotations(delivered, layout) == {"x-opt-lock-token": uuid.UUID(int=1)}
    assert read_annotations(delivered, layout) == {"own": 1} | added
    assert delivered.endswith(PROPERTIES + DATA)


@pytest.mark.parametrize("size", [240, 253, 254, 255, 256, 300])
def test_the_delivery_form_is_sound_around_255_bytes_of_annotations(size: int) -> None:
    delivered = delivery_form(DATA, walk(DATA), Header(), b"", pairs({"k": b"x" * (size - 5)}), 1, frozenset())
    assert read_annotations(delivered, walk(delivered)) == {"k": b"x" * (size - 5)}
    assert delivered.endswith(DATA)


def test_a_delivery_form_without_any_annotations_has_no_such_section() -> None:
    delivered = delivery_form(ANNOTATIONS + DATA, walk(ANNOTATIONS + DATA), Header(), b"", b"", 0, frozenset([b"k"]))
    assert walk(delivered).message_annotations is None
