"""Messages from a receiver of the official client, which may bring fewer at a time than it was asked for."""

from __future__ import annotations

from azure.servicebus import ServiceBusReceivedMessage, ServiceBusReceiver

WAIT_S = 60


def received(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    """So many messages; fewer only if none has come for a minute."""
    found: list[ServiceBusReceivedMessage] = []
    while len(found) < count:
        some = receiver.receive_messages(count - len(found), max_wait_time=WAIT_S)
        if not some:
            break
        found += some
    return found


def receive_exactly(
    receiver: ServiceBusReceiver, count: int, wait_s: float = WAIT_S
) -> list[ServiceBusReceivedMessage]:
    """Exactly this many messages, in as many calls as it takes."""
    found: list[ServiceBusReceivedMessage] = []
    while len(found) < count:
        got = receiver.receive_messages(count - len(found), max_wait_time=wait_s)
        assert got, f"only {len(found)} of {count} messages came within {wait_s} s"
        found += got
    return found
