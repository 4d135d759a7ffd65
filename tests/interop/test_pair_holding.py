"""`hold_sends`: sends that wait until it is known where they go, in order and within bounds (P5)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from paired import WAIT_S, Heard, PairHarness, wait_until

from twinbus import NamespaceSide, PairedServiceBusClient, Retry, SendReceipt
from twinbus.errors import NotSent

LONG = timedelta(minutes=5)
RETRY = Retry(attempts=1, backoff_min=timedelta(milliseconds=50), backoff_max=timedelta(milliseconds=100))


class Held:
    """A send on a thread of its own, and how it ended."""

    def __init__(self, send: Callable[[], SendReceipt]) -> None:
        self.receipt: SendReceipt | None = None
        self.error: BaseException | None = None
        self._send = send
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.receipt = self._send()
        except BaseException as error:
            self.error = error

    def ended(self) -> Held:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        return self

    @property
    def side(self) -> NamespaceSide:
        assert self.receipt is not None, self.error
        return self.receipt.side


def held_now(bus: PairedServiceBusClient) -> int:
    return bus.status().entities[0].held_now


def hold(bus: PairedServiceBusClient, sender: Any, count: int, first: int = 1, **options: Any) -> list[Held]:
    """So many sends, one after the other, each of them held."""
    held = []
    for number in range(first, first + count):
        message = ServiceBusMessage(str(number), message_id=str(number))
        held.append(Held(lambda message=message: sender.send_messages(message, **options)))  # type: ignore[misc]
        wait_until(lambda number=number: held_now(bus) == number)  # type: ignore[misc]
    return held


def test_held_sends_go_to_the_backlog_in_order_when_the_interval_is_over(both: PairHarness) -> None:
    with both.bus(hold_sends=True, failover_interval=timedelta(seconds=8), retry=RETRY) as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(both.orders)
        both.primary.break_("no-send", both.orders)
        held = hold(bus, sender, 5)
        assert [one.ended().side for one in held] == [NamespaceSide.BACKLOG] * 5
        assert held_now(bus) == 0
        assert len(heard.named("held")) == 5
        heard.wait_for("released", 5)
        bus.close()
    found = [str(message) for index in (0, 1) for message in both.secondary.messages(both.backlog(index))]
    assert found == ["1", "2", "3", "4", "5"]


def test_held_sends_go_to_the_primary_in_order_when_it_is_back_in_time(both: PairHarness) -> None:
    with both.bus(hold_sends=True, failover_interval=LONG, retry=RETRY) as bus:
        heard = Heard(bus)
        sender, other = bus.get_queue_sender(both.orders), bus.get_queue_sender(both.orders)
        both.primary.break_("no-send", both.orders)
        held = hold(bus, sender, 3) + hold(bus, other, 3, first=4)
        both.primary.clear()
        assert [one.ended().side for one in held] == [NamespaceSide.PRIMARY] * 6
        heard.wait_for("trusted_again")
        assert not heard.named("failed_over")
        assert sender.send_messages(ServiceBusMessage("7")).side is NamespaceSide.PRIMARY
        status = bus.status().entities[0]
        assert (status.sent_to_primary, status.held_now, status.held_bytes) == (7, 0, 0)
    assert both.primary.texts(both.orders) == [str(number) for number in range(1, 8)]
    assert both.in_backlog() == []


def test_only_so_many_are_held(both: PairHarness) -> None:
    with both.bus(hold_sends=True, hold_count_max=2, failover_interval=LONG, retry=RETRY) as bus:
        sender = bus.get_queue_sender(both.orders)
        both.primary.break_("no-send", both.orders)
        held = hold(bus, sender, 2)
        with pytest.raises(NotSent, match="2 sends") as refused:
            sender.send_messages(ServiceBusMessage("3"))
        assert not refused.value.in_doubt
        bus.force_failover(both.orders, stay=True)
        assert [one.ended().side for one in held] == [NamespaceSide.BACKLOG] * 2
    assert both.backlog_texts() == ["1", "2"]


def test_only_so_many_bytes_are_held(both: PairHarness) -> None:
    with both.bus(hold_sends=True, hold_bytes_max=10_000, failover_interval=LONG, retry=RETRY) as bus:
        sender = bus.get_queue_sender(both.orders)
        both.primary.break_("no-send", both.orders)
        held = hold(bus, sender, 1)
        with pytest.raises(NotSent, match="bytes are held"):
            sender.send_messages(ServiceBusMessage(b"x" * 10_000))
        bus.force_failover(both.orders, stay=True)
        assert held[0].ended().side is NamespaceSide.BACKLOG


def test_no_longer_than_wanted(both: PairHarness) -> None:
    options: dict[str, Any] = {"hold_sends": True, "failover_interval": LONG, "retry": RETRY}
    with both.bus(hold_time_max=timedelta(seconds=3), **options) as bus:
        sender = bus.get_queue_sender(both.orders)
        both.primary.break_("no-send", both.orders)
        began = time.monotonic()
        with pytest.raises(NotSent, match="not sent") as given_up:
            sender.send_messages(ServiceBusMessage("1"))
        assert 2.9 < time.monotonic() - began < 15
        assert "cannot be sent to" in str(given_up.value), "the primary's reason"
        began = time.monotonic()
        with pytest.raises((NotSent, ServiceBusError)):
            sender.send_messages(ServiceBusMessage("2"), timeout=0.3)
        assert time.monotonic() - began < 10
        assert held_now(bus) == 0
    assert both.primary.messages(both.orders) == []


def test_a_held_send_that_may_be_stored_is_called_in_doubt(both: PairHarness) -> None:
    options: dict[str, Any] = {"hold_sends": True, "failover_interval": LONG, "retry": RETRY}
    with both.bus(attempt_timeout=timedelta(seconds=2), hold_time_max=timedelta(seconds=3), **options) as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(ServiceBusMessage("0"))
        both.primary.break_("unanswered", both.orders)
        with pytest.raises(NotSent, match="in doubt") as given_up:
            sender.send_messages(ServiceBusMessage("1", message_id="one"))
        assert given_up.value.in_doubt
        receipt = given_up.value.receipt
        assert receipt is not None
        assert (receipt.message_ids, receipt.accepted) == (("one",), 0)
        assert receipt.copies_in_doubt >= 1
        heard.wait_for("in_doubt", receipt.copies_in_doubt)
    copies = [message for message in both.primary.messages(both.orders) if message.message_id == "one"]
    assert len(copies) == receipt.copies_in_doubt


def test_closing_ends_every_held_send_with_an_error(both: PairHarness) -> None:
    bus = both.client(hold_sends=True, failover_interval=LONG, retry=RETRY)
    bus.pair()
    sender = bus.get_queue_sender(both.orders)
    both.primary.break_("no-send", both.orders)
    held = hold(bus, sender, 4)
    began = time.monotonic()
    bus.close()
    errors = [one.ended().error for one in held]
    assert time.monotonic() - began < 20
    assert {type(error) for error in errors} == {NotSent}
    for error in errors:
        assert "not sent" in str(error)
        assert "closed" in str(error)
    assert both.primary.messages(both.orders) == []
    assert both.in_backlog() == []
