"""A receiver that settles nothing cannot make the namespace keep a whole backlog in memory."""

from __future__ import annotations

import pytest
from namespace_harness import QUEUE, SECOND_MS, NamespaceHarness, arrival, names

from twinbus.broker.core.commands import CloseReceiver, Grant, PauseReceiver, ReceiveDeferred, ResumeReceiver
from twinbus.broker.core.replies import Delivery
from twinbus.broker.entities.loaded_head import WindowLimits
from twinbus.broker.entities.locks import LOCK_COST_BYTES
from twinbus.broker.entities.receivers import LOCKED_BYTES_MAX
from twinbus.broker.entities.settings import QueueSettings
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
def harness() -> NamespaceHarness:
    """A queue with twenty messages, whose receivers may hold five."""
    limits = WindowLimits(rows_max=4, locked_bytes_max=4 * BODY + 500)
    harness = NamespaceHarness(QueueSettings(lock_ms=LOCK_MS), limits)
    for number in range(20):
        harness.send(arrival(f"m{number}", body=bytes(BODY)))
    return harness


def open_and_take(
    harness: NamespaceHarness, receiver: int = 1, *, credit: int = 100, deletes: bool = False
) -> list[Delivery]:
    harness.open(receiver, credit=credit, deletes=deletes)
    return harness.deliveries()


def test_what_a_receiver_holds_is_bounded_by_bytes_whatever_its_credit(harness: NamespaceHarness) -> None:
    assert names(open_and_take(harness)) == ["m0", "m1", "m2", "m3", "m4"]
    harness.do(Grant(1, 200))
    harness.send("m20")
    assert harness.deliveries() == []


@pytest.mark.parametrize("outcome", [Complete(), Defer(), DeadLetter()])
def test_a_receiver_gets_as_much_as_it_settles(harness: NamespaceHarness, outcome: SettlementOutcome) -> None:
    lent = open_and_take(harness)
    harness.settle(outcome, *lent[:2])
    assert names(harness.deliveries()) == ["m5", "m6"]


@pytest.mark.parametrize("outcome", [Abandon(), Release()])
def test_what_is_given_back_makes_room_too(harness: NamespaceHarness, outcome: SettlementOutcome) -> None:
    lent = open_and_take(harness)
    harness.settle(outcome, lent[1])
    assert len(harness.deliveries()) == 1
    assert len(harness.queue.locks) == 5


def test_locks_that_ended_make_room(harness: NamespaceHarness) -> None:
    open_and_take(harness)
    harness.pass_time(LOCK_MS)
    assert len(harness.deliveries()) == 5


def test_others_are_not_held_back(harness: NamespaceHarness) -> None:
    open_and_take(harness)
    assert names(open_and_take(harness, 2)) == ["m5", "m6", "m7", "m8", "m9"]


def test_one_message_larger_than_the_bound_still_goes_out() -> None:
    harness = NamespaceHarness(limits=WindowLimits(locked_bytes_max=10))
    harness.send(arrival("big", body=bytes(BODY)), "small")
    (big,) = open_and_take(harness)
    assert big.row.message_id == "big"
    harness.settle(Complete(), big)
    assert names(harness.deliveries()) == ["small"]


def test_a_receiver_that_holds_all_it_may_is_drained_all_the_same(harness: NamespaceHarness) -> None:
    open_and_take(harness)
    harness.do(Grant(1, 100, drain=True))
    assert ReceiverDrained(1) in harness.take()
    harness.do(Grant(1, 101))
    assert harness.deliveries() == []


def test_a_receiver_that_was_paused_at_its_bound_goes_on_when_it_has_room(harness: NamespaceHarness) -> None:
    lent = open_and_take(harness)
    harness.do(PauseReceiver(1))
    harness.settle(Complete(), *lent)
    assert harness.deliveries() == []
    harness.do(ResumeReceiver(1))
    assert len(harness.deliveries()) == 5


def test_what_a_receiver_took_that_left_can_still_be_settled(harness: NamespaceHarness) -> None:
    lent = open_and_take(harness)
    harness.do(CloseReceiver(1))
    assert harness.settle(Complete(), *lent) == {}
    assert harness.deliveries() == []
    assert harness.queue.receivers.next_ready() is None


def test_messages_to_be_deleted_are_bounded_until_they_are(harness: NamespaceHarness) -> None:
    assert open_and_take(harness, deletes=True) == []
    assert harness.queue.active == 15
    harness.commit(2)  # the window held four of them
    assert len(harness.deliveries()) == 5
    harness.commit()
    assert len(harness.deliveries()) == 15


def test_a_drain_of_messages_to_be_deleted_still_gives_all_there_are(harness: NamespaceHarness) -> None:
    harness.open(1, deletes=True)
    harness.take()
    harness.do(Grant(1, 100, drain=True))
    harness.commit()
    replies = harness.take()
    assert sum(isinstance(reply, Delivery) for reply in replies) == 20
    assert replies[-1] == ReceiverDrained(1)


def test_a_deferred_message_takes_nobodys_room(harness: NamespaceHarness) -> None:
    lent = open_and_take(harness, credit=5)
    harness.settle(Defer(), *lent)
    harness.receive_deferred(*[each.row.sequence for each in lent])
    harness.do(Grant(1, 100))
    assert len(harness.deliveries()) == 5


def test_a_receiver_holds_32_mib_by_default() -> None:
    assert WindowLimits().locked_bytes_max == LOCKED_BYTES_MAX == 32 * 1024 * 1024
    harness = NamespaceHarness()
    for _ in range(36):
        harness.send(arrival("m", body=bytes(1024 * 1024)))
    assert len(open_and_take(harness)) == 32


def test_all_receivers_of_a_queue_together_hold_a_bounded_part_of_it_also_if_they_leave() -> None:
    """Locks stay when a receiver leaves: one that comes again and again must not have the whole queue in memory."""
    cost = LOCK_COST_BYTES + BODY
    harness = NamespaceHarness(QueueSettings(lock_ms=LOCK_MS), WindowLimits(locks_bytes_max=5 * cost))
    for number in range(20):
        harness.send(arrival(f"m{number}", body=bytes(BODY)))
    lent: list[Delivery] = []
    for receiver in range(1, 10):
        lent += open_and_take(harness, receiver, credit=2)
        harness.do(CloseReceiver(receiver))
    held = harness.queue.locks.held_bytes
    assert 5 * cost <= held < 7 * cost
    assert open_and_take(harness, 10) == []
    harness.settle(Complete(), *lent[:2])
    assert len(harness.deliveries()) >= 1, "as soon as something is settled"
    harness.pass_time(LOCK_MS)
    assert len(harness.deliveries()) >= 3, "as soon as locks end"


def test_deferred_messages_are_not_delivered_while_receivers_hold_all_they_may() -> None:
    harness = NamespaceHarness(QueueSettings(lock_ms=LOCK_MS), WindowLimits(locks_bytes_max=2 * LOCK_COST_BYTES))
    harness.send("m0", "m1", "m2")
    (first, *_) = open_and_take(harness, credit=1)
    harness.settle(Defer(), first)
    harness.do(Grant(1, 3))
    lent = harness.deliveries()
    assert len(lent) == 2
    refused = harness.ask(ReceiveDeferred(QUEUE, (first.row.sequence,), ReceiveMode.PEEK_LOCK))
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, ServerBusy)
    harness.settle(Complete(), *lent)
    assert len(harness.receive_deferred(first.row.sequence).found) == 1
