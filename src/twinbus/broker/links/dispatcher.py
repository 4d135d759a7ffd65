"""One connection's links: events of the AMQP engine become requests to the back end, and results become frames.

It does no I/O: the server feeds it the engine's events and sends the engine's output.
"""

from __future__ import annotations

from collections.abc import Callable
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
from twinbus.amqp.link import Link
from twinbus.amqp.sasl import PLAIN
from twinbus.amqp.sending_link import SendingLink
from twinbus.broker.auth.claims import ClaimBook
from twinbus.broker.links.attach import AttachHandler
from twinbus.broker.links.connection_context import ConnectionContext
from twinbus.broker.links.disk_fairness import SenderShare
from twinbus.broker.links.fault_gate import FaultGate
from twinbus.broker.links.incoming import IncomingDeliveries
from twinbus.broker.links.link_roles import (
    CoordinatorRole,
    OpeningRole,
    ReceiverRole,
    RequesterRole,
    SenderRole,
    needs_of,
)
from twinbus.broker.links.outcomes import amqp_error
from twinbus.broker.links.outgoing import OutgoingDeliveries
from twinbus.broker.links.request_nodes import RequestNodes, ResponseLink
from twinbus.broker.links.transactions import TransactionBook
from twinbus.broker.message import BATCH_FORMAT
from twinbus.errors import Unauthorized

MESSAGES_AT_ONCE, BYTES_AT_ONCE = 4_500, 1024 * 1024
"""Of one peer that are not written yet; then the rest waits until some are."""
KEPT_BYTES_MAX = 4 * 1024 * 1024
"""Limit of what the back end keeps for one peer; above it, nothing more is read from that peer."""
SMALL_AT_ONCE, SMALL_BYTES = 16, 4 * 1024
"""As many messages of this size are taken without looking whether it is enough."""


def outlasts_connection(event: Event) -> bool:
    """Whether an event counts although the peer is gone: messages that it sent or settled count, requests do not.

    Nor does what belongs to a transaction: that is rolled back.
    """
    if isinstance(event, TransferArrived):
        return isinstance(event.link.context, SenderRole) and event.transaction is None
    return isinstance(event, DispositionArrived) and event.transaction is None


class LinkDispatcher:
    def __init__(
        self,
        connection: Connection,
        context: ConnectionContext,
        flush: Callable[[], None],
        drop: Callable[[], None],
    ) -> None:
        """`flush` sends the engine's output; called after results that came from elsewhere.

        `drop` cuts the connection without a word.
        """
        self._connection = connection
        self._context = context
        self._number = context.new_connection()
        self.flush = flush
        self._faults = FaultGate(context.faults, context.delayed, drop, context.report_busy)
        self._incoming = IncomingDeliveries(context, self._faults, self._flush_later)
        self.outgoing = OutgoingDeliveries(context, self._faults, self._flush_later, flush)
        self._claims = ClaimBook()
        self._transactions = TransactionBook(context, self._number, self._faults, self._incoming, self._flush_later)
        self._nodes = RequestNodes(
            context,
            self._number,
            self._faults,
            self._incoming,
            self._transactions,
            self._claims,
            self.outgoing.holder_of,
            self.outgoing.session_of,
            self._flush_later,
        )
        self._attach = AttachHandler(
            context, self._number, self._faults, self.outgoing, self._claims, self._flush_later
        )

    @property
    def is_authenticated(self) -> bool:
        """Whether the peer has proved anything: by name and key, or by a token."""
        return self._nodes.is_authenticated

    @property
    def share(self) -> SenderShare:
        """What this peer has sent that others may have to wait for."""
        return self._incoming.share

    @property
    def unwritten_bytes(self) -> int:
        """Sent by this peer, taken in, and not yet written or refused."""
        return self._incoming.unwritten_bytes

    @property
    def kept_bytes(self) -> int:
        """What the back end keeps for this peer until it can pass it on."""
        return self._context.backend.kept_bytes(self._number)

    @property
    def has_enough_to_do(self) -> bool:
        """Whether enough of what this peer asked for is still unfinished: then the rest waits.

        Others wait for the same disk, behind everything that was accepted before.
        """
        return (
            self._nodes.unanswered >= self._context.backend.requests_at_once
            or self._incoming.unwritten_messages >= MESSAGES_AT_ONCE
            or self._incoming.unwritten_bytes >= BYTES_AT_ONCE
            or self.kept_bytes >= KEPT_BYTES_MAX
        )

    def take(self, events: list[Event], now_ms: int, is_enough: Callable[[], bool] = lambda: False) -> list[Event]:
        """Act on events until `is_enough`; what is left comes before all else the next time.

        That is asked after each of them, but only now and then after small messages: asking is half the work of one.
        """
        number = unasked = 0
        while number < len(events):
            if not unasked:
                if is_enough():
                    break
                unasked = SMALL_AT_ONCE
            event = events[number]
            if type(event) is TransferArrived:
                if self._transfer(event, now_ms):
                    number += 1
                unasked = unasked - 1 if self._is_little(event) else 0
                continue
            number += 1
            unasked = 0
            self._incoming.send_gathered(now_ms)  # what was sent before comes first
            handler = self._HANDLERS.get(type(event))
            if handler is not None:
                handler(self, event, now_ms)
        self._incoming.send_gathered(now_ms)
        return events[number:]

    def pause_answers(self) -> None:
        """The peer does not take its answers: those that come from elsewhere are to stay there for now."""
        self._context.backend.pause_connection(self._number)

    def resume_answers(self) -> None:
        self._context.backend.resume_connection(self._number)

    def close(self, now_ms: int) -> None:
        """The connection is gone: so are its receivers. Their locks stay until they end."""
        self._faults.close()
        self._transactions.close(now_ms)
        self.outgoing.close_all(now_ms)
        for link in [link for session in self._connection.sessions for link in session.links]:
            self._forget(link, now_ms)
            link.context = None  # what waited there for the peer can be large
        self._context.backend.close_connection(self._number, now_ms)

    def _flush_later(self) -> None:
        self._context.unflushed.add(self)

    # --- the connection ---

    def _opened(self, event: Opened, now_ms: int) -> None:
        busy = self._context.throttle.connection_refusal(self._context.connections() - 1)
        if busy is not None:
            self._connection.close(amqp_error(busy))

    def _authenticated(self, event: Authenticated, now_ms: int) -> None:
        if event.mechanism == PLAIN:
            self._nodes.log_in(event.user)

    def next_expiry_ms(self) -> int | None:
        """When `close_expired` has something to do; None: not before the peer sends another token."""
        return self._claims.review_ms

    def close_expired(self, now_ms: int) -> None:
        """Detach links whose token has ended, or was replaced by one that allows less. Cheap while there are none."""
        review_ms = self._claims.review_ms
        if review_ms is None or review_ms > now_ms:
            return
        for link in [link for session in self._connection.sessions for link in session.links if link.is_open]:
            for path, right in needs_of(link):
                if link.is_open and not self._claims.has(path, right, now_ms):
                    self._forget(link, now_ms)
                    link.detach(amqp_error(Unauthorized(f"the token for '{path}' has expired, or allows less now")))
        self._claims.finish_review(now_ms)

    # --- links ---

    def _attach_requested(self, event: AttachRequested, now_ms: int) -> None:
        self._attach.take(event.link, now_ms)

    def _detached(self, event: Detached, now_ms: int) -> None:
        self._forget(event.link, now_ms)

    def _session_ended(self, event: SessionEnded, now_ms: int) -> None:
        for link in event.session.links:
            self._forget(link, now_ms)

    def _connection_closed(self, event: ConnectionClosed, now_ms: int) -> None:
        self.close(now_ms)

    def _forget(self, link: Link, now_ms: int) -> None:
        role = link.context
        if isinstance(role, ReceiverRole):
            self.outgoing.close(role.receiver, now_ms)
        elif isinstance(role, OpeningRole):
            link.context = None
            self._context.forget_receiver(role.receiver)
            self._context.backend.close_receiver(role.receiver, now_ms)
        elif isinstance(role, ResponseLink):
            role.close()
        elif isinstance(role, CoordinatorRole):
            self._transactions.link_lost(link, now_ms)

    # --- messages and requests ---

    def _transfer(self, event: TransferArrived, now_ms: int) -> bool:
        """Whether all of it was taken; if not, it has to be taken again."""
        role = event.link.context
        if type(role) is SenderRole and event.transaction is None:
            return self._incoming.take(event, role, now_ms)
        self._incoming.send_gathered(now_ms)  # what was sent before comes first
        if type(role) is SenderRole:
            self._transactions.send(event, role, now_ms)
        elif type(role) is RequesterRole:
            self._nodes.take(event, role.address, now_ms)
        elif type(role) is CoordinatorRole:
            self._transactions.control(event, now_ms)
        return True

    def _is_little(self, event: TransferArrived) -> bool:
        """Whether it was little work: a small message that was gathered with others."""
        is_small = len(event.payload) <= SMALL_BYTES and event.message_format != BATCH_FORMAT
        return is_small and type(event.link.context) is SenderRole and self._incoming.is_gathering

    def _credit(self, event: CreditChanged, now_ms: int) -> None:
        if not event.link.attached:
            return  # detached already: a message delivered now would be lost to the peer
        role = event.link.context
        if type(role) is ReceiverRole:
            self.outgoing.credit(event, role, now_ms)
        elif type(role) is ResponseLink:
            role.send_waiting()
            if event.drain:
                event.link.drained()

    def _disposition(self, event: DispositionArrived, now_ms: int) -> None:
        role = event.link.context
        if type(role) is not ReceiverRole or not isinstance(event.link, SendingLink):
            return
        if event.transaction is None:
            self.outgoing.disposition(event, event.link, role, now_ms)
        else:
            self._transactions.settle(event, event.link, role, now_ms)

    _HANDLERS: ClassVar[dict[type, Callable[..., None]]] = {
        Authenticated: _authenticated,
        Opened: _opened,
        AttachRequested: _attach_requested,
        Detached: _detached,
        SessionEnded: _session_ended,
        ConnectionClosed: _connection_closed,
        CreditChanged: _credit,
        DispositionArrived: _disposition,
    }
