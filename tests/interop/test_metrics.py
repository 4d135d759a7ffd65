"""The meter as a scraper sees it, pings, and the standing throttle: real clients, a real port."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError, ServiceBusServerBusyError

from twinbus.testing import LocalNamespace

KEY = "key"
WAIT_S = 10


@pytest.fixture
def bus() -> Iterator[LocalNamespace]:
    with LocalNamespace(queues=["orders"], key=KEY, rules=["reader:Listen:other"]) as namespace:
        yield namespace


def scrape(namespace: LocalNamespace, name: str, key: str, query: str = "") -> str:
    basic = base64.b64encode(f"{name}:{key}".encode()).decode()
    url = f"https://127.0.0.1:{namespace.port}/metrics{query}"
    request = urllib.request.Request(url, headers={"Authorization": f"Basic {basic}"})
    context = ssl.create_default_context(cafile=str(namespace.ca_file))
    with urllib.request.urlopen(request, context=context, timeout=WAIT_S) as answer:
        return str(answer.read().decode())


def operations(namespace: LocalNamespace) -> dict[tuple[str, str], dict[str, Any]]:
    shown = json.loads(scrape(namespace, "RootManageSharedAccessKey", KEY, "?format=json"))
    return {(one["entity"], one["kind"]): one for one in shown["operations"]}


def test_every_operation_is_counted_once_by_entity_and_kind(bus: LocalNamespace) -> None:
    with ServiceBusClient.from_connection_string(bus.connection_string, retry_total=0) as client:
        with client.get_queue_sender("Orders") as sender:
            sender.send_messages(ServiceBusMessage("1"))
            sender.send_messages([ServiceBusMessage("2"), ServiceBusMessage(b"3" * 100_000)])
        with client.get_queue_receiver("orders") as receiver:
            messages, grants = receiver.receive_messages(3, max_wait_time=WAIT_S), 1
            while len(messages) < 3:  # the client may give out the first before the others have come
                messages += receiver.receive_messages(3 - len(messages), max_wait_time=WAIT_S)
                grants += 1
            receiver.renew_message_lock(messages[0])
            receiver.peek_messages(1)
            for message in messages:
                receiver.complete_message(message)
    counted = operations(bus)
    kinds = ("send", "receive-grant", "delivery", "settle", "renew", "peek")
    assert [counted["orders", kind]["operations"] for kind in kinds] == [3, grants, 3, 3, 1, 1]
    assert counted["orders", "send"]["steps"] == 4, "100 KB are two steps of 64 KB"
    assert counted["orders", "send"]["bytes"] > 100_000
    text = scrape(bus, "RootManageSharedAccessKey", KEY)
    assert 'twinbus_operations_total{namespace="local",entity="orders",kind="send"} 3' in text


@pytest.mark.parametrize(("name", "key"), [("reader", "other"), ("RootManageSharedAccessKey", "wrong"), ("x", "y")])
def test_the_metrics_need_the_manage_right(bus: LocalNamespace, name: str, key: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as raised:
        scrape(bus, name, key)
    assert raised.value.code == 401


def test_a_ping_is_accepted_metered_and_shown_to_nobody(bus: LocalNamespace) -> None:
    # A real one lives for a second; this one lives long enough to be found if it were kept.
    ping = ServiceBusMessage(None, content_type="application/vnd.ms-servicebus-ping", time_to_live=timedelta(minutes=5))
    with ServiceBusClient.from_connection_string(bus.connection_string, retry_total=0) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ping)
            sender.send_messages([ServiceBusMessage("real"), ping])
        with client.get_queue_receiver("orders") as receiver:
            assert [str(message) for message in receiver.peek_messages(5)] == ["real"]
            assert [str(message) for message in receiver.receive_messages(5, max_wait_time=WAIT_S)] == ["real"]
    counted = operations(bus)
    assert counted["orders", "ping"]["operations"] == 2
    assert counted["orders", "send"]["operations"] == 1


def test_a_ping_meets_every_check_a_message_meets(bus: LocalNamespace) -> None:
    ping = ServiceBusMessage(None, content_type="application/vnd.ms-servicebus-ping")
    with (
        ServiceBusClient.from_connection_string(bus.connection_string, retry_total=0) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ping)
        bus.faults.add("no-send", entities=["orders"])
        with pytest.raises(ServiceBusError, match="cannot be sent to"):
            sender.send_messages(ping)
    assert operations(bus)["orders", "ping"]["operations"] == 1


def test_operations_beyond_the_standing_throttle_are_refused_as_busy() -> None:
    with (
        LocalNamespace(queues=["orders"], limits={"busy_operations_per_second": 5}) as namespace,
        ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client,
        client.get_queue_sender("orders") as sender,
    ):

        def send_many() -> None:
            for _ in range(50):
                sender.send_messages(ServiceBusMessage("x"))

        with pytest.raises(ServiceBusServerBusyError, match="10 seconds"):
            send_many()


def test_a_partitioned_queue_takes_more_before_it_is_busy() -> None:
    """Four times as much, sent at once and then refused; time only gives more to both."""
    with (
        LocalNamespace(limits={"busy_entity_operations_per_second": 3}) as namespace,
        ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client,
    ):
        namespace.create_queue("plain")
        namespace.create_queue("parts", partitioned=True)
        with client.get_queue_sender("parts") as sender:
            for _ in range(8):
                sender.send_messages(ServiceBusMessage("x"))
        with client.get_queue_sender("plain") as sender:

            def send_many() -> None:
                for _ in range(200):
                    sender.send_messages(ServiceBusMessage("x"))

            with pytest.raises(ServiceBusServerBusyError, match="'plain' is busy: more than 3 operations a second"):
                send_many()


def test_connections_beyond_the_standing_throttle_are_refused_as_busy() -> None:
    with (
        LocalNamespace(queues=["orders"], limits={"busy_connections": 1}) as namespace,
        ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))
        # The client knows a close of the connection only as a lost connection; the text says what it was.
        with pytest.raises(ServiceBusConnectionError, match="is busy"):
            client.get_queue_sender("orders").send_messages(ServiceBusMessage("x"))
        sender.send_messages(ServiceBusMessage("the first goes on"))


def test_every_forward_is_metered_as_one_operation(bus: LocalNamespace) -> None:
    bus.create_queue("first", forward_to="orders")
    bus.create_queue("zeroth", forward_to="first")
    with ServiceBusClient.from_connection_string(bus.connection_string, retry_total=0) as client:
        with client.get_queue_sender("zeroth") as sender:
            sender.send_messages([ServiceBusMessage("1"), ServiceBusMessage(b"2" * 100_000)])
        with client.get_queue_receiver("orders") as receiver:
            assert len(receiver.receive_messages(2, max_wait_time=WAIT_S)) >= 1
    counted = operations(bus)
    for entity in ("zeroth", "first"):
        assert (counted[entity, "forward"]["operations"], counted[entity, "forward"]["steps"]) == (2, 3)
    assert counted["zeroth", "send"]["operations"] == 2
    assert ("first", "send") not in counted
    assert ("orders", "send") not in counted
