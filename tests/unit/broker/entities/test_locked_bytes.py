"""A receiver that settles nothing cannot make the namespace keep a whole backlog in memory."""

from __future__ import annotations

import pytest
from namespace_harness import QUEUE, SECOND_MS, Bench, arrival, names

from twinbus.broker.core.commands import CloseReceiver, Grant, PauseReceiver, ReceiveDeferred, ResumeReceiver
from twinbus.broker.core.replies import Delivery
from twinbus.broker.entities.locks import LOCK_COST_BYTES
from twinbus.broker.entities.receivers import LOCKED_BYTES_MAX
from twinbus.broker.entities.settings import QueueSettings
from twinbus.broker.entities.window import WindowLimits
from twinbus.broker.operations import (
    Abandon,
    Complete,
    DeadLetter,
    Defer,
    ReceiveMode,
    ReceiverDrained,
    Refused,
    Release,
    SettlementOutcome,
)
from twinbus.errors import ServerBusy

BODY = 1_000
LOCK_MS = 10 * SECOND_MS


@pytest.fixture
def bench() -> Bench:
    """A queue with twenty messages, whose receivers may hold five."""
    limits = WindowLimits(rows_max=4, locked_bytes_max=4 * BODY + 500)
    bench = Bench(QueueSettings(lock_ms=LOCK_MS), limits)
    for number in range(20):
        bench.send(arrival(f"m{number}", body=bytes(BODY)))
    return bench


def open_and_take(bench: Bench, receiver: int = 1, *, credit: int = 100, deletes: bool = False) -> list[Delivery]:
    bench.open(receiver, credit=credit, deletes=deletes)
    return bench.deliveries()


def test_what_a_receiver_holds_is_bounded_by_bytes_whatever_its_credit(bench: Bench) -> None:
    assert names(open_and_take(bench)) == ["m0", "m1", "m2", "m3", "m4"]
    bench.do(Grant(1, 200))
    bench.send("m20")
    assert bench.deliveries() == []


@pytest.mark.parametrize("verdict", [Complete(), Defer(), DeadLetter()])
def test_a_receiver_gets_as_much_as_it_settles(bench: Bench, verdict: SettlementOutcome) -> None:
    lent = open_and_take(bench)
    bench.settle(verdict, *lent[:2])
    assert names(bench.deliveries()) == ["m5", "m6"]


@pytest.mark.parametrize("verdict", [Abandon(), Release()])
def test_what_is_given_back_makes_room_too(bench: Bench, verdict: SettlementOutcome) -> None:
    lent = open_and_take(bench)
    bench.settle(verdict, lent[1])
    assert len(bench.deliveries()) == 1
    assert len(bench.queue.locks) == 5


def test_locks_that_ended_make_room(bench: Bench) -> None:
    open_and_take(bench)
    bench.pass_time(LOCK_MS)
    assert len(bench.deliveries()) == 5


def test_others_are_not_held_back(bench: Bench) -> None:
    open_and_take(bench)
    assert names(open_and_take(bench, 2)) == ["m5", "m6", "m7", "m8", "m9"]


def test_one_message_larger_than_the_bound_still_goes_out() -> None:
    bench = Bench(limits=WindowLimits(locked_bytes_max=10))
    bench.send(arrival("big", body=bytes(BODY)), "small")
    (big,) = open_and_take(bench)
    assert big.row.message_id == "big"
    bench.settle(Complete(), big)
    assert names(bench.deliveries()) == ["small"]


def test_a_receiver_that_holds_all_it_may_is_drained_all_the_same(bench: Bench) -> None:
    open_and_take(bench)
    bench.do(Grant(1, 100, drain=True))
    assert ReceiverDrained(1) in bench.take()
    bench.do(Grant(1, 101))
    assert bench.deliveries() == []


def test_a_receiver_that_was_paused_at_its_bound_goes_on_when_it_has_room(bench: Bench) -> None:
    lent = open_and_take(bench)
    bench.do(PauseReceiver(1))
    bench.settle(Complete(), *lent)
    assert bench.deliveries() == []
    bench.do(ResumeReceiver(1))
    assert len(bench.deliveries()) == 5


def test_what_a_receiver_took_that_left_can_still_be_settled(bench: Bench) -> None:
    lent = open_and_take(bench)
    bench.do(CloseReceiver(1))
    assert bench.settle(Complete(), *lent) == {}
    assert bench.deliveries() == []
    assert bench.queue.receivers.next_ready() is None


def test_messages_to_be_deleted_are_bounded_until_they_are(bench: Bench) -> None:
    assert open_and_take(bench, deletes=True) == []
    assert bench.queue.active == 15
    bench.commit(2)  # the window held four of them
    assert len(bench.deliveries()) == 5
    bench.commit()
    assert len(bench.deliveries()) == 15


def test_a_drain_of_messages_to_be_deleted_still_gives_all_there_are(bench: Bench) -> None:
    bench.open(1, deletes=True)
    bench.take()
    bench.do(Grant(1, 100, drain=True))
    bench.commit()
    replies = bench.take()
    assert sum(isinstance(reply, Delivery) for reply in replies) == 20
    assert replies[-1] == ReceiverDrained(1)


def test_a_deferred_message_takes_nobodys_room(bench: Bench) -> None:
    lent = open_and_take(bench, credit=5)
    bench.settle(Defer(), *lent)
    bench.receive_deferred(*[each.row.sequence for each in lent])
    bench.do(Grant(1, 100))
    assert len(bench.deliveries()) == 5


def test_a_receiver_holds_32_mib_unless_told_otherwise() -> None:
    assert WindowLimits().locked_bytes_max == LOCKED_BYTES_MAX == 32 * 1024 * 1024
    bench = Bench()
    for _ in range(36):
        bench.send(arrival("m", body=bytes(1024 * 1024)))
    assert len(open_and_take(bench)) == 32


def test_all_receivers_of_a_queue_together_hold_a_bounded_part_of_it_also_if_they_leave() -> None:
    """Locks stay when a receiver leaves: one that comes again and again must not have the whole queue in memory."""
    cost = LOCK_COST_BYTES + BODY
    bench = Bench(QueueSettings(lock_ms=LOCK_MS), WindowLimits(locks_bytes_max=5 * cost))
    for number in range(20):
        bench.send(arrival(f"m{number}", body=bytes(BODY)))
    lent: list[Delivery] = []
    for receiver in range(1, 10):
        lent += open_and_take(bench, receiver, credit=2)
        bench.do(CloseReceiver(receiver))
    held = bench.queue.locks.held_bytes
    assert 5 * cost <= held < 7 * cost
    assert open_and_take(bench, 10) == []
    bench.settle(Complete(), *lent[:2])
    assert len(bench.deliveries()) >= 1, "as soon as something is settled"
    bench.pass_time(LOCK_MS)
    assert len(bench.deliveries()) >= 3, "as soon as locks end"


def test_deferred_messages_are_not_lent_while_receivers_hold_all_they_may() -> None:
    bench = Bench(QueueSettings(lock_ms=LOCK_MS), WindowLimits(locks_bytes_max=2 * LOCK_COST_BYTES))
    bench.send("m0", "m1", "m2")
    (first, *_) = open_and_take(bench, credit=1)
    bench.settle(Defer(), first)
    bench.do(Grant(1, 3))
    lent = bench.deliveries()
    assert len(lent) == 2
    refused = bench.ask(ReceiveDeferred(QUEUE, (first.row.sequence,), ReceiveMode.PEEK_LOCK))
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, ServerBusy)
    bench.settle(Complete(), *lent)
    assert len(bench.receive_deferred(first.row.sequence).found) == 1
