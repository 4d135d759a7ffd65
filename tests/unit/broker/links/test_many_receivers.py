"""A connection with many receivers, each with much to get, is given no more at once than it takes."""

from __future__ import annotations

import pytest
from connection_harness import NOW_MS, ConnectionHarness
from namespace_harness import NamespaceHarness, arrival

from twinbus.amqp.events import TransferArrived
from twinbus.amqp.message.sections import encode_message
from twinbus.broker.core.commands import CreateQueue
from twinbus.broker.entities.receivers import DELETED_BYTES_MAX
from twinbus.broker.entities.settings import QueueSettings
from twinbus.broker.links.dispatcher import LinkDispatcher
from twinbus.broker.links.outgoing import BYTES_AT_ONCE

QUEUES = [f"q{number}" for number in range(5)]
BODY = bytes(BYTES_AT_ONCE * 3 // 5)
PER_QUEUE = 2


class SlowConnectionHarness(ConnectionHarness):
    """Its peer takes what is flushed only when it is asked to, and nothing is delivered meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.untaken: list[bytes] = []
        self.dispatcher = LinkDispatcher(self.ours, self.context, self.flush, lambda: None)
        for path in QUEUES:
            self.gate.do(CreateQueue(path, QueueSettings(max_size_mb=4)), NOW_MS)
        self.store.commit()

    def flush(self) -> None:
        self.untaken.append(self.ours.take_output())
        self.dispatcher.outgoing.pause(NOW_MS)

    def take(self) -> int:
        """How many messages the peer finds when it takes what waits."""
        taken, self.untaken = b"".join(self.untaken), []
        heard = [*self.peer.receive(taken, NOW_MS), *self.exchange()]
        return sum(isinstance(event, TransferArrived) for event in heard)


@pytest.fixture
def harness() -> SlowConnectionHarness:
    harness = SlowConnectionHarness()
    for path in QUEUES:
        harness.deliver(path, *[encode_message(data=BODY)] * PER_QUEUE)
    return harness


def test_a_peer_with_many_receivers_gets_them_served_one_after_the_other(harness: SlowConnectionHarness) -> None:
    for receiver in [harness.receiver(path) for path in QUEUES]:
        receiver.grant(10)
    rounds = []
    harness.dispatcher.take(harness.ours.receive(harness.peer.take_output(), NOW_MS), NOW_MS)
    for _ in QUEUES:
        rounds.append(harness.take())
        harness.dispatcher.outgoing.resume(NOW_MS)
    assert rounds == [PER_QUEUE] * len(QUEUES)


def test_those_who_got_nothing_are_first_when_the_peer_keeps_up_again(harness: SlowConnectionHarness) -> None:
    links = [harness.receiver(path) for path in QUEUES]
    harness.dispatcher.outgoing.pause(NOW_MS)
    for _ in range(3):  # two of the five get a message each time
        for receiver in links:
            receiver.grant(1)
        harness.exchange()
        harness.dispatcher.outgoing.resume(NOW_MS)
        harness.take()
    assert [link.delivery_count for link in links] == [2, 1, 1, 1, 1]


def test_only_some_messages_are_being_deleted_at_a_time() -> None:
    harness = NamespaceHarness()
    for number in range(5):
        harness.send(arrival(f"m{number}", body=bytes(DELETED_BYTES_MAX // 2)))
    harness.open(1, credit=10, deletes=True)
    assert harness.queue.active == 3
    harness.commit()
    assert len(harness.deliveries()) == 5
