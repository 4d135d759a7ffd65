"""When a part of the store is broken: who reads there is told, everybody else goes on."""

from __future__ import annotations

import logging

import pytest
from namespace_harness import QUEUE, SECOND_MS, Bench, arrival, names

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
from twinbus.broker.entities.settings import QueueSettings
from twinbus.broker.entities.window import WindowLimits
from twinbus.broker.operations import Complete, Done, ReceiveMode, ReceiverLost, Refused
from twinbus.broker.store.api import ReadFailed, RowRequest
from twinbus.errors import InternalError, StoreUnavailable

OTHER = "bills"
MALFORMED = "database disk image is malformed"


class DamagedBench(Bench):
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
def bench() -> DamagedBench:
    bench = DamagedBench()
    for number in range(10):
        bench.send(f"m{number}")
    return bench


def damaged(bench: DamagedBench) -> DamagedBench:
    """Somebody has read from the queue."""
    bench.do(PeekMessages(QUEUE, 0, 10))
    bench.let_read()
    bench.take()
    return bench


def test_receivers_of_a_damaged_queue_are_told_what_is_wrong(bench: DamagedBench) -> None:
    bench.open(1, credit=100)
    bench.open(2, credit=0)
    bench.let_read()
    lost = bench.lost()
    assert {each.receiver for each in lost} == {1, 2}
    for each in lost:
        assert isinstance(each.error, InternalError)
        assert not isinstance(each.error, StoreUnavailable)
        assert "damaged" in str(each.error)
        assert MALFORMED in str(each.error)
        assert QUEUE in str(each.error)


def test_nobody_else_notices(bench: DamagedBench) -> None:
    bench.open(1, credit=100)
    bench.open(2, credit=100, path=OTHER)
    bench.let_read()
    assert [each.receiver for each in bench.lost()] == [1]
    assert bench.failures == []
    bench.ask(SendMessages(OTHER, (arrival("b"),)))
    assert names(bench.deliveries()) == ["b"]


def test_a_damaged_queue_can_be_sent_to(bench: DamagedBench) -> None:
    assert damaged(bench).send("more", "and more") == (11, 12)
    assert bench.queue.active == 12


@pytest.mark.parametrize(
    "command",
    [
        OpenReceiver(9, QUEUE, ReceiveMode.PEEK_LOCK),
        PeekMessages(QUEUE, 0, 10),
        ReceiveDeferred(QUEUE, (1,), ReceiveMode.PEEK_LOCK),
        CancelScheduled(QUEUE, (1,)),
    ],
)
def test_whoever_wants_to_read_from_a_damaged_queue_is_refused(bench: DamagedBench, command: Command[object]) -> None:
    error = damaged(bench).refusal(command)
    assert isinstance(error, InternalError)
    assert MALFORMED in str(error)
    assert bench.reads == []


def test_everybody_who_waits_for_rows_of_a_damaged_queue_is_refused_once(bench: DamagedBench) -> None:
    bench.do(PeekMessages(QUEUE, 0, 10), "one")
    bench.do(PeekMessages(QUEUE, 0, 10), "equal")
    bench.do(PeekMessages(QUEUE, 5, 10), "another")
    bench.do(PeekMessages(OTHER, 0, 10), "elsewhere")
    bench.let_read()
    refused = [name for name, reply in bench.take_named() if isinstance(reply, Refused)]
    assert refused == ["one", "equal", "another"]


def test_a_damaged_queue_is_not_read_again_and_wants_no_waking(bench: DamagedBench) -> None:
    bench.send(arrival("short", ttl_ms=SECOND_MS), arrival("later", due_at_ms=bench.now_ms + SECOND_MS))
    damaged(bench)
    bench.pass_time(2 * SECOND_MS)
    assert bench.gate.next_wake_ms() is None
    bench.send(arrival("too", ttl_ms=SECOND_MS))
    bench.do(Grant(1, 100))
    assert bench.reads == []
    assert bench.gate.next_wake_ms() is None
    assert len(bench.queue.recent) == 0


def test_locks_taken_before_can_be_settled_and_end(bench: DamagedBench) -> None:
    lent = bench.receive(2)
    damaged(bench)
    assert bench.settle(Complete(), lent[0]) == {}
    assert bench.gate.next_wake_ms() == lent[1].locked_until_ms
    bench.pass_time(10 * SECOND_MS)
    assert len(bench.queue.locks) == 0


def test_a_message_that_was_deleted_for_a_receiver_reaches_it_before_the_word_of_the_damage(
    bench: DamagedBench,
) -> None:
    bench.open(1, credit=100, deletes=True)
    bench.take()
    bench.let_read()
    assert bench.take() == []
    bench.commit()
    replies = bench.take()
    assert [type(reply) for reply in replies] == [Delivery] * 3 + [ReceiverLost]


def test_a_damaged_queue_can_be_deleted_and_made_again(bench: DamagedBench) -> None:
    assert isinstance(damaged(bench).ask(DeleteEntity(QUEUE)), Done)
    assert isinstance(bench.ask(CreateQueue(QUEUE, QueueSettings())), Done)
    bench.send("new")
    assert names(bench.receive()) == ["new"]


def test_damage_of_a_queue_that_was_deleted_meanwhile_refuses_who_waited(bench: DamagedBench) -> None:
    bench.do(PeekMessages(QUEUE, 0, 10), "peek")
    bench.ask(DeleteEntity(QUEUE))
    bench.take()
    bench.let_read()
    assert [name for name, reply in bench.take_named() if isinstance(reply, Refused)] == ["peek"]


def test_damage_is_logged_once(bench: DamagedBench, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        bench.open(1, credit=100)
        bench.do(PeekMessages(QUEUE, 0, 10))
        bench.do(PeekMessages(QUEUE, 0, 10))
        bench.let_read()
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert QUEUE in record.getMessage()
    assert MALFORMED in record.getMessage()
