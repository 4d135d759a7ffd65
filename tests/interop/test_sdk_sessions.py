"""The official Python client, unmodified, against a real namespace: sessions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)
from received import receive_exactly

from twinbus.testing import LocalNamespace

WAIT_S = 30
"""Upper bound; what is there comes at once."""
BRIEF = "brief"
"""A queue whose locks end soon."""


@pytest.fixture
def client(namespace: LocalNamespace) -> Iterator[ServiceBusClient]:
    namespace.create_queue("orders", requires_session=True)
    namespace.create_queue(BRIEF, requires_session=True, lock_ms=5_000)
    with ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client:
        yield client


def send(client: ServiceBusClient, session: str, *texts: str, queue: str = "orders") -> None:
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(text, session_id=session) for text in texts])


def test_a_session_is_received_in_order_by_name(client: ServiceBusClient) -> None:
    send(client, "a", "1", "2")
    send(client, "b", "x")
    send(client, "a", "3")
    with client.get_queue_receiver("orders", session_id="a") as receiver:
        messages = receive_exactly(receiver, 3, WAIT_S)
        assert [str(message) for message in messages] == ["1", "2", "3"]
        assert {message.session_id for message in messages} == {"a"}
        assert receiver.session.session_id == "a"
        locked_until = receiver.session.locked_until_utc
        assert locked_until is not None
        assert locked_until > datetime.now(UTC)
        for message in messages:
            receiver.complete_message(message)


def test_next_available_sessions_are_given_one_by_one(client: ServiceBusClient) -> None:
    for session in ("a", "b"):
        send(client, session, session)
    seen = set()
    for _ in range(2):
        with client.get_queue_receiver("orders", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=WAIT_S) as receiver:
            (message,) = receive_exactly(receiver, 1, WAIT_S)
            receiver.complete_message(message)
            seen.add(receiver.session.session_id)
    assert seen == {"a", "b"}
    with (
        pytest.raises(OperationTimeoutError),
        client.get_queue_receiver("orders", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1) as receiver,
    ):
        receiver.receive_messages()


def test_one_receiver_has_a_session_and_closing_gives_it_back(client: ServiceBusClient) -> None:
    send(client, "a", "1", "2")
    with client.get_queue_receiver("orders", session_id="a") as first:
        assert len(receive_exactly(first, 2, WAIT_S)) == 2
        with pytest.raises(SessionCannotBeLockedError), client.get_queue_receiver("orders", session_id="a") as second:
            second.receive_messages(max_wait_time=1)
    with client.get_queue_receiver("orders", session_id="a") as again:
        messages = receive_exactly(again, 2, WAIT_S)
        assert [(str(each), each.delivery_count) for each in messages] == [("1", 0), ("2", 0)]


def test_a_state_is_kept(client: ServiceBusClient, namespace: LocalNamespace) -> None:
    with client.get_queue_receiver("orders", session_id="a") as receiver:
        assert receiver.session.get_state() is None
        receiver.session.set_state("half way")
        assert receiver.session.get_state() == b"half way"
    namespace.restart()
    with client.get_queue_receiver("orders", session_id="a") as receiver:
        assert receiver.session.get_state() == b"half way"
        receiver.session.set_state(None)
        assert receiver.session.get_state() is None


@pytest.mark.long
def test_a_lock_lasts_as_long_as_it_is_renewed(client: ServiceBusClient) -> None:
    send(client, "a", "1", queue=BRIEF)
    with client.get_queue_receiver(BRIEF, session_id="a") as receiver:
        (message,) = receive_exactly(receiver, 1, WAIT_S)
        before = receiver.session.locked_until_utc
        assert before is not None
        assert receiver.session.renew_lock() > before
        with AutoLockRenewer() as renewer:
            renewer.register(receiver, receiver.session, max_lock_renewal_duration=60)
            receiver.receive_messages(max_wait_time=6)
        receiver.complete_message(message)


def test_what_is_not_settled_when_the_lock_ends_has_failed_once(client: ServiceBusClient) -> None:
    send(client, "a", "1", queue=BRIEF)
    with client.get_queue_receiver(BRIEF, session_id="a") as receiver:
        (message,) = receive_exactly(receiver, 1, WAIT_S)
        with pytest.raises(ServiceBusError):
            receiver.receive_messages(max_wait_time=WAIT_S)  # until the link is gone
        with pytest.raises(SessionLockLostError):
            receiver.complete_message(message)
    with client.get_queue_receiver(BRIEF, session_id="a") as receiver:
        assert receive_exactly(receiver, 1, WAIT_S)[0].delivery_count == 1


@pytest.mark.long
def test_a_receiver_that_deletes_may_wait_longer_than_its_session_is_locked(client: ServiceBusClient) -> None:
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_queue_receiver(BRIEF, session_id="a", receive_mode=mode) as receiver:
        assert receiver.receive_messages(max_wait_time=7) == []
    send(client, "a", "1", queue=BRIEF)
    with client.get_queue_receiver(BRIEF, session_id="a", receive_mode=mode) as receiver:
        assert [str(each) for each in receive_exactly(receiver, 1, WAIT_S)] == ["1"]


def test_deferring_peeking_and_dead_lettering_in_a_session(client: ServiceBusClient) -> None:
    send(client, "a", "later", "bad", "seen")
    send(client, "b", "other")
    with client.get_queue_receiver("orders", session_id="a") as receiver:
        later, bad, seen = receive_exactly(receiver, 3, WAIT_S)
        receiver.defer_message(later)
        receiver.dead_letter_message(bad, reason="bad")
        receiver.abandon_message(seen)
        assert [str(message) for message in receiver.peek_messages(10, sequence_number=1)] == ["later", "seen"]
        assert later.sequence_number is not None
        (again,) = receiver.receive_deferred_messages([later.sequence_number])
        receiver.complete_message(again)
        (seen,) = receive_exactly(receiver, 1, WAIT_S)
        assert seen.delivery_count == 1
        receiver.complete_message(seen)
    with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        assert str(receive_exactly(receiver, 1, WAIT_S)[0]) == "bad"


def test_sessions_are_listed(client: ServiceBusClient) -> None:
    for session in ("b", "a"):
        send(client, session, "x")
    assert sorted(client.list_queue_sessions("orders")) == ["a", "b"]
    before = datetime.now(UTC) - timedelta(seconds=1)
    with client.get_queue_receiver("orders", session_id="c") as receiver:
        receiver.session.set_state("x")
    assert sorted(client.list_queue_sessions("orders")) == ["a", "b", "c"]
    assert list(client.list_queue_sessions("orders", state_updated_after=before)) == ["c"]


def test_receive_and_delete_in_a_session(client: ServiceBusClient) -> None:
    send(client, "a", "1", "2")
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_queue_receiver("orders", session_id="a", receive_mode=mode) as receiver:
        assert len(receive_exactly(receiver, 2, WAIT_S)) == 2
        assert receiver.peek_messages(1, sequence_number=1) == []


def test_scheduled_messages_reach_their_session(client: ServiceBusClient) -> None:
    with client.get_queue_sender("orders") as sender:
        soon = datetime.now(UTC) + timedelta(seconds=1)
        sender.schedule_messages(ServiceBusMessage("1", session_id="a"), soon)
    with client.get_queue_receiver("orders", session_id="a") as receiver:
        (message,) = receive_exactly(receiver, 1, WAIT_S)
        receiver.complete_message(message)


def test_what_needs_a_session_says_so(client: ServiceBusClient, namespace: LocalNamespace) -> None:
    namespace.create_queue("plain")
    with client.get_queue_sender("orders") as sender, pytest.raises(ServiceBusError, match="session id"):
        sender.send_messages(ServiceBusMessage("no session"))
    with pytest.raises(ServiceBusError, match="sessions"), client.get_queue_receiver("orders") as receiver:
        receiver.receive_messages(max_wait_time=1)
    with (
        pytest.raises(ServiceBusError, match="no sessions"),
        client.get_queue_receiver("plain", session_id="a") as receiver,
    ):
        receiver.receive_messages(max_wait_time=1)
