"""Receivers of a paired client: the SDK's, on the primary only, without pings (A8, P7)."""

from __future__ import annotations

from typing import Any, cast

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import MessagingEntityNotFoundError
from paired import Heard, OnLoop, PairHarness
from wire_relay import Relay

from twinbus import NamespaceSide, PairedServiceBusReceiver
from twinbus.aio import PairedServiceBusReceiver as AioPairedServiceBusReceiver
from twinbus.errors import PairClosed, TwinbusError

WAIT_S = 30
"""Upper bound; what is there comes at once."""
PING, LIKE_A_PING = b"application/vnd.ms-servicebus-ping", b"application/vnd.ms-servicebus-pong"


def test_a_receiver_has_the_primarys_messages_and_settles_them(both: PairHarness) -> None:
    with both.bus() as bus:
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages([ServiceBusMessage(str(number)) for number in range(4)])
        receiver = bus.get_queue_receiver(both.orders)
        assert [str(message) for message in receiver.peek_messages(9)] == ["0", "1", "2", "3"]
        first, second, third, _ = (receiver.receive_messages(1, max_wait_time=WAIT_S)[0] for _ in range(4))
        receiver.complete_message(first)
        receiver.abandon_message(second)
        receiver.dead_letter_message(third, reason="wrong")
        receiver.close()
    assert both.primary.texts(both.orders) == ["1", "3"]


def test_what_is_in_the_backlog_is_nothing_to_receivers(both: PairHarness) -> None:
    with both.bus() as bus:
        heard = Heard(bus)
        sender, receiver = bus.get_queue_sender(both.orders), bus.get_queue_receiver(both.orders)
        sender.send_messages(ServiceBusMessage("1"))
        both.primary.break_("no-send", both.orders)
        assert sender.send_messages(ServiceBusMessage("2")).side is NamespaceSide.BACKLOG
        (message,) = receiver.receive_messages(5, max_wait_time=WAIT_S)
        assert str(message) == "1"
        receiver.complete_message(message)
        both.primary.clear()
        heard.wait_for("recovered")
        sender.send_messages(ServiceBusMessage("3"))
        (message,) = receiver.receive_messages(5, max_wait_time=WAIT_S)
        assert str(message) == "3"
        receiver.close()
    assert both.secondary.operations(both.backlog(0)).keys() <= {"manage", "send"}


def test_a_receiver_finds_its_way_back_after_an_outage(both: PairHarness) -> None:
    with both.bus() as bus:
        sender, receiver = bus.get_queue_sender(both.orders), bus.get_queue_receiver(both.orders)
        sender.send_messages(ServiceBusMessage("1"))
        (message,) = receiver.receive_messages(1, max_wait_time=WAIT_S)
        receiver.complete_message(message)
        both.primary.kill()
        both.primary.start()
        sender.send_messages(ServiceBusMessage("2"))
        (message,) = receiver.receive_messages(1, max_wait_time=WAIT_S)
        assert str(message) == "2"
        receiver.close()


@pytest.mark.parametrize("mode", list(ServiceBusReceiveMode))
def test_pings_that_a_server_delivers_are_not_shown(both: PairHarness, mode: ServiceBusReceiveMode) -> None:
    """An embedded namespace delivers none, so that a relay has to make some."""
    with both.primary.sending(both.orders) as plain:
        for number in range(3):
            plain.send_messages(ServiceBusMessage("", content_type=LIKE_A_PING.decode()))
            plain.send_messages(ServiceBusMessage(str(number), content_type="text/plain"))
    with Relay(both.primary.port) as relay:
        relay.swap = LIKE_A_PING, PING
        with both.client_of(both.primary.through(relay.port), both.secondary.namespace) as bus:
            receiver = bus.get_queue_receiver(both.orders, receive_mode=mode, prefetch_count=10)
            assert [str(message) for message in receiver.peek_messages(10)] == ["0", "1", "2"]
            found: list[str] = []
            while len(found) < 3:
                for message in receiver.receive_messages(10, max_wait_time=WAIT_S):
                    assert message.content_type == "text/plain"
                    found.append(str(message))
                    if mode is ServiceBusReceiveMode.PEEK_LOCK:
                        receiver.complete_message(message)
            assert found == ["0", "1", "2"]
            assert receiver.receive_messages(10, max_wait_time=0.3) == []
            receiver.close()
    assert both.primary.messages(both.orders) == [], "pings are gone, too"


def test_iterating_shows_no_pings_either(harness: PairHarness) -> None:
    with harness.primary.sending(harness.orders) as plain:
        for number in range(2):
            plain.send_messages(ServiceBusMessage("", content_type=LIKE_A_PING.decode()))
            plain.send_messages(ServiceBusMessage(str(number)))
    with Relay(harness.primary.port) as relay:
        relay.swap = LIKE_A_PING, PING
        with (
            harness.client_of(harness.primary.through(relay.port), harness.secondary.namespace) as bus,
            bus.get_queue_receiver(harness.orders, max_wait_time=5) as receiver,
        ):
            found = []
            for message in receiver:
                found.append(str(message))
                receiver.complete_message(message)
            assert found == ["0", "1"]


def test_receivers_are_the_sdks_and_come_after_pairing(both: PairHarness) -> None:
    bus = both.client()
    with pytest.raises(TwinbusError, match="not paired yet"):
        bus.get_queue_receiver(both.orders)
    with bus:
        receiver = bus.get_queue_receiver(both.orders, max_wait_time=5)
        kinds = (PairedServiceBusReceiver, AioPairedServiceBusReceiver)
        assert isinstance(getattr(receiver, "_target", receiver), kinds)
        receiver.close()


def test_an_error_of_a_receiver_is_its_own_and_fails_nothing_over(both: PairHarness) -> None:
    with both.bus() as bus:
        receiver = bus.get_queue_receiver("ordres")
        with pytest.raises(MessagingEntityNotFoundError):
            receiver.receive_messages(1, max_wait_time=WAIT_S)
        assert bus.status().is_healthy
        assert bus.get_queue_sender(both.orders).send_messages(ServiceBusMessage("1")).side is NamespaceSide.PRIMARY


# --- sessions ---


def listed(bus: Any, found: Any) -> list[str]:
    """What is in a list of the SDK's, of either kind."""

    async def collect() -> list[str]:
        return [session async for session in found]

    return cast("list[str]", bus._loop.run(collect()) if isinstance(bus, OnLoop) else list(found))


def test_sessions_are_listed_as_the_sdk_lists_them(both: PairHarness) -> None:
    queue, topic = f"{both.orders}-sessions", f"{both.orders}-topic"
    both.primary.admin.create_queue(queue, requires_session=True)
    both.primary.admin.create_topic(topic)
    both.primary.admin.create_subscription(topic, "all", requires_session=True)
    with both.bus() as bus:
        for sender in (bus.get_queue_sender(queue), bus.get_topic_sender(topic)):
            sender.send_messages([ServiceBusMessage("x", session_id=session) for session in ("a", "b", "a")])
        assert sorted(listed(bus, bus.list_queue_sessions(queue, timeout=WAIT_S))) == ["a", "b"]
        assert sorted(listed(bus, bus.list_subscription_sessions(topic, "all"))) == ["a", "b"]
        with pytest.raises(ValueError, match="timeout must be greater than 0"):
            bus.list_queue_sessions(queue, timeout=0)
        bus.close()
        with pytest.raises(PairClosed):
            bus.list_queue_sessions(queue)


def test_a_list_of_sessions_that_nobody_reads_to_its_end_ends_with_the_client(harness: PairHarness) -> None:
    queue = f"{harness.orders}-sessions"
    harness.primary.admin.create_queue(queue, requires_session=True)
    with Relay(harness.primary.port) as relay:
        with harness.client_of(harness.primary.through(relay.port), harness.secondary.namespace) as bus:
            sender = bus.get_queue_sender(queue)
            sender.send_messages([ServiceBusMessage("x", session_id=f"s{number}") for number in range(101)])
            sender.close()
            relay.wait_until_all_left()
            sessions = iter(bus.list_queue_sessions(queue))
            assert next(sessions).startswith("s")
            assert relay.connections == 1, "there is more to list"
        relay.wait_until_all_left()
