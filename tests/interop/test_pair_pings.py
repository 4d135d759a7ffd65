"""Pings: what they look like on the wire, when they come, and when they end (A5, P7, P8)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from client_clock import ClientClock
from paired import Heard, PairHarness, wait_until
from wire_relay import Relay

from twinbus import NamespaceSide
from twinbus.amqp.message.sections import PropertyField, read_header, read_property, walk
from twinbus.client.reporting.status import EntityState

PING = b"application/vnd.ms-servicebus-ping"
HEADER_SECTION = bytes.fromhex("005370")
INTERVAL = timedelta(seconds=1_000)
EARLIEST_S, LATEST_S = 900, 1_100
STALL_S = 100
"""A machine may take so long for what takes a moment."""


def frames(said: bytes) -> Iterator[bytes]:
    """The frames in what one peer said on a connection."""
    place = 0
    while place + 8 <= len(said):
        size = 8 if said[place : place + 4] == b"AMQP" else int.from_bytes(said[place : place + 4], "big")
        yield said[place : place + size]
        place += size


def pings(harness: PairHarness, queue: str | None = None) -> int:
    return harness.primary.operations(queue or harness.orders).get("ping", 0)


def test_a_ping_is_an_empty_message_that_lives_for_a_second(both: PairHarness) -> None:
    with Relay(both.primary.port) as relay:
        with both.client_of(both.primary.through(relay.port), both.secondary.namespace, pings_to_return=2) as bus:
            heard = Heard(bus)
            bus.get_queue_sender(both.orders)
            bus.force_failover(both.orders)
            heard.wait_for("recovered")
        messages = [frame[frame.index(HEADER_SECTION) :] for frame in frames(bytes(relay.said)) if PING in frame]
    assert len(messages) == 2
    sessions = set()
    for message in messages:
        layout = walk(message)
        assert read_property(message, layout, PropertyField.CONTENT_TYPE) in (PING.decode(), PING)
        header = read_header(message, layout)
        assert header.ttl_ms == 1_000
        assert b"\x00\x53\x75\xa0\x00" in message[-16:], "one empty data section"
        sessions.add(read_property(message, layout, PropertyField.GROUP_ID))
    assert len(sessions) == 2, "each has a session of its own, for entities that want one"
    assert pings(both) == 2
    assert both.primary.messages(both.orders) == []


def until_ping_s(bus: Any) -> float:
    """How long it is until the next ping of the only entity."""
    (entity,) = bus.status().entities
    return 0.0 if entity.next_ping_at is None else float((entity.next_ping_at - datetime.now(UTC)).total_seconds())


def test_the_first_ping_comes_after_one_interval_and_then_one_each_interval(
    both: PairHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ClientClock(monkeypatch)
    client = both.client(ping_primary_interval=INTERVAL)
    clock.rule(client)
    with client as bus:
        heard = Heard(bus)
        both.primary.break_("no-send", both.orders)
        assert bus.get_queue_sender(both.orders).send_messages(ServiceBusMessage("1")).side is NamespaceSide.BACKLOG
        for number in range(3):
            wait_until(lambda: until_ping_s(bus) > 0)
            left_s = until_ping_s(bus)
            assert EARLIEST_S - STALL_S < left_s < LATEST_S + 1, "an interval, give or take a tenth"
            clock.put_forward(left_s - STALL_S, bus)
            assert len(heard.named("ping_sent")) == number, "not before its time"
            clock.put_forward(STALL_S, bus)
            heard.wait_for("ping_failed", number + 1)
        assert "cannot be sent to" in heard.named("ping_failed")[0].text
        (entity,) = bus.status().entities
        assert entity.state is EntityState.FAILED_OVER
        assert entity.pings_sent == entity.pings_failed == 3
        assert entity.last_ping_failure is not None
        assert entity.next_ping_at is not None


def test_many_senders_of_an_entity_have_one_schedule_and_it_ends_with_the_outage(both: PairHarness) -> None:
    with both.bus(pings_to_return=2) as bus:
        heard = Heard(bus)
        senders = [bus.get_queue_sender(both.orders) for _ in range(10)]
        others = [bus.get_queue_sender(both.invoices) for _ in range(3)]
        for queue in (both.orders, both.invoices):
            bus.force_failover(queue, stay=True)
        for sender in (*senders, *others):
            assert sender.send_messages(ServiceBusMessage("x")).side is NamespaceSide.BACKLOG
        for queue in (both.orders, both.invoices):
            bus.force_failover(queue)  # from now on there are pings
        heard.wait_for("recovered", 2)
        back = time.monotonic()
        assert (pings(both), pings(both, both.invoices)) == (2, 2)
        assert [entity.next_ping_at for entity in bus.status().entities] == [None, None]
        wait_until(lambda: time.monotonic() - back > 1.3)
        assert (pings(both), pings(both, both.invoices)) == (2, 2), "no ping after the one that succeeded"


def test_without_an_outage_there_is_no_ping(both: PairHarness) -> None:
    with both.bus() as bus:
        sender = bus.get_queue_sender(both.orders)
        until = time.monotonic() + 1.3
        wait_until(
            lambda: (
                sender.send_messages(ServiceBusMessage("x")).side is NamespaceSide.PRIMARY and time.monotonic() > until
            )
        )
        assert pings(both) == 0


def test_after_a_link_one_message_brings_the_entity_back(both: PairHarness) -> None:
    with both.bus(probe="link") as bus:
        heard = Heard(bus)
        fault = both.primary.break_("refuse", both.orders, condition="com.microsoft:entity-disabled", on="sends")
        assert bus.get_queue_sender(both.orders).send_messages(ServiceBusMessage("1")).side is NamespaceSide.BACKLOG
        both.primary.clear(fault)
        wait_until(lambda: bus.status().entities[0].waits_for_message)
        assert pings(both) == 0
        assert bus.get_queue_sender(both.orders).send_messages(ServiceBusMessage("2")).side is NamespaceSide.PRIMARY
        heard.wait_for("recovered")


@pytest.mark.parametrize(
    "condition", ["amqp:unauthorized-access", "com.microsoft:server-busy", "amqp:not-found", "amqp:not-allowed"]
)
def test_whatever_a_ping_meets_the_entity_stays_failed_over(harness: PairHarness, condition: str) -> None:
    with harness.bus() as bus:
        heard = Heard(bus)
        harness.primary.break_("refuse", harness.orders, condition=condition, on="sends", text="so it is")
        sender = bus.get_queue_sender(harness.orders)
        bus.force_failover(harness.orders)
        assert "so it is" in heard.wait_for("ping_failed").text
        assert sender.send_messages(ServiceBusMessage("1")).side is NamespaceSide.BACKLOG
        harness.primary.clear()
        heard.wait_for("recovered")


@pytest.mark.long
def test_a_ping_that_nobody_answers_ends_in_time_and_the_next_one_comes(both: PairHarness) -> None:
    with both.bus(attempt_timeout=timedelta(seconds=2)) as bus:
        heard = Heard(bus)
        both.primary.break_("unreachable", how="silent")
        sender = bus.get_queue_sender(both.orders)
        bus.force_failover(both.orders)
        assert heard.wait_for("ping_failed", 2).text.startswith("no answer in time")
        both.primary.clear()
        heard.wait_for("recovered")
        assert sender.send_messages(ServiceBusMessage("1")).side is NamespaceSide.PRIMARY


def test_back_within_one_interval_and_a_tenth(both: PairHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ClientClock(monkeypatch)
    client = both.client(ping_primary_interval=INTERVAL)
    clock.rule(client)
    with client as bus:
        heard = Heard(bus)
        both.primary.break_("unreachable", how="refuse")
        sender = bus.get_queue_sender(both.orders)
        assert sender.send_messages(ServiceBusMessage("1")).side is NamespaceSide.BACKLOG
        clock.put_forward(LATEST_S, bus)
        heard.wait_for("ping_failed")
        both.primary.clear()
        assert sender.send_messages(ServiceBusMessage("2")).side is NamespaceSide.BACKLOG, "nobody has asked yet"
        clock.put_forward(LATEST_S, bus)
        heard.wait_for("recovered")
        assert pings(both) == 1, "the first one that succeeds is enough"
        clock.put_forward(10 * LATEST_S, bus)
        assert sender.send_messages(ServiceBusMessage("3")).side is NamespaceSide.PRIMARY
        assert until_ping_s(bus) == 0
        assert pings(both) == 1, "and it is the last"
