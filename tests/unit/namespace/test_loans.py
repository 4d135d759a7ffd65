"""Messages lent under a lock."""

from __future__ import annotations

from namespace_bench import row

from twinbus.namespace.entities.loans import Loans

NOW = 1_000


def lent(loans: Loans, sequence: int, until_ms: int) -> bytes:
    token = sequence.to_bytes(16, "big")
    loans.lend(row(sequence), token, until_ms)
    return token


def test_a_loan_is_found_while_its_lock_holds() -> None:
    loans = Loans()
    token = lent(loans, 1, until_ms=NOW + 10)
    found = loans.find(token, NOW + 9)
    assert found is not None
    assert found.row == row(1)
    assert loans.find(token, NOW + 10) is None
    assert loans.find(b"unknown", NOW) is None
    assert loans.is_lent(1)


def test_an_ended_loan_is_nobodys() -> None:
    loans = Loans()
    token = lent(loans, 1, until_ms=NOW + 10)
    found = loans.find(token, NOW)
    assert found is not None
    loans.end(found)
    assert loans.find(token, NOW) is None
    assert not loans.is_lent(1)
    assert len(loans) == 0
    assert loans.next_end_ms() is None


def test_locks_end_in_the_order_of_their_times() -> None:
    loans = Loans()
    for sequence, until_ms in ((1, 30), (2, 10), (3, 20)):
        lent(loans, sequence, until_ms)
    assert loans.next_end_ms() == 10
    assert [loan.row.sequence for loan in loans.take_ended(20, most=10)] == [2, 3]
    assert loans.next_end_ms() == 30


def test_no_more_locks_end_at_once_than_allowed() -> None:
    loans = Loans()
    for sequence in range(1, 6):
        lent(loans, sequence, until_ms=10)
    assert len(list(loans.take_ended(10, most=3))) == 3
    assert loans.next_end_ms() == 10
    assert len(list(loans.take_ended(10, most=3))) == 2


def test_a_renewed_lock_ends_at_its_new_time() -> None:
    loans = Loans()
    token = lent(loans, 1, until_ms=10)
    found = loans.find(token, 5)
    assert found is not None
    loans.renew(found, 50)
    assert list(loans.take_ended(10, most=5)) == []
    assert loans.find(token, 49) is found
    assert [loan.token for loan in loans.take_ended(50, most=5)] == [token]


def test_settled_and_renewed_locks_do_not_pile_up() -> None:
    loans = Loans()
    token = lent(loans, 1, until_ms=10)
    for until_ms in range(11, 2_000):
        found = loans.find(token, 5)
        assert found is not None
        loans.renew(found, until_ms)
        loans.next_end_ms()
    assert len(loans._ends) < 100
    assert [loan.until_ms for loan in loans.take_ended(5_000, most=5)] == [1_999]
