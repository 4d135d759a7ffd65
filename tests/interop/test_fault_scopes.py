"""Every fault in every place it can be asked for: it takes effect there, or it is refused with the reason."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusMessageState, ServiceBusReceiver
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError, ServiceBusServerBusyError
from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus.broker.faults.catalogue import KINDS
from twinbus.errors import OptionsError
from twinbus.testing import LocalNamespace

DELAY_S = 0.5
AUDIT = "events/subscriptions/audit"


@dataclass(frozen=True)
class Place:
    """What a fault is asked for, and an address inside it: a queue, or a subscription and its topic."""

    name: str
    scope: dict[str, Any]
    queue: str | None = None
    is_sent_to: bool = True
    """Whether anybody sends to it."""
    refusal: str = ""
    """Why no fault at all can be for it."""

    def __str__(self) -> str:
        return self.name

    @contextmanager
    def receiver(self, client: ServiceBusClient) -> Iterator[ServiceBusReceiver]:
        made = (
            client.get_subscription_receiver("events", "audit")
            if self.queue is None
            else client.get_queue_receiver(self.queue)
        )
        with made as receiver:
            yield receiver

    def send(self, client: ServiceBusClient, **options: Any) -> None:
        made = client.get_topic_sender("events") if self.queue is None else client.get_queue_sender(self.queue)
        with made as sender:
            sender.send_messages(ServiceBusMessage("42"), **options)

    def get(self, admin: ServiceBusAdministrationClient) -> None:
        if self.queue is None:
            admin.get_subscription("events", "audit")
        else:
            admin.get_queue(self.queue)


PLACES = [
    Place("namespace", {}, "orders"),
    Place("group", {"entities": ["orders", "invoices"]}, "invoices"),
    Place("queue", {"entities": ["Orders"]}, "orders"),
    Place("topic", {"entities": ["events"]}),
    Place("pattern", {"pattern": "ord*"}, "orders"),
    Place("subscription", {"entities": ["events/Subscriptions/audit"]}, is_sent_to=False),
    Place("subscriptions by pattern", {"pattern": "events/subscriptions/a*"}, is_sent_to=False),
    Place("dead letters", {"entities": ["orders/$deadletterqueue"]}, refusal="a fault for orders includes"),
    Place("dead letters of a subscription", {"entities": [AUDIT + "/$DeadLetterQueue"]}, refusal=f"for {AUDIT}"),
    Place("dead letters by pattern", {"pattern": "*/$deadletterqueue"}, refusal="dead-letter queue"),
    Place("management", {"entities": ["orders/$management"]}, refusal="a fault for orders includes"),
]


def fails(act: Callable[[], object], error: type[Exception] = ServiceBusError) -> None:
    with pytest.raises(error):
        act()


@dataclass(frozen=True)
class Try:
    """Something that only goes wrong, or takes long, while the fault is in force."""

    bus: LocalNamespace
    client: ServiceBusClient
    place: Place

    def receive(self) -> None:
        with self.place.receiver(self.client) as receiver:
            receiver.receive_messages(1, max_wait_time=1)

    def send(self) -> None:
        self.place.send(self.client, timeout=2)

    def get(self) -> None:
        with ServiceBusAdministrationClient.from_connection_string(
            self.bus.connection_string, retry_total=0, connection_verify=str(self.bus.ca_file)
        ) as admin:
            self.place.get(admin)

    def is_slow(self) -> None:
        with self.place.receiver(self.client) as receiver:
            began = time.monotonic()
            receiver.peek_messages(1)
            assert time.monotonic() - began >= DELAY_S

    def is_late(self) -> None:
        """Accepted at once, and held back here but not for the other subscription."""
        self.place.send(self.client)
        is_topic = self.place.queue is None and self.place.is_sent_to
        with self.place.receiver(self.client) as receiver:
            held_back = [message.state for message in receiver.peek_messages(10)]
        assert held_back == ([] if is_topic else [ServiceBusMessageState.SCHEDULED])  # a topic keeps it for all
        if not self.place.is_sent_to:
            with self.client.get_subscription_receiver("events", "billing") as receiver:
                (message,) = receiver.receive_messages(10, max_wait_time=10)
                assert message.state is ServiceBusMessageState.ACTIVE


@dataclass(frozen=True)
class Case:
    fault: str
    parameters: dict[str, Any]
    shows: Callable[[Try], None]
    is_for_senders: bool = False
    """It has no effect on what nobody sends to."""

    def __str__(self) -> str:
        return " ".join([self.fault, *[str(value) for value in self.parameters.values() if isinstance(value, str)]])


CASES = [
    Case("no-send", {}, lambda attempt: fails(attempt.send), is_for_senders=True),
    Case("no-receive", {}, lambda attempt: fails(attempt.receive)),
    Case("no-manage", {}, lambda attempt: fails(attempt.get, HttpResponseError)),
    Case("unreachable", {}, lambda attempt: fails(attempt.receive)),
    Case("unreachable", {"how": "drop"}, lambda attempt: fails(attempt.receive)),
    Case("refuse", {"condition": "amqp:not-found"}, lambda attempt: fails(attempt.receive)),
    Case(
        "refuse",
        {"condition": "amqp:not-found", "on": "receives"},
        lambda attempt: fails(attempt.receive),
    ),
    Case(
        "refuse",
        {"condition": "amqp:not-found", "on": "sends"},
        lambda attempt: fails(attempt.send),
        is_for_senders=True,
    ),
    Case("busy", {}, lambda attempt: fails(attempt.receive, ServiceBusServerBusyError)),
    Case("slow", {"delay": timedelta(seconds=DELAY_S)}, Try.is_slow),
    Case("late", {"delay": timedelta(minutes=15)}, Try.is_late),
    Case("unanswered", {}, lambda attempt: fails(attempt.send, OperationTimeoutError), is_for_senders=True),
    Case("restart", {"length": timedelta(hours=1)}, lambda attempt: fails(attempt.receive)),
]


@pytest.fixture
def bus(namespace: LocalNamespace) -> LocalNamespace:
    namespace.create_queue("orders")
    namespace.create_queue("invoices")
    namespace.create_topic("events", "audit", "billing")
    return namespace


def test_every_fault_of_the_vocabulary_is_tried() -> None:
    assert {case.fault for case in CASES} == set(KINDS)


@pytest.mark.sample(24)
@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_fault_takes_effect_where_it_is_asked_for_or_is_refused(
    bus: LocalNamespace, case: Case, place: Place
) -> None:
    useless = "nobody sends to a subscription" if case.is_for_senders and not place.is_sent_to else ""
    refusal = place.refusal or useless
    if refusal:
        with pytest.raises(OptionsError) as refused:
            bus.faults.add(case.fault, **place.scope, **case.parameters)
        assert refusal in str(refused.value)
        assert bus.faults.list() == []
        return
    bus.faults.add(case.fault, **place.scope, **case.parameters)
    with ServiceBusClient.from_connection_string(bus.connection_string, retry_total=0) as client:
        case.shows(Try(bus, client, place))
