"""Which subscriptions of a topic get a message, and in which form.

Correlation filters are looked up in an index, however many there are; only filters in SQL are asked one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from twinbus.amqp.types import Timestamp
from twinbus.errors import DecodeError
from twinbus.namespace import sql
from twinbus.namespace.entities.rules import CorrelationFilter, NamedValues, Rule, SqlFilter, TrueFilter, TypedValue
from twinbus.namespace.sql.patterns import PATTERN_LENGTH
from twinbus.namespace.view import TopicMessage

if TYPE_CHECKING:
    from twinbus.namespace.entities.subscription import Subscription

MESSAGE_WORK, FIELDS_WORK, FOUND_WORK = 1.0, 0.4, 0.05
"""What it takes to look at a message, at those of its fields that filters ask for, and to note that a rule was found
(`Step.work`)."""
PIECE_WORK, FOUND_AT_ONCE = 50, 1_000
JOINED_LENGTH_MAX = 32_768
"""A text that a rule puts together is no longer."""
RULE_WORK_MAX = 6_000
"""What it may take to ask one rule about one message: about 30 milliseconds."""

RuleKey = tuple[int, str]
"""The subscription's entity id and the rule's name in lower case."""


class Entry(NamedTuple):
    """A rule in force."""

    subscription: Subscription
    rule: Rule
    condition: sql.Filter | None
    action: sql.Action | None
    work: float | None = None
    """What asking it takes (`Step.work`); None: that depends on the message."""

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
        self._actions: Counter[int] = Counter()
        """How many rules with an action a subscription has, by its entity id."""
        self.version = 0
        """Counts changes."""

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
        self.version += 1
        if rule.action is not None:
            self._actions[key[0]] += 1
        if isinstance(rule.filter, TrueFilter):
            self._always[key] = entry
        elif isinstance(rule.filter, SqlFilter):
            self._asked[key] = entry
        elif isinstance(rule.filter, CorrelationFilter):
            self._correlated.add(key, _correlation(rule.filter))

    def remove(self, key: RuleKey) -> None:
        rule = self._entries.pop(key).rule
        self.version += 1
        if rule.action is not None:
            self._actions[key[0]] -= 1
            self._actions += Counter()  # only what is left of them
        self._always.pop(key, None)
        self._asked.pop(key, None)
        self._correlated.remove(key)

    def copies_most(self, subscription: Subscription) -> int:
        """How many copies of one message a subscription gets at most."""
        return 1 + self._actions[subscription.entity_id]

    def only(self, subscription: Subscription) -> Matcher:
        """The rules of one subscription."""
        rules = Matcher()
        for name in subscription.rules:
            rules.add(self._entries[subscription.entity_id, name])
        return rules

    @property
    def asked(self) -> int:
        """How many rules have to be asked about every message, one by one."""
        return len(self._asked)

    @property
    def actions(self) -> int:
        """How many rules have one."""
        return self._actions.total()

    def select(self, message: TopicMessage) -> Generator[float, None, Selection]:
        """Who gets a message. Whatever is wrong with it, nothing is raised.

        Says after each piece of work how much it was, so that it can be put off. No rule may change meanwhile.
        """
        selection = Selection({}, [], {})
        for entry in self._always.values():
            _enter(entry, selection)
        work = MESSAGE_WORK + FOUND_WORK * len(self._always)
        for found in self._found(message, selection):
            work += FIELDS_WORK
            for entry in found:
                _enter(entry, selection)
                work += FOUND_WORK
            if work > PIECE_WORK:
                yield work
                work = 0
        size = message.property_bytes
        for entry in self._asked.values():
            needed = entry.work if entry.work is not None else _work_of(entry, size)
            if needed > RULE_WORK_MAX:
                error = sql.FilterError(f"it would take too long to search {size} bytes of properties with LIKE")
                _fail(entry, error, selection)
                continue
            if work + needed > PIECE_WORK:
                yield work
                work = 0
            _ask(entry, message, selection)
            work += needed
        yield work
        return selection

    def _found(self, message: TopicMessage, selection: Selection) -> Iterator[Iterable[Entry]]:
        """Rules with correlation filters that select a message, some at a time."""
        try:
            for keys in self._correlated.match_each(message):
                while some := [self._entries[key] for key in islice(keys, FOUND_AT_ONCE)]:
                    yield some
                yield ()
        except (DecodeError, sql.FilterError) as error:  # its properties cannot be read: then none of the rules can
            for entry in self._entries.values():
                if isinstance(entry.rule.filter, CorrelationFilter):
                    _fail(entry, error, selection)


def entry_of(subscription: Subscription, rule: Rule) -> Entry:
    """A rule ready for use; raises `ArgumentError` if something in it is wrong."""
    condition = action = None
    if isinstance(rule.filter, SqlFilter):
        condition = sql.compile_filter(rule.filter.expression, _plain_values(rule.filter.parameters))
    elif isinstance(rule.filter, CorrelationFilter):
        _correlation(rule.filter)
    if rule.action is not None:
        action = sql.compile_action(rule.action.expression, _plain_values(rule.action.parameters))
    has_patterns = condition is not None and bool(condition.known_patterns or condition.other_patterns)
    return Entry(subscription, rule, condition, action, None if has_patterns else _base_work(condition))


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
    if entry.subscription.entity_id not in selection.failed:
        text = f"The filter of rule '{entry.rule.name}' cannot be evaluated: {error}"
        selection.failed[entry.subscription.entity_id] = (entry.subscription, text)


def _work_of(entry: Entry, property_bytes: int) -> float:
    """What it takes at most to ask a rule in SQL about a message with so many bytes of properties (`Step.work`)."""
    condition, work = entry.condition, _base_work(entry.condition)
    if condition is None:
        return work
    if condition.known_patterns or condition.other_patterns:
        longest = min(property_bytes * (1 + condition.text.count("+")), JOINED_LENGTH_MAX + property_bytes)
        patterns = 8 * len(condition.known_patterns) + sum(condition.known_patterns)
        patterns += condition.other_patterns * (8 + min(property_bytes, PATTERN_LENGTH))
        work += longest * patterns / 8_000
    return work


def _base_work(condition: sql.Filter | None) -> float:
    """What a condition takes without its patterns."""
    return 0.0 if condition is None else (30 + len(condition.text)) / 100


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
