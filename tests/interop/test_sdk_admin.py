"""The official Python administration client, unmodified, against a real namespace: queues."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import MessageSizeExceededError, MessagingEntityDisabledError
from azure.servicebus.management import (
    AccessRights,
    ApiVersion,
    AuthorizationRule,
    EntityStatus,
    QueueProperties,
    ServiceBusAdministrationClient,
)

from twinbus.testing import LocalNamespace

WAIT_S = 10
FOR_EVER = timedelta(days=10_675_199)
"""And a bit: the client rounds it."""


def admin_client(namespace: LocalNamespace, key_suffix: str = "", **options: Any) -> ServiceBusAdministrationClient:
    """Over https, on the port that also speaks AMQP."""
    address = namespace.connection_string.replace(";UseDev", f"{key_suffix};UseDev")
    return ServiceBusAdministrationClient.from_connection_string(
        address, connection_verify=str(namespace.ca_file), retry_total=0, **options
    )


@pytest.fixture
def admin(namespace: LocalNamespace) -> Iterator[ServiceBusAdministrationClient]:
    with admin_client(namespace) as admin:
        yield admin


@pytest.fixture
def bus(namespace: LocalNamespace) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as bus:
        yield bus


def names(admin: ServiceBusAdministrationClient) -> list[str]:
    return [queue.name for queue in admin.list_queues()]


# --- create, get, update, delete ---


def test_a_queue_made_with_nothing_has_the_defaults_of_the_service(admin: ServiceBusAdministrationClient) -> None:
    admin.create_queue("orders")
    queue = admin.get_queue("orders")
    assert queue.name == "orders"
    assert queue.lock_duration == timedelta(minutes=1)
    assert (queue.max_size_in_megabytes, queue.max_delivery_count) == (1024, 10)
    assert queue.default_message_time_to_live >= FOR_EVER  # type: ignore[operator]
    assert queue.auto_delete_on_idle >= FOR_EVER  # type: ignore[operator]
    assert queue.duplicate_detection_history_time_window == timedelta(minutes=10)
    assert queue.status == EntityStatus.ACTIVE
    assert queue.availability_status == "Available"
    assert queue.enable_batched_operations is True
    for flag in ("requires_session", "requires_duplicate_detection", "enable_partitioning", "enable_express"):
        assert getattr(queue, flag) is False
    for nothing in ("forward_to", "forward_dead_lettered_messages_to", "user_metadata", "authorization_rules"):
        assert getattr(queue, nothing) is None
    assert queue.max_message_size_in_kilobytes == 256


RULE = AuthorizationRule(
    type="SharedAccessAuthorizationRule",
    claim_type="SharedAccessKey",
    claim_value="None",
    rights=[AccessRights.SEND, AccessRights.LISTEN],
    created_at_utc=datetime(2026, 1, 31, 12, 30, tzinfo=UTC),
    modified_at_utc=datetime(2026, 2, 28, tzinfo=UTC),
    key_name="app",
    primary_key="cHJpbWFyeQ==",
    secondary_key="c2Vjb25kYXJ5",
)
EVERY_OPTION: dict[str, Any] = {
    "lock_duration": timedelta(seconds=13),
    "max_size_in_megabytes": 3072,
    "max_delivery_count": 14,
    "default_message_time_to_live": timedelta(minutes=11),
    "dead_lettering_on_message_expiration": True,
    "duplicate_detection_history_time_window": timedelta(minutes=12),
    "enable_batched_operations": False,
    "enable_express": True,
    "user_metadata": "<notes> & \u00e9\u4e2d",
    "max_message_size_in_kilobytes": 64,
    "requires_session": False,
    "requires_duplicate_detection": False,
    "enable_partitioning": False,
    "auto_delete_on_idle": "P10675199DT2H48M5.4775807S",
}


def test_every_option_comes_back_as_it_was_set(admin: ServiceBusAdministrationClient) -> None:
    admin.create_queue("orders", authorization_rules=[RULE], **EVERY_OPTION)
    queue = admin.get_queue("orders")
    for option, value in EVERY_OPTION.items():
        if option != "auto_delete_on_idle":
            assert getattr(queue, option) == value, option
    (rule,) = queue.authorization_rules or [AuthorizationRule()]
    assert vars(rule) == vars(RULE)


def test_a_name_with_slashes_is_one_queue(admin: ServiceBusAdministrationClient) -> None:
    admin.create_queue("txt/.-_123")
    assert admin.get_queue("TXT/.-_123").name == "TXT/.-_123"
    assert names(admin) == ["txt/.-_123"]
    admin.delete_queue("txt/.-_123")
    assert names(admin) == []


def test_a_backlog_queue_has_the_settings_of_the_documents(admin: ServiceBusAdministrationClient) -> None:
    admin.create_queue(
        "contoso/x-servicebus-transfer/0",
        max_size_in_megabytes=5120,
        max_delivery_count=2_147_483_647,
        default_message_time_to_live="P10675199DT2H48M5.4775807S",
        auto_delete_on_idle="P10675199DT2H48M5.4775807S",
        lock_duration=timedelta(minutes=1),
        dead_lettering_on_message_expiration=True,
        enable_batched_operations=True,
    )
    queue = admin.get_queue("contoso/x-servicebus-transfer/0")
    assert (queue.max_size_in_megabytes, queue.max_delivery_count) == (5120, 2_147_483_647)
    assert queue.default_message_time_to_live >= FOR_EVER  # type: ignore[operator]
    assert queue.auto_delete_on_idle >= FOR_EVER  # type: ignore[operator]
    assert (queue.dead_lettering_on_message_expiration, queue.enable_batched_operations) == (True, True)
    admin.update_queue(queue)
    assert vars(admin.get_queue(queue.name))["max_delivery_count"] == 2_147_483_647


def test_an_update_sends_everything_back_and_changes_what_was_changed(admin: ServiceBusAdministrationClient) -> None:
    admin.create_queue("orders", authorization_rules=[RULE], **EVERY_OPTION)
    queue = admin.get_queue("orders")
    queue.lock_duration = timedelta(seconds=20)
    admin.update_queue(queue, max_delivery_count=3, user_metadata=None)
    changed = admin.get_queue("orders")
    assert (changed.lock_duration, changed.max_delivery_count, changed.user_metadata) == (
        timedelta(seconds=20),
        3,
        None,
    )
    assert changed.default_message_time_to_live == timedelta(minutes=11)
    assert [rule.primary_key for rule in changed.authorization_rules or ()] == [RULE.primary_key]


def test_a_listed_queue_can_be_updated(admin: ServiceBusAdministrationClient) -> None:
    admin.create_queue("orders")
    (queue,) = admin.list_queues()
    admin.update_queue(queue, status=EntityStatus.DISABLED)
    assert admin.get_queue("orders").status == EntityStatus.DISABLED


def test_the_same_works_with_every_version_of_the_interface(namespace: LocalNamespace) -> None:
    for version in ApiVersion:
        with admin_client(namespace, api_version=version) as admin:
            admin.create_queue(f"q-{version.value}")
            admin.update_queue(admin.get_queue(f"q-{version.value}"))
            admin.delete_queue(f"q-{version.value}")


# --- lists and counts ---


def test_more_than_a_page_of_queues_is_listed_in_order(
    namespace: LocalNamespace, admin: ServiceBusAdministrationClient
) -> None:
    made = [f"q{number:03}" for number in range(205)]
    for name in reversed(made):
        namespace.create_queue(name)
    assert names(admin) == made
    assert [queue.name for queue in admin.list_queues_runtime_properties(max_page_size=50, start_index=3)] == made[3:]
    assert [queue.name for queue in admin.list_queues(max_page_size=5000)] == made


def test_an_empty_namespace_has_no_queues_and_no_topics(admin: ServiceBusAdministrationClient) -> None:
    assert list(admin.list_queues()) == []
    assert list(admin.list_topics()) == []


def test_runtime_properties_count_messages_where_they_are(
    admin: ServiceBusAdministrationClient, bus: ServiceBusClient
) -> None:
    created = admin.create_queue("orders")
    with bus.get_queue_sender("orders") as sender:
        sender.send_messages([ServiceBusMessage(text) for text in ("dead", "deferred", "waits")])
        sender.schedule_messages(ServiceBusMessage("later"), datetime.now(UTC) + timedelta(hours=1))
    with bus.get_queue_receiver("orders") as receiver:
        messages = receiver.receive_messages(2, max_wait_time=WAIT_S)
        while len(messages) < 2:
            messages += receiver.receive_messages(2 - len(messages), max_wait_time=WAIT_S)
        receiver.dead_letter_message(messages[0])
        receiver.defer_message(messages[1])
    queue = admin.get_queue_runtime_properties(created.name)
    assert (queue.active_message_count, queue.scheduled_message_count, queue.dead_letter_message_count) == (2, 1, 1)
    assert (queue.transfer_message_count, queue.transfer_dead_letter_message_count) == (0, 0)
    assert queue.total_message_count == 4
    assert queue.size_in_bytes > 0  # type: ignore[operator]
    assert queue.created_at_utc <= queue.accessed_at_utc  # type: ignore[operator]
    assert abs(datetime.now(UTC) - queue.accessed_at_utc) < timedelta(minutes=1)  # type: ignore[operator]
    (listed,) = admin.list_queues_runtime_properties()
    assert listed.total_message_count == 4


def test_the_namespace_describes_itself(admin: ServiceBusAdministrationClient) -> None:
    properties = admin.get_namespace_properties()
    assert (properties.name, properties.messaging_sku) == ("local", "Standard")


# --- refusals ---


def test_what_is_missing_or_there_already_is_the_right_exception(admin: ServiceBusAdministrationClient) -> None:
    admin.create_queue("orders")
    queue = admin.get_queue("orders")
    with pytest.raises(ResourceExistsError):
        admin.create_queue("ORDERS")
    admin.delete_queue("orders")
    for call in (admin.get_queue, admin.get_queue_runtime_properties, admin.delete_queue):
        with pytest.raises(ResourceNotFoundError):
            call("orders")
    with pytest.raises(ResourceNotFoundError):
        admin.update_queue(queue)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"lock_duration": timedelta(days=25)}, "LockDuration"),
        ({"duplicate_detection_history_time_window": timedelta(days=25)}, "DuplicateDetectionHistoryTimeWindow"),
        ({"max_delivery_count": 0}, "MaxDeliveryCount"),
        ({"max_size_in_megabytes": 0}, "MaxSizeInMegabytes"),
        ({"default_message_time_to_live": timedelta(0)}, "DefaultMessageTimeToLive"),
        ({"max_message_size_in_kilobytes": 102_400}, "MaxMessageSizeInKilobytes"),
        ({"forward_to": "other"}, "ForwardTo"),
        ({"forward_to": "sb://elsewhere/other"}, "ForwardTo"),
        ({"forward_to": "orders"}, "ForwardTo"),
        ({"forward_dead_lettered_messages_to": "other"}, "ForwardDeadLetteredMessagesTo"),
        ({"auto_delete_on_idle": timedelta(minutes=4)}, "AutoDeleteOnIdle"),
    ],
)
def test_what_cannot_be_is_refused_by_name_and_nothing_is_made(
    admin: ServiceBusAdministrationClient, options: dict[str, Any], field: str
) -> None:
    with pytest.raises(HttpResponseError, match=field) as caught:
        admin.create_queue("orders", **options)
    assert caught.value.status_code == 400
    assert names(admin) == []


def test_a_bad_update_changes_nothing(admin: ServiceBusAdministrationClient) -> None:
    admin.create_queue("orders", max_delivery_count=7)
    queue = admin.get_queue("orders")
    for bad in ({"requires_session": True}, {"lock_duration": timedelta(minutes=6)}, {"status": "Sleeping"}):
        with pytest.raises(HttpResponseError):
            admin.update_queue(queue, max_delivery_count=8, **bad)
    assert admin.get_queue("orders").max_delivery_count == 7


@pytest.mark.parametrize("name", ["", "a b", "x" * 261, "?", "a/"])
def test_a_bad_name_is_refused(admin: ServiceBusAdministrationClient, name: str) -> None:
    if name == "a/":  # a slash at the end of an address is not part of the name
        assert admin.create_queue(name).name == name
        return
    with pytest.raises(HttpResponseError):
        admin.create_queue(name)


@pytest.mark.parametrize("page", [{"start_index": -1}, {"max_page_size": -1}])
def test_negative_pages_are_refused(admin: ServiceBusAdministrationClient, page: dict[str, int]) -> None:
    with pytest.raises(HttpResponseError):
        list(admin.list_queues(**page))


def test_a_wrong_key_is_refused(namespace: LocalNamespace) -> None:
    with admin_client(namespace, key_suffix="x") as admin, pytest.raises(ClientAuthenticationError):
        admin.create_queue("orders")


def test_what_is_decided_when_a_queue_is_made_comes_back_and_stays(admin: ServiceBusAdministrationClient) -> None:
    admin.create_queue(
        "orders",
        requires_session=True,
        requires_duplicate_detection=True,
        enable_partitioning=True,
        auto_delete_on_idle=timedelta(minutes=5),
    )
    queue = admin.get_queue("orders")
    assert (queue.requires_session, queue.requires_duplicate_detection, queue.enable_partitioning) == (True, True, True)
    assert queue.auto_delete_on_idle == timedelta(minutes=5)
    for name in ("requires_session", "requires_duplicate_detection", "enable_partitioning"):
        with pytest.raises(HttpResponseError, match="cannot be changed"):
            admin.update_queue(queue, **{name: False})
    admin.update_queue(admin.get_queue("orders"), auto_delete_on_idle=timedelta(minutes=6))


# --- settings are honoured ---


def status_of(admin: ServiceBusAdministrationClient, status: EntityStatus) -> None:
    admin.update_queue(admin.get_queue("orders"), status=status)


def send(bus: ServiceBusClient) -> None:
    with bus.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("x"))


def test_a_queue_closed_for_sending_refuses_senders_and_delivers(
    admin: ServiceBusAdministrationClient, bus: ServiceBusClient
) -> None:
    admin.create_queue("orders")
    with bus.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("before"))
        status_of(admin, EntityStatus.SEND_DISABLED)
        with pytest.raises(MessagingEntityDisabledError):
            sender.send_messages(ServiceBusMessage("after"))
    with pytest.raises(MessagingEntityDisabledError):
        send(bus)
    with bus.get_queue_receiver("orders") as receiver:
        (message,) = receiver.receive_messages(max_wait_time=WAIT_S)
        assert str(message) == "before"
        receiver.complete_message(message)
    status_of(admin, EntityStatus.ACTIVE)
    send(bus)


def test_a_queue_closed_for_receiving_takes_messages_and_gives_none(
    admin: ServiceBusAdministrationClient, bus: ServiceBusClient
) -> None:
    admin.create_queue("orders")
    with bus.get_queue_receiver("orders") as receiver:
        assert receiver.receive_messages(max_wait_time=1) == []
        status_of(admin, EntityStatus.RECEIVE_DISABLED)
        with pytest.raises(MessagingEntityDisabledError):
            receiver.receive_messages(max_wait_time=WAIT_S)
    send(bus)
    with pytest.raises(MessagingEntityDisabledError), bus.get_queue_receiver("orders") as receiver:
        receiver.receive_messages(max_wait_time=WAIT_S)
    status_of(admin, EntityStatus.ACTIVE)
    with bus.get_queue_receiver("orders") as receiver:
        assert len(receiver.receive_messages(max_wait_time=WAIT_S)) == 1


def test_a_queue_takes_no_larger_messages_than_it_says(
    admin: ServiceBusAdministrationClient, bus: ServiceBusClient
) -> None:
    admin.create_queue("orders", max_message_size_in_kilobytes=1)
    with bus.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage(b"x" * 500))
        with pytest.raises(MessageSizeExceededError):
            sender.send_messages(ServiceBusMessage(b"x" * 1024))


def test_settings_and_status_are_there_after_a_restart(namespace: LocalNamespace) -> None:
    with admin_client(namespace) as admin:
        admin.create_queue("orders", authorization_rules=[RULE], **EVERY_OPTION)
        admin.update_queue(admin.get_queue("orders"), status=EntityStatus.DISABLED)
        before: QueueProperties = admin.get_queue("orders")
    namespace.restart()
    with admin_client(namespace) as admin:
        after = admin.get_queue("orders")
    assert after.status == before.status == EntityStatus.DISABLED
    assert after.user_metadata == before.user_metadata
    assert [vars(rule) for rule in after.authorization_rules or ()] == [vars(RULE)]


def test_a_namespace_remembers_when_it_was_made(namespace: LocalNamespace) -> None:
    with admin_client(namespace) as admin:
        made = admin.get_namespace_properties().created_at_utc
    namespace.restart()
    with admin_client(namespace) as admin:
        assert admin.get_namespace_properties().created_at_utc == made
    assert made is not None
    assert abs(datetime.now(UTC) - made) < timedelta(minutes=1)
