"""Python values to AMQP 1.0 bytes."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

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
    Repeated,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
)

NESTING_MAX = 32
"""Containers and descriptions inside one another; deeper nesting is refused in both directions."""


class Array(Sequence[Value]):
    """Items of one AMQP type. Without `code` the type is that of the items (null when there are none).

    `code` is the constructor byte that all items share, `descriptors` the descriptors that stand before it (items are
    given without them). ValueError when the items do not share one type.
    """

    __slots__ = ("code", "descriptors", "items")

    def __init__(self, items: Iterable[Value], code: int | None = None, descriptors: tuple[Value, ...] = ()) -> None:
        given: Sequence[Value] = items if isinstance(items, Repeated) else tuple(items)
        self.code = _common_code(given) if code is None else code
        self.descriptors = descriptors
        self.items = _without_width(given, self.code) if self.code in ZERO_WIDTH else given

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Value]:
        return iter(self.items)

    def __getitem__(self, index: int | slice) -> Value:
        return self.items[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Array) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        described = f", descriptors={self.descriptors!r}" if self.descriptors else ""
        return f"Array({self.items!r}, code=0x{self.code:02x}{described})"

    def _key(self) -> tuple[int, tuple[Value, ...], Sequence[Value]]:
        return self.code, self.descriptors, self.items


ZERO_WIDTH: dict[int, Value] = {0x40: None, 0x41: True, 0x42: False, 0x43: UInt(0), 0x44: ULong(0), 0x45: []}
"""Constructors that are the whole value."""

FIXED: dict[int, tuple[type, struct.Struct]] = {
    code: (kind, struct.Struct(layout))
    for code, kind, layout in (
        (0x50, UByte, ">B"), (0x60, UShort, ">H"), (0x52, UInt, ">B"), (0x70, UInt, ">I"), (0x53, ULong, ">B"),
        (0x80, ULong, ">Q"), (0x51, Byte, ">b"), (0x61, Short, ">h"), (0x54, Int, ">b"), (0x71, Int, ">i"),
        (0x55, Long, ">b"), (0x81, Long, ">q"), (0x83, Timestamp, ">q"), (0x72, Float32, ">f"), (0x82, float, ">d"),
    )
}  # fmt: skip
"""Numbers by constructor."""

_RAW_WIDTHS: dict[type, int] = {Decimal32: 4, Decimal64: 8, Decimal128: 16}
_U32 = struct.Struct(">I")
_SIZE_AND_COUNT = struct.Struct(">II")

_ELEMENT_CODES: dict[type, int] = {
    type(None): 0x40, bool: 0x56, UByte: 0x50, Byte: 0x51, UShort: 0x60, Short: 0x61, UInt: 0x70, Int: 0x71,
    Float32: 0x72, Char: 0x73, Decimal32: 0x74, ULong: 0x80, Long: 0x81, int: 0x81, float: 0x82, Timestamp: 0x83,
    Decimal64: 0x84, Decimal128: 0x94, uuid.UUID: 0x98, bytes: 0xA0, str: 0xA1, Symbol: 0xA3, list: 0xD0, dict: 0xD1,
    Array: 0xF0,
}  # fmt: skip
_ELEMENT_TYPES: dict[int, type] = {code: kind for kind, code in _ELEMENT_CODES.items()} | {
    0x52: UInt, 0x53: ULong, 0x54: Int, 0x55: Long, 0xB0: bytes, 0xB1: str, 0xB3: str, 0xC0: list, 0xC1: dict,
    0xE0: Array, 0xA3: str,
}  # fmt: skip


def encode(value: Value) -> bytes:
    """The shortest AMQP encoding. Raises ValueError if the value is out of range, TypeError if it has no AMQP type."""
    out = bytearray()
    encode_into(out, value)
    return bytes(out)


def encode_into(out: bytearray, value: Value) -> None:
    """Append the shortest AMQP encoding; after an error `out` may hold a part of it."""
    _write(out, value, 0)


def _write(out: bytearray, value: Value, depth: int) -> None:
    kind = type(value)
    (WRITERS.get(kind) or _inherited_writer(kind))(out, value, depth)


def _inherited_writer(kind: type) -> Writer:
    for base in kind.__mro__:
        if base in WRITERS:
            return WRITERS[base]
    raise TypeError(f"{kind.__name__} has no AMQP type")


def _pack(code: int, value: Value) -> bytes:
    kind, number = FIXED[code]
    try:
        return number.pack(value)
    except (struct.error, OverflowError):
        raise ValueError(f"{_wire_name(kind)} must be {_range(number)}, got {value!r}") from None


def _wire_name(kind: type) -> str:
    names: dict[type, str] = {Float32: "float", float: "double"}
    return names.get(kind, kind.__name__.lower())


def _range(number: struct.Struct) -> str:
    if number.format in (">f", ">d"):
        return f"a float of {number.size} bytes"
    bits = number.size * 8
    low, high = (0, 2**bits - 1) if number.format[1:].isupper() else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return f"from {low} to {high}"


def _write_null(out: bytearray, _value: None, _depth: int) -> None:
    out.append(0x40)


def _write_boolean(out: bytearray, value: bool, _depth: int) -> None:
    out.append(0x41 if value else 0x42)


def _unsigned_writer(zero: int, small: int, wide: int) -> Writer:
    def write(out: bytearray, value: int, _depth: int) -> None:
        if value == 0:
            out.append(zero)
        elif 0 < value < 256:
            out.append(small)
            out.append(value)
        else:
            packed = _pack(wide, value)
            out.append(wide)
            out += packed

    return write


def _signed_writer(small: int, wide: int) -> Writer:
    def write(out: bytearray, value: int, _depth: int) -> None:
        if -128 <= value < 128:
            out.append(small)
            out.append(value & 0xFF)
        else:
            packed = _pack(wide, value)
            out.append(wide)
            out += packed

    return write


def _char_payload(value: str) -> bytes:
    if len(value) != 1:
        raise ValueError(f"char must be one character, got {len(value)}")
    return value.encode("utf-32-be")  # a lone surrogate is a UnicodeEncodeError, which is a ValueError


def _raw_payload(value: bytes) -> bytes:
    width = _RAW_WIDTHS[type(value)]
    if len(value) != width:
        raise ValueError(f"{_wire_name(type(value))} must be {width} bytes, got {len(value)}")
    return value


def _payload_writer(code: int) -> Writer:
    payload = PAYLOADS[code]

    def write(out: bytearray, value: Value, _depth: int) -> None:
        content = payload(value)
        out.append(code)
        out += content

    return write


def _sized_writer(narrow: int, content_of: Callable[[Value], bytes]) -> Writer:
    def write(out: bytearray, value: Value, _depth: int) -> None:
        content = content_of(value)
        size = len(content)
        if size < 256:
            out.append(narrow)
            out.append(size)
        else:
            out.append(narrow + 0x10)
            out += _U32.pack(size)
        out += content

    return write


def _utf8(value: str) -> bytes:
    # Symbols too: the official Python client writes them so, and what was decoded must be encodable.
    return value.encode()


def _compound_writer(narrow: int, body_of: Callable[[Value, int], tuple[int, bytearray]]) -> Writer:
    def write(out: bytearray, value: Value, depth: int) -> None:
        write_compound(out, narrow, *body_of(value, depth))

    return write


def write_compound(out: bytearray, narrow: int, count: int, body: bytes | bytearray) -> None:
    """Append a list, map or array (by its narrow constructor) whose `count` entries are encoded already."""
    size = len(body) + 1
    if size < 256 and count < 256:
        out += bytes((narrow, size, count))
    else:
        out.append(narrow + 0x10)
        out += _SIZE_AND_COUNT.pack(size + 3, count)
    out += body


def _deeper(depth: int) -> int:
    if depth >= NESTING_MAX:
        raise ValueError(f"values must not be nested more than {NESTING_MAX} deep")
    return depth + 1


def _write_list(out: bytearray, value: Sequence[Value], depth: int) -> None:
    if value:
        write_compound(out, 0xC0, *_list_body(value, depth))
    else:
        out.append(0x45)


def _list_body(value: Sequence[Value], depth: int) -> tuple[int, bytearray]:
    depth = _deeper(depth)
    body = bytearray()
    for item in value:
        _write(body, item, depth)
    return len(value), body


def _map_body(value: dict[Value, Value], depth: int) -> tuple[int, bytearray]:
    depth = _deeper(depth)
    body = bytearray()
    for key, item in value.items():
        _write(body, key, depth)
        _write(body, item, depth)
    return 2 * len(value), body


def _write_described(out: bytearray, value: Described, depth: int) -> None:
    depth = _deeper(depth)
    out.append(0x00)
    _write(out, value.descriptor, depth)
    _write(out, value.value, depth)


def _array_body(value: Array, depth: int) -> tuple[int, bytearray]:
    depth = _deeper(depth)
    body = bytearray()
    for descriptor in value.descriptors:
        body.append(0x00)
        _write(body, descriptor, depth)
    body.append(value.code)
    if value.code not in ZERO_WIDTH:
        for item in value.items:
            _write_element(body, value.code, item, depth)
    return len(value.items), body


def _write_element(out: bytearray, code: int, item: Value, depth: int) -> None:
    """An array's item: what follows the constructor, which all items share."""
    if not isinstance(item, _ELEMENT_TYPES.get(code, ())):
        raise ValueError(f"an array of constructor 0x{code:02x} cannot hold {item!r}")
    if code < 0xA0:
        out += PAYLOADS[code](item)
        return
    narrow, wide = code & 0xEF, bool(code & 0x10)
    if narrow < 0xC0:
        content = CONTENTS[narrow](item)
    else:
        count, body = BODIES[narrow](item, depth)
        content = (_U32.pack(count) if wide else _narrow(count)) + body
    out += _U32.pack(len(content)) if wide else _narrow(len(content))
    out += content


def _narrow(size: int) -> bytes:
    if size > 255:
        raise ValueError(f"an array of a narrow constructor holds items of up to 255 bytes, got {size}")
    return bytes((size,))


def _common_code(items: Sequence[Value]) -> int:
    codes = {_ELEMENT_CODES.get(type(item), -1) for item in items} or {0x40}
    if len(codes) > 1 or -1 in codes:
        raise ValueError(f"items of an array must share one AMQP type, got {sorted({type(i).__name__ for i in items})}")
    code = codes.pop()
    if code in CONTENTS and any(len(CONTENTS[code](item)) > 255 for item in items):
        return code + 0x10
    return code


def _without_width(items: Sequence[Value], code: int) -> Repeated:
    same = ZERO_WIDTH[code]
    if not isinstance(items, Repeated) and not all(item == same and type(item) is type(same) for item in items):
        raise ValueError(f"an array of constructor 0x{code:02x} holds only {same!r}")
    return Repeated([] if code == 0x45 else same, len(items))  # a new list: a caller may change it


def _number_payload(code: int) -> Callable[[Value], bytes]:
    return lambda value: _pack(code, value)


Writer: TypeAlias = Callable[[bytearray, Value, int], None]

PAYLOADS: dict[int, Callable[[Value], bytes]] = {code: _number_payload(code) for code in FIXED} | {
    0x56: lambda value: b"\x01" if value else b"\x00",
    0x73: _char_payload,
    0x74: _raw_payload,
    0x84: _raw_payload,
    0x94: _raw_payload,
    0x98: lambda value: value.bytes,
}
"""What follows the constructor of a type of fixed width."""

CONTENTS: dict[int, Callable[[Value], bytes]] = {0xA0: bytes, 0xA1: _utf8, 0xA3: _utf8}
BODIES: dict[int, Callable[[Value, int], tuple[int, bytearray]]] = {
    0xC0: _list_body,
    0xC1: _map_body,
    0xE0: _array_body,
}

WRITERS: dict[type, Writer] = {
    type(None): _write_null,
    bool: _write_boolean,
    UByte: _payload_writer(0x50),
    UShort: _payload_writer(0x60),
    UInt: _unsigned_writer(0x43, 0x52, 0x70),
    ULong: _unsigned_writer(0x44, 0x53, 0x80),
    Byte: _payload_writer(0x51),
    Short: _payload_writer(0x61),
    Int: _signed_writer(0x54, 0x71),
    Long: _signed_writer(0x55, 0x81),
    int: _signed_writer(0x55, 0x81),
    Timestamp: _payload_writer(0x83),
    Float32: _payload_writer(0x72),
    float: _payload_writer(0x82),
    Char: _payload_writer(0x73),
    Decimal32: _payload_writer(0x74),
    Decimal64: _payload_writer(0x84),
    Decimal128: _payload_writer(0x94),
    uuid.UUID: _payload_writer(0x98),
    bytes: _sized_writer(0xA0, bytes),
    bytearray: _sized_writer(0xA0, bytes),
    memoryview: _sized_writer(0xA0, bytes),
    str: _sized_writer(0xA1, _utf8),
    Symbol: _sized_writer(0xA3, _utf8),
    list: _write_list,
    tuple: _write_list,
    dict: _compound_writer(0xC1, _map_body),
    Array: _compound_writer(0xE0, _array_body),
    Described: _write_described,
}
"""How each Python type is written."""
