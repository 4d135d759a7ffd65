"""AMQP values by example: every constructor, the shortest form, and what is refused."""

from __future__ import annotations

import re
import uuid
from enum import IntEnum
from typing import Any

import pytest

from twinbus.amqp.codec.decoding import decode, skip
from twinbus.amqp.codec.encoding import Array, encode, encode_into
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
    text_of,
)
from twinbus.errors import DecodeError

ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")

SHORTEST: list[tuple[Any, str]] = [
    (None, "40"),
    (True, "41"),
    (False, "42"),
    (UByte(255), "50 ff"),
    (UShort(258), "60 0102"),
    (UInt(0), "43"),
    (UInt(255), "52 ff"),
    (UInt(256), "70 00000100"),
    (ULong(0), "44"),
    (ULong(255), "53 ff"),
    (ULong(256), "80 0000000000000100"),
    (Byte(-1), "51 ff"),
    (Short(-2), "61 fffe"),
    (Int(-128), "54 80"),
    (Int(128), "71 00000080"),
    (Long(127), "55 7f"),
    (Long(-129), "81 ffffffffffffff7f"),
    (Float32(1.5), "72 3fc00000"),
    (1.5, "82 3ff8000000000000"),
    (Decimal32(b"abcd"), "74 61626364"),
    (Decimal64(b"abcdefgh"), "84 6162636465666768"),
    (Decimal128(b"abcdefghijklmnop"), "94 6162636465666768696a6b6c6d6e6f70"),
    (Char("€"), "73 000020ac"),
    (Timestamp(-1), "83 ffffffffffffffff"),
    (ID, "98 00112233445566778899aabbccddeeff"),
    (b"ab", "a0 02 6162"),
    ("é", "a1 02 c3a9"),
    (Symbol("ab"), "a3 02 6162"),
    ([], "45"),
    ([None, True], "c0 03 02 40 41"),
    ({}, "c1 01 00"),
    ({"a": None}, "c1 05 02 a1 01 61 40"),
    (Described(ULong(0x70), []), "00 53 70 45"),
    (Array([]), "e0 02 00 40"),
    (Array([Symbol("a"), Symbol("bc")]), "e0 07 02 a3 01 61 02 6263"),
    (Array([Long(1), Long(-1)]), "e0 12 02 81 0000000000000001 ffffffffffffffff"),
    (Array([True, False]), "e0 04 02 56 01 00"),
    (Array([ULong(7)], 0x53, (Symbol("d"),)), "e0 07 01 00 a3 01 64 53 07"),
    (Array([[None]]), "e0 0b 01 d0 00000005 00000001 40"),
    (Array([UInt(0), UInt(0)], 0x43), "e0 02 02 43"),
]

WIDE: list[tuple[Any, str]] = [
    (True, "56 01"),
    (False, "56 00"),
    (UInt(5), "70 00000005"),
    (ULong(5), "80 0000000000000005"),
    (Int(5), "71 00000005"),
    (Long(5), "81 0000000000000005"),
    (b"a", "b0 00000001 61"),
    ("a", "b1 00000001 61"),
    (Symbol("a"), "b3 00000001 61"),
    ([], "c0 01 00"),
    ([], "d0 00000004 00000000"),
    ([None], "d0 00000005 00000001 40"),
    ({None: True}, "d1 00000006 00000002 40 41"),
    (Array([UByte(9)]), "f0 00000006 00000001 50 09"),
    (Array(["x"], 0xB1), "f0 0000000a 00000001 b1 00000001 78"),
]


def same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and bool(left == right)


@pytest.mark.parametrize(("value", "wire"), SHORTEST)
def test_the_shortest_form_is_written(value: Any, wire: str) -> None:
    assert encode(value) == bytes.fromhex(wire)


@pytest.mark.parametrize(("value", "wire"), SHORTEST + WIDE)
def test_every_form_is_read_with_its_type(value: Any, wire: str) -> None:
    content = bytes.fromhex(wire)
    decoded, end = decode(content)
    assert same(decoded, value)
    assert end == skip(content, 0) == len(content)


@pytest.mark.parametrize("size", [255, 256])
@pytest.mark.parametrize(("kind", "narrow"), [(bytes, 0xA0), (str, 0xA1), (Symbol, 0xA3)])
def test_contents_over_255_bytes_get_a_wide_size(kind: type, narrow: int, size: int) -> None:
    value = bytes(size) if kind is bytes else kind("x" * size)
    assert encode(value)[0] == (narrow if size < 256 else narrow + 0x10)
    assert same(decode(encode(value))[0], value)


@pytest.mark.parametrize(("count", "constructor"), [(254, 0xC0), (255, 0xD0), (300, 0xD0)])
def test_a_list_whose_size_does_not_fit_a_byte_is_wide(count: int, constructor: int) -> None:
    assert encode([None] * count)[0] == constructor
    assert decode(encode([None] * count))[0] == [None] * count


def test_plain_numbers_and_other_buffers_have_a_type() -> None:
    class Colour(IntEnum):
        RED = 3

    assert same(decode(encode(5))[0], Long(5))
    assert encode(bytearray(b"ab")) == encode(memoryview(b"ab")) == encode(b"ab")
    assert encode((1, 2)) == encode([1, 2])
    assert encode(Colour.RED) == encode(3)
    assert encode(Array([1, 2])) == encode(Array([Long(1), Long(2)]))


def test_the_classes_behave_like_the_values_they_extend() -> None:
    assert (str(UInt(5)), repr(UInt(5)), f"{UInt(5)}", UInt(5) + 1) == ("5", "UInt(5)", "5", 6)
    by_text: dict[str, int] = {Symbol("a"): 1}
    assert by_text["a"] == 1
    assert hash(Described(Symbol("d"), 1)) == hash(Described(Symbol("d"), 1))
    array = Array([1, 2, 3])
    assert (len(array), list(array), array[1], array[-1], 2 in array) == (3, [1, 2, 3], 2, 3, True)
    assert hash(array) == hash(Array([1, 2, 3]))
    assert array != Array([1, 2])


def test_encoding_appends_to_what_is_there() -> None:
    out = bytearray(b"?")
    encode_into(out, None)
    encode_into(out, UInt(7))
    assert out == b"?\x40\x52\x07"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (UByte(256), "ubyte must be from 0 to 255, got UByte(256)"),
        (UShort(-1), "ushort must be from 0 to 65535"),
        (UInt(2**32), "uint must be from 0 to 4294967295"),
        (ULong(-1), "ulong must be from 0 to 18446744073709551615"),
        (Byte(128), "byte must be from -128 to 127"),
        (Short(2**15), "short must be from -32768 to 32767"),
        (Int(2**31), "int must be from -2147483648 to 2147483647"),
        (2**63, "long must be from -9223372036854775808 to 9223372036854775807"),
        (Timestamp(2**63), "timestamp must be from"),
        (Float32(1e300), "float must be"),
        (Char("ab"), "char must be one character"),
        (Char("\ud800"), "surrogates not allowed"),
        (Decimal32(b"abc"), "decimal32 must be 4 bytes, got 3"),
        (Array([b"x" * 300], 0xA0), "up to 255 bytes"),
        (Array([UInt(300)], 0x52), "uint must be from 0 to 255"),
        (Array(["a"], 0x81), "cannot hold 'a'"),
    ],
)
def test_what_its_type_cannot_hold_is_a_value_error(value: Any, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        encode(value)


def test_an_array_of_mixed_items_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="share one AMQP type"):
        Array([UInt(1), "a"])
    with pytest.raises(ValueError, match="share one AMQP type"):
        Array([Described(1, 2)])
    with pytest.raises(ValueError, match="holds only"):
        Array([True, False], 0x41)


def test_a_value_without_an_amqp_type_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="complex has no AMQP type"):
        encode(1j)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_32_levels_are_fine_and_33_are_refused() -> None:
    # The innermost list is empty and has no inside, so 33 lists are 32 levels.
    assert decode(encode(nested(33)))[0] == nested(33)
    with pytest.raises(ValueError, match="nested more than 32 deep"):
        encode(nested(34))
    with pytest.raises(DecodeError, match="nested more than 32 deep"):
        decode(b"".join(bytes((0xC0, 2 + 3 * (33 - level), 1)) for level in range(1, 34)) + b"\x45")


MALFORMED: list[tuple[str, str]] = [
    ("", "offset 0"),
    ("01", "0x01 at offset 0 is not an AMQP constructor"),
    ("ff", "0xff at offset 0 is not an AMQP constructor"),
    ("56 02", "boolean at offset 1"),
    ("70 0000", "offset 0 does not end"),
    ("98 00", "does not end"),
    ("73 00110000", "not a Unicode character"),
    ("73 0000d800", "not a Unicode character"),
    ("a1 02 c328", "text at offset 2 is not UTF-8"),
    ("a3 01 ff", "text at offset 2 is not UTF-8"),
    ("a0 05 61", "does not end"),
    ("b0 ffffffff 61", "does not end"),
    ("c0 05 01 40", "size 5 at offset 1 does not fit"),
    ("c0 00 00", "size 0 at offset 1 does not fit"),
    ("d0 00000003 00000000", "does not fit"),
    ("d0 00000005 ffffffff 40", "count 4294967295"),
    ("c0 03 01 40 40", "their size says"),
    ("c0 02 01 a1 01 61", "their size says"),
    ("c1 02 01 40", "key without a value"),
    ("c1 03 02 45 40", "list or a map as key"),
    ("c1 06 02 00 53 01 45 40", "list or a map as key"),
    ("00 53", "does not end"),
    ("00", "does not end"),
    ("e0 03 02 50 01", "count 2"),
    ("e0 02 01 01", "count 1"),
    ("e0 03 01 01 00", "0x01"),
    ("e0 01 01", "does not end"),
    ("f0 00000005 00010001 40", "65537 items of no width"),
    ("f0 00000005 ffffffff 45", "4294967295 items of no width"),
]


@pytest.mark.parametrize(("wire", "text"), MALFORMED)
def test_malformed_bytes_are_a_decode_error_that_says_what_and_where(wire: str, text: str) -> None:
    with pytest.raises(DecodeError, match=re.escape(text)):
        decode(bytes.fromhex(wire))


def test_many_arrays_of_zero_width_items_stay_small() -> None:
    content = encode([Array([None] * 65_536)] * 5_000)
    arrays, _ = decode(content)
    assert sum(map(len, arrays)) == 5_000 * 65_536
    assert arrays[0][65_535] is None
    with pytest.raises(IndexError):
        arrays[0][65_536]


def test_a_map_of_keys_with_one_hash_is_refused_before_it_costs_time() -> None:
    keys = [uuid.UUID(int=number * (2**61 - 1)) for number in range(2_000)]
    assert len(set(map(hash, keys))) < 10
    with pytest.raises(DecodeError, match="more than 1024 keys"):
        decode(encode_pairs(keys))
    assert len(decode(encode(dict.fromkeys(range(2_000))))[0]) == 2_000


def encode_pairs(keys: list[Any]) -> bytes:
    body = b"".join(encode(key) + b"\x40" for key in keys)
    return b"\xd1" + (len(body) + 4).to_bytes(4) + (2 * len(keys)).to_bytes(4) + body


@pytest.mark.parametrize("content", [b"\x00" * 100_000, b"\x00\x40" * 100_000, b"\xc0\xff\x01" * 100_000])
def test_endless_nesting_does_not_eat_the_stack(content: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(content)
    if content[0] == 0x00:
        with pytest.raises(DecodeError):
            skip(content, 0)


def test_of_equal_keys_the_last_value_counts() -> None:
    assert decode(bytes.fromhex("c1 09 04 a3 01 61 41 a1 01 61 42"))[0] == {"a": False}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (None, ""),
        ("42", "42"),
        (b"42", "42"),
        ("ö".encode(), "ö"),
        (b"\xff\x00", "ff00"),
        (ULong(42), "42"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    ],
)
def test_an_id_is_the_same_text_whatever_its_type(name: object, text: str) -> None:
    assert text_of(name) == text
