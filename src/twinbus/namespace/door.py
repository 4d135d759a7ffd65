"""One connection's door: link events become commands, replies become frames.

The only place that speaks both languages: links, deliveries and outcomes on one side; queues, locks and
verdicts on the other. It does no I/O: the server feeds it the engine's events and sends the engine's output.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar, NamedTuple

from twinbus.amqp.connection import Connection
from twinbus.amqp.events import (
    AttachRequested,
    Authenticated,
    ConnectionClosed,
    CreditChanged,
    Detached,
    DispositionArrived,
    Event,
    SessionEnded,
    TransferArrived,
)
from twinbus.amqp.link import Link, ReceivingLink, SendingLink
from twinbus.amqp.performatives import ACCEPTED, Outcome, Rejected
from twinbus.amqp.sasl import PLAIN
from twinbus.errors import (
    AmqpError,
    MessageTooLarge,
    NamespaceError,
    NotAllowed,
    ServerBusy,
    TwinbusError,
    Unauthorized,
)
from twinbus.namespace.commands import (
    CloseReceiver,
    FindEntity,
    Grant,
    OpenReceiver,
    PauseReceiver,
    ReceiveMode,
    ResumeReceiver,
    Send,
    Settle,
)
from twinbus.namespace.message import BATCH_FORMAT, Arrival, outgoing, read_arrival, unpack_batch
from twinbus.namespace.meter import Metered
from twinbus.namespace.nodes.answers import AnswerLink
from twinbus.namespace.nodes.cbs import CBS_ADDRESS
from twinbus.namespace.nodes.desk import Desk
from twinbus.namespace.nodes.management import is_management, managed_entity
from twinbus.namespace.nodes.requests import read_request
from twinbus.namespace.operations import Right
from twinbus.namespace.outcomes import amqp_error, confirmation_of, entity_path, verdict_of
from twinbus.namespace.reception import Reception
from twinbus.namespace.replies import Delivery, Done, Drained, ReceiverLost, Refused, Settled

SESSION_FILTER = "com.microsoft:session-filter"
SETTLED_BY_SENDER = 1
REQUEST_CREDIT = 100


class Sending(NamedTuple):
    """A link on which the peer sends to an entity."""

    path: str
    entity: str
    """The path in lower case, as the meter counts it."""


class Receiving(NamedTuple):
    """A link on which the peer receives from an entity."""

    path: str
    entity: str
    receiver: int


class Asking(NamedTuple):
    """A link on which the peer sends requests to a node."""

    address: str


class Door:
    def __init__(self, connection: Connection, reception: Reception, flush: Callable[[], None]) -> None:
        """`flush` sends what the engine has to say; called after replies that came from elsewhere."""
        self._connection = connection
        self._reception = reception
        self.flush = flush
        self._desk = Desk(reception.authority, self._arrival, reception.ask, self._note_change)
        self._receivings: dict[int, Link] = {}
        self._is_paused = False
        self.unwritten_bytes = 0
        """Sent by this peer, taken in, and not yet written or refused."""

    # --- from the peer ---

    def take(self, events: list[Event], now_ms: int) -> None:
        """Act on what the engine has seen."""
        for event in events:
            handler = self._HANDLERS.get(type(event))
            if handler is not None:
                handler(self, event, now_ms)

    def leave(self, now_ms: int) -> None:
        """The connection is gone: so are its receivers. Their locks stay until they end."""
        for receiver in list(self._receivings):
            self._close_receiver(receiver, now_ms)

    def pause(self, now_ms: int) -> None:
        """The peer does not keep up: deliver nothing more for now."""
        self._is_paused = True
        for receiver in self._receivings:
            self._reception.ask(PauseReceiver(receiver), now_ms)

    def resume(self, now_ms: int) -> None:
        self._is_paused = False
        for receiver in list(self._receivings):
            self._reception.ask(ResumeReceiver(receiver), now_ms)

    def _note_change(self) -> None:
        """There is something to send that no event of this connection led to."""
        self._reception.changed_doors.add(self)

    # --- links ---

    def _attach(self, event: AttachRequested, now_ms: int) -> None:
        link = event.link
        try:
            if isinstance(link, ReceivingLink):
                self._let_send(link, now_ms)
            elif isinstance(link, SendingLink):
                self._let_receive(link, now_ms)
        except TwinbusError as error:
            link.refuse(amqp_error(error))

    def _let_send(self, link: ReceivingLink, now_ms: int) -> None:
        path = entity_path(link.target)
        if path.lower() == CBS_ADDRESS:
            self._let_ask(link, Asking(CBS_ADDRESS), Done(None))
            return
        self._check_right(link, now_ms)
        if is_management(path):
            asking = Asking(path.lower())
            self._reception.ask(FindEntity(managed_entity(path), partial(self._let_ask, link, asking)), now_ms)
            return
        # Sending nothing is how one asks whether an entity can be sent to.
        self._reception.ask(Send(path, (), partial(self._sender_checked, link, path)), now_ms)

    def _let_ask(self, link: ReceivingLink, asking: Asking, reply: Done | Refused) -> None:
        if isinstance(reply, Refused):
            link.refuse(amqp_error(reply.error))
            return
        link.context = asking
        link.accept()
        link.keep_credit = REQUEST_CREDIT

    def _sender_checked(self, link: ReceivingLink, path: str, reply: Done | Refused) -> None:
        if isinstance(reply, Refused):
            link.refuse(amqp_error(reply.error))
            return
        link.context = Sending(path, path.lower())
        link.accept(max_message_size=self._reception.limits.message_bytes_max)
        link.keep_credit = self._reception.limits.sender_credit

    def _let_receive(self, link: SendingLink, now_ms: int) -> None:
        path = entity_path(link.source)
        if path.lower() == CBS_ADDRESS:
            link.context = AnswerLink(CBS_ADDRESS, link)
            link.accept()
            return
        self._check_right(link, now_ms)
        if is_management(path):
            link.context = AnswerLink(path.lower(), link)
            link.accept()
            return
        if link.source is not None and SESSION_FILTER in (link.source.filter or {}):
            raise NotAllowed(f"'{path}' has no sessions: receive from it without a session")
        receiver = self._reception.new_receiver(self, link)
        is_settled = link.snd_settle_mode == SETTLED_BY_SENDER
        mode = ReceiveMode.RECEIVE_AND_DELETE if is_settled else ReceiveMode.PEEK_LOCK
        opened = partial(self._receiver_opened, link, Receiving(path, path.lower(), receiver))
        self._reception.ask(OpenReceiver(receiver, path, mode, opened), now_ms)
        if self._is_paused:
            self._reception.ask(PauseReceiver(receiver), now_ms)

    def _receiver_opened(self, link: SendingLink, receiving: Receiving, reply: Done | Refused) -> None:
        if isinstance(reply, Refused):
            self._reception.forget_receiver(receiving.receiver)
            link.refuse(amqp_error(reply.error))
            return
        link.context = receiving
        self._receivings[receiving.receiver] = link
        link.accept()

    # --- rights ---

    def _authenticated(self, event: Authenticated, now_ms: int) -> None:
        if event.mechanism == PLAIN:
            self._desk.let_in(event.user)

    def _check_right(self, link: Link, now_ms: int) -> None:
        self._desk.check_right(*_need_of(link), now_ms)

    def next_expiry_ms(self) -> int | None:
        """When `close_expired` has something to do; None: not before the peer says more."""
        return self._desk.next_expiry_ms()

    def close_expired(self, now_ms: int) -> None:
        """Detach links whose token has ended, or was replaced by one that allows less. Cheap while there are none."""
        if not self._desk.is_review_due(now_ms):
            return
        for link in [link for session in self._connection.sessions for link in session.links if link.lives]:
            path, right = _need_of(link)
            if path.lower() != CBS_ADDRESS and not self._desk.has_right(path, right, now_ms):
                self._forget(link, now_ms)
                link.detach(amqp_error(Unauthorized(f"the token for '{path}' has expired, or allows less now")))
        self._desk.reviewed(now_ms)

    # --- the end of links ---

    def _detached(self, event: Detached, now_ms: int) -> None:
        self._forget(event.link, now_ms)

    def _session_ended(self, event: SessionEnded, now_ms: int) -> None:
        for link in event.session.links:
            self._forget(link, now_ms)

    def _connection_closed(self, event: ConnectionClosed, now_ms: int) -> None:
        self.leave(now_ms)

    def _forget(self, link: Link, now_ms: int) -> None:
        if isinstance(link.context, Receiving):
            self._close_receiver(link.context.receiver, now_ms)

    def _close_receiver(self, receiver: int, now_ms: int) -> None:
        if self._receivings.pop(receiver, None) is not None:
            self._reception.forget_receiver(receiver)
            self._reception.ask(CloseReceiver(receiver), now_ms)

    # --- messages in ---

    def _transfer(self, event: TransferArrived, now_ms: int) -> None:
        place = event.link.context
        if type(place) is Sending:
            self._store(event, place, now_ms)
        elif type(place) is Asking:
            self._take_request(event, place.address, now_ms)

    def _store(self, event: TransferArrived, place: Sending, now_ms: int) -> None:
        try:
            self._check_load()
            arrivals = self._arrivals(event)
        except (NamespaceError, AmqpError) as error:
            self._answer(event.link, event.delivery_id, event.settled, Rejected(amqp_error(error)))
            return
        self.unwritten_bytes += len(event.payload)
        stored = partial(self._stored, event, place.entity, arrivals)
        self._reception.ask(Send(place.path, arrivals, stored), now_ms)

    def _check_load(self) -> None:
        limits = self._reception.limits
        if (
            self._reception.unwritten_bytes() > 2 * limits.unwritten_bytes
            or self.unwritten_bytes > 2 * limits.unwritten_bytes_per_connection
        ):
            raise ServerBusy("more is being sent than can be written to disk; wait 10 seconds and send again")

    def _arrivals(self, event: TransferArrived) -> tuple[Arrival, ...]:
        if event.message_format != BATCH_FORMAT:
            return (self._arrival(event.payload),)
        self._check_size(event.payload)
        return tuple([self._arrival(message) for message in unpack_batch(event.payload)])

    def _arrival(self, payload: bytes) -> Arrival:
        self._check_size(payload)
        return read_arrival(payload, self._reception.new_message_id)

    def _check_size(self, payload: bytes) -> None:
        limit = self._reception.limits.message_bytes_max
        if len(payload) > limit:
            raise MessageTooLarge(f"the message has {len(payload)} bytes, at most {limit} are allowed")

    def _stored(
        self, event: TransferArrived, entity: str, arrivals: tuple[Arrival, ...], reply: Done | Refused
    ) -> None:
        self.unwritten_bytes -= len(event.payload)
        if isinstance(reply, Refused):
            self._answer(event.link, event.delivery_id, event.settled, Rejected(amqp_error(reply.error)))
            return
        self._reception.count_sent(entity, arrivals)
        self._answer(event.link, event.delivery_id, event.settled, ACCEPTED)

    def _answer(self, link: ReceivingLink, delivery_id: int, settled: bool, outcome: Outcome) -> None:
        if not settled and link.attached:
            link.settle(delivery_id, delivery_id, outcome)
            self._note_change()

    # --- messages out ---

    def _credit(self, event: CreditChanged, now_ms: int) -> None:
        place = event.link.context
        if type(place) is Receiving:
            if event.credit > 0 and not event.drain:
                self._reception.meter.count(Metered.RECEIVE_GRANT, place.entity)
            self._reception.ask(Grant(place.receiver, event.credit_limit, event.drain), now_ms)
        elif type(place) is AnswerLink:
            place.send_waiting()
            if event.drain:
                event.link.drained()

    def tell_receiver(self, link: SendingLink, reply: Delivery | Drained | ReceiverLost) -> None:
        if not link.attached:
            return
        match reply:
            case Delivery(row=row, token=token, locked_until_ms=until_ms):
                payload = outgoing(row, token, until_ms)
                self._reception.meter.count(Metered.DELIVERY, link.context.entity, len(payload))
                link.send(payload, tag=token or b"", settled=token is None)
            case Drained():
                link.drained()
            case ReceiverLost(error=error):
                self._receivings.pop(reply.receiver, None)
                self._reception.forget_receiver(reply.receiver)
                link.detach(amqp_error(error))

    def _disposition(self, event: DispositionArrived, now_ms: int) -> None:
        place = event.link.context
        if type(place) is not Receiving or not isinstance(event.link, SendingLink):
            return
        verdict = verdict_of(event.outcome, is_final=event.settled)
        if verdict is None:
            return
        tokens = tuple([tag for _, tag in event.deliveries])
        self._reception.meter.count(Metered.SETTLE, place.entity, operations=len(tokens))
        origin = None if event.settled else partial(self._settled, event.link, event.deliveries, event.outcome)
        self._reception.ask(Settle(place.path, tokens, verdict, origin), now_ms)

    def _settled(
        self, link: SendingLink, deliveries: list[tuple[int, bytes]], outcome: Outcome | None, reply: Settled | Refused
    ) -> None:
        """Tell the peer what became of its settlement: the same outcome means yes."""
        if not link.attached:
            return
        self._note_change()
        echo = confirmation_of(outcome)
        for delivery_id, token in deliveries:
            error = reply.error if isinstance(reply, Refused) else reply.failures.get(token)
            link.settle(delivery_id, delivery_id, echo if error is None else Rejected(amqp_error(error)))

    # --- requests ---

    def _take_request(self, event: TransferArrived, address: str, now_ms: int) -> None:
        try:
            request = read_request(event.payload)
        except AmqpError as error:
            self._answer(event.link, event.delivery_id, event.settled, Rejected(amqp_error(error)))
            return
        self._answer(event.link, event.delivery_id, event.settled, ACCEPTED)
        self._desk.take(event.link.session, address, request, now_ms)

    _HANDLERS: ClassVar[dict[type, Callable[..., None]]] = {
        Authenticated: _authenticated,
        AttachRequested: _attach,
        Detached: _detached,
        SessionEnded: _session_ended,
        ConnectionClosed: _connection_closed,
        TransferArrived: _transfer,
        CreditChanged: _credit,
        DispositionArrived: _disposition,
    }


def _need_of(link: Link) -> tuple[str, Right | None]:
    """The entity a link is about, and the right it takes; None: any will do, since each request is checked."""
    is_ours_to_read = isinstance(link, ReceivingLink)
    path = entity_path(link.target if is_ours_to_read else link.source)
    if is_management(path):
        return managed_entity(path), None
    return path, Right.SEND if is_ours_to_read else Right.LISTEN
