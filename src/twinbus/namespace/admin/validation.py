"""From a request's document to the settings of an entity, or to everything that is wrong with it in one message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar
from xml.etree.ElementTree import Element

from twinbus.errors import ArgumentError
from twinbus.namespace.admin.durations import read_time
from twinbus.namespace.admin.fields import (
    FIELDS,
    READ_ONLY,
    RULES_ELEMENT,
    RULES_SETTING,
    SUBSCRIPTION_FIELDS,
    TEXT,
    TOPIC_FIELDS,
    Field,
)
from twinbus.namespace.admin.markup import ATOM, INSTANCE, SERVICE_BUS, read_document
from twinbus.namespace.admin.targets import TARGET_AUTHORIZATIONS, read_target
from twinbus.namespace.entities.settings import AuthorizationRule, QueueSettings, TopicSettings, settings_problems

SHOWN_CHARACTERS = 60
"""How much of a wrong value is repeated in the answer."""
Kind = TypeVar("Kind", QueueSettings, TopicSettings)


class Form(NamedTuple, Generic[Kind]):
    """What a kind of description has."""

    element: str
    settings: type[Kind]
    fields: dict[str, Field]
    ignored: frozenset[str]
    never: frozenset[str] = frozenset()
    """Settings that may be given as false only."""

    @property
    def name(self) -> str:
        return self.element.removesuffix("Description").lower()


def _by_element(fields: tuple[Field, ...]) -> dict[str, Field]:
    return {field.element: field for field in fields}


QUEUE = Form("QueueDescription", QueueSettings, _by_element(FIELDS), READ_ONLY)
TOPIC = Form(
    "TopicDescription",
    TopicSettings,
    _by_element(TOPIC_FIELDS),
    READ_ONLY,
    frozenset({"FilteringMessagesBeforePublishing", "EnableSubscriptionPartitioning"}),
)
SUBSCRIPTION = Form(
    "SubscriptionDescription",
    QueueSettings,
    _by_element(SUBSCRIPTION_FIELDS),
    READ_ONLY | {"DefaultRuleDescription"},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What a description does not say and its settings depend on."""

    now_ms: int
    message_bytes_max: int
    """The namespace's limit; a queue can only lower it."""
    new_key: Callable[[], str]
    """For authorization rules that bring none."""
    host: str = ""
    """How the client reaches this namespace."""


def read_settings(description: Element, form: Form[Kind], circumstances: Circumstances) -> Kind:
    """The settings in a description; raises `ArgumentError` naming every wrong field.

    What the description leaves out has its default: a document describes the whole entity.
    """
    values, problems = _values_of(description, form, circumstances)
    elements = {field.setting: field.element for field in form.fields.values()} | {RULES_SETTING: RULES_ELEMENT}
    problems += [f"{elements[field]} {what}" for field, what in settings_problems(values)]
    problems += _size_problems(values.get("max_message_kb"), circumstances.message_bytes_max // 1024)
    if problems:
        raise ArgumentError("; ".join(problems))
    return form.settings(**values)


def read_queue_settings(body: bytes, circumstances: Circumstances) -> QueueSettings:
    """The settings in an entry with a QueueDescription; raises `ArgumentError` naming every wrong field."""
    return read_settings(description_in(body, "QueueDescription"), QUEUE, circumstances)


def description_in(body: bytes, *names: str) -> Element:
    """The description in an entry, which must be one of these; raises `ArgumentError` if it is none of them."""
    root = read_document(body)
    content = root.find(f"{{{ATOM}}}content") if root.tag == f"{{{ATOM}}}entry" else None
    wanted = " or ".join(names)
    if content is None or len(content) != 1:
        raise ArgumentError(f"the body must be an Atom entry whose content is one {wanted}")
    name = local_name(content[0])
    if name not in names:
        raise ArgumentError(f"the entry's content must be a {wanted} of {SERVICE_BUS}, got {shown(name)}")
    return content[0]


def local_name(element: Element) -> str:
    """An element's name without the vendor's namespace; one of another namespace keeps that."""
    return element.tag.removeprefix(f"{{{SERVICE_BUS}}}")


def _values_of(description: Element, form: Form[Any], circumstances: Circumstances) -> tuple[dict[str, Any], list[str]]:
    values: dict[str, Any] = {}
    problems: list[str] = []
    seen: set[str] = set()
    for element in description:
        name = local_name(element)
        if name in seen:
            problems.append(f"{name} must be given once, got it again")
        elif name == RULES_ELEMENT and form is not SUBSCRIPTION:
            values[RULES_SETTING], wrong = _rules_of(element, circumstances)
            problems += wrong
        elif name in form.fields:
            problems += _read_into(values, form.fields[name], element)
            problems += _target_problems(values, form.fields[name], circumstances)
        elif name in form.never:
            problems += _never_problems(name, element)
        elif name not in form.ignored:
            problems.append(f"{shown(name)} is not a setting of a {form.name} that this version knows")
        seen.add(name)
    return values, problems


def _never_problems(name: str, element: Element) -> list[str]:
    text = (element.text or "").strip().lower()
    return [] if text in ("", "false", "0") else [f"{name} must be false, got {shown(text)}"]


def _read_into(values: dict[str, Any], field: Field, element: Element) -> list[str]:
    """Read one setting; returns what is wrong with its form."""
    if element.get(f"{{{INSTANCE}}}nil") == "true":
        return []
    text = element.text or ""
    try:
        values[field.setting] = field.form.read(text if field.form is TEXT else text.strip())
    except ValueError:
        return [f"{field.element} must be {field.form.name}, got {shown(text)}"]
    return []


def _target_problems(values: dict[str, Any], field: Field, circumstances: Circumstances) -> list[str]:
    """Make a path of the address to which messages are forwarded; returns what is wrong with it."""
    text = values.get(field.setting) if field.setting in TARGET_AUTHORIZATIONS else None
    if text is None:
        return []
    try:
        values[field.setting] = read_target(text, circumstances.host)
    except ValueError:
        del values[field.setting]
        return [f"{field.element} must be in this namespace, '{circumstances.host}', got {shown(text)}"]
    return []


def _size_problems(max_message_kb: int | None, limit_kb: int) -> list[str]:
    if max_message_kb is None or max_message_kb <= limit_kb:
        return []
    return [f"MaxMessageSizeInKilobytes must be at most {limit_kb}, as in this namespace, got {max_message_kb}"]


# --- authorization rules -------------------------------------------------------------------------------


def _rules_of(element: Element, circumstances: Circumstances) -> tuple[tuple[AuthorizationRule, ...], list[str]]:
    rules: list[AuthorizationRule] = []
    problems: list[str] = []
    for each in element.findall(f"{{{SERVICE_BUS}}}AuthorizationRule"):
        try:
            rules.append(_rule_of(each, circumstances))
        except ValueError as error:
            problems.append(f"{RULES_ELEMENT} must have times such as 2026-01-31T12:00:00Z, got {shown(str(error))}")
    return tuple(rules), problems


def _rule_of(element: Element, circumstances: Circumstances) -> AuthorizationRule:
    def text(name: str, default: str = "") -> str:
        return (element.findtext(f"{{{SERVICE_BUS}}}{name}") or "").strip() or default

    def moment(name: str) -> int:
        given = text(name)
        try:
            return read_time(given) if given else circumstances.now_ms
        except ValueError:
            raise ValueError(given) from None

    rights = element.iterfind(f"{{{SERVICE_BUS}}}Rights/{{{SERVICE_BUS}}}AccessRights")
    return AuthorizationRule(
        text("KeyName"),
        tuple(dict.fromkeys((right.text or "").strip() for right in rights)),
        text("PrimaryKey") or circumstances.new_key(),
        text("SecondaryKey") or circumstances.new_key(),
        moment("CreatedTime"),
        moment("ModifiedTime"),
        text("ClaimType", "SharedAccessKey"),
        text("ClaimValue", "None"),
    )


def shown(text: str) -> str:
    """A wrong value as an answer repeats it."""
    return repr(text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "...")
