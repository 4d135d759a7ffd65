"""The types of AMQP 1.0 in Python: small classes name an AMQP type where Python has none.

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

Every class behaves like the plain value it extends (`UInt(5) == 5`, `Symbol("a") == "a"`), so code that only reads
never has to unwrap. What a class adds is the type on the wire, which a broker must keep.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple, TypeAlias

Value: TypeAlias = Any
"""Any Python value that has an AMQP type: see the table above."""


def text_of(name: Value) -> str:
    """An id or a session as people read it; empty if there is none.

    Bytes are text where they can be: the official Python client sends on what it received with bytes for texts.
    """
    if isinstance(name, bytes):
        try:
            return name.decode()
        except UnicodeDecodeError:
            return name.hex()
    return "" if name is None else str(name)


class _Number(int):
    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"

    __str__ = int.__repr__


class UByte(_Number):
    __slots__ = ()  # 0 to 2**8 - 1


class UShort(_Number):
    __slots__ = ()  # 0 to 2**16 - 1


class UInt(_Number):
    __slots__ = ()  # 0 to 2**32 - 1


class ULong(_Number):
    __slots__ = ()  # 0 to 2**64 - 1


class Byte(_Number):
    __slots__ = ()  # -2**7 to 2**7 - 1


class Short(_Number):
    __slots__ = ()  # -2**15 to 2**15 - 1


class Int(_Number):
    __slots__ = ()  # -2**31 to 2**31 - 1


class Long(_Number):
    __slots__ = ()  # -2**63 to 2**63 - 1; a plain int is sent as one


class Timestamp(_Number):
    __slots__ = ()  # milliseconds since 1970-01-01 UTC, negative before it


class Float32(float):
    __slots__ = ()  # four bytes on the wire; a plain float has eight


class Char(str):
    __slots__ = ()  # one Unicode character


class Symbol(str):
    __slots__ = ()  # a name that both peers know


class Decimal32(bytes):
    __slots__ = ()  # four bytes of IEEE 754 decimal, carried as they are


class Decimal64(bytes):
    __slots__ = ()  # eight bytes


class Decimal128(bytes):
    __slots__ = ()  # sixteen bytes


class Described(NamedTuple):
    """A value with the descriptor that says what it means."""

    descriptor: Value
    value: Value


class Repeated(Sequence[Value]):
    """The same item `length` times, in the room of one.

    An array of a zero-width type is nine bytes on the wire whatever its count; it must not become a big tuple here.
    """

    __slots__ = ("item", "length")

    def __init__(self, item: Value, length: int) -> None:
        self.item = item
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Value]:
        return repeat(self.item, self.length)

    def __getitem__(self, index: int | slice) -> Value:
        chosen = range(self.length)[index]  # an IndexError as from any sequence of this length
        return self.item if isinstance(chosen, int) else Repeated(self.item, len(chosen))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Repeated) and (self.item, self.length) == (other.item, other.length)

    def __hash__(self) -> int:
        return hash((self.item, self.length))

    def __repr__(self) -> str:
        return f"Repeated({self.item!r}, {self.length})"
