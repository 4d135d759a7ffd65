"""Values as a rule sees them: few kinds, made from the many types that a message can carry."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from twinbus.amqp.values import (
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
from twinbus.namespace.sql.failures import FilterError, SqlError


class Kind(StrEnum):
    """What a value is; a member's text is how errors call it."""

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

KINDS: Final[dict[type, Kind]] = (
    {type(None): Kind.NULL, bool: Kind.BOOLEAN, uuid.UUID: Kind.UUID, Timestamp: Kind.TIME, timedelta: Kind.DURATION}
    | dict.fromkeys(INTEGERS, Kind.NUMBER)
    | dict.fromkeys(FLOATS, Kind.NUMBER)
    | dict.fromkeys((str, Symbol, Char), Kind.TEXT)
    | {bytes: Kind.BINARY}
)

INT64_MIN, INT64_MAX, UINT64_MAX = -(2**63), 2**63 - 1, 2**64 - 1

_TICKS_PER_MICROSECOND = 10
_TICKS_PER_MILLISECOND = 10_000
_TICKS_TO_1970 = 621_355_968_000_000_000
_TIMESPAN = Symbol("com.microsoft:timespan")
_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def kind_of(value: Value) -> Kind:
    return KINDS.get(type(value), Kind.OTHER)


def plain(value: Value) -> Value:
    """The value of a property of an unusual type, in a kind that rules know if there is one.

    One vendor library sends a duration, a time with an offset or an address as a described value.
    """
    if type(value) is not Described:
        return value
    match value:
        case Described("com.microsoft:timespan", int(ticks)):
            return _duration(ticks, otherwise=value)
        case Described("com.microsoft:datetime-offset", int(ticks)):
            return Timestamp((ticks - _TICKS_TO_1970) // _TICKS_PER_MILLISECOND)
        case Described("com.microsoft:uri", str(address)):
            return address
        case _:
            return value


def _duration(ticks: int, otherwise: Value) -> Value:
    try:
        return timedelta(microseconds=ticks // _TICKS_PER_MICROSECOND)
    except OverflowError:
        return otherwise


def for_the_wire(value: Value) -> Value:
    """The value as it can be stored in a message: AMQP has no type for a duration."""
    if type(value) is timedelta:
        return Described(_TIMESPAN, Long(value // timedelta(microseconds=1) * _TICKS_PER_MICROSECOND))
    return value


def milliseconds(duration: timedelta) -> int:
    return duration // _MILLISECOND


def parameter_value(name: str, value: object) -> Value:
    """The value of a parameter as a rule sees it; raises `SqlError` for a type that no parameter can have."""
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return Timestamp(milliseconds(aware - _EPOCH))
    if kind_of(value) in (Kind.NULL, Kind.BINARY, Kind.OTHER):
        raise SqlError(f"parameter {name} has a value of type {type(value).__name__}, which rules do not know")
    if type(value) is int and not INT64_MIN <= value <= INT64_MAX:
        raise SqlError(f"parameter {name} does not fit in 64 bits")
    return value


def as_text(value: Value) -> str:
    """The value written out, as where a text is joined with something else."""
    match kind_of(value):
        case Kind.TEXT:
            return str(value)
        case Kind.BOOLEAN:
            return "True" if value else "False"
        case Kind.NUMBER if isinstance(value, int):
            return str(int(value))
        case Kind.NUMBER:
            return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(float(value))
        case Kind.UUID:
            return str(value)
        case kind:
            raise FilterError(f"{kind} cannot be made a text")
