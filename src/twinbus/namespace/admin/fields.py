"""The elements of descriptions that are settings: their names, their form, and where they are kept."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from twinbus.namespace.admin.durations import read_duration, read_endless, write_duration, write_endless
from twinbus.namespace.entities.settings import QueueStatus

_WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)


class Form(NamedTuple):
    """How a kind of value is written; `read` raises `ValueError` for what is not of this form."""

    name: str
    read: Callable[[str], Any]
    write: Callable[[Any], str]


class Field(NamedTuple):
    element: str
    setting: str
    """The field of `QueueSettings` or `TopicSettings`."""
    form: Form


def _read_whole(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _read_flag(text: str) -> bool:
    try:
        return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
    except KeyError:
        raise ValueError(text) from None


def _read_status(text: str) -> QueueStatus:
    return QueueStatus(text)


WHOLE = Form("a whole number", _read_whole, str)
FLAG = Form("true or false", _read_flag, lambda value: "true" if value else "false")
DURATION = Form("a duration such as PT1M30S", read_duration, write_duration)
ENDLESS = Form("a duration such as P14D", read_endless, write_endless)
STATUS = Form(f"one of {', '.join(QueueStatus)}", _read_status, str)
TEXT = Form("text", lambda text: text or None, str)

FIELDS = (
    Field("LockDuration", "lock_ms", DURATION),
    Field("MaxSizeInMegabytes", "max_size_mb", WHOLE),
    Field("RequiresDuplicateDetection", "requires_duplicate_detection", FLAG),
    Field("RequiresSession", "requires_session", FLAG),
    Field("DefaultMessageTimeToLive", "default_ttl_ms", ENDLESS),
    Field("DeadLetteringOnMessageExpiration", "dead_letter_on_expiration", FLAG),
    Field("DuplicateDetectionHistoryTimeWindow", "duplicate_window_ms", DURATION),
    Field("MaxDeliveryCount", "max_delivery_count", WHOLE),
    Field("EnableBatchedOperations", "batched_operations", FLAG),
    Field("Status", "status", STATUS),
    Field("ForwardTo", "forward_to", TEXT),
    Field("UserMetadata", "user_metadata", TEXT),
    Field("AutoDeleteOnIdle", "auto_delete_on_idle_ms", ENDLESS),
    Field("EnablePartitioning", "partitioned", FLAG),
    Field("EnableExpress", "express", FLAG),
    Field("ForwardDeadLetteredMessagesTo", "forward_dead_letters_to", TEXT),
    Field("MaxMessageSizeInKilobytes", "max_message_kb", WHOLE),
)
_BY_ELEMENT = {field.element: field for field in FIELDS}


def _chosen(*elements: str) -> tuple[Field, ...]:
    return tuple(_BY_ELEMENT[element] for element in elements)


TOPIC_FIELDS = (
    *_chosen(
        "DefaultMessageTimeToLive",
        "MaxSizeInMegabytes",
        "RequiresDuplicateDetection",
        "DuplicateDetectionHistoryTimeWindow",
        "EnableBatchedOperations",
        "Status",
        "UserMetadata",
        "AutoDeleteOnIdle",
        "EnablePartitioning",
        "EnableExpress",
        "MaxMessageSizeInKilobytes",
    ),
    Field("SupportOrdering", "support_ordering", FLAG),
)
SUBSCRIPTION_FIELDS = (
    *_chosen(
        "LockDuration",
        "RequiresSession",
        "DefaultMessageTimeToLive",
        "DeadLetteringOnMessageExpiration",
        "MaxDeliveryCount",
        "EnableBatchedOperations",
        "Status",
        "ForwardTo",
        "UserMetadata",
        "AutoDeleteOnIdle",
        "ForwardDeadLetteredMessagesTo",
    ),
    Field("DeadLetteringOnFilterEvaluationExceptions", "dead_letter_on_filter_errors", FLAG),
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
"""What clients send back because they got it; the service does not look at it."""
