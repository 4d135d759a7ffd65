"""Replies wait until changes are durable, and every waiting request is refused when the store fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from namespace_harness import DEAD_LETTERS, QUEUE, START_MS, NamespaceHarness, arrival, names

from twinbus.broker.core.commands import (
    AcceptSession,
    Command,
    CreateQueue,
    CreateRule,
    CreateSubscription,
    CreateTopic,
    Creation,
    DeleteEntity,
    FindEntity,
    Grant,
    OpenReceiver,
    PeekMessages,
    ReceiveDeferred,
    SendMessages,
    SetSessionState,
    SettleMessages,
    Tick,
    UpdateQueue,
)
from twinbus.broker.core.commit_gate import CommitGate
from twinbus.broker.core.namespace_machine import NamespaceMachine
from twinbus.broker.core.replies import NOBODY, Delivery, Notice, Reply
from twinbus.broker.entities.settings import QueueSettings, TopicSettings
from twinbus.broker.entities.topics.rules import Rule
from twinbus.broker.operations import Abandon, Complete, DeadLetter, Defer, Done, ReceiveMode, Refused, Settled
from twinbus.broker.store.api import (
    Change,
    CommitFailed,
    Committed,
    DiskSpaceChanged,
    ReadFailed,
    ReadRequest,
    Report,
    RowsRead,
    StoredNamespace,
)
from twinbus.errors import EntityAlreadyExists, QuotaExceeded, StoreDamaged, StoreUnavailable


@pytest.fixture
def harness() -> NamespaceHarness:
    return NamespaceHarness()


# --- when the disk is full ---


def test_on_a_full_disk_sends_are_refused_at_once_and_everything_else_goes_on(harness: NamespaceHarness) -> None:
    harness.send("a")
    held = harness.receive()
    harness.gate.report(DiskSpaceChanged("database or disk is full"), START_MS)
    harness.take()
    harness.do(SendMessages(QUEUE, (arrival("b"),)), "origin")
    [refused] = harness.take()
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, QuotaExceeded)
    assert "disk of the namespace is full" in str(refused.error)
    assert harness.settle(Complete(), *held) == {}
    harness.gate.report(DiskSpaceChanged(None), START_MS)
    harness.send("c")
    assert names(harness.receive()) == ["c"]


@pytest.mark.parametrize(
    "creation",
    [
        CreateQueue("new", QueueSettings()),
        CreateTopic("new", TopicSettings()),
        CreateSubscription("events", "new", QueueSettings()),
        CreateRule("events/Subscriptions/audit", Rule("new")),
    ],
)
def test_on_a_full_disk_nothing_is_made_and_what_is_there_can_be_changed_and_removed(
    harness: NamespaceHarness, creation: Creation
) -> None:
    harness.ask(CreateTopic("events", TopicSettings()))
    harness.ask(CreateSubscription("events", "audit", QueueSettings()))
    harness.gate.report(DiskSpaceChanged("database or disk is full"), START_MS)
    refused = harness.refusal(creation)
    assert isinstance(refused, QuotaExceeded)
    assert "disk of the namespace is full" in str(refused)
    assert isinstance(harness.refusal(CreateQueue("ORDERS", QueueSettings())), EntityAlreadyExists)
    assert isinstance(harness.refusal(CreateSubscription("events", "Audit", QueueSettings())), EntityAlreadyExists)
    assert isinstance(harness.ask(UpdateQueue(QUEUE, QueueSettings(lock_ms=5_000))), Done)
    assert isinstance(harness.ask(DeleteEntity("events")), Done)


def test_on_a_full_disk_messages_are_settled_but_nothing_is_written_on_them_save_a_reason(
    harness: NamespaceHarness,
) -> None:
    harness.send("a", "b")
    one, other = harness.receive(2)
    harness.gate.report(DiskSpaceChanged("database or disk is full"), START_MS)
    for outcome in (Abandon({"why": "busy"}), Defer({"why": "busy"})):
        refused = harness.refusal(SettleMessages(QUEUE, (one.token or b"",), outcome))
        assert isinstance(refused, QuotaExceeded)
    assert harness.settle(Abandon(), one) == {}
    assert harness.settle(DeadLetter({"DeadLetterReason": "Unreadable"}), other) == {}
    assert names(harness.peek(path=DEAD_LETTERS)) == ["b"]


# --- while all is well ---


def test_a_send_is_answered_only_when_it_is_durable(harness: NamespaceHarness) -> None:
    harness.do(SendMessages(QUEUE, (arrival("a"),)), "origin")
    assert harness.take() == []
    harness.commit()
    assert harness.take_named() == [("origin", Done((1,)))]


def test_answers_come_in_the_order_of_the_commits(harness: NamespaceHarness) -> None:
    for name in "abc":
        harness.do(SendMessages(QUEUE, (arrival(name),)), name)
    harness.commit(2)
    assert [name for name, reply in harness.take_named() if isinstance(reply, Done)] == ["a", "b"]
    harness.commit()
    assert [name for name, reply in harness.take_named() if isinstance(reply, Done)] == ["c"]


def test_a_question_without_a_change_is_answered_at_once(harness: NamespaceHarness) -> None:
    harness.do(SendMessages(QUEUE, (arrival("a"),)), "send")
    harness.do(FindEntity(QUEUE), "find")
    assert harness.take_named() == [("find", Done())]


def test_a_completion_is_answered_only_when_it_is_durable(harness: NamespaceHarness) -> None:
    harness.send("a")
    (lent,) = harness.receive()
    harness.do(SettleMessages(QUEUE, (lent.token or b"",), Complete()), "origin")
    assert harness.take() == []
    harness.commit()
    assert harness.take_named() == [("origin", Settled({}))]


def test_the_weight_of_what_is_unwritten_is_known(harness: NamespaceHarness) -> None:
    assert harness.gate.unwritten_bytes == 0
    harness.do(SendMessages(QUEUE, (arrival("a", body=bytes(10_000)),)))
    assert 10_000 < harness.gate.unwritten_bytes < 11_000
    harness.commit()
    assert harness.gate.unwritten_bytes == 0


def test_states_of_sessions_and_ids_of_messages_have_their_weight() -> None:
    harness = NamespaceHarness(QueueSettings(requires_session=True))
    harness.do(AcceptSession(1, QUEUE, ReceiveMode.PEEK_LOCK, "a"))
    harness.do(SetSessionState(QUEUE, "a", bytes(100_000)))
    assert 100_000 < harness.gate.unwritten_bytes < 101_000
    harness = NamespaceHarness(QueueSettings(requires_duplicate_detection=True))
    harness.do(SendMessages(QUEUE, tuple(arrival(str(number), body=b"") for number in range(100))))
    assert harness.gate.unwritten_bytes > 100 * 300


# --- when a commit fails ---


def test_a_failed_commit_refuses_everybody_who_waited_for_it(harness: NamespaceHarness) -> None:
    harness.send("kept")
    (lent,) = harness.receive()
    harness.do(SendMessages(QUEUE, (arrival("a"),)), "send")
    harness.do(SettleMessages(QUEUE, (lent.token or b"",), Complete()), "complete")
    harness.take()
    harness.store.fail("disk full")
    replies = [(name, reply.error) for name, reply in harness.take_named() if isinstance(reply, Refused)]
    assert [name for name, _ in replies] == ["send", "complete"]
    assert all(isinstance(error, StoreUnavailable) for _, error in replies)
    assert "disk full" in str(replies[0][1])
    assert harness.failures == ["disk full"]
    assert harness.gate.unwritten_bytes == 0


def test_a_failed_namespace_refuses_new_work_and_wants_no_waking(harness: NamespaceHarness) -> None:
    harness.send(arrival("a", ttl_ms=1_000))
    harness.store.fail("disk full")
    harness.take()
    harness.do(SendMessages(QUEUE, (arrival("b"),)), "origin")
    (refused,) = harness.take()
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, StoreUnavailable)
    harness.do(Grant(1, 5))  # asks for no answer, and gets none
    harness.do(Tick())
    assert harness.take() == []
    assert harness.gate.next_wake_ms() is None


def test_a_recovered_namespace_holds_what_was_acknowledged_and_nothing_else(harness: NamespaceHarness) -> None:
    harness.send("acknowledged")
    harness.do(SendMessages(QUEUE, (arrival("refused"),)))
    harness.store.fail("disk full")
    harness.gate.recover()
    assert harness.gate.failure is None
    assert names(harness.peek()) == ["acknowledged"]
    assert harness.send("next") == (2,)
    assert names(harness.receive(5)) == ["acknowledged", "next"]


def test_a_message_whose_deletion_failed_is_not_handed_out(harness: NamespaceHarness) -> None:
    harness.send("a")
    harness.open(1, credit=1, deletes=True)
    harness.store.fail("disk full")
    assert harness.deliveries() == []
    harness.gate.recover()
    assert names(harness.receive()) == ["a"]


def test_the_failure_is_reported_once_each_time(harness: NamespaceHarness) -> None:
    for number in range(1, 4):
        harness.do(SendMessages(QUEUE, (arrival("a"),)))
        harness.do(SendMessages(QUEUE, (arrival("b"),)))
        harness.store.fail("disk full")
        assert len(harness.failures) == number
        harness.gate.recover()


# --- over a store whose every report the test writes itself ---


class SilentStore:
    """Keeps what it is asked; says what the test tells it to."""

    def __init__(self) -> None:
        self.number = 0
        self.submitted: list[int] = []
        self.requests: list[Any] = []
        self.is_usable = True

    def load(self) -> StoredNamespace:
        if not self.is_usable:
            raise StoreDamaged("still broken")
        return self.stored

    stored = StoredNamespace((), {}, 1, 0)

    def start(self, report: Callable[[Report], None]) -> None: ...

    def submit(self, number: int, changes: tuple[Change, ...]) -> None:
        self.submitted.append(number)

    def request(self, request: ReadRequest) -> None:
        self.requests.append(request)

    def close(self) -> None: ...


class SilentStoreGate:
    """A gate over a silent store that holds the queue of a harness, with one message."""

    def __init__(self) -> None:
        harness = NamespaceHarness()
        harness.send("a")
        self.store = SilentStore()
        self.store.stored = harness.store.load()
        self.loaded = self.store.stored.last_number
        self.row = harness.peek()[0]
        self.replies: list[tuple[object, Reply | Notice]] = []
        self.failures: list[str] = []
        self.gate = CommitGate(
            self.store, self._build, lambda notice: self.replies.append((None, notice)), self.failures.append
        )

    def _build(self, stored: StoredNamespace) -> NamespaceMachine:
        return NamespaceMachine(stored, new_token=lambda: bytes(16))

    def send(self, name: str) -> None:
        self.ask(SendMessages(QUEUE, (arrival(name),)), name)

    def ask(self, command: Command[Reply], name: str) -> None:
        self.gate.ask(command, START_MS, lambda reply: self.replies.append((name, reply)))

    def report(self, report: Report) -> None:
        self.gate.report(report, START_MS)

    def replies_seen(self) -> list[tuple[type[Reply | Notice], object]]:
        """Who was answered, with what, since the last time."""
        replies_seen = [(type(reply), name) for name, reply in self.replies]
        self.replies.clear()
        return replies_seen


@pytest.fixture
def silent() -> SilentStoreGate:
    return SilentStoreGate()


def test_rows_may_show_a_commit_before_its_own_report(silent: SilentStoreGate) -> None:
    silent.send("send")
    silent.ask(PeekMessages(QUEUE, 0, 10), "peek")
    (request,) = silent.store.requests
    silent.report(RowsRead(request, (silent.row,), True, None, silent.loaded + 1))
    assert [origin for _, origin in silent.replies_seen()] == ["send", "peek"]
    silent.report(Committed(silent.loaded + 1))
    assert silent.replies_seen() == []


def test_a_failed_read_refuses_who_waited_for_it(silent: SilentStoreGate) -> None:
    silent.ask(PeekMessages(QUEUE, 0, 10), "peek")
    silent.report(ReadFailed(silent.store.requests[0], "bad sector"))
    assert silent.replies_seen() == [(Refused, "peek")]
    assert silent.failures == ["bad sector"]


def test_a_failed_read_leaves_it_to_the_store_what_becomes_of_a_send(silent: SilentStoreGate) -> None:
    silent.send("written")
    silent.send("not written")
    silent.ask(PeekMessages(QUEUE, 0, 10), "peek")
    silent.report(ReadFailed(silent.store.requests[0], "bad sector"))
    assert silent.replies_seen() == [(Refused, "peek")]
    silent.report(Committed(silent.loaded + 1))
    assert silent.replies_seen() == [(Done, "written")]
    assert silent.failures == []  # called once every request has its answer
    silent.report(CommitFailed(silent.loaded + 2, "bad sector"))
    assert silent.replies_seen() == [(Refused, "not written")]
    assert silent.failures == ["bad sector"]


def test_a_message_that_was_deleted_after_a_failed_read_is_still_handed_out(silent: SilentStoreGate) -> None:
    silent.gate.do(OpenReceiver(1, QUEUE, ReceiveMode.RECEIVE_AND_DELETE), START_MS)
    silent.gate.do(Grant(1, 1), START_MS)
    (head,) = silent.store.requests
    silent.report(RowsRead(head, (silent.row,), True, None, silent.loaded))
    silent.ask(PeekMessages(QUEUE, 0, 10), "peek")
    silent.report(ReadFailed(silent.store.requests[-1], "bad sector"))
    silent.replies_seen()
    silent.report(Committed(silent.loaded + 1))
    assert [type(reply) for _, reply in silent.replies] == [Delivery]


def test_who_waits_for_a_deferral_to_be_written_is_refused_when_the_store_fails(harness: NamespaceHarness) -> None:
    harness.send("a")
    (lent,) = harness.receive()
    harness.do(SettleMessages(QUEUE, (lent.token or b"",), Defer()), "defer")
    harness.do(ReceiveDeferred(QUEUE, (1,), ReceiveMode.PEEK_LOCK), "receive")
    assert harness.take() == []
    harness.store.fail("disk full")
    assert {name for name, reply in harness.take_named() if isinstance(reply, Refused)} == {"defer", "receive"}


def test_rows_read_before_what_was_loaded_answer_nobody(silent: SilentStoreGate) -> None:
    silent.send("send")
    silent.report(CommitFailed(silent.loaded + 1, "disk full"))
    silent.store.stored = silent.store.stored._replace(last_number=silent.loaded + 5)
    silent.gate.recover()
    silent.replies_seen()
    silent.ask(PeekMessages(QUEUE, 0, 10), "peek")
    (request,) = silent.store.requests
    silent.report(RowsRead(request, (), True, None, silent.loaded + 4))
    assert silent.replies_seen() == []
    silent.report(RowsRead(request, (), True, None, silent.loaded + 5))
    assert [origin for _, origin in silent.replies_seen()] == ["peek"]


def test_reports_for_a_machine_that_is_gone_change_nothing(silent: SilentStoreGate) -> None:
    silent.ask(PeekMessages(QUEUE, 0, 10), "peek")
    (request,) = silent.store.requests
    silent.send("send")
    silent.report(CommitFailed(silent.loaded + 1, "disk full"))
    silent.gate.recover()
    silent.replies_seen()
    silent.report(RowsRead(request, (), True, None, silent.loaded))
    silent.report(ReadFailed(request, "disk full"))
    silent.report(Committed(silent.loaded))
    assert silent.replies_seen() == []
    assert silent.gate.failure is None


def test_while_the_disk_stays_broken_the_namespace_stays_failed(silent: SilentStoreGate) -> None:
    silent.send("send")
    silent.report(CommitFailed(silent.loaded + 1, "disk full"))
    silent.store.is_usable = False
    with pytest.raises(StoreDamaged):
        silent.gate.recover()
    assert silent.gate.failure == "disk full"
    silent.store.is_usable = True
    silent.gate.recover()
    assert silent.gate.failure is None


def test_answers_leave_before_the_machine_goes_on_with_what_a_commit_leads_to() -> None:
    """Copies for many subscriptions can take a while, and nobody else should wait for them."""
    harness = NamespaceHarness()
    said: list[str] = []
    machine = harness.gate.machine
    apply = machine.apply

    def applied(command: Any, now_ms: int, request_id: int = NOBODY) -> Any:
        if isinstance(command, Committed):
            said.append("goes on")
        return apply(command, now_ms, request_id)

    machine.apply = applied  # type: ignore[method-assign]
    harness.gate._flush = lambda: said.append("flushed")
    harness.gate.ask(
        SendMessages(QUEUE, (arrival("a"),)), harness.now_ms, lambda reply: said.append(type(reply).__name__)
    )
    harness.commit(1)
    assert said == ["Done", "flushed", "goes on"]
