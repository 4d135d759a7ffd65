"""Rules in requests to `<subscription>/$management`: as maps on their way in, as described lists on their way out."""

from __future__ import annotations

from typing import Any, assert_never

from twinbus.amqp.codec.types import Described, Int, Timestamp, UByte, ULong
from twinbus.broker.entities.topics.rules import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    NamedValues,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
    TypedValue,
)
from twinbus.errors import ArgumentError

_RULE, _EMPTY_ACTION, _SQL_ACTION = 0x13700000004, 0x13700000005, 0x13700000006
_SQL_FILTER, _TRUE_FILTER, _FALSE_FILTER, _CORRELATION_FILTER = 0x1370000006, 0x1370000007, 0x1370000008, 0x1370000009
_COMPATIBILITY = UByte(20)
_CORRELATION_TEXTS = tuple(name for name in CorrelationFilter._fields if name != "properties")

# --- in -----------------------------------------------------------------------------------------------


def rule_name(body: dict[Any, Any]) -> str:
    name = body.get("rule-name")
    if not isinstance(name, str):
        raise ArgumentError("rule-name must be a string")
    return name


def read_rule(body: dict[Any, Any]) -> Rule:
    """The rule in a request; raises `ArgumentError` if it has none."""
    description = body.get("rule-description")
    if not isinstance(description, dict):
        raise ArgumentError("rule-description must be a map")
    action = _part(description, "sql-rule-action")
    changes = None if not action else SqlAction(_expression(action), _values(action, "parameters"))
    return Rule(rule_name(body), _filter(description), changes)


def _part(description: dict[Any, Any], name: str) -> dict[Any, Any] | None:
    part = description.get(name)
    if part is not None and not isinstance(part, dict):
        raise ArgumentError(f"{name} must be a map")
    return part


def _filter(description: dict[Any, Any]) -> Filter:
    condition, correlation = _part(description, "sql-filter"), _part(description, "correlation-filter")
    if condition is not None:
        return SqlFilter(_expression(condition), _values(condition, "parameters"))
    if correlation is not None:
        texts = {name: read_text(correlation, name.replace("_", "-")) for name in _CORRELATION_TEXTS}
        return CorrelationFilter(**texts, properties=_values(correlation, "properties"))
    if _part(description, "false-filter") is not None:
        return FalseFilter()
    if _part(description, "true-filter") is not None:
        return TrueFilter()
    raise ArgumentError("a rule-description needs a sql-filter, a correlation-filter, a true-filter or a false-filter")


def _expression(part: dict[Any, Any]) -> str:
    expression = part.get("expression")
    if not isinstance(expression, str) or not expression.strip():
        raise ArgumentError("an expression must be a string that is not empty")
    return expression


def read_text(part: dict[Any, Any], name: str) -> str | None:
    """A field that is a string; None if it is missing or null."""
    text = part.get(name)
    if text is not None and not isinstance(text, str):
        raise ArgumentError(f"{name} must be a string, got {type(text).__name__}")
    return None if text is None else str(text)


def _values(part: dict[Any, Any], name: str) -> NamedValues:
    values = part.get(name) or {}
    if not isinstance(values, dict):
        raise ArgumentError(f"{name} must be a map")
    return tuple((str(key), _typed(str(key), value)) for key, value in values.items())


def _typed(name: str, value: Any) -> TypedValue:
    match value:
        case bool():
            return TypedValue("boolean", value)
        case Timestamp():
            return TypedValue("dateTime", int(value))
        case int():
            return TypedValue("int" if isinstance(value, Int) else "long", int(value))
        case float():
            return TypedValue("double", float(value))
        case str():
            return TypedValue("string", str(value))
        case _:
            raise ArgumentError(f"the value of {name!r:.60} has a type that rules do not know")


# --- out ----------------------------------------------------------------------------------------------


def write_rule(rule: Rule) -> Described:
    """A rule as the answer to `enumerate-rules` has it; its action is never null."""
    action = Described(ULong(_EMPTY_ACTION), [])
    if rule.action is not None:
        action = Described(ULong(_SQL_ACTION), [rule.action.expression, _COMPATIBILITY])
    return Described(ULong(_RULE), [_write_filter(rule.filter), action, rule.name, Timestamp(rule.created_at_ms)])


def _write_filter(given: Filter) -> Described:
    match given:
        case TrueFilter():
            return Described(ULong(_TRUE_FILTER), [])
        case FalseFilter():
            return Described(ULong(_FALSE_FILTER), [])
        case SqlFilter(expression=expression):
            return Described(ULong(_SQL_FILTER), [expression, _COMPATIBILITY])
        case CorrelationFilter():
            properties = {name: _plain(value) for name, value in given.properties}
            return Described(ULong(_CORRELATION_FILTER), [*given[:-1], properties])
        case _:
            assert_never(given)


def _plain(typed: TypedValue) -> Any:
    if typed.kind == "dateTime":
        return Timestamp(typed.value)
    return Int(typed.value) if typed.kind == "int" else typed.value
