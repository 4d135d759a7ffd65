"""Entities described in a file, in the format of the official emulator's `Config.json`.

    {"UserConfig": {"Namespaces": [{"Name": ..., "Queues": [...], "Topics": [{..., "Subscriptions": [...]}]}]}}

Properties have the names and formats of the administration API. All problems are reported at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from twinbus.broker.admin.fields import FIELDS, SUBSCRIPTION_FIELDS, TOPIC_FIELDS, SettingElement, value_text
from twinbus.broker.admin.rule_documents import CORRELATION_FIELDS
from twinbus.broker.core.commands import CreateQueue, CreateRule, CreateSubscription, CreateTopic, Creation
from twinbus.broker.entities.settings import QueueSettings, Settings, TopicSettings
from twinbus.broker.entities.topics.rules import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
    TypedValue,
)
from twinbus.broker.filters.actions import compile_action
from twinbus.broker.filters.compiler import compile_filter
from twinbus.broker.filters.rule_errors import SqlError
from twinbus.errors import ArgumentError, OptionsError

SettingsT = TypeVar("SettingsT", bound=Settings)

_FORMS: dict[type, str] = {dict: "an object", list: "a list", str: "a text"}
_KINDS: dict[type, str] = {bool: "boolean", int: "long", float: "double", str: "string"}


def read_inventory_file(path: Path) -> dict[str, tuple[Creation, ...]]:
    """The same for a file; also raises `OptionsError` if it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors write a byte order mark
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise OptionsError(f"{path} cannot be read: {reason}") from None
    try:
        return {name: tuple(creations) for name, creations in read_inventory(text).items()}
    except OptionsError as error:
        raise OptionsError(f"{path}: {error}") from None


def read_inventory(text: str) -> dict[str, list[Creation]]:
    """The commands to create everything, by namespace, in a valid order. Raises `OptionsError` with all problems."""
    reading = _ConfigReader()
    try:
        document = json.loads(text)
    except ValueError as error:
        raise OptionsError(f"this is not JSON: {error}") from None
    user_config = reading.part(document, "UserConfig", dict, "the file")
    namespaces = reading.part(user_config, "Namespaces", list, "UserConfig")
    found = {str(each.get("Name")): reading.namespace(each) for each in namespaces if isinstance(each, dict)}
    if not namespaces:
        reading.problems.append("UserConfig.Namespaces names no namespace")
    OptionsError.raise_for(reading.problems)
    return found


class _ConfigReader:
    """Reads a document and collects its problems."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def part(self, owner: Any, name: str, kind: type, where: str) -> Any:
        """The value of a name, which must be of this type; an empty one if it is missing or wrong."""
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

    def settings(
        self, described: dict[str, Any], fields: Iterable[SettingElement], kind: type[SettingsT], where: str
    ) -> SettingsT:
        known = {field.element: field for field in fields}
        values: dict[str, Any] = {}
        for element, value in self.part(described, "Properties", dict, where).items():
            field = known.get(element)
            try:
                if field is None:
                    raise ValueError
                values[field.setting] = field.format.read(value_text(value))
            except ValueError:
                right = f"takes {field.format.name}" if field else f"is none of {', '.join(sorted(known))}"
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
        """Report a wrong expression here, with its place: the namespace could not name it."""
        try:
            compile_it(expression)
        except SqlError as error:
            self.problems.append(f"{where}: {error}")

    def correlation(self, described: dict[str, Any], where: str) -> CorrelationFilter:
        unknown = described.keys() - CORRELATION_FIELDS.keys() - {"Properties"}
        if unknown:
            self.problems.append(
                f"{where}: a correlation filter compares {', '.join(sorted(CORRELATION_FIELDS))}, not {min(unknown)}"
            )
        given: dict[str, Any] = {
            CORRELATION_FIELDS[name]: str(value) for name, value in described.items() if name in CORRELATION_FIELDS
        }
        own = self.part(described, "Properties", dict, where)
        try:
            return CorrelationFilter(**given, properties=tuple((name, _typed(value)) for name, value in own.items()))
        except ArgumentError as error:
            self.problems.append(f"{where}: {error}")
            return CorrelationFilter(**given)


def _typed(value: object) -> TypedValue:
    kind = _KINDS.get(type(value))
    if kind is None or not isinstance(value, str | int | float | bool):
        raise ArgumentError(f"a property is compared with a text, a number, true or false, not with {value!r}")
    return TypedValue(kind, value)


# --- order ---


def in_order(creations: Iterable[Creation]) -> list[Creation]:
    """Entities before those that forward to them. A cycle comes last, and is refused on creation."""
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
