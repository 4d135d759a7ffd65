"""What applications get wrong with topics, sessions and forwarding, through the official clients: nothing half-done."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiver
from azure.servicebus.exceptions import MessagingEntityNotFoundError, ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient, SqlRuleFilter

from twinbus.client.namespace import Namespace
from twinbus.testing import LocalNamespace

WAIT_S = 10
DEAD_LETTERS, TRANSFERS = "/$deadletterqueue", "/$transfer/$deadletterqueue"


@pytest.fixture
def admin(namespace: LocalNamespace) -> Iterator[ServiceBusAdministrationClient]:
    with Namespace.from_connection_string(namespace.connection_string).admin_client(attempt_s=WAIT_S) as admin:
        yield admin


@pytest.fixture
def client(namespace: LocalNamespace) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client:
        yield client


def send(client: ServiceBusClient, queue: str, *messages: ServiceBusMessage) -> None:
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([*messages])


def publish(client: ServiceBusClient, topic: str, *messages: ServiceBusMessage) -> None:
    with client.get_topic_sender(topic) as sender:
        sender.send_messages([*messages])


def shown(receiver: ServiceBusReceiver) -> list[ServiceBusReceivedMessage]:
    with receiver:
        return receiver.peek_messages(100, sequence_number=1)


def texts(client: ServiceBusClient, queue: str) -> list[str]:
    return [str(message) for message in shown(client.get_queue_receiver(queue, keep_alive=0))]


def subscribed(client: ServiceBusClient, topic: str, subscription: str, suffix: str = "") -> list[str]:
    """What is in a subscription, or in its dead letters."""
    return texts(client, f"{topic}/Subscriptions/{subscription}{suffix}")


def test_a_filter_that_fails_at_run_time_concerns_its_own_subscription_only(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    admin.create_topic("events")
    for name in ("all", "sums", "careless"):
        admin.create_subscription("events", name, dead_lettering_on_filter_evaluation_exceptions=name != "careless")
    for name in ("sums", "careless"):
        admin.create_rule("events", name, "sum", filter=SqlRuleFilter("amount + 1 > 5"))
        admin.delete_rule("events", name, "$Default")
    publish(client, "events", ServiceBusMessage("text", application_properties={"amount": "much"}))
    publish(client, "events", ServiceBusMessage("number", application_properties={"amount": 5}))
    assert subscribed(client, "events", "all") == ["text", "number"]
    assert subscribed(client, "events", "sums") == subscribed(client, "events", "careless") == ["number"]
    assert subscribed(client, "events", "sums", DEAD_LETTERS) == ["text"]
    assert subscribed(client, "events", "careless", DEAD_LETTERS) == []


def test_a_batch_with_one_message_that_lacks_its_session_is_stored_not_at_all(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    admin.create_queue("talks", requires_session=True)
    with pytest.raises(ServiceBusError, match="session id"):
        send(client, "talks", ServiceBusMessage("with", session_id="a"), ServiceBusMessage("without"))
    assert admin.get_queue_runtime_properties("talks").total_message_count == 0


def test_two_queues_that_forward_to_each_other_put_messages_aside_after_four_hops(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    admin.create_queue("there")
    admin.create_queue("back", forward_to="there")
    admin.update_queue(admin.get_queue("there"), forward_to="back")
    send(client, "there", ServiceBusMessage("dizzy"))
    assert texts(client, "there" + TRANSFERS) == ["dizzy"]
    assert admin.get_queue_runtime_properties("there").active_message_count == 0
    assert admin.get_queue_runtime_properties("back").total_message_count == 0


@pytest.mark.parametrize("kind", ["queue", "subscription", "topic"])
def test_links_of_a_deleted_entity_fail_and_nothing_stays(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient, kind: str
) -> None:
    admin.create_queue("used")
    admin.create_topic("events")
    admin.create_subscription("events", "used")
    is_queue = kind == "queue"
    sender = client.get_queue_sender("used") if is_queue else client.get_topic_sender("events")
    path = "used" if is_queue else "events/Subscriptions/used"
    with sender, client.get_queue_receiver(path, keep_alive=0) as receiver:
        sender.send_messages([ServiceBusMessage("1"), ServiceBusMessage("2")])
        assert len(receiver.receive_messages(1, max_wait_time=WAIT_S)) == 1
        {
            "queue": lambda: admin.delete_queue("used"),
            "subscription": lambda: admin.delete_subscription("events", "used"),
            "topic": lambda: admin.delete_topic("events"),
        }[kind]()
        with pytest.raises(MessagingEntityNotFoundError):
            receiver.receive_messages(1, max_wait_time=WAIT_S)
    if kind == "subscription":
        admin.create_subscription("events", "used")
        assert subscribed(client, "events", "used") == [], "a new one begins empty"
    else:
        with pytest.raises(MessagingEntityNotFoundError):
            send(client, "used" if is_queue else "events", ServiceBusMessage("late"))


def test_what_is_forwarded_to_a_queue_that_was_deleted_is_put_aside(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    admin.create_queue("target")
    admin.create_queue("source", forward_to="target")
    admin.delete_queue("target")
    send(client, "source", ServiceBusMessage("homeless"))
    assert texts(client, "source" + TRANSFERS) == ["homeless"]


def test_names_that_differ_in_case_are_one_name_and_it_is_not_changed(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    admin.create_queue("Orders")
    admin.create_topic("Events")
    admin.create_subscription("Events", "Audit")
    for again in (
        lambda: admin.create_queue("orders"),
        lambda: admin.create_topic("ORDERS"),
        lambda: admin.create_topic("events"),
        lambda: admin.create_subscription("EVENTS", "audit"),
        lambda: admin.create_rule("events", "AUDIT", "$DEFAULT"),
    ):
        with pytest.raises(ResourceExistsError):
            again()
    queue = admin.get_queue("oRDERS")
    admin.update_queue(queue, max_delivery_count=3)
    send(client, "ORDERS", ServiceBusMessage("1"))
    publish(client, "eVENTS", ServiceBusMessage("2"))
    assert (texts(client, "orders"), subscribed(client, "EVENTS", "AUDIT")) == (["1"], ["2"])
    assert [each.name for each in admin.list_queues()] == ["Orders"]
    assert admin.get_queue("orders").max_delivery_count == 3
    assert [each.name for each in admin.list_subscriptions("events")] == ["Audit"]


def test_names_of_queues_and_topics_may_have_slashes_and_those_of_their_parts_not(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    admin.create_topic("shop/events")
    admin.create_subscription("shop/events", "audit")
    admin.create_queue("shop/orders", forward_to="shop/events")
    send(client, "shop/orders", ServiceBusMessage("1"))
    assert subscribed(client, "shop/events", "audit") == ["1"]
    for wrong in ("shop//orders", "shop/./orders", "shop/subscriptions/orders"):
        with pytest.raises(HttpResponseError):
            admin.create_queue(wrong)
    with pytest.raises((HttpResponseError, ResourceNotFoundError)):
        admin.create_subscription("shop/events", "audit/all")
    with pytest.raises(HttpResponseError):
        admin.create_rule("shop/events", "audit", "a/b")
    assert {each.name for each in admin.list_queues()} == {"shop/orders"}
    assert [each.name for each in admin.list_subscriptions("shop/events")] == ["audit"]
