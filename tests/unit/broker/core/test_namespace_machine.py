"""What a namespace answers: entities, refusals, and commands that need rows from disk."""

from __future__ import annotations

import pytest
from namespace_harness import DEAD_LETTERS, QUEUE, SECOND_MS, START_MS, NamespaceHarness, arrival, names, properties_of

from twinbus.broker.core.commands import (
    CancelScheduled,
    CloseReceiver,
    Command,
    CreateQueue,
    DeleteEntity,
    FindEntity,
    Grant,
    OpenReceiver,
    PauseReceiver,
    PeekMessages,
    ReceiveDeferred,
    RenewMessageLocks,
    ResumeReceiver,
    SendMessages,
    SettleMessages,
)
from twinbus.broker.core.disk_reads import PEEK_COUNT_MAX, WAITING_READS_MAX
from twinbus.broker.core.namespace_machine import NamespaceMachine
from twinbus.broker.core.replies import AddressedReply, LocksRenewed, MessagesFound, Step
from twinbus.broker.entities.settings import QueueSettings
from twinbus.broker.operations import Abandon, Complete, Defer, Done, ReceiveMode, ReceiverLost, Refused
from twinbus.broker.store.api import Committed, MessageState, NamedRows, RangeRows, RowsRead, StoredNamespace
from twinbus.errors import (
    EntityAlreadyExists,
    EntityNotFound,
    LockLost,
    MessageNotFound,
    NamespaceError,
    NotAllowed,
    ServerBusy,
)


@pytest.fixture
def harness() -> NamespaceHarness:
    return NamespaceHarness()


# --- entities ---


def test_a_queue_is_found_in_any_case_and_keeps_the_case_of_its_creation(harness: NamespaceHarness) -> None:
    harness.ask(CreateQueue("Orders/Europe", QueueSettings()))
    assert isinstance(harness.ask(FindEntity("ORDERS/europe")), Done)
    assert isinstance(harness.ask(FindEntity("orders/europe/$DeadLetterQueue")), Done)
    assert harness.gate.machine.registry.find("orders/europe").row.path == "Orders/Europe"


def test_a_queue_cannot_be_created_twice(harness: NamespaceHarness) -> None:
    assert isinstance(harness.refusal(CreateQueue(QUEUE.upper(), QueueSettings())), EntityAlreadyExists)


def test_a_queue_name_that_is_wrong_is_refused_with_the_reason(harness: NamespaceHarness) -> None:
    error = harness.refusal(CreateQueue("no spaces", QueueSettings()))
    assert isinstance(error, NotAllowed)
    assert "letters, digits" in str(error)


@pytest.mark.parametrize(
    "command",
    [
        FindEntity("nowhere"),
        DeleteEntity("nowhere"),
        SendMessages("nowhere", (arrival("a"),)),
        OpenReceiver(1, "nowhere", ReceiveMode.PEEK_LOCK),
        SettleMessages("nowhere", (b"token",), Complete()),
        RenewMessageLocks("nowhere", (b"token",)),
        PeekMessages("nowhere", 0, 1),
        ReceiveDeferred("nowhere", (1,), ReceiveMode.PEEK_LOCK),
        CancelScheduled("nowhere", (1,)),
    ],
    ids=lambda command: type(command).__name__,
)
def test_an_entity_that_does_not_exist_is_not_found(harness: NamespaceHarness, command: Command[object]) -> None:
    error = harness.refusal(command)
    assert isinstance(error, EntityNotFound)
    assert str(error).startswith("The messaging entity")


def test_receivers_of_a_deleted_queue_are_detached_and_its_messages_are_gone(harness: NamespaceHarness) -> None:
    harness.send("a")
    harness.open(1, credit=1)
    harness.open(2, path=DEAD_LETTERS)
    harness.take()
    assert isinstance(harness.ask(DeleteEntity(QUEUE)), Done)
    assert [each.receiver for each in harness.take() if isinstance(each, ReceiverLost)] == [1, 2]
    harness.ask(CreateQueue(QUEUE, QueueSettings()))
    assert harness.peek() == []
    assert harness.send("b") == (1,)


def test_a_deleted_queue_stays_deleted_after_a_restart(harness: NamespaceHarness) -> None:
    harness.ask(DeleteEntity(QUEUE))
    harness.restart()
    assert isinstance(harness.refusal(FindEntity(QUEUE)), EntityNotFound)
    assert isinstance(harness.refusal(FindEntity(DEAD_LETTERS)), EntityNotFound)


def test_a_dead_letter_queue_cannot_be_deleted_alone(harness: NamespaceHarness) -> None:
    assert isinstance(harness.refusal(DeleteEntity(DEAD_LETTERS)), NotAllowed)


def test_settings_survive_a_restart() -> None:
    settings = QueueSettings(lock_ms=7_000, max_delivery_count=4, default_ttl_ms=9_000, dead_letter_on_expiration=True)
    harness = NamespaceHarness(settings)
    harness.restart()
    assert harness.queue.settings == harness.dead_letters.settings == settings


@pytest.mark.parametrize("command", [Grant(99, 5), PauseReceiver(99), ResumeReceiver(99), CloseReceiver(99)])
def test_a_receiver_that_is_gone_is_no_reason_to_complain(harness: NamespaceHarness, command: Command[object]) -> None:
    harness.do(command)
    assert harness.take() == []


def test_a_closed_receiver_gets_nothing_more_and_its_locks_stay(harness: NamespaceHarness) -> None:
    harness.send("a")
    harness.open(1, credit=5)
    (lent,) = harness.deliveries()
    harness.do(CloseReceiver(1))
    harness.send("b")
    assert harness.deliveries() == []
    assert harness.settle(Complete(), lent) == {}


def test_sending_nothing_asks_whether_one_could_send(harness: NamespaceHarness) -> None:
    assert harness.ask(SendMessages(QUEUE, ())) == Done(())
    assert isinstance(harness.refusal(SendMessages("nowhere", ())), EntityNotFound)


def test_a_lock_of_another_queue_is_unknown_here(harness: NamespaceHarness) -> None:
    harness.ask(CreateQueue("other", QueueSettings()))
    harness.send("a")
    (lent,) = harness.receive()
    failures = harness.settle(Complete(), lent, path="other")
    assert isinstance(failures[lent.token or b""], LockLost)


# --- peek ---


def test_a_peek_shows_messages_in_every_state_and_takes_nothing(harness: NamespaceHarness) -> None:
    harness.send("deferred", "locked", arrival("scheduled", due_at_ms=START_MS + SECOND_MS), "active")
    harness.settle(Defer(), *harness.receive())
    harness.receive()
    assert names(harness.peek()) == ["deferred", "locked", "scheduled", "active"]
    assert [row.state for row in harness.peek()] == [
        MessageState.DEFERRED, MessageState.ACTIVE, MessageState.SCHEDULED, MessageState.ACTIVE,
    ]  # fmt: skip
    assert names(harness.receive()) == ["active"]


def test_a_peek_starts_at_its_first_number_and_ends_at_its_last(harness: NamespaceHarness) -> None:
    harness.send(*"abcdef")
    assert names(harness.peek(3, 2)) == ["c", "d"]
    assert names(harness.peek(7, 2)) == []


def test_a_peek_gets_no_more_than_the_service_gives_at_once(harness: NamespaceHarness) -> None:
    harness.send(*[f"m{number}" for number in range(PEEK_COUNT_MAX + 10)])
    assert len(harness.peek(0, 10_000)) == PEEK_COUNT_MAX


def test_a_peek_for_nothing_finds_nothing(harness: NamespaceHarness) -> None:
    harness.send("a")
    assert harness.peek(0, 0) == []


def test_a_peek_does_not_show_what_is_being_deleted(harness: NamespaceHarness) -> None:
    harness.send("a", "b")
    harness.open(1, credit=1, deletes=True)
    harness.do(PeekMessages(QUEUE, 0, 10), "peek")
    (found,) = [reply for reply in harness.take() if isinstance(reply, MessagesFound)]
    assert [lent.row.message_id for lent in found.found] == ["b"]


def test_a_peek_looks_past_messages_that_have_expired(harness: NamespaceHarness) -> None:
    harness.send(*[arrival(f"m{number}", ttl_ms=SECOND_MS) for number in range(5)], "last")
    harness.now_ms += SECOND_MS  # nobody has swept yet
    assert names(harness.peek(0, 1)) == ["last"]


# --- deferred ---


def test_deferred_messages_are_received_all_or_none(harness: NamespaceHarness) -> None:
    harness.send(*"abc")
    harness.settle(Defer(), *harness.receive(2))
    error = harness.refusal(ReceiveDeferred(QUEUE, (1, 3, 9), ReceiveMode.PEEK_LOCK))
    assert isinstance(error, MessageNotFound)
    assert str(error).endswith("3, 9")
    assert [lent.row.message_id for lent in harness.receive_deferred(2, 1).found] == ["a", "b"]


def test_a_deferred_message_is_locked_for_one_receiver_at_a_time(harness: NamespaceHarness) -> None:
    harness.send("a")
    harness.settle(Defer(), *harness.receive())
    harness.receive_deferred(1)
    assert isinstance(harness.refusal(ReceiveDeferred(QUEUE, (1,), ReceiveMode.PEEK_LOCK)), MessageNotFound)


def test_a_deferred_message_can_be_received_and_deleted(harness: NamespaceHarness) -> None:
    harness.send("a")
    harness.settle(Defer(), *harness.receive())
    harness.do(ReceiveDeferred(QUEUE, (1,), ReceiveMode.RECEIVE_AND_DELETE), "x")
    assert not [reply for reply in harness.take() if isinstance(reply, MessagesFound)]  # not before it is deleted
    harness.commit()
    (found,) = [reply for reply in harness.take() if isinstance(reply, MessagesFound)]
    assert found.found[0].token is None
    assert harness.peek() == []


def test_a_deferral_that_is_being_written_is_waited_for(harness: NamespaceHarness) -> None:
    harness.send("a")
    (lent,) = harness.receive()
    harness.do(SettleMessages(QUEUE, (lent.token or b"",), Defer()), "defer")
    harness.do(ReceiveDeferred(QUEUE, (1,), ReceiveMode.PEEK_LOCK), "receive")
    assert harness.take() == []
    harness.commit()
    assert [name for name, _ in harness.take_named()] == ["defer", "receive"]


def test_a_deferred_message_is_never_delivered_as_it_was_before_a_change(harness: NamespaceHarness) -> None:
    harness.send("a")
    harness.settle(Defer(), *harness.receive())
    (lent,) = harness.receive_deferred(1).found
    harness.do(SettleMessages(QUEUE, (lent.token or b"",), Abandon({"tried": 1})))
    harness.do(ReceiveDeferred(QUEUE, (1,), ReceiveMode.PEEK_LOCK), "again")
    harness.commit()
    (found,) = [reply for name, reply in harness.take_named() if name == "again"]
    assert isinstance(found, MessagesFound)
    assert found.found[0].row.delivery_count == 1
    assert properties_of(found.found[0].row) == {"tried": 1}


def test_who_waits_for_a_deferred_message_of_a_queue_that_is_deleted_is_refused(harness: NamespaceHarness) -> None:
    harness.send("a")
    (lent,) = harness.receive()
    harness.do(SettleMessages(QUEUE, (lent.token or b"",), Defer()))
    harness.do(ReceiveDeferred(QUEUE, (1,), ReceiveMode.PEEK_LOCK), "receive")
    harness.do(DeleteEntity(QUEUE))
    harness.commit()
    ((name, refused),) = [each for each in harness.take_named() if isinstance(each[1], Refused)]
    assert isinstance(refused, Refused)
    assert name == "receive"
    assert isinstance(refused.error, EntityNotFound)


# --- scheduled ---


def test_a_cancelled_message_never_wakes(harness: NamespaceHarness) -> None:
    due_at_ms = START_MS + SECOND_MS
    sequences = harness.send(arrival("a", due_at_ms=due_at_ms), arrival("b", due_at_ms=due_at_ms))
    assert isinstance(harness.ask(CancelScheduled(QUEUE, sequences[:1])), Done)
    harness.pass_time(SECOND_MS)
    assert names(harness.receive(5)) == ["b"]
    assert harness.queue.scheduled == 0


def test_messages_are_cancelled_all_or_none(harness: NamespaceHarness) -> None:
    (sequence,) = harness.send(arrival("a", due_at_ms=START_MS + SECOND_MS))
    (active,) = harness.send("b")
    assert isinstance(harness.refusal(CancelScheduled(QUEUE, (sequence, active))), MessageNotFound)
    harness.pass_time(SECOND_MS)
    assert sorted(map(str, names(harness.receive(5)))) == ["a", "b"]


def test_a_message_that_has_woken_cannot_be_cancelled(harness: NamespaceHarness) -> None:
    sequences = harness.send(arrival("a", due_at_ms=START_MS + 1))
    harness.pass_time(1)
    assert isinstance(harness.refusal(CancelScheduled(QUEUE, sequences)), MessageNotFound)


# --- reads ---

EMPTY = StoredNamespace((), {}, 1, 0)


def new_machine() -> NamespaceMachine:
    machine = NamespaceMachine(EMPTY, new_token=lambda: bytes(16))
    machine.apply(CreateQueue(QUEUE, QueueSettings()), 0)
    machine.apply(Committed(1), 0)
    return machine


def answered(step: Step) -> list[int]:
    return [sent.request_id for sent in step.replies if isinstance(sent, AddressedReply)]


def refusal_in(step: Step) -> NamespaceError:
    (sent,) = step.replies
    assert isinstance(sent, AddressedReply)
    assert isinstance(sent.reply, Refused)
    return sent.reply.error


def test_a_command_that_needs_rows_is_answered_when_they_are_there() -> None:
    machine = new_machine()
    step = machine.apply(PeekMessages(QUEUE, 5, 10), 0, 7)
    (request,) = step.reads
    assert isinstance(request, RangeRows)
    assert step.replies == []
    assert machine.is_reading(request)
    assert machine.apply(RowsRead(request, (), True, None, 1), 0).replies == [AddressedReply(7, MessagesFound(()))]
    assert not machine.is_reading(request)


def test_equal_reads_are_each_answered() -> None:
    machine = new_machine()
    (request,) = machine.apply(PeekMessages(QUEUE, 5, 10), 0, 1).reads
    assert isinstance(request, RangeRows)
    machine.apply(PeekMessages(QUEUE, 5, 10), 0, 2)
    read = RowsRead(request, (), True, None, 1)
    assert answered(machine.apply(read, 0)) == [1]
    assert answered(machine.apply(read, 0)) == [2]
    assert machine.apply(read, 0).replies == []  # one that nobody waits for


def test_too_many_waiting_reads_are_refused_as_busy() -> None:
    machine = new_machine()
    for number in range(WAITING_READS_MAX):
        machine.apply(PeekMessages(QUEUE, number, 1), 0, number + 1)
    assert isinstance(refusal_in(machine.apply(PeekMessages(QUEUE, 0, 1), 0)), ServerBusy)
    machine.apply(RowsRead(RangeRows(2, 0, 0, 0), (), True, None, 1), 0)  # nobody has asked for these
    assert isinstance(refusal_in(machine.apply(PeekMessages(QUEUE, 0, 1), 0)), ServerBusy)


def test_rows_for_a_queue_that_was_deleted_meanwhile_are_refused() -> None:
    machine = new_machine()
    (request,) = machine.apply(CancelScheduled(QUEUE, (1,)), 0).reads
    assert isinstance(request, NamedRows)
    machine.apply(DeleteEntity(QUEUE), 0)
    assert isinstance(refusal_in(machine.apply(RowsRead(request, (), True, None, 1), 0)), EntityNotFound)


def test_an_idle_machine_wants_no_waking(harness: NamespaceHarness) -> None:
    assert harness.gate.next_wake_ms() is None
    harness.send("a")
    assert harness.gate.next_wake_ms() is None


def test_the_machine_wakes_for_the_earliest_of_locks_expiries_and_schedules() -> None:
    harness = NamespaceHarness(QueueSettings(lock_ms=5 * SECOND_MS))
    harness.send(arrival("later", due_at_ms=START_MS + 9 * SECOND_MS))
    assert harness.gate.next_wake_ms() == START_MS + 9 * SECOND_MS
    harness.send(arrival("a", ttl_ms=7 * SECOND_MS))
    assert harness.gate.next_wake_ms() == START_MS + 7 * SECOND_MS
    lent = harness.receive()
    assert harness.gate.next_wake_ms() == START_MS + 5 * SECOND_MS
    harness.restart()
    assert harness.gate.next_wake_ms() == START_MS + 7 * SECOND_MS
    assert isinstance(
        harness.ask(RenewMessageLocks(QUEUE, tuple(each.token or b"" for each in lent))), Refused | LocksRenewed
    )
