"""Pairing against two namespaces that somebody else runs, by their connection strings: real ones, if you like.

`make azure-live` says what it will do, what that costs, and runs this. Everything here works through what Azure offers
to everybody: an outage is a queue that the administration has set to SendDisabled. Queues have names that nobody else
uses and are deleted at the end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessagingEntityNotFoundError
from live_pair import BACKLOG_QUEUES, CONSENT, PATIENCE_S, PRIMARY, SECONDARY, LivePair, need_consent
from paired import BOTH, Heard, wait_until

from twinbus import NamespaceSide

need_consent(PRIMARY, SECONDARY, CONSENT)

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def live() -> Iterator[LivePair]:
    with LivePair() as live:
        yield live


both_clients = pytest.mark.parametrize("flavour", BOTH)


# --- pairing ---


@both_clients
def test_pairing_makes_the_backlog_queues_and_finds_them_again(live: LivePair, flavour: str) -> None:
    for _ in range(2):
        with live.bus(flavour) as bus:
            assert bus.backlog_queue_count == BACKLOG_QUEUES
    made = live.backlog_settings(0)
    assert (made.max_size_in_megabytes, made.max_delivery_count) == (5120, 2147483647)
    assert made.lock_duration == timedelta(minutes=1)
    assert made.dead_lettering_on_message_expiration
    assert made.enable_batched_operations
    assert not made.requires_session


@both_clients
def test_while_all_is_well_messages_go_to_the_primary(live: LivePair, flavour: str) -> None:
    with live.bus(flavour) as bus:
        sender = bus.get_queue_sender(live.orders)
        batch = sender.create_message_batch()
        batch.add_message(ServiceBusMessage("4"))
        sent: list[Any] = [
            ServiceBusMessage("1", message_id="one"),
            [ServiceBusMessage("2"), ServiceBusMessage("3")],
            batch,
        ]
        receipts = [sender.send_messages(each) for each in sent]
        assert {receipt.side for receipt in receipts} == {NamespaceSide.PRIMARY}
    found = live.taken(live.primary, live.orders)
    assert sorted(str(message) for message in found) == ["1", "2", "3", "4"]
    ids = {each for receipt in receipts for each in receipt.message_ids}
    assert {message.message_id for message in found} == ids
    assert "one" in ids


def test_a_queue_that_was_never_there_is_taken_for_a_typing_error(live: LivePair) -> None:
    with live.bus("threads") as bus, pytest.raises(MessagingEntityNotFoundError):
        bus.get_queue_sender(f"{live.prefix}-typo").send_messages(ServiceBusMessage("1"))


# --- an outage, and what becomes of messages ---


@both_clients
def test_sends_go_on_while_the_queue_is_disabled_and_come_back_by_themselves(live: LivePair, flavour: str) -> None:
    with live.bus(flavour) as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(live.orders)
        assert sender.send_messages(ServiceBusMessage("before")).side is NamespaceSide.PRIMARY
        with live.outage():
            _send_until(sender, NamespaceSide.BACKLOG)
            assert sender.send_messages(ServiceBusMessage("during")).attempts == 1, "the primary is left alone"
        heard.wait_for("recovered", within_s=PATIENCE_S)
        assert sender.send_messages(ServiceBusMessage("after")).side is NamespaceSide.PRIMARY
    assert "during" in [str(message) for message in live.taken_from_backlog()]
    texts = [str(message) for message in live.taken(live.primary, live.orders)]
    assert texts[0] == "before"
    assert "after" in texts


@both_clients
def test_a_message_in_the_backlog_keeps_everything_and_is_addressed(live: LivePair, flavour: str) -> None:
    due_at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    message = ServiceBusMessage(
        b"\x00\xff", message_id="m", subject="s", correlation_id="c", application_properties={"n": 5, "t": True}
    )
    message.time_to_live, message.scheduled_enqueue_time_utc = timedelta(minutes=90), due_at
    with live.bus(flavour) as bus:
        sender = bus.get_queue_sender(live.orders)
        bus.force_failover(live.orders, stay=True)
        assert sender.send_messages(message).side is NamespaceSide.BACKLOG
    (found,) = live.taken_from_backlog()
    properties = found.application_properties
    assert b"".join(cast("Any", found.body)) == b"\x00\xff"
    assert (found.message_id, found.subject, found.correlation_id) == ("m", "s", "c")
    assert properties is not None
    assert (properties[b"n"], properties[b"t"], properties[b"x-ms-path"]) == (5, True, live.orders.encode())
    assert properties[b"x-ms-timetolive"] == 90 * 60 * 1000
    assert properties[b"x-ms-scheduledenqueuetimeutc"] == round(due_at.timestamp() * 1000)


@both_clients
def test_a_schedule_can_be_cancelled_while_all_is_well(live: LivePair, flavour: str) -> None:
    with live.bus(flavour) as bus:
        sender = bus.get_queue_sender(live.orders)
        numbers = sender.schedule_messages(ServiceBusMessage("late"), datetime.now(UTC) + timedelta(hours=1))
        sender.cancel_scheduled_messages(numbers)
    assert not live.taken(live.primary, live.orders)


def test_our_receivers_do_not_show_pings(live: LivePair, record_property: Any) -> None:
    """Whether the service itself drops them is not promised anywhere: the test looks and reports it."""
    with live.bus("threads") as bus:
        heard = Heard(bus)
        bus.get_queue_sender(live.orders)
        bus.force_failover(live.orders)
        heard.wait_for("recovered", within_s=PATIENCE_S)  # a ping was accepted
        with bus.get_queue_receiver(live.orders) as receiver:
            is_delivered = bool(live.taken(live.primary, live.orders))
            assert not receiver.receive_messages(max_wait_time=2)
    record_property("the service delivers pings", is_delivered)
    print(f"the service {'delivers' if is_delivered else 'does not deliver'} pings")  # noqa: T201 - what is unknown


def _send_until(sender: Any, side: NamespaceSide) -> None:
    """A changed status takes a while to be in force everywhere."""

    def is_there() -> bool:
        is_reached: bool = sender.send_messages(ServiceBusMessage(f"at {time.time():.3f}")).side is side
        return is_reached

    wait_until(is_there, within_s=PATIENCE_S)
