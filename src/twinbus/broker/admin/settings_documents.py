"""Reads the settings of an entity from a request's document, or reports all problems in one message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar
from xml.etree.ElementTree import Element

from twinbus.broker.admin.fields import (
    FIELDS,
    READ_ONLY,
    RULES_ELEMENT,
    RULES_SETTING,
    SUBSCRIPTION_FIELDS,
    TARGET_AUTHORIZATIONS,
    TEXT,
    TOPIC_FIELDS,
    SettingElement,
    read_target,
)
from twinbus.broker.admin.xml_text import ATOM, INSTANCE, SERVICE_BUS, read_document
from twinbus.broker.entities.settings import AuthorizationRule, QueueSettings, TopicSettings, settings_problems
from twinbus.errors import ArgumentError
from twinbus.units import parse_time_ms

SHOWN_CHARACTERS = 60
"""How much of a wrong value the answer shows."""
SettingsT = TypeVar("SettingsT", QueueSettings, TopicSettings)


class DescriptionSchema(NamedTuple, Generic[SettingsT]):
    """The elements of a type of description."""

    element: str
    settings: type[SettingsT]
    fields: dict[str, SettingElement]
    ignored: frozenset[str]
    never: frozenset[str] = frozenset()
    """Settings that must be false if given."""

    @property
    def name(self) -> str:
        return self.element.removesuffix("Description").lower()


def _by_element(fields: tuple[SettingElement, ...]) -> dict[str, SettingElement]:
    return {field.element: field for field in fields}


QUEUE = DescriptionSchema("QueueDescription", QueueSettings, _by_element(FIELDS), READ_ONLY)
TOPIC = DescriptionSchema(
    "TopicDescription",
    TopicSettings,
    _by_element(TOPIC_FIELDS),
    READ_ONLY,
    frozenset({"FilteringMessagesBeforePublishing", "EnableSubscriptionPartitioning"}),
)
SUBSCRIPTION = DescriptionSchema(
    "SubscriptionDescription",
    QueueSettings,
    _by_element(SUBSCRIPTION_FIELDS),
    READ_ONLY | {"DefaultRuleDescription"},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationContext:
    """What settings depend on besides their description."""

    now_ms: int
    message_bytes_max: int
    """The namespace's limit; a queue can only lower it."""
    new_key: Callable[[], str]
    """For authorization rules without keys."""
    host: str = ""
    """How the client reaches this namespace."""


def read_settings(description: Element, schema: DescriptionSchema[SettingsT], context: ValidationContext) -> SettingsT:
    """The settings in a description; raises `ArgumentError` naming every wrong field.

    Missing elements have their defaults: a document describes the whole entity.
    """
    values, problems = _values_of(description, schema, context)
    elements = {field.setting: field.element for field in schema.fields.values()} | {RULES_SETTING: RULES_ELEMENT}
    problems += [f"{elements[field]} {what}" for field, what in settings_problems(values)]
    size_kb, limit_kb = values.get("max_message_kb"), context.message_bytes_max // 1024
    if size_kb is not None and size_kb > limit_kb:
        problems.append(f"MaxMessageSizeInKilobytes must be at most {limit_kb}, as in this namespace, got {size_kb}")
    if problems:
        raise ArgumentError("; ".join(problems))
    if size_kb == limit_kb:
        values["max_message_kb"] = None  # it is that of the namespace, which may change
    return schema.settings(**values)


def description_in(body: bytes, *names: str) -> Element:
    """The description in an entry; raises `ArgumentError` unless it is one of these."""
    root = read_document(body)
    content = root.find(f"{{{ATOM}}}content") if root.tag == f"{{{ATOM}}}entry" else None
    wanted = " or ".join(names)
    if content is None or len(content) != 1:
        raise ArgumentError(f"the body must be an Atom entry whose content is one {wanted}")
    name = local_name(content[0])
    if name not in names:
        raise ArgumentError(f"the entry's content must be a {wanted} of {SERVICE_BUS}, got {excerpt(name)}")
    return content[0]


def local_name(element: Element) -> str:
    """An element's name without the Service Bus namespace; any other namespace is kept."""
    return element.tag.removeprefix(f"{{{SERVICE_BUS}}}")


def _values_of(
    description: Element, schema: DescriptionSchema[Any], context: ValidationContext
) -> tuple[dict[str, Any], list[str]]:
    values: dict[str, Any] = {}
    problems: list[str] = []
    seen: set[str] = set()
    for element in description:
        name = local_name(element)
        if name in seen:
            problems.append(f"{name} must be given once, got it again")
        elif name == RULES_ELEMENT and schema is not SUBSCRIPTION:
            values[RULES_SETTING], wrong = _rules_of(element, context)
            problems += wrong
        elif name in schema.fields:
            problems += _read_into(values, schema.fields[name], element)
            problems += _target_problems(values, schema.fields[name], context)
        elif name in schema.never:
            problems += _never_problems(name, element)
        elif name not in schema.ignored:
            problems.append(f"{excerpt(name)} is not a setting of a {schema.name} that this version knows")
        seen.add(name)
    return values, problems


def _never_problems(name: str, element: Element) -> list[str]:
    text = (element.text or "").strip().lower()
    return [] if text in ("", "false", "0") else [f"{name} must be false, got {excerpt(text)}"]


def _read_into(values: dict[str, Any], field: SettingElement, element: Element) -> list[str]:
    """Read one setting; returns the problems of its format."""
    if element.get(f"{{{INSTANCE}}}nil") == "true":
        return []
    text = element.text or ""
    try:
        values[field.setting] = field.format.read(text if field.format is TEXT else text.strip())
    except ValueError:
        return [f"{field.element} must be {field.format.name}, got {excerpt(text)}"]
    return []


def _target_problems(values: dict[str, Any], field: SettingElement, context: ValidationContext) -> list[str]:
    """Convert the address of a forward target to a path; returns its problems."""
    text = values.get(field.setting) if field.setting in TARGET_AUTHORIZATIONS else None
    if text is None:
        return []
    try:
        values[field.setting] = read_target(text, context.host)
    except ValueError:
        del values[field.setting]
        return [f"{field.element} must be in this namespace, '{context.host}', got {excerpt(text)}"]
    return []


# --- authorization rules -------------------------------------------------------------------------------


def _rules_of(element: Element, context: ValidationContext) -> tuple[tuple[AuthorizationRule, ...], list[str]]:
    rules: list[AuthorizationRule] = []
    problems: list[str] = []
    for each in element.findall(f"{{{SERVICE_BUS}}}AuthorizationRule"):
        try:
            rules.append(_rule_of(each, context))
        except ValueError as error:
            problems.append(f"{RULES_ELEMENT} must have times such as 2026-01-31T12:00:00Z, got {excerpt(str(error))}")
    return tuple(rules), problems


def _rule_of(element: Element, context: ValidationContext) -> AuthorizationRule:
    def text(name: str, default: str = "") -> str:
        return (element.findtext(f"{{{SERVICE_BUS}}}{name}") or "").strip() or default

    def moment(name: str) -> int:
        given = text(name)
        try:
            return parse_time_ms(given) if given else context.now_ms
        except ValueError:
            raise ValueError(given) from None

    rights = element.iterfind(f"{{{SERVICE_BUS}}}Rights/{{{SERVICE_BUS}}}AccessRights")
    return AuthorizationRule(
        text("KeyName"),
        tuple(dict.fromkeys((right.text or "").strip() for right in rights)),
        text("PrimaryKey") or context.new_key(),
        text("SecondaryKey") or context.new_key(),
        moment("CreatedTime"),
        moment("ModifiedTime"),
        text("ClaimType", "SharedAccessKey"),
        text("ClaimValue", "None"),
    )


def excerpt(text: str) -> str:
    """The start of a wrong value, quoted."""
    return repr(text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "...")
