"""The official Python clients, unmodified, against a real namespace: topics, subscriptions and rules."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import MessagingEntityNotFoundError, ServiceBusError
from azure.servicebus.management import (
    AccessRights,
    AuthorizationRule,
    CorrelationRuleFilter,
    EntityStatus,
    FalseRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from twinbus.testing import LocalNamespace

WAIT_S = 10


@pytest.fixture
def admin(namespace: LocalNamespace) -> Iterator[ServiceBusAdministrationClient]:
    with ServiceBusAdministrationClient.from_connection_string(
        namespace.connection_string, connection_verify=str(namespace.ca_file), retry_total=0
    ) as admin:
        yield admin


@pytest.fixture
def client(namespace: LocalNamespace) -> Iterator[ServiceBusClient]:
    namespace.create_topic("events", "audit", "billing")
    with ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client:
        yield client


def send(client: ServiceBusClient, *messages: ServiceBusMessage) -> None:
    with client.get_topic_sender("events") as sender:
        sender.send_messages([*messages])


def received(client: ServiceBusClient, subscription: str, count: int) -> list[ServiceBusReceivedMessage]:
    """Exactly this many messages, completed."""
    found: list[ServiceBusReceivedMessage] = []
    with client.get_subscription_receiver("events", subscription) as receiver:
        while len(found) < count:
            got = receiver.receive_messages(count - len(found), max_wait_time=WAIT_S)
            assert got, f"only {len(found)} of {count} messages came"
            found += got
            for message in got:
                receiver.complete_message(message)
        assert receiver.peek_messages(1, sequence_number=1) == []
    return found


def texts(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    return [str(message) for message in messages]


# --- messages ---


def test_every_subscription_gets_its_own_copy(client: ServiceBusClient) -> None:
    send(client, *(ServiceBusMessage(str(number)) for number in range(5)))
    assert texts(received(client, "audit", 5)) == texts(received(client, "billing", 5)) == ["0", "1", "2", "3", "4"]


def test_rules_choose_and_change(client: ServiceBusClient, admin: ServiceBusAdministrationClient) -> None:
    admin.delete_rule("events", "billing", "$Default")
    admin.create_rule("events", "billing", "paid", filter=CorrelationRuleFilter(label="paid"))
    admin.create_rule(
        "events",
        "billing",
        "large",
        filter=SqlRuleFilter("amount > @limit", parameters={"@limit": 100}),
        action=SqlRuleAction("SET checked = 'yes'"),
    )
    send(
        client,
        ServiceBusMessage("a", subject="paid", application_properties={"amount": 5}),
        ServiceBusMessage("b", subject="open", application_properties={"amount": 500}),
        ServiceBusMessage("c", subject="open", application_properties={"amount": 50}),
    )
    assert texts(received(client, "audit", 3)) == ["a", "b", "c"]
    paid, large = received(client, "billing", 2)
    assert (str(paid), str(large)) == ("a", "b")
    assert large.application_properties == {b"amount": 500, b"checked": b"yes", b"RuleName": b"large"}
    assert paid.application_properties == {b"amount": 5}


def test_a_dead_lettered_copy_is_in_the_subscriptions_own_dead_letter_queue(client: ServiceBusClient) -> None:
    send(client, ServiceBusMessage("bad"))
    with client.get_subscription_receiver("events", "audit") as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=WAIT_S)
        receiver.dead_letter_message(message, reason="broken", error_description="as it is")
    with client.get_subscription_receiver("events", "audit", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        (dead,) = receiver.receive_messages(1, max_wait_time=WAIT_S)
        assert (str(dead), dead.dead_letter_reason) == ("bad", "broken")
        receiver.complete_message(dead)
    assert texts(received(client, "billing", 1)) == ["bad"]


def test_a_scheduled_message_reaches_the_subscriptions_in_time_or_is_cancelled(client: ServiceBusClient) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=1)
    with client.get_topic_sender("events") as sender:
        kept, cancelled = sender.schedule_messages([ServiceBusMessage("kept"), ServiceBusMessage("cancelled")], soon)
        assert kept != cancelled
        sender.cancel_scheduled_messages(cancelled)
    assert texts(received(client, "audit", 1)) == ["kept"]


def test_deferred_messages_and_sequence_numbers_are_the_subscriptions_own(client: ServiceBusClient) -> None:
    send(client, ServiceBusMessage("1"), ServiceBusMessage("2"))
    with client.get_subscription_receiver("events", "audit") as receiver:
        first = receiver.receive_messages(1, max_wait_time=WAIT_S)[0]
        assert first.sequence_number is not None
        receiver.defer_message(first)
        (again,) = receiver.receive_deferred_messages([first.sequence_number])
        receiver.complete_message(again)
    assert texts(received(client, "audit", 1)) == ["2"]


def test_messages_and_rules_survive_a_restart(
    namespace: LocalNamespace, client: ServiceBusClient, admin: ServiceBusAdministrationClient
) -> None:
    admin.create_rule("events", "billing", "never", filter=FalseRuleFilter())
    send(client, ServiceBusMessage("1"))
    namespace.restart()
    assert {rule.name for rule in admin.list_rules("events", "billing")} == {"$Default", "never"}
    send(client, ServiceBusMessage("2"))
    assert texts(received(client, "audit", 2)) == ["1", "2"]


def test_a_topic_is_not_received_from_and_a_subscription_not_sent_to(client: ServiceBusClient) -> None:
    with pytest.raises(ServiceBusError), client.get_queue_receiver("events") as receiver:
        receiver.receive_messages(1, max_wait_time=1)
    with pytest.raises(ServiceBusError), client.get_topic_sender("events/Subscriptions/audit") as sender:
        sender.send_messages(ServiceBusMessage("x"))
    with pytest.raises(MessagingEntityNotFoundError), client.get_subscription_receiver("events", "nobody") as receiver:
        receiver.receive_messages(1, max_wait_time=1)


# --- administration ---


def test_a_topic_is_made_found_changed_listed_and_deleted(admin: ServiceBusAdministrationClient) -> None:
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule", claim_type="SharedAccessKey", claim_value="None",
        rights=[AccessRights.SEND], key_name="app", primary_key="one", secondary_key="two",
    )  # fmt: skip
    made = admin.create_topic(
        "a/Events",
        default_message_time_to_live=timedelta(minutes=5),
        max_size_in_megabytes=2048,
        user_metadata="notes",
        authorization_rules=[rule],
    )
    assert made.name == "a/Events"
    assert admin.get_topic("A/EVENTS").user_metadata == "notes"
    topic = admin.get_topic("a/Events")
    assert (topic.name, topic.default_message_time_to_live) == ("a/Events", timedelta(minutes=5))
    assert (topic.max_size_in_megabytes, topic.user_metadata, topic.status) == (2048, "notes", EntityStatus.ACTIVE)
    assert topic.authorization_rules is not None
    assert topic.authorization_rules[0].key_name == "app"
    admin.update_topic(topic, user_metadata="other", status=EntityStatus.SEND_DISABLED)
    again = admin.get_topic("a/Events")
    assert (again.user_metadata, again.status) == ("other", EntityStatus.SEND_DISABLED)
    assert [each.name for each in admin.list_topics()] == ["a/Events"]
    assert list(admin.list_queues()) == []
    with pytest.raises(ResourceExistsError):
        admin.create_queue("a/events")
    admin.delete_topic("a/Events")
    with pytest.raises(ResourceNotFoundError):
        admin.get_topic("a/Events")


def test_a_subscription_is_made_found_changed_listed_and_deleted(admin: ServiceBusAdministrationClient) -> None:
    admin.create_topic("events")
    admin.create_subscription(
        "events",
        "Audit",
        lock_duration=timedelta(seconds=30),
        max_delivery_count=3,
        default_message_time_to_live=timedelta(minutes=7),
        dead_lettering_on_message_expiration=True,
        dead_lettering_on_filter_evaluation_exceptions=False,
    )
    found = admin.get_subscription("events", "Audit")
    assert (found.name, found.max_delivery_count, found.lock_duration) == ("Audit", 3, timedelta(seconds=30))
    assert found.dead_lettering_on_filter_evaluation_exceptions is False
    admin.update_subscription("events", found, max_delivery_count=9, user_metadata="x")
    assert admin.get_subscription("events", "Audit").max_delivery_count == 9
    admin.create_subscription("events", "second")
    assert [each.name for each in admin.list_subscriptions("events")] == ["Audit", "second"]
    assert admin.get_topic_runtime_properties("events").subscription_count == 2
    admin.delete_subscription("events", "audit")
    with pytest.raises(ResourceNotFoundError):
        admin.get_subscription("events", "Audit")
    with pytest.raises(ResourceExistsError):
        admin.create_subscription("events", "SECOND")


def test_counts_are_reported(client: ServiceBusClient, admin: ServiceBusAdministrationClient) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    send(client, ServiceBusMessage("1"), ServiceBusMessage("2", scheduled_enqueue_time_utc=later))
    topic = admin.get_topic_runtime_properties("events")
    assert topic.scheduled_message_count == 1
    audit = admin.get_subscription_runtime_properties("events", "audit")
    assert (audit.active_message_count, audit.total_message_count, audit.dead_letter_message_count) == (1, 1, 0)
    assert [each.name for each in admin.list_subscriptions_runtime_properties("events")] == ["audit", "billing"]
    assert [each.name for each in admin.list_topics_runtime_properties()] == ["events"]


def test_rules_come_back_as_they_were_written(admin: ServiceBusAdministrationClient) -> None:
    admin.create_topic("events")
    admin.create_subscription("events", "audit")
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    correlation = CorrelationRuleFilter(
        correlation_id="c",
        message_id="m",
        to="t",
        reply_to="r",
        label="l",
        session_id="s",
        reply_to_session_id="rs",
        content_type="ct",
        properties={"text": "x", "whole": 1, "large": 2**40, "part": 1.5, "flag": True, "time": moment,
                    "span": timedelta(days=1, hours=2)},
    )  # fmt: skip
    sql = SqlRuleFilter("a = @p OR b < 3", parameters={"@p": "it's"})
    action = SqlRuleAction("SET x = @n", parameters={"@n": 5})
    admin.create_rule("events", "audit", "all", filter=TrueRuleFilter())
    admin.create_rule("events", "audit", "correlated", filter=correlation)
    admin.create_rule("events", "audit", "sql", filter=sql, action=action)
    found = admin.get_rule("events", "audit", "correlated").filter
    assert isinstance(found, CorrelationRuleFilter)
    assert vars(found) == vars(correlation)
    rule = admin.get_rule("events", "audit", "sql")
    assert isinstance(rule.filter, SqlRuleFilter)
    assert isinstance(rule.action, SqlRuleAction)
    assert (rule.filter.sql_expression, rule.filter.parameters) == (sql.sql_expression, sql.parameters)
    assert (rule.action.sql_expression, rule.action.parameters) == (action.sql_expression, action.parameters)
    assert [each.name for each in admin.list_rules("events", "audit")] == ["$Default", "all", "correlated", "sql"]
    rule.filter = SqlRuleFilter("a = 2")
    admin.update_rule("events", "audit", rule)
    changed = admin.get_rule("events", "audit", "sql").filter
    assert isinstance(changed, SqlRuleFilter)
    assert changed.sql_expression == "a = 2"
    admin.delete_rule("events", "audit", "sql")
    with pytest.raises(ResourceNotFoundError):
        admin.get_rule("events", "audit", "sql")


def test_a_time_without_a_zone_comes_back_without_one_and_means_utc(
    admin: ServiceBusAdministrationClient, namespace: LocalNamespace
) -> None:
    admin.create_topic("events")
    admin.create_subscription("events", "audit")
    plain = datetime(2020, 7, 5, 11, 12, 13)
    action = SqlRuleAction("SET at = @at", parameters={"@at": plain})
    filters = CorrelationRuleFilter(properties={"plain": plain, "zoned": plain.replace(tzinfo=UTC)})
    admin.create_rule("events", "audit", "timed", filter=filters, action=action)
    rule = admin.get_rule("events", "audit", "timed")
    assert isinstance(rule.filter, CorrelationRuleFilter)
    assert isinstance(rule.action, SqlRuleAction)
    assert rule.filter.properties == filters.properties
    assert rule.action.parameters == action.parameters


def test_what_cannot_be_is_refused_and_nothing_is_made(admin: ServiceBusAdministrationClient) -> None:
    admin.create_topic("events")
    admin.create_subscription("events", "audit")
    with pytest.raises(HttpResponseError, match="line 1"):
        admin.create_rule("events", "audit", "bad", filter=SqlRuleFilter("a ="))
    with pytest.raises(HttpResponseError):
        admin.create_rule("events", "audit", "bad", filter=CorrelationRuleFilter())
    with pytest.raises(ResourceExistsError):
        admin.create_rule("events", "audit", "$default")
    with pytest.raises(HttpResponseError, match="LockDuration"):
        admin.create_subscription("events", "new", lock_duration=timedelta(hours=1))
    with pytest.raises(ResourceNotFoundError):
        admin.create_subscription("nowhere", "new")
    with pytest.raises(ResourceNotFoundError):
        admin.create_rule("events", "nobody", "r")
    with pytest.raises(HttpResponseError):
        admin.create_topic("a/subscriptions/b")
    assert [each.name for each in admin.list_rules("events", "audit")] == ["$Default"]
    assert [each.name for each in admin.list_subscriptions("events")] == ["audit"]


def test_pages_of_subscriptions_and_rules_follow_each_other(
    namespace: LocalNamespace, admin: ServiceBusAdministrationClient
) -> None:
    names = [f"s{number:03}" for number in range(103)]
    namespace.create_topic("events", *names)
    assert [each.name for each in admin.list_subscriptions("events")] == names
    assert [each.name for each in admin.list_subscriptions("events", max_page_size=40)] == names


# --- rights ---


def test_a_key_of_the_topic_opens_its_subscriptions_and_nothing_else(
    namespace: LocalNamespace, admin: ServiceBusAdministrationClient
) -> None:
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule", claim_type="SharedAccessKey", claim_value="None",
        rights=[AccessRights.LISTEN], key_name="reader", primary_key="reader-key", secondary_key="other-key",
    )  # fmt: skip
    admin.create_topic("events", authorization_rules=[rule])
    admin.create_subscription("events", "audit")
    namespace.create_topic("other", "audit")
    endpoint = namespace.connection_string.partition(";")[0]
    address = f"{endpoint};SharedAccessKeyName=reader;SharedAccessKey=reader-key;UseDevelopmentEmulator=true"
    with ServiceBusClient.from_connection_string(address, retry_total=0) as client:
        with client.get_subscription_receiver("events", "audit") as receiver:
            assert receiver.peek_messages() == []
        with pytest.raises(ServiceBusError), client.get_topic_sender("events") as sender:
            sender.send_messages(ServiceBusMessage("x"))
        with pytest.raises(ServiceBusError), client.get_subscription_receiver("other", "audit") as receiver:
            receiver.peek_messages()


# --- faults ---


def test_a_topic_can_fail_with_its_subscriptions_or_one_of_them_alone(
    namespace: LocalNamespace, client: ServiceBusClient
) -> None:
    send(client, ServiceBusMessage("1"))
    fault = namespace.faults.add("no-send", entities=["events"])
    with pytest.raises(ServiceBusError), client.get_topic_sender("events") as sender:
        sender.send_messages(ServiceBusMessage("2"))
    namespace.faults.clear(fault)
    fault = namespace.faults.add("no-receive", entities=["events/Subscriptions/audit"])
    with pytest.raises(ServiceBusError), client.get_subscription_receiver("events", "audit") as receiver:
        receiver.receive_messages(1, max_wait_time=1)
    assert texts(received(client, "billing", 1)) == ["1"]
    namespace.faults.clear(fault)
    namespace.faults.add("no-receive", entities=["events"])
    with pytest.raises(ServiceBusError), client.get_subscription_receiver("events", "audit") as receiver:
        receiver.receive_messages(1, max_wait_time=1)
    namespace.faults.clear()
    assert texts(received(client, "audit", 1)) == ["1"]
