"""Controls and sight: forced failover, status, events in order, numbers for Prometheus, lines to grep."""

from __future__ import annotations

import json
import logging
import time
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from paired import Heard, PairHarness, wait_until
from prometheus_client.parser import text_string_to_metric_families
from wire_relay import Relay

from twinbus import NamespaceSide, PairedServiceBusClient, PairEvent
from twinbus.client.reporting.status import EntityState, Phase
from twinbus.errors import OptionsError


def metrics(bus: PairedServiceBusClient) -> dict[tuple[str, str], float]:
    """By name and the labels that are not the same for all."""
    found = {}
    for family in text_string_to_metric_families(bus.metrics_text()):
        for sample in family.samples:
            own = [value for label, value in sample.labels.items() if label not in ("client", "primary", "secondary")]
            found[sample.name, ",".join(own)] = sample.value
    return found


# --- controls ---


def test_a_forced_failover_ends_with_the_first_ping(both: PairHarness) -> None:
    with both.bus() as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("1"))
        bus.force_failover(both.orders, reason="maintenance", stay=True)
        assert sender.send_messages(ServiceBusMessage("2")).side is NamespaceSide.BACKLOG
        assert heard.wait_for("failed_over").text == "maintenance"
        bus.force_failover(both.orders)  # from now on there are pings
        heard.wait_for("recovered")
        assert bus.status().entities[0].pings_sent == 1
        assert sender.send_messages(ServiceBusMessage("3")).side is NamespaceSide.PRIMARY


def test_a_failover_that_stays_ends_by_hand(both: PairHarness) -> None:
    with both.bus() as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(both.orders)
        bus.force_failover(both.orders, stay=True)
        until = time.monotonic() + 1.3
        wait_until(
            lambda: (
                sender.send_messages(ServiceBusMessage("x")).side is NamespaceSide.BACKLOG and time.monotonic() > until
            )
        )
        (status,) = bus.status().entities
        assert (status.state, status.stays, status.next_ping_at, status.pings_sent) == (
            EntityState.FAILED_OVER,
            True,
            None,
            0,
        )
        bus.mark_healthy(both.orders)
        assert heard.wait_for("recovered").text == "marked as healthy"
        assert sender.send_messages(ServiceBusMessage("3")).side is NamespaceSide.PRIMARY


def test_marking_a_suspect_as_healthy_stops_its_timer(both: PairHarness) -> None:
    with both.bus(failover_interval=timedelta(seconds=5)) as bus:
        heard = Heard(bus)
        both.primary.break_("refuse", both.orders, condition="amqp:internal-error", on="sends", count=1)
        sender = bus.get_queue_sender(both.orders)
        with pytest.raises(Exception, match="refuse"):
            sender.send_messages(ServiceBusMessage("1"))
        bus.mark_healthy(both.orders)
        heard.wait_for("trusted_again")
        until = time.monotonic() + 5.3
        wait_until(lambda: time.monotonic() > until)
        assert not heard.named("failed_over")
        assert bus.status().is_healthy


def test_names_that_cannot_be_are_refused(both: PairHarness) -> None:
    with both.bus() as bus:
        for call in (bus.force_failover, bus.mark_healthy, bus.get_queue_sender):
            with pytest.raises(OptionsError, match="must not be empty"):
                call("")
        with pytest.raises(OptionsError, match="no event is called 'failed'"):
            bus.on("failed", print)
        with pytest.raises(OptionsError, match="takes client_identifier only, got keep_alive: give them to Namespace"):
            bus.get_queue_sender(both.orders, keep_alive=5)
        with pytest.raises(OptionsError, match="client_identifier must be text, got 7"):
            bus.get_topic_sender(both.orders, client_identifier=7)  # type: ignore[arg-type]


def test_the_primary_gets_the_name_of_a_sender(both: PairHarness) -> None:
    with Relay(both.primary.port) as relay:
        with both.client_of(both.primary.through(relay.port), both.secondary.namespace) as bus:
            sender = bus.get_queue_sender(both.orders, client_identifier="till-seven")
            assert sender.client_identifier == "till-seven"
            sender.send_messages(ServiceBusMessage("1"))
            unnamed = [bus.get_queue_sender(both.orders).client_identifier for _ in range(2)]
        assert b"till-seven" in bytes(relay.said)
    assert all(name.startswith("SBSender-") for name in unnamed)
    assert len(set(unnamed)) == 2


def test_an_entity_is_the_same_in_any_case(both: PairHarness) -> None:
    with both.bus() as bus:
        sender = bus.get_queue_sender(both.orders)
        bus.force_failover(both.orders.upper(), stay=True)
        assert sender.send_messages(ServiceBusMessage("1")).side is NamespaceSide.BACKLOG
        assert len(bus.status().entities) == 1


def test_slashes_around_a_name_do_not_make_it_another_one(both: PairHarness) -> None:
    queue = f"eu/{both.orders}"
    both.primary.admin.create_queue(queue)
    with both.bus(entities=(f"/{queue}/",)) as bus:
        for written in (queue, f"/{queue}", f"{queue}/"):
            sender = bus.get_queue_sender(written)
            assert sender.entity_name == queue
            assert sender.send_messages(ServiceBusMessage("primary")).entity == queue
        bus.force_failover(f"{queue}/", stay=True)
        assert sender.send_messages(ServiceBusMessage("backlog")).side is NamespaceSide.BACKLOG
        (entity,) = bus.status().entities
        assert (entity.entity, entity.sent_to_primary, entity.duplicate_detection) == (queue, 3, "off")
    (saved,) = both.in_backlog()
    assert saved.application_properties is not None
    assert saved.application_properties[b"x-ms-path"] == queue.encode()


def test_a_typing_error_moves_nothing(both: PairHarness) -> None:
    with both.bus(entities=(both.invoices,)) as bus:
        bus.get_queue_sender(both.orders)
        for call in (bus.force_failover, bus.mark_healthy):
            with pytest.raises(OptionsError, match=f"'ordres'.* known are {both.invoices}, {both.orders}:"):
                call("ordres")
        bus.force_failover(both.invoices, stay=True)
        states = {entity.entity: entity.state for entity in bus.status().entities}
        assert states == {both.invoices: EntityState.FAILED_OVER, both.orders: EntityState.HEALTHY}


def test_where_nothing_is_known_it_is_said_how_to_make_it_known(both: PairHarness) -> None:
    with both.bus() as bus, pytest.raises(OptionsError, match="none is known: get a sender first, or name it in"):
        bus.force_failover(both.orders)


# --- sight ---


def test_the_numbers_are_right(both: PairHarness) -> None:
    with both.bus() as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(both.orders)
        for _ in range(3):
            sender.send_messages(ServiceBusMessage("x"))
        sender.send_messages([ServiceBusMessage("x")] * 4)
        both.primary.break_("no-send", both.orders)
        sender.send_messages([ServiceBusMessage("x"), ServiceBusMessage("y")])
        heard.wait_for("ping_failed")
        bus.force_failover(both.orders, stay=True)  # no further ping while the numbers are read
        wait_until(lambda: len(heard.named("ping_sent")) == len(heard.named("ping_failed")))
        pings = len(heard.named("ping_failed"))
        status = bus.status()
        assert (status.primary, status.secondary, status.phase) == (both.name, "backup", Phase.PAIRED)
        assert not status.is_healthy
        entity = status.entity(both.orders)
        assert entity is not None
        assert (entity.sent_to_primary, entity.sent_to_backlog, entity.failovers, entity.epoch) == (7, 2, 1, 1)
        assert (entity.state, entity.pings_sent, entity.pings_failed) == (EntityState.FAILED_OVER, pings, pings)
        assert "cannot be sent to" in entity.reason
        assert entity.since is not None
        assert timedelta(0) < datetime.now(UTC) - entity.since < timedelta(seconds=60)
        assert sum(queue.sent for queue in status.backlog_queues) == 2
        assert status.secondary_status.checked_at is not None
        shown = metrics(bus)
        expected = {
            ("twinbus_pair_ready", ""): 1,
            ("twinbus_pair_entity_state", f"{both.orders},failed over"): 1,
            ("twinbus_pair_entity_state", f"{both.orders},healthy"): 0,
            ("twinbus_pair_messages_total", f"{both.orders},primary"): 7,
            ("twinbus_pair_messages_total", f"{both.orders},backlog"): 2,
            ("twinbus_pair_failovers_total", both.orders): 1,
            ("twinbus_pair_pings_total", both.orders): pings,
            ("twinbus_pair_pings_failed_total", both.orders): pings,
            ("twinbus_pair_in_doubt_total", both.orders): 0,
            ("twinbus_pair_held_sends", both.orders): 0,
            ("twinbus_pair_backlog_queue_in_rotation", both.backlog(0)): 1,
        }
        assert {key: shown[key] for key in expected} == expected
        both.primary.clear()
        bus.force_failover(both.orders)
        heard.wait_for("recovered")
        assert bus.status().is_healthy
        assert metrics(bus)["twinbus_pair_pings_total", both.orders] == pings + 1


def test_status_prints_as_a_table_and_as_json(both: PairHarness) -> None:
    with both.bus() as bus:
        bus.get_queue_sender(both.orders).send_messages(ServiceBusMessage("x"))
        bus.force_failover(both.orders, reason="a drill", stay=True)
        text = str(bus.status())
        for part in (both.orders, "failed over", "a drill", both.backlog(0), "in rotation"):
            assert part in text
        plain = json.loads(json.dumps(bus.status().as_dict()))
        assert plain["entities"][0]["state"] == "failed over"
        assert plain["backlog_queues"][0]["path"] == both.backlog(0)


def test_events_come_in_order_with_what_a_program_needs(both: PairHarness) -> None:
    with both.bus(failover_interval=timedelta(seconds=0.4)) as bus:
        heard = Heard(bus)
        failed: list[PairEvent] = []
        forget = bus.on("failed_over", failed.append)
        sender = bus.get_queue_sender(both.orders)
        both.primary.break_("no-send", both.orders)
        with pytest.raises(Exception, match="cannot be sent to"):
            sender.send_messages(ServiceBusMessage("raised"))
        heard.wait_for("ping_failed")
        both.primary.clear()
        heard.wait_for("recovered")
        bus.force_failover(both.orders)
        heard.wait_for("failed_over", 2)
        forget()
        bus.mark_healthy(both.orders)
        bus.force_failover(both.orders, stay=True)
        heard.wait_for("failed_over", 3)
        names = [name for name in heard.names() if not name.startswith("ping")]
        assert names == ["suspect", "failed_over", "recovered", "failed_over", "recovered", "failed_over"]
        assert [event.at for event in heard.events] == sorted(event.at for event in heard.events)
        assert {event.entity for event in heard.events} == {both.orders}
        assert {event.namespace for event in heard.events} == {both.name}
        assert [event.details["epoch"] for event in heard.named("failed_over")] == [1, 3, 5]
        assert heard.named("recovered")[0].details["after_s"] > 1  # type: ignore[operator]
        assert len(failed) == 2, "nothing after it was ended"


def test_a_callback_that_fails_harms_nobody(both: PairHarness) -> None:
    def fail(event: PairEvent) -> None:
        raise RuntimeError("of the application")

    with both.bus() as bus:
        bus.on("*", fail)
        heard = Heard(bus)
        sender = bus.get_queue_sender(both.orders)
        bus.force_failover(both.orders)
        heard.wait_for("recovered")
        assert sender.send_messages(ServiceBusMessage("1")).side is NamespaceSide.PRIMARY


def test_every_event_is_a_line_to_grep(both: PairHarness, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "twinbus.pairing")
    with both.bus() as bus:
        heard = Heard(bus)
        both.primary.break_("no-send", both.orders)
        bus.get_queue_sender(both.orders).send_messages(ServiceBusMessage("1"))
        both.primary.clear()
        heard.wait_for("recovered")
    lines = [record.getMessage() for record in caplog.records if record.name == "twinbus.pairing"]
    events = [line.split(" ")[0] for line in lines]
    expected = ["event=pairing_warning", "event=failed_over", "event=ping_sent", "event=recovered", "event=closed"]
    assert list(dict.fromkeys(event for event in events if event != "event=ping_failed")) == expected
    line = lines[events.index("event=failed_over")]
    assert f"entity={both.orders} namespace={both.name}" in line
    assert "\n" not in line
    record = next(record for record in caplog.records if record.getMessage() == line)
    assert record.levelno == logging.ERROR
    assert record.__dict__["twinbus_entity"] == both.orders
