"""Entities as a file describes them, in the form that the official emulator has for its `Config.json`.

    {"UserConfig": {"Namespaces": [{"Name": ..., "Queues": [...], "Topics": [{..., "Subscriptions": [...]}]}]}}

Properties have the names and forms of the administration API. Everything that is wrong is said at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from twinbus.errors import ArgumentError, OptionsError
from twinbus.namespace.admin.fields import FIELDS, SUBSCRIPTION_FIELDS, TOPIC_FIELDS, Field
from twinbus.namespace.commands import CreateQueue, CreateRule, CreateSubscription, CreateTopic, Creation
from twinbus.namespace.entities.rules import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
    TypedValue,
)
from twinbus.namespace.entities.settings import QueueSettings, Settings, TopicSettings
from twinbus.namespace.sql.actions import compile_action
from twinbus.namespace.sql.failures import SqlError
from twinbus.namespace.sql.filters import compile_filter

Kind = TypeVar("Kind", bound=Settings)

_CORRELATION = {
    "ContentType": "content_type",
    "CorrelationId": "correlation_id",
    "Label": "label",
    "MessageId": "message_id",
    "ReplyTo": "reply_to",
    "ReplyToSessionId": "reply_to_session_id",
    "SessionId": "session_id",
    "To": "to",
}
_FORMS: dict[type, str] = {dict: "an object", list: "a list", str: "a text"}
_KINDS: dict[type, str] = {bool: "boolean", int: "long", float: "double", str: "string"}


def read_inventory_file(path: Path) -> dict[str, tuple[Creation, ...]]:
    """The same of a file; raises `OptionsError` if it cannot be read, too."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # editors of the file's first home put a mark before it
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise OptionsError(f"{path} cannot be read: {reason}") from None
    try:
        return {name: tuple(creations) for name, creations in read_inventory(text).items()}
    except OptionsError as error:
        raise OptionsError(f"{path}: {error}") from None


def read_inventory(text: str) -> dict[str, list[Creation]]:
    """What is to be created, by namespace, in an order in which it can be. Raises `OptionsError` with every problem."""
    reading = _Reading()
    try:
        document = json.loads(text)
    except ValueError as error:
        raise OptionsError(f"this is no JSON: {error}") from None
    user_config = reading.part(document, "UserConfig", dict, "the file")
    namespaces = reading.part(user_config, "Namespaces", list, "UserConfig")
    found = {str(each.get("Name")): reading.namespace(each) for each in namespaces if isinstance(each, dict)}
    if not namespaces:
        reading.problems.append("UserConfig.Namespaces names no namespace")
    if reading.problems:
        raise OptionsError("; ".join(reading.problems))
    return found


class _Reading:
    """Goes through a document and remembers what is wrong with it."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def part(self, owner: Any, name: str, kind: type, where: str) -> Any:
        """What the owner has under a name; nothing of that kind if it has none, and a problem if it is another kind."""
        value = owner.get(name) if isinstance(owner, dict) else None
        if isinstance(value, kind):
            return value
        if value is not None or name in ("UserConfig", "Namespaces", "Name"):
            wanted = _FORMS[kind]
            self.problems.append(f"{where} needs {name}, {wanted}")
        return kind()

    def namespace(self, described: dict[str, Any]) -> list[Creation]:
        where = f"namespace {self.part(described, 'Name', str, 'each namespace')}"
        queues = [self.queue(each, where) for each in self.parts(described, "Queues", where)]
        topics = [creation for each in self.parts(described, "Topics", where) for creation in self.topic(each, where)]
        return in_order([*queues, *topics])

    def parts(self, owner: dict[str, Any], name: str, where: str) -> list[dict[str, Any]]:
        found = self.part(owner, name, list, where)
        self.problems += [
            f"{where}: {name} holds {each!r}, not an object" for each in found if not isinstance(each, dict)
        ]
        return [each for each in found if isinstance(each, dict)]

    def queue(self, described: dict[str, Any], where: str) -> CreateQueue:
        name = self.part(described, "Name", str, f"{where}: each queue")
        return CreateQueue(name, self.settings(described, FIELDS, QueueSettings, f"queue {name}"))

    def topic(self, described: dict[str, Any], where: str) -> Iterable[Creation]:
        name = self.part(described, "Name", str, f"{where}: each topic")
        yield CreateTopic(name, self.settings(described, TOPIC_FIELDS, TopicSettings, f"topic {name}"))
        for each in self.parts(described, "Subscriptions", f"topic {name}"):
            yield from self.subscription(name, each)

    def subscription(self, topic: str, described: dict[str, Any]) -> Iterable[Creation]:
        name = self.part(described, "Name", str, f"topic {topic}: each subscription")
        where = f"subscription {topic}/{name}"
        rules = [self.rule(each, where) for each in self.parts(described, "Rules", where)]
        settings = self.settings(described, SUBSCRIPTION_FIELDS, QueueSettings, where)
        yield CreateSubscription(topic, name, settings, rules[0] if rules else None)
        yield from (CreateRule(f"{topic}/Subscriptions/{name}", rule) for rule in rules[1:])

    def settings(self, described: dict[str, Any], fields: Iterable[Field], kind: type[Kind], where: str) -> Kind:
        known = {field.element: field for field in fields}
        values: dict[str, Any] = {}
        for element, value in self.part(described, "Properties", dict, where).items():
            field = known.get(element)
            try:
                if field is None:
                    raise ValueError
                values[field.setting] = field.form.read(_as_text(value))
            except ValueError:
                right = f"takes {field.form.name}" if field else f"is none of {', '.join(sorted(known))}"
                self.problems.append(f"{where}: {element} {right}" + (f", got {value!r}" if field else ""))
        try:
            return kind(**values)
        except OptionsError as error:
            self.problems.append(f"{where}: {error}")
            return kind()

    # --- rules ---

    def rule(self, described: dict[str, Any], where: str) -> Rule:
        name = self.part(described, "Name", str, f"{where}: each rule")
        where = f"{where}: rule {name}"
        properties = self.part(described, "Properties", dict, where)
        action = self.part(properties, "Action", dict, where)
        expression = self.part(action, "SqlExpression", str, where)
        if expression:
            self.try_sql(compile_action, expression, f"{where}: Action")
        return Rule(name, self.filter(properties, where), SqlAction(expression) if expression else None)

    def filter(self, properties: dict[str, Any], where: str) -> Filter:
        match str(properties.get("FilterType", "True")).lower():
            case "sql":
                expression = self.part(self.part(properties, "SqlFilter", dict, where), "SqlExpression", str, where)
                self.try_sql(compile_filter, expression, f"{where}: SqlFilter")
                return SqlFilter(expression)
            case "correlation":
                return self.correlation(self.part(properties, "CorrelationFilter", dict, where), where)
            case "true" | "truefilter":
                return TrueFilter()
            case "false" | "falsefilter":
                return FalseFilter()
            case other:
                self.problems.append(f"{where}: FilterType is Sql, Correlation, True or False, got {other!r}")
                return TrueFilter()

    def try_sql(self, compile_it: Callable[[str], object], expression: str, where: str) -> None:
        """What is wrong with an expression is said here: the namespace that refuses it does not know whose it is."""
        try:
            compile_it(expression)
        except SqlError as error:
            self.problems.append(f"{where}: {error}")

    def correlation(self, described: dict[str, Any], where: str) -> CorrelationFilter:
        unknown = described.keys() - _CORRELATION.keys() - {"Properties"}
        if unknown:
            self.problems.append(
                f"{where}: a correlation filter compares {', '.join(_CORRELATION)}, not {min(unknown)}"
            )
        given: dict[str, Any] = {
            _CORRELATION[name]: str(value) for name, value in described.items() if name in _CORRELATION
        }
        own = self.part(described, "Properties", dict, where)
        try:
            return CorrelationFilter(**given, properties=tuple((name, _typed(value)) for name, value in own.items()))
        except ArgumentError as error:
            self.problems.append(f"{where}: {error}")
            return CorrelationFilter(**given)


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _typed(value: object) -> TypedValue:
    kind = _KINDS.get(type(value))
    if kind is None or not isinstance(value, str | int | float | bool):
        raise ArgumentError(f"a property is compared with a text, a number, true or false, not with {value!r}")
    return TypedValue(kind, value)


# --- what comes first ---


def in_order(creations: Iterable[Creation]) -> list[Creation]:
    """Entities before those that forward to them. What goes round in a circle comes last, and is refused when tried."""
    waiting, ready = list(creations), list[Creation]()
    made: set[str] = set()
    names = {_path(each).lower() for each in waiting if not isinstance(each, CreateRule)}
    while waiting:
        able = [each for each in waiting if not (_needs(each) & names) - made]
        if not able:
            return ready + waiting
        ready += able
        made |= {_path(each).lower() for each in able if not isinstance(each, CreateRule)}
        done = set(map(id, able))
        waiting = [each for each in waiting if id(each) not in done]
    return ready


def _path(creation: CreateQueue | CreateTopic | CreateSubscription) -> str:
    if isinstance(creation, CreateSubscription):
        return f"{creation.topic}/Subscriptions/{creation.name}"
    return creation.path


def _needs(creation: Creation) -> set[str]:
    if isinstance(creation, CreateRule):
        return {creation.path.lower()}
    needed = {creation.topic.lower()} if isinstance(creation, CreateSubscription) else set()
    if isinstance(creation, CreateTopic):
        return needed
    targets = (creation.settings.forward_to, creation.settings.forward_dead_letters_to)
    return needed | {target.lower() for target in targets if target}
