"""The relay between an application's receivers and a primary that the test plays: the AMQP engine is on both ends."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.amqp.codec.encoding import Array
from twinbus.amqp.codec.outcomes import ACCEPTED, Accepted, Error, Modified, Outcome, Rejected, TransactionalState
from twinbus.amqp.codec.performatives import Source
from twinbus.amqp.codec.types import Long, Symbol
from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import (
    AttachRequested,
    CreditChanged,
    Detached,
    DispositionArrived,
    Drained,
    Event,
    TransferArrived,
)
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.amqp.sasl import ClientSasl, ServerSasl
from twinbus.amqp.sending_link import SendingLink
from twinbus.amqp.serial import ranges
from twinbus.broker.links.attach import LOCKED_UNTIL, SESSION_FILTER
from twinbus.broker.links.backend import EncodedDelivery, PeerLink, ReadTransfer, ReceiverNotice
from twinbus.broker.links.outcomes import outcome_of, settling_outcome
from twinbus.broker.links.request_messages import Request, management_response
from twinbus.broker.operations import (
    Abandon,
    Complete,
    DeadLetter,
    Defer,
    Done,
    ReceiveMode,
    ReceiverDrained,
    ReceiverLost,
    Refused,
    Release,
    SessionAccepted,
    Settled,
    SettlementOutcome,
)
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.proxy.relay.relay import Relay
from twinbus.proxy.relay.transactions import TransactionRelay
from twinbus.proxy.relay.upstream_port import ReceiverTerms, UpstreamTransaction
from twinbus.transport.failures import failure_of
from twinbus.transport.links.link_handler import LinkHandler
from twinbus.transport.links.requests import read_response

NOW_MS = 1_700_000_000_000
LINK = PeerLink(7, "mine", None, {Symbol("color"): "red"})
GONE = Failure(FailureKind.UNREACHABLE, "connection reset", in_doubt=True, is_connection=True)


class PlayedPrimary:
    """Both ends of the connection to the primary; the relay has one, the test the other."""

    def __init__(self) -> None:
        self._ours = Connection(role=Role.CLIENT, container_id="proxy", sasl=ClientSasl())
        self._theirs = Connection(role=Role.SERVER, container_id="primary", sasl=ServerSasl())
        self._ours.open()
        self._session = self._ours.begin()
        self.link: SendingLink
        self.heard: list[Event] = []
        self.waiting: list[Callable[[Any], None]] = []
        self.ended: list[bool] = []
        self.asked: list[tuple[int, str, bytes]] = []
        self.is_reading = True
        self.closed: list[object] = []
        self.given_up: list[LinkHandler] = []
        self.terms: ReceiverTerms
        self._result: Callable[[ReceivingLink | Failure], None]
        self.exchange()

    def exchange(self) -> None:
        while True:
            out, back = self._ours.take_output(), self._theirs.take_output()
            if not out and not back:
                return
            self.heard += self._theirs.receive(out, NOW_MS)
            for event in self._ours.receive(back, NOW_MS):
                handler: Any = getattr(getattr(event, "link", None), "context", None)
                match event:
                    case TransferArrived():
                        handler.on_transfers([event])
                    case DispositionArrived():
                        handler.on_disposition(event)
                    case Drained():
                        handler.on_drained()
                    case Detached(error=error) if handler is not None:
                        handler.on_detached(failure_of(error))
                    case _:
                        pass

    # --- Upstream ---

    def open_receiver(
        self, terms: ReceiverTerms, handler: LinkHandler, on_result: Callable[[ReceivingLink | Failure], None]
    ) -> None:
        modes = (1, 0) if terms.mode is ReceiveMode.RECEIVE_AND_DELETE else (0, 1)
        source = Source(terms.path, filter=terms.link.filters)
        link = self._session.attach_receiver(
            terms.link.name, source, snd_settle_mode=modes[0], rcv_settle_mode=modes[1]
        )
        link.context = handler
        self.terms, self._result, self._opening = terms, on_result, link
        self.exchange()
        requested = [event.link for event in self.heard if isinstance(event, AttachRequested)][-1]
        assert isinstance(requested, SendingLink)
        self.link = requested

    def accept(self, **properties: Any) -> None:
        self.link.accept(**properties)
        self.exchange()
        self._result(self._opening)

    def refuse(self, failure: Failure) -> None:
        self._result(failure)

    def give_up(self, connection: int, handler: LinkHandler) -> None:
        self.given_up.append(handler)

    def close_link(self, connection: int, link: ReceivingLink) -> None:
        self.closed.append(link)
        link.context = None
        link.detach()
        self.exchange()

    def find(self, connection: int, path: str, on_result: Callable[[Failure | None], None]) -> None:
        self.waiting.append(on_result)

    def request(
        self,
        connection: int,
        path: str,
        payload: bytes,
        on_result: Callable[[bytes | Failure], None],
        transaction: bytes | None = None,
    ) -> None:
        self.asked.append((connection, path, payload))
        self.waiting.append(on_result)

    def begin_transaction(self, connection: int, on_result: Callable[[UpstreamTransaction | Failure], None]) -> None:
        self.waiting.append(on_result)

    def send_in(
        self,
        connection: int,
        transaction: UpstreamTransaction,
        path: str,
        via: str | None,
        payload: bytes,
        message_format: int,
        on_result: Callable[[Failure | None], None],
    ) -> None:
        self.asked.append((connection, path, payload))
        self.waiting.append(on_result)

    def end_transaction(
        self,
        connection: int,
        transaction: UpstreamTransaction,
        commits: bool,
        on_result: Callable[[Failure | None], None],
    ) -> None:
        self.ended.append(commits)
        self.waiting.append(on_result)

    def kept_bytes(self, connection: int) -> int:
        return 0

    def pause(self, connection: int) -> None:
        self.is_reading = False

    def resume(self, connection: int) -> None:
        self.is_reading = True

    def close(self, connection: int) -> None:
        self.closed.append(connection)

    def flush(self, connection: int) -> None:
        assert connection == LINK.connection
        self.exchange()

    # --- what the test does there ---

    def deliver(self, payload: bytes, tag: bytes, *, settled: bool = False) -> int:
        delivery_id = self.link.send(payload, tag=tag, settled=settled)
        self.exchange()
        return delivery_id

    def dispositions(self) -> list[tuple[list[bytes], Outcome | None, bool]]:
        """Outcomes that came from the relay since the last call."""
        found = [event for event in self.heard if isinstance(event, DispositionArrived)]
        self.heard = [event for event in self.heard if not isinstance(event, DispositionArrived)]
        return [([tag for _, tag in event.deliveries], event.outcome, event.settled) for event in found]

    def answer(self, first: int, last: int, outcome: Outcome) -> None:
        self.link.settle(first, last, outcome)
        self.exchange()

    @property
    def credit(self) -> int:
        return self.link.credit


class Observer:
    def __init__(self) -> None:
        self.seen: list[object] = []

    def delivered(self, path: str, payload: bytes, *, is_final: bool) -> object:
        self.seen.append((path, payload, is_final))
        return payload

    def settled(self, path: str, messages: Sequence[object], outcome: SettlementOutcome) -> None:
        self.seen.append((path, list(messages), outcome))


class Application:
    """What links would do with a relay, and what they would see."""

    def __init__(self) -> None:
        self.primary = PlayedPrimary()
        self.notices: list[ReceiverNotice] = []
        self.replies: list[object] = []
        self.observer = Observer()
        self.relay = Relay(self.primary, self.notices.append, self.observer)

    def open(self, mode: ReceiveMode = ReceiveMode.PEEK_LOCK) -> None:
        self.relay.open_receiver(1, "orders", mode, LINK, NOW_MS, self.replies.append)

    def settle(self, outcome: SettlementOutcome, *tokens: bytes, waits: bool = True) -> None:
        reply = self.replies.append if waits else None
        self.relay.settle(1, "orders", tokens, outcome, NOW_MS, reply)

    def take_notices(self) -> list[ReceiverNotice]:
        taken, self.notices[:] = list(self.notices), []
        return taken


@pytest.fixture
def application() -> Application:
    made = Application()
    made.open()
    made.primary.accept()
    made.replies.clear()
    return made


def test_a_link_is_opened_as_the_application_asked_for_it() -> None:
    application = Application()
    application.open()
    assert application.replies == []
    assert application.primary.terms == ReceiverTerms("orders", ReceiveMode.PEEK_LOCK, LINK, 0)
    assert application.primary.link.name == "mine"
    application.primary.accept()
    assert application.replies == [Done()]


def test_a_refusal_is_passed_on_as_it_was_said() -> None:
    application = Application()
    application.open()
    application.primary.refuse(failure_of(Error("amqp:not-found", "no such queue")))
    (refused,) = application.replies
    assert isinstance(refused, Refused)
    assert (refused.error.condition, str(refused.error)) == ("amqp:not-found", "no such queue")


def test_a_primary_that_cannot_be_reached_refuses_with_a_condition_that_clients_retry() -> None:
    application = Application()
    application.open()
    application.primary.refuse(GONE)
    (refused,) = application.replies
    assert isinstance(refused, Refused)
    assert refused.error.condition == "amqp:link:detach-forced"
    assert "cannot be reached: connection reset" in str(refused.error)


def test_a_link_that_opens_after_its_receiver_closed_is_closed_and_nothing_is_reported() -> None:
    application = Application()
    application.open()
    application.relay.close_receiver(1, NOW_MS)
    assert len(application.primary.given_up) == 1
    application.primary.accept()
    assert application.replies == []
    assert len(application.primary.closed) == 1


def test_a_link_that_is_lost_in_the_moment_of_its_opening_is_refused() -> None:
    application = Application()
    application.open()
    application.relay._receivers[1].on_detached(GONE)  # before anybody was told that it is open
    assert application.notices == []
    application.primary.accept()
    (refused,) = application.replies
    assert isinstance(refused, Refused)
    assert refused.error.condition == "amqp:link:detach-forced"
    assert application.relay.receivers == 0


@pytest.mark.parametrize("is_lost", [True, False])
def test_nothing_is_reported_of_a_link_that_was_closed_before_it_was_open(is_lost: bool) -> None:
    application = Application()
    application.open()
    if is_lost:
        application.relay._receivers[1].on_detached(GONE)
    application.relay.close_receiver(1, NOW_MS)
    if is_lost:
        application.primary.accept()
    else:
        application.primary.refuse(GONE)
    assert application.replies == application.notices == []
    assert application.relay.receivers == 0


def test_a_session_and_its_lock_are_reported_as_the_primary_gave_them() -> None:
    application = Application()
    link = PeerLink(7, "mine", {Symbol(SESSION_FILTER): None})
    application.relay.accept_session(
        1, "orders", ReceiveMode.PEEK_LOCK, None, 5_000, link, NOW_MS, application.replies.append
    )
    assert application.primary.terms.wait_ms == 5_000
    source = Source("orders", filter={Symbol(SESSION_FILTER): "blue"})
    ticks = Long(NOW_MS * 10_000 + 621_355_968_000_000_000)
    application.primary.accept(source=source, properties={Symbol(LOCKED_UNTIL): ticks})
    assert application.replies == [SessionAccepted("blue", NOW_MS)]


def test_a_link_without_a_session_is_no_accepted_session_and_is_closed() -> None:
    application = Application()
    application.relay.accept_session(
        1, "orders", ReceiveMode.PEEK_LOCK, None, 5_000, LINK, NOW_MS, application.replies.append
    )
    application.primary.accept()
    assert isinstance(application.replies[0], Refused)
    assert len(application.primary.closed) == 1


def test_deliveries_keep_their_bytes_and_their_tags(application: Application) -> None:
    application.relay.grant_credit(1, 2, False, NOW_MS)
    application.primary.deliver(b"first", b"a" * 16)
    application.primary.deliver(b"second", b"b" * 16)
    assert application.take_notices() == [
        EncodedDelivery(1, b"first", b"a" * 16),
        EncodedDelivery(1, b"second", b"b" * 16),
    ]


def test_what_is_received_and_deleted_has_no_token() -> None:
    application = Application()
    application.open(ReceiveMode.RECEIVE_AND_DELETE)
    application.primary.accept()
    application.relay.grant_credit(1, 1, False, NOW_MS)
    application.primary.deliver(b"first", b"", settled=True)
    assert application.notices == [EncodedDelivery(1, b"first", None)]
    assert application.observer.seen == [("orders", b"first", True)]


def test_credit_is_what_the_application_has_left(application: Application) -> None:
    application.relay.grant_credit(1, 5, False, NOW_MS)
    assert application.primary.credit == 5
    application.primary.deliver(b"1", b"1")
    application.primary.deliver(b"2", b"2")
    application.relay.grant_credit(1, 6, False, NOW_MS)  # six in all, two of them came
    assert application.primary.credit == 4
    application.relay.grant_credit(1, 2, False, NOW_MS)  # taken back
    assert application.primary.credit == 0


def test_a_drain_is_passed_on_and_answered_after_what_came_first(application: Application) -> None:
    application.relay.grant_credit(1, 5, True, NOW_MS)
    assert any(isinstance(event, CreditChanged) and event.drain for event in application.primary.heard)
    application.primary.deliver(b"1", b"1")
    assert application.take_notices() == [EncodedDelivery(1, b"1", b"1")]
    application.primary.link.drained()
    application.primary.exchange()
    assert application.take_notices() == [ReceiverDrained(1)]
    application.relay.grant_credit(1, 8, False, NOW_MS)  # five are used up by the drain
    assert application.primary.credit == 3


def drains_heard(application: Application) -> int:
    return len([each for each in application.primary.heard if isinstance(each, CreditChanged) and each.drain])


def test_a_drain_gives_no_credit_back_that_messages_on_their_way_have_used(application: Application) -> None:
    application.relay.grant_credit(1, 5, False, NOW_MS)
    for name in (b"1", b"2", b"3", b"4"):
        application.primary.deliver(name, name)
    application.relay.grant_credit(1, 2, True, NOW_MS)  # taken back, after four had come
    application.primary.link.drained()
    application.primary.exchange()
    application.relay.grant_credit(1, 5, False, NOW_MS)
    assert application.primary.credit == 1


def test_a_drain_that_is_taken_back_is_not_answered_and_the_credit_is_granted_again(application: Application) -> None:
    application.relay.grant_credit(1, 5, True, NOW_MS)
    application.relay.grant_credit(1, 8, False, NOW_MS)
    application.primary.deliver(b"1", b"1")
    application.primary.link.drained()  # of the first five
    application.primary.exchange()
    assert application.take_notices() == [EncodedDelivery(1, b"1", b"1")]
    assert application.primary.credit == 7


def test_a_drain_of_more_credit_is_answered_when_that_is_drained_too(application: Application) -> None:
    application.relay.grant_credit(1, 5, True, NOW_MS)
    application.relay.grant_credit(1, 8, True, NOW_MS)
    application.primary.link.drained()
    application.primary.exchange()
    assert application.take_notices() == []
    assert application.primary.credit == 8
    application.primary.link.drained()
    application.primary.exchange()
    assert application.take_notices() == [ReceiverDrained(1)]


def test_a_drain_is_asked_for_and_answered_once_however_often_it_is_wanted(application: Application) -> None:
    application.relay.grant_credit(1, 5, True, NOW_MS)
    application.relay.grant_credit(1, 5, True, NOW_MS)
    assert drains_heard(application) == 1
    application.primary.link.drained()
    application.primary.exchange()
    assert application.take_notices() == [ReceiverDrained(1)]
    application.relay.grant_credit(1, 9, True, NOW_MS)
    assert drains_heard(application) == 2
    application.primary.link.drained()
    application.primary.link.drained()
    application.primary.exchange()
    assert application.take_notices() == [ReceiverDrained(1)]


def test_a_settlement_is_answered_when_the_primary_has_answered(application: Application) -> None:
    application.relay.grant_credit(1, 3, False, NOW_MS)
    ids = [application.primary.deliver(name, name) for name in (b"1", b"2", b"3")]
    application.settle(Complete(), b"1", b"2", b"3")
    assert application.primary.dispositions() == [([b"1", b"2", b"3"], ACCEPTED, False)]
    application.primary.answer(ids[0], ids[1], ACCEPTED)
    assert application.replies == []
    lost = Rejected(Error("com.microsoft:message-lock-lost", "too late"))
    application.primary.answer(ids[2], ids[2], lost)
    (settled,) = application.replies
    assert isinstance(settled, Settled)
    assert {token: (error.condition, str(error)) for token, error in settled.failures.items()} == {
        b"3": ("com.microsoft:message-lock-lost", "too late")
    }
    assert ("orders", [b"1"], Complete()) in application.observer.seen
    assert ("orders", [b"3"], Complete()) not in application.observer.seen


class PlayedTransaction:
    id = b"theirs"
    is_lost = False


@pytest.fixture
def transactions(application: Application) -> TransactionRelay:
    """With one that has begun, number 5."""
    made = TransactionRelay(application.relay, application.observer)
    made.begin(5, LINK.connection, NOW_MS, application.replies.append)
    assert (application.replies, application.primary.waiting) == ([Done()], []), "the primary hears nothing of it yet"
    request = Request("id", None, "peek-message", {}, {})
    made.request(5, "orders", request, NOW_MS, lambda _response: None)
    application.primary.waiting.pop()(PlayedTransaction())
    application.primary.waiting.clear()
    application.replies.clear()
    return made


def test_a_settlement_in_a_transaction_has_its_id_at_the_primary_and_is_recorded_with_the_commit(
    application: Application, transactions: TransactionRelay
) -> None:
    application.relay.grant_credit(1, 1, False, NOW_MS)
    number = application.primary.deliver(b"1", b"1")
    transactions.enlist_settlement(5, 1, "orders", (b"1",), Complete(), NOW_MS, application.replies.append)
    [said] = [event for event in application.primary.heard if isinstance(event, DispositionArrived)]
    assert (said.outcome, said.transaction, said.settled) == (ACCEPTED, b"theirs", False)
    application.primary.link.settle(number, number, TransactionalState(b"theirs", ACCEPTED))
    application.primary.exchange()
    assert application.replies == [Settled({})]
    assert ("orders", [b"1"], Complete()) not in application.observer.seen
    transactions.end(5, True, NOW_MS, application.replies.append)
    application.primary.waiting.pop()(None)
    assert application.replies[1:] == [Done()]
    assert ("orders", [b"1"], Complete()) in application.observer.seen


def test_without_an_answer_to_a_commit_nobody_knows_and_that_is_said(
    application: Application, transactions: TransactionRelay
) -> None:
    transactions.end(5, True, NOW_MS, application.replies.append)
    application.primary.waiting.pop()(GONE)
    (refused,) = application.replies
    assert isinstance(refused, Refused)
    assert refused.error.condition == "com.microsoft:timeout"
    assert "all of it has happened, or nothing" in str(refused.error)


def test_a_transaction_in_which_something_is_in_doubt_is_rolled_back(
    application: Application, transactions: TransactionRelay
) -> None:
    transfer = ReadTransfer(TransferArrived(cast("ReceivingLink", None), 1, b"t", 0, False, b"m", b"ours"), ())
    transactions.enlist_send(5, "orders", None, transfer, NOW_MS, application.replies.append)
    application.primary.waiting.pop()(GONE)
    transactions.end(5, True, NOW_MS, application.replies.append)
    conditions = [reply.error.condition for reply in application.replies if isinstance(reply, Refused)]
    assert conditions == ["amqp:transaction:unknown-id", "amqp:transaction:rollback"]
    assert application.primary.ended == [False]


@pytest.mark.parametrize("ends", ["lost", "closed"])
def test_a_transaction_with_a_settlement_that_is_never_answered_is_rolled_back(
    application: Application, transactions: TransactionRelay, ends: str
) -> None:
    application.relay.grant_credit(1, 2, False, NOW_MS)
    for tag in (b"1", b"2"):
        application.primary.deliver(tag, tag)
    transactions.enlist_settlement(5, 1, "orders", (b"1", b"2"), Complete(), NOW_MS, application.replies.append)
    if ends == "lost":
        application.relay._receivers[1].on_detached(GONE)
    else:
        application.relay.close_receiver(1, NOW_MS)
    transactions.end(5, True, NOW_MS, application.replies.append)
    conditions = [reply.error.condition for reply in application.replies if isinstance(reply, Refused)]
    assert conditions == ["amqp:transaction:unknown-id", "amqp:transaction:rollback"]
    assert application.primary.ended == [False]
    assert all(("orders", [tag], Complete()) not in application.observer.seen for tag in (b"1", b"2"))


def test_a_transaction_with_a_request_that_is_never_answered_is_rolled_back(
    application: Application, transactions: TransactionRelay
) -> None:
    request = Request("id", None, "com.microsoft:update-disposition", {}, {})
    transactions.request(5, "orders", request, NOW_MS, lambda _response: None)
    application.primary.waiting.pop()(failure_of(Error("com.microsoft:server-busy", "its link was ended")))
    transactions.end(5, True, NOW_MS, application.replies.append)
    assert [type(reply) for reply in application.replies] == [Refused]
    assert application.primary.ended == [False]


@pytest.mark.parametrize(
    ("condition", "commits"), [("amqp:not-allowed", True), ("amqp:link:detach-forced", False), (None, False)]
)
def test_a_transaction_goes_on_after_a_transfer_that_was_refused_for_itself_only(
    application: Application, transactions: TransactionRelay, condition: str | None, commits: bool
) -> None:
    transfer = ReadTransfer(TransferArrived(cast("ReceivingLink", None), 1, b"t", 0, False, b"m", b"ours"), ())
    transactions.enlist_send(5, "orders", None, transfer, NOW_MS, application.replies.append)
    application.primary.waiting.pop()(failure_of(None if condition is None else Error(condition, "no")))
    transactions.end(5, True, NOW_MS, application.replies.append)
    assert application.primary.ended == [commits]


def test_a_transaction_is_lost_with_its_link_at_the_primary(
    application: Application, transactions: TransactionRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PlayedTransaction, "is_lost", True)
    transactions.enlist_settlement(5, 1, "orders", (b"1",), Complete(), NOW_MS, application.replies.append)
    transactions.end(5, True, NOW_MS, application.replies.append)
    conditions = [reply.error.condition for reply in application.replies if isinstance(reply, Refused)]
    assert conditions == ["amqp:transaction:unknown-id", "amqp:transaction:rollback"]
    assert application.primary.ended == []


def test_what_needs_no_answer_is_settled_at_once(application: Application) -> None:
    application.relay.grant_credit(1, 1, False, NOW_MS)
    application.primary.deliver(b"1", b"1")
    application.settle(Complete(), b"1", waits=False)
    assert application.primary.dispositions() == [([b"1"], ACCEPTED, True)]


def test_an_unknown_token_has_lost_its_lock_and_the_others_are_settled(application: Application) -> None:
    application.relay.grant_credit(1, 1, False, NOW_MS)
    number = application.primary.deliver(b"1", b"1")
    application.settle(Complete(), b"1", b"never seen")
    application.primary.answer(number, number, ACCEPTED)
    (settled,) = application.replies
    assert isinstance(settled, Settled)
    assert [error.condition for error in settled.failures.values()] == ["com.microsoft:message-lock-lost"]
    assert list(settled.failures) == [b"never seen"]


def test_the_loss_of_the_primary_detaches_the_receiver_and_forgets_it(application: Application) -> None:
    application.relay.grant_credit(1, 1, False, NOW_MS)
    application.primary.deliver(b"1", b"1")
    application.settle(Complete(), b"1")
    handler = application.relay._receivers[1]
    handler.on_detached(GONE)
    lost = application.take_notices()[-1]
    assert isinstance(lost, ReceiverLost)
    assert lost.error.condition == "amqp:link:detach-forced"
    assert application.relay.receivers == 0
    application.settle(Complete(), b"1")
    (refused,) = application.replies
    assert isinstance(refused, Refused)
    assert refused.error.condition == "com.microsoft:message-lock-lost"


def test_what_a_client_settles_by_request_after_the_loss_of_its_link_is_shown_to_the_observer(
    application: Application,
) -> None:
    tokens = [uuid.UUID(int=number) for number in (1, 2)]
    application.relay.grant_credit(1, 2, False, NOW_MS)
    for number, token in enumerate(tokens):
        application.primary.deliver(f"{number}".encode(), token.bytes_le)
    application.settle(Complete(), tokens[0].bytes_le)  # not answered any more
    application.relay._receivers[1].on_detached(GONE)
    body = {"disposition-status": "completed", "lock-tokens": Array(tokens, 0x98)}
    request = Request("id", "me", "com.microsoft:update-disposition", {}, body)
    application.relay.request("orders", request, 7, NOW_MS, lambda _: None)
    application.primary.waiting[-1](management_response(request, 200, "OK", {}))
    assert ("orders", [b"0", b"1"], Complete()) in application.observer.seen


def test_a_detach_of_the_primary_is_passed_on_with_its_reason(application: Application) -> None:
    application.primary.link.detach(Error("com.microsoft:entity-disabled", "closed for today"))
    application.primary.exchange()
    (lost,) = application.notices
    assert isinstance(lost, ReceiverLost)
    assert (lost.error.condition, str(lost.error)) == ("com.microsoft:entity-disabled", "closed for today")
    assert len(application.primary.closed) == 1, "what is left of the link at the primary is closed too"


@pytest.mark.parametrize(
    "condition", ["com.microsoft:timeout", "com.microsoft:server-busy", "com.microsoft:operation-cancelled"]
)
def test_a_detach_after_which_clients_would_not_come_back_is_told_as_a_loss(
    application: Application, condition: str
) -> None:
    application.primary.link.detach(Error(condition, "not now"))
    application.primary.exchange()
    (lost,) = application.notices
    assert isinstance(lost, ReceiverLost)
    assert (lost.error.condition, str(lost.error)) == ("amqp:link:detach-forced", "not now")


def test_while_the_application_does_not_read_the_primary_is_not_read(application: Application) -> None:
    application.relay.pause_receiver(1, NOW_MS)
    assert not application.primary.is_reading
    application.relay.resume_receiver(1, NOW_MS)
    assert application.primary.is_reading


@pytest.mark.parametrize("is_lost", [True, False])
def test_the_primary_is_read_again_when_the_receiver_that_was_not_read_is_gone(
    application: Application, is_lost: bool
) -> None:
    application.relay.open_receiver(2, "audit", ReceiveMode.PEEK_LOCK, LINK, NOW_MS, application.replies.append)
    application.primary.accept()
    for receiver in (1, 2):
        application.relay.pause_receiver(receiver, NOW_MS)
    application.relay.resume_receiver(2, NOW_MS)
    assert not application.primary.is_reading
    if is_lost:
        application.relay._receivers[1].on_detached(GONE)
    else:
        application.relay.close_receiver(1, NOW_MS)
    assert application.primary.is_reading
    application.relay.pause_receiver(1, NOW_MS)
    assert application.primary.is_reading, "it is gone already"


def test_a_primary_that_sends_without_end_what_nobody_asked_for_loses_the_link(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinbus.proxy.relay.relay.UNASKED_MAX", 5)
    application.relay.grant_credit(1, 2, False, NOW_MS)
    for number in range(2 + 5):
        application.primary.deliver(b"%d" % number, b"%d" % number)
    assert application.relay.receivers == 1
    application.primary.deliver(b"7", b"7")
    assert application.relay.receivers == 0
    *deliveries, lost = application.notices
    assert len(deliveries) == 8
    assert isinstance(lost, ReceiverLost)
    assert lost.error.condition == "amqp:link:detach-forced"
    assert "than it was asked for" in str(lost.error)


def test_while_the_application_does_not_take_its_answers_the_primary_is_not_read(application: Application) -> None:
    application.relay.pause_connection(LINK.connection)
    assert not application.primary.is_reading
    application.relay.pause_receiver(1, NOW_MS)
    application.relay.resume_connection(LINK.connection)
    assert not application.primary.is_reading, "its receiver is not to get anything"
    application.relay.resume_receiver(1, NOW_MS)
    assert application.primary.is_reading


def test_a_request_goes_to_the_primary_as_it_is_and_the_response_comes_back_as_it_is(application: Application) -> None:
    request = Request("id", "reply", "com.microsoft:peek-message", {}, {}, b"the request")
    application.relay.request("orders", request, 7, NOW_MS, application.replies.append)
    assert application.primary.asked == [(7, "orders", b"the request")]
    application.primary.waiting.pop()(b"the response")
    assert application.replies == [b"the response"]


def test_a_request_that_finds_no_primary_is_answered_with_a_time_out(application: Application) -> None:
    request = Request("id", "reply", "com.microsoft:peek-message", {}, {}, b"the request")
    application.relay.request("orders", request, 7, NOW_MS, application.replies.append)
    application.primary.waiting.pop()(GONE)
    (payload,) = application.replies
    assert isinstance(payload, bytes)
    response = read_response(payload)
    assert (response.code, response.condition) == (408, "com.microsoft:timeout")


def test_requests_may_be_sent_while_the_primary_is_away_but_not_to_an_entity_that_it_does_not_have(
    application: Application,
) -> None:
    for failure in (None, GONE, failure_of(Error("amqp:not-found", "no such queue"))):
        application.relay.find_entity("orders", 7, NOW_MS, application.replies.append)
        application.primary.waiting.pop()(failure)
    found, hoped, refused = application.replies
    assert found == hoped == Done()
    assert isinstance(refused, Refused)


OUTCOMES = st.one_of(
    st.just(Complete()),
    st.just(Release()),
    *[
        st.builds(kind, st.none() | st.dictionaries(st.text(min_size=1), st.text() | st.booleans(), min_size=1))
        for kind in (Abandon, Defer, DeadLetter)
    ],
)


@given(OUTCOMES)
def test_every_settlement_is_written_as_an_outcome_that_means_the_same(outcome: SettlementOutcome) -> None:
    read = outcome_of(settling_outcome(outcome), is_final=True)
    assert type(read) is type(outcome)
    assert [each or {} for each in read or ()] == [each or {} for each in outcome]


def test_an_abandoned_message_counts_as_delivered_once_more() -> None:
    assert settling_outcome(Abandon()) == Modified(delivery_failed=True)
    assert isinstance(settling_outcome(Complete()), Accepted)


@given(st.sets(st.integers(0, 40)))
def test_ranges_cover_each_number_once(numbers: set[int]) -> None:
    found = list(ranges(list(numbers)))
    assert [number for first, last in found for number in range(first, last + 1)] == sorted(numbers)
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(found))
