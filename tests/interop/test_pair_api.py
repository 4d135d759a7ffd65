"""Pairing two namespaces: one call, ready when it returns, and a clear error when it cannot be (A1-A3, A7, A9, A10)."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.management import EntityStatus
from paired import Heard, PairHarness
from served import KEY

import twinbus
import twinbus.aio
from twinbus import Namespace, NamespaceSide, PairedNamespaceOptions, PairedServiceBusClient, Retry
from twinbus import SendAvailabilityPairedNamespaceOptions as Options
from twinbus.errors import OptionsError, PairClosed, PairingError, TwinbusError

QUICK = timedelta(seconds=3)
FOR_EVER_DAYS = 10_675_199


def refusal(bus: PairedServiceBusClient) -> str:
    with pytest.raises(PairingError) as refused:
        bus.pair()
    text = str(refused.value)
    assert "\n" not in text
    assert KEY not in text
    return text


# --- ready when it returns ---


def test_when_the_call_returns_every_backlog_queue_is_there(both: PairHarness) -> None:
    bus = both.client(backlog_queue_count=3)
    assert bus.backlog_queue_count == 0
    bus.pair()
    try:
        assert bus.backlog_queue_count == 3
        assert both.secondary.queue_names(f"{both.name}/") == {both.backlog(index) for index in range(3)}
        assert [queue.in_rotation for queue in bus.status().backlog_queues] == [True] * 3
        assert bus.get_queue_sender(both.orders).send_messages(ServiceBusMessage("42")).side is NamespaceSide.PRIMARY
    finally:
        bus.close()


def test_backlog_queues_are_made_as_the_documents_say(harness: PairHarness) -> None:
    with harness.bus():
        made = harness.secondary.admin.get_queue(harness.backlog(1))
    assert (made.max_size_in_megabytes, made.max_delivery_count) == (5120, 2_147_483_647)
    assert made.default_message_time_to_live.days == FOR_EVER_DAYS  # type: ignore[union-attr]
    assert made.auto_delete_on_idle.days == FOR_EVER_DAYS  # type: ignore[union-attr]
    assert made.lock_duration == timedelta(minutes=1)
    assert made.dead_lettering_on_message_expiration is True
    assert made.enable_batched_operations is True
    assert made.requires_session is False
    assert made.requires_duplicate_detection is False


def test_ten_backlog_queues_by_default(harness: PairHarness) -> None:
    bus = PairedServiceBusClient.from_connection_strings(
        harness.primary.connection_string, harness.secondary.connection_string, primary_name=harness.name
    )
    with bus:
        assert bus.backlog_queue_count == 10


def test_queues_that_are_there_stay_as_they_are_and_further_ones_are_not_used(harness: PairHarness) -> None:
    admin = harness.secondary.admin
    admin.create_queue(harness.backlog(0), max_size_in_megabytes=1024)
    admin.create_queue(harness.backlog(7))
    with harness.bus() as bus:
        assert bus.backlog_queue_count == 2
        bus.get_queue_sender(harness.orders)
        bus.force_failover(harness.orders, stay=True)
        for _ in range(12):
            bus.get_queue_sender(harness.orders).send_messages(ServiceBusMessage("42"))
    assert admin.get_queue(harness.backlog(0)).max_size_in_megabytes == 1024
    assert harness.secondary.queue_names(f"{harness.name}/") == {harness.backlog(index) for index in (0, 1, 7)}
    assert harness.secondary.messages(harness.backlog(7)) == []
    assert len(harness.in_backlog()) == 12


def test_pairing_twice_is_pairing_once(both: PairHarness) -> None:
    with both.bus() as bus:
        asked = both.secondary.operations("").get("manage", 0)
        bus.pair()
        assert both.secondary.operations("").get("manage", 0) == asked
        assert bus.backlog_queue_count == 2


def test_nothing_is_sent_before_pairing(both: PairHarness) -> None:
    bus = both.client()
    early = bus.get_queue_sender(both.orders)
    with pytest.raises(TwinbusError, match="not paired yet"):
        early.send_messages(ServiceBusMessage("too early"))
    with bus:
        assert early.send_messages(ServiceBusMessage("42")).side is NamespaceSide.PRIMARY
    assert both.primary.texts(both.orders) == ["42"]


# --- failures while pairing ---


def test_the_same_namespace_twice_is_refused(both: PairHarness) -> None:
    here = both.primary.namespace
    assert "the same namespace" in refusal(both.client_of(here, here))


def test_a_wrong_key_of_the_secondary_is_reported(both: PairHarness) -> None:
    wrong = Namespace.from_connection_string(both.secondary.connection_string.replace(KEY, "another-key"))
    text = refusal(both.client_of(both.primary.namespace, wrong))
    assert "backup" in text
    assert "another-key" not in text


def test_a_key_without_manage_gets_advice_what_to_do(both: PairHarness) -> None:
    sender = Namespace.from_connection_string(both.secondary.rule_strings["sender"])
    text = refusal(both.client_of(both.primary.namespace, sender))
    for part in ("backup", "Manage", "create_backlog=False", "twinbus pair --emit"):
        assert part in text


def test_no_backlog_queue_at_all_is_reported(both: PairHarness) -> None:
    text = refusal(both.client(create_backlog=False))
    assert f"{both.name}/x-servicebus-transfer/0..1" in text
    assert "backup" in text


@pytest.mark.parametrize("how", ["refuse", "silent"])
def test_a_secondary_out_of_reach_is_reported_in_time_and_can_be_paired_later(both: PairHarness, how: str) -> None:
    for index in range(2):
        both.secondary.admin.create_queue(both.backlog(index))
    both.secondary.break_("unreachable", how=how)
    bus = both.client(attempt_timeout=QUICK, create_backlog=False)
    began = time.monotonic()
    assert "backup" in refusal(bus)
    assert time.monotonic() - began < 25
    both.secondary.clear()
    with bus:
        assert bus.backlog_queue_count == 2


def test_an_address_without_a_name_is_refused(harness: PairHarness) -> None:
    nameless = harness.primary.connection_string.replace("TwinbusNamespace=contoso;", "")
    assert "TwinbusNamespace" not in nameless
    bus = harness.client_of(Namespace.from_connection_string(nameless), harness.secondary.namespace, primary_name=None)
    assert "primary_name" in refusal(bus)


@pytest.mark.parametrize("how", ["refuse", "silent"])
def test_the_primary_may_be_down_while_pairing(both: PairHarness, how: str) -> None:
    both.primary.break_("unreachable", how=how)
    with both.bus(attempt_timeout=QUICK, entities=[both.orders]) as bus:
        assert bus.backlog_queue_count == 2
        receipt = bus.get_queue_sender(both.orders).send_messages(ServiceBusMessage("42"))
        assert receipt.side is NamespaceSide.BACKLOG
    assert both.backlog_texts() == ["42"]


def test_fewer_queues_than_asked_for_go_on_with_a_warning(both: PairHarness) -> None:
    both.secondary.admin.create_queue(both.backlog(1))
    bus = both.client(create_backlog=False, backlog_queue_count=3)
    heard = Heard(bus, "pairing_warning")
    with bus:
        assert bus.backlog_queue_count == 1
        heard.wait_for("pairing_warning", 2)
        assert any("only 1 of 3" in event.text for event in heard.events)
        assert any("only 1 of 3" in warning for warning in bus.status().secondary_status.warnings)


def test_both_sides_on_one_host_are_worth_a_warning(both: PairHarness) -> None:
    bus = both.client()
    heard = Heard(bus, "pairing_warning")
    with bus:
        assert "same host" in heard.wait_for("pairing_warning").text


# --- proof before the outage ---


def test_a_backlog_queue_that_takes_nothing_is_known_before_it_is_needed(both: PairHarness) -> None:
    both.secondary.admin.create_queue(both.backlog(0), status=EntityStatus.SEND_DISABLED)
    with both.bus() as bus:
        lost, good = bus.status().backlog_queues
        assert (lost.in_rotation, good.in_rotation) == (False, True)
        assert "disabled" in lost.reason
        sender = bus.get_queue_sender(both.orders)
        bus.force_failover(both.orders, stay=True)
        receipt = sender.send_messages(ServiceBusMessage("42"))
        assert receipt.backlog_queues == (both.backlog(1),)
        assert receipt.attempts == 1, "the lost queue was not tried"


def test_a_look_later_finds_what_has_changed(both: PairHarness) -> None:
    with both.bus() as bus:
        heard = Heard(bus)
        both.secondary.change_queue(both.backlog(0), status=EntityStatus.SEND_DISABLED)
        bus.recheck()
        heard.wait_for("backlog_queue_lost")
        assert both.backlog(0) in heard.wait_for("secondary_in_trouble").text
        assert [queue.in_rotation for queue in bus.status().backlog_queues] == [False, True]
        both.secondary.change_queue(both.backlog(0), status=EntityStatus.ACTIVE)
        bus.recheck()
        heard.wait_for("backlog_queue_back")
        assert bus.status().is_healthy


def test_a_key_that_may_only_send_is_enough_for_queues_that_exist(both: PairHarness) -> None:
    for index in range(2):
        both.secondary.admin.create_queue(both.backlog(index))
    here, there = (
        Namespace.from_connection_string(side.rule_strings["sender"]) for side in (both.primary, both.secondary)
    )
    with both.client_of(here, there, create_backlog=False, entities=[both.orders]) as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(both.orders)
        assert sender.send_messages(ServiceBusMessage("1")).side is NamespaceSide.PRIMARY
        both.primary.break_("no-send", both.orders)
        assert sender.send_messages(ServiceBusMessage("2")).side is NamespaceSide.BACKLOG
        both.primary.clear()
        heard.wait_for("recovered")
        assert sender.send_messages(ServiceBusMessage("3")).side is NamespaceSide.PRIMARY


# --- options ---


@pytest.mark.parametrize("twin", [twinbus, twinbus.aio])
def test_options_can_be_written_as_keywords(harness: PairHarness, twin: Any) -> None:
    strings = harness.primary.connection_string, harness.secondary.connection_string
    bus = twin.PairedServiceBusClient.from_connection_strings(*strings, failover_interval=timedelta(0))
    assert "not paired yet" in repr(bus)
    with pytest.raises(OptionsError, match="there is no option failover_intervall"):
        twin.PairedServiceBusClient.from_connection_strings(*strings, failover_intervall=timedelta(0))


def test_the_two_classes_of_options_have_the_documents_defaults(harness: PairHarness) -> None:
    there = harness.secondary.namespace
    base, options = PairedNamespaceOptions(there), Options(there)
    assert isinstance(options, PairedNamespaceOptions)
    assert base.failover_interval == options.failover_interval == timedelta(minutes=1)
    assert options.ping_primary_interval == timedelta(minutes=1)
    assert (options.backlog_queue_count, options.enable_syphon) == (10, False)


def test_everything_that_is_wrong_with_options_is_reported_at_once(harness: PairHarness) -> None:
    with pytest.raises(OptionsError) as refused:
        Options(
            harness.secondary.namespace,
            failover_interval=timedelta(hours=2),
            backlog_queue_count=0,
            ping_primary_interval=timedelta(milliseconds=999),
        )
    for option in ("failover_interval", "backlog_queue_count", "ping_primary_interval"):
        assert option in str(refused.value)
    with pytest.raises(OptionsError, match="primary must be a Namespace"):
        PairedServiceBusClient(harness.primary.connection_string, Options(harness.secondary.namespace))  # type: ignore[arg-type]
    with pytest.raises(OptionsError, match="attempts"):
        Retry(attempts=0)


def test_a_closed_client_is_not_paired_again(both: PairHarness) -> None:
    bus = both.client()
    with bus:
        pass
    with pytest.raises(PairClosed):
        bus.pair()
    with pytest.raises(PairClosed):
        bus.get_queue_sender(both.orders)
