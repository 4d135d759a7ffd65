"""AMQP 1.0 values: Python value <-> bytes, without loss.

| AMQP                                   | Python                                              |
|----------------------------------------|-----------------------------------------------------|
| null, boolean, string, binary, uuid    | None, bool, str, bytes, uuid.UUID                   |
| double, float                          | float, Float32                                      |
| ubyte, ushort, uint, ulong             | UByte, UShort, UInt, ULong                          |
| byte, short, int, long                 | Byte, Short, Int, Long (a plain int is sent as long) |
| timestamp                              | Timestamp: milliseconds                             |
| char, symbol                           | Char, Symbol                                        |
| decimal32, decimal64, decimal128       | Decimal32, Decimal64, Decimal128: their raw bytes   |
| list, map, array, described            | list, dict, Array, Described                        |
"""

from twinbus.amqp.decoding import Buffer, decode, skip
from twinbus.amqp.encoding import Array, encode, encode_into
from twinbus.amqp.values import (
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
    Value,
    text_of,
)

__all__ = [
    "Array",
    "Buffer",
    "Byte",
    "Char",
    "Decimal32",
    "Decimal64",
    "Decimal128",
    "Described",
    "Float32",
    "Int",
    "Long",
    "Short",
    "Symbol",
    "Timestamp",
    "UByte",
    "UInt",
    "ULong",
    "UShort",
    "Value",
    "decode",
    "encode",
    "encode_into",
    "skip",
    "text_of",
]
