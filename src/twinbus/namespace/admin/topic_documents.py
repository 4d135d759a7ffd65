"""The documents of topics, subscriptions and rules; `documents.py` says what makes both official clients read them."""

from __future__ import annotations

from twinbus.namespace.admin.documents import (
    TOPICS_PATH,
    Counts,
    Letterhead,
    authorization_rules,
    count_details,
    counts_of,
    entry,
    feed,
    settings_elements,
    target_elements,
    times,
)
from twinbus.namespace.admin.fields import SUBSCRIPTION_FIELDS, TOPIC_FIELDS
from twinbus.namespace.admin.markup import INSTANCE, SERVICE_BUS, document, tag
from twinbus.namespace.admin.rule_documents import rule_description
from twinbus.namespace.entities.rules import Rule
from twinbus.namespace.replies import SubscriptionDescription, TopicDescription

_TOPIC_ORDER = (
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
_SUBSCRIPTION_ORDER = (
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


# --- topics -------------------------------------------------------------------------------------------


def topic_entry(topic: TopicDescription, letterhead: Letterhead) -> bytes:
    return document(_topic(topic, letterhead))


def topic_feed(topics: tuple[TopicDescription, ...], next_query: str | None, letterhead: Letterhead) -> bytes:
    entries = [_topic(topic, letterhead) for topic in topics]
    updated_ms = max((topic.updated_at_ms for topic in topics), default=0)
    return feed("Topics", TOPICS_PATH, entries, next_query, updated_ms, letterhead)


def _topic(topic: TopicDescription, letterhead: Letterhead) -> str:
    simple = {
        "SizeInBytes": str(topic.stored_bytes),
        "FilteringMessagesBeforePublishing": "false",
        "IsAnonymousAccessible": "false",
        "SubscriptionCount": str(topic.subscriptions),
        "SqlFilterCount": str(topic.sql_filters),
        "CorrelationFilterCount": str(topic.correlation_filters),
        "EntityAvailabilityStatus": "Available",
        "EnableSubscriptionPartitioning": "false",
    }
    found = settings_elements(topic.settings, TOPIC_FIELDS) | {name: tag(name, text) for name, text in simple.items()}
    found |= times(topic.created_at_ms, topic.updated_at_ms, topic.accessed_at_ms)
    found["AuthorizationRules"] = authorization_rules(topic.settings.authorization_rules)
    found["CountDetails"] = count_details(Counts(0, 0, topic.scheduled))
    content = _description("TopicDescription", found, _TOPIC_ORDER)
    return entry(topic.path, topic.path, content, topic.created_at_ms, topic.updated_at_ms, letterhead)


def _description(name: str, found: dict[str, str], order: tuple[str, ...]) -> str:
    parts = "".join(found[element] for element in order if element in found)
    return tag(name, parts, xmlns=SERVICE_BUS, xmlns__i=INSTANCE)


# --- subscriptions ------------------------------------------------------------------------------------


def subscription_entry(subscription: SubscriptionDescription, letterhead: Letterhead) -> bytes:
    return document(_subscription(subscription, letterhead))


def subscription_feed(
    topic: str, found: tuple[SubscriptionDescription, ...], next_query: str | None, letterhead: Letterhead
) -> bytes:
    entries = [_subscription(each, letterhead) for each in found]
    updated_ms = max((each.queue.updated_at_ms for each in found), default=0)
    return feed("Subscriptions", f"{topic}/Subscriptions", entries, next_query, updated_ms, letterhead)


def _subscription(subscription: SubscriptionDescription, letterhead: Letterhead) -> str:
    queue = subscription.queue
    total = queue.active + queue.deferred + queue.scheduled + queue.dead_letters + queue.transfer_dead_letters
    found = settings_elements(queue.settings, SUBSCRIPTION_FIELDS) | target_elements(queue.settings, letterhead)
    found |= times(queue.created_at_ms, queue.updated_at_ms, queue.accessed_at_ms)
    found["MessageCount"] = tag("MessageCount", str(total))
    found["EntityAvailabilityStatus"] = tag("EntityAvailabilityStatus", "Available")
    found["CountDetails"] = count_details(counts_of(queue))
    content = _description("SubscriptionDescription", found, _SUBSCRIPTION_ORDER)
    return entry(subscription.name, queue.path, content, queue.created_at_ms, queue.updated_at_ms, letterhead)


# --- rules --------------------------------------------------------------------------------------------


def rule_entry(subscription: str, rule: Rule, letterhead: Letterhead) -> bytes:
    return document(_rule(subscription, rule, letterhead))


def rule_feed(subscription: str, found: tuple[Rule, ...], next_query: str | None, letterhead: Letterhead) -> bytes:
    entries = [_rule(subscription, each, letterhead) for each in found]
    updated_ms = max((each.created_at_ms for each in found), default=0)
    return feed("Rules", f"{subscription}/Rules", entries, next_query, updated_ms, letterhead)


def _rule(subscription: str, rule: Rule, letterhead: Letterhead) -> str:
    path = f"{subscription}/Rules/{rule.name}"
    return entry(rule.name, path, rule_description(rule), rule.created_at_ms, rule.created_at_ms, letterhead)
