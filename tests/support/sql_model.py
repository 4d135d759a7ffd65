"""A second, slow and simple reading of rules, to hold the quick one against.

It walks the tree for every message and shares no code with the functions it checks: kinds by isinstance, exact
fractions for whole numbers, LIKE by trying every way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from fractions import Fraction
from typing import Any
from uuid import UUID

from twinbus.amqp.codec.types import Timestamp, ULong
from twinbus.broker.filters.syntax import (
    And,
    Chain,
    Comparison,
    Constant,
    Exists,
    In,
    IsNull,
    Like,
    NamedProperty,
    Not,
    Or,
    Property,
    Signed,
)


class Wrong(Exception):
    """The model says that this rule cannot be evaluated on this message."""


class Model:
    def __init__(self, user: Mapping[str, Any], system: Mapping[str, Any]) -> None:
        self._user = {name.lower(): value for name, value in user.items()}
        self._system = system

    def answer(self, node: Any) -> bool | None:
        match node:
            case And(parts):
                return self._first_of(parts, False)
            case Or(parts):
                return self._first_of(parts, True)
            case Not(operand):
                inner = self.answer(operand)
                return None if inner is None else not inner
            case Exists(what):
                return self._find(what)[0]
            case IsNull(what, negated):
                return (self._find(what)[1] is None) != negated
            case Comparison(sign, left, right):
                return compared(self.value(left), sign, self.value(right))
            case In(left, items, negated):
                return self._in(self.value(left), items, negated)
            case Like(left, pattern, escape, negated):
                operands = [self.value(part) for part in (left, pattern, escape) if part is not None]
                return None if None in operands else likened(*operands) != negated
        raise AssertionError(node)

    def _first_of(self, parts: tuple[Any, ...], decisive: bool) -> bool | None:
        seen: list[bool | None] = []
        for part in parts:
            seen.append(self.answer(part))
            if seen[-1] is decisive:
                return decisive
        return None if None in seen else not decisive

    def _in(self, value: Any, items: tuple[Any, ...], negated: bool) -> bool | None:
        if value is None:
            return None
        for item in items:
            if compared(value, "=", self.value(item)):
                return not negated
        return negated

    def _find(self, what: Property | NamedProperty) -> tuple[bool, Any]:
        if isinstance(what, Property):
            scope, name = what.scope, what.name
        else:
            made = self.value(what.name)
            if made is None:
                return False, None
            if not isinstance(made, str):
                raise Wrong
            scope, name = "user", made
        if scope == "sys":
            value = self._system.get(name)
            return value is not None, value
        return name.lower() in self._user, self._user.get(name.lower())

    def value(self, node: Any) -> Any:
        match node:
            case Constant(value):
                return value
            case Property() | NamedProperty():
                return self._find(node)[1]
            case Signed(sign, operand):
                value = self.value(operand)
                if value is None:
                    return None
                if kind(value) not in ("number", "duration"):
                    raise Wrong
                if sign == "+":
                    return value
                return -value if isinstance(value, float | timedelta) else ranged(-int(value), False)
            case Chain(first, rest):
                result = self.value(first)
                for sign, operand in rest:
                    result = calculated(result, sign, self.value(operand))
                return result
        raise AssertionError(node)


def kind(value: Any) -> str:
    for name, types in (
        ("boolean", bool),
        ("time", Timestamp),
        ("number", int | float),
        ("text", str),
        ("uuid", UUID),
        ("duration", timedelta),
    ):
        if isinstance(value, types):
            return name
    raise AssertionError(value)


def compared(left: Any, sign: str, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    if kind(left) != kind(right) or (sign not in ("=", "<>") and kind(left) in ("boolean", "uuid")):
        raise Wrong
    if kind(left) == "number" and (isinstance(left, float) or isinstance(right, float)):
        left, right = float(left), float(right)
    less, same, more = left < right if kind(left) != "uuid" else False, left == right, False
    if kind(left) != "uuid":
        more = left > right
    answers: dict[str, bool] = {"=": same, "<>": not same, "<": less, ">": more, "<=": less or same, ">=": more or same}
    return answers[sign]


def calculated(left: Any, sign: str, right: Any) -> Any:
    if left is None or right is None:
        return None
    kinds = (kind(left), kind(right))
    if kinds == ("number", "number"):
        if isinstance(left, float) or isinstance(right, float):
            return floating(float(left), sign, float(right))
        return whole(int(left), sign, int(right), ULong in (type(left), type(right)))
    if sign == "+" and "text" in kinds:
        return written(left) + written(right)
    if kinds == ("duration", "duration") and sign in ("+", "-"):
        return left + right if sign == "+" else left - right
    if kinds == ("time", "time") and sign == "-":
        return timedelta(milliseconds=int(left) - int(right))
    if kinds == ("time", "duration") and sign in ("+", "-"):
        shift = right // timedelta(milliseconds=1)
        return Timestamp(int(left) + (shift if sign == "+" else -shift))
    if kinds == ("duration", "time") and sign == "+":
        return Timestamp(int(right) + left // timedelta(milliseconds=1))
    raise Wrong


def whole(left: int, sign: str, right: int, unsigned: bool) -> int:
    if sign in ("/", "%") and right == 0:
        raise Wrong
    if sign in ("/", "%"):
        quotient = math.trunc(Fraction(left, right))
        result = quotient if sign == "/" else left - quotient * right
    else:
        result = {"+": left + right, "-": left - right, "*": left * right}[sign]
    return ranged(result, unsigned)


def ranged(number: int, unsigned: bool) -> int:
    if -(2**63) <= number < 2**63:
        return number
    if unsigned and 0 <= number < 2**64:
        return ULong(number)
    raise Wrong


def floating(left: float, sign: str, right: float) -> float:
    match sign:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/" if right == 0:
            if left == 0 or math.isnan(left):
                return math.nan
            return math.inf if (left > 0) == (math.copysign(1, right) > 0) else -math.inf
        case "/":
            return left / right
        case _:
            return math.nan if right == 0 or math.isinf(left) else math.fmod(left, right)


def written(value: Any) -> str:
    if isinstance(value, str | UUID):
        return str(value)
    if isinstance(value, bool):
        return str(value)
    if kind(value) != "number":
        raise Wrong
    if isinstance(value, float) and not (value.is_integer() and abs(value) < 1e15):
        return repr(value)
    return str(int(value))


def likened(text: Any, pattern: Any, escape: Any = None) -> bool:
    if not all(isinstance(part, str) for part in (text, pattern)) or not isinstance(escape, str | None):
        raise Wrong
    if escape is not None and len(escape) != 1:
        raise Wrong
    return _fits(text, _symbols(pattern, escape))


def _symbols(pattern: str, escape: str | None) -> list[tuple[bool, str]]:
    symbols, taken = [], False
    for character in pattern:
        if taken:
            symbols.append((False, character))
            taken = False
        elif character == escape:
            taken = True
        else:
            symbols.append((character in "%_", character))
    if taken:
        raise Wrong
    return symbols


def _fits(text: str, symbols: list[tuple[bool, str]]) -> bool:
    if not symbols:
        return not text
    (wild, symbol), rest = symbols[0], symbols[1:]
    if wild and symbol == "%":
        return any(_fits(text[skipped:], rest) for skipped in range(len(text) + 1))
    return bool(text) and (wild or text[0] == symbol) and _fits(text[1:], rest)
