"""When a part of the store is broken: reads there get an error, everything else goes on."""

from __future__ import annotations

import logging

import pytest
from namespace_harness import QUEUE, SECOND_MS, NamespaceHarness, arrival, names

from twinbus.broker.core.commands import (
    CancelScheduled,
    Command,
    CreateQueue,
    DeleteEntity,
    Grant,
    OpenReceiver,
    PeekMessages,
    ReceiveDeferred,
    SendMessages,
)
from twinbus.broker.core.replies import Delivery
from twinbus.broker.entities.loaded_head import WindowLimits
from twinbus.broker.entities.settings import QueueSettings
from twinbus.broker.operations import Complete, Done, ReceiveMode, ReceiverLost, Refused
from twinbus.broker.store.api import ReadFailed, RowRequest
from twinbus.errors import InternalError, StoreUnavailable

OTHER = "bills"
MALFORMED = "database disk image is malformed"


class DamagedHarness(NamespaceHarness):
    """Its store has lost what it held of the first queue. Reads wait until they are let happen."""

    def __init__(self) -> None:
        super().__init__(QueueSettings(lock_ms=10 * SECOND_MS), WindowLimits(rows_max=3))
        self.do(CreateQueue(OTHER, QueueSettings()))
        self.commit()
        self.take()
        self.reads: list[RowRequest] = []
        self.is_damaged = True
        self._ask_store = self.store.request
        self.store.request = self.reads.append  # type: ignore[method-assign,assignment]

    def let_read(self) -> int:
        """Answer every read; returns how many there were."""
        reads, self.reads[:] = list(self.reads), []
        for request in reads:
            if self.is_damaged and request.entity_id == 1:
                self._report(ReadFailed(request, MALFORMED, is_damage=True))
            else:
                self._ask_store(request)
        return len(reads)

    def lost(self) -> list[ReceiverLost]:
        return [reply for reply in self.take() if isinstance(reply, ReceiverLost)]


@pytest.fixture
def harness() -> DamagedHarness:
    harness = DamagedHarness()
    for number in range(10):
        harness.send(f"m{number}")
    return harness


def damaged(harness: DamagedHarness) -> DamagedHarness:
    """Somebody has read from the queue."""
    harness.do(PeekMessages(QUEUE, 0, 10))
    harness.let_read()
    harness.take()
    return harness


def test_receivers_of_a_damaged_queue_get_the_reason(harness: DamagedHarness) -> None:
    harness.open(1, credit=100)
    harness.open(2, credit=0)
    harness.let_read()
    lost = harness.lost()
    assert {each.receiver for each in lost} == {1, 2}
    for each in lost:
        assert isinstance(each.error, InternalError)
        assert not isinstance(each.error, StoreUnavailable)
        assert "damaged" in str(each.error)
        assert MALFORMED in str(each.error)
        assert QUEUE in str(each.error)


def test_nobody_else_notices(harness: DamagedHarness) -> None:
    harness.open(1, credit=100)
    harness.open(2, credit=100, path=OTHER)
    harness.let_read()
    assert [each.receiver for each in harness.lost()] == [1]
    assert harness.failures == []
    harness.ask(SendMessages(OTHER, (arrival("b"),)))
    assert names(harness.deliveries()) == ["b"]


def test_a_damaged_queue_can_be_sent_to(harness: DamagedHarness) -> None:
    assert damaged(harness).send("more", "and more") == (11, 12)
    assert harness.queue.active == 12


@pytest.mark.parametrize(
    "command",
    [
        OpenReceiver(9, QUEUE, ReceiveMode.PEEK_LOCK),
        PeekMessages(QUEUE, 0, 10),
        ReceiveDeferred(QUEUE, (1,), ReceiveMode.PEEK_LOCK),
        CancelScheduled(QUEUE, (1,)),
    ],
)
def test_whoever_wants_to_read_from_a_damaged_queue_is_refused(
    harness: DamagedHarness, command: Command[object]
) -> None:
    error = damaged(harness).refusal(command)
    assert isinstance(error, InternalError)
    assert MALFORMED in str(error)
    assert harness.reads == []


def test_everybody_who_waits_for_rows_of_a_damaged_queue_is_refused_once(harness: DamagedHarness) -> None:
    harness.do(PeekMessages(QUEUE, 0, 10), "one")
    harness.do(PeekMessages(QUEUE, 0, 10), "equal")
    harness.do(PeekMessages(QUEUE, 5, 10), "another")
    harness.do(PeekMessages(OTHER, 0, 10), "elsewhere")
    harness.let_read()
    refused = [name for name, reply in harness.take_named() if isinstance(reply, Refused)]
    assert refused == ["one", "equal", "another"]


def test_a_damaged_queue_is_not_read_again_and_wants_no_waking(harness: DamagedHarness) -> None:
    harness.send(arrival("short", ttl_ms=SECOND_MS), arrival("later", due_at_ms=harness.now_ms + SECOND_MS))
    damaged(harness)
    harness.pass_time(2 * SECOND_MS)
    assert harness.gate.next_wake_ms() is None
    harness.send(arrival("too", ttl_ms=SECOND_MS))
    harness.do(Grant(1, 100))
    assert harness.reads == []
    assert harness.gate.next_wake_ms() is None
    assert len(harness.queue.recent) == 0


def test_locks_taken_before_can_be_settled_and_end(harness: DamagedHarness) -> None:
    lent = harness.receive(2)
    damaged(harness)
    assert harness.settle(Complete(), lent[0]) == {}
    assert harness.gate.next_wake_ms() == lent[1].locked_until_ms
    harness.pass_time(10 * SECOND_MS)
    assert len(harness.queue.locks) == 0


def test_a_message_that_was_deleted_for_a_receiver_reaches_it_before_the_word_of_the_damage(
    harness: DamagedHarness,
) -> None:
    harness.open(1, credit=100, deletes=True)
    harness.take()
    harness.let_read()
    assert harness.take() == []
    harness.commit()
    replies = harness.take()
    assert [type(reply) for reply in replies] == [Delivery] * 3 + [ReceiverLost]


def test_a_damaged_queue_can_be_deleted_and_made_again(harness: DamagedHarness) -> None:
    assert isinstance(damaged(harness).ask(DeleteEntity(QUEUE)), Done)
    assert isinstance(harness.ask(CreateQueue(QUEUE, QueueSettings())), Done)
    harness.send("new")
    assert names(harness.receive()) == ["new"]


def test_damage_of_a_queue_that_was_deleted_meanwhile_refuses_who_waited(harness: DamagedHarness) -> None:
    harness.do(PeekMessages(QUEUE, 0, 10), "peek")
    harness.ask(DeleteEntity(QUEUE))
    harness.take()
    harness.let_read()
    assert [name for name, reply in harness.take_named() if isinstance(reply, Refused)] == ["peek"]


def test_damage_is_logged_once(harness: DamagedHarness, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        harness.open(1, credit=100)
        harness.do(PeekMessages(QUEUE, 0, 10))
        harness.do(PeekMessages(QUEUE, 0, 10))
        harness.let_read()
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert QUEUE in record.getMessage()
    assert MALFORMED in record.getMessage()
