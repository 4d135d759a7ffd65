"""Messages lent under a lock."""

from __future__ import annotations

from namespace_harness import row

from twinbus.broker.entities.locks import MessageLocks

NOW = 1_000


def lent(locks: MessageLocks, sequence: int, until_ms: int) -> bytes:
    token = sequence.to_bytes(16, "big")
    locks.add(row(sequence), token, until_ms)
    return token


def test_a_loan_is_found_while_its_lock_holds() -> None:
    locks = MessageLocks()
    token = lent(locks, 1, until_ms=NOW + 10)
    found = locks.find(token, NOW + 9)
    assert found is not None
    assert found.row == row(1)
    assert locks.find(token, NOW + 10) is None
    assert locks.find(b"unknown", NOW) is None
    assert locks.is_locked(1)


def test_an_ended_loan_is_nobodys() -> None:
    locks = MessageLocks()
    token = lent(locks, 1, until_ms=NOW + 10)
    found = locks.find(token, NOW)
    assert found is not None
    locks.end(found)
    assert locks.find(token, NOW) is None
    assert not locks.is_locked(1)
    assert len(locks) == 0
    assert locks.next_end_ms() is None


def test_locks_end_in_the_order_of_their_times() -> None:
    locks = MessageLocks()
    for sequence, until_ms in ((1, 30), (2, 10), (3, 20)):
        lent(locks, sequence, until_ms)
    assert locks.next_end_ms() == 10
    assert [lock.row.sequence for lock in locks.take_ended(20, most=10)] == [2, 3]
    assert locks.next_end_ms() == 30


def test_no_more_locks_end_at_once_than_allowed() -> None:
    locks = MessageLocks()
    for sequence in range(1, 6):
        lent(locks, sequence, until_ms=10)
    assert len(list(locks.take_ended(10, most=3))) == 3
    assert locks.next_end_ms() == 10
    assert len(list(locks.take_ended(10, most=3))) == 2


def test_a_renewed_lock_ends_at_its_new_time() -> None:
    locks = MessageLocks()
    token = lent(locks, 1, until_ms=10)
    found = locks.find(token, 5)
    assert found is not None
    locks.renew(found, 50)
    assert list(locks.take_ended(10, most=5)) == []
    assert locks.find(token, 49) is found
    assert [lock.token for lock in locks.take_ended(50, most=5)] == [token]


def test_settled_and_renewed_locks_do_not_pile_up() -> None:
    locks = MessageLocks()
    token = lent(locks, 1, until_ms=10)
    for until_ms in range(11, 2_000):
        found = locks.find(token, 5)
        assert found is not None
        locks.renew(found, until_ms)
        locks.next_end_ms()
    assert len(locks._ends) < 100
    assert [lock.until_ms for lock in locks.take_ended(5_000, most=5)] == [1_999]
