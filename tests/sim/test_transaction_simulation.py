"""Simulated transactions happen as a whole or not at all, and the simulator notices when one does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from seeds import found, seed_count

from sim.__main__ import main
from sim.runner import first_transaction_problem, run_transaction_seed
from twinbus.broker.core import transactions
from twinbus.broker.core.replies import AddressedReply, Step
from twinbus.broker.core.transactions import Commit, Enlisted, Transaction, Transactions
from twinbus.broker.entities.entity import MessagingEntity
from twinbus.broker.operations import Done
from twinbus.broker.store.api import Read

SEEDS, CHUNK, STEPS = seed_count(80, 1_000), 40, 300
SEEDS_TO_FIND_A_BUG = 300


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_of_a_transaction_everything_happens_or_nothing(first: int) -> None:
    outcome = first_transaction_problem(range(first, first + CHUNK), STEPS)
    assert outcome is None, f"{outcome.problem}\nagain: {outcome.replay}"


@pytest.mark.long
def test_the_simulations_of_transactions_meet_everything_they_are_about() -> None:
    seen: Counter[str] = Counter()
    for seed in range(1_000, 1_100):
        seen += run_transaction_seed(seed, STEPS).seen
    assert {
        "crashes", "store failed", "timed out", "ended: DONE", "ended: BACK",
        "not settled: LockLost", "not settled: NotAllowed",
        "refused: QuotaExceeded", "refused: SessionLockLost", "refused: StoreUnavailable",
        "refused: TransactionRolledBack",
    } <= set(seen)  # fmt: skip


def test_a_seed_of_transactions_always_gives_the_same_trace() -> None:
    assert run_transaction_seed(7) == run_transaction_seed(7)


def test_the_command_simulates_transactions() -> None:
    assert main(["--transactions", "--seeds", "3"]) == 0


# --- planted bugs: each of these must be found ---


original_sends = Transactions._prepared_sends


def store_while_checking(self: Transactions, commit: Commit, step: Step) -> Iterator[Callable[[], object]]:
    """What can be stored is stored before the rest is checked."""
    for store in original_sends(self, commit, step):
        store()
    yield from ()


def mark_nothing(transaction: Transaction) -> None:
    """Locks of what is rolled back stay with the transaction."""


def settle_for_anybody(self: Transactions, transaction: Transaction, enlisted: Enlisted, now_ms: int) -> Any:
    reply = original_check(self, transaction, enlisted, now_ms)
    for lock in enlisted.locks:
        lock.transaction = None
    return reply


original_check = Transactions._check


def never_end(self: Transactions, now_ms: int, step: Step) -> None:
    for _ in self._ends.take_due(now_ms):
        pass


def answer_at_once(self: Transactions, commit: Commit, now_ms: int, step: Step) -> None:
    step.immediate.append(AddressedReply(commit.request_id, Done()))
    original_commit(self, commit, now_ms, step)
    step.replies = [each for each in step.replies if getattr(each, "request_id", None) != commit.request_id]


original_commit = Transactions._commit


def forget_what_was_read(self: Transactions, read: Read, now_ms: int, step: Step) -> None:
    commit = self._take_waiting(read.request)
    commit.found.append(read)
    if commit.missing == 0:
        step.reply_to(commit.request_id, Done())
        self._end_reads(commit)


def find_no_duplicates(self: MessagingEntity, *given: Any) -> Callable[[], object]:
    arrivals, reserved, _, now_ms, step = given
    return self.prepare_send(arrivals, reserved, now_ms, step)


@pytest.mark.parametrize(
    ("where", "name", "bug"),
    [
        (Transactions, "_prepared_sends", store_while_checking),
        (Transactions, "_check", settle_for_anybody),
        (Transactions, "take_ended", never_end),
        (Transactions, "_commit", answer_at_once),
        (Transactions, "resume", forget_what_was_read),
        (MessagingEntity, "prepare_new", find_no_duplicates),
    ],
    ids=lambda given: getattr(given, "__name__", given),
)
def test_a_bug_in_transactions_is_found(
    where: type, name: str, bug: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, bug)
    planted = f"transactions: {bug.__name__}"
    outcome = found(planted, lambda seeds: first_transaction_problem(seeds, STEPS), SEEDS_TO_FIND_A_BUG)
    assert outcome is not None


def test_locks_that_stay_with_a_transaction_that_is_over_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "_unmark", mark_nothing)
    bug = "transactions: mark_nothing"
    assert found(bug, lambda seeds: first_transaction_problem(seeds, STEPS), SEEDS_TO_FIND_A_BUG) is not None
