"""The relay: receivers, settlements, sessions and requests of applications, passed on to the primary link by link.

A delivery is passed on as it comes, with its tag, which is its lock token; the settlement goes back the same way, and
its answer too. So a message is either at the primary or in the hands of the application, and nothing is kept here but
the numbers that belong together. There is no clock and no socket in this file: see `upstream_port.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

from twinbus.amqp.codec.outcomes import DeliveryState, Outcome, Rejected, TransactionalState
from twinbus.amqp.events import DispositionArrived, TransferArrived
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.amqp.serial import ranges, steps
from twinbus.broker.links.attach import LOCKED_UNTIL, TICKS_PER_MS, TICKS_TO_1970, filtered_session
from twinbus.broker.links.backend import EncodedDelivery, PeerLink, ReceiverNotice
from twinbus.broker.links.outcomes import settling_outcome
from twinbus.broker.links.request_messages import Request, failure_response
from twinbus.broker.operations import (
    Done,
    ReceiveMode,
    ReceiverDrained,
    ReceiverLost,
    Refused,
    SessionAccepted,
    Settled,
    SettlementOutcome,
)
from twinbus.errors import ArgumentError, ConditionError, LockLost, NamespaceError, UnknownTransaction
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.proxy.entity_paths import check_path
from twinbus.proxy.relay.requested_messages import RequestedMessages, SettlementObserver
from twinbus.proxy.relay.upstream_port import LINK_LOST, TIMED_OUT, ReceiverTerms, Upstream, loss_of, refusal_of
from twinbus.transport.links.link_handler import LinkHandler

R = TypeVar("R")

UNASKED_MAX = 20_000
"""Messages without credit: more than can be on their way when an application takes its credit back."""
_UNASKED = Failure(FailureKind.INTERNAL, "the primary sends many more messages than it was asked for", LINK_LOST)
_CLOSED = Failure(FailureKind.NO_ANSWER, "the receiver was closed before", in_doubt=True)
_ANSWERS = 0
"""In place of the number of a receiver, which are above 0."""


@dataclass(slots=True)
class EnlistedWork:
    """What is known of a transaction of the primary."""

    settled: list[tuple[str, object, SettlementOutcome]] = field(default_factory=list)
    """What is settled if it is committed: for the observer."""
    doubt: Failure | None = None
    """Why nobody knows whether something belongs to it: then it must not be committed."""


class Relay:
    def __init__(
        self,
        upstream: Upstream,
        notify: Callable[[ReceiverNotice], None],
        observer: SettlementObserver | None = None,
        tried: Callable[[str, Failure | None], None] = lambda _path, _failure: None,
    ) -> None:
        """`notify` takes deliveries, and what else receivers have to know; `tried` every attempt to receive."""
        self.upstream = self._upstream = upstream
        self._notify = notify
        self._observer = observer
        self._tried = tried
        self._requested = None if observer is None else RequestedMessages(observer)
        self._receivers: dict[int, RelayedReceiver] = {}
        self._paused: dict[int, set[int]] = {}
        """By connection, its receivers that are not to get anything, and `_ANSWERS` if it is not to get these. While
        there are some, the primary is not read."""

    @property
    def receivers(self) -> int:
        return len(self._receivers)

    # --- receivers ---

    def open_receiver(
        self,
        receiver: int,
        path: str,
        mode: ReceiveMode,
        link: PeerLink,
        now_ms: int,
        on_reply: Callable[[Done | Refused], None],
    ) -> None:
        self._open(receiver, ReceiverTerms(path, mode, link, 0), lambda _: Done(), on_reply)

    def accept_session(
        self,
        receiver: int,
        path: str,
        mode: ReceiveMode,
        session_id: str | None,
        wait_ms: int,
        link: PeerLink,
        now_ms: int,
        on_reply: Callable[[SessionAccepted | Refused], None],
    ) -> None:
        self._open(receiver, ReceiverTerms(path, mode, link, wait_ms), accepted_session, on_reply)

    def _open(
        self,
        receiver: int,
        terms: ReceiverTerms,
        describe: Callable[[ReceivingLink], R | Refused],
        on_reply: Callable[[R | Refused], None],
    ) -> None:
        try:
            check_path(terms.path)
        except ArgumentError as error:
            on_reply(Refused(error))
            return
        relayed = RelayedReceiver(receiver, terms, self._upstream, self._notify, self._observer, self._requested)
        self._receivers[receiver] = relayed
        relayed.on_lost = partial(self._lost, receiver)

        def opened(result: ReceivingLink | Failure) -> None:
            relayed.is_opening = False
            self._tried(terms.path, result if isinstance(result, Failure) else None)
            if isinstance(result, Failure):
                relayed.lost = result
            else:
                relayed.link = result
            if relayed.is_closed:
                relayed.close()
            elif relayed.lost is not None:
                self.close_receiver(receiver, 0)
                on_reply(Refused(refusal_of(relayed.lost, LINK_LOST)))
            elif relayed.link is not None:
                reply = describe(relayed.link)
                if isinstance(reply, Refused):
                    self.close_receiver(receiver, 0)
                on_reply(reply)

        self._upstream.open_receiver(terms, relayed, opened)

    def grant_credit(self, receiver: int, credit_limit: int, drain: bool, now_ms: int) -> None:
        relayed = self._receivers.get(receiver)
        if relayed is not None:
            relayed.grant(credit_limit, drain)

    def pause_receiver(self, receiver: int, now_ms: int) -> None:
        """The application does not read: then its connection to the primary is not read either."""
        relayed = self._receivers.get(receiver)
        if relayed is not None:
            self._pause(relayed.terms.link.connection, receiver)

    def resume_receiver(self, receiver: int, now_ms: int) -> None:
        relayed = self._receivers.get(receiver)
        if relayed is not None:
            self._resume(relayed.terms.link.connection, receiver)

    def _pause(self, connection: int, receiver: int) -> None:
        self._paused.setdefault(connection, set()).add(receiver)
        self._upstream.pause(connection)

    def _resume(self, connection: int, receiver: int) -> None:
        paused = self._paused.get(connection, set())
        paused.discard(receiver)
        if not paused and self._paused.pop(connection, None) is not None:
            self._upstream.resume(connection)

    def close_receiver(self, receiver: int, now_ms: int) -> None:
        relayed = self._receivers.get(receiver)
        if relayed is not None:
            relayed.close()
            self._forget(receiver)

    def _lost(self, receiver: int, failure: Failure) -> None:
        relayed = self._receivers.get(receiver)
        if relayed is not None:
            self._tried(relayed.terms.path, failure)
        self._forget(receiver)

    def _forget(self, receiver: int) -> None:
        relayed = self._receivers.pop(receiver, None)
        if relayed is not None:
            self._resume(relayed.terms.link.connection, receiver)

    def settle(
        self,
        receiver: int,
        path: str,
        tokens: tuple[bytes, ...],
        outcome: SettlementOutcome,
        now_ms: int,
        on_reply: Callable[[Settled | Refused], None] | None,
    ) -> None:
        relayed = self._receivers.get(receiver)
        if relayed is not None:
            relayed.settle(tokens, outcome, on_reply)
        elif on_reply is not None:
            on_reply(Refused(LockLost("the receiver of these messages is closed, and their locks with it")))

    def settle_in(
        self,
        receiver: int,
        tokens: tuple[bytes, ...],
        outcome: SettlementOutcome,
        txn_id: bytes,
        work: EnlistedWork,
        on_reply: Callable[[Settled | Refused], None],
    ) -> None:
        """Settle messages as a part of a transaction of the primary."""
        relayed = self._receivers.get(receiver)
        if relayed is not None:
            relayed.settle(tokens, outcome, on_reply, txn_id, work)
        else:
            on_reply(Refused(LockLost("the receiver of these messages is closed, and their locks with it")))

    # --- requests ---

    def find_entity(self, path: str, connection: int, now_ms: int, on_reply: Callable[[Done | Refused], None]) -> None:
        def found(failure: Failure | None) -> None:
            # Without the primary there is no telling whether the entity exists; what is scheduled can still be sent.
            is_said = failure is not None and failure.condition is not None and not failure.is_connection
            on_reply(Refused(refusal_of(failure, LINK_LOST)) if failure is not None and is_said else Done())

        try:
            check_path(path)
        except ArgumentError as error:
            on_reply(Refused(error))
        else:
            self._upstream.find(connection, path, found)

    def request(
        self,
        path: str,
        request: Request,
        connection: int,
        now_ms: int,
        on_response: Callable[[bytes], None],
        txn_id: bytes | None = None,
        work: EnlistedWork | None = None,
    ) -> None:
        """`txn_id`, `work`: of the transaction it belongs to."""

        def responded(result: bytes | Failure) -> None:
            if isinstance(result, Failure):
                if work is not None:
                    work.doubt = result  # it may have arrived
                result = failure_response(request, refusal_of(result, TIMED_OUT))
            elif self._requested is not None and txn_id is None:
                self._requested.responded(path, request, result)
            on_response(result)

        self._upstream.request(connection, path, request.payload, responded, txn_id)

    def kept_bytes(self, connection: int) -> int:
        return self._upstream.kept_bytes(connection)

    def pause_connection(self, connection: int) -> None:
        """The application does not take its answers: then they stay at the primary."""
        self._pause(connection, _ANSWERS)

    def resume_connection(self, connection: int) -> None:
        self._resume(connection, _ANSWERS)

    def close_connection(self, connection: int, now_ms: int) -> None:
        self._paused.pop(connection, None)
        self._upstream.close(connection)


class _Settling(NamedTuple):
    """Tokens whose outcome was passed on with one call, and the answers so far."""

    waiting: set[bytes]
    failures: dict[bytes, NamespaceError]
    outcome: SettlementOutcome
    on_reply: Callable[[Settled | Refused], None]
    work: EnlistedWork | None = None
    """Of the transaction with which they are settled."""

    def unanswered(self, failure: Failure) -> None:
        """The primary will not say whether they belong to the transaction."""
        if self.work is not None and self.waiting:
            self.work.doubt = failure
            self.waiting.clear()
            text = f"the transaction is lost: the primary did not answer a settlement ({failure.text})"
            self.on_reply(Refused(UnknownTransaction(text)))


class RelayedReceiver(LinkHandler):
    """One receiver of an application, and its link at the primary."""

    def __init__(
        self,
        number: int,
        terms: ReceiverTerms,
        upstream: Upstream,
        notify: Callable[[ReceiverNotice], None],
        observer: SettlementObserver | None,
        requested: RequestedMessages | None,
    ) -> None:
        super().__init__()
        self.terms = terms
        self.link: ReceivingLink | None = None
        self.is_closed = False
        self.is_opening = True
        """The primary has not answered yet."""
        self.lost: Failure | None = None
        """Why the link ended before its opening was reported; then that is reported instead."""
        self.on_lost: Callable[[Failure], object] = lambda _failure: None
        self._number = number
        self._upstream = upstream
        self._notify = notify
        self._observer = observer
        self._requested = requested
        self._delivered = 0
        """Of the credit that was granted in all: messages passed on, and credit that was given back."""
        self._credit_limit = 0
        self._wants_drain = False
        """Whether the application waits until its credit is used up or given back."""
        self._drained_limit: int | None = None
        """The credit that the primary was asked to use up or give back; None: there is no answer to wait for."""
        self._deliveries: dict[bytes, tuple[int, object]] = {}
        """By token, what the application has not settled: the primary's delivery id, and the observer's note."""
        self._settling: dict[int, tuple[bytes, object, _Settling]] = {}
        """By delivery id, what waits for the primary's answer."""

    # --- what the application wants ---

    def grant(self, credit_limit: int, drain: bool) -> None:
        self._credit_limit, self._wants_drain = credit_limit, drain
        if self._drained_limit is None:  # else what was given back has to be known first
            self._pass_credit_on()

    def _pass_credit_on(self) -> None:
        if self.link is not None:
            self._drained_limit = self._credit_limit if self._wants_drain else None
            self.link.grant(max(0, steps(self._delivered, self._credit_limit)), drain=self._wants_drain)
            self._flush()

    def settle(
        self,
        tokens: tuple[bytes, ...],
        outcome: SettlementOutcome,
        on_reply: Callable[[Settled | Refused], None] | None,
        txn_id: bytes | None = None,
        work: EnlistedWork | None = None,
    ) -> None:
        found = {token: self._deliveries.pop(token) for token in tokens if token in self._deliveries}
        unknown = [token for token in tokens if token not in found]
        ids = [delivery_id for delivery_id, _ in found.values()]
        if on_reply is not None:
            lost = {token: LockLost("the lock of this message is lost") for token in unknown}
            settling = _Settling(set(found), dict[bytes, NamespaceError](lost), outcome, on_reply, work)
            for token, (delivery_id, record) in found.items():
                self._settling[delivery_id] = (token, record, settling)
            if not found:
                on_reply(Settled(settling.failures))
        elif self._observer is not None and found:
            self._observer.settled(self.terms.path, [record for _, record in found.values()], outcome)
        if self.link is not None:
            state: DeliveryState = settling_outcome(outcome)
            if txn_id is not None:
                state = TransactionalState(txn_id, settling_outcome(outcome))
            for first, last in ranges(ids):
                self.link.settle(first, last, state, settled=on_reply is None)
            self._flush()

    def close(self, failure: Failure = _CLOSED) -> None:
        self.is_closed = True
        self._forget(failure)
        if self.link is not None:
            self._upstream.close_link(self.terms.link.connection, self.link)
        elif self.is_opening:  # it may have to wait long for a session, and would take it from others
            self._upstream.give_up(self.terms.link.connection, self)

    # --- what the primary does ---

    def on_transfers(self, transfers: list[TransferArrived]) -> None:
        for transfer in transfers:
            if self.is_closed:
                return  # it crossed our detach: the primary delivers it again when its lock has ended
            record: object = None
            if self._observer is not None:
                record = self._observer.delivered(self.terms.path, transfer.payload, is_final=transfer.settled)
            self._delivered = (self._delivered + 1) & 0xFFFFFFFF
            token = None if transfer.settled else transfer.tag
            if token is not None:
                self._deliveries[token] = (transfer.delivery_id, record)
            self._notify(EncodedDelivery(self._number, transfer.payload, token))
            if steps(self._credit_limit, self._delivered) > UNASKED_MAX:  # each is kept until it is settled
                self.on_detached(_UNASKED)

    def on_disposition(self, event: DispositionArrived) -> None:
        for delivery_id, _ in event.deliveries:
            waiting = self._settling.pop(delivery_id, None)
            if waiting is None:
                continue
            token, record, settling = waiting
            error = error_in(event.outcome)
            if error is not None:
                settling.failures[token] = error
            elif settling.work is not None:
                settling.work.settled.append((self.terms.path, record, settling.outcome))
            elif self._observer is not None:
                self._observer.settled(self.terms.path, [record], settling.outcome)
            settling.waiting.discard(token)
            if not settling.waiting:
                settling.on_reply(Settled(settling.failures))

    def on_drained(self) -> None:
        super().on_drained()
        limit, self._drained_limit = self._drained_limit, None
        if not self._wants_drain or limit != self._credit_limit:
            self._pass_credit_on()  # the application has changed its mind meanwhile
            return
        self._wants_drain = False
        if steps(self._delivered, self._credit_limit) > 0:  # not so if credit was taken back too late
            self._delivered = self._credit_limit
        self._notify(ReceiverDrained(self._number))

    def on_detached(self, failure: Failure) -> None:
        super().on_detached(failure)
        if self.is_closed:
            return
        if self.link is None:
            self.lost = failure
            return
        self.close(failure)
        self.on_lost(failure)
        self._notify(ReceiverLost(self._number, loss_of(failure)))

    def _forget(self, failure: Failure) -> None:
        """Whoever waits for an answer gets none: the application's link is detached, and says why.

        Some clients then settle by request what they hold. A transaction has to know: what has no answer may belong to
        it or not, so it must be rolled back.
        """
        if self._requested is not None:
            self._requested.keep({token: record for token, (_, record) in self._deliveries.items()})
            self._requested.keep({token: record for token, record, _ in self._settling.values()})
        unanswered = [settling for _, _, settling in self._settling.values()]
        self._deliveries.clear()
        self._settling.clear()
        for settling in unanswered:
            settling.unanswered(failure)

    def _flush(self) -> None:
        self._upstream.flush(self.terms.link.connection)


def accepted_session(link: ReceivingLink) -> SessionAccepted | Refused:
    """The session that the primary gave, and how long it is locked."""
    filters = (link.source.filter if link.source else None) or {}
    session_id, ticks = filtered_session(filters), (link.properties or {}).get(LOCKED_UNTIL)
    if not isinstance(session_id, str) or not isinstance(ticks, int):
        return Refused(ConditionError(LINK_LOST, "the primary opened a link without saying for which session"))
    return SessionAccepted(str(session_id), (int(ticks) - TICKS_TO_1970) // TICKS_PER_MS)


def error_in(outcome: Outcome | None) -> NamespaceError | None:
    """Why the primary refused a settlement; None: it did not. A rejection without an error confirms a dead letter."""
    if isinstance(outcome, Rejected) and outcome.error is not None:
        return ConditionError(str(outcome.error.condition), outcome.error.description or outcome.error.condition)
    return None
