"""Settings in descriptions: element names, value formats, forward targets, and names of the official clients."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from enum import Enum
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, unquote, urlsplit

from twinbus.broker.entities.settings import QueueStatus, Settings
from twinbus.errors import OptionsError
from twinbus.units import (
    INFINITE_MS,
    iso_duration,
    iso_duration_or_infinite,
    parse_iso_duration,
    parse_iso_duration_or_infinite,
)

_WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)


class ValueFormat(NamedTuple):
    """How a type of value is read and written; `read` raises `ValueError` for anything else."""

    name: str
    read: Callable[[str], Any]
    write: Callable[[Any], str]


class SettingElement(NamedTuple):
    element: str
    setting: str
    """The field of `QueueSettings` or `TopicSettings`."""
    format: ValueFormat


def _read_whole(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _read_flag(text: str) -> bool:
    try:
        return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
    except KeyError:
        raise ValueError(text) from None


WHOLE = ValueFormat("a whole number", _read_whole, str)
FLAG = ValueFormat("true or false", _read_flag, lambda value: "true" if value else "false")
DURATION = ValueFormat("a duration such as PT1M30S", parse_iso_duration, iso_duration)
ENDLESS = ValueFormat("a duration such as P14D", parse_iso_duration_or_infinite, iso_duration_or_infinite)
STATUS = ValueFormat(f"one of {', '.join(QueueStatus)}", QueueStatus, str)
TEXT = ValueFormat("text", lambda text: text or None, str)

FIELDS = (
    SettingElement("LockDuration", "lock_ms", DURATION),
    SettingElement("MaxSizeInMegabytes", "max_size_mb", WHOLE),
    SettingElement("RequiresDuplicateDetection", "requires_duplicate_detection", FLAG),
    SettingElement("RequiresSession", "requires_session", FLAG),
    SettingElement("DefaultMessageTimeToLive", "default_ttl_ms", ENDLESS),
    SettingElement("DeadLetteringOnMessageExpiration", "dead_letter_on_expiration", FLAG),
    SettingElement("DuplicateDetectionHistoryTimeWindow", "duplicate_window_ms", DURATION),
    SettingElement("MaxDeliveryCount", "max_delivery_count", WHOLE),
    SettingElement("EnableBatchedOperations", "batched_operations", FLAG),
    SettingElement("Status", "status", STATUS),
    SettingElement("ForwardTo", "forward_to", TEXT),
    SettingElement("UserMetadata", "user_metadata", TEXT),
    SettingElement("AutoDeleteOnIdle", "auto_delete_on_idle_ms", ENDLESS),
    SettingElement("EnablePartitioning", "partitioned", FLAG),
    SettingElement("EnableExpress", "express", FLAG),
    SettingElement("ForwardDeadLetteredMessagesTo", "forward_dead_letters_to", TEXT),
    SettingElement("MaxMessageSizeInKilobytes", "max_message_kb", WHOLE),
)
QUEUE_ELEMENTS = (
    "LockDuration",
    "MaxSizeInMegabytes",
    "RequiresDuplicateDetection",
    "RequiresSession",
    "DefaultMessageTimeToLive",
    "DeadLetteringOnMessageExpiration",
    "DuplicateDetectionHistoryTimeWindow",
    "MaxDeliveryCount",
    "EnableBatchedOperations",
    "SizeInBytes",
    "MessageCount",
    "IsAnonymousAccessible",
    "AuthorizationRules",
    "Status",
    "ForwardTo",
    "UserMetadata",
    "CreatedAt",
    "UpdatedAt",
    "AccessedAt",
    "SupportOrdering",
    "CountDetails",
    "AutoDeleteOnIdle",
    "EnablePartitioning",
    "EntityAvailabilityStatus",
    "EnableExpress",
    "ForwardDeadLetteredMessagesTo",
    "MaxMessageSizeInKilobytes",
)
TOPIC_ELEMENTS = (
    "DefaultMessageTimeToLive",
    "MaxSizeInMegabytes",
    "RequiresDuplicateDetection",
    "DuplicateDetectionHistoryTimeWindow",
    "EnableBatchedOperations",
    "SizeInBytes",
    "FilteringMessagesBeforePublishing",
    "IsAnonymousAccessible",
    "AuthorizationRules",
    "Status",
    "UserMetadata",
    "CreatedAt",
    "UpdatedAt",
    "AccessedAt",
    "SupportOrdering",
    "CountDetails",
    "SubscriptionCount",
    "SqlFilterCount",
    "CorrelationFilterCount",
    "AutoDeleteOnIdle",
    "EnablePartitioning",
    "EntityAvailabilityStatus",
    "EnableSubscriptionPartitioning",
    "EnableExpress",
    "MaxMessageSizeInKilobytes",
)
SUBSCRIPTION_ELEMENTS = (
    "LockDuration",
    "RequiresSession",
    "DefaultMessageTimeToLive",
    "DeadLetteringOnMessageExpiration",
    "DeadLetteringOnFilterEvaluationExceptions",
    "MessageCount",
    "MaxDeliveryCount",
    "EnableBatchedOperations",
    "Status",
    "ForwardTo",
    "CreatedAt",
    "UpdatedAt",
    "AccessedAt",
    "CountDetails",
    "ForwardDeadLetteredMessagesTo",
    "AutoDeleteOnIdle",
    "EntityAvailabilityStatus",
    "UserMetadata",
)
"""All elements of a description, in the service's order."""


def _settings_in(elements: tuple[str, ...]) -> tuple[SettingElement, ...]:
    return tuple(field for field in FIELDS if field.element in elements)


TOPIC_FIELDS = (*_settings_in(TOPIC_ELEMENTS), SettingElement("SupportOrdering", "support_ordering", FLAG))
SUBSCRIPTION_FIELDS = (
    *_settings_in(SUBSCRIPTION_ELEMENTS),
    SettingElement("DeadLetteringOnFilterEvaluationExceptions", "dead_letter_on_filter_errors", FLAG),
)
RULES_ELEMENT, RULES_SETTING = "AuthorizationRules", "authorization_rules"
READ_ONLY = frozenset(
    {
        "SizeInBytes",
        "MessageCount",
        "IsAnonymousAccessible",
        "CreatedAt",
        "UpdatedAt",
        "AccessedAt",
        "SupportOrdering",
        "CountDetails",
        "EntityAvailabilityStatus",
        "SubscriptionCount",
        "SqlFilterCount",
        "CorrelationFilterCount",
    }
)
"""Elements that clients send back as they got them; the service ignores them."""

# --- forward targets: the address of an entity in this namespace ----------------------------------------

TARGET_AUTHORIZATIONS = {
    "forward_to": "ServiceBusSupplementaryAuthorization",
    "forward_dead_letters_to": "ServiceBusDlqSupplementaryAuthorization",
}
"""By setting: the header with the token for the target."""
TARGET_HEADERS = {
    field.element: TARGET_AUTHORIZATIONS[field.setting] for field in FIELDS if field.setting in TARGET_AUTHORIZATIONS
}
"""The same by element."""


def is_at(address: str, host: str) -> bool:
    """Whether an address (`sb://host:port/orders`) is at a host (`host:port`); one without a port fits any.

    Raises `ValueError` if it is not an address.
    """
    theirs, ours = urlsplit(address), urlsplit(f"//{host}")
    return theirs.hostname == ours.hostname and theirs.port in (None, ours.port)


def read_target(text: str, host: str) -> str:
    """The path in `sb://host:port/orders` or `orders`; raises `ValueError` if it is in another namespace.

    `host` is how the client reaches this namespace.
    """
    if "://" not in text:
        return text
    if not is_at(text, host):
        raise ValueError(text)
    path = unquote(urlsplit(text).path).strip("/")
    # The Java client takes an address that begins with sb: for a path, and puts the namespace before it once more.
    return read_target(path, host) if path.startswith("sb://") else path


def write_target(path: str, base_url: str) -> str:
    """The address of a path, for a client that connected to `base_url`."""
    return f"sb://{base_url.partition('://')[2]}/{quote(path, safe='/~')}"


# --- names of the official administration client: `lock_duration` for `lock_ms` -------------------------

SettingsT = TypeVar("SettingsT", bound=Settings)


def settings_of(kind: type[SettingsT], fields: Iterable[SettingElement], given: Mapping[str, Any]) -> SettingsT:
    """Settings by our names or the SDK's; raises `OptionsError` with all problems."""
    ours = set(inspect.signature(kind).parameters)
    theirs = {_sdk_name(field.element): field for field in fields}
    values: dict[str, Any] = {}
    problems: list[str] = []
    for name, value in given.items():
        field = theirs.get(name)
        if field is None and name not in ours:
            problems.append(
                f"{name} is not a setting of a {kind.KIND}; valid are {', '.join(sorted(ours | theirs.keys()))}"
            )
        elif name in ours:
            values[name] = value
        elif field is not None and field.setting in given:
            problems.append(f"{name} and {field.setting} are the same setting: give one of them")
        elif field is not None:
            try:
                values[field.setting] = None if value is None else field.format.read(value_text(value))
            except ValueError:
                problems.append(f"{name} takes {field.format.name} or what the SDK takes, got {value!r}")
    OptionsError.raise_for(problems)
    return kind(**values)


def _sdk_name(element: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", element).lower()


def value_text(value: object) -> str:
    """A value of the SDK, or of JSON, as an official client would write it."""
    match value:
        case timedelta():
            value_ms = round(value / timedelta(milliseconds=1))
            return iso_duration_or_infinite(None if value_ms >= INFINITE_MS else value_ms)
        case Enum():
            return str(value.value)
        case bool():
            return str(value).lower()
        case _:
            return str(value)
