"""Values as rules see them: a few kinds, from the many types that a message can carry."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, assert_never

from twinbus.amqp.codec.types import (
    Byte,
    Char,
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
)
from twinbus.broker.filters.rule_errors import FilterError, SqlError


class ValueKind(StrEnum):
    """The text of a member is its name in errors."""

    NULL = "null"
    BOOLEAN = "a boolean"
    NUMBER = "a number"
    TEXT = "a text"
    UUID = "a uuid"
    TIME = "a time"
    DURATION = "a duration"
    BINARY = "binary data"
    OTHER = "a value of another kind"


INTEGERS: Final = (int, UByte, UShort, UInt, ULong, Byte, Short, Int, Long)
FLOATS: Final = (float, Float32)

KINDS: Final[dict[type, ValueKind]] = (
    {
        type(None): ValueKind.NULL,
        bool: ValueKind.BOOLEAN,
        uuid.UUID: ValueKind.UUID,
        Timestamp: ValueKind.TIME,
        timedelta: ValueKind.DURATION,
    }
    | dict.fromkeys(INTEGERS, ValueKind.NUMBER)
    | dict.fromkeys(FLOATS, ValueKind.NUMBER)
    | dict.fromkeys((str, Symbol, Char), ValueKind.TEXT)
    | {bytes: ValueKind.BINARY}
)

INT64_MIN, INT64_MAX, UINT64_MAX = -(2**63), 2**63 - 1, 2**64 - 1

_TICKS_PER_MICROSECOND = 10
_TICKS_PER_MILLISECOND = 10_000
_TICKS_TO_1970 = 621_355_968_000_000_000
_TIMESPAN = Symbol("com.microsoft:timespan")
_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def kind_of(value: Value) -> ValueKind:
    return KINDS.get(type(value), ValueKind.OTHER)


def plain(value: Value) -> Value:
    """The value of a described type as a kind that rules know, if possible.

    One official library sends durations, times with an offset and URIs as described values.
    """
    if type(value) is not Described:
        return value
    match value:
        case Described("com.microsoft:timespan", int(ticks)):
            try:
                return timedelta(microseconds=ticks // _TICKS_PER_MICROSECOND)
            except OverflowError:
                return value
        case Described("com.microsoft:datetime-offset", int(ticks)):
            return Timestamp((ticks - _TICKS_TO_1970) // _TICKS_PER_MILLISECOND)
        case Described("com.microsoft:uri", str(address)):
            return address
        case _:
            return value


def for_the_wire(value: Value) -> Value:
    """The value as a message can carry it: AMQP has no type for a duration."""
    if type(value) is timedelta:
        return Described(_TIMESPAN, Long(value // timedelta(microseconds=1) * _TICKS_PER_MICROSECOND))
    return value


def milliseconds(duration: timedelta) -> int:
    return duration // _MILLISECOND


def parameter_value(name: str, value: object) -> Value:
    """The value of a parameter as rules see it; raises `SqlError` for an unsupported type."""
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return Timestamp(milliseconds(aware - _EPOCH))
    if kind_of(value) in (ValueKind.NULL, ValueKind.BINARY, ValueKind.OTHER):
        raise SqlError(f"parameter {name} has a value of type {type(value).__name__}, which rules do not know")
    if type(value) is int and not INT64_MIN <= value <= INT64_MAX:
        raise SqlError(f"parameter {name} does not fit in 64 bits")
    return value


def as_text(value: Value) -> str:
    """The value as text, as when a text is joined with something else."""
    match kind_of(value):
        case ValueKind.TEXT:
            return str(value)
        case ValueKind.BOOLEAN:
            return "True" if value else "False"
        case ValueKind.NUMBER if isinstance(value, int):
            return str(int(value))
        case ValueKind.NUMBER:
            return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(float(value))
        case ValueKind.UUID:
            return str(value)
        case ValueKind.NULL | ValueKind.TIME | ValueKind.DURATION | ValueKind.BINARY | ValueKind.OTHER as kind:
            raise FilterError(f"{kind} cannot be converted to text")
        case _ as never:
            assert_never(never)
