"""What a queue does with messages, from the send to their end."""

from __future__ import annotations

import pytest
from namespace_harness import (
    DEAD_LETTERS,
    QUEUE,
    SECOND_MS,
    START_MS,
    Bench,
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
from twinbus.broker.entities.settings import QueueSettings
from twinbus.broker.entities.window import WindowLimits
from twinbus.broker.message import Arrival
from twinbus.broker.operations import Abandon, Complete, DeadLetter, Defer, ReceiverDrained, Release, Settled
from twinbus.broker.store.api import MessageState
from twinbus.errors import LockLost, NotAllowed, QuotaExceeded

LOCK_MS = 10 * SECOND_MS


@pytest.fixture
def bench() -> Bench:
    return Bench(QueueSettings(lock_ms=LOCK_MS, max_delivery_count=3))


# --- in ---


def test_messages_are_numbered_from_one_in_the_order_they_were_sent(bench: Bench) -> None:
    assert bench.send("a") == (1,)
    assert bench.send("b", "c") == (2, 3)
    assert names(bench.receive(3)) == ["a", "b", "c"]


def test_a_message_appears_only_when_it_is_durable(bench: Bench) -> None:
    bench.open(1, credit=5)
    bench.do(SendMessages(QUEUE, (arrival("a"),)))
    assert bench.deliveries() == []
    bench.commit()
    assert names(bench.deliveries()) == ["a"]


def test_a_full_queue_refuses_a_batch_as_a_whole() -> None:
    bench = Bench(QueueSettings(max_size_mb=1))
    big = arrival("big", body=bytes(600_000))
    bench.send(big)
    error = bench.refusal(SendMessages(QUEUE, (arrival("small"), big)))
    assert isinstance(error, QuotaExceeded)
    assert "raise its maximum size" in str(error)
    assert names(bench.peek()) == ["big"]
    assert bench.send("small")


def test_dead_letters_count_against_the_size_of_their_queue() -> None:
    bench = Bench(QueueSettings(max_size_mb=1))
    bench.send(arrival("big", body=bytes(600_000)))
    bench.settle(DeadLetter(), *bench.receive())
    assert isinstance(bench.refusal(SendMessages(QUEUE, (arrival("more", body=bytes(600_000)),))), QuotaExceeded)
    bench.settle(Complete(), *bench.receive(path=DEAD_LETTERS), path=DEAD_LETTERS)
    assert bench.send(arrival("more", body=bytes(600_000)))


def test_nobody_can_send_to_a_dead_letter_queue(bench: Bench) -> None:
    assert isinstance(bench.refusal(SendMessages(DEAD_LETTERS, (arrival("a"),))), NotAllowed)


# --- time to live ---


def test_a_message_is_not_delivered_after_its_time_to_live(bench: Bench) -> None:
    bench.send(arrival("short", ttl_ms=SECOND_MS), arrival("long"))
    bench.now_ms += SECOND_MS  # the sweep has not come yet
    assert names(bench.receive(2)) == ["long"]


def test_expired_messages_are_removed_though_nobody_receives(bench: Bench) -> None:
    bench.send(arrival("short", ttl_ms=SECOND_MS), arrival("long", ttl_ms=5 * SECOND_MS))
    bench.pass_time(SECOND_MS)
    assert names(bench.peek()) == ["long"]
    assert bench.queue.active == 1
    bench.pass_time(4 * SECOND_MS)
    assert (bench.queue.active, bench.queue.payload_bytes) == (0, 0)


def test_the_time_to_live_of_the_queue_is_a_default_and_a_ceiling() -> None:
    bench = Bench(QueueSettings(default_ttl_ms=5 * SECOND_MS))
    bench.send(arrival("none"), arrival("longer", ttl_ms=9 * SECOND_MS), arrival("shorter", ttl_ms=SECOND_MS))
    expiries = {row.message_id: row.expires_at_ms for row in bench.peek()}
    ceiling = START_MS + 5 * SECOND_MS
    assert expiries == {"none": ceiling, "longer": ceiling, "shorter": START_MS + SECOND_MS}


def test_expired_messages_are_dead_lettered_if_the_queue_says_so() -> None:
    bench = Bench(QueueSettings(dead_letter_on_expiration=True))
    bench.send(arrival("a", ttl_ms=SECOND_MS))
    bench.pass_time(SECOND_MS)
    (dead,) = bench.peek(path=DEAD_LETTERS)
    assert properties_of(dead)["DeadLetterReason"] == "TTLExpiredException"
    assert dead.dead_letter_source == QUEUE


def test_expired_messages_are_gone_if_the_queue_does_not_say_so() -> None:
    bench = Bench(QueueSettings(dead_letter_on_expiration=False))
    bench.send(arrival("a", ttl_ms=SECOND_MS))
    bench.pass_time(SECOND_MS)
    assert names(bench.peek()) == names(bench.peek(path=DEAD_LETTERS)) == []


def test_a_dead_letter_does_not_expire() -> None:
    bench = Bench(QueueSettings(default_ttl_ms=SECOND_MS, dead_letter_on_expiration=True))
    bench.send("a")
    bench.pass_time(100 * SECOND_MS)
    assert names(bench.peek(path=DEAD_LETTERS)) == ["a"]


def test_a_message_that_expires_while_it_is_locked_can_still_be_completed(bench: Bench) -> None:
    bench.send(arrival("a", ttl_ms=SECOND_MS))
    lent = bench.receive()
    bench.pass_time(2 * SECOND_MS)
    assert bench.settle(Complete(), *lent) == {}


@pytest.mark.parametrize("verdict", [Abandon(), Release()])
def test_a_message_that_is_given_back_after_its_time_to_live_expires(bench: Bench, verdict: Abandon | Release) -> None:
    bench.send(arrival("a", ttl_ms=SECOND_MS))
    lent = bench.receive()
    bench.pass_time(2 * SECOND_MS)
    bench.settle(verdict, *lent)
    bench.pass_time(0)
    assert bench.queue.active == 0


def test_locked_messages_do_not_keep_others_from_expiring(bench: Bench) -> None:
    bench.send(*[arrival(f"m{number}", ttl_ms=SECOND_MS) for number in range(300)])
    bench.receive(200)
    bench.pass_time(SECOND_MS)
    assert bench.queue.active == 200


def test_more_expired_messages_than_one_sweep_takes_all_go(bench: Bench) -> None:
    bench.send(*[arrival(f"m{number}", ttl_ms=SECOND_MS) for number in range(350)])
    bench.pass_time(SECOND_MS)
    assert bench.queue.active == 0


# --- locks ---


def test_a_lent_message_is_not_lent_again_while_its_lock_holds(bench: Bench) -> None:
    bench.send("a")
    (lent,) = bench.receive()
    assert lent.locked_until_ms == START_MS + LOCK_MS
    bench.pass_time(LOCK_MS - 1)
    assert bench.receive() == []


def test_an_ended_lock_gives_the_message_back_with_one_more_failure(bench: Bench) -> None:
    bench.send("a")
    (first,) = bench.receive()
    bench.pass_time(LOCK_MS)
    (second,) = bench.receive()
    assert (first.row.delivery_count, second.row.delivery_count) == (0, 1)
    assert first.token != second.token
    assert isinstance(bench.settle(Complete(), first)[first.token or b""], LockLost)
    assert bench.settle(Complete(), second) == {}


def test_a_lock_that_has_ended_cannot_be_settled_even_before_anybody_noticed(bench: Bench) -> None:
    bench.send("a")
    lent = bench.receive()
    bench.now_ms += LOCK_MS
    assert isinstance(bench.settle(Complete(), *lent)[lent[0].token or b""], LockLost)


def test_a_renewed_lock_holds_for_its_full_time_again(bench: Bench) -> None:
    bench.send("a", "b")
    lent = bench.receive(2)
    bench.pass_time(LOCK_MS - 1)
    reply = bench.ask(RenewMessageLocks(QUEUE, (lent[0].token or b"",)))
    assert isinstance(reply, LocksRenewed)
    assert reply.until_ms == (bench.now_ms + LOCK_MS,)
    bench.pass_time(LOCK_MS - 1)
    assert bench.settle(Complete(), lent[0]) == {}
    assert names(bench.receive(2)) == ["b"]


def test_locks_are_renewed_all_or_none(bench: Bench) -> None:
    bench.send("a")
    (lent,) = bench.receive()
    bench.pass_time(LOCK_MS - 1)
    assert isinstance(bench.refusal(RenewMessageLocks(QUEUE, (lent.token or b"", b"unknown"))), LockLost)
    bench.pass_time(1)
    assert names(bench.receive()) == ["a"]


def test_more_locks_than_one_step_ends_all_end(bench: Bench) -> None:
    bench.send(*[f"m{number}" for number in range(1_200)])
    assert len(bench.receive(1_200)) == 1_200
    bench.pass_time(LOCK_MS)
    assert len(bench.queue.locks) == 0
    assert [each.row.delivery_count for each in bench.receive(1_200)] == [1] * 1_200


def test_locks_end_with_the_process_and_count_nothing(bench: Bench) -> None:
    bench.send("a")
    (before,) = bench.receive()
    bench.restart()
    assert isinstance(bench.settle(Complete(), before)[before.token or b""], LockLost)
    (again,) = bench.receive()
    assert again.row.delivery_count == 0


# --- verdicts ---


def test_a_completed_message_is_gone(bench: Bench) -> None:
    bench.send("a", "b")
    bench.settle(Complete(), *bench.receive(2))
    assert bench.peek() == []
    assert (bench.queue.active, bench.queue.payload_bytes) == (0, 0)


def test_an_abandoned_message_comes_back_before_later_ones_with_one_more_failure(bench: Bench) -> None:
    bench.send("a", "b", "c")
    bench.settle(Abandon({"why": "busy"}), *bench.receive())
    first, second = bench.receive(2)
    assert names([first, second]) == ["a", "b"]
    assert (first.row.delivery_count, second.row.delivery_count) == (1, 0)
    assert properties_of(first.row) == {"why": "busy"}


def test_an_abandoned_message_comes_back_only_when_its_failure_is_durable(bench: Bench) -> None:
    bench.send("a")
    (lent,) = bench.receive()
    bench.open(1, credit=1)
    bench.take()
    bench.do(SettleMessages(QUEUE, (lent.token or b"",), Abandon(), "origin"))
    assert bench.take() == []
    bench.commit()
    settled, delivery = bench.take()
    assert isinstance(settled, Settled)
    assert isinstance(delivery, Delivery)


def test_a_released_message_comes_back_at_once_as_if_nothing_had_happened(bench: Bench) -> None:
    bench.send("a", "b")
    (lent,) = bench.receive()
    bench.open(1, credit=1)
    bench.settle(Release(), lent)
    (again,) = bench.receive()
    assert (again.row.message_id, again.row.delivery_count) == ("a", 0)


def test_the_last_allowed_failure_moves_a_message_to_the_dead_letters(bench: Bench) -> None:
    bench.send("a")
    for _ in range(2):
        bench.settle(Abandon(), *bench.receive())
    bench.receive()
    bench.pass_time(LOCK_MS)  # an ended lock counts like an abandon
    assert bench.receive() == []
    (dead,) = bench.receive(path=DEAD_LETTERS)
    assert dead.row.delivery_count == 3
    assert properties_of(dead.row)["DeadLetterReason"] == "MaxDeliveryCountExceeded"


def test_a_dead_lettered_message_carries_the_reason_its_receiver_gave(bench: Bench) -> None:
    sequences = bench.send("zero", "a")[1:]
    bench.settle(DeadLetter({"DeadLetterReason": "NoSuchCustomer"}), bench.receive(2)[1])
    (dead,) = bench.receive(path=DEAD_LETTERS)
    assert properties_of(dead.row) == {"DeadLetterReason": "NoSuchCustomer"}
    assert (dead.row.sequence, dead.row.enqueue_sequence) == (1, sequences[0])
    assert dead.row.dead_letter_source == QUEUE


def test_a_dead_letter_cannot_be_dead_lettered_again_and_stays_locked(bench: Bench) -> None:
    bench.send("a")
    bench.settle(DeadLetter(), *bench.receive())
    (dead,) = bench.receive(path=DEAD_LETTERS)
    assert isinstance(bench.settle(DeadLetter(), dead, path=DEAD_LETTERS)[dead.token or b""], NotAllowed)
    assert bench.settle(Complete(), dead, path=DEAD_LETTERS) == {}


def test_a_dead_letter_may_fail_as_often_as_it_likes(bench: Bench) -> None:
    bench.send("a")
    bench.settle(DeadLetter(), *bench.receive())
    for _ in range(5):
        bench.settle(Abandon(), *bench.receive(path=DEAD_LETTERS), path=DEAD_LETTERS)
    (dead,) = bench.receive(path=DEAD_LETTERS)
    assert dead.row.delivery_count == 5


def test_a_token_named_twice_is_settled_once(bench: Bench) -> None:
    bench.send("a")
    (lent,) = bench.receive()
    assert bench.settle(Complete(), lent, lent) == {}


def test_each_token_is_settled_for_itself(bench: Bench) -> None:
    bench.send("a", "b")
    one, other = bench.receive(2)
    bench.settle(Complete(), one)
    assert list(bench.settle(Complete(), one, other)) == [one.token]
    assert bench.queue.active == 0


@pytest.mark.parametrize("verdict", [Abandon({"a": 1}), Defer({"a": 1}), DeadLetter({"a": 1})])
def test_a_message_with_unreadable_properties_can_still_be_settled(
    bench: Bench, verdict: Abandon | Defer | DeadLetter
) -> None:
    broken = b"\x00\x53\x74\xc1\x03\x02\xff\xff"  # application properties of a right size, with nonsense inside
    bench.send(Arrival(broken, "broken", None, None, None))
    assert bench.settle(verdict, *bench.receive()) == {}
    path = DEAD_LETTERS if isinstance(verdict, DeadLetter) else QUEUE
    assert [row.payload for row in bench.peek(path=path)] == [broken]


# --- deferred ---


def test_a_deferred_message_is_had_only_by_its_sequence(bench: Bench) -> None:
    bench.send("a", "b")
    bench.settle(Defer({"step": 2}), *bench.receive())
    assert names(bench.receive(2)) == ["b"]
    (found,) = bench.receive_deferred(1).found
    assert (found.row.message_id, found.row.state) == ("a", MessageState.DEFERRED)
    assert properties_of(found.row) == {"step": 2}
    assert found.locked_until_ms == bench.now_ms + LOCK_MS


def test_a_deferred_message_does_not_expire(bench: Bench) -> None:
    bench.send(arrival("a", ttl_ms=SECOND_MS))
    bench.settle(Defer(), *bench.receive())
    bench.pass_time(100 * SECOND_MS)
    (found,) = bench.receive_deferred(1).found
    bench.pass_time(LOCK_MS)  # nor when a lock on it ends
    assert found.row.expires_at_ms is None
    assert len(bench.receive_deferred(1).found) == 1


@pytest.mark.parametrize("verdict", [Abandon(), Release(), Defer()])
def test_a_deferred_message_that_is_given_back_stays_deferred(bench: Bench, verdict: Abandon | Release | Defer) -> None:
    bench.send("a")
    bench.settle(Defer(), *bench.receive())
    (found,) = bench.receive_deferred(1).found
    bench.ask(SettleMessages(QUEUE, (found.token or b"",), verdict))
    assert bench.receive() == []
    (again,) = bench.receive_deferred(1).found
    assert again.row.delivery_count == (1 if isinstance(verdict, Abandon) else 0)


def test_a_deferred_message_fails_when_its_lock_ends(bench: Bench) -> None:
    bench.send("a")
    bench.settle(Defer(), *bench.receive())
    for failures in range(3):
        assert bench.receive_deferred(1).found[0].row.delivery_count == failures
        bench.pass_time(LOCK_MS)
    assert names(bench.peek(path=DEAD_LETTERS)) == ["a"]
    assert (bench.queue.deferred, bench.dead_letters.active) == (0, 1)


# --- receivers ---


def test_receivers_with_credit_take_turns(bench: Bench) -> None:
    for receiver in (1, 2, 3):
        bench.open(receiver, credit=2)
    bench.take()
    bench.send(*"abcdef")
    assert [(each.receiver, each.row.message_id) for each in bench.deliveries()] == [
        (1, "a"), (2, "b"), (3, "c"), (1, "d"), (2, "e"), (3, "f"),
    ]  # fmt: skip


def test_a_receiver_gets_no_more_than_its_credit(bench: Bench) -> None:
    bench.send(*"abcde")
    bench.open(1, credit=2)
    assert names(bench.deliveries()) == ["a", "b"]
    bench.do(Grant(1, 2))  # the same limit again is no new credit
    assert bench.deliveries() == []
    bench.do(Grant(1, 3))
    assert names(bench.deliveries()) == ["c"]


def test_a_paused_receiver_gets_nothing_until_it_goes_on(bench: Bench) -> None:
    bench.open(1, credit=5)
    bench.do(PauseReceiver(1))
    bench.take()
    bench.send("a")
    assert bench.deliveries() == []
    bench.do(ResumeReceiver(1))
    assert names(bench.deliveries()) == ["a"]


def test_a_drain_gives_what_is_there_and_takes_the_rest_of_the_credit_back(bench: Bench) -> None:
    bench.send("a")
    bench.open(1)
    bench.take()
    bench.do(Grant(1, 5, drain=True))
    delivery, drained = bench.take()
    assert isinstance(delivery, Delivery)
    assert drained == ReceiverDrained(1)
    bench.send("b")
    assert bench.deliveries() == []
    bench.do(Grant(1, 6))
    assert names(bench.deliveries()) == ["b"]


def test_a_drain_waits_for_messages_that_are_being_deleted(bench: Bench) -> None:
    bench.send("a")
    bench.open(1, deletes=True)
    bench.take()
    bench.do(Grant(1, 5, drain=True))
    assert bench.take() == []
    bench.commit()
    delivery, drained = bench.take()
    assert isinstance(delivery, Delivery)
    assert drained == ReceiverDrained(1)


def test_a_message_to_be_deleted_is_delivered_only_when_it_is_deleted(bench: Bench) -> None:
    bench.send("a")
    bench.open(1, credit=1, deletes=True)
    assert bench.deliveries() == []
    bench.commit()
    (delivery,) = bench.deliveries()
    assert (delivery.token, delivery.locked_until_ms) == (None, None)
    assert bench.peek() == []


def test_a_lock_waits_for_no_commit(bench: Bench) -> None:
    bench.send("a")
    bench.open(1, credit=1)
    assert names(bench.deliveries()) == ["a"]


# --- scheduled ---


def test_a_scheduled_message_wakes_at_its_time_with_a_new_number(bench: Bench) -> None:
    due_at_ms = START_MS + 5 * SECOND_MS
    assert bench.send(arrival("later", due_at_ms=due_at_ms, ttl_ms=SECOND_MS)) == (1,)
    assert bench.send("now") == (2,)
    bench.open(1, credit=5)
    assert names(bench.deliveries()) == ["now"]
    bench.pass_time(5 * SECOND_MS - 1)
    assert bench.deliveries() == []
    bench.pass_time(1)
    (delivery,) = bench.deliveries()
    row = delivery.row
    assert (row.message_id, row.sequence, row.state) == ("later", 3, MessageState.ACTIVE)
    assert (row.enqueued_at_ms, row.expires_at_ms) == (due_at_ms, due_at_ms + SECOND_MS)


def test_a_scheduled_message_that_wakes_late_is_enqueued_when_it_wakes(bench: Bench) -> None:
    bench.send(arrival("later", due_at_ms=START_MS + 1, ttl_ms=SECOND_MS))
    bench.pass_time(60 * SECOND_MS)
    (delivery,) = bench.receive()
    assert delivery.row.enqueued_at_ms == bench.now_ms
    assert delivery.row.expires_at_ms == bench.now_ms + SECOND_MS


def test_a_time_that_has_passed_schedules_nothing(bench: Bench) -> None:
    bench.send(arrival("a", due_at_ms=START_MS))
    assert names(bench.receive()) == ["a"]


def test_more_scheduled_messages_than_one_sweep_takes_all_wake_in_order(bench: Bench) -> None:
    bench.send(*[arrival(f"m{number}", due_at_ms=START_MS + 1) for number in range(250)])
    bench.pass_time(1)
    woken = bench.receive(250)
    assert names(woken) == [f"m{number}" for number in range(250)]
    assert (bench.queue.scheduled, bench.queue.active) == (0, 250)


# --- beyond the window ---


def test_messages_beyond_the_window_are_read_from_disk_in_order() -> None:
    bench = Bench(limits=WindowLimits(rows_max=4))
    bench.send(*[f"m{number}" for number in range(50)])
    assert bench.queue.held_rows <= 4
    assert names(bench.receive(50)) == [f"m{number}" for number in range(50)]


def test_a_message_that_comes_back_goes_before_those_on_disk() -> None:
    bench = Bench(limits=WindowLimits(rows_max=2))
    bench.send(*[f"m{number}" for number in range(10)])
    lent = bench.receive(6)
    bench.settle(Release(), lent[3])
    assert names(bench.receive(3)) == ["m3", "m6", "m7"]


def test_expired_messages_on_disk_are_skipped_and_removed() -> None:
    bench = Bench(limits=WindowLimits(rows_max=2))
    bench.send(*[arrival(f"m{number}", ttl_ms=SECOND_MS if number % 2 else None) for number in range(10)])
    bench.pass_time(SECOND_MS)
    assert names(bench.receive(10)) == ["m0", "m2", "m4", "m6", "m8"]
    assert bench.queue.active == 5


def test_a_drain_waits_for_rows_that_are_being_read() -> None:
    bench = Bench(limits=WindowLimits(rows_max=2))
    bench.send(*"abcdef")
    bench.open(1)
    bench.take()
    bench.do(Grant(1, 10, drain=True))
    replies = bench.take()
    assert names([each for each in replies if isinstance(each, Delivery)]) == [*"abcdef"]
    assert replies[-1] == ReceiverDrained(1)


def test_after_a_restart_everything_is_there_in_order() -> None:
    bench = Bench(limits=WindowLimits(rows_max=3))
    bench.send(*"abcdef")
    bench.settle(Complete(), bench.receive(2)[1])
    bench.restart()
    assert (bench.queue.active, names(bench.receive(10))) == (5, [*"acdef"])
    assert bench.send("g") == (7,)


def test_sequence_numbers_are_not_used_again_when_the_queue_was_emptied(bench: Bench) -> None:
    bench.send("a", "b")
    bench.settle(Complete(), *bench.receive(2))
    bench.restart()
    assert bench.send("c") == (3,)


def test_nothing_is_remembered_when_nothing_is_under_way(bench: Bench) -> None:
    bench.send(*"abc")
    lent = bench.receive(3)
    bench.settle(Complete(), lent[0])
    bench.settle(Abandon(), lent[1])
    bench.do(Tick())
    bench.commit()
    assert len(bench.queue.recent) == 0


def test_deliveries_ascend_for_each_receiver(bench: Bench) -> None:
    bench.open(1, credit=100)
    for number in range(20):
        bench.send(f"m{number}")
    order = list(sequences_of(bench.deliveries()))
    assert order == sorted(order)
