"""A look at the head of a queue, in bounded time: what lies there longest, and whether somebody has had it in hand."""

from __future__ import annotations

from time import monotonic
from typing import NamedTuple

from azure.servicebus import ServiceBusClient, ServiceBusReceiver

from twinbus.client.failures import describe
from twinbus.client.watchdog import Watchdog
from twinbus.client.wires import Wire
from twinbus.client.within import within
from twinbus.pairing.failure import Failure

GRACE_S = 1.0
"""How long after its time a look may end by itself."""


class Oldest(NamedTuple):
    enqueued_at: float
    """By the clock of the namespace, in seconds since 1970."""
    was_delivered: bool
    """Somebody received it and gave it back."""


def peek_oldest(
    client: ServiceBusClient, path: str, *, deadline_s: float, watchdog: Watchdog
) -> Oldest | Failure | None:
    """The oldest message of a queue, None if it is empty. Nothing is taken and nothing is locked."""
    looking = _Looking(client.get_queue_receiver(path), deadline_s, watchdog)
    try:
        return within(deadline_s + GRACE_S, looking.run)
    except Exception as error:
        return describe(error, sending=False)


class _Looking:
    """A receiver that only peeks; the watchdog cuts its connection when it takes too long."""

    def __init__(self, receiver: ServiceBusReceiver, deadline_s: float, watchdog: Watchdog) -> None:
        self.busy_until: float | None = monotonic() + deadline_s
        self._receiver = receiver
        self._wire = Wire(receiver)
        self._deadline_s = deadline_s
        self._watchdog = watchdog
        watchdog.watch(self)

    def run(self) -> Oldest | None:
        try:
            found = self._receiver.peek_messages(1, timeout=self._deadline_s)
        finally:
            self._end()
        if not found:
            return None
        message = found[0]
        enqueued = message.enqueued_time_utc
        return Oldest(enqueued.timestamp() if enqueued else 0.0, bool(message.delivery_count))

    def cut(self) -> None:
        self._wire.cut()

    def _end(self) -> None:
        try:
            self._receiver.close()
        finally:
            self._wire.close()
            self._watchdog.forget(self)
