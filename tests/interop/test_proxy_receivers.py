"""Receivers of an official client behind a proxy, while the primary is killed and started again under them."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack
from functools import partial

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiver
from local_proxy import LocalProxy
from paired import PairHarness, wait_until

WISHES = ("complete", "dead_letter", "defer")
MESSAGES = 150
RECEIVERS = 2
KILLS = 2
BETWEEN = 25
"""Settlements before each kill."""
LOCK = "PT5S"
"""What the primary held for a receiver that is gone comes again after this time at the latest."""
HOME_S = 90.0


class Worker:
    """Receives with prefetched messages, and does with each what its text says; a receiver that fails is replaced."""

    def __init__(self, client: ServiceBusClient, queue: str) -> None:
        self.confirmed: list[str] = []
        self._client = client
        self._queue = queue
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="test-helper-receives", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(HOME_S)

    @property
    def is_stuck(self) -> bool:
        """After `stop`."""
        return self._thread.is_alive()

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                with self._client.get_queue_receiver(self._queue, prefetch_count=20) as receiver:
                    while not self._is_over.is_set():
                        for message in receiver.receive_messages(10, 1):
                            self._settle(receiver, message)
            except Exception:  # whatever it was, an application would go on with a new receiver
                self._is_over.wait(0.1)

    def _settle(self, receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> None:
        wish = str(message).partition(" ")[0]
        getattr(receiver, f"{wish}_message")(message)
        self.confirmed.append(str(message.message_id))


def have_confirmed(workers: list[Worker], count: int) -> bool:
    return sum([len(worker.confirmed) for worker in workers]) >= count


@pytest.mark.long
def test_nothing_is_settled_otherwise_than_its_receiver_wanted_and_no_receiver_is_stuck(harness: PairHarness) -> None:
    primary, queue = harness.primary, f"{harness.orders}-received"
    primary.admin.create_queue(queue, lock_duration=LOCK, max_delivery_count=100)
    wishes = {str(number): WISHES[number % len(WISHES)] for number in range(MESSAGES)}
    with primary.sending(queue) as sender:
        sender.send_messages([ServiceBusMessage(f"{wish} {name}", message_id=name) for name, wish in wishes.items()])
    options = harness.options()
    with (
        LocalProxy(primary.connection_string, harness.secondary.connection_string, **options) as proxy,
        ServiceBusClient.from_connection_string(proxy.connection_string, retry_total=1) as client,
        ExitStack() as stops,
    ):
        workers = [Worker(client, queue) for _ in range(RECEIVERS)]
        for worker in workers:
            stops.callback(worker.stop)
        for settled in range(BETWEEN, (KILLS + 1) * BETWEEN, BETWEEN):
            wait_until(partial(have_confirmed, workers, settled), HOME_S)
            primary.kill()
            primary.start()
        wanted = {wish: sorted(name for name in wishes if wishes[name] == wish) for wish in WISHES}
        wait_until(lambda: len(primary.messages(f"{queue}/$DeadLetterQueue")) == len(wanted["dead_letter"]), HOME_S)
        wait_until(lambda: len(primary.messages(queue)) == len(wanted["defer"]), HOME_S)
    assert not any(worker.is_stuck for worker in workers)
    assert sorted(str(each.message_id) for each in primary.messages(queue)) == wanted["defer"]
    dead = primary.messages(f"{queue}/$DeadLetterQueue")
    assert sorted(str(each.message_id) for each in dead) == wanted["dead_letter"]
    times = Counter(name for worker in workers for name in worker.confirmed)
    assert {name: count for name, count in times.items() if count > 1} == {}
