"""A look into a queue from its head, in bounded time: how much lies there, and whether somebody has had it in hand."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from time import monotonic

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
)

from twinbus.client.inspection.inspection_cost import LookCounter
from twinbus.client.sdk.abandonable_threads import within
from twinbus.client.sdk.failures import describe
from twinbus.client.sdk.internals.connections import LinkConnection
from twinbus.client.sdk.messages import read_facts
from twinbus.client.sdk.readable import read_all_of
from twinbus.client.sdk.watchdog import Watchdog, WatchedCall
from twinbus.ledger.kinds import DELIVERY_BYTES
from twinbus.pairing.backlog.queue_depth import Depth, Peeked, measure
from twinbus.pairing.sending.failure import Failure

GRACE_S = 1.0
"""How long after its time a look may end by itself."""


def peek_depth(
    client: ServiceBusClient,
    path: str,
    messages_max: int,
    *,
    deadline_s: float,
    watchdog: Watchdog,
    cost: LookCounter,
    session_id: str | None = None,
    met: Callable[[ServiceBusReceivedMessage], None] | None = None,
) -> Depth | Failure:
    """What lies in a queue. Nothing is taken and nothing is locked; `cost` hears of every peek.

    `met` is called with every message that is seen waiting. With `session_id` that session is looked into.
    """
    receiver = client.get_queue_receiver(path, session_id=session_id)
    read_all_of(receiver)
    wire, until = LinkConnection(receiver), monotonic() + deadline_s
    call = WatchedCall(watchdog, deadline_s, wire.cut)

    def look() -> Depth:
        with call, closing(wire), closing(receiver):
            return _measure(receiver, messages_max, until, cost, met)

    try:
        return within(deadline_s + GRACE_S, look)
    except Exception as error:
        return describe(error, sending=False)


def _measure(
    receiver: ServiceBusReceiver,
    messages_max: int,
    until: float,
    cost: LookCounter,
    met: Callable[[ServiceBusReceivedMessage], None] | None,
) -> Depth:
    flow = measure(messages_max)
    try:
        ask = next(flow)
        while True:
            timeout_s = max(0.001, until - monotonic())
            found = receiver.peek_messages(ask.most, sequence_number=ask.from_sequence, timeout=timeout_s)
            cost.peeked([read_facts(message).size + DELIVERY_BYTES for message in found])
            peeked = [_peeked(message) for message in found]
            if met is not None:
                for message, seen in zip(found, peeked, strict=True):
                    if seen.is_waiting:
                        met(message)
            ask = flow.send(peeked)
    except StopIteration as done:
        depth: Depth = done.value
        return depth


def _peeked(message: ServiceBusReceivedMessage) -> Peeked:
    enqueued = message.enqueued_time_utc
    return Peeked(
        sequence=message.sequence_number or 0,
        enqueued_ms=None if enqueued is None else int(enqueued.timestamp() * 1000),
        is_waiting=message.state is ServiceBusMessageState.ACTIVE,
        was_delivered=bool(message.delivery_count),
        size=_body_bytes(message),
    )


def _body_bytes(message: ServiceBusReceivedMessage) -> int:
    """About how large a message is, to keep looks small; a body of other values than bytes counts as nothing."""
    parts = message.body
    return sum([len(part) for part in parts if isinstance(part, bytes)]) if not isinstance(parts, bytes) else len(parts)
