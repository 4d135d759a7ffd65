"""The documents of answers: entries, feeds and errors, in the shape that both official clients read.

One of them takes names from the path of `<id>`, needs a dozen elements to be there, and wants exactly one attribute,
a prefix, on CountDetails; the other one takes names from `<title>` and goes to the next page if, and only if, a feed
has two links, of which it takes the second.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

from twinbus.namespace.admin.durations import write_time
from twinbus.namespace.admin.fields import FIELDS, Field
from twinbus.namespace.admin.markup import ATOM, INSTANCE, SERVICE_BUS, document, plain, tag
from twinbus.namespace.admin.targets import write_target
from twinbus.namespace.entities.settings import AuthorizationRule, QueueSettings, TopicSettings
from twinbus.namespace.replies import QueueDescription

COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
QUEUES_PATH, TOPICS_PATH, NAMESPACE_PATH = "$Resources/queues", "$Resources/topics", "$namespaceinfo"

_SERVICE_ORDER = (
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
_NEVER_LEFT_OUT = frozenset({"DefaultMessageTimeToLive", "AutoDeleteOnIdle"})
"""Here None has a word of its own: the infinite duration."""


class Letterhead(NamedTuple):
    """What every document says of where it comes from."""

    namespace: str
    base_url: str
    """`https://host:port`, as the client dialled it."""
    api_version: str

    @property
    def host(self) -> str:
        return self.base_url.partition("://")[2]

    def address(self, path: str, query: str = "") -> str:
        return f"{self.base_url}/{quote(path, safe='/$~')}?{query}api-version={quote(self.api_version)}"


class NamespaceInfo(NamedTuple):
    name: str
    created_at_ms: int
    sku: str = "Standard"


# --- queues --------------------------------------------------------------------------------------------


def queue_entry(queue: QueueDescription, letterhead: Letterhead) -> bytes:
    return document(_queue_entry(queue, letterhead))


def queue_feed(queues: tuple[QueueDescription, ...], next_query: str | None, letterhead: Letterhead) -> bytes:
    """A page of queues; `next_query` (`$skip=100&$top=100&`) leads to the next one, None: there is none."""
    entries = [_queue_entry(queue, letterhead) for queue in queues]
    updated_ms = max((queue.updated_at_ms for queue in queues), default=0)
    return feed("Queues", QUEUES_PATH, entries, next_query, updated_ms, letterhead)


def _queue_entry(queue: QueueDescription, letterhead: Letterhead) -> str:
    found = _settings_of(queue) | target_elements(queue.settings, letterhead) | _state_of(queue)
    description = "".join(found[name] for name in _SERVICE_ORDER if name in found)
    content = tag("QueueDescription", description, xmlns=SERVICE_BUS, xmlns__i=INSTANCE)
    return entry(queue.path, queue.path, content, queue.created_at_ms, queue.updated_at_ms, letterhead)


def settings_elements(settings: QueueSettings | TopicSettings, fields: tuple[Field, ...]) -> dict[str, str]:
    """The elements of a description that are settings, by name."""
    found = {}
    for field in fields:
        value = getattr(settings, field.setting)
        if value is not None or field.element in _NEVER_LEFT_OUT:
            found[field.element] = tag(field.element, plain(field.form.write(value)))
    return found


def target_elements(settings: QueueSettings, letterhead: Letterhead) -> dict[str, str]:
    """Where messages are forwarded to, by the name of the element."""
    targets = {"ForwardTo": settings.forward_to, "ForwardDeadLetteredMessagesTo": settings.forward_dead_letters_to}
    return {name: tag(name, plain(write_target(path, letterhead.base_url))) for name, path in targets.items() if path}


def authorization_rules(rules: tuple[AuthorizationRule, ...]) -> str:
    return tag("AuthorizationRules", *map(_rule, rules))


def times(created_at_ms: int, updated_at_ms: int, accessed_at_ms: int) -> dict[str, str]:
    moments = {"CreatedAt": created_at_ms, "UpdatedAt": updated_at_ms, "AccessedAt": accessed_at_ms}
    return {name: tag(name, write_time(moment)) for name, moment in moments.items()}


def _settings_of(queue: QueueDescription) -> dict[str, str]:
    own = {"AuthorizationRules": authorization_rules(queue.settings.authorization_rules)}
    return own | settings_elements(queue.settings, FIELDS)


def _state_of(queue: QueueDescription) -> dict[str, str]:
    total = queue.active + queue.deferred + queue.scheduled + queue.dead_letters + queue.transfer_dead_letters
    simple = {
        "SizeInBytes": str(queue.stored_bytes),
        "MessageCount": str(total),
        "IsAnonymousAccessible": "false",
        "SupportOrdering": "true",
        "EntityAvailabilityStatus": "Available",
    }
    counts = count_details(counts_of(queue))
    moments = times(queue.created_at_ms, queue.updated_at_ms, queue.accessed_at_ms)
    return {name: tag(name, text) for name, text in simple.items()} | moments | {"CountDetails": counts}


class Counts(NamedTuple):
    active: int
    dead_letters: int
    scheduled: int
    transfers: int = 0
    transfer_dead_letters: int = 0


def counts_of(queue: QueueDescription) -> Counts:
    # the service counts deferred messages among the active ones
    active = queue.active + queue.deferred
    return Counts(active, queue.dead_letters, queue.scheduled, 0, queue.transfer_dead_letters)


def count_details(counts: Counts) -> str:
    found = {
        "ActiveMessageCount": counts.active,
        "DeadLetterMessageCount": counts.dead_letters,
        "ScheduledMessageCount": counts.scheduled,
        "TransferMessageCount": counts.transfers,
        "TransferDeadLetterMessageCount": counts.transfer_dead_letters,
    }
    return tag("CountDetails", *(tag(f"d2p1:{name}", str(count)) for name, count in found.items()), xmlns__d2p1=COUNTS)


def _rule(rule: AuthorizationRule) -> str:
    return tag(
        "AuthorizationRule",
        tag("ClaimType", plain(rule.claim_type)),
        tag("ClaimValue", plain(rule.claim_value)),
        tag("Rights", *(tag("AccessRights", right) for right in rule.rights)),
        tag("CreatedTime", write_time(rule.created_at_ms)),
        tag("ModifiedTime", write_time(rule.modified_at_ms)),
        tag("KeyName", plain(rule.key_name)),
        tag("PrimaryKey", plain(rule.primary_key)),
        tag("SecondaryKey", plain(rule.secondary_key)),
        i__type="SharedAccessAuthorizationRule",
    )


# --- the rest ------------------------------------------------------------------------------------------


def namespace_entry(info: NamespaceInfo, letterhead: Letterhead) -> bytes:
    created = write_time(info.created_at_ms)
    content = tag(
        "NamespaceInfo",
        tag("CreatedTime", created),
        tag("MessagingSKU", info.sku),
        tag("ModifiedTime", created),
        tag("Name", plain(info.name)),
        tag("NamespaceType", "Messaging"),
        xmlns=SERVICE_BUS,
        xmlns__i=INSTANCE,
    )
    times = (info.created_at_ms, info.created_at_ms)
    return document(entry(info.name, NAMESPACE_PATH, content, *times, letterhead))


def error_document(status: int, text: str) -> bytes:
    return document(tag("Error", tag("Code", str(status)), tag("Detail", plain(text))))


def entry(title: str, path: str, content: str, published_ms: int, updated_ms: int, letterhead: Letterhead) -> str:
    address = letterhead.address(path)
    return tag(
        "entry",
        tag("id", plain(address)),
        tag("title", plain(title), type="text"),
        tag("published", write_time(published_ms)),
        tag("updated", write_time(updated_ms)),
        tag("author", tag("name", plain(letterhead.namespace))),
        tag("link", rel="self", href=address),
        tag("content", content, type="application/xml"),
        xmlns=ATOM,
    )


def feed(
    title: str, path: str, entries: list[str], next_query: str | None, updated_ms: int, letterhead: Letterhead
) -> bytes:
    address = letterhead.address(path)
    links = [tag("link", rel="self", href=address)]
    if next_query is not None:
        links.append(tag("link", rel="next", href=letterhead.address(path, next_query)))
    head = (tag("title", title, type="text"), tag("id", plain(address)), tag("updated", write_time(updated_ms)))
    return document(tag("feed", *head, *links, *entries, xmlns=ATOM))
