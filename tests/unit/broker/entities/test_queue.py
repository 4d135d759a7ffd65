"""What a queue does with messages, from the send to their end."""

from __future__ import annotations

import pytest
from namespace_harness import (
    DEAD_LETTERS,
    QUEUE,
    SECOND_MS,
    START_MS,
    NamespaceHarness,
    arrival,
    names,
    properties_of,
    sequences_of,
)

from twinbus.broker.core.commands import (
    Grant,
    PauseReceiver,
    RenewMessageLocks,
    ResumeReceiver,
    SendMessages,
    SettleMessages,
    Tick,
)
from twinbus.broker.core.replies import Delivery, LocksRenewed
from twinbus.broker.entities.loaded_head import WindowLimits
from twinbus.broker.entities.settings import QueueSettings
from twinbus.broker.message import Arrival
from twinbus.broker.operations import Abandon, Complete, DeadLetter, Defer, ReceiverDrained, Release, Settled
from twinbus.broker.store.api import MessageState
from twinbus.errors import LockLost, NotAllowed, QuotaExceeded

LOCK_MS = 10 * SECOND_MS


@pytest.fixture
def harness() -> NamespaceHarness:
    return NamespaceHarness(QueueSettings(lock_ms=LOCK_MS, max_delivery_count=3))


# --- in ---


def test_messages_are_numbered_from_one_in_the_order_they_were_sent(harness: NamespaceHarness) -> None:
    assert harness.send("a") == (1,)
    assert harness.send("b", "c") == (2, 3)
    assert names(harness.receive(3)) == ["a", "b", "c"]


def test_a_message_appears_only_when_it_is_durable(harness: NamespaceHarness) -> None:
    harness.open(1, credit=5)
    harness.do(SendMessages(QUEUE, (arrival("a"),)))
    assert harness.deliveries() == []
    harness.commit()
    assert names(harness.deliveries()) == ["a"]


def test_a_full_queue_refuses_a_batch_as_a_whole() -> None:
    harness = NamespaceHarness(QueueSettings(max_size_mb=1))
    big = arrival("big", body=bytes(600_000))
    harness.send(big)
    error = harness.refusal(SendMessages(QUEUE, (arrival("small"), big)))
    assert isinstance(error, QuotaExceeded)
    assert "raise its maximum size" in str(error)
    assert names(harness.peek()) == ["big"]
    assert harness.send("small")


def test_dead_letters_count_against_the_size_of_their_queue() -> None:
    harness = NamespaceHarness(QueueSettings(max_size_mb=1))
    harness.send(arrival("big", body=bytes(600_000)))
    harness.settle(DeadLetter(), *harness.receive())
    assert isinstance(harness.refusal(SendMessages(QUEUE, (arrival("more", body=bytes(600_000)),))), QuotaExceeded)
    harness.settle(Complete(), *harness.receive(path=DEAD_LETTERS), path=DEAD_LETTERS)
    assert harness.send(arrival("more", body=bytes(600_000)))


def test_nobody_can_send_to_a_dead_letter_queue(harness: NamespaceHarness) -> None:
    assert isinstance(harness.refusal(SendMessages(DEAD_LETTERS, (arrival("a"),))), NotAllowed)


# --- time to live ---


def test_a_message_is_not_delivered_after_its_time_to_live(harness: NamespaceHarness) -> None:
    harness.send(arrival("short", ttl_ms=SECOND_MS), arrival("long"))
    harness.now_ms += SECOND_MS  # the sweep has not come yet
    assert names(harness.receive(2)) == ["long"]


def test_expired_messages_are_removed_though_nobody_receives(harness: NamespaceHarness) -> None:
    harness.send(arrival("short", ttl_ms=SECOND_MS), arrival("long", ttl_ms=5 * SECOND_MS))
    harness.pass_time(SECOND_MS)
    assert names(harness.peek()) == ["long"]
    assert harness.queue.active == 1
    harness.pass_time(4 * SECOND_MS)
    assert (harness.queue.active, harness.queue.payload_bytes) == (0, 0)


def test_the_time_to_live_of_the_queue_is_a_default_and_a_ceiling() -> None:
    harness = NamespaceHarness(QueueSettings(default_ttl_ms=5 * SECOND_MS))
    harness.send(arrival("none"), arrival("longer", ttl_ms=9 * SECOND_MS), arrival("shorter", ttl_ms=SECOND_MS))
    expiries = {row.message_id: row.expires_at_ms for row in harness.peek()}
    ceiling = START_MS + 5 * SECOND_MS
    assert expiries == {"none": ceiling, "longer": ceiling, "shorter": START_MS + SECOND_MS}


def test_expired_messages_are_dead_lettered_if_the_queue_says_so() -> None:
    harness = NamespaceHarness(QueueSettings(dead_letter_on_expiration=True))
    harness.send(arrival("a", ttl_ms=SECOND_MS))
    harness.pass_time(SECOND_MS)
    (dead,) = harness.peek(path=DEAD_LETTERS)
    assert properties_of(dead)["DeadLetterReason"] == "TTLExpiredException"
    assert dead.dead_letter_source == QUEUE


def test_expired_messages_are_gone_if_the_queue_does_not_say_so() -> None:
    harness = NamespaceHarness(QueueSettings(dead_letter_on_expiration=False))
    harness.send(arrival("a", ttl_ms=SECOND_MS))
    harness.pass_time(SECOND_MS)
    assert names(harness.peek()) == names(harness.peek(path=DEAD_LETTERS)) == []


def test_a_dead_letter_does_not_expire() -> None:
    harness = NamespaceHarness(QueueSettings(default_ttl_ms=SECOND_MS, dead_letter_on_expiration=True))
    harness.send("a")
    harness.pass_time(100 * SECOND_MS)
    assert names(harness.peek(path=DEAD_LETTERS)) == ["a"]


def test_a_message_that_expires_while_it_is_locked_can_still_be_completed(harness: NamespaceHarness) -> None:
    harness.send(arrival("a", ttl_ms=SECOND_MS))
    lent = harness.receive()
    harness.pass_time(2 * SECOND_MS)
    assert harness.settle(Complete(), *lent) == {}


@pytest.mark.parametrize("outcome", [Abandon(), Release()])
def test_a_message_that_is_given_back_after_its_time_to_live_expires(
    harness: NamespaceHarness, outcome: Abandon | Release
) -> None:
    harness.send(arrival("a", ttl_ms=SECOND_MS))
    lent = harness.receive()
    harness.pass_time(2 * SECOND_MS)
    harness.settle(outcome, *lent)
    harness.pass_time(0)
    assert harness.queue.active == 0


def test_locked_messages_do_not_keep_others_from_expiring(harness: NamespaceHarness) -> None:
    harness.send(*[arrival(f"m{number}", ttl_ms=SECOND_MS) for number in range(300)])
    harness.receive(200)
    harness.pass_time(SECOND_MS)
    assert harness.queue.active == 200


def test_more_expired_messages_than_one_sweep_takes_all_go(harness: NamespaceHarness) -> None:
    harness.send(*[arrival(f"m{number}", ttl_ms=SECOND_MS) for number in range(350)])
    harness.pass_time(SECOND_MS)
    assert harness.queue.active == 0


# --- locks ---


def test_a_locked_message_is_not_delivered_again_while_its_lock_holds(harness: NamespaceHarness) -> None:
    harness.send("a")
    (lent,) = harness.receive()
    assert lent.locked_until_ms == START_MS + LOCK_MS
    harness.pass_time(LOCK_MS - 1)
    assert harness.receive() == []


def test_an_ended_lock_gives_the_message_back_with_one_more_failure(harness: NamespaceHarness) -> None:
    harness.send("a")
    (first,) = harness.receive()
    harness.pass_time(LOCK_MS)
    (second,) = harness.receive()
    assert (first.row.delivery_count, second.row.delivery_count) == (0, 1)
    assert first.token != second.token
    assert isinstance(harness.settle(Complete(), first)[first.token or b""], LockLost)
    assert harness.settle(Complete(), second) == {}


def test_a_lock_that_has_ended_cannot_be_settled_even_before_anybody_noticed(harness: NamespaceHarness) -> None:
    harness.send("a")
    lent = harness.receive()
    harness.now_ms += LOCK_MS
    assert isinstance(harness.settle(Complete(), *lent)[lent[0].token or b""], LockLost)


def test_a_renewed_lock_holds_for_its_full_time_again(harness: NamespaceHarness) -> None:
    harness.send("a", "b")
    lent = harness.receive(2)
    harness.pass_time(LOCK_MS - 1)
    reply = harness.ask(RenewMessageLocks(QUEUE, (lent[0].token or b"",)))
    assert isinstance(reply, LocksRenewed)
    assert reply.until_ms == (harness.now_ms + LOCK_MS,)
    harness.pass_time(LOCK_MS - 1)
    assert harness.settle(Complete(), lent[0]) == {}
    assert names(harness.receive(2)) == ["b"]


def test_locks_are_renewed_all_or_none(harness: NamespaceHarness) -> None:
    harness.send("a")
    (lent,) = harness.receive()
    harness.pass_time(LOCK_MS - 1)
    assert isinstance(harness.refusal(RenewMessageLocks(QUEUE, (lent.token or b"", b"unknown"))), LockLost)
    harness.pass_time(1)
    assert names(harness.receive()) == ["a"]


def test_more_locks_than_one_step_ends_all_end(harness: NamespaceHarness) -> None:
    harness.send(*[f"m{number}" for number in range(1_200)])
    assert len(harness.receive(1_200)) == 1_200
    harness.pass_time(LOCK_MS)
    assert len(harness.queue.locks) == 0
    assert [each.row.delivery_count for each in harness.receive(1_200)] == [1] * 1_200


def test_locks_end_with_the_process_and_count_nothing(harness: NamespaceHarness) -> None:
    harness.send("a")
    (before,) = harness.receive()
    harness.restart()
    assert isinstance(harness.settle(Complete(), before)[before.token or b""], LockLost)
    (again,) = harness.receive()
    assert again.row.delivery_count == 0


# --- outcomes ---


def test_a_completed_message_is_gone(harness: NamespaceHarness) -> None:
    harness.send("a", "b")
    harness.settle(Complete(), *harness.receive(2))
    assert harness.peek() == []
    assert (harness.queue.active, harness.queue.payload_bytes) == (0, 0)


def test_an_abandoned_message_comes_back_before_later_ones_with_one_more_failure(harness: NamespaceHarness) -> None:
    harness.send("a", "b", "c")
    harness.settle(Abandon({"why": "busy"}), *harness.receive())
    first, second = harness.receive(2)
    assert names([first, second]) == ["a", "b"]
    assert (first.row.delivery_count, second.row.delivery_count) == (1, 0)
    assert properties_of(first.row) == {"why": "busy"}


def test_an_abandoned_message_comes_back_only_when_its_failure_is_durable(harness: NamespaceHarness) -> None:
    harness.send("a")
    (lent,) = harness.receive()
    harness.open(1, credit=1)
    harness.take()
    harness.do(SettleMessages(QUEUE, (lent.token or b"",), Abandon(), "origin"))
    assert harness.take() == []
    harness.commit()
    settled, delivery = harness.take()
    assert isinstance(settled, Settled)
    assert isinstance(delivery, Delivery)


def test_a_released_message_comes_back_at_once_as_if_nothing_had_happened(harness: NamespaceHarness) -> None:
    harness.send("a", "b")
    (lent,) = harness.receive()
    harness.open(1, credit=1)
    harness.settle(Release(), lent)
    (again,) = harness.receive()
    assert (again.row.message_id, again.row.delivery_count) == ("a", 0)


def test_the_last_allowed_failure_moves_a_message_to_the_dead_letters(harness: NamespaceHarness) -> None:
    harness.send("a")
    for _ in range(2):
        harness.settle(Abandon(), *harness.receive())
    harness.receive()
    harness.pass_time(LOCK_MS)  # an ended lock counts like an abandon
    assert harness.receive() == []
    (dead,) = harness.receive(path=DEAD_LETTERS)
    assert dead.row.delivery_count == 3
    assert properties_of(dead.row)["DeadLetterReason"] == "MaxDeliveryCountExceeded"


def test_a_dead_lettered_message_carries_the_reason_its_receiver_gave(harness: NamespaceHarness) -> None:
    sequences = harness.send("zero", "a")[1:]
    harness.settle(DeadLetter({"DeadLetterReason": "NoSuchCustomer"}), harness.receive(2)[1])
    (dead,) = harness.receive(path=DEAD_LETTERS)
    assert properties_of(dead.row) == {"DeadLetterReason": "NoSuchCustomer"}
    assert (dead.row.sequence, dead.row.enqueue_sequence) == (1, sequences[0])
    assert dead.row.dead_letter_source == QUEUE


def test_a_dead_letter_cannot_be_dead_lettered_again_and_stays_locked(harness: NamespaceHarness) -> None:
    harness.send("a")
    harness.settle(DeadLetter(), *harness.receive())
    (dead,) = harness.receive(path=DEAD_LETTERS)
    assert isinstance(harness.settle(DeadLetter(), dead, path=DEAD_LETTERS)[dead.token or b""], NotAllowed)
    assert harness.settle(Complete(), dead, path=DEAD_LETTERS) == {}


def test_a_dead_letter_may_fail_as_often_as_it_likes(harness: NamespaceHarness) -> None:
    harness.send("a")
    harness.settle(DeadLetter(), *harness.receive())
    for _ in range(5):
        harness.settle(Abandon(), *harness.receive(path=DEAD_LETTERS), path=DEAD_LETTERS)
    (dead,) = harness.receive(path=DEAD_LETTERS)
    assert dead.row.delivery_count == 5


def test_a_token_named_twice_is_settled_once(harness: NamespaceHarness) -> None:
    harness.send("a")
    (lent,) = harness.receive()
    assert harness.settle(Complete(), lent, lent) == {}


def test_each_token_is_settled_for_itself(harness: NamespaceHarness) -> None:
    harness.send("a", "b")
    one, other = harness.receive(2)
    harness.settle(Complete(), one)
    assert list(harness.settle(Complete(), one, other)) == [one.token]
    assert harness.queue.active == 0


@pytest.mark.parametrize("outcome", [Abandon({"a": 1}), Defer({"a": 1}), DeadLetter({"a": 1})])
def test_a_message_with_unreadable_properties_can_still_be_settled(
    harness: NamespaceHarness, outcome: Abandon | Defer | DeadLetter
) -> None:
    broken = b"\x00\x53\x74\xc1\x03\x02\xff\xff"  # application properties of a right size, with nonsense inside
    harness.send(Arrival(broken, "broken", None, None, None))
    assert harness.settle(outcome, *harness.receive()) == {}
    path = DEAD_LETTERS if isinstance(outcome, DeadLetter) else QUEUE
    assert [row.payload for row in harness.peek(path=path)] == [broken]


# --- deferred ---


def test_a_deferred_message_is_had_only_by_its_sequence(harness: NamespaceHarness) -> None:
    harness.send("a", "b")
    harness.settle(Defer({"step": 2}), *harness.receive())
    assert names(harness.receive(2)) == ["b"]
    (found,) = harness.receive_deferred(1).found
    assert (found.row.message_id, found.row.state) == ("a", MessageState.DEFERRED)
    assert properties_of(found.row) == {"step": 2}
    assert found.locked_until_ms == harness.now_ms + LOCK_MS


def test_a_deferred_message_does_not_expire(harness: NamespaceHarness) -> None:
    harness.send(arrival("a", ttl_ms=SECOND_MS))
    harness.settle(Defer(), *harness.receive())
    harness.pass_time(100 * SECOND_MS)
    (found,) = harness.receive_deferred(1).found
    harness.pass_time(LOCK_MS)  # nor when a lock on it ends
    assert found.row.expires_at_ms is None
    assert len(harness.receive_deferred(1).found) == 1


@pytest.mark.parametrize("outcome", [Abandon(), Release(), Defer()])
def test_a_deferred_message_that_is_given_back_stays_deferred(
    harness: NamespaceHarness, outcome: Abandon | Release | Defer
) -> None:
    harness.send("a")
    harness.settle(Defer(), *harness.receive())
    (found,) = harness.receive_deferred(1).found
    harness.ask(SettleMessages(QUEUE, (found.token or b"",), outcome))
    assert harness.receive() == []
    (again,) = harness.receive_deferred(1).found
    assert again.row.delivery_count == (1 if isinstance(outcome, Abandon) else 0)


def test_a_deferred_message_fails_when_its_lock_ends(harness: NamespaceHarness) -> None:
    harness.send("a")
    harness.settle(Defer(), *harness.receive())
    for failures in range(3):
        assert harness.receive_deferred(1).found[0].row.delivery_count == failures
        harness.pass_time(LOCK_MS)
    assert names(harness.peek(path=DEAD_LETTERS)) == ["a"]
    assert (harness.queue.deferred, harness.dead_letters.active) == (0, 1)


# --- receivers ---


def test_receivers_with_credit_take_turns(harness: NamespaceHarness) -> None:
    for receiver in (1, 2, 3):
        harness.open(receiver, credit=2)
    harness.take()
    harness.send(*"abcdef")
    assert [(each.receiver, each.row.message_id) for each in harness.deliveries()] == [
        (1, "a"), (2, "b"), (3, "c"), (1, "d"), (2, "e"), (3, "f"),
    ]  # fmt: skip


def test_a_receiver_gets_no_more_than_its_credit(harness: NamespaceHarness) -> None:
    harness.send(*"abcde")
    harness.open(1, credit=2)
    assert names(harness.deliveries()) == ["a", "b"]
    harness.do(Grant(1, 2))  # the same limit again is no new credit
    assert harness.deliveries() == []
    harness.do(Grant(1, 3))
    assert names(harness.deliveries()) == ["c"]


def test_a_paused_receiver_gets_nothing_until_it_goes_on(harness: NamespaceHarness) -> None:
    harness.open(1, credit=5)
    harness.do(PauseReceiver(1))
    harness.take()
    harness.send("a")
    assert harness.deliveries() == []
    harness.do(ResumeReceiver(1))
    assert names(harness.deliveries()) == ["a"]


def test_a_drain_gives_what_is_there_and_takes_the_rest_of_the_credit_back(harness: NamespaceHarness) -> None:
    harness.send("a")
    harness.open(1)
    harness.take()
    harness.do(Grant(1, 5, drain=True))
    delivery, drained = harness.take()
    assert isinstance(delivery, Delivery)
    assert drained == ReceiverDrained(1)
    harness.send("b")
    assert harness.deliveries() == []
    harness.do(Grant(1, 6))
    assert names(harness.deliveries()) == ["b"]


def test_a_drain_waits_for_messages_that_are_being_deleted(harness: NamespaceHarness) -> None:
    harness.send("a")
    harness.open(1, deletes=True)
    harness.take()
    harness.do(Grant(1, 5, drain=True))
    assert harness.take() == []
    harness.commit()
    delivery, drained = harness.take()
    assert isinstance(delivery, Delivery)
    assert drained == ReceiverDrained(1)


def test_a_message_to_be_deleted_is_delivered_only_when_it_is_deleted(harness: NamespaceHarness) -> None:
    harness.send("a")
    harness.open(1, credit=1, deletes=True)
    assert harness.deliveries() == []
    harness.commit()
    (delivery,) = harness.deliveries()
    assert (delivery.token, delivery.locked_until_ms) == (None, None)
    assert harness.peek() == []


def test_a_lock_waits_for_no_commit(harness: NamespaceHarness) -> None:
    harness.send("a")
    harness.open(1, credit=1)
    assert names(harness.deliveries()) == ["a"]


# --- scheduled ---


def test_a_scheduled_message_wakes_at_its_time_with_a_new_number(harness: NamespaceHarness) -> None:
    due_at_ms = START_MS + 5 * SECOND_MS
    assert harness.send(arrival("later", due_at_ms=due_at_ms, ttl_ms=SECOND_MS)) == (1,)
    assert harness.send("now") == (2,)
    harness.open(1, credit=5)
    assert names(harness.deliveries()) == ["now"]
    harness.pass_time(5 * SECOND_MS - 1)
    assert harness.deliveries() == []
    harness.pass_time(1)
    (delivery,) = harness.deliveries()
    row = delivery.row
    assert (row.message_id, row.sequence, row.state) == ("later", 3, MessageState.ACTIVE)
    assert (row.enqueued_at_ms, row.expires_at_ms) == (due_at_ms, due_at_ms + SECOND_MS)


def test_a_scheduled_message_that_wakes_late_is_enqueued_when_it_wakes(harness: NamespaceHarness) -> None:
    harness.send(arrival("later", due_at_ms=START_MS + 1, ttl_ms=SECOND_MS))
    harness.pass_time(60 * SECOND_MS)
    (delivery,) = harness.receive()
    assert delivery.row.enqueued_at_ms == harness.now_ms
    assert delivery.row.expires_at_ms == harness.now_ms + SECOND_MS


def test_a_time_that_has_passed_schedules_nothing(harness: NamespaceHarness) -> None:
    harness.send(arrival("a", due_at_ms=START_MS))
    assert names(harness.receive()) == ["a"]


def test_more_scheduled_messages_than_one_sweep_takes_all_wake_in_order(harness: NamespaceHarness) -> None:
    harness.send(*[arrival(f"m{number}", due_at_ms=START_MS + 1) for number in range(250)])
    harness.pass_time(1)
    woken = harness.receive(250)
    assert names(woken) == [f"m{number}" for number in range(250)]
    assert (harness.queue.scheduled, harness.queue.active) == (0, 250)


# --- beyond the window ---


def test_messages_beyond_the_window_are_read_from_disk_in_order() -> None:
    harness = NamespaceHarness(limits=WindowLimits(rows_max=4))
    harness.send(*[f"m{number}" for number in range(50)])
    assert harness.queue.held_rows <= 4
    assert names(harness.receive(50)) == [f"m{number}" for number in range(50)]


def test_a_message_that_comes_back_goes_before_those_on_disk() -> None:
    harness = NamespaceHarness(limits=WindowLimits(rows_max=2))
    harness.send(*[f"m{number}" for number in range(10)])
    lent = harness.receive(6)
    harness.settle(Release(), lent[3])
    assert names(harness.receive(3)) == ["m3", "m6", "m7"]


def test_expired_messages_on_disk_are_skipped_and_removed() -> None:
    harness = NamespaceHarness(limits=WindowLimits(rows_max=2))
    harness.send(*[arrival(f"m{number}", ttl_ms=SECOND_MS if number % 2 else None) for number in range(10)])
    harness.pass_time(SECOND_MS)
    assert names(harness.receive(10)) == ["m0", "m2", "m4", "m6", "m8"]
    assert harness.queue.active == 5


def test_a_drain_waits_for_rows_that_are_being_read() -> None:
    harness = NamespaceHarness(limits=WindowLimits(rows_max=2))
    harness.send(*"abcdef")
    harness.open(1)
    harness.take()
    harness.do(Grant(1, 10, drain=True))
    replies = harness.take()
    assert names([each for each in replies if isinstance(each, Delivery)]) == [*"abcdef"]
    assert replies[-1] == ReceiverDrained(1)


def test_after_a_restart_everything_is_there_in_order() -> None:
    harness = NamespaceHarness(limits=WindowLimits(rows_max=3))
    harness.send(*"abcdef")
    harness.settle(Complete(), harness.receive(2)[1])
    harness.restart()
    assert (harness.queue.active, names(harness.receive(10))) == (5, [*"acdef"])
    assert harness.send("g") == (7,)


def test_sequence_numbers_are_not_used_again_when_the_queue_was_emptied(harness: NamespaceHarness) -> None:
    harness.send("a", "b")
    harness.settle(Complete(), *harness.receive(2))
    harness.restart()
    assert harness.send("c") == (3,)


def test_nothing_is_remembered_when_nothing_is_under_way(harness: NamespaceHarness) -> None:
    harness.send(*"abc")
    lent = harness.receive(3)
    harness.settle(Complete(), lent[0])
    harness.settle(Abandon(), lent[1])
    harness.do(Tick())
    harness.commit()
    assert len(harness.queue.recent) == 0


def test_deliveries_ascend_for_each_receiver(harness: NamespaceHarness) -> None:
    harness.open(1, credit=100)
    for number in range(20):
        harness.send(f"m{number}")
    order = list(sequences_of(harness.deliveries()))
    assert order == sorted(order)
