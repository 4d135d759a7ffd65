"""Which subscriptions of a topic get a message, and in which form.

Correlation filters are looked up in an index, however many there are; only filters in SQL are asked one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from twinbus.amqp.types import Timestamp
from twinbus.errors import DecodeError
from twinbus.namespace import sql
from twinbus.namespace.entities.rules import CorrelationFilter, NamedValues, Rule, SqlFilter, TrueFilter, TypedValue
from twinbus.namespace.view import TopicMessage

if TYPE_CHECKING:
    from twinbus.namespace.entities.subscription import Subscription

RuleKey = tuple[int, str]
"""The subscription's entity id and the rule's name in lower case."""


class Entry(NamedTuple):
    """A rule in force."""

    subscription: Subscription
    rule: Rule
    condition: sql.Filter | None
    action: sql.Action | None

    @property
    def key(self) -> RuleKey:
        return self.subscription.entity_id, self.rule.name.lower()


class Selection(NamedTuple):
    """What becomes of one message."""

    plain: dict[int, Subscription]
    """Who gets it as it is, once each however many rules say so; by entity id."""
    changed: list[Entry]
    """Rules with an action: each makes a copy of its own."""
    failed: dict[int, tuple[Subscription, str]]
    """Subscriptions with a rule that could not be asked about it, and why."""


class Matcher:
    """The rules of one topic."""

    def __init__(self) -> None:
        self._entries: dict[RuleKey, Entry] = {}
        self._always: dict[RuleKey, Entry] = {}
        self._asked: dict[RuleKey, Entry] = {}
        self._correlated: sql.CorrelationIndex[RuleKey] = sql.CorrelationIndex()

    @property
    def sql_filters(self) -> int:
        """How many; true and false count among them, as in the service."""
        return len(self._entries) - len(self._correlated)

    @property
    def correlation_filters(self) -> int:
        return len(self._correlated)

    def add(self, entry: Entry) -> None:
        """Put a rule in force."""
        rule, key = entry.rule, entry.key
        self._entries[key] = entry
        if isinstance(rule.filter, TrueFilter):
            self._always[key] = entry
        elif isinstance(rule.filter, SqlFilter):
            self._asked[key] = entry
        elif isinstance(rule.filter, CorrelationFilter):
            self._correlated.add(key, _correlation(rule.filter))

    def remove(self, key: RuleKey) -> None:
        del self._entries[key]
        self._always.pop(key, None)
        self._asked.pop(key, None)
        self._correlated.remove(key)

    def select(self, message: TopicMessage) -> Selection:
        """Who gets a message. Whatever is wrong with it, nothing is raised."""
        selection = Selection({}, [], {})
        for entry in self._always.values():
            _enter(entry, selection)
        for entry in self._found(message, selection):
            _enter(entry, selection)
        for entry in self._asked.values():
            _ask(entry, message, selection)
        return selection

    def _found(self, message: TopicMessage, selection: Selection) -> Iterator[Entry]:
        if not len(self._correlated):
            return
        try:
            found = self._correlated.match(message)
        except (DecodeError, sql.FilterError) as error:  # its properties cannot be read: then none of the rules can
            for entry in self._entries.values():
                if entry.key in self._correlated:
                    _fail(entry, error, selection)
            return
        for key in found:
            yield self._entries[key]


def entry_of(subscription: Subscription, rule: Rule) -> Entry:
    """A rule ready for use; raises `ArgumentError` if something in it is wrong."""
    condition = action = None
    if isinstance(rule.filter, SqlFilter):
        condition = sql.compile_filter(rule.filter.expression, _plain_values(rule.filter.parameters))
    elif isinstance(rule.filter, CorrelationFilter):
        _correlation(rule.filter)
    if rule.action is not None:
        action = sql.compile_action(rule.action.expression, _plain_values(rule.action.parameters))
    return Entry(subscription, rule, condition, action)


def _enter(entry: Entry, selection: Selection) -> None:
    if entry.action is None:
        selection.plain[entry.subscription.entity_id] = entry.subscription
    else:
        selection.changed.append(entry)


def _ask(entry: Entry, message: TopicMessage, selection: Selection) -> None:
    try:
        if entry.condition is not None and entry.condition.matches(message) is True:
            _enter(entry, selection)
    except (DecodeError, sql.FilterError) as error:
        _fail(entry, error, selection)


def _fail(entry: Entry, error: Exception, selection: Selection) -> None:
    text = f"The filter of rule '{entry.rule.name}' cannot be evaluated: {error}"
    selection.failed.setdefault(entry.subscription.entity_id, (entry.subscription, text))


def _correlation(correlation: CorrelationFilter) -> sql.CorrelationFilter:
    values = correlation._asdict()
    return sql.CorrelationFilter(**values | {"properties": _plain_values(correlation.properties)})


def _plain_values(values: NamedValues) -> dict[str, object]:
    return {name: _plain_value(value) for name, value in values}


def _plain_value(typed: TypedValue) -> object:
    match typed.kind:
        case "dateTime":
            return Timestamp(typed.value)
        case "duration":
            return timedelta(milliseconds=float(typed.value))
        case "double":
            return float(typed.value)
        case _:
            return typed.value
