"""AMQP values as a type and a text: what a column of Spark can hold, and what comes back from it is the same value.

Numbers and truth values are written as Python writes them, a timestamp as milliseconds since 1970, bytes in base64.
What has no simple type (a list, a map, an array, a described value) is `amqp`: its encoding, in base64.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable

from twinbus.amqp.codec.decoding import decode
from twinbus.amqp.codec.encoding import encode
from twinbus.amqp.codec.types import (
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
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
    Value,
)
from twinbus.errors import DecodeError, OptionsError

_BYTES = {"binary": bytes, "decimal32": Decimal32, "decimal64": Decimal64, "decimal128": Decimal128}
_BYTES_LENGTHS = {"decimal32": 4, "decimal64": 8, "decimal128": 16}
_NUMBERS: dict[str, tuple[type[int], int, int]] = {
    "ubyte": (UByte, 0, 2**8 - 1),
    "ushort": (UShort, 0, 2**16 - 1),
    "uint": (UInt, 0, 2**32 - 1),
    "ulong": (ULong, 0, 2**64 - 1),
    "byte": (Byte, -(2**7), 2**7 - 1),
    "short": (Short, -(2**15), 2**15 - 1),
    "int": (Int, -(2**31), 2**31 - 1),
    "long": (Long, -(2**63), 2**63 - 1),
    "timestamp": (Timestamp, -(2**63), 2**63 - 1),
}
_NAMES: dict[type, str] = {
    bool: "boolean",
    int: "long",
    float: "double",
    Float32: "float",
    str: "string",
    Symbol: "symbol",
    Char: "char",
    uuid.UUID: "uuid",
    **{kind: name for name, (kind, _, _) in _NUMBERS.items()},
    **{kind: name for name, kind in _BYTES.items()},
}
_OTHER = "amqp"


def to_text(value: Value) -> tuple[str, str | None]:
    """Type and text; null has no text."""
    if value is None:
        return "null", None
    name = _NAMES.get(type(value), _OTHER)
    if name == _OTHER:
        return name, base64.b64encode(encode(value)).decode()
    if name in _BYTES:
        return name, base64.b64encode(value).decode()
    if name == "boolean":
        return name, "true" if value else "false"
    return name, repr(float(value)) if name in ("float", "double") else str(value)


def from_text(name: str, text: str | None) -> Value:
    """The value. Raises `OptionsError` saying what is wrong with the type or the text."""
    if name == "null":
        return None
    read = _READERS.get(name)
    if read is None:
        raise OptionsError(f"{name!r} is not an AMQP type: use one of {', '.join(sorted([*_READERS, 'null']))}")
    if text is None:
        raise OptionsError(f"a value of type {name} needs a text")
    try:
        return read(text)
    except (ValueError, KeyError, DecodeError):
        raise OptionsError(f"{text!r:.60} is not a valid {name}") from None


def _number(kind: type[int], low: int, high: int) -> Callable[[str], Value]:
    def read(text: str) -> Value:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(text)
        return kind(value)

    return read


def _refuse(text: str) -> Value:
    raise ValueError(text)


def _bytes(name: str) -> Callable[[str], Value]:
    def read(text: str) -> Value:
        content = base64.b64decode(text, validate=True)
        if len(content) != _BYTES_LENGTHS.get(name, len(content)):
            raise ValueError(text)
        return _BYTES[name](content)

    return read


def _encoded(text: str) -> Value:
    content = base64.b64decode(text, validate=True)
    value, end = decode(content, 0)
    return value if end == len(content) else _refuse(text)


_READERS: dict[str, Callable[[str], Value]] = {
    **{name: _number(*facts) for name, facts in _NUMBERS.items()},
    **{name: _bytes(name) for name in _BYTES},
    "boolean": lambda text: {"true": True, "false": False}[text.lower()],
    "double": float,
    "float": lambda text: Float32(float(text)),
    "string": str,
    "symbol": Symbol,
    "char": lambda text: Char(text) if len(text) == 1 else _refuse(text),
    "uuid": uuid.UUID,
    _OTHER: _encoded,
}
