"""What a namespace answers: entities, refusals, and commands that need rows from disk."""

from __future__ import annotations

import pytest
from namespace_harness import DEAD_LETTERS, QUEUE, SECOND_MS, START_MS, Bench, arrival, names, properties_of

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
from twinbus.broker.core.lookups import PEEK_COUNT_MAX, WAITING_READS_MAX
from twinbus.broker.core.machine import NamespaceMachine
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
def bench() -> Bench:
    return Bench()


# --- entities ---


def test_a_queue_is_found_in_any_case_and_keeps_the_case_of_its_creation(bench: Bench) -> None:
    bench.ask(CreateQueue("Orders/Europe", QueueSettings()))
    assert isinstance(bench.ask(FindEntity("ORDERS/europe")), Done)
    assert isinstance(bench.ask(FindEntity("orders/europe/$DeadLetterQueue")), Done)
    assert bench.gate.machine.registry.find("orders/europe").row.path == "Orders/Europe"


def test_a_queue_cannot_be_created_twice(bench: Bench) -> None:
    assert isinstance(bench.refusal(CreateQueue(QUEUE.upper(), QueueSettings())), EntityAlreadyExists)


def test_a_queue_name_that_is_wrong_is_refused_with_the_reason(bench: Bench) -> None:
    error = bench.refusal(CreateQueue("no spaces", QueueSettings()))
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
def test_an_entity_that_does_not_exist_is_not_found(bench: Bench, command: Command[object]) -> None:
    error = bench.refusal(command)
    assert isinstance(error, EntityNotFound)
    assert str(error).startswith("The messaging entity")


def test_receivers_of_a_deleted_queue_are_told_and_its_messages_are_gone(bench: Bench) -> None:
    bench.send("a")
    bench.open(1, credit=1)
    bench.open(2, path=DEAD_LETTERS)
    bench.take()
    assert isinstance(bench.ask(DeleteEntity(QUEUE)), Done)
    assert [each.receiver for each in bench.take() if isinstance(each, ReceiverLost)] == [1, 2]
    bench.ask(CreateQueue(QUEUE, QueueSettings()))
    assert bench.peek() == []
    assert bench.send("b") == (1,)


def test_a_deleted_queue_stays_deleted_after_a_restart(bench: Bench) -> None:
    bench.ask(DeleteEntity(QUEUE))
    bench.restart()
    assert isinstance(bench.refusal(FindEntity(QUEUE)), EntityNotFound)
    assert isinstance(bench.refusal(FindEntity(DEAD_LETTERS)), EntityNotFound)


def test_a_dead_letter_queue_cannot_be_deleted_alone(bench: Bench) -> None:
    assert isinstance(bench.refusal(DeleteEntity(DEAD_LETTERS)), NotAllowed)


def test_settings_survive_a_restart() -> None:
    settings = QueueSettings(lock_ms=7_000, max_delivery_count=4, default_ttl_ms=9_000, dead_letter_on_expiration=True)
    bench = Bench(settings)
    bench.restart()
    assert bench.queue.settings == bench.dead_letters.settings == settings


@pytest.mark.parametrize("command", [Grant(99, 5), PauseReceiver(99), ResumeReceiver(99), CloseReceiver(99)])
def test_a_receiver_that_is_gone_is_no_reason_to_complain(bench: Bench, command: Command[object]) -> None:
    bench.do(command)
    assert bench.take() == []


def test_a_closed_receiver_gets_nothing_more_and_its_locks_stay(bench: Bench) -> None:
    bench.send("a")
    bench.open(1, credit=5)
    (lent,) = bench.deliveries()
    bench.do(CloseReceiver(1))
    bench.send("b")
    assert bench.deliveries() == []
    assert bench.settle(Complete(), lent) == {}


def test_sending_nothing_asks_whether_one_could_send(bench: Bench) -> None:
    assert bench.ask(SendMessages(QUEUE, ())) == Done(())
    assert isinstance(bench.refusal(SendMessages("nowhere", ())), EntityNotFound)


def test_a_lock_of_another_queue_is_unknown_here(bench: Bench) -> None:
    bench.ask(CreateQueue("other", QueueSettings()))
    bench.send("a")
    (lent,) = bench.receive()
    failures = bench.settle(Complete(), lent, path="other")
    assert isinstance(failures[lent.token or b""], LockLost)


# --- peek ---


def test_a_peek_shows_messages_in_every_state_and_takes_nothing(bench: Bench) -> None:
    bench.send("deferred", "locked", arrival("scheduled", due_at_ms=START_MS + SECOND_MS), "active")
    bench.settle(Defer(), *bench.receive())
    bench.receive()
    assert names(bench.peek()) == ["deferred", "locked", "scheduled", "active"]
    assert [row.state for row in bench.peek()] == [
        MessageState.DEFERRED, MessageState.ACTIVE, MessageState.SCHEDULED, MessageState.ACTIVE,
    ]  # fmt: skip
    assert names(bench.receive()) == ["active"]


def test_a_peek_starts_where_it_is_told_and_ends_at_its_number(bench: Bench) -> None:
    bench.send(*"abcdef")
    assert names(bench.peek(3, 2)) == ["c", "d"]
    assert names(bench.peek(7, 2)) == []


def test_a_peek_gets_no_more_than_the_service_gives_at_once(bench: Bench) -> None:
    bench.send(*[f"m{number}" for number in range(PEEK_COUNT_MAX + 10)])
    assert len(bench.peek(0, 10_000)) == PEEK_COUNT_MAX


def test_a_peek_for_nothing_finds_nothing(bench: Bench) -> None:
    bench.send("a")
    assert bench.peek(0, 0) == []


def test_a_peek_does_not_show_what_is_being_deleted(bench: Bench) -> None:
    bench.send("a", "b")
    bench.open(1, credit=1, deletes=True)
    bench.do(PeekMessages(QUEUE, 0, 10), "peek")
    (found,) = [reply for reply in bench.take() if isinstance(reply, MessagesFound)]
    assert [lent.row.message_id for lent in found.found] == ["b"]


def test_a_peek_looks_past_messages_that_have_expired(bench: Bench) -> None:
    bench.send(*[arrival(f"m{number}", ttl_ms=SECOND_MS) for number in range(5)], "last")
    bench.now_ms += SECOND_MS  # nobody has swept yet
    assert names(bench.peek(0, 1)) == ["last"]


# --- deferred ---


def test_deferred_messages_are_received_all_or_none(bench: Bench) -> None:
    bench.send(*"abc")
    bench.settle(Defer(), *bench.receive(2))
    error = bench.refusal(ReceiveDeferred(QUEUE, (1, 3, 9), ReceiveMode.PEEK_LOCK))
    assert isinstance(error, MessageNotFound)
    assert str(error).endswith("3, 9")
    assert [lent.row.message_id for lent in bench.receive_deferred(2, 1).found] == ["a", "b"]


def test_a_deferred_message_is_lent_to_one_receiver_at_a_time(bench: Bench) -> None:
    bench.send("a")
    bench.settle(Defer(), *bench.receive())
    bench.receive_deferred(1)
    assert isinstance(bench.refusal(ReceiveDeferred(QUEUE, (1,), ReceiveMode.PEEK_LOCK)), MessageNotFound)


def test_a_deferred_message_can_be_received_and_deleted(bench: Bench) -> None:
    bench.send("a")
    bench.settle(Defer(), *bench.receive())
    bench.do(ReceiveDeferred(QUEUE, (1,), ReceiveMode.RECEIVE_AND_DELETE), "x")
    assert not [reply for reply in bench.take() if isinstance(reply, MessagesFound)]  # not before it is deleted
    bench.commit()
    (found,) = [reply for reply in bench.take() if isinstance(reply, MessagesFound)]
    assert found.found[0].token is None
    assert bench.peek() == []


def test_a_deferral_that_is_being_written_is_waited_for(bench: Bench) -> None:
    bench.send("a")
    (lent,) = bench.receive()
    bench.do(SettleMessages(QUEUE, (lent.token or b"",), Defer()), "defer")
    bench.do(ReceiveDeferred(QUEUE, (1,), ReceiveMode.PEEK_LOCK), "receive")
    assert bench.take() == []
    bench.commit()
    assert [name for name, _ in bench.take_named()] == ["defer", "receive"]


def test_a_deferred_message_is_never_lent_as_it_was_before_a_change(bench: Bench) -> None:
    bench.send("a")
    bench.settle(Defer(), *bench.receive())
    (lent,) = bench.receive_deferred(1).found
    bench.do(SettleMessages(QUEUE, (lent.token or b"",), Abandon({"tried": 1})))
    bench.do(ReceiveDeferred(QUEUE, (1,), ReceiveMode.PEEK_LOCK), "again")
    bench.commit()
    (found,) = [reply for name, reply in bench.take_named() if name == "again"]
    assert isinstance(found, MessagesFound)
    assert found.found[0].row.delivery_count == 1
    assert properties_of(found.found[0].row) == {"tried": 1}


def test_who_waits_for_a_deferred_message_of_a_queue_that_is_deleted_is_refused(bench: Bench) -> None:
    bench.send("a")
    (lent,) = bench.receive()
    bench.do(SettleMessages(QUEUE, (lent.token or b"",), Defer()))
    bench.do(ReceiveDeferred(QUEUE, (1,), ReceiveMode.PEEK_LOCK), "receive")
    bench.do(DeleteEntity(QUEUE))
    bench.commit()
    ((name, refused),) = [each for each in bench.take_named() if isinstance(each[1], Refused)]
    assert isinstance(refused, Refused)
    assert name == "receive"
    assert isinstance(refused.error, EntityNotFound)


# --- scheduled ---


def test_a_cancelled_message_never_wakes(bench: Bench) -> None:
    due_at_ms = START_MS + SECOND_MS
    sequences = bench.send(arrival("a", due_at_ms=due_at_ms), arrival("b", due_at_ms=due_at_ms))
    assert isinstance(bench.ask(CancelScheduled(QUEUE, sequences[:1])), Done)
    bench.pass_time(SECOND_MS)
    assert names(bench.receive(5)) == ["b"]
    assert bench.queue.scheduled == 0


def test_messages_are_cancelled_all_or_none(bench: Bench) -> None:
    (sequence,) = bench.send(arrival("a", due_at_ms=START_MS + SECOND_MS))
    (active,) = bench.send("b")
    assert isinstance(bench.refusal(CancelScheduled(QUEUE, (sequence, active))), MessageNotFound)
    bench.pass_time(SECOND_MS)
    assert sorted(map(str, names(bench.receive(5)))) == ["a", "b"]


def test_a_message_that_has_woken_cannot_be_cancelled(bench: Bench) -> None:
    sequences = bench.send(arrival("a", due_at_ms=START_MS + 1))
    bench.pass_time(1)
    assert isinstance(bench.refusal(CancelScheduled(QUEUE, sequences)), MessageNotFound)


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


def test_an_idle_machine_wants_no_waking(bench: Bench) -> None:
    assert bench.gate.next_wake_ms() is None
    bench.send("a")
    assert bench.gate.next_wake_ms() is None


def test_the_machine_wakes_for_the_earliest_of_locks_expiries_and_schedules() -> None:
    bench = Bench(QueueSettings(lock_ms=5 * SECOND_MS))
    bench.send(arrival("later", due_at_ms=START_MS + 9 * SECOND_MS))
    assert bench.gate.next_wake_ms() == START_MS + 9 * SECOND_MS
    bench.send(arrival("a", ttl_ms=7 * SECOND_MS))
    assert bench.gate.next_wake_ms() == START_MS + 7 * SECOND_MS
    lent = bench.receive()
    assert bench.gate.next_wake_ms() == START_MS + 5 * SECOND_MS
    bench.restart()
    assert bench.gate.next_wake_ms() == START_MS + 7 * SECOND_MS
    assert isinstance(
        bench.ask(RenewMessageLocks(QUEUE, tuple(each.token or b"" for each in lent))), Refused | LocksRenewed
    )
