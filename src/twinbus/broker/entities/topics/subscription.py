"""Subscriptions: queues that their topic fills by their rules, and the rules of all subscriptions of a topic.

Correlation filters are looked up in an index, however many there are; only SQL filters are evaluated one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from twinbus.amqp.codec.types import Timestamp
from twinbus.broker.core.replies import Step
from twinbus.broker.entities.entity import EntityContext, HopCount
from twinbus.broker.entities.queue import Queue
from twinbus.broker.entities.session_queue import SessionQueue
from twinbus.broker.entities.topics.rules import CorrelationFilter, NamedValues, Rule, SqlFilter, TrueFilter, TypedValue
from twinbus.broker.filters.actions import CompiledAction, compile_action
from twinbus.broker.filters.compiler import CompiledFilter, compile_filter
from twinbus.broker.filters.correlation import CorrelationCondition, CorrelationIndex
from twinbus.broker.filters.like import PATTERN_LENGTH
from twinbus.broker.filters.message_view import TopicMessage
from twinbus.broker.filters.operators import JOINED_LENGTH_MAX
from twinbus.broker.filters.rule_errors import FilterError
from twinbus.broker.message import Arrival
from twinbus.broker.store.api import EntityRow, EntitySummary, MessageRow
from twinbus.errors import DecodeError, NotAllowed

if TYPE_CHECKING:
    from twinbus.broker.entities.topics.topic import Topic


class StoredRule(NamedTuple):
    row: EntityRow
    rule: Rule


class Subscription(Queue):
    def __init__(
        self, row: EntityRow, summary: EntitySummary, context: EntityContext, dead_letter: Queue | None, topic: Topic
    ) -> None:
        super().__init__(row, summary, context, dead_letter)
        self.topic = topic
        self.name = row.path.rpartition("/")[2]
        self.rules: dict[str, StoredRule] = {}
        """By name in lower case; `Topic` keeps them."""

    @property
    def size_bytes_max(self) -> int:
        return self.topic.settings.size_bytes_max

    @property
    def message_bytes_max(self) -> int | None:
        return self.topic.message_bytes_max

    def touch(self, now_ms: int) -> None:
        super().touch(now_ms)
        self.topic.touch(now_ms)

    def check_sendable(self) -> None:
        raise NotAllowed(f"'{self.row.path}' is a subscription: send to its topic '{self.topic.row.path}'")

    @property
    def _ttl_ms_max(self) -> int | None:
        """A delayed copy lives no longer than its topic allows."""
        return self.topic.limit_ttl(self.settings.default_ttl_ms)

    def send(self, arrivals: tuple[Arrival, ...], now_ms: int, step: Step) -> tuple[int, ...]:
        raise AssertionError("only its topic puts messages into a subscription")

    def accept_forwarded(self, arrival: Arrival, row: MessageRow, hop_count: HopCount, now_ms: int, step: Step) -> None:
        raise AssertionError("only its topic puts messages into a subscription")


class SessionSubscription(Subscription, SessionQueue):
    """A subscription with sessions."""


MESSAGE_WORK, FIELDS_WORK, FOUND_WORK = 1.0, 0.4, 0.05
"""What it takes to look at a message, at those of its fields that filters ask for, and to note that a rule was found
(`Step.work`)."""
PIECE_WORK, FOUND_AT_ONCE = 50, 1_000
RULE_WORK_MAX = 6_000
"""The limit of the work of one rule with one message: about 30 milliseconds."""

RuleKey = tuple[int, str]
"""The subscription's entity id and the rule's name in lower case."""


class ActiveRule(NamedTuple):
    """A rule in force."""

    subscription: Subscription
    rule: Rule
    condition: CompiledFilter | None
    action: CompiledAction | None
    work: float | None = None
    """The work of evaluating it (`Step.work`); None: it depends on the message."""

    @property
    def key(self) -> RuleKey:
        return self.subscription.entity_id, self.rule.name.lower()


class Selection(NamedTuple):
    """The matches of one message."""

    plain: dict[int, Subscription]
    """Subscriptions that get it unchanged, once each, by entity id."""
    changed: list[ActiveRule]
    """Rules with an action: each makes its own copy."""
    failed: dict[int, tuple[Subscription, str]]
    """Subscriptions with a rule that could not be evaluated, and why."""


class RuleMatcher:
    """The rules of one topic."""

    def __init__(self) -> None:
        self._entries: dict[RuleKey, ActiveRule] = {}
        self._always: dict[RuleKey, ActiveRule] = {}
        self._asked: dict[RuleKey, ActiveRule] = {}
        self._correlated: CorrelationIndex[RuleKey] = CorrelationIndex()
        self._actions: Counter[int] = Counter()
        """The number of rules with an action, by entity id."""
        self.version = 0
        """Counts changes."""

    @property
    def sql_filters(self) -> int:
        """The number of SQL filters, true and false filters included, as in the service."""
        return len(self._entries) - len(self._correlated)

    @property
    def correlation_filters(self) -> int:
        return len(self._correlated)

    def add(self, entry: ActiveRule) -> None:
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
        """The highest number of copies of one message for a subscription."""
        return 1 + self._actions[subscription.entity_id]

    def only(self, subscription: Subscription) -> RuleMatcher:
        """The rules of one subscription."""
        rules = RuleMatcher()
        for name in subscription.rules:
            rules.add(self._entries[subscription.entity_id, name])
        return rules

    @property
    def asked(self) -> int:
        """The number of rules that are evaluated for every message."""
        return len(self._asked)

    @property
    def actions(self) -> int:
        """The number of rules with an action."""
        return self._actions.total()

    def select(self, message: TopicMessage) -> Generator[float, None, Selection]:
        """Who gets a message. Never raises, whatever is wrong with the message.

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
                error = FilterError(f"it would take too long to search {size} bytes of properties with LIKE")
                _fail(entry, error, selection)
                continue
            if work + needed > PIECE_WORK:
                yield work
                work = 0
            _ask(entry, message, selection)
            work += needed
        yield work
        return selection

    def _found(self, message: TopicMessage, selection: Selection) -> Iterator[Iterable[ActiveRule]]:
        """Rules with correlation filters that select a message, some at a time."""
        try:
            for keys in self._correlated.match_each(message):
                while some := [self._entries[key] for key in islice(keys, FOUND_AT_ONCE)]:
                    yield some
                yield ()
        except (DecodeError, FilterError) as error:  # its properties cannot be read: then none of the rules can
            for entry in self._entries.values():
                if isinstance(entry.rule.filter, CorrelationFilter):
                    _fail(entry, error, selection)


def compile_rule(subscription: Subscription, rule: Rule) -> ActiveRule:
    """Compile a rule; raises `ArgumentError` if it is invalid."""
    condition = action = None
    if isinstance(rule.filter, SqlFilter):
        condition = compile_filter(rule.filter.expression, _plain_values(rule.filter.parameters))
    elif isinstance(rule.filter, CorrelationFilter):
        _correlation(rule.filter)
    if rule.action is not None:
        action = compile_action(rule.action.expression, _plain_values(rule.action.parameters))
    has_patterns = condition is not None and bool(condition.known_patterns or condition.other_patterns)
    return ActiveRule(subscription, rule, condition, action, None if has_patterns else _base_work(condition))


def _enter(entry: ActiveRule, selection: Selection) -> None:
    if entry.action is None:
        selection.plain[entry.subscription.entity_id] = entry.subscription
    else:
        selection.changed.append(entry)


def _ask(entry: ActiveRule, message: TopicMessage, selection: Selection) -> None:
    try:
        if entry.condition is not None and entry.condition.matches(message) is True:
            _enter(entry, selection)
    except (DecodeError, FilterError) as error:
        _fail(entry, error, selection)


def _fail(entry: ActiveRule, error: Exception, selection: Selection) -> None:
    if entry.subscription.entity_id not in selection.failed:
        text = f"The filter of rule '{entry.rule.name}' cannot be evaluated: {error}"
        selection.failed[entry.subscription.entity_id] = (entry.subscription, text)


def _work_of(entry: ActiveRule, property_bytes: int) -> float:
    """The work of evaluating a rule with patterns on a message with this many bytes of properties, at most."""
    condition = entry.condition
    assert condition is not None
    longest = min(property_bytes * (1 + condition.text.count("+")), JOINED_LENGTH_MAX + property_bytes)
    patterns = 8 * len(condition.known_patterns) + sum(condition.known_patterns)
    patterns += condition.other_patterns * (8 + min(property_bytes, PATTERN_LENGTH))
    return _base_work(condition) + longest * patterns / 8_000


def _base_work(condition: CompiledFilter | None) -> float:
    """The work of a condition without its patterns."""
    return 0.0 if condition is None else (30 + len(condition.text)) / 100


def _correlation(correlation: CorrelationFilter) -> CorrelationCondition:
    return CorrelationCondition(**correlation._asdict() | {"properties": _plain_values(correlation.properties)})


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
