"""An official client behind a proxy, and two namespaces that somebody else runs; see `test_live_pairing.py`.

What the proxy believes of the service, each belief in one test: that links of our own engine are taken, batches as they
are, many sends before the first answer; that delivery tags are lock tokens, also on links that are passed on; that
sessions, requests and dead letters work by way of such links.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import MessagingEntityNotFoundError
from engine_client import EngineClient
from live_pair import BACKLOG_QUEUES, CONSENT, PATIENCE_S, PRIMARY, SECONDARY, LivePair, need_consent
from local_proxy import LocalProxy
from paired import wait_until

from twinbus import Namespace
from twinbus.amqp.codec.outcomes import Error

need_consent(PRIMARY, SECONDARY, CONSENT)

pytestmark = pytest.mark.timeout(600)
WAIT_S = 30
RECEIVERS = 300


@pytest.fixture(scope="module")
def live() -> Iterator[LivePair]:
    with LivePair() as live:
        yield live


@pytest.fixture(scope="module")
def proxy(live: LivePair) -> Iterator[LocalProxy]:
    running = LocalProxy(
        live.primary_string,
        live.secondary_string,
        failover_interval=timedelta(0),
        ping_primary_interval=timedelta(seconds=2),
        attempt_timeout=timedelta(seconds=10),
        backlog_queue_count=BACKLOG_QUEUES,
        primary_name=live.prefix,
        entities=(live.orders,),
    )
    with running:
        yield running


@pytest.fixture
def client(proxy: LocalProxy) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(proxy.connection_string) as client:
        yield client


def texts(live: LivePair, namespace: Namespace, *queues: str) -> list[str]:
    return sorted(str(message) for message in live.taken(namespace, *queues))


def test_one_message_a_list_and_a_batch_are_stored_as_they_were_sent(live: LivePair, client: ServiceBusClient) -> None:
    with client.get_queue_sender(live.orders) as sender:
        sender.send_messages(ServiceBusMessage("1", message_id="one", application_properties={"n": 5}))
        sender.send_messages([ServiceBusMessage("2"), ServiceBusMessage("3")])
        batch = sender.create_message_batch()
        batch.add_message(ServiceBusMessage("4"))
        sender.send_messages(batch)
    found = live.taken(live.primary, live.orders)
    assert sorted(str(message) for message in found) == ["1", "2", "3", "4"]
    (one,) = [message for message in found if message.message_id == "one"]
    assert one.application_properties == {b"n": 5}


def test_messages_are_scheduled_and_cancelled(live: LivePair, client: ServiceBusClient) -> None:
    with client.get_queue_sender(live.orders) as sender:
        due = datetime.now(UTC) + timedelta(hours=1)
        number = sender.schedule_messages(ServiceBusMessage("never"), due)
        sender.cancel_scheduled_messages(number)
        sender.schedule_messages(ServiceBusMessage("soon"), datetime.now(UTC) + timedelta(seconds=1))
    with client.get_queue_receiver(live.orders) as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=PATIENCE_S)
        receiver.complete_message(message)
    assert str(message) == "soon"


def test_messages_are_settled_in_every_way_by_tokens_that_were_passed_on(
    live: LivePair, client: ServiceBusClient
) -> None:
    with client.get_queue_sender(live.orders) as sender:
        sender.send_messages(ServiceBusMessage("42"))
    with client.get_queue_receiver(live.orders) as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=WAIT_S)
        assert receiver.renew_message_lock(message) > datetime.now(UTC)
        receiver.abandon_message(message)
        (message,) = receiver.receive_messages(1, max_wait_time=WAIT_S)
        assert message.delivery_count == 1
        receiver.defer_message(message)
        (message,) = receiver.receive_deferred_messages([message.sequence_number or 0])
        receiver.dead_letter_message(message, reason="tried")
        assert receiver.receive_messages(1, max_wait_time=5) == []
    with client.get_queue_receiver(live.orders, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=WAIT_S)
        assert message.dead_letter_reason == "tried"
        receiver.complete_message(message)


def test_a_session_has_its_state_and_its_lock(live: LivePair, client: ServiceBusClient) -> None:
    carts = f"{live.prefix}-carts"
    live.create_queue(carts, requires_session=True)
    with client.get_queue_sender(carts) as sender:
        sender.send_messages([ServiceBusMessage(text, session_id="cart-7") for text in ("a book", "a pen")])
    with client.get_queue_receiver(carts, session_id="cart-7") as receiver:
        locked_until = receiver.session.locked_until_utc
        assert locked_until is not None
        assert locked_until > datetime.now(UTC)
        receiver.session.set_state(b"full")
        assert receiver.session.get_state() == b"full"
        receiver.session.renew_lock()
        found: list[str] = []
        while len(found) < 2:
            for message in receiver.receive_messages(2, max_wait_time=WAIT_S):
                found.append(str(message))
                receiver.complete_message(message)
    assert found == ["a book", "a pen"]
    with client.get_queue_receiver(carts, session_id="cart-7") as receiver:  # it is free again at once
        assert receiver.session.get_state() == b"full"


def test_many_receivers_of_one_connection_have_a_session_each(live: LivePair, proxy: LocalProxy) -> None:
    """More than the 255 that many servers stop at."""
    with EngineClient(proxy.server.port, "RootManageSharedAccessKey", "the-key-of-the-proxy") as application:
        links = [application.receiver(live.orders, 0) for _ in range(RECEIVERS)]
        assert [link for link in links if isinstance(link, Error)] == []


def test_what_the_primary_refuses_is_seen_as_it_said_it(live: LivePair, client: ServiceBusClient) -> None:
    with pytest.raises(MessagingEntityNotFoundError):
        client.get_queue_sender(f"{live.prefix}-typo").send_messages(ServiceBusMessage("1"))


def test_sends_go_on_while_the_queue_is_disabled_and_come_back(live: LivePair, client: ServiceBusClient) -> None:
    with client.get_queue_sender(live.orders) as sender:
        sender.send_messages(ServiceBusMessage("before"))
        in_backlog: list[str] = []
        with live.outage():

            def takes_the_detour() -> bool:
                sender.send_messages(ServiceBusMessage("during"))
                in_backlog.extend(str(message) for message in live.taken_from_backlog())
                return bool(in_backlog)

            wait_until(takes_the_detour, within_s=PATIENCE_S)
        stored: list[str] = []

        def is_back() -> bool:
            sender.send_messages(ServiceBusMessage("after"))
            stored.extend(texts(live, live.primary, live.orders))
            return "after" in stored

        wait_until(is_back, within_s=PATIENCE_S)
    assert "before" in stored
    live.taken_from_backlog()
