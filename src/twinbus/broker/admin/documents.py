"""Response documents: entries, feeds and errors, in the form that both official clients read.

One of them takes names from the path of `<id>`, needs a dozen elements, and expects exactly one attribute, a prefix, on
CountDetails; the other one takes names from `<title>` and requests the next page if, and only if, a feed has two links,
of which it takes the second.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

from twinbus.broker.admin.fields import (
    FIELDS,
    QUEUE_ELEMENTS,
    SUBSCRIPTION_ELEMENTS,
    SUBSCRIPTION_FIELDS,
    TOPIC_ELEMENTS,
    TOPIC_FIELDS,
    SettingElement,
    write_target,
)
from twinbus.broker.admin.rule_documents import rule_description
from twinbus.broker.admin.xml_text import ATOM, INSTANCE, SERVICE_BUS, document, plain, tag
from twinbus.broker.core.replies import QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.broker.entities.settings import AuthorizationRule, QueueSettings, TopicSettings
from twinbus.broker.entities.topics.rules import Rule
from twinbus.units import utc_time_ms

COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
QUEUES_PATH, TOPICS_PATH, NAMESPACE_PATH = "$Resources/queues", "$Resources/topics", "$namespaceinfo"

MESSAGE_LIMIT_VERSION = "2021-05"
_NEVER_LEFT_OUT = frozenset({"DefaultMessageTimeToLive", "AutoDeleteOnIdle"})
"""For these None is written as the infinite duration."""


class DocumentContext(NamedTuple):
    """What every document contains about its namespace."""

    namespace: str
    base_url: str
    """`https://host:port`, as the client connected."""
    api_version: str
    message_kb_max: int = 256
    """Of the namespace: of every queue and topic that has no limit of its own."""

    @property
    def host(self) -> str:
        return self.base_url.partition("://")[2]

    def address(self, path: str, query: str = "") -> str:
        return f"{self.base_url}/{quote(path, safe='/$~')}?{query}api-version={quote(self.api_version)}"


# --- entities -----------------------------------------------------------------------------------------


def queue_entry(queue: QueueDescription, context: DocumentContext) -> bytes:
    return document(_queue(queue, context))


def queue_feed(queues: tuple[QueueDescription, ...], next_query: str | None, context: DocumentContext) -> bytes:
    """A page of queues; `next_query` (`$skip=100&$top=100&`) leads to the next one, None: there is none."""
    entries = [_queue(queue, context) for queue in queues]
    updated_ms = max((queue.updated_at_ms for queue in queues), default=0)
    return _feed("Queues", QUEUES_PATH, entries, next_query, updated_ms, context)


def topic_entry(topic: TopicDescription, context: DocumentContext) -> bytes:
    return document(_topic(topic, context))


def topic_feed(topics: tuple[TopicDescription, ...], next_query: str | None, context: DocumentContext) -> bytes:
    entries = [_topic(topic, context) for topic in topics]
    updated_ms = max((topic.updated_at_ms for topic in topics), default=0)
    return _feed("Topics", TOPICS_PATH, entries, next_query, updated_ms, context)


def subscription_entry(subscription: SubscriptionDescription, context: DocumentContext) -> bytes:
    return document(_subscription(subscription, context))


def subscription_feed(
    topic: str, found: tuple[SubscriptionDescription, ...], next_query: str | None, context: DocumentContext
) -> bytes:
    entries = [_subscription(each, context) for each in found]
    updated_ms = max((each.queue.updated_at_ms for each in found), default=0)
    return _feed("Subscriptions", f"{topic}/Subscriptions", entries, next_query, updated_ms, context)


def rule_entry(subscription: str, rule: Rule, context: DocumentContext) -> bytes:
    return document(_rule(subscription, rule, context))


def rule_feed(subscription: str, found: tuple[Rule, ...], next_query: str | None, context: DocumentContext) -> bytes:
    entries = [_rule(subscription, each, context) for each in found]
    updated_ms = max((each.created_at_ms for each in found), default=0)
    return _feed("Rules", f"{subscription}/Rules", entries, next_query, updated_ms, context)


def _queue(queue: QueueDescription, context: DocumentContext) -> str:
    found = _message_limit(context) | _settings_elements(queue.settings, FIELDS)
    found |= _target_elements(queue.settings, context)
    found |= _elements(
        SizeInBytes=str(queue.stored_bytes),
        MessageCount=str(_message_count(queue)),
        IsAnonymousAccessible="false",
        SupportOrdering="true",
        EntityAvailabilityStatus="Available",
    )
    found["AuthorizationRules"] = _authorization_rules(queue.settings.authorization_rules)
    found["CountDetails"] = _queue_counts(queue)
    return _described("QueueDescription", found, QUEUE_ELEMENTS, queue, queue.path, context)


def _topic(topic: TopicDescription, context: DocumentContext) -> str:
    found = _message_limit(context) | _settings_elements(topic.settings, TOPIC_FIELDS)
    found |= _elements(
        SizeInBytes=str(topic.stored_bytes),
        FilteringMessagesBeforePublishing="false",
        IsAnonymousAccessible="false",
        SubscriptionCount=str(topic.subscriptions),
        SqlFilterCount=str(topic.sql_filters),
        CorrelationFilterCount=str(topic.correlation_filters),
        EntityAvailabilityStatus="Available",
        EnableSubscriptionPartitioning="false",
    )
    found["AuthorizationRules"] = _authorization_rules(topic.settings.authorization_rules)
    found["CountDetails"] = _count_details(0, 0, topic.scheduled, 0)
    return _described("TopicDescription", found, TOPIC_ELEMENTS, topic, topic.path, context)


def _subscription(subscription: SubscriptionDescription, context: DocumentContext) -> str:
    queue = subscription.queue
    found = _settings_elements(queue.settings, SUBSCRIPTION_FIELDS) | _target_elements(queue.settings, context)
    found |= _elements(MessageCount=str(_message_count(queue)), EntityAvailabilityStatus="Available")
    found["CountDetails"] = _queue_counts(queue)
    return _described("SubscriptionDescription", found, SUBSCRIPTION_ELEMENTS, queue, subscription.name, context)


def _rule(subscription: str, rule: Rule, context: DocumentContext) -> str:
    path = f"{subscription}/Rules/{rule.name}"
    return _entry(rule.name, path, rule_description(rule), rule.created_at_ms, rule.created_at_ms, context)


# --- elements -----------------------------------------------------------------------------------------


def _described(
    name: str,
    found: dict[str, str],
    order: tuple[str, ...],
    entity: QueueDescription | TopicDescription,
    title: str,
    context: DocumentContext,
) -> str:
    """The entry of an entity: these elements and its times, in the service's order."""
    found |= _elements(
        CreatedAt=utc_time_ms(entity.created_at_ms),
        UpdatedAt=utc_time_ms(entity.updated_at_ms),
        AccessedAt=utc_time_ms(entity.accessed_at_ms),
    )
    parts = "".join(found[element] for element in order if element in found)
    content = tag(name, parts, xmlns=SERVICE_BUS, xmlns__i=INSTANCE)
    return _entry(title, entity.path, content, entity.created_at_ms, entity.updated_at_ms, context)


def _elements(**texts: str) -> dict[str, str]:
    return {name: tag(name, text) for name, text in texts.items()}


def _settings_elements(settings: QueueSettings | TopicSettings, fields: tuple[SettingElement, ...]) -> dict[str, str]:
    found = {}
    for field in fields:
        value = getattr(settings, field.setting)
        if value is not None or field.element in _NEVER_LEFT_OUT:
            found[field.element] = tag(field.element, plain(field.format.write(value)))
    return found


def _message_limit(context: DocumentContext) -> dict[str, str]:
    """Clients that know of a limit expect one: the Java client takes a missing one for 0, and sends that back."""
    if context.api_version < MESSAGE_LIMIT_VERSION:
        return {}
    return {"MaxMessageSizeInKilobytes": tag("MaxMessageSizeInKilobytes", str(context.message_kb_max))}


def _target_elements(settings: QueueSettings, context: DocumentContext) -> dict[str, str]:
    targets = {"ForwardTo": settings.forward_to, "ForwardDeadLetteredMessagesTo": settings.forward_dead_letters_to}
    return {name: tag(name, plain(write_target(path, context.base_url))) for name, path in targets.items() if path}


def _message_count(queue: QueueDescription) -> int:
    return queue.active + queue.deferred + queue.scheduled + queue.dead_letters + queue.transfer_dead_letters


def _queue_counts(queue: QueueDescription) -> str:
    # The service counts deferred messages as active.
    active = queue.active + queue.deferred
    return _count_details(active, queue.dead_letters, queue.scheduled, queue.transfer_dead_letters)


def _count_details(active: int, dead_letters: int, scheduled: int, transfer_dead_letters: int) -> str:
    found = {
        "ActiveMessageCount": active,
        "DeadLetterMessageCount": dead_letters,
        "ScheduledMessageCount": scheduled,
        "TransferMessageCount": 0,
        "TransferDeadLetterMessageCount": transfer_dead_letters,
    }
    return tag("CountDetails", *(tag(f"d2p1:{name}", str(count)) for name, count in found.items()), xmlns__d2p1=COUNTS)


def _authorization_rules(rules: tuple[AuthorizationRule, ...]) -> str:
    return tag("AuthorizationRules", *map(_authorization_rule, rules))


def _authorization_rule(rule: AuthorizationRule) -> str:
    return tag(
        "AuthorizationRule",
        tag("ClaimType", plain(rule.claim_type)),
        tag("ClaimValue", plain(rule.claim_value)),
        tag("Rights", *(tag("AccessRights", right) for right in rule.rights)),
        tag("CreatedTime", utc_time_ms(rule.created_at_ms)),
        tag("ModifiedTime", utc_time_ms(rule.modified_at_ms)),
        tag("KeyName", plain(rule.key_name)),
        tag("PrimaryKey", plain(rule.primary_key)),
        tag("SecondaryKey", plain(rule.secondary_key)),
        i__type="SharedAccessAuthorizationRule",
    )


# --- namespace, errors, Atom --------------------------------------------------------------------------


def namespace_entry(created_at_ms: int, context: DocumentContext) -> bytes:
    created = utc_time_ms(created_at_ms)
    content = tag(
        "NamespaceInfo",
        tag("CreatedTime", created),
        tag("MessagingSKU", "Standard"),
        tag("ModifiedTime", created),
        tag("Name", plain(context.namespace)),
        tag("NamespaceType", "Messaging"),
        xmlns=SERVICE_BUS,
        xmlns__i=INSTANCE,
    )
    times = (created_at_ms, created_at_ms)
    return document(_entry(context.namespace, NAMESPACE_PATH, content, *times, context))


def error_document(status: int, text: str) -> bytes:
    return document(tag("Error", tag("Code", str(status)), tag("Detail", plain(text))))


def _entry(title: str, path: str, content: str, published_ms: int, updated_ms: int, context: DocumentContext) -> str:
    address = context.address(path)
    return tag(
        "entry",
        tag("id", plain(address)),
        tag("title", plain(title), type="text"),
        tag("published", utc_time_ms(published_ms)),
        tag("updated", utc_time_ms(updated_ms)),
        tag("author", tag("name", plain(context.namespace))),
        tag("link", rel="self", href=address),
        tag("content", content, type="application/xml"),
        xmlns=ATOM,
    )


def _feed(
    title: str, path: str, entries: list[str], next_query: str | None, updated_ms: int, context: DocumentContext
) -> bytes:
    address = context.address(path)
    links = [tag("link", rel="self", href=address)]
    if next_query is not None:
        links.append(tag("link", rel="next", href=context.address(path, next_query)))
    head = (tag("title", title, type="text"), tag("id", plain(address)), tag("updated", utc_time_ms(updated_ms)))
    return document(tag("feed", *head, *links, *entries, xmlns=ATOM))
