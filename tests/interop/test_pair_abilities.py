"""What a paired client reports of receiving, managing and contact; it asks nothing for that (S2, P3)."""

from __future__ import annotations

import contextlib
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from paired import Heard, PairHarness, wait_until

from twinbus import PairedServiceBusClient
from twinbus.pairing.primary_abilities import Ability

WAIT_S = 30


def works(bus: PairedServiceBusClient, path: str, ability: Ability) -> bool | None:
    found = [each for each in bus.status().abilities if each.path == path and each.ability is ability]
    return found[0].works if found else None


def test_an_entity_that_gives_nothing_out_is_reported_and_can_still_be_sent_to(both: PairHarness) -> None:
    with both.bus() as bus:
        heard = Heard(bus)
        sender, receiver = bus.get_queue_sender(both.orders), bus.get_queue_receiver(both.orders)
        sender.send_messages(ServiceBusMessage("1"))
        assert works(bus, both.orders, Ability.RECEIVE) is None, "nobody has tried"
        assert len(receiver.receive_messages(1, max_wait_time=WAIT_S)) == 1
        assert works(bus, both.orders, Ability.RECEIVE) is True
        receiver.close()
        both.primary.break_("no-receive", both.orders)
        receiver = bus.get_queue_receiver(both.orders)
        with pytest.raises(ServiceBusError):
            receiver.receive_messages(1, max_wait_time=1)
        assert works(bus, both.orders, Ability.RECEIVE) is False
        event = heard.wait_for("receive_failed")
        assert (event.entity, event.namespace) == (both.orders, both.name)
        status = bus.status()
        assert status.primary_status.unreachable_since is None
        assert not status.is_healthy
        assert f"cannot receive {both.orders}" in str(status)
        assert sender.send_messages(ServiceBusMessage("2")).side.value == "primary"
        both.primary.clear()
        with contextlib.suppress(ServiceBusError):
            receiver.close()
        receiver = bus.get_queue_receiver(both.orders)
        wait_until(lambda: receiver.receive_messages(1, max_wait_time=WAIT_S))
        heard.wait_for("receive_works")
        assert 'ability="receive"' in bus.metrics_text()
        receiver.close()


def test_a_primary_that_cannot_be_contacted_is_told_apart_from_an_entity_that_is_down(both: PairHarness) -> None:
    with both.bus() as bus, bus.get_queue_sender(both.orders) as sender:
        heard = Heard(bus)
        both.primary.break_("no-send", both.orders)
        sender.send_messages(ServiceBusMessage("1"))
        assert bus.status().primary_status.unreachable_since is None
        both.primary.clear()
        heard.wait_for("recovered")
        both.primary.break_("unreachable")
        sender.send_messages(ServiceBusMessage("2"))
        assert heard.wait_for("primary_unreachable").namespace == both.name
        assert bus.status().primary_status.unreachable_since is not None
        both.primary.clear()
        heard.wait_for("primary_back")


def test_an_entity_that_cannot_be_managed_is_reported_by_the_call_that_pairing_makes(both: PairHarness) -> None:
    both.primary.break_("no-manage", both.orders)
    with both.bus(entities=(both.orders,), attempt_timeout=timedelta(seconds=30)) as bus:
        assert works(bus, both.orders, Ability.MANAGE) is False
        assert bus.status().primary_status.unreachable_since is None
    both.primary.clear()
    with both.bus(entities=(both.orders,)) as bus:
        assert works(bus, both.orders, Ability.MANAGE) is True
        assert bus.status().is_healthy
