"""Transactions in the machine: checked when work comes, checked again at the commit, all of it in one change set."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from namespace_harness import DEAD_LETTERS, QUEUE, SECOND_MS, NamespaceHarness, arrival, names

from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.broker.core.commands import (
    AcceptSession,
    BeginTransaction,
    CancelScheduled,
    Command,
    CreateQueue,
    CreateSubscription,
    CreateTopic,
    DeleteEntity,
    EndTransaction,
    Enlist,
    FindEntity,
    GetSessionState,
    SendMessages,
    SetSessionState,
    SettleMessages,
    UpdateQueue,
)
from twinbus.broker.core.replies import Delivery, SessionStateFound
from twinbus.broker.core.transactions import MESSAGES_MAX, SETTLEMENTS_MAX, TRANSACTION_MS
from twinbus.broker.entities.settings import QueueSettings, QueueStatus, TopicSettings
from twinbus.broker.message import Arrival, read_arrival
from twinbus.broker.operations import (
    Abandon,
    Complete,
    DeadLetter,
    Defer,
    Done,
    ReceiveMode,
    Refused,
    Release,
    Settled,
    SettlementOutcome,
    TransactionTimedOut,
)
from twinbus.broker.store.api import DiskSpaceChanged, MessageState
from twinbus.errors import (
    EntityNotFound,
    LockLost,
    NotAllowed,
    QuotaExceeded,
    TransactionRolledBack,
    UnknownTransaction,
)


class TransactionHarness(NamespaceHarness):
    def begin(self, number: int = 1) -> None:
        assert self.ask(BeginTransaction(number)) == Done()

    def enlist(self, work: Command[object], number: int = 1, via: str | None = None) -> object:
        reply = self.ask(Enlist(number, work, via))
        assert not isinstance(reply, Refused), reply
        return reply

    def send_in(self, *arrivals: Arrival | str, path: str = QUEUE, number: int = 1, via: str | None = None) -> Done:
        batch = tuple(arrival(each) if isinstance(each, str) else each for each in arrivals)
        reply = self.enlist(SendMessages(path, batch), number, via)
        assert isinstance(reply, Done)
        return reply

    def settle_in(self, outcome: SettlementOutcome, *deliveries: Delivery, number: int = 1) -> None:
        tokens = tuple(each.token for each in deliveries if each.token)
        assert self.enlist(SettleMessages(QUEUE, tokens, outcome), number) == Settled({})

    def end(self, *, commits: bool = True, number: int = 1) -> object:
        return self.ask(EndTransaction(number, commits))

    def rolled_back(self, number: int = 1) -> str:
        """Why a commit was refused."""
        reply = self.end(number=number)
        assert isinstance(reply, Refused)
        assert isinstance(reply.error, TransactionRolledBack)
        return str(reply.error)


@pytest.fixture
def space() -> TransactionHarness:
    return TransactionHarness()


def test_everything_of_a_commit_is_in_one_change_set(space: TransactionHarness) -> None:
    space.ask(CreateQueue("other", QueueSettings()))
    space.send("old")
    (held,) = space.receive()
    space.begin()
    space.settle_in(Complete(), held)
    space.send_in("new")
    space.send_in("elsewhere", path="other", via=QUEUE)
    before = space.gate.machine._number
    space.do(EndTransaction(1, True), "end")
    assert (space.gate.machine._number, "end" in [name for name, _ in space.take_named()]) == (before + 1, False)
    space.commit()
    assert ("end", Done()) in space.take_named()
    assert (names(space.peek()), names(space.peek(path="other"))) == (["new"], ["elsewhere"])


def test_a_crash_before_the_commit_is_durable_leaves_nothing(space: TransactionHarness) -> None:
    space.send("old")
    (held,) = space.receive()
    space.begin()
    space.settle_in(Complete(), held)
    space.send_in("new")
    space.do(EndTransaction(1, True))
    space.restart()
    assert names(space.peek()) == ["old"]
    assert isinstance(space.refusal(EndTransaction(1, True)), UnknownTransaction)


@pytest.mark.parametrize(
    ("outcome", "stays", "is_dead"),
    [(Complete(), False, False), (Abandon(), True, False), (Release(), True, False), (Defer(), True, False),
     (DeadLetter({"DeadLetterReason": "x"}), False, True)],
)  # fmt: skip
def test_each_outcome_waits_for_the_commit(
    space: TransactionHarness, outcome: SettlementOutcome, stays: bool, is_dead: bool
) -> None:
    space.send("m")
    (held,) = space.receive()
    space.begin()
    space.settle_in(outcome, held)
    assert (names(space.peek()), space.receive()) == (["m"], [])
    assert space.end() == Done()
    assert (names(space.peek()), names(space.peek(path=DEAD_LETTERS))) == (stays * ["m"], is_dead * ["m"])


def test_a_lock_that_ends_before_the_commit_rolls_everything_back(space: TransactionHarness) -> None:
    space.send("m")
    (held,) = space.receive()
    space.begin()
    space.settle_in(Complete(), held)
    space.send_in("new")
    space.pass_time(60 * SECOND_MS)
    assert "the lock is unknown" in space.rolled_back()
    assert [(row.message_id, row.delivery_count) for row in space.peek()] == [("m", 1)]


def test_a_rollback_gives_the_message_to_its_receiver_as_it_was(space: TransactionHarness) -> None:
    space.send("m")
    (held,) = space.receive()
    space.begin()
    space.settle_in(DeadLetter(), held)
    assert isinstance(space.settle(Complete(), held)[held.token or b""], NotAllowed)
    assert space.end(commits=False) == Done()
    assert space.settle(Complete(), held) == {}
    assert space.peek() == []


def test_a_lock_that_is_lost_is_no_part_of_the_transaction(space: TransactionHarness) -> None:
    space.send("m")
    (held,) = space.receive()
    space.begin()
    reply = space.enlist(SettleMessages(QUEUE, (b"unknown", held.token or b""), Complete()))
    assert isinstance(reply, Settled)
    assert [type(error) for error in reply.failures.values()] == [LockLost]
    assert space.end() == Done()
    assert space.peek() == []


def test_two_minutes_after_its_first_operation_a_transaction_is_rolled_back(space: TransactionHarness) -> None:
    space.begin()
    space.pass_time(10 * TRANSACTION_MS)
    space.send_in("m")
    space.pass_time(2 * 60 * SECOND_MS - 1)
    space.send_in("n")
    space.take()
    space.pass_time(1)
    assert space.take() == [TransactionTimedOut(1)]
    assert isinstance(space.refusal(EndTransaction(1, True)), UnknownTransaction)
    assert isinstance(space.refusal(Enlist(1, SendMessages(QUEUE, (arrival("o"),)))), UnknownTransaction)
    assert space.peek() == []


def test_a_transaction_is_about_one_queue_or_topic(space: TransactionHarness) -> None:
    space.ask(CreateTopic("news", TopicSettings()))
    space.ask(CreateSubscription("news", "all", QueueSettings()))
    space.begin()
    space.send_in("a", path="news")
    error = space.refusal(Enlist(1, SendMessages(QUEUE, (arrival("b"),))))
    assert isinstance(error, NotAllowed)
    assert "cannot span multiple top-level entities" in str(error)
    space.enlist(SettleMessages("news/Subscriptions/all", (b"unknown",), Complete()))
    space.enlist(SettleMessages("news/Subscriptions/all/$deadletterqueue", (b"unknown",), Complete()))
    space.send_in("c", via="news")
    assert space.end() == Done()
    assert (names(space.peek()), names(space.peek(path="news/Subscriptions/all"))) == (["c"], ["a"])


def test_a_transaction_has_a_bounded_number_of_parts(space: TransactionHarness) -> None:
    space.begin()
    space.send_in(*[str(number) for number in range(MESSAGES_MAX)])
    error = space.refusal(Enlist(1, SendMessages(QUEUE, (arrival("one too many"),))))
    assert isinstance(error, QuotaExceeded)
    sequences = tuple(range(1, SETTLEMENTS_MAX + 1))
    assert isinstance(space.refusal(Enlist(1, CancelScheduled(QUEUE, (*sequences, 9)))), QuotaExceeded)
    tokens = tuple(number.to_bytes(16, "big") for number in sequences)
    assert isinstance(space.refusal(Enlist(1, SettleMessages(QUEUE, (*tokens, b""), Complete()))), QuotaExceeded)
    assert space.end() == Done()
    assert space.queue.active == MESSAGES_MAX


def make_full(space: TransactionHarness) -> None:
    for name in ("a", "b", "c", "d"):
        space.send(arrival(name, body=bytes(200_000)))


def disable(space: TransactionHarness) -> None:
    space.ask(UpdateQueue(QUEUE, QueueSettings(max_size_mb=1, status=QueueStatus.SEND_DISABLED)))


def delete(space: TransactionHarness) -> None:
    space.ask(DeleteEntity(QUEUE))
    space.ask(CreateQueue(QUEUE, QueueSettings()))


@pytest.mark.parametrize(
    ("happens", "reason"), [(make_full, "is full"), (disable, "nothing can be sent"), (delete, "was deleted")]
)
def test_what_is_not_possible_any_more_at_the_commit_rolls_everything_back(
    happens: Callable[[TransactionHarness], None], reason: str
) -> None:
    space = TransactionHarness(QueueSettings(max_size_mb=1))
    space.ask(CreateQueue("other", QueueSettings()))
    space.begin()
    space.send_in("elsewhere", path="other", via=QUEUE)
    space.send_in(arrival("large", body=bytes(250_000)))
    happens(space)
    assert reason in space.rolled_back()
    assert (space.peek(path="other"), "large" in names(space.peek())) == ([], False)
    space.begin(2)
    space.send_in("after", path="other", number=2)
    assert space.end(number=2) == Done()
    assert names(space.peek(path="other")) == ["after"]


def test_messages_of_a_transaction_need_room_together() -> None:
    space = TransactionHarness(QueueSettings(max_size_mb=1))
    space.begin()
    for name in "abcde":
        space.send_in(arrival(name, body=bytes(250_000)))
    assert "is full" in space.rolled_back()
    assert (space.peek(), space.queue.stored_bytes) == ([], 0)


def test_duplicates_are_dropped_at_the_commit_and_remembered_only_then() -> None:
    space = TransactionHarness(QueueSettings(requires_duplicate_detection=True))
    space.send("known")
    for number, commits in ((1, False), (2, True)):
        space.begin(number)
        space.send_in("known", "new", number=number)
        space.send_in("new", "newer", number=number)
        assert space.end(number=number, commits=commits) == Done()
    assert names(space.peek()) == ["known", "new", "newer"]
    space.send("new")
    assert names(space.peek()) == ["known", "new", "newer"]


def test_what_is_scheduled_has_the_number_that_was_told(space: TransactionHarness) -> None:
    space.begin()
    due = space.send_in(arrival("due", due_at_ms=space.now_ms + SECOND_MS))
    over = space.send_in(arrival("over", due_at_ms=space.now_ms - SECOND_MS))
    space.send("meanwhile")
    assert space.end() == Done()
    waiting = [(row.message_id, row.sequence) for row in space.peek() if row.state is MessageState.SCHEDULED]
    assert ("due", due.sequences[0]) in waiting
    assert over.sequences == (2,)
    space.pass_time(2 * SECOND_MS)
    assert names(space.receive(9)) == ["meanwhile", "over", "due"]


def test_scheduled_messages_are_cancelled_with_the_commit(space: TransactionHarness) -> None:
    (first, second) = space.send(*[arrival(name, due_at_ms=space.now_ms + SECOND_MS) for name in "ab"])
    for number, commits in ((1, False), (2, True)):
        space.begin(number)
        space.enlist(CancelScheduled(QUEUE, (first,)), number)
        assert names(space.peek()) == ["a", "b"]
        assert space.end(number=number, commits=commits) == Done()
    assert names(space.peek()) == ["b"]
    space.begin(3)
    space.enlist(CancelScheduled(QUEUE, (first, second)), 3)
    space.send_in("c", number=3)
    assert "not scheduled" in space.rolled_back(3)
    assert names(space.peek()) == ["b"]


def test_the_state_of_a_session_is_set_with_the_commit(space: TransactionHarness) -> None:
    space.ask(CreateQueue("sessions", QueueSettings(requires_session=True)))
    space.ask(AcceptSession(7, "sessions", ReceiveMode.PEEK_LOCK, "s"))
    for number, commits, state in ((1, False, None), (2, True, b"kept")):
        space.begin(number)
        space.enlist(SetSessionState("sessions", "s", b"kept"), number)
        assert space.ask(GetSessionState("sessions", "s")) == SessionStateFound(None)
        assert space.end(number=number, commits=commits) == Done()
        assert space.ask(GetSessionState("sessions", "s")) == SessionStateFound(state)


def test_a_message_without_a_session_is_refused_when_it_comes(space: TransactionHarness) -> None:
    space.ask(CreateQueue("sessions", QueueSettings(requires_session=True)))
    space.begin()
    assert isinstance(space.refusal(Enlist(1, SendMessages("sessions", (arrival("m"),)))), NotAllowed)
    payload = sections.encode_message(properties={PropertyField.MESSAGE_ID: "n", PropertyField.GROUP_ID: "s"})
    space.send_in(read_arrival(payload, lambda: ""), path="sessions")
    assert space.end() == Done()
    assert names(space.peek(path="sessions")) == ["n"]


def test_what_cannot_be_in_a_transaction_is_refused(space: TransactionHarness) -> None:
    space.begin()
    assert isinstance(space.refusal(Enlist(1, FindEntity(QUEUE))), NotAllowed)
    assert isinstance(space.refusal(Enlist(1, SendMessages("nowhere", (arrival("m"),)))), EntityNotFound)
    assert isinstance(space.refusal(Enlist(1, SendMessages(DEAD_LETTERS, (arrival("m"),)))), NotAllowed)
    assert space.end() == Done()


def test_messages_are_forwarded_with_the_commit(space: TransactionHarness) -> None:
    space.ask(CreateQueue("first", QueueSettings(forward_to=QUEUE)))
    space.begin()
    space.send_in("m", path="first")
    assert space.peek() == []
    assert space.end() == Done()
    assert names(space.peek()) == ["m"]


def test_a_full_disk_refuses_sends_and_their_commit_and_the_locks_are_free(space: TransactionHarness) -> None:
    space.send("m")
    (held,) = space.receive()
    space.begin()
    space.settle_in(Complete(), held)
    space.send_in("new")
    space.gate.report(DiskSpaceChanged("no room"), space.now_ms)
    assert isinstance(space.refusal(Enlist(1, SendMessages(QUEUE, (arrival("o"),)))), QuotaExceeded)
    assert isinstance(space.refusal(EndTransaction(1, True)), QuotaExceeded)
    assert space.settle(Complete(), held) == {}
    space.begin(2)
    assert space.end(number=2) == Done(), "what stores nothing can be committed"


def test_a_topic_with_more_copies_than_fit_into_a_step_stores_the_message_first() -> None:
    space = TransactionHarness(work_per_step=3)
    space.ask(CreateTopic("news", TopicSettings()))
    for number in range(8):
        space.ask(CreateSubscription("news", f"s{number}", QueueSettings()))
    space.begin()
    space.send_in("a", "b", path="news")
    assert space.end() == Done()
    for _ in range(20):
        space.pass_time(1)
    assert [names(space.peek(path=f"news/Subscriptions/s{number}")) for number in range(8)] == 8 * [["a", "b"]]
