"""Every kind of entity that messages can be sent to, made in a served namespace and read by a paired client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from paired import OnLoop, PairHarness

from twinbus import PairedServiceBusClient, PairedServiceBusReceiver, PairedServiceBusSender

SUBSCRIPTION = "all"
SESSION = "customer-7"
WAIT_S = 30
"""Upper bound; what is there comes at once."""
_numbers = count(1)


@dataclass(frozen=True)
class EntityKind:
    """A queue or a topic with one subscription, with these settings."""

    name: str
    is_topic: bool = False
    has_sessions: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    def made_in(self, harness: PairHarness) -> Entity:
        path = f"{self.name.replace(' ', '-')}-{harness.flavour}-{next(_numbers)}"
        admin = harness.primary.admin
        if self.is_topic:
            admin.create_topic(path, **self.settings)
            admin.create_subscription(path, SUBSCRIPTION, requires_session=self.has_sessions)
        else:
            admin.create_queue(path, requires_session=self.has_sessions, **self.settings)
        return Entity(self, path)


@dataclass(frozen=True)
class Entity:
    kind: EntityKind
    path: str

    @property
    def session(self) -> str | None:
        return SESSION if self.kind.has_sessions else None

    def count_in(self, harness: PairHarness) -> int:
        """How many messages wait to be received, pings that a server stored among them."""
        admin = harness.primary.admin
        if self.kind.is_topic:
            return admin.get_subscription_runtime_properties(self.path, SUBSCRIPTION).active_message_count or 0
        return admin.get_queue_runtime_properties(self.path).active_message_count or 0

    def message(self, text: str, **parts: Any) -> ServiceBusMessage:
        return ServiceBusMessage(text, session_id=self.session, **parts)

    def sender(self, bus: PairedServiceBusClient) -> PairedServiceBusSender:
        make: Callable[[str], PairedServiceBusSender] = (
            bus.get_topic_sender if self.kind.is_topic else bus.get_queue_sender
        )
        return make(self.path)

    def receiver(self, bus: PairedServiceBusClient, **options: Any) -> PairedServiceBusReceiver:
        if self.kind.has_sessions:
            options.setdefault("session_id", SESSION)
        if self.kind.is_topic:
            return bus.get_subscription_receiver(self.path, SUBSCRIPTION, **options)
        return bus.get_queue_receiver(self.path, **options)

    def received(self, bus: PairedServiceBusClient, number: int) -> list[ServiceBusReceivedMessage]:
        """So many messages, completed; nothing else is there then."""
        found: list[ServiceBusReceivedMessage] = []
        receiver = self.receiver(bus)
        while len(found) < number:
            got = receiver.receive_messages(number - len(found), max_wait_time=WAIT_S)
            assert got, f"only {len(found)} of {number} messages came"
            for message in got:
                receiver.complete_message(message)
            found += got
        assert receiver.peek_messages(1) == []
        receiver.close()
        return found


TOPIC = EntityKind("topic", is_topic=True)
SESSION_QUEUE = EntityKind("session queue", has_sessions=True)
SESSION_TOPIC = EntityKind("session topic", is_topic=True, has_sessions=True)
PARTITIONED_QUEUE = EntityKind("partitioned queue", settings={"enable_partitioning": True})
PARTITIONED_TOPIC = EntityKind("partitioned topic", is_topic=True, settings={"enable_partitioning": True})
PARTITIONED_SESSIONS = EntityKind(
    "partitioned session queue", has_sessions=True, settings={"enable_partitioning": True}
)
ONCE_QUEUE = EntityKind("queue without duplicates", settings={"requires_duplicate_detection": True})
ONCE_TOPIC = EntityKind("topic without duplicates", is_topic=True, settings={"requires_duplicate_detection": True})

KINDS = (
    EntityKind("queue"), TOPIC, SESSION_QUEUE, SESSION_TOPIC, PARTITIONED_QUEUE, PARTITIONED_TOPIC,
    PARTITIONED_SESSIONS, ONCE_QUEUE, ONCE_TOPIC,
)  # fmt: skip
REPRESENTATIVES = (TOPIC, SESSION_QUEUE, SESSION_TOPIC, PARTITIONED_QUEUE, ONCE_QUEUE)
"""One of each that is special."""


def session_of(receiver: PairedServiceBusReceiver) -> Any:
    """The session of a receiver, on threads or on tasks."""
    if isinstance(receiver, OnLoop):
        return OnLoop(receiver._target.session, receiver._loop)
    return receiver.session
