"""Descriptions of rules, read and written in the form that both official clients use.

One of them cuts the first five characters off a type, so its prefix has four; and it expects exactly the name `i:type`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, assert_never
from xml.etree.ElementTree import Element

from twinbus.broker.admin.fields import FLAG, WHOLE
from twinbus.broker.admin.settings_documents import excerpt, local_name
from twinbus.broker.admin.xml_text import INSTANCE, SERVICE_BUS, plain, tag
from twinbus.broker.entities.topics.rules import (
    KINDS,
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
from twinbus.units import has_zone, iso_duration, parse_iso_duration, parse_time_ms, utc_time_ms

SCHEMA = "http://www.w3.org/2001/XMLSchema"
COMPATIBILITY = "20"
VALUES_MAX = 100
CORRELATION_FIELDS = {
    "CorrelationId": "correlation_id",
    "MessageId": "message_id",
    "To": "to",
    "ReplyTo": "reply_to",
    "Label": "label",
    "SessionId": "session_id",
    "ReplyToSessionId": "reply_to_session_id",
    "ContentType": "content_type",
}
_VALUES: dict[str, tuple[Callable[[str], Any], Callable[[Any], str]]] = {
    "string": (str, str),
    "int": (WHOLE.read, str),
    "long": (WHOLE.read, str),
    "double": (float, repr),
    "boolean": (FLAG.read, FLAG.write),
    "dateTime": (parse_time_ms, utc_time_ms),
    "duration": (parse_iso_duration, iso_duration),
}
"""By type: how a value is read and written."""


# --- reading ------------------------------------------------------------------------------------------


def read_rule(description: Element, name: str) -> Rule:
    """The rule in a RuleDescription; raises `ArgumentError` if it is invalid. `name` is the one in the address."""
    found = {local_name(part): part for part in description}
    unknown = found.keys() - {"Filter", "Action", "CreatedAt", "Name"}
    if unknown:
        raise ArgumentError(f"{excerpt(min(unknown))} is not part of a rule that this version knows")
    return Rule(name, _filter_of(found.get("Filter")), _action_of(found.get("Action")))


def _filter_of(element: Element | None) -> Filter:
    if element is None:
        return TrueFilter()
    match _type_of(element):
        case "TrueFilter":
            return TrueFilter()
        case "FalseFilter":
            return FalseFilter()
        case "SqlFilter":
            return SqlFilter(_expression(element), _values_of(element, "Parameters"))
        case "CorrelationFilter":
            texts = {field: _text(element, name) for name, field in CORRELATION_FIELDS.items()}
            return CorrelationFilter(**texts, properties=_values_of(element, "Properties"))
        case other:
            known = "SqlFilter, TrueFilter, FalseFilter or CorrelationFilter"
            raise ArgumentError(f"a Filter must be a {known}, got {excerpt(other)}")


def _action_of(element: Element | None) -> SqlAction | None:
    match None if element is None else _type_of(element):
        case None | "EmptyRuleAction":
            return None
        case "SqlRuleAction" if element is not None:
            return SqlAction(_expression(element), _values_of(element, "Parameters"))
        case other:
            raise ArgumentError(f"an Action must be a SqlRuleAction or EmptyRuleAction, got {excerpt(other or '')}")


def _type_of(element: Element) -> str:
    """The type attribute of an element, without its namespace prefix."""
    return element.get(f"{{{INSTANCE}}}type", "").rpartition(":")[2]


def _text(element: Element, name: str) -> str | None:
    """The text of a child element; None if it is missing or empty."""
    return element.findtext(f"{{{SERVICE_BUS}}}{name}") or None


def _expression(element: Element) -> str:
    expression = _text(element, "SqlExpression")
    if expression is None or not expression.strip():
        raise ArgumentError("a SqlExpression must not be empty")
    return expression


def _values_of(element: Element, name: str) -> NamedValues:
    pairs = element.findall(f"{{{SERVICE_BUS}}}{name}/{{{SERVICE_BUS}}}KeyValueOfstringanyType")
    if len(pairs) > VALUES_MAX:
        raise ArgumentError(f"{name} must be at most {VALUES_MAX} values, got {len(pairs)}")
    values = tuple((_text(pair, "Key") or "", _value_of(pair)) for pair in pairs)
    if len({key.lower() for key, _ in values}) < len(values) or any(not key for key, _ in values):
        raise ArgumentError(f"{name} must have different keys, none of them empty")
    return values


def _value_of(pair: Element) -> TypedValue:
    value = pair.find(f"{{{SERVICE_BUS}}}Value")
    kind = "string" if value is None else _type_of(value) or "string"
    if kind not in KINDS:
        raise ArgumentError(f"a value must be one of {', '.join(KINDS)}, got {excerpt(kind)}")
    text = "" if value is None else value.text or ""
    try:
        return TypedValue(kind, _VALUES[kind][0](text), kind == "dateTime" and not has_zone(text))
    except ValueError:
        raise ArgumentError(f"a value of type {kind} cannot be {excerpt(text)}") from None


# --- writing ------------------------------------------------------------------------------------------


def rule_description(rule: Rule) -> str:
    """The XML of a rule; `i:` must be the instance namespace around it."""
    return tag(
        "RuleDescription",
        _filter(rule.filter),
        _action(rule.action),
        tag("CreatedAt", utc_time_ms(rule.created_at_ms)),
        tag("Name", plain(rule.name)),
        xmlns=SERVICE_BUS,
        xmlns__i=INSTANCE,
    )


def _filter(given: Filter) -> str:
    match given:
        case CorrelationFilter():
            texts = ((name, getattr(given, field)) for name, field in CORRELATION_FIELDS.items())
            parts = [tag(name, plain(text)) for name, text in texts if text is not None]
            return tag("Filter", *parts, _values("Properties", given.properties), i__type="CorrelationFilter")
        case SqlFilter(expression, parameters):
            return tag("Filter", *_sql(expression, parameters), i__type="SqlFilter")
        case TrueFilter():
            return tag("Filter", *_sql("1=1", ()), i__type="TrueFilter")
        case FalseFilter():
            return tag("Filter", *_sql("1=0", ()), i__type="FalseFilter")
        case _:
            assert_never(given)


def _action(action: SqlAction | None) -> str:
    if action is None:
        return tag("Action", i__type="EmptyRuleAction")
    return tag("Action", *_sql(action.expression, action.parameters), i__type="SqlRuleAction")


def _sql(expression: str, parameters: NamedValues) -> Iterable[str]:
    yield tag("SqlExpression", plain(expression))
    yield tag("CompatibilityLevel", COMPATIBILITY)
    yield _values("Parameters", parameters)


def _values(name: str, values: NamedValues) -> str:
    return tag(name, *(_pair(key, value) for key, value in values))


def _pair(key: str, typed: TypedValue) -> str:
    written = _VALUES[typed.kind][1](typed.value)
    text = plain(written.removesuffix("Z") if typed.lacks_zone else written)
    value = tag("Value", text, i__type=f"d6p1:{typed.kind}", xmlns__d6p1=SCHEMA)
    return tag("KeyValueOfstringanyType", tag("Key", plain(key)), value)
