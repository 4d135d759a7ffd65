"""Sessions, in the machine: one receiver each, in order, with a state, and what becomes of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest
from namespace_harness import START_MS, Bench, names

from twinbus.amqp import sections
from twinbus.amqp.sections import Header, PropertyField
from twinbus.broker.core.commands import (
    AcceptSession,
    CloseReceiver,
    CreateQueue,
    CreateSubscription,
    CreateTopic,
    DeleteEntity,
    GetSessionState,
    Grant,
    ListSessions,
    OpenReceiver,
    PeekMessages,
    ReceiveDeferred,
    RenewMessageLocks,
    RenewSessionLock,
    SendMessages,
    SetSessionState,
    SettleMessages,
    Tick,
    UpdateQueue,
)
from twinbus.broker.core.replies import Delivery, LocksRenewed, MessagesFound, SessionsFound, SessionStateFound
from twinbus.broker.entities.session_queue import SessionQueue
from twinbus.broker.entities.settings import QueueSettings, TopicSettings
from twinbus.broker.entities.window import WindowLimits
from twinbus.broker.message import Arrival, read_arrival
from twinbus.broker.operations import (
    Abandon,
    Complete,
    Defer,
    Done,
    ReceiveMode,
    ReceiverDrained,
    ReceiverLost,
    Refused,
    Release,
    SessionAccepted,
)
from twinbus.errors import (
    ArgumentError,
    EntityNotFound,
    LockLost,
    MessageNotFound,
    NotAllowed,
    OperationTimedOut,
    QuotaExceeded,
    SessionCannotBeLocked,
    SessionLockLost,
)

ORDERS = "orders"
LOCK_MS = 10_000
_receivers = count(1)


def message(name: str, session: str | None = "a", *, ttl_ms: int | None = None) -> Arrival:
    payload = sections.encode_message(
        header=None if ttl_ms is None else Header(ttl_ms=ttl_ms),
        properties={PropertyField.MESSAGE_ID: name, PropertyField.GROUP_ID: session},
        data=b"body",
    )
    return read_arrival(payload, lambda: "unused")


@pytest.fixture
def bench() -> Bench:
    return Bench(QueueSettings(requires_session=True, lock_ms=LOCK_MS, max_delivery_count=2))


def ask_for(bench: Bench, session: str | None, *, wait_ms: int = 5_000, deletes: bool = False) -> tuple[int, int]:
    """Ask for a session; returns the receiver and the name of the answer."""
    receiver = next(_receivers)
    mode = ReceiveMode.RECEIVE_AND_DELETE if deletes else ReceiveMode.PEEK_LOCK
    bench.do(AcceptSession(receiver, ORDERS, mode, session, wait_ms), 10_000 + receiver)
    return receiver, 10_000 + receiver


def answer(bench: Bench, name: int) -> object:
    return next((reply for asked, reply in zip(bench.names, bench.replies, strict=True) if asked == name), None)


def accept(bench: Bench, session: str | None, *, credit: int = 0, deletes: bool = False) -> tuple[int, str]:
    """Get a session; returns the receiver and the session's name."""
    receiver, origin = ask_for(bench, session, deletes=deletes)
    bench.commit()
    accepted = answer(bench, origin)
    assert isinstance(accepted, SessionAccepted), accepted
    if credit:
        bench.take()
        bench.do(Grant(receiver, credit))
        bench.commit()
    return receiver, accepted.session_id


def delivered(bench: Bench, receiver: int) -> list[Delivery]:
    return [each for each in bench.deliveries() if each.receiver == receiver]


# --- accepting ---


def test_a_session_is_received_in_order_and_alone(bench: Bench) -> None:
    bench.send(message("1"), message("x", "b"), message("2"), message("y", "b"), message("3"))
    receiver, _ = accept(bench, "a", credit=10)
    assert names(delivered(bench, receiver)) == ["1", "2", "3"]
    bench.send(message("4"), message("z", "b"))
    assert names(delivered(bench, receiver)) == ["4"]


def test_a_session_that_somebody_has_cannot_be_had(bench: Bench) -> None:
    receiver, _ = accept(bench, "a")
    _, origin = ask_for(bench, "a")
    refusal = answer(bench, origin)
    assert isinstance(refusal, Refused)
    assert isinstance(refusal.error, SessionCannotBeLocked)
    bench.do(CloseReceiver(receiver))
    accept(bench, "a")


def test_a_session_may_be_accepted_before_it_has_messages(bench: Bench) -> None:
    receiver, _ = accept(bench, "later", credit=5)
    bench.send(message("1", "later"))
    assert names(delivered(bench, receiver)) == ["1"]


def test_the_empty_name_is_a_session(bench: Bench) -> None:
    bench.send(message("1", ""))
    receiver, session = accept(bench, None, credit=5)
    assert (session, names(delivered(bench, receiver))) == ("", ["1"])


def test_next_available_gives_every_session_that_has_messages_once(bench: Bench) -> None:
    bench.send(message("1", "a"), message("2", "b"), message("3", "c"), message("4", "a"))
    assert {accept(bench, None)[1] for _ in range(3)} == {"a", "b", "c"}
    _, origin = ask_for(bench, None)
    bench.commit()
    assert answer(bench, origin) is None


def test_who_waits_gets_the_next_session_that_gets_a_message(bench: Bench) -> None:
    receiver, origin = ask_for(bench, None)
    bench.do(SendMessages(ORDERS, (message("1", "new"),)))
    assert answer(bench, origin) is None, "not before it is durable"
    bench.commit()
    accepted = answer(bench, origin)
    assert isinstance(accepted, SessionAccepted)
    assert (accepted.session_id, accepted.locked_until_ms) == ("new", START_MS + LOCK_MS)
    bench.take()
    bench.do(Grant(receiver, 1))
    assert names(delivered(bench, receiver)) == ["1"]


def test_who_waits_gets_a_session_that_is_given_back(bench: Bench) -> None:
    bench.send(message("1"))
    first, _ = accept(bench, "a")
    _, origin = ask_for(bench, None)
    bench.commit()
    assert answer(bench, origin) is None
    bench.do(CloseReceiver(first))
    bench.commit()
    assert isinstance(answer(bench, origin), SessionAccepted)


def test_a_session_without_messages_is_not_the_next_one(bench: Bench) -> None:
    bench.send(message("1"))
    receiver, _ = accept(bench, None, credit=5)
    (delivery,) = delivered(bench, receiver)
    bench.do(SettleMessages(ORDERS, (delivery.token or b"",), Complete()))
    bench.do(CloseReceiver(receiver))
    _, origin = ask_for(bench, None)
    bench.commit()
    assert answer(bench, origin) is None


def test_who_waits_in_vain_is_told_in_time(bench: Bench) -> None:
    _, slow = ask_for(bench, None, wait_ms=5_000)
    _, quick = ask_for(bench, None, wait_ms=1_000)
    bench.pass_time(1_000)
    refusal = answer(bench, quick)
    assert isinstance(refusal, Refused)
    assert isinstance(refusal.error, OperationTimedOut)
    assert answer(bench, slow) is None
    bench.pass_time(4_000)
    assert isinstance(answer(bench, slow), Refused)
    bench.send(message("1"))


def test_who_leaves_while_waiting_gets_nothing(bench: Bench) -> None:
    receiver, origin = ask_for(bench, None)
    bench.do(CloseReceiver(receiver))
    bench.send(message("1"))
    assert answer(bench, origin) is None
    accept(bench, "a")


def test_waiters_are_served_in_their_order(bench: Bench) -> None:
    origins = [ask_for(bench, None)[1] for _ in range(3)]
    bench.send(message("1", "a"))
    bench.send(message("2", "b"))
    served = [answer(bench, origin) for origin in origins]
    assert [isinstance(each, SessionAccepted) for each in served] == [True, True, False]


# --- messages of a session ---


def test_a_closed_receiver_gives_everything_back_at_once_and_nothing_has_failed(bench: Bench) -> None:
    bench.send(message("1"), message("2"))
    receiver, _ = accept(bench, "a", credit=2)
    assert len(delivered(bench, receiver)) == 2
    bench.do(CloseReceiver(receiver))
    again, _ = accept(bench, "a", credit=2)
    assert [(each.row.message_id, each.row.delivery_count) for each in delivered(bench, again)] == [("1", 0), ("2", 0)]


def test_what_was_settled_stays_settled_however_soon_the_session_is_had_again(bench: Bench) -> None:
    bench.send(*(message(str(number)) for number in range(1, 6)))
    receiver, _ = accept(bench, "a", credit=5)
    tokens = [each.token or b"" for each in delivered(bench, receiver)]
    bench.do(SettleMessages(ORDERS, (tokens[0],), Complete()))
    bench.do(SettleMessages(ORDERS, (tokens[1],), Abandon()))
    bench.do(SettleMessages(ORDERS, (tokens[2],), Defer()))
    bench.do(SettleMessages(ORDERS, (tokens[3],), Release()))
    bench.do(CloseReceiver(receiver))
    again, _ = ask_for(bench, "a")
    bench.take()
    bench.do(Grant(again, 9))
    bench.commit()
    found = [(each.row.message_id, each.row.delivery_count) for each in delivered(bench, again)]
    assert found == [("2", 1), ("4", 0), ("5", 0)]


def test_a_lost_lock_is_a_failure_of_each_unsettled_message(bench: Bench) -> None:
    bench.send(message("1"), message("2"))
    receiver, _ = accept(bench, "a", credit=1)
    (held,) = delivered(bench, receiver)
    bench.pass_time(LOCK_MS)
    (lost,) = [reply for reply in bench.take() if isinstance(reply, ReceiverLost)]
    assert isinstance(lost.error, SessionLockLost)
    assert isinstance(bench.settle(Complete(), held)[held.token or b""], LockLost)
    again, _ = accept(bench, "a", credit=2)
    assert [each.row.delivery_count for each in delivered(bench, again)] == [1, 0]
    bench.pass_time(LOCK_MS)
    assert names(bench.peek(path=ORDERS + "/$deadletterqueue")) == ["1"]


def test_a_renewed_session_lasts_and_its_messages_with_it(bench: Bench) -> None:
    bench.send(message("1"))
    receiver, _ = accept(bench, "a", credit=1)
    (held,) = delivered(bench, receiver)
    bench.pass_time(LOCK_MS - 1)
    renewed = bench.ask(RenewSessionLock(ORDERS, "a"))
    assert renewed == LocksRenewed((START_MS + 2 * LOCK_MS - 1,))
    bench.pass_time(LOCK_MS - 1)
    assert bench.settle(Complete(), held) == {}
    bench.pass_time(1)
    assert isinstance(bench.refusal(RenewSessionLock(ORDERS, "a")), SessionLockLost)


def test_messages_of_a_session_are_locked_as_long_as_the_session(bench: Bench) -> None:
    bench.send(message("1"))
    receiver, _ = accept(bench, "a")
    bench.pass_time(4_000)
    bench.take()
    bench.do(Grant(receiver, 1))
    (held,) = delivered(bench, receiver)
    assert held.locked_until_ms == START_MS + LOCK_MS
    assert isinstance(bench.refusal(RenewMessageLocks(ORDERS, (held.token or b"",))), NotAllowed)


def test_receive_and_delete_works_in_a_session(bench: Bench) -> None:
    bench.send(message("1"), message("2"))
    receiver, _ = accept(bench, "a", credit=5, deletes=True)
    assert [each.token for each in delivered(bench, receiver)] == [None, None]
    assert bench.peek() == []


def test_a_drain_waits_for_what_is_on_disk(bench: Bench) -> None:
    bench.send(message("1"), message("2"))
    receiver, _ = accept(bench, "a")
    bench.take()
    bench.do(Grant(receiver, 5, drain=True))
    said = [type(reply) for reply in bench.take()]
    assert said == [Delivery, Delivery, ReceiverDrained]


def test_a_message_expires_in_the_session_and_out_of_it(bench: Bench) -> None:
    bench.send(message("1", ttl_ms=2_000), message("2", "b", ttl_ms=2_000), message("3", ttl_ms=3_000))
    receiver, _ = accept(bench, "a", credit=1)
    assert len(delivered(bench, receiver)) == 1
    bench.pass_time(3_000)
    assert bench.peek() == []
    bench.do(CloseReceiver(receiver))
    bench.commit()
    assert bench.queue.active == 0


def test_deferred_messages_are_had_by_who_has_the_session(bench: Bench) -> None:
    bench.send(message("1"), message("x", "b"))
    receiver, _ = accept(bench, "a", credit=1)
    (held,) = delivered(bench, receiver)
    bench.settle(Defer(), held)
    mode = ReceiveMode.PEEK_LOCK
    found = bench.ask(ReceiveDeferred(ORDERS, (1,), mode, session_id="a"))
    assert isinstance(found, MessagesFound)
    (lent,) = found.found
    assert lent.locked_until_ms == START_MS + LOCK_MS
    assert isinstance(bench.refusal(ReceiveDeferred(ORDERS, (1,), mode, session_id="a")), MessageNotFound)
    assert isinstance(bench.refusal(ReceiveDeferred(ORDERS, (1,), mode, session_id="b")), SessionLockLost)
    assert isinstance(bench.refusal(ReceiveDeferred(ORDERS, (1,), mode)), SessionLockLost)
    accept(bench, "b")
    assert isinstance(bench.refusal(ReceiveDeferred(ORDERS, (1,), mode, session_id="b")), MessageNotFound)
    bench.do(CloseReceiver(receiver))
    accept(bench, "a")
    again = bench.ask(ReceiveDeferred(ORDERS, (1,), mode, session_id="a"))
    assert isinstance(again, MessagesFound)


def test_a_peek_may_be_for_one_session(bench: Bench) -> None:
    bench.send(message("1"), message("x", "b"), message("2"))
    found = bench.ask(PeekMessages(ORDERS, 0, 10, session_id="a"))
    assert isinstance(found, MessagesFound)
    assert [lent.row.message_id for lent in found.found] == ["1", "2"]
    assert names(bench.peek()) == ["1", "x", "2"]


def test_settling_with_the_name_of_a_session_that_is_not_held_says_so(bench: Bench) -> None:
    command = SettleMessages(ORDERS, (bytes(16),), Complete(), session_id="a")
    assert isinstance(bench.refusal(command), SessionLockLost)


def test_a_session_larger_than_memory_is_received_whole_and_in_order() -> None:
    bench = Bench(QueueSettings(requires_session=True), WindowLimits(rows_max=8))
    for number in range(60):
        bench.send(message(f"{number}", "ab"[number % 2]))
    receiver, _ = accept(bench, "a", credit=100)
    assert names(delivered(bench, receiver)) == [str(number) for number in range(0, 60, 2)]
    bench.send(message("last"))
    assert names(delivered(bench, receiver)) == ["last"]


def test_when_many_locks_and_waits_end_at_once_others_are_served_in_between(bench: Bench) -> None:
    for number in range(600):
        accept(bench, f"session {number}")
    for _ in range(600):
        bench.do(AcceptSession(next(_receivers), ORDERS, ReceiveMode.PEEK_LOCK, None, LOCK_MS))
    bench.take()
    bench.now_ms += LOCK_MS
    bench.do(Tick())
    bench.commit()
    assert len(bench.take()) == 500
    bench.pass_time(0)
    assert len(bench.take()) == 700
    queue = bench.queue
    assert isinstance(queue, SessionQueue)
    assert not queue.sessions


# --- state ---


def state(bench: Bench, session: str = "a") -> bytes | None:
    found = bench.ask(GetSessionState(ORDERS, session))
    assert isinstance(found, SessionStateFound), found
    return found.state


def test_a_state_is_kept_until_it_is_cleared_and_survives_everything(bench: Bench) -> None:
    receiver, _ = accept(bench, "a")
    assert state(bench) is None
    assert isinstance(bench.ask(SetSessionState(ORDERS, "a", b"half way")), Done)
    assert state(bench) == b"half way"
    bench.do(CloseReceiver(receiver))
    bench.restart()
    accept(bench, "a")
    assert state(bench) == b"half way"
    bench.ask(SetSessionState(ORDERS, "a", None))
    assert state(bench) is None


def test_a_state_is_read_as_it_was_set_before_it_is_written(bench: Bench) -> None:
    accept(bench, "a")
    bench.do(SetSessionState(ORDERS, "a", b"new"))
    bench.do(GetSessionState(ORDERS, "a"), 77)
    bench.commit()
    assert answer(bench, 77) == SessionStateFound(b"new")


def test_a_state_that_was_not_committed_is_gone_after_a_crash(bench: Bench) -> None:
    accept(bench, "a")
    bench.ask(SetSessionState(ORDERS, "a", b"old"))
    bench.do(SetSessionState(ORDERS, "a", b"new"))
    bench.restart()
    accept(bench, "a")
    assert state(bench) == b"old"


def test_only_who_has_the_session_may_look_at_its_state_or_change_it(bench: Bench) -> None:
    for command in (GetSessionState(ORDERS, "a"), SetSessionState(ORDERS, "a", b"x")):
        assert isinstance(bench.refusal(command), SessionLockLost)


def test_what_is_asked_in_the_name_of_a_receiver_is_done_only_if_that_one_has_the_session(bench: Bench) -> None:
    bench.send(message("1"))
    first, _ = accept(bench, "a", credit=1)
    (held,) = delivered(bench, first)
    bench.settle(Defer(), held)
    bench.pass_time(LOCK_MS)
    second, _ = accept(bench, "a")
    commands = (
        RenewSessionLock(ORDERS, "a"),
        SetSessionState(ORDERS, "a", b"x"),
        GetSessionState(ORDERS, "a"),
        ReceiveDeferred(ORDERS, (1,), ReceiveMode.PEEK_LOCK, session_id="a"),
    )
    for command in commands:
        assert isinstance(bench.refusal(replace(command, holder=first)), SessionLockLost)
    for command in commands:
        assert not isinstance(bench.ask(replace(command, holder=second)), Refused)


def test_renewals_and_waits_that_are_over_are_forgotten(bench: Bench) -> None:
    accept(bench, "early")
    bench.do(AcceptSession(next(_receivers), ORDERS, ReceiveMode.PEEK_LOCK, None, 5_000))
    accept(bench, "often")
    for _ in range(1_000):
        bench.now_ms += 1
        bench.ask(RenewSessionLock(ORDERS, "often"))
        receiver = next(_receivers)
        bench.do(AcceptSession(receiver, ORDERS, ReceiveMode.PEEK_LOCK, None, 60_000))
        bench.do(CloseReceiver(receiver))
    queue = bench.queue
    assert isinstance(queue, SessionQueue)
    assert queue.remembered_times < 200
    bench.pass_time(2 * LOCK_MS)
    assert not queue.sessions


def test_a_state_has_a_bound(bench: Bench) -> None:
    accept(bench, "a")
    assert isinstance(bench.refusal(SetSessionState(ORDERS, "a", bytes(300_000))), QuotaExceeded)


def fill_with_states(bench: Bench) -> list[str]:
    """Set states until one is refused; returns whose were taken."""
    taken: list[str] = []
    while True:
        name = f"session {len(taken)}"
        accept(bench, name)
        said = bench.ask(SetSessionState(ORDERS, name, bytes(250_000)))
        if isinstance(said, Refused):
            assert isinstance(said.error, QuotaExceeded)
            return taken
        taken.append(name)


def test_states_count_against_the_maximum_size_also_after_a_restart_and_cleared_ones_do_not() -> None:
    bench = Bench(QueueSettings(requires_session=True, lock_ms=LOCK_MS, max_size_mb=1))
    names = fill_with_states(bench)
    assert len(names) == 4
    assert bench.queue.stored_bytes == sum(len(name) + 250_000 for name in names)
    large = message("1")._replace(payload=bytes(100_000))
    assert isinstance(bench.refusal(SendMessages(ORDERS, (large,))), QuotaExceeded)
    bench.restart()
    assert isinstance(bench.refusal(SendMessages(ORDERS, (large,))), QuotaExceeded)
    accept(bench, names[0])
    assert isinstance(bench.refusal(SetSessionState(ORDERS, names[0], bytes(250_000))), QuotaExceeded)
    bench.ask(SetSessionState(ORDERS, names[0], None))
    bench.ask(SetSessionState(ORDERS, names[0], bytes(200_000)))
    bench.ask(SetSessionState(ORDERS, names[0], bytes(10)))
    bench.send(large)


def test_a_state_that_is_being_written_counts(bench: Bench) -> None:
    accept(bench, "a")
    bench.do(SetSessionState(ORDERS, "a", bytes(100)))
    bench.do(SetSessionState(ORDERS, "a", bytes(50)))
    assert bench.queue.stored_bytes == 101 + 51, "what they replace is not known yet"
    bench.commit()
    assert bench.queue.stored_bytes == 51


def test_a_queue_that_is_full_of_messages_takes_states() -> None:
    bench = Bench(QueueSettings(requires_session=True, lock_ms=LOCK_MS, max_size_mb=1))
    bench.send(message("1")._replace(payload=bytes(1_048_576)))
    accept(bench, "a")
    assert isinstance(bench.ask(SetSessionState(ORDERS, "a", b"half way")), Done), "or it might never be emptied"


def test_an_entity_has_so_many_states_and_no_more(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinbus.broker.entities.session_states.STATES_MAX", 2)
    for name in ("a", "b", "c"):
        accept(bench, name)
    bench.ask(SetSessionState(ORDERS, "a", b""))
    bench.ask(SetSessionState(ORDERS, "b", b""))
    assert isinstance(bench.refusal(SetSessionState(ORDERS, "c", b"")), QuotaExceeded)
    bench.ask(SetSessionState(ORDERS, "a", None))
    assert isinstance(bench.ask(SetSessionState(ORDERS, "c", b"")), Done)


def test_a_session_id_is_no_longer_than_one_that_a_message_has(bench: Bench) -> None:
    accept(bench, "x" * 128)
    command = AcceptSession(next(_receivers), ORDERS, ReceiveMode.PEEK_LOCK, "x" * 129, 0)
    assert isinstance(bench.refusal(command), ArgumentError)


def test_sessions_are_listed_by_messages_or_by_their_state(bench: Bench) -> None:
    bench.send(message("1", "b"), message("2", "c"))
    accept(bench, "a")
    bench.pass_time(100)
    bench.ask(SetSessionState(ORDERS, "a", b"x"))
    everything = bench.ask(ListSessions(ORDERS, None, 0, 100))
    assert everything == SessionsFound(("a", "b", "c"), 3)
    page = bench.ask(ListSessions(ORDERS, None, 1, 1))
    assert page == SessionsFound(("b",), 2)
    updated = bench.ask(ListSessions(ORDERS, START_MS + 50, 0, 100))
    assert isinstance(updated, SessionsFound)
    assert updated.names == ("a",)


# --- what cannot be ---


def test_a_message_without_a_session_is_refused_and_none_of_its_batch_is_stored(bench: Bench) -> None:
    assert isinstance(bench.refusal(SendMessages(ORDERS, (message("1"), message("2", None)))), NotAllowed)
    assert bench.peek() == []


def test_with_sessions_receivers_need_one_and_without_they_may_not(bench: Bench) -> None:
    assert isinstance(bench.refusal(OpenReceiver(1, ORDERS, ReceiveMode.PEEK_LOCK)), NotAllowed)
    bench.ask(CreateQueue("plain", QueueSettings()))
    for path in ("plain", ORDERS + "/$deadletterqueue"):
        assert isinstance(bench.refusal(AcceptSession(2, path, ReceiveMode.PEEK_LOCK, "a")), NotAllowed)
    for command in (
        RenewSessionLock("plain", "a"),
        SetSessionState("plain", "a", None),
        ListSessions("plain", None, 0, 1),
    ):
        assert isinstance(bench.refusal(command), NotAllowed)


def test_whether_there_are_sessions_is_decided_when_the_queue_is_made(bench: Bench) -> None:
    assert "cannot be changed" in str(bench.refusal(UpdateQueue(ORDERS, QueueSettings())))


def test_who_has_or_awaits_a_session_of_a_deleted_queue_is_told(bench: Bench) -> None:
    receiver, _ = accept(bench, "a")
    _, origin = ask_for(bench, None)
    bench.take()
    bench.ask(DeleteEntity(ORDERS))
    said = bench.take()
    assert [reply.receiver for reply in said if isinstance(reply, ReceiverLost)] == [receiver]
    refusal = answer(bench, origin)
    assert isinstance(refusal, Refused)
    assert isinstance(refusal.error, EntityNotFound)


def test_who_waits_when_the_store_fails_is_told(bench: Bench) -> None:
    _, origin = ask_for(bench, None)
    bench.do(SendMessages(ORDERS, (message("1"),)))
    bench.store.fail("disk full")
    assert isinstance(answer(bench, origin), Refused)


# --- subscriptions ---


def test_a_subscription_may_have_sessions(bench: Bench) -> None:
    bench.ask(CreateTopic("events", TopicSettings()))
    bench.ask(CreateSubscription("events", "s", QueueSettings(requires_session=True)))
    bench.ask(CreateSubscription("events", "plain", QueueSettings()))
    bench.ask(SendMessages("events", (message("1"), message("none", None), message("2"))))
    bench.restart()
    path = "events/subscriptions/s"
    bench.do(AcceptSession(500, path, ReceiveMode.PEEK_LOCK, "a"), 501)
    bench.do(Grant(500, 5))
    bench.commit()
    assert names(delivered(bench, 500)) == ["1", "2"]
    (dead,) = bench.peek(path=path + "/$deadletterqueue")
    assert dead.message_id == "none"
    assert names(bench.peek(path="events/subscriptions/plain")) == ["1", "none", "2"]
