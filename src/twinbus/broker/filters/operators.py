"""The operators, as in C#: numbers widen, texts join, times differ by durations, and nothing else mixes.

None is both unknown and null: it makes every result unknown.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from twinbus.amqp.codec.types import Timestamp, ULong, Value
from twinbus.broker.filters.rule_errors import FilterError
from twinbus.broker.filters.value_types import (
    INT64_MAX,
    INT64_MIN,
    KINDS,
    UINT64_MAX,
    ValueKind,
    as_text,
    kind_of,
    milliseconds,
)

JOINED_LENGTH_MAX: Final = 32 * 1024
"""The limit of a joined text, in characters: no property could hold more."""

COMPARISONS: Final[dict[str, Callable[[Value, Value], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

_ORDERED: Final = {ValueKind.NUMBER, ValueKind.TEXT, ValueKind.TIME, ValueKind.DURATION}
_EQUATED: Final = _ORDERED | {ValueKind.BOOLEAN, ValueKind.UUID, ValueKind.BINARY}


def compare(sign: str, left: Value, right: Value) -> bool | None:
    """Whether the comparison holds; None if a side is unknown; raises `FilterError` for kinds that do not compare."""
    if left is None or right is None:
        return None
    kind = KINDS.get(type(left), ValueKind.OTHER)
    if kind is not kind_of(right) or kind not in (_EQUATED if sign in ("=", "<>") else _ORDERED):
        raise FilterError(f"cannot compare {kind} with {kind_of(right)} by {sign}")
    if kind is ValueKind.NUMBER and isinstance(left, float) is not isinstance(right, float):
        left, right = float(left), float(right)  # as C# widens: beyond 2**53 neighbours are equal
    return COMPARISONS[sign](left, right)


def calculate(sign: str, left: Value, right: Value) -> Value:
    """The result of `+ - * / %`; None if a side is unknown; raises `FilterError` if there is no result."""
    if left is None or right is None:
        return None
    kinds = (kind_of(left), kind_of(right))
    try:
        if kinds == (ValueKind.NUMBER, ValueKind.NUMBER):
            return _calculate_numbers(sign, left, right)
        if sign == "+" and ValueKind.TEXT in kinds:
            return _join(as_text(left), as_text(right))
        if sign in _TIMES:
            calculate_times = _TIMES[sign].get(kinds)
            if calculate_times is not None:
                return calculate_times(left, right)
    except OverflowError:
        raise FilterError(f"the duration that {sign} gives is too long") from None
    raise FilterError(f"cannot apply {sign} to {kinds[0]} and {kinds[1]}")


def apply_sign(sign: str, value: Value) -> Value:
    """The value with a sign in front."""
    if value is None:
        return None
    kind = kind_of(value)
    if kind not in (ValueKind.NUMBER, ValueKind.DURATION):
        raise FilterError(f"cannot put {sign} in front of {kind}")
    if sign == "+":
        return value
    if kind is ValueKind.DURATION:
        return calculate("-", timedelta(), value)
    return -value if isinstance(value, float) else _fit_64_bits(-value, may_be_unsigned=False)


def _join(left: str, right: str) -> str:
    if len(left) + len(right) > JOINED_LENGTH_MAX:
        raise FilterError(f"a joined text is longer than {JOINED_LENGTH_MAX} characters")
    return left + right


# --- numbers ---------------------------------------------------------------------------------------


def _calculate_numbers(sign: str, left: Value, right: Value) -> Value:
    if isinstance(left, float) or isinstance(right, float):
        return _FLOATING[sign](float(left), float(right))
    if right == 0 and sign in "/%":
        raise FilterError("division by zero")
    return _fit_64_bits(_WHOLE[sign](int(left), int(right)), may_be_unsigned=ULong in (type(left), type(right)))


def _fit_64_bits(number: int, *, may_be_unsigned: bool) -> int:
    if INT64_MIN <= number <= INT64_MAX:
        return int(number)
    if may_be_unsigned and 0 <= number <= UINT64_MAX:
        return ULong(number)
    raise FilterError("the result does not fit in 64 bits")


def _divide_whole(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)  # towards zero, where Python's // goes down
    return quotient if (left < 0) is (right < 0) else -quotient


def _remainder_whole(left: int, right: int) -> int:
    return left - right * _divide_whole(left, right)


def _divide_floats(left: float, right: float) -> float:
    if right:
        return left / right
    return math.nan if math.isnan(left) or not left else math.copysign(math.inf, left) * math.copysign(1.0, right)


def _remainder_floats(left: float, right: float) -> float:
    return math.nan if math.isinf(left) or not right else math.fmod(left, right)


_WHOLE: Final[dict[str, Callable[[int, int], int]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide_whole,
    "%": _remainder_whole,
}
_FLOATING: Final[dict[str, Callable[[float, float], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide_floats,
    "%": _remainder_floats,
}

# --- times -----------------------------------------------------------------------------------------


def _shift(time: int, by_ms: int) -> Timestamp:
    return Timestamp(_fit_64_bits(int(time) + by_ms, may_be_unsigned=False))


_TIMES: Final[dict[str, dict[tuple[ValueKind, ValueKind], Callable[[Value, Value], Value]]]] = {
    "+": {
        (ValueKind.TIME, ValueKind.DURATION): lambda time, duration: _shift(time, milliseconds(duration)),
        (ValueKind.DURATION, ValueKind.TIME): lambda duration, time: _shift(time, milliseconds(duration)),
        (ValueKind.DURATION, ValueKind.DURATION): operator.add,
    },
    "-": {
        (ValueKind.TIME, ValueKind.TIME): lambda left, right: timedelta(milliseconds=int(left) - int(right)),
        (ValueKind.TIME, ValueKind.DURATION): lambda time, duration: _shift(time, -milliseconds(duration)),
        (ValueKind.DURATION, ValueKind.DURATION): operator.sub,
    },
}
