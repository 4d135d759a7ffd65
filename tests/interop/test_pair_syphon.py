"""A paired client that brings its backlog home itself, and what becomes of it when one of its sides ends."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from backlog_messages import backlog_messages_for, fill, unaddressed
from paired import Heard, OnLoop, PairHarness, wait_until
from wire_relay import Relay

from twinbus import PairedServiceBusClient
from twinbus.client.namespace import Namespace
from twinbus.client.reporting.status import SyphonStatus
from twinbus.errors import PairClosed, PairFaulted
from twinbus.ledger import Kind, LedgerReader
from twinbus.syphon import Alert, Syphon, SyphonOptions

PARTNER_S = 5.0


def twinbus_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("twinbus-")]


def send(bus: PairedServiceBusClient, queue: str, *texts: str) -> None:
    with bus.get_queue_sender(queue) as sender:
        for text in texts:
            sender.send_messages(ServiceBusMessage(text))


# --- bringing the backlog home ---


def test_a_backlog_comes_home_by_itself_when_the_outage_is_over(both: PairHarness) -> None:
    with both.bus(enable_syphon=True) as bus:
        heard = Heard(bus)
        fault = both.primary.break_("no-send", both.orders)
        send(bus, both.orders, "one", "two", "three")
        heard.wait_for("failed_over")
        wait_until(lambda: syphon_of(bus).destinations_down == (both.orders,))
        both.primary.clear(fault)
        wait_until(lambda: sorted(both.primary.texts(both.orders)) == ["one", "three", "two"])
        wait_until(lambda: syphon_of(bus).moved == 3)
        assert heard.wait_for("destination_down").entity == both.orders
        assert heard.wait_for("destination_up").entity == both.orders
        assert "3 messages are home" in str(bus.status())
        assert "twinbus_pair_syphon_messages_total{" in bus.metrics_text()
    assert both.in_backlog() == []


def test_a_client_without_a_syphon_says_so(both: PairHarness) -> None:
    with both.bus() as bus:
        assert bus.status().syphon is None
        assert "syphon_messages" not in "".join(
            line for line in bus.metrics_text().splitlines() if not line.startswith("#")
        )


@pytest.mark.long
def test_a_backlog_queue_that_cannot_be_emptied_is_named_and_nobody_says_that_nothing_waits(both: PairHarness) -> None:
    both.secondary.admin.create_queue(both.backlog(5), requires_session=True)
    with both.bus(enable_syphon=True) as bus:
        heard = Heard(bus)
        assert heard.wait_for("queue_down").details["subject"] == both.backlog(5)
        wait_until(lambda: bool(syphon_of(bus).troubles) and bus.status().secondary_status.unread_queues == 1)
        assert [trouble for trouble in syphon_of(bus).troubles if trouble.startswith(f"{both.backlog(5)}: not allowed")]
        assert (syphon_of(bus).left, bus.status().secondary_status.waiting_messages) == (None, None), "not 0"


def test_what_lies_in_a_backlog_queue_beyond_the_count_comes_home_and_is_reported(both: PairHarness) -> None:
    both.secondary.admin.create_queue(both.backlog(5))
    with both.bus(enable_syphon=True) as bus:
        heard = Heard(bus)
        fill(both.secondary.connection_string, both.backlog(5), backlog_messages_for(both.orders, 3))
        wait_until(lambda: syphon_of(bus).moved == 3)
        assert heard.wait_for("extra_queue").details["subject"] == both.backlog(5)
        assert bus.backlog_queue_count == 2, "nobody sends there"
    assert len(both.primary.messages(both.orders)) == 3


def test_what_is_for_an_entity_that_is_not_listed_stays_and_is_counted_and_reported(both: PairHarness) -> None:
    with both.bus(enable_syphon=True, syphon_entities=[both.orders.upper()]) as bus:
        heard = Heard(bus)
        fill(
            both.secondary.connection_string,
            both.backlog(0),
            backlog_messages_for("vault", 2) + backlog_messages_for(both.orders, 3),
        )
        wait_until(lambda: (syphon_of(bus).moved, syphon_of(bus).outside) == (3, 2))
        assert heard.wait_for("not_listed").details["subject"] == "vault"
        assert "2 for entities that are not listed stay" in str(bus.status())
        assert "twinbus_pair_syphon_outside_total{" in bus.metrics_text()
    assert len(both.in_backlog()) == 2


def test_what_can_never_come_home_is_reported(both: PairHarness) -> None:
    with both.bus(enable_syphon=True) as bus:
        heard = Heard(bus)
        fill(both.secondary.connection_string, both.backlog(0), [unaddressed()])
        event = heard.wait_for("quarantined")
        assert event.details["subject"] == both.backlog(0)
        wait_until(lambda: syphon_of(bus).quarantined == 1)


def test_closing_leaves_no_thread_no_socket_and_no_lock_behind(both: PairHarness) -> None:
    before = set(twinbus_threads())
    with Relay(both.secondary.port) as relay:
        secondary = both.secondary.through(relay.port)
        with both.client_of(both.primary.namespace, secondary, enable_syphon=True) as bus:
            wait_until(lambda: relay.connections > 0)
            fill(both.secondary.connection_string, both.backlog(0), backlog_messages_for(both.orders, 500))
            wait_until(lambda: syphon_of(bus).moved > 0)
        wait_until(lambda: set(twinbus_threads()) <= before)
        relay.wait_until_all_left()
    home = {str(message.message_id) for message in both.primary.messages(both.orders)}
    left = {str(message.message_id) for message in both.in_backlog()}
    assert home | left == {f"{both.orders}-{number}" for number in range(500)}
    with both.bus(enable_syphon=True):  # what was given back is not locked: it comes at once
        wait_until(lambda: both.in_backlog() == [])
    assert len(both.primary.messages(both.orders)) == 500


def test_a_ledger_records_what_came_home(harness: PairHarness, tmp_path: Path) -> None:
    with harness.bus(enable_syphon=True, ledger=tmp_path) as bus:
        fill(harness.secondary.connection_string, harness.backlog(1), backlog_messages_for(harness.orders, 20))
        wait_until(lambda: syphon_of(bus).moved == 20)
    recorded = [
        one
        for record in LedgerReader(tmp_path).records()
        if record.kind == Kind.COMPLETED
        for one in record.message_ids
    ]
    assert sorted(recorded) == sorted(f"{harness.orders}-{number}" for number in range(20))


# --- the end of one side ---


@pytest.mark.parametrize("first", ["primary", "secondary"])
def test_closing_one_side_faults_the_pair_after_5_seconds_and_both_say_why(both: PairHarness, first: str) -> None:
    bus = both.client(enable_syphon=True)
    bus.pair()
    heard, began = Heard(bus), time.monotonic()
    side_of(bus, first).close()
    assert side_of(bus, first).is_open is False
    other = "secondary" if first == "primary" else "primary"
    assert side_of(bus, other).is_open is True
    assert "was not closed within 5 s" in heard.wait_for("faulted").text
    assert PARTNER_S - 0.01 <= time.monotonic() - began < PARTNER_S + 12
    reason = f"the {first} was closed, and the {other} was not closed within 5 s"
    assert side_of(bus, first).fault == side_of(bus, other).fault == bus.status().fault == reason
    with pytest.raises(PairFaulted, match=reason):
        send(bus, both.orders, "too late")
    wait_until(lambda: not [name for name in twinbus_threads() if both.name in name])


@pytest.mark.parametrize("first", ["primary", "secondary"])
def test_closing_both_sides_in_time_is_a_clean_close(both: PairHarness, first: str) -> None:
    bus = both.client(enable_syphon=True)
    bus.pair()
    heard = Heard(bus)
    for side in (first, "secondary" if first == "primary" else "primary"):
        side_of(bus, side).close()
    assert bus.status().phase.value == "closed"
    assert side_of(bus, first).fault is None
    assert heard.names("ping_sent")[-2:] == ["side_closed", "closed"]
    with pytest.raises(PairClosed) as raised:
        send(bus, both.orders, "too late")
    assert not isinstance(raised.value, PairFaulted)


def test_closing_the_client_within_those_5_seconds_is_a_clean_close(harness: PairHarness) -> None:
    bus = harness.client(enable_syphon=True)
    bus.pair()
    side_of(bus, "secondary").close()
    bus.close()
    assert (bus.status().phase.value, bus.status().fault) == ("closed", None)


def test_without_a_syphon_a_closed_secondary_ends_only_the_detour(both: PairHarness) -> None:
    with both.bus() as bus:
        send(bus, both.orders, "before")
        side_of(bus, "secondary").close()
        send(bus, both.orders, "after")
        both.primary.break_("no-send", both.orders)
        with pytest.raises(PairClosed, match="the secondary is closed"):
            send(bus, both.orders, "lost")
        assert bus.status().phase.value == "paired"
    assert both.primary.texts(both.orders) == ["before", "after"]


def test_without_a_syphon_a_closed_primary_ends_only_what_needs_it(both: PairHarness) -> None:
    with both.bus() as bus:
        bus.get_queue_sender(both.invoices)
        bus.force_failover(both.invoices, stay=True)
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("before"))
        side_of(bus, "primary").close()
        with pytest.raises(PairClosed, match="the primary is closed"):
            sender.send_messages(ServiceBusMessage("lost"))
        with pytest.raises(PairClosed, match="the primary is closed"):
            bus.get_queue_receiver(both.orders)
        send(bus, both.invoices, "detour")
        assert bus.status().phase.value == "paired"
    assert both.backlog_texts() == ["detour"]


# --- faults of the syphon's own ---


def test_an_outage_of_either_side_is_never_a_fault(both: PairHarness) -> None:
    with both.bus(enable_syphon=True) as bus:
        heard = Heard(bus)
        both.secondary.break_("unreachable", how="drop")
        heard.wait_for("queue_down")
        both.secondary.clear()
        heard.wait_for("queue_up")
        both.secondary.kill()
        both.secondary.start()
        fill(both.secondary.connection_string, both.backlog(0), backlog_messages_for(both.orders, 3))
        wait_until(lambda: len(both.primary.messages(both.orders)) == 3)
        assert bus.status().phase.value == "paired"


def test_a_syphon_that_breaks_faults_the_pair_with_the_reason(both: PairHarness) -> None:
    bus = both.client(enable_syphon=True)
    bus.pair()
    heard = Heard(bus)
    inner: Any = bus
    syphon = (inner._target if isinstance(inner, OnLoop) else inner)._state.syphon.syphon
    syphon.pump.messages_arrived = None  # as a mistake of ours would
    fill(both.secondary.connection_string, both.backlog(0), backlog_messages_for(both.orders, 1))
    assert heard.wait_for("faulted").text == "the syphon broke: TypeError"
    with pytest.raises(PairFaulted, match="the syphon broke"):
        send(bus, both.orders, "too late")


def syphon_of(bus: PairedServiceBusClient) -> SyphonStatus:
    found = bus.status().syphon
    assert found is not None
    return found


def side_of(bus: Any, name: str) -> Any:
    """`bus.primary` or `bus.secondary`, also of a client that lives on a loop."""
    found = getattr(bus, name)
    return OnLoop(found, bus._loop) if isinstance(bus, OnLoop) else found


async def test_a_credential_that_every_queue_refuses_is_reported_as_useless(harness: PairHarness) -> None:
    with harness.bus():  # makes the queues
        pass
    sender = Namespace.from_connection_string(harness.secondary.rule_strings["sender"])
    alerts: list[Alert] = []
    options = SyphonOptions(refused_s=0.0, backoff_s=(0.01, 0.02))
    ends = harness.primary.namespace.dial(), sender.dial()
    async with Syphon(*ends, harness.name, 2, options, on_alert=alerts.append), asyncio.timeout(20):
        while "refused" not in [alert.name for alert in alerts]:
            await asyncio.sleep(0.01)
    assert len([alert for alert in alerts if alert.name == "refused"]) == 1


def test_a_credential_that_is_of_no_use_faults_the_pair_after_5_seconds(harness: PairHarness) -> None:
    bus = harness.client(enable_syphon=True)
    bus.pair()
    heard, began = Heard(bus), time.monotonic()
    bus._runner._report_alert(Alert("refused", "secondary", "no backlog queue may be read"))
    assert heard.wait_for("side_closed").text == "the secondary has ended: no backlog queue may be read"
    assert bus.secondary.fault == "no backlog queue may be read"
    assert bus.primary.fault is None
    text = heard.wait_for("faulted").text
    assert text == "the secondary has ended (no backlog queue may be read), and the primary was not closed within 5 s"
    assert PARTNER_S - 0.01 <= time.monotonic() - began < PARTNER_S + 12
