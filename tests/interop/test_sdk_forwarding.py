"""The official Python clients, unmodified, against a real namespace: forwarding, and what could not be forwarded."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import AccessRights, AuthorizationRule, EntityStatus, ServiceBusAdministrationClient

from twinbus.testing import LocalNamespace

WAIT_S = 10


def administer(connection_string: str, ca_file: Path | None) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        connection_string, connection_verify=str(ca_file), retry_total=0
    )


@pytest.fixture
def admin(namespace: LocalNamespace) -> Iterator[ServiceBusAdministrationClient]:
    with administer(namespace.connection_string, namespace.ca_file) as admin:
        admin.create_queue("last")
        admin.create_queue("first", forward_to="last")
        yield admin


@pytest.fixture
def client(namespace: LocalNamespace) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client:
        yield client


def send(client: ServiceBusClient, queue: str, *messages: ServiceBusMessage) -> None:
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([*messages])


def received(
    client: ServiceBusClient, queue: str, count: int = 1, sub_queue: ServiceBusSubQueue | None = None
) -> list[ServiceBusReceivedMessage]:
    """Exactly this many messages, completed."""
    found: list[ServiceBusReceivedMessage] = []
    with client.get_queue_receiver(queue, sub_queue=sub_queue) as receiver:
        while len(found) < count:
            got = receiver.receive_messages(count - len(found), max_wait_time=WAIT_S)
            assert got, f"only {len(found)} of {count} messages came"
            found += got
            for message in got:
                receiver.complete_message(message)
        assert receiver.peek_messages(1, sequence_number=1) == []
    return found


def test_messages_are_forwarded_with_everything_in_them(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    send(client, "last", ServiceBusMessage("before"))
    sent = ServiceBusMessage("a", application_properties={"n": 1}, message_id="m", time_to_live=timedelta(minutes=5))
    send(client, "first", sent, ServiceBusMessage("b"))
    _, first, second = received(client, "last", 3)
    assert (str(first), first.message_id, first.application_properties) == ("a", "m", {b"n": 1})
    assert (first.sequence_number, first.enqueued_sequence_number, first.delivery_count) == (2, 1, 0)
    assert first.raw_amqp_message.annotations
    assert not any("hops" in str(key) for key in first.raw_amqp_message.annotations)
    assert str(second) == "b"
    assert admin.get_queue_runtime_properties("first").total_message_count == 0


def test_forwarding_is_described_changed_and_ended(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient, namespace: LocalNamespace
) -> None:
    queue = admin.get_queue("first")
    assert queue.forward_to == f"sb://127.0.0.1:{namespace.port}/last"
    assert queue.forward_dead_lettered_messages_to is None
    admin.update_queue(queue, max_delivery_count=3)
    queue = admin.get_queue("first")
    assert (queue.max_delivery_count, queue.forward_to) == (3, f"sb://127.0.0.1:{namespace.port}/last")
    queue.forward_to = None
    queue.forward_dead_lettered_messages_to = "LAST"
    admin.update_queue(queue)
    queue = admin.get_queue("first")
    assert (queue.forward_to, str(queue.forward_dead_lettered_messages_to).lower()[-5:]) == (None, "/last")
    send(client, "first", ServiceBusMessage("a"))
    assert [str(message) for message in received(client, "first")] == ["a"]


def test_what_is_in_a_queue_goes_when_forwarding_begins(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    admin.create_queue("second")
    send(client, "second", *[ServiceBusMessage(str(number)) for number in range(150)])
    admin.update_queue(admin.get_queue("second"), forward_to="last")
    assert [str(message) for message in received(client, "last", 150)] == [str(number) for number in range(150)]


def test_nobody_receives_from_a_queue_that_forwards(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    with (
        pytest.raises(ServiceBusError, match="forwards its messages to"),
        client.get_queue_receiver("first") as receiver,
    ):
        receiver.receive_messages(1, max_wait_time=WAIT_S)


def test_subscriptions_forward_to_queues_and_queues_to_topics(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    admin.create_topic("events")
    made = admin.create_subscription("events", "copies", forward_to="first")
    assert str(made.forward_to).endswith("/first")
    admin.create_queue("entrance", forward_to="events")
    send(client, "entrance", ServiceBusMessage("a"))
    (message,) = received(client, "last")
    assert str(message) == "a"


def test_dead_letters_are_forwarded_with_reason_and_source(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    admin.create_queue("work", forward_dead_lettered_messages_to="last")
    send(client, "work", ServiceBusMessage("a"))
    with client.get_queue_receiver("work") as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=WAIT_S)
        receiver.dead_letter_message(message, reason="broken", error_description="it is")
    (message,) = received(client, "last")
    assert (message.dead_letter_reason, message.dead_letter_source) == ("broken", "work")


def test_a_chain_of_more_than_four_hops_ends_in_transfer_dead_letters_also_after_a_restart(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient, namespace: LocalNamespace
) -> None:
    for number, target in enumerate(("first", "q0", "q1", "q2")):
        admin.create_queue(f"q{number}", forward_to=target)
    send(client, "q2", ServiceBusMessage("four"))
    send(client, "q3", ServiceBusMessage("five"))
    namespace.restart()
    assert [str(message) for message in received(client, "last")] == ["four"]
    counts = admin.get_queue_runtime_properties("first")
    assert (counts.transfer_dead_letter_message_count, counts.active_message_count) == (1, 0)
    (message,) = received(client, "first", sub_queue=ServiceBusSubQueue.TRANSFER_DEAD_LETTER)
    assert (str(message), message.dead_letter_reason) == ("five", "MaxTransferHopCountExceeded")


@pytest.mark.parametrize("trouble", ["deleted", "disabled"])
def test_what_the_target_does_not_take_is_kept(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient, trouble: str
) -> None:
    if trouble == "deleted":
        admin.delete_queue("last")
    else:
        admin.update_queue(admin.get_queue("last"), status=EntityStatus.DISABLED)
    send(client, "first", ServiceBusMessage("a"))
    (message,) = received(client, "first", sub_queue=ServiceBusSubQueue.TRANSFER_DEAD_LETTER)
    assert str(message) == "a"
    assert "could not be forwarded to 'last'" in (message.dead_letter_error_description or "")


def test_duplicates_are_detected_where_messages_are_forwarded_to(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    admin.create_queue("once", requires_duplicate_detection=True)
    admin.create_queue("many", forward_to="once")
    send(client, "many", *[ServiceBusMessage("a", message_id="a"), ServiceBusMessage("a", message_id="a")])
    send(client, "many", ServiceBusMessage("b", message_id="b"))
    assert [str(message) for message in received(client, "once", 2)] == ["a", "b"]


def test_a_queue_with_sessions_forwards_with_the_sessions_in_their_order(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    admin.create_queue("all-orders", requires_session=True)
    made = admin.create_queue("by-customer", requires_session=True, forward_to="all-orders")
    assert (made.requires_session, made.forward_to is not None) == (True, True)
    texts = [f"{number}" for number in range(6)]
    send(client, "by-customer", *[ServiceBusMessage(text, session_id=f"s{int(text) % 2}") for text in texts])
    with client.get_queue_receiver("all-orders", session_id="s1") as receiver:
        found = receiver.receive_messages(3, max_wait_time=10)
        while len(found) < 3:
            found += receiver.receive_messages(3, max_wait_time=10)
        assert [(str(each), each.session_id) for each in found] == [("1", "s1"), ("3", "s1"), ("5", "s1")]
    with (
        pytest.raises(ServiceBusError, match="receive from there"),
        client.get_queue_receiver("by-customer", session_id="s1") as receiver,
    ):
        receiver.receive_messages(1, max_wait_time=1)


def test_whoever_forwards_must_be_allowed_to_manage_both(
    admin: ServiceBusAdministrationClient, namespace: LocalNamespace
) -> None:
    def owner(path: str) -> AuthorizationRule:
        rights: list[str | AccessRights] = [AccessRights.MANAGE, AccessRights.SEND, AccessRights.LISTEN]
        return AuthorizationRule(rights=rights, key_name="own", primary_key=path * 5, secondary_key=path * 6)

    for path in ("mine", "yours"):
        admin.create_queue(path, authorization_rules=[owner(path)])
    string = f"Endpoint=sb://127.0.0.1:{namespace.port}/;SharedAccessKeyName=own;SharedAccessKey={'mine' * 5}"
    with administer(string, namespace.ca_file) as mine:
        queue = mine.get_queue("mine")
        with pytest.raises(ClientAuthenticationError):
            mine.update_queue(queue, forward_to="yours")
    assert admin.get_queue("mine").forward_to is None
    admin.update_queue(admin.get_queue("mine"), forward_to="yours")
