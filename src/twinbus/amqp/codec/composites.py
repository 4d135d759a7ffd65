"""Described lists: the shape of every performative, outcome, terminus, error and SASL frame body.

A frozen dataclass names the fields; `@described` adds the code and the AMQP type of each field. All classes are coded
from that table. Transfers and dispositions, which are sent per message, have a faster codec in `frame_codec`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from twinbus.amqp.codec.decoding import decode
from twinbus.amqp.codec.encoding import Array, encode
from twinbus.amqp.codec.types import Described, Symbol, UByte, UInt, ULong, UShort
from twinbus.errors import DecodeError

T = TypeVar("T")


class FieldType(NamedTuple):
    """How a non-null field is written and read; `read` raises DecodeError for a wrong type."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


class Shape(NamedTuple):
    """A class with its code and fields; lists are written with at least `count_min` elements."""

    cls: type
    code: int
    names: tuple[str, ...]
    types: tuple[FieldType, ...]
    required: frozenset[str]
    count_min: int


SHAPES: dict[type, Shape] = {}
SHAPES_BY_CODE: dict[int, Shape] = {}
CODES_BY_SYMBOL: dict[str, int] = {}


def described(code: int, symbol: str, *types: FieldType, count_min: int | None = None) -> Callable[[type[T]], type[T]]:
    """Give a dataclass its descriptor and field types. By default all fields are written, nulls too: older official
    Python clients read fields by position without checking the count."""

    def register(cls: type[T]) -> type[T]:
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]
        required = frozenset(field.name for field in fields if field.default is dataclasses.MISSING)
        names = tuple(field.name for field in fields)
        shape = Shape(cls, code, names, types, required, len(names) if count_min is None else count_min)
        SHAPES[cls] = SHAPES_BY_CODE[code] = shape
        CODES_BY_SYMBOL[symbol] = code
        return cls

    return register


def encode_composite(value: Any) -> bytes:
    """The bytes of a described list, from `00 53 code` on."""
    return encode(to_described(value))


def decode_composite(body: bytes) -> Any:
    """The object in `body`. Raises DecodeError if it is malformed or bytes follow it."""
    value, end = decode(body, 0)
    if end != len(body):
        raise DecodeError(f"{len(body) - end} bytes follow the performative at offset {end}")
    return read_composite(value)


def read_descriptor(body: bytes) -> tuple[int, int]:
    """The code of the described value at the start of `body`, and where the value starts."""
    if body.startswith(b"\x00\x53") and len(body) > 3:
        return body[2], 3
    if body[:1] != b"\x00":
        raise DecodeError("a frame body must start with a performative")
    descriptor, at = decode(body, 1)
    code = shape_code(descriptor)
    if code is None:
        raise DecodeError(f"unknown descriptor {_summary(descriptor)}")
    return code, at


def shape_code(descriptor: Any) -> int | None:
    """The code of a numeric or symbolic descriptor; None if it is neither."""
    if isinstance(descriptor, Symbol):
        return CODES_BY_SYMBOL.get(descriptor)
    return int(descriptor) if isinstance(descriptor, int) and not isinstance(descriptor, bool) else None


def to_described(value: Any) -> Described:
    """The described list that stands for an object."""
    shape = SHAPES[type(value)]
    fields = [
        None if (given := getattr(value, name)) is None else kind.write(given)
        for name, kind in zip(shape.names, shape.types, strict=True)
    ]
    while len(fields) > shape.count_min and fields[-1] is None:
        fields.pop()
    return Described(ULong(shape.code), fields)


def read_composite(value: Any) -> Any:
    """The object that a decoded described list stands for."""
    shape = SHAPES_BY_CODE.get(shape_code(value.descriptor) or 0) if isinstance(value, Described) else None
    if shape is None:
        raise DecodeError(f"not an AMQP composite: {_summary(value)}")
    return _build(shape, value.value)


def _build(shape: Shape, fields: Any) -> Any:
    name = shape.cls.__name__.lower()
    if type(fields) is not list or len(fields) > len(shape.names):
        raise DecodeError(f"{name} needs a list of at most {len(shape.names)} fields, got {_summary(fields)}")
    given = {}
    for field, kind, value in zip(shape.names, shape.types, fields, strict=False):
        if value is None:
            continue  # null means the default, as an omitted field does
        try:
            given[field] = kind.read(value)
        except DecodeError as error:
            raise DecodeError(f"{name}.{field}: {error}") from None
    missing = shape.required - given.keys()
    if missing:
        raise DecodeError(f"{name} lacks {', '.join(sorted(missing))}")
    return shape.cls(**given)


def _summary(value: Any) -> str:
    return repr(value)[:80]


def _as_is(value: Any) -> Any:
    return value


def _instance(*classes: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, classes):
            raise DecodeError(f"wrong type {type(value).__name__}")
        return value

    return read


def _unsigned(wire: type[int], high: int) -> FieldType:
    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= high:
            raise DecodeError(f"not a {wire.__name__.lower()}: {_summary(value)}")
        return int(value)

    return FieldType(wire, read)


def _read_symbols(value: Any) -> tuple[str, ...]:
    items = (value,) if isinstance(value, str) else value
    if not isinstance(value, (str, list, Array)) or not all(isinstance(item, str) for item in items):
        raise DecodeError(f"not symbols: {_summary(value)}")
    return tuple(items)


def nested(*classes: type) -> FieldType:
    """A field that holds one of these composites."""

    def read(value: Any) -> Any:
        found = read_composite(value)
        if not isinstance(found, classes):
            raise DecodeError(f"unexpected {type(found).__name__.lower()}")
        return found

    return FieldType(to_described, read)


ANY = FieldType(_as_is, _as_is)
BOOLEAN = FieldType(_as_is, _instance(bool))
UBYTE = _unsigned(UByte, 2**8 - 1)
USHORT = _unsigned(UShort, 2**16 - 1)
UINT = _unsigned(UInt, 2**32 - 1)
ULONG = _unsigned(ULong, 2**64 - 1)
STRING = FieldType(_as_is, _instance(str))
SYMBOL = FieldType(Symbol, _instance(str))
SYMBOLS = FieldType(lambda value: Array([Symbol(item) for item in value], 0xA3), _read_symbols)
BINARY = FieldType(_as_is, _instance(bytes))
MAP = FieldType(_as_is, _instance(dict))
