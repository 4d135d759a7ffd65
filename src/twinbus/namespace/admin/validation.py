"""From a request's document to the settings of a queue, or to everything that is wrong with it in one message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

from twinbus.errors import ArgumentError
from twinbus.namespace.admin.durations import read_time
from twinbus.namespace.admin.fields import FIELDS, READ_ONLY, RULES_ELEMENT, RULES_SETTING, TEXT, Field
from twinbus.namespace.admin.markup import ATOM, INSTANCE, SERVICE_BUS, read_document
from twinbus.namespace.entities.settings import AuthorizationRule, QueueSettings, settings_problems

SHOWN_CHARACTERS = 60
"""How much of a wrong value is repeated in the answer."""
_FIELDS = {field.element: field for field in FIELDS}
_ELEMENTS = {field.setting: field.element for field in FIELDS} | {RULES_SETTING: RULES_ELEMENT}
_OTHER_ENTITIES = {
    "TopicDescription": "topics",
    "SubscriptionDescription": "subscriptions",
    "RuleDescription": "rules of subscriptions",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What a description does not say and its settings depend on."""

    now_ms: int
    message_bytes_max: int
    """The namespace's limit; a queue can only lower it."""
    new_key: Callable[[], str]
    """For authorization rules that bring none."""


def read_queue_settings(body: bytes, circumstances: Circumstances) -> QueueSettings:
    """The settings in an entry with a QueueDescription; raises `ArgumentError` naming every wrong field.

    What the description leaves out has its default: a document describes the whole queue.
    """
    values, problems = _values_of(_description_in(read_document(body)), circumstances)
    problems += [f"{_ELEMENTS[field]} {what}" for field, what in settings_problems(values)]
    problems += _size_problems(values.get("max_message_kb"), circumstances.message_bytes_max // 1024)
    if problems:
        raise ArgumentError("; ".join(problems))
    return QueueSettings(**values)


def _description_in(root: Element) -> Element:
    content = root.find(f"{{{ATOM}}}content") if root.tag == f"{{{ATOM}}}entry" else None
    if content is None or len(content) != 1:
        raise ArgumentError("the body must be an Atom entry whose content is one QueueDescription")
    name = content[0].tag.removeprefix(f"{{{SERVICE_BUS}}}")
    if name in _OTHER_ENTITIES:
        raise ArgumentError(f"{_OTHER_ENTITIES[name]} are not supported yet: only queues can be made")
    if name != "QueueDescription":
        raise ArgumentError(f"the entry's content must be a QueueDescription of {SERVICE_BUS}, got {_shown(name)}")
    return content[0]


def _values_of(description: Element, circumstances: Circumstances) -> tuple[dict[str, Any], list[str]]:
    values: dict[str, Any] = {}
    problems: list[str] = []
    seen: set[str] = set()
    for element in description:
        name = element.tag.removeprefix(f"{{{SERVICE_BUS}}}")
        if name in seen:
            problems.append(f"{name} must be given once, got it again")
        elif name == RULES_ELEMENT:
            values[RULES_SETTING], wrong = _rules_of(element, circumstances)
            problems += wrong
        elif name in _FIELDS:
            problems += _read_into(values, _FIELDS[name], element)
        elif name not in READ_ONLY:
            problems.append(f"{_shown(name)} is not a setting of a queue that this version knows")
        seen.add(name)
    return values, problems


def _read_into(values: dict[str, Any], field: Field, element: Element) -> list[str]:
    """Read one setting; returns what is wrong with its form."""
    if element.get(f"{{{INSTANCE}}}nil") == "true":
        return []
    text = element.text or ""
    try:
        values[field.setting] = field.form.read(text if field.form is TEXT else text.strip())
    except ValueError:
        return [f"{field.element} must be {field.form.name}, got {_shown(text)}"]
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
            problems.append(f"{RULES_ELEMENT} must have times such as 2026-01-31T12:00:00Z, got {_shown(str(error))}")
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


def _shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "...")
