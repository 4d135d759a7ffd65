"""Correlation filters: all of these properties have exactly these values. Matched by index, not one by one."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from twinbus.amqp.codec.types import Value
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


class CorrelationCondition:
    """What a correlation filter compares; one that compares nothing selects everything."""

    __slots__ = ("fields", "keys")

    def __init__(self, properties: Mapping[str, object] | None = None, **texts: str | None) -> None:
        """`texts` are system properties, by the names that filters give them; None is not compared.

        Raises `SqlError` for a value that cannot be compared, or a property named twice.
        """
        properties = properties or {}
        if len({name.lower() for name in properties}) < len(properties):
            raise SqlError("a correlation filter names a property twice; names are case-insensitive")
        wanted: dict[MatchedProperty, Key] = {
            MatchedProperty(True, _SYSTEM_FIELDS[name]): text for name, text in texts.items() if text is not None
        }
        for name, value in properties.items():
            wanted[MatchedProperty(False, name.lower())] = _key(parameter_value(name, value))
        self.fields = tuple(sorted(wanted))
        """Sorted, so that filters that compare the same properties share a place in the index."""
        self.keys = tuple([wanted[each] for each in self.fields])

    def matches(self, view: MessageView) -> bool:
        return all(_key(field.read(view)) == key for field, key in zip(self.fields, self.keys, strict=True))


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


class CorrelationIndex(Generic[RuleId]):
    """Correlation filters by what they compare.

    Matching takes time per different set of properties and per rule that matches, however many others there are.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[MatchedProperty, ...], dict[tuple[Key, ...], dict[RuleId, None]]] = {}
        """Rules that compare the same properties are one group: one lookup finds those with the message's values."""
        self._conditions: dict[RuleId, CorrelationCondition] = {}

    def __len__(self) -> int:
        return len(self._conditions)

    def add(self, rule: RuleId, correlation: CorrelationCondition) -> None:
        """Add a rule, or replace the one with the same id."""
        self.remove(rule)
        self._groups.setdefault(correlation.fields, {}).setdefault(correlation.keys, {})[rule] = None
        self._conditions[rule] = correlation

    def remove(self, rule: RuleId) -> None:
        """Remove a rule, if it is there."""
        correlation = self._conditions.pop(rule, None)
        if correlation is None:
            return
        group = self._groups[correlation.fields]
        del group[correlation.keys][rule]
        if not group[correlation.keys]:
            del group[correlation.keys]
        if not group:
            del self._groups[correlation.fields]

    def match(self, view: MessageView) -> list[RuleId]:
        """The rules that select the message, each once, in no particular order."""
        return [rule for found in self.match_each(view) for rule in found]

    def match_each(self, view: MessageView) -> Iterator[Iterator[RuleId]]:
        """The same, one set of properties after the other."""
        for fields, group in self._groups.items():
            yield iter(group.get(tuple([_key(wanted.read(view)) for wanted in fields]), ()))
