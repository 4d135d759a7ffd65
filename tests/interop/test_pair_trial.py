"""`probe="link"` where links open and sends fail: no caller sees an error, and nothing goes back and forth (P7)."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import timedelta

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusQuotaExceededError
from paired import Heard, PairHarness, wait_until

from twinbus import NamespaceSide, PairedServiceBusClient, SendReceipt

INTERVAL = timedelta(seconds=1)
CALLERS = 3


class Callers:
    """Several who send all the time, each with a sender of its own."""

    def __init__(self, bus: PairedServiceBusClient, entity: str) -> None:
        self._bus, self._entity = bus, entity
        self.receipts: list[SendReceipt] = []
        self.errors: list[Exception] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(name,)) for name in "abc"[:CALLERS]]

    def __enter__(self) -> Callers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _send(self, name: str) -> None:
        sender = self._bus.get_queue_sender(self._entity)
        number = 0
        while not self._stop.wait(0.02):
            number += 1
            try:
                self.receipts.append(sender.send_messages(ServiceBusMessage(f"{name}{number}")))
            except Exception as error:
                self.errors.append(error)


def fill(harness: PairHarness) -> set[str]:
    """A queue that is full opens links and takes no message; the ids of what it is full of."""
    harness.primary.change_queue(harness.orders, max_size_in_megabytes=1)
    ids: set[str] = set()
    with harness.primary.sending(harness.orders) as sender:
        for size in (200_000, 20_000, 1_000, 1):
            with suppress(ServiceBusQuotaExceededError):
                while True:
                    message = ServiceBusMessage(b"x" * size, message_id=f"full-{len(ids)}")
                    sender.send_messages(message)
                    ids.add(f"full-{len(ids)}")
    return ids


def trials(heard: Heard) -> int:
    return sum("a message tried it" in event.text for event in heard.named("ping_failed"))


def state_line(bus: PairedServiceBusClient, entity: str) -> str:
    return next(line for line in str(bus.status()).splitlines() if line.startswith(entity))


def test_where_links_open_and_sends_fail_callers_see_no_error_and_nothing_goes_back_and_forth(
    both: PairHarness,
) -> None:
    with both.bus(probe="link", failover_interval=INTERVAL, entities=[both.orders]) as bus:
        heard = Heard(bus)
        full = fill(both)
        bus.force_failover(both.orders)
        with Callers(bus, both.orders) as callers:
            wait_until(lambda: trials(heard) >= 3)
            assert {receipt.side for receipt in callers.receipts} == {NamespaceSide.BACKLOG}
            both.primary.change_queue(both.orders, max_size_in_megabytes=1024)
            heard.wait_for("recovered")
            wait_until(lambda: callers.receipts[-1].side is NamespaceSide.PRIMARY)
        assert callers.errors == []
        assert [event.name for event in heard.events if event.name in ("failed_over", "recovered", "suspect")] == [
            "failed_over",
            "recovered",
        ]
        assert heard.named("recovered")[0].text == "a message was stored"
        sent = [message_id for receipt in callers.receipts for message_id in receipt.message_ids]
        in_backlog = {str(message.message_id) for message in both.in_backlog()}
        on_primary = {str(message.message_id) for message in both.primary.messages(both.orders)} - full
        assert in_backlog | on_primary == set(sent)
        assert len(in_backlog) + len(on_primary) == len(sent), "none is there twice"


def test_while_nobody_sends_status_says_that_a_message_is_waited_for(both: PairHarness) -> None:
    with both.bus(probe="link", pings_to_return=2) as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(both.orders)
        bus.force_failover(both.orders)
        wait_until(lambda: bus.status().entities[0].waits_for_message)
        assert "(waits for a message to prove the primary)" in state_line(bus, both.orders)
        assert "recovered" not in heard.names()
        assert sender.send_messages(ServiceBusMessage("2")).side is NamespaceSide.PRIMARY
        heard.wait_for("recovered")
        assert not bus.status().entities[0].waits_for_message
