"""Correlation filters: all of these properties have exactly these values. Matched by index, not by asking each."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from twinbus.amqp.values import Value
from twinbus.namespace.sql.failures import SqlError
from twinbus.namespace.sql.kinds import KINDS, Kind, kind_of, parameter_value, plain
from twinbus.namespace.sql.view import MessageView

RuleId = TypeVar("RuleId", bound=Hashable)


class Field(NamedTuple):
    """A property that a filter asks for."""

    is_system: bool
    name: str
    """As a view is asked for it: a system property's own spelling, a user property's in lower case."""

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
class CorrelationFilter:
    """What is None is not asked for; a filter that asks for nothing selects everything.

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
            raise SqlError("a correlation filter names a property twice; names do not depend on case")
        for name, value in self.properties.items():
            parameter_value(name, value)

    def conditions(self) -> Mapping[Field, Key]:
        """The fields asked for, in an order that depends on nothing else, and the key of the value of each."""
        wanted: dict[Field, Key] = {
            Field(True, name): value
            for attribute, name in _SYSTEM_FIELDS.items()
            if (value := getattr(self, attribute)) is not None
        }
        for name, value in self.properties.items():
            wanted[Field(False, name.lower())] = _key(parameter_value(name, value))
        return dict(sorted(wanted.items(), key=lambda condition: condition[0]))

    def matches(self, view: MessageView) -> bool:
        return all(_key(field.read(view)) == key for field, key in self.conditions().items())


def _key(value: Value) -> Key:
    """Equal for values that are equal: numbers of any type by value, texts by every letter, never across kinds."""
    if type(value) is str:
        return value
    if type(value) not in KINDS:
        value = plain(value)
    kind = kind_of(value)
    if kind is Kind.TEXT:
        return str(value)
    if kind in (Kind.NULL, Kind.OTHER) or (isinstance(value, float) and math.isnan(value)):
        return _Nothing()
    return (kind, value)


class _Nothing:
    """The key of what equals nothing, not even itself."""


class _Group(Generic[RuleId]):
    """The rules that ask for the same fields: one look finds those that ask for these values."""

    def __init__(self, fields: tuple[Field, ...]) -> None:
        self.fields = fields
        self.rules: dict[tuple[Key, ...], dict[RuleId, None]] = {}

    def match(self, view: MessageView) -> Iterator[RuleId]:
        return iter(self.rules.get(tuple(_key(wanted.read(view)) for wanted in self.fields), ()))


class CorrelationIndex(Generic[RuleId]):
    """Correlation filters by what they ask for.

    Matching takes time for each different set of fields that filters ask for, and for each rule that matches; how
    many others there are does not matter.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[Field, ...], _Group[RuleId]] = {}
        self._places: dict[RuleId, tuple[tuple[Field, ...], tuple[Key, ...]]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, rule: object) -> bool:
        return rule in self._places

    def add(self, rule: RuleId, correlation: CorrelationFilter) -> None:
        """Match the rule from now on; one of the same id is replaced."""
        self.remove(rule)
        conditions = correlation.conditions()
        fields, key = tuple(conditions), tuple(conditions.values())
        group = self._groups.setdefault(fields, _Group(fields))
        group.rules.setdefault(key, {})[rule] = None
        self._places[rule] = (fields, key)

    def remove(self, rule: RuleId) -> None:
        """Match the rule no more; one that is not there is no error."""
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
        """The rules that select the message, each once, in no order to rely on."""
        return [rule for found in self.match_each(view) for rule in found]

    def match_each(self, view: MessageView) -> Iterator[Iterator[RuleId]]:
        """The same, for one set of fields after the other."""
        return (group.match(view) for group in self._groups.values())
