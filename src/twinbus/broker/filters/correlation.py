"""Correlation filters: all of these properties have exactly these values. Matched by index, not one by one."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from twinbus.amqp.types import Value
from twinbus.broker.filters.properties import MessageView
from twinbus.broker.filters.rule_errors import SqlError
from twinbus.broker.filters.value_types import KINDS, ValueKind, kind_of, parameter_value, plain

RuleId = TypeVar("RuleId", bound=Hashable)


class MatchedProperty(NamedTuple):
    """A property that a filter compares."""

    is_system: bool
    name: str
    """As `MessageView` expects it: a system property in its spelling, a user property in lower case."""

    def read(self, view: MessageView) -> Value:
        return view.system(self.name) if self.is_system else view.user(self.name)


Key: TypeAlias = Hashable

_SYSTEM_FIELDS = {
    "correlation_id": "CorrelationId",
    "message_id": "MessageId",
    "to": "To",
    "reply_to": "ReplyTo",
    "label": "Label",
    "session_id": "SessionId",
    "reply_to_session_id": "ReplyToSessionId",
    "content_type": "ContentType",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrelationCondition:
    """None is not compared; a filter that compares nothing selects everything.

    Raises `SqlError` for a value that cannot be compared, or a property named twice.
    """

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    label: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len({name.lower() for name in self.properties}) < len(self.properties):
            raise SqlError("a correlation filter names a property twice; names are case-insensitive")
        for name, value in self.properties.items():
            parameter_value(name, value)

    def conditions(self) -> Mapping[MatchedProperty, Key]:
        """The compared properties, sorted, each with the key of its value."""
        wanted: dict[MatchedProperty, Key] = {
            MatchedProperty(True, name): value
            for attribute, name in _SYSTEM_FIELDS.items()
            if (value := getattr(self, attribute)) is not None
        }
        for name, value in self.properties.items():
            wanted[MatchedProperty(False, name.lower())] = _key(parameter_value(name, value))
        return dict(sorted(wanted.items(), key=lambda condition: condition[0]))

    def matches(self, view: MessageView) -> bool:
        return all(_key(field.read(view)) == key for field, key in self.conditions().items())


def _key(value: Value) -> Key:
    """Equal for equal values: numbers of any type by value, texts case-sensitively, never across kinds."""
    if type(value) is str:
        return value
    if type(value) not in KINDS:
        value = plain(value)
    kind = kind_of(value)
    if kind is ValueKind.TEXT:
        return str(value)
    if kind in (ValueKind.NULL, ValueKind.OTHER) or (isinstance(value, float) and math.isnan(value)):
        return _EqualsNothing()
    return (kind, value)


class _EqualsNothing:
    """The key of a value that equals nothing, not even itself."""


class _Group(Generic[RuleId]):
    """The rules that compare the same properties: one lookup finds those with these values."""

    def __init__(self, fields: tuple[MatchedProperty, ...]) -> None:
        self.fields = fields
        self.rules: dict[tuple[Key, ...], dict[RuleId, None]] = {}

    def match(self, view: MessageView) -> Iterator[RuleId]:
        return iter(self.rules.get(tuple(_key(wanted.read(view)) for wanted in self.fields), ()))


class CorrelationIndex(Generic[RuleId]):
    """Correlation filters by what they compare.

    Matching takes time per different set of properties and per rule that matches, however many others there are.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[MatchedProperty, ...], _Group[RuleId]] = {}
        self._places: dict[RuleId, tuple[tuple[MatchedProperty, ...], tuple[Key, ...]]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, rule: object) -> bool:
        return rule in self._places

    def add(self, rule: RuleId, correlation: CorrelationCondition) -> None:
        """Add a rule, or replace the one with the same id."""
        self.remove(rule)
        conditions = correlation.conditions()
        fields, key = tuple(conditions), tuple(conditions.values())
        group = self._groups.setdefault(fields, _Group(fields))
        group.rules.setdefault(key, {})[rule] = None
        self._places[rule] = (fields, key)

    def remove(self, rule: RuleId) -> None:
        """Remove a rule, if it is there."""
        place = self._places.pop(rule, None)
        if place is None:
            return
        fields, key = place
        rules = self._groups[fields].rules
        del rules[key][rule]
        if not rules[key]:
            del rules[key]
        if not rules:
            del self._groups[fields]

    def match(self, view: MessageView) -> list[RuleId]:
        """The rules that select the message, each once, in no particular order."""
        return [rule for found in self.match_each(view) for rule in found]

    def match_each(self, view: MessageView) -> Iterator[Iterator[RuleId]]:
        """The same, one set of properties after the other."""
        return (group.match(view) for group in self._groups.values())
