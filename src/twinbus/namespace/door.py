"""One connection's door: link events become commands, replies become frames.

The only place that speaks both languages: links, deliveries and outcomes on one side; queues, locks and
verdicts on the other. It does no I/O: the server feeds it the engine's events and sends the engine's output.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

from twinbus.amqp.connection import Connection
from twinbus.amqp.events import (
    AttachRequested,
    Authenticated,
    ConnectionClosed,
    CreditChanged,
    Detached,
    DispositionArrived,
    Event,
    Opened,
    SessionEnded,
    TransferArrived,
)
from twinbus.amqp.link import Link, ReceivingLink, SendingLink
from twinbus.amqp.performatives import ACCEPTED, Rejected
from twinbus.amqp.sasl import PLAIN
from twinbus.errors import AmqpError, TwinbusError, Unauthorized
from twinbus.namespace.commands import AcceptSession, CloseReceiver, FindEntity, OpenReceiver, OpenSender, ReceiveMode
from twinbus.namespace.disk_share import SenderShare
from twinbus.namespace.faults.rulings import PROCEED, Ruling
from twinbus.namespace.intake import Intake
from twinbus.namespace.nodes.answers import AnswerLink
from twinbus.namespace.nodes.cbs import CBS_ADDRESS
from twinbus.namespace.nodes.desk import Desk
from twinbus.namespace.nodes.management import is_management, managed_entity
from twinbus.namespace.nodes.requests import read_request
from twinbus.namespace.operations import Operation, Right
from twinbus.namespace.outcomes import amqp_error, entity_path
from twinbus.namespace.outlet import Outlet
from twinbus.namespace.places import SETTLED_BY_SENDER, Accepting, Asking, Receiving, Sending
from twinbus.namespace.reception import Reception
from twinbus.namespace.replies import (
    Delivery,
    Done,
    Drained,
    ReceiverLost,
    Refused,
    SenderOpened,
    SessionAccepted,
)
from twinbus.namespace.session_links import accept_session, is_for_session, session_wish
from twinbus.namespace.turnstile import Turnstile

REQUEST_CREDIT = 100
REQUEST_ELEMENTS, TOKEN_ELEMENTS = 20_000, 100
"""Values that a request may consist of; a thousand messages to be scheduled are about 11,000."""
REQUESTS_AT_ONCE = 4
"""Of one peer; the next one is heard when one of them is answered."""
MESSAGES_AT_ONCE, BYTES_AT_ONCE = 4_500, 1024 * 1024
"""Of one peer that are not written yet; then it is heard again when some are."""


def _never() -> bool:
    return False


def outlasts(event: Event) -> bool:
    """Whether something counts though the peer is gone: messages that it sent or settled; nobody waits for answers."""
    if isinstance(event, TransferArrived):
        return isinstance(event.link.context, Sending)
    return isinstance(event, DispositionArrived)


class Door:
    def __init__(
        self,
        connection: Connection,
        reception: Reception,
        flush: Callable[[], None],
        hang_up: Callable[[], None],
    ) -> None:
        """`flush` sends what the engine has to say; called after replies that came from elsewhere.

        `hang_up` cuts the connection without a word.
        """
        self._connection = connection
        self._reception = reception
        self.flush = flush
        self._turnstile = Turnstile(reception.faults, reception.postponed, hang_up, reception.note_busy)
        self._intake = Intake(reception, self._turnstile, self._note_change)
        self._outlet = Outlet(reception, self._turnstile, self._note_change, flush)
        self._desk = Desk(
            reception,
            self._turnstile,
            self._intake.read,
            self._intake.ask,
            self._outlet.holder_of,
            self._note_change,
        )

    @property
    def is_authenticated(self) -> bool:
        """Whether the peer has proved anything: by name and key, or by a token."""
        return self._desk.is_authenticated

    @property
    def share(self) -> SenderShare:
        """What this peer has sent that others may have to wait for."""
        return self._intake.share

    @property
    def unwritten_bytes(self) -> int:
        """Sent by this peer, taken in, and not yet written or refused."""
        return self.share.unwritten_bytes

    @property
    def has_enough_to_do(self) -> bool:
        """Whether so much that this peer asked for is not done yet that the rest of it can wait.

        Others wait for the same disk, behind all that was taken in before.
        """
        return (
            self._desk.unanswered >= REQUESTS_AT_ONCE
            or self.share.unwritten_messages >= MESSAGES_AT_ONCE
            or self.unwritten_bytes >= BYTES_AT_ONCE
        )

    # --- from the peer ---

    def take(self, events: list[Event], now_ms: int, is_enough: Callable[[], bool] = _never) -> list[Event]:
        """Act on what the engine has seen, as long as it is not enough for now; what is left comes before all else."""
        number = 0
        while number < len(events) and not is_enough():
            event = events[number]
            if type(event) is TransferArrived:
                if self._transfer(event, now_ms):
                    number += 1
                continue
            number += 1
            self._intake.store_together(now_ms)  # what was sent before comes first
            handler = self._HANDLERS.get(type(event))
            if handler is not None:
                handler(self, event, now_ms)
        self._intake.store_together(now_ms)
        return events[number:]

    def leave(self, now_ms: int) -> None:
        """The connection is gone: so are its receivers. Their locks stay until they end."""
        self._turnstile.leave()
        self._outlet.close_all(now_ms)
        for link in [link for session in self._connection.sessions for link in session.links]:
            self._forget(link, now_ms)
            link.context = None  # what waited there for the peer can be large

    def pause(self, now_ms: int) -> None:
        """The peer does not keep up: deliver nothing more for now."""
        self._outlet.block(now_ms)

    def resume(self, now_ms: int) -> None:
        self._outlet.unblock(now_ms)

    def faults_changed(self, now_ms: int) -> None:
        self._outlet.review(now_ms)

    def tell_receiver(self, link: SendingLink, reply: Delivery | Drained | ReceiverLost) -> None:
        self._outlet.tell(link, reply)

    def _note_change(self) -> None:
        """There is something to send that no event of this connection led to."""
        self._reception.changed_doors.add(self)

    # --- links ---

    def _attach(self, event: AttachRequested, now_ms: int) -> None:
        link = event.link
        if self._turnstile.is_open:
            self._let_in(link, now_ms)
            return
        try:
            ruling = self._attach_ruling(link, now_ms)
        except TwinbusError as error:
            link.refuse(amqp_error(error))
            return
        self._turnstile.obey(
            ruling, now_ms, partial(self._let_in_late, link, now_ms), lambda error: self._refuse(link, error)
        )

    def _attach_ruling(self, link: Link, now_ms: int) -> Ruling:
        """Who may not attach at all learns nothing of faults, and does not show in the ledger as refused by one."""
        is_sender = isinstance(link, ReceivingLink)
        path = entity_path(link.target if is_sender else link.source)
        if path.lower() == CBS_ADDRESS:
            return PROCEED
        self._check_right(link, now_ms)
        operation = Operation.ATTACH_SENDER if is_sender else Operation.ATTACH_RECEIVER
        return self._turnstile.ruling(operation, path, now_ms)

    def _let_in_late(self, link: Link, now_ms: int) -> None:
        """Answer an attach after a while, and hear what was said meanwhile."""
        if not link.lives:
            return
        self._let_in(link, now_ms)
        self._hear_credit(link, now_ms)
        self._note_change()

    def _hear_credit(self, link: Link, now_ms: int) -> None:
        """Hear what a receiver said of its credit while its attach was not answered."""
        if isinstance(link, SendingLink) and type(link.context) is Receiving and (link.credit or link.drain):
            said = CreditChanged(link, link.credit, link.credit_limit, link.drain)
            self._outlet.credit(said, link.context, now_ms)

    def _let_in(self, link: Link, now_ms: int) -> None:
        try:
            if isinstance(link, ReceivingLink):
                self._let_send(link, now_ms)
            elif isinstance(link, SendingLink):
                self._let_receive(link, now_ms)
        except TwinbusError as error:
            self._refuse(link, error)

    def _refuse(self, link: Link, error: TwinbusError) -> None:
        link.refuse(amqp_error(error))
        self._note_change()

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
        self._reception.ask(OpenSender(path, partial(self._sender_opened, link, path)), now_ms)

    def _let_ask(self, link: ReceivingLink, asking: Asking, reply: Done | Refused) -> None:
        if isinstance(reply, Refused):
            self._refuse(link, reply.error)
            return
        if not link.lives:
            return  # the answer had to wait for the disk, and the peer did not
        link.context = asking
        link.accept()
        link.keep_credit = REQUEST_CREDIT
        self._note_change()

    def _sender_opened(self, link: ReceivingLink, path: str, reply: SenderOpened | Refused) -> None:
        if isinstance(reply, Refused):
            self._refuse(link, reply.error)
            return
        link.context = Sending(path, path.lower())
        limit = self._reception.limits.message_bytes_max
        link.accept(max_message_size=min(limit, reply.message_bytes_max or limit))
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
        is_settled = link.snd_settle_mode == SETTLED_BY_SENDER
        mode = ReceiveMode.RECEIVE_AND_DELETE if is_settled else ReceiveMode.PEEK_LOCK
        if is_for_session(link):
            self._let_wait(link, path, mode, now_ms)
            return
        receiver = self._reception.new_receiver(self, link)
        link.context = Accepting(path, receiver)
        opened = partial(self._receiver_opened, link, Receiving(path, path.lower(), receiver), now_ms)
        self._reception.ask(OpenReceiver(receiver, path, mode, opened), now_ms)

    def _let_wait(self, link: SendingLink, path: str, mode: ReceiveMode, now_ms: int) -> None:
        """Give the peer a session; the answer to its attach waits for that."""
        wish = session_wish(link)
        receiver = self._reception.new_receiver(self, link)
        link.context = Accepting(path, receiver)
        accepted = partial(self._session_accepted, link, Receiving(path, path.lower(), receiver))
        command = AcceptSession(receiver, path, mode, wish.session_id, wish.wait_ms, accepted)
        self._reception.ask(command, now_ms)

    def _session_accepted(self, link: SendingLink, receiving: Receiving, reply: SessionAccepted | Refused) -> None:
        now_ms = self._reception.clock()
        if isinstance(reply, Refused):
            link.context = None
            self._reception.forget_receiver(receiving.receiver)
            self._refuse(link, reply.error)
            return
        receiving = receiving._replace(session_id=reply.session_id)
        link.context = receiving
        accept_session(link, reply.session_id, reply.locked_until_ms)
        self._outlet.open(receiving, link, now_ms)
        self._hear_credit(link, now_ms)
        self._note_change()

    def _receiver_opened(self, link: SendingLink, receiving: Receiving, now_ms: int, reply: Done | Refused) -> None:
        if link.context != Accepting(receiving.path, receiving.receiver):
            return  # gone while the answer waited for the disk: transfer dead letters are made when first asked for
        if isinstance(reply, Refused):
            link.context = None
            self._reception.forget_receiver(receiving.receiver)
            self._refuse(link, reply.error)
            return
        link.context = receiving
        link.accept()
        self._outlet.open(receiving, link, now_ms)
        self._hear_credit(link, now_ms)
        self._note_change()

    def _opened(self, event: Opened, now_ms: int) -> None:
        busy = self._reception.throttle.connection_refusal(self._reception.connections() - 1)
        if busy is not None:
            self._connection.close(amqp_error(busy))

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
            self._outlet.close(link.context.receiver, now_ms)
        elif isinstance(link.context, Accepting):
            receiver, link.context = link.context.receiver, None
            self._reception.forget_receiver(receiver)
            self._reception.ask(CloseReceiver(receiver), now_ms)
        elif isinstance(link.context, AnswerLink):
            link.context.forget()

    # --- messages and requests ---

    def _transfer(self, event: TransferArrived, now_ms: int) -> bool:
        """Whether all of it was taken; if not, it has to be taken again."""
        place = event.link.context
        if type(place) is Sending:
            return self._intake.take(event, place, now_ms)
        if type(place) is Asking:
            self._take_request(event, place.address, now_ms)
        return True

    def _take_request(self, event: TransferArrived, address: str, now_ms: int) -> None:
        try:
            request = read_request(event.payload, TOKEN_ELEMENTS if address == CBS_ADDRESS else REQUEST_ELEMENTS)
        except AmqpError as error:
            self._intake.answer(event, Rejected(amqp_error(error)))
            return
        self._intake.answer(event, ACCEPTED)
        self._desk.take(event.link.session, address, request, now_ms)

    def _credit(self, event: CreditChanged, now_ms: int) -> None:
        if not event.link.attached:
            return  # detached in the same breath: a message lent now would reach nobody
        place = event.link.context
        if type(place) is Receiving:
            self._outlet.credit(event, place, now_ms)
        elif type(place) is AnswerLink:
            place.send_waiting()
            if event.drain:
                event.link.drained()

    def _disposition(self, event: DispositionArrived, now_ms: int) -> None:
        place = event.link.context
        if type(place) is Receiving and isinstance(event.link, SendingLink):
            self._outlet.disposition(event, event.link, place, now_ms)

    _HANDLERS: ClassVar[dict[type, Callable[..., None]]] = {
        Authenticated: _authenticated,
        Opened: _opened,
        AttachRequested: _attach,
        Detached: _detached,
        SessionEnded: _session_ended,
        ConnectionClosed: _connection_closed,
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
