"""Write a tree as text; parsing the text gives the same tree."""

from __future__ import annotations

from typing import assert_never

from twinbus.broker.filters.syntax import (
    And,
    Chain,
    Comparison,
    Constant,
    Exists,
    Expression,
    In,
    IsNull,
    Like,
    NamedProperty,
    NewId,
    Not,
    Or,
    ParameterRef,
    Predicate,
    Property,
    Signed,
)
from twinbus.broker.filters.tokenizer import is_keyword, is_regular


def write(node: Expression | Predicate) -> str:
    """A condition or a value."""
    return _write_condition(node) if isinstance(node, Predicate) else _write_value(node)


def _write_condition(node: Predicate) -> str:
    match node:
        case Comparison(sign, left, right):
            return f"{_write_value(left)} {sign} {_write_value(right)}"
        case IsNull(what, negated):
            return f"{_write_value(what)} IS {'NOT ' * negated}NULL"
        case In(left, items, negated):
            return f"{_write_value(left)} {'NOT ' * negated}IN ({', '.join(map(_write_value, items))})"
        case Like(left, pattern, escape, negated):
            end = "" if escape is None else f" ESCAPE {_write_value(escape)}"
            return f"{_write_value(left)} {'NOT ' * negated}LIKE {_write_value(pattern)}{end}"
        case Exists(what):
            return f"EXISTS({_write_value(what)})"
        case Not(operand):
            return f"NOT {_within(operand, And, Or)}"
        case And(parts):
            return " AND ".join(_within(part, And, Or) for part in parts)
        case Or(parts):
            return " OR ".join(_within(part, Or) for part in parts)
        case _:
            assert_never(node)


def _within(node: Predicate, *weaker: type) -> str:
    written = _write_condition(node)
    return f"({written})" if isinstance(node, weaker) else written


def _write_value(node: Expression) -> str:
    match node:
        case Constant(value):
            return _write_constant(value)
        case ParameterRef(name):
            return f"@{name}"
        case Property("sys", name):
            return f"sys.{_write_name(name)}"
        case Property(_, name):
            return _write_name(name)
        case NamedProperty(name_value):
            return f"property({_write_value(name_value)})"
        case NewId():
            return "newid()"
        case Signed(sign, operand):
            return f"{sign} {_operand(operand)}"
        case Chain(first, rest):
            is_sum = not _is_product(node)
            return _operand(first, is_sum) + "".join(f" {sign} {_operand(operand, is_sum)}" for sign, operand in rest)
        case _:
            assert_never(node)


def _operand(node: Expression, in_sum: bool = False) -> str:
    written = _write_value(node)
    stands_alone = not isinstance(node, Chain) or (in_sum and _is_product(node))
    return written if stands_alone else f"({written})"


def _is_product(chain: Chain) -> bool:
    return chain.rest[0][0] in ("*", "/", "%")


def _write_constant(value: bool | float | str | None) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
    return repr(value)


def _write_name(name: str) -> str:
    return name if is_regular(name) and not is_keyword(name) else "[" + name.replace("]", "]]") + "]"
