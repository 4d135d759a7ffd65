"""`probe="auto"`: pings where the primary says that it drops them, a link where it does not (P7)."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusMessage
from engine_client import EngineClient
from paired import Heard, PairHarness, wait_until

from twinbus import NamespaceSide
from twinbus.amqp.codec.performatives import DROPS_PINGS
from twinbus.client.core import client_state


def test_our_namespaces_say_that_they_drop_pings_and_are_pinged(both: PairHarness) -> None:
    with both.bus(probe="auto") as bus:
        heard = Heard(bus)
        assert (bus.status().probe, bus.status().probe_reason) == ("link", "not connected to the primary yet")
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("1"))
        assert (bus.status().probe, bus.status().probe_reason) == ("ping", "the primary drops pings")
        assert "probe: ping (the primary drops pings)" in str(bus.status())
        fault = both.primary.break_("no-send", both.orders)
        assert sender.send_messages(ServiceBusMessage("2")).side is NamespaceSide.BACKLOG
        heard.wait_for("ping_failed")
        both.primary.clear(fault)
        heard.wait_for("recovered")
        assert {event.text for event in heard.named("ping_sent")} == {"by ping"}
    assert both.primary.texts(both.orders) == ["1"], "and no receiver sees a ping"


def test_a_primary_that_says_nothing_of_pings_gets_none(both: PairHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_state, "DROPS_PINGS", "com.example:never-offered")
    with both.bus(probe="auto") as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("1"))
        assert (bus.status().probe, bus.status().probe_reason) == ("link", "the primary may deliver pings")
        before = both.primary.operations(both.orders).get("send", 0)
        both.primary.kill()
        assert sender.send_messages(ServiceBusMessage("2")).side is NamespaceSide.BACKLOG
        both.primary.start()
        wait_until(lambda: bus.status().entities[0].waits_for_message)
        assert {event.text for event in heard.named("ping_sent")} == {"by link"}
        assert both.primary.operations(both.orders).get("send", 0) <= before, "a link is no operation"
        assert sender.send_messages(ServiceBusMessage("3")).side is NamespaceSide.PRIMARY
        heard.wait_for("recovered")


def test_a_primary_that_was_down_from_the_beginning_is_asked_by_link_first(both: PairHarness) -> None:
    both.primary.kill()
    with both.bus(probe="auto", entities=[both.orders]) as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(both.orders)
        assert sender.send_messages(ServiceBusMessage("1")).side is NamespaceSide.BACKLOG
        assert bus.status().probe == "link"
        heard.wait_for("ping_sent")
        both.primary.start()
        heard.wait_for("recovered")
        asked = [event.text for event in heard.named("ping_sent")]
        assert asked[0] == "by link"
        assert asked[-1] == "by ping", "a link has shown that it drops pings, and no message had to try it"
        assert bus.status().probe == "ping"


def test_the_capability_is_in_the_open_frame(harness: PairHarness) -> None:
    with EngineClient(harness.primary.port) as client:
        assert client.wait_open()
        opened = client._connection.remote_open
        assert opened is not None
        assert opened.offered_capabilities == (DROPS_PINGS,)
