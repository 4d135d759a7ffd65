"""Sessions, in the machine: one receiver each, in order, with a state, and what becomes of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest
from namespace_harness import START_MS, NamespaceHarness, names

from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import Header, PropertyField
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
from twinbus.broker.entities.loaded_head import WindowLimits
from twinbus.broker.entities.session_queue import SessionQueue
from twinbus.broker.entities.settings import QueueSettings, TopicSettings
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
def harness() -> NamespaceHarness:
    return NamespaceHarness(QueueSettings(requires_session=True, lock_ms=LOCK_MS, max_delivery_count=2))


def ask_for(
    harness: NamespaceHarness, session: str | None, *, wait_ms: int = 5_000, deletes: bool = False
) -> tuple[int, int]:
    """Ask for a session; returns the receiver and the name of the answer."""
    receiver = next(_receivers)
    mode = ReceiveMode.RECEIVE_AND_DELETE if deletes else ReceiveMode.PEEK_LOCK
    harness.do(AcceptSession(receiver, ORDERS, mode, session, wait_ms), 10_000 + receiver)
    return receiver, 10_000 + receiver


def answer(harness: NamespaceHarness, name: int) -> object:
    return next((reply for asked, reply in zip(harness.names, harness.replies, strict=True) if asked == name), None)


def accept(
    harness: NamespaceHarness, session: str | None, *, credit: int = 0, deletes: bool = False
) -> tuple[int, str]:
    """Get a session; returns the receiver and the session's name."""
    receiver, origin = ask_for(harness, session, deletes=deletes)
    harness.commit()
    accepted = answer(harness, origin)
    assert isinstance(accepted, SessionAccepted), accepted
    if credit:
        harness.take()
        harness.do(Grant(receiver, credit))
        harness.commit()
    return receiver, accepted.session_id


def delivered(harness: NamespaceHarness, receiver: int) -> list[Delivery]:
    return [each for each in harness.deliveries() if each.receiver == receiver]


# --- accepting ---


def test_a_session_is_received_in_order_and_alone(harness: NamespaceHarness) -> None:
    harness.send(message("1"), message("x", "b"), message("2"), message("y", "b"), message("3"))
    receiver, _ = accept(harness, "a", credit=10)
    assert names(delivered(harness, receiver)) == ["1", "2", "3"]
    harness.send(message("4"), message("z", "b"))
    assert names(delivered(harness, receiver)) == ["4"]


def test_a_session_that_somebody_has_cannot_be_had(harness: NamespaceHarness) -> None:
    receiver, _ = accept(harness, "a")
    _, origin = ask_for(harness, "a")
    refusal = answer(harness, origin)
    assert isinstance(refusal, Refused)
    assert isinstance(refusal.error, SessionCannotBeLocked)
    harness.do(CloseReceiver(receiver))
    accept(harness, "a")


def test_a_session_may_be_accepted_before_it_has_messages(harness: NamespaceHarness) -> None:
    receiver, _ = accept(harness, "later", credit=5)
    harness.send(message("1", "later"))
    assert names(delivered(harness, receiver)) == ["1"]


def test_the_empty_name_is_a_session(harness: NamespaceHarness) -> None:
    harness.send(message("1", ""))
    receiver, session = accept(harness, None, credit=5)
    assert (session, names(delivered(harness, receiver))) == ("", ["1"])


def test_next_available_gives_every_session_that_has_messages_once(harness: NamespaceHarness) -> None:
    harness.send(message("1", "a"), message("2", "b"), message("3", "c"), message("4", "a"))
    assert {accept(harness, None)[1] for _ in range(3)} == {"a", "b", "c"}
    _, origin = ask_for(harness, None)
    harness.commit()
    assert answer(harness, origin) is None


def test_who_waits_gets_the_next_session_that_gets_a_message(harness: NamespaceHarness) -> None:
    receiver, origin = ask_for(harness, None)
    harness.do(SendMessages(ORDERS, (message("1", "new"),)))
    assert answer(harness, origin) is None, "not before it is durable"
    harness.commit()
    accepted = answer(harness, origin)
    assert isinstance(accepted, SessionAccepted)
    assert (accepted.session_id, accepted.locked_until_ms) == ("new", START_MS + LOCK_MS)
    harness.take()
    harness.do(Grant(receiver, 1))
    assert names(delivered(harness, receiver)) == ["1"]


def test_who_waits_gets_a_session_that_is_given_back(harness: NamespaceHarness) -> None:
    harness.send(message("1"))
    first, _ = accept(harness, "a")
    _, origin = ask_for(harness, None)
    harness.commit()
    assert answer(harness, origin) is None
    harness.do(CloseReceiver(first))
    harness.commit()
    assert isinstance(answer(harness, origin), SessionAccepted)


def test_a_session_without_messages_is_not_the_next_one(harness: NamespaceHarness) -> None:
    harness.send(message("1"))
    receiver, _ = accept(harness, None, credit=5)
    (delivery,) = delivered(harness, receiver)
    harness.do(SettleMessages(ORDERS, (delivery.token or b"",), Complete()))
    harness.do(CloseReceiver(receiver))
    _, origin = ask_for(harness, None)
    harness.commit()
    assert answer(harness, origin) is None


def test_waiting_in_vain_for_a_session_ends_in_time(harness: NamespaceHarness) -> None:
    _, slow = ask_for(harness, None, wait_ms=5_000)
    _, quick = ask_for(harness, None, wait_ms=1_000)
    harness.pass_time(1_000)
    refusal = answer(harness, quick)
    assert isinstance(refusal, Refused)
    assert isinstance(refusal.error, OperationTimedOut)
    assert answer(harness, slow) is None
    harness.pass_time(4_000)
    assert isinstance(answer(harness, slow), Refused)
    harness.send(message("1"))


def test_who_leaves_while_waiting_gets_nothing(harness: NamespaceHarness) -> None:
    receiver, origin = ask_for(harness, None)
    harness.do(CloseReceiver(receiver))
    harness.send(message("1"))
    assert answer(harness, origin) is None
    accept(harness, "a")


def test_waiters_are_served_in_their_order(harness: NamespaceHarness) -> None:
    origins = [ask_for(harness, None)[1] for _ in range(3)]
    harness.send(message("1", "a"))
    harness.send(message("2", "b"))
    served = [answer(harness, origin) for origin in origins]
    assert [isinstance(each, SessionAccepted) for each in served] == [True, True, False]


# --- messages of a session ---


def test_a_closed_receiver_gives_everything_back_at_once_and_nothing_has_failed(harness: NamespaceHarness) -> None:
    harness.send(message("1"), message("2"))
    receiver, _ = accept(harness, "a", credit=2)
    assert len(delivered(harness, receiver)) == 2
    harness.do(CloseReceiver(receiver))
    again, _ = accept(harness, "a", credit=2)
    assert [(each.row.message_id, each.row.delivery_count) for each in delivered(harness, again)] == [
        ("1", 0),
        ("2", 0),
    ]


def test_what_was_settled_stays_settled_however_soon_the_session_is_had_again(harness: NamespaceHarness) -> None:
    harness.send(*(message(str(number)) for number in range(1, 6)))
    receiver, _ = accept(harness, "a", credit=5)
    tokens = [each.token or b"" for each in delivered(harness, receiver)]
    harness.do(SettleMessages(ORDERS, (tokens[0],), Complete()))
    harness.do(SettleMessages(ORDERS, (tokens[1],), Abandon()))
    harness.do(SettleMessages(ORDERS, (tokens[2],), Defer()))
    harness.do(SettleMessages(ORDERS, (tokens[3],), Release()))
    harness.do(CloseReceiver(receiver))
    again, _ = ask_for(harness, "a")
    harness.take()
    harness.do(Grant(again, 9))
    harness.commit()
    found = [(each.row.message_id, each.row.delivery_count) for each in delivered(harness, again)]
    assert found == [("2", 1), ("4", 0), ("5", 0)]


def test_a_lost_lock_is_a_failure_of_each_unsettled_message(harness: NamespaceHarness) -> None:
    harness.send(message("1"), message("2"))
    receiver, _ = accept(harness, "a", credit=1)
    (held,) = delivered(harness, receiver)
    harness.pass_time(LOCK_MS)
    (lost,) = [reply for reply in harness.take() if isinstance(reply, ReceiverLost)]
    assert isinstance(lost.error, SessionLockLost)
    assert isinstance(harness.settle(Complete(), held)[held.token or b""], LockLost)
    again, _ = accept(harness, "a", credit=2)
    assert [each.row.delivery_count for each in delivered(harness, again)] == [1, 0]
    harness.pass_time(LOCK_MS)
    assert names(harness.peek(path=ORDERS + "/$deadletterqueue")) == ["1"]


def test_a_renewed_session_lasts_and_its_messages_with_it(harness: NamespaceHarness) -> None:
    harness.send(message("1"))
    receiver, _ = accept(harness, "a", credit=1)
    (held,) = delivered(harness, receiver)
    harness.pass_time(LOCK_MS - 1)
    renewed = harness.ask(RenewSessionLock(ORDERS, "a"))
    assert renewed == LocksRenewed((START_MS + 2 * LOCK_MS - 1,))
    harness.pass_time(LOCK_MS - 1)
    assert harness.settle(Complete(), held) == {}
    harness.pass_time(1)
    assert isinstance(harness.refusal(RenewSessionLock(ORDERS, "a")), SessionLockLost)


def test_messages_of_a_session_are_locked_as_long_as_the_session(harness: NamespaceHarness) -> None:
    harness.send(message("1"))
    receiver, _ = accept(harness, "a")
    harness.pass_time(4_000)
    harness.take()
    harness.do(Grant(receiver, 1))
    (held,) = delivered(harness, receiver)
    assert held.locked_until_ms == START_MS + LOCK_MS
    assert isinstance(harness.refusal(RenewMessageLocks(ORDERS, (held.token or b"",))), NotAllowed)


def test_receive_and_delete_works_in_a_session(harness: NamespaceHarness) -> None:
    harness.send(message("1"), message("2"))
    receiver, _ = accept(harness, "a", credit=5, deletes=True)
    assert [each.token for each in delivered(harness, receiver)] == [None, None]
    assert harness.peek() == []


def losses(harness: NamespaceHarness) -> list[int]:
    lost = [each for each in harness.take() if isinstance(each, ReceiverLost)]
    assert {type(each.error) for each in lost} <= {SessionLockLost}
    return [each.receiver for each in lost]


def test_a_receiver_that_deletes_may_wait_beyond_the_end_of_its_lock(harness: NamespaceHarness) -> None:
    receiver, _ = accept(harness, "a", credit=5, deletes=True)
    harness.pass_time(3 * LOCK_MS + 1)
    assert losses(harness) == []
    assert isinstance(harness.refusal(SetSessionState(ORDERS, "a", b"x")), SessionLockLost)
    harness.do(CloseReceiver(receiver))
    accept(harness, "a")


def test_a_message_that_comes_after_the_end_of_the_lock_is_for_the_next_receiver(harness: NamespaceHarness) -> None:
    receiver, _ = accept(harness, "a", credit=5, deletes=True)
    harness.pass_time(LOCK_MS)
    ask_for(harness, None)
    harness.send(message("1"))
    taken = harness.take()
    assert [each.receiver for each in taken if isinstance(each, ReceiverLost)] == [receiver]
    assert [each.session_id for each in taken if isinstance(each, SessionAccepted)] == ["a"]
    assert names(harness.peek()) == ["1"]


def test_who_waits_with_an_ended_lock_gives_way_to_others_and_is_told_when_it_asks_again(
    harness: NamespaceHarness,
) -> None:
    receiver, _ = accept(harness, "a", credit=5, deletes=True)
    other, _ = accept(harness, "b", credit=5, deletes=True)
    harness.pass_time(LOCK_MS)
    harness.do(Grant(other, 6))
    assert losses(harness) == [other]
    ask_for(harness, "a")
    taken = harness.take()
    assert [each.receiver for each in taken if isinstance(each, ReceiverLost)] == [receiver]
    assert [type(each) for each in taken if isinstance(each, SessionAccepted | Refused)] == [SessionAccepted]


def test_a_receiver_that_deletes_and_does_not_wait_loses_its_session(harness: NamespaceHarness) -> None:
    receiver, _ = accept(harness, "a", deletes=True)
    harness.pass_time(LOCK_MS)
    assert losses(harness) == [receiver]


def test_a_receiver_that_locks_loses_its_session_though_it_waits(harness: NamespaceHarness) -> None:
    receiver, _ = accept(harness, "a", credit=5)
    harness.pass_time(LOCK_MS)
    assert losses(harness) == [receiver]


def test_a_drain_waits_for_what_is_on_disk(harness: NamespaceHarness) -> None:
    harness.send(message("1"), message("2"))
    receiver, _ = accept(harness, "a")
    harness.take()
    harness.do(Grant(receiver, 5, drain=True))
    said = [type(reply) for reply in harness.take()]
    assert said == [Delivery, Delivery, ReceiverDrained]


def test_a_message_expires_in_the_session_and_out_of_it(harness: NamespaceHarness) -> None:
    harness.send(message("1", ttl_ms=2_000), message("2", "b", ttl_ms=2_000), message("3", ttl_ms=3_000))
    receiver, _ = accept(harness, "a", credit=1)
    assert len(delivered(harness, receiver)) == 1
    harness.pass_time(3_000)
    assert harness.peek() == []
    harness.do(CloseReceiver(receiver))
    harness.commit()
    assert harness.queue.active == 0


def test_deferred_messages_are_had_by_who_has_the_session(harness: NamespaceHarness) -> None:
    harness.send(message("1"), message("x", "b"))
    receiver, _ = accept(harness, "a", credit=1)
    (held,) = delivered(harness, receiver)
    harness.settle(Defer(), held)
    mode = ReceiveMode.PEEK_LOCK
    found = harness.ask(ReceiveDeferred(ORDERS, (1,), mode, session_id="a"))
    assert isinstance(found, MessagesFound)
    (lent,) = found.found
    assert lent.locked_until_ms == START_MS + LOCK_MS
    assert isinstance(harness.refusal(ReceiveDeferred(ORDERS, (1,), mode, session_id="a")), MessageNotFound)
    assert isinstance(harness.refusal(ReceiveDeferred(ORDERS, (1,), mode, session_id="b")), SessionLockLost)
    assert isinstance(harness.refusal(ReceiveDeferred(ORDERS, (1,), mode)), SessionLockLost)
    accept(harness, "b")
    assert isinstance(harness.refusal(ReceiveDeferred(ORDERS, (1,), mode, session_id="b")), MessageNotFound)
    harness.do(CloseReceiver(receiver))
    accept(harness, "a")
    again = harness.ask(ReceiveDeferred(ORDERS, (1,), mode, session_id="a"))
    assert isinstance(again, MessagesFound)


def test_a_peek_may_be_for_one_session(harness: NamespaceHarness) -> None:
    harness.send(message("1"), message("x", "b"), message("2"))
    found = harness.ask(PeekMessages(ORDERS, 0, 10, session_id="a"))
    assert isinstance(found, MessagesFound)
    assert [lent.row.message_id for lent in found.found] == ["1", "2"]
    assert names(harness.peek()) == ["1", "x", "2"]


def test_settling_with_the_name_of_a_session_that_is_not_held_says_so(harness: NamespaceHarness) -> None:
    command = SettleMessages(ORDERS, (bytes(16),), Complete(), session_id="a")
    assert isinstance(harness.refusal(command), SessionLockLost)


def test_a_session_larger_than_memory_is_received_whole_and_in_order() -> None:
    harness = NamespaceHarness(QueueSettings(requires_session=True), WindowLimits(rows_max=8))
    for number in range(60):
        harness.send(message(f"{number}", "ab"[number % 2]))
    receiver, _ = accept(harness, "a", credit=100)
    assert names(delivered(harness, receiver)) == [str(number) for number in range(0, 60, 2)]
    harness.send(message("last"))
    assert names(delivered(harness, receiver)) == ["last"]


def test_when_many_locks_and_waits_end_at_once_others_are_served_in_between(harness: NamespaceHarness) -> None:
    for number in range(600):
        accept(harness, f"session {number}")
    for _ in range(600):
        harness.do(AcceptSession(next(_receivers), ORDERS, ReceiveMode.PEEK_LOCK, None, LOCK_MS))
    harness.take()
    harness.now_ms += LOCK_MS
    harness.do(Tick())
    harness.commit()
    assert len(harness.take()) == 500
    harness.pass_time(0)
    assert len(harness.take()) == 700
    queue = harness.queue
    assert isinstance(queue, SessionQueue)
    assert not queue.sessions


# --- state ---


def state(harness: NamespaceHarness, session: str = "a") -> bytes | None:
    found = harness.ask(GetSessionState(ORDERS, session))
    assert isinstance(found, SessionStateFound), found
    return found.state


def test_a_state_is_kept_until_it_is_cleared_and_survives_everything(harness: NamespaceHarness) -> None:
    receiver, _ = accept(harness, "a")
    assert state(harness) is None
    assert isinstance(harness.ask(SetSessionState(ORDERS, "a", b"half way")), Done)
    assert state(harness) == b"half way"
    harness.do(CloseReceiver(receiver))
    harness.restart()
    accept(harness, "a")
    assert state(harness) == b"half way"
    harness.ask(SetSessionState(ORDERS, "a", None))
    assert state(harness) is None


def test_a_state_is_read_as_it_was_set_before_it_is_written(harness: NamespaceHarness) -> None:
    accept(harness, "a")
    harness.do(SetSessionState(ORDERS, "a", b"new"))
    harness.do(GetSessionState(ORDERS, "a"), 77)
    harness.commit()
    assert answer(harness, 77) == SessionStateFound(b"new")


def test_a_state_that_was_not_committed_is_gone_after_a_crash(harness: NamespaceHarness) -> None:
    accept(harness, "a")
    harness.ask(SetSessionState(ORDERS, "a", b"old"))
    harness.do(SetSessionState(ORDERS, "a", b"new"))
    harness.restart()
    accept(harness, "a")
    assert state(harness) == b"old"


def test_only_who_has_the_session_may_look_at_its_state_or_change_it(harness: NamespaceHarness) -> None:
    for command in (GetSessionState(ORDERS, "a"), SetSessionState(ORDERS, "a", b"x")):
        assert isinstance(harness.refusal(command), SessionLockLost)


def test_what_is_asked_in_the_name_of_a_receiver_is_done_only_if_that_one_has_the_session(
    harness: NamespaceHarness,
) -> None:
    harness.send(message("1"))
    first, _ = accept(harness, "a", credit=1)
    (held,) = delivered(harness, first)
    harness.settle(Defer(), held)
    harness.pass_time(LOCK_MS)
    second, _ = accept(harness, "a")
    commands = (
        RenewSessionLock(ORDERS, "a"),
        SetSessionState(ORDERS, "a", b"x"),
        GetSessionState(ORDERS, "a"),
        ReceiveDeferred(ORDERS, (1,), ReceiveMode.PEEK_LOCK, session_id="a"),
    )
    for command in commands:
        assert isinstance(harness.refusal(replace(command, holder=first)), SessionLockLost)
    for command in commands:
        assert not isinstance(harness.ask(replace(command, holder=second)), Refused)


def test_renewals_and_waits_that_are_over_are_forgotten(harness: NamespaceHarness) -> None:
    accept(harness, "early")
    harness.do(AcceptSession(next(_receivers), ORDERS, ReceiveMode.PEEK_LOCK, None, 5_000))
    accept(harness, "often")
    for _ in range(1_000):
        harness.now_ms += 1
        harness.ask(RenewSessionLock(ORDERS, "often"))
        receiver = next(_receivers)
        harness.do(AcceptSession(receiver, ORDERS, ReceiveMode.PEEK_LOCK, None, 60_000))
        harness.do(CloseReceiver(receiver))
    queue = harness.queue
    assert isinstance(queue, SessionQueue)
    assert queue.remembered_times < 200
    harness.pass_time(2 * LOCK_MS)
    assert not queue.sessions


def test_a_state_has_a_bound(harness: NamespaceHarness) -> None:
    accept(harness, "a")
    assert isinstance(harness.refusal(SetSessionState(ORDERS, "a", bytes(300_000))), QuotaExceeded)


def fill_with_states(harness: NamespaceHarness) -> list[str]:
    """Set states until one is refused; returns whose were taken."""
    taken: list[str] = []
    while True:
        name = f"session {len(taken)}"
        accept(harness, name)
        said = harness.ask(SetSessionState(ORDERS, name, bytes(250_000)))
        if isinstance(said, Refused):
            assert isinstance(said.error, QuotaExceeded)
            return taken
        taken.append(name)


def test_states_count_against_the_maximum_size_also_after_a_restart_and_cleared_ones_do_not() -> None:
    harness = NamespaceHarness(QueueSettings(requires_session=True, lock_ms=LOCK_MS, max_size_mb=1))
    names = fill_with_states(harness)
    assert len(names) == 4
    assert harness.queue.stored_bytes == sum(len(name) + 250_000 for name in names)
    large = message("1")._replace(payload=bytes(100_000))
    assert isinstance(harness.refusal(SendMessages(ORDERS, (large,))), QuotaExceeded)
    harness.restart()
    assert isinstance(harness.refusal(SendMessages(ORDERS, (large,))), QuotaExceeded)
    accept(harness, names[0])
    assert isinstance(harness.refusal(SetSessionState(ORDERS, names[0], bytes(250_000))), QuotaExceeded)
    harness.ask(SetSessionState(ORDERS, names[0], None))
    harness.ask(SetSessionState(ORDERS, names[0], bytes(200_000)))
    harness.ask(SetSessionState(ORDERS, names[0], bytes(10)))
    harness.send(large)


def test_a_state_that_is_being_written_counts(harness: NamespaceHarness) -> None:
    accept(harness, "a")
    harness.do(SetSessionState(ORDERS, "a", bytes(100)))
    harness.do(SetSessionState(ORDERS, "a", bytes(50)))
    assert harness.queue.stored_bytes == 101 + 51, "what they replace is not known yet"
    harness.commit()
    assert harness.queue.stored_bytes == 51


def test_a_queue_that_is_full_of_messages_takes_states() -> None:
    harness = NamespaceHarness(QueueSettings(requires_session=True, lock_ms=LOCK_MS, max_size_mb=1))
    harness.send(message("1")._replace(payload=bytes(1_048_576)))
    accept(harness, "a")
    assert isinstance(harness.ask(SetSessionState(ORDERS, "a", b"half way")), Done), "or it might never be emptied"


def test_an_entity_has_so_many_states_and_no_more(harness: NamespaceHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinbus.broker.entities.session_states.STATES_MAX", 2)
    for name in ("a", "b", "c"):
        accept(harness, name)
    harness.ask(SetSessionState(ORDERS, "a", b""))
    harness.ask(SetSessionState(ORDERS, "b", b""))
    assert isinstance(harness.refusal(SetSessionState(ORDERS, "c", b"")), QuotaExceeded)
    harness.ask(SetSessionState(ORDERS, "a", None))
    assert isinstance(harness.ask(SetSessionState(ORDERS, "c", b"")), Done)


def test_a_session_id_is_no_longer_than_one_that_a_message_has(harness: NamespaceHarness) -> None:
    accept(harness, "x" * 128)
    command = AcceptSession(next(_receivers), ORDERS, ReceiveMode.PEEK_LOCK, "x" * 129, 0)
    assert isinstance(harness.refusal(command), ArgumentError)


def test_sessions_are_listed_by_messages_or_by_their_state(harness: NamespaceHarness) -> None:
    harness.send(message("1", "b"), message("2", "c"))
    accept(harness, "a")
    harness.pass_time(100)
    harness.ask(SetSessionState(ORDERS, "a", b"x"))
    everything = harness.ask(ListSessions(ORDERS, None, 0, 100))
    assert everything == SessionsFound(("a", "b", "c"), 3)
    page = harness.ask(ListSessions(ORDERS, None, 1, 1))
    assert page == SessionsFound(("b",), 2)
    updated = harness.ask(ListSessions(ORDERS, START_MS + 50, 0, 100))
    assert isinstance(updated, SessionsFound)
    assert updated.names == ("a",)


# --- what cannot be ---


def test_a_message_without_a_session_is_refused_and_none_of_its_batch_is_stored(harness: NamespaceHarness) -> None:
    assert isinstance(harness.refusal(SendMessages(ORDERS, (message("1"), message("2", None)))), NotAllowed)
    assert harness.peek() == []


def test_with_sessions_receivers_need_one_and_without_they_may_not(harness: NamespaceHarness) -> None:
    assert isinstance(harness.refusal(OpenReceiver(1, ORDERS, ReceiveMode.PEEK_LOCK)), NotAllowed)
    harness.ask(CreateQueue("plain", QueueSettings()))
    for path in ("plain", ORDERS + "/$deadletterqueue"):
        assert isinstance(harness.refusal(AcceptSession(2, path, ReceiveMode.PEEK_LOCK, "a")), NotAllowed)
    for command in (
        RenewSessionLock("plain", "a"),
        SetSessionState("plain", "a", None),
        ListSessions("plain", None, 0, 1),
    ):
        assert isinstance(harness.refusal(command), NotAllowed)


def test_whether_there_are_sessions_is_decided_when_the_queue_is_made(harness: NamespaceHarness) -> None:
    assert "cannot be changed" in str(harness.refusal(UpdateQueue(ORDERS, QueueSettings())))


def test_receivers_that_have_or_await_a_session_of_a_deleted_queue_get_an_error(harness: NamespaceHarness) -> None:
    receiver, _ = accept(harness, "a")
    _, origin = ask_for(harness, None)
    harness.take()
    harness.ask(DeleteEntity(ORDERS))
    said = harness.take()
    assert [reply.receiver for reply in said if isinstance(reply, ReceiverLost)] == [receiver]
    refusal = answer(harness, origin)
    assert isinstance(refusal, Refused)
    assert isinstance(refusal.error, EntityNotFound)


def test_requests_that_wait_when_the_store_fails_are_refused(harness: NamespaceHarness) -> None:
    _, origin = ask_for(harness, None)
    harness.do(SendMessages(ORDERS, (message("1"),)))
    harness.store.fail("disk full")
    assert isinstance(answer(harness, origin), Refused)


# --- subscriptions ---


def test_a_subscription_may_have_sessions(harness: NamespaceHarness) -> None:
    harness.ask(CreateTopic("events", TopicSettings()))
    harness.ask(CreateSubscription("events", "s", QueueSettings(requires_session=True)))
    harness.ask(CreateSubscription("events", "plain", QueueSettings()))
    harness.ask(SendMessages("events", (message("1"), message("none", None), message("2"))))
    harness.restart()
    path = "events/subscriptions/s"
    harness.do(AcceptSession(500, path, ReceiveMode.PEEK_LOCK, "a"), 501)
    harness.do(Grant(500, 5))
    harness.commit()
    assert names(delivered(harness, 500)) == ["1", "2"]
    (dead,) = harness.peek(path=path + "/$deadletterqueue")
    assert dead.message_id == "none"
    assert names(harness.peek(path="events/subscriptions/plain")) == ["1", "none", "2"]
