"""How links attach: the back end is asked, then the attach is answered; a link for a session waits for one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from twinbus.amqp.codec.types import Described, Long, Symbol
from twinbus.amqp.events import CreditChanged
from twinbus.amqp.link import Link
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.amqp.sending_link import SendingLink
from twinbus.broker.auth.claims import ClaimBook
from twinbus.broker.faults.decisions import PROCEED, FaultDecision
from twinbus.broker.links.backend import PeerLink
from twinbus.broker.links.connection_context import ConnectionContext
from twinbus.broker.links.fault_gate import FaultGate
from twinbus.broker.links.link_roles import (
    CBS_ADDRESS,
    SETTLED_BY_SENDER,
    TRANSFER_DESTINATION,
    CoordinatorRole,
    OpeningRole,
    ReceiverRole,
    RequesterRole,
    SenderRole,
    destination_of,
    group_of,
    is_coordinator,
    is_management,
    managed_entity,
    needs_of,
    path_of,
)
from twinbus.broker.links.outcomes import amqp_error
from twinbus.broker.links.outgoing import OutgoingDeliveries
from twinbus.broker.links.request_nodes import ResponseLink
from twinbus.broker.operations import Done, Operation, ReceiveMode, Refused, SenderOpened, SessionAccepted
from twinbus.errors import NotAllowed, TwinbusError

REQUEST_CREDIT = 100
SESSION_FILTER = "com.microsoft:session-filter"
WAIT_PROPERTY = "com.microsoft:timeout"
LOCKED_UNTIL = "com.microsoft:locked-until-utc"
WAIT_MS = 65_000
"""How long a link waits for a session if it does not say."""
WAIT_MS_MAX = 3_600_000
TICKS_PER_MS, TICKS_TO_1970 = 10_000, 621_355_968_000_000_000
"""The service's own unit of time."""


class AttachHandler:
    def __init__(
        self,
        context: ConnectionContext,
        connection: int,
        faults: FaultGate,
        outgoing: OutgoingDeliveries,
        claims: ClaimBook,
        flush_later: Callable[[], None],
    ) -> None:
        self._context = context
        self._backend = context.backend
        self._connection = connection
        self._faults = faults
        self._outgoing = outgoing
        self._claims = claims
        self._flush_later = flush_later

    def take(self, link: Link, now_ms: int) -> None:
        if self._faults.is_open:
            self._attach(link, now_ms)
            return
        try:
            decision = self._decide(link, now_ms)
        except TwinbusError as error:
            link.refuse(amqp_error(error))
            return
        attach_late = partial(self._attach_late, link, now_ms)
        self._faults.apply(decision, now_ms, attach_late, lambda error: self._refuse(link, error))

    def _decide(self, link: Link, now_ms: int) -> FaultDecision:
        """Rights come first: a link without them learns nothing of faults, and is not recorded as refused by one."""
        needs = needs_of(link)
        if not needs:
            return PROCEED
        for path, right in needs:
            self._claims.check(path, right, now_ms)
        path = needs[-1][0]
        is_sender = isinstance(link, ReceivingLink)
        return self._faults.decide(Operation.ATTACH_SENDER if is_sender else Operation.ATTACH_RECEIVER, path, now_ms)

    def _attach_late(self, link: Link, now_ms: int) -> None:
        if link.is_open:
            self._attach(link, now_ms)
            self._take_early_credit(link, now_ms)
            self._flush_later()

    def _take_early_credit(self, link: Link, now_ms: int) -> None:
        """Act on the credit that a receiver granted before its attach was answered."""
        if isinstance(link, SendingLink) and type(link.context) is ReceiverRole and (link.credit or link.drain):
            granted = CreditChanged(link, link.credit, link.credit_limit, link.drain)
            self._outgoing.credit(granted, link.context, now_ms)

    def _attach(self, link: Link, now_ms: int) -> None:
        try:
            for needed, right in needs_of(link):
                self._claims.check(needed, right, now_ms)
            if is_coordinator(link):
                self._attach_coordinator(link)
                return
            path = path_of(link)
            if isinstance(link, ReceivingLink):
                self._attach_sender(link, path, now_ms)
            elif isinstance(link, SendingLink):
                self._attach_receiver(link, path, now_ms)
        except TwinbusError as error:
            self._refuse(link, error)

    def _refuse(self, link: Link, error: TwinbusError) -> None:
        link.refuse(amqp_error(error))
        self._flush_later()

    # --- the peer sends ---

    def _attach_sender(self, link: ReceivingLink, path: str, now_ms: int) -> None:
        if path.lower() == CBS_ADDRESS:
            self._requester_attached(link, RequesterRole(CBS_ADDRESS), Done())
        elif is_management(path):
            attached = partial(self._requester_attached, link, RequesterRole(path.lower()))
            self._backend.find_entity(managed_entity(path), self._connection, now_ms, attached)
        elif (destination := destination_of(link)) is not None:
            opened = partial(self._via_opened, link, path, destination, now_ms)
            self._backend.open_sender(path, now_ms, opened)
        else:
            self._backend.open_sender(path, now_ms, partial(self._sender_opened, link, SenderRole(path, path.lower())))

    def _via_opened(
        self, link: ReceivingLink, via: str, destination: str, now_ms: int, reply: SenderOpened | Refused
    ) -> None:
        if isinstance(reply, Refused):
            self._refuse(link, reply.error)
        else:
            role = SenderRole(destination, destination.lower(), via)
            self._backend.open_sender(destination, now_ms, partial(self._sender_opened, link, role))

    def _attach_coordinator(self, link: Link) -> None:
        if not isinstance(link, ReceivingLink):
            raise NotAllowed("a coordinator receives: a link from one cannot be had")
        group_of(link).has_coordinator = True
        link.context = CoordinatorRole()
        link.accept()
        link.keep_credit = REQUEST_CREDIT
        self._flush_later()

    def _requester_attached(self, link: ReceivingLink, role: RequesterRole, reply: Done | Refused) -> None:
        if isinstance(reply, Refused):
            self._refuse(link, reply.error)
        elif link.is_open:  # the reply may have waited for the disk, and the peer did not
            link.context = role
            link.accept()
            link.keep_credit = REQUEST_CREDIT
            self._flush_later()

    def _sender_opened(self, link: ReceivingLink, role: SenderRole, reply: SenderOpened | Refused) -> None:
        if isinstance(reply, Refused):
            self._refuse(link, reply.error)
        elif link.is_open:
            link.context = role
            group_of(link).add(role.via or role.path)
            limit = self._context.limits.message_bytes_max
            properties = None if role.via is None else {Symbol(TRANSFER_DESTINATION): role.path}
            link.accept(max_message_size=min(limit, reply.message_bytes_max or limit), properties=properties)
            link.keep_credit = self._context.limits.sender_credit
            self._flush_later()

    # --- the peer receives ---

    def _attach_receiver(self, link: SendingLink, path: str, now_ms: int) -> None:
        if path.lower() == CBS_ADDRESS or is_management(path):
            link.context = ResponseLink(path.lower(), link)
            link.accept()
            return
        group_of(link).check_receiver(path)
        is_settled = link.snd_settle_mode == SETTLED_BY_SENDER
        mode = ReceiveMode.RECEIVE_AND_DELETE if is_settled else ReceiveMode.PEEK_LOCK
        request = requested_session(link)
        receiver = self._context.new_receiver(self._outgoing, link)
        link.context = OpeningRole(receiver)
        role = ReceiverRole(path, path.lower(), receiver)
        peer = PeerLink(self._connection, link.name, link.source.filter if link.source else None, link.properties)
        if request is None:
            opened = partial(self._receiver_opened, link, role, now_ms)
            self._backend.open_receiver(receiver, path, mode, peer, now_ms, opened)
        else:
            accepted = partial(self._session_accepted, link, role)
            self._backend.accept_session(
                receiver, path, mode, request.session_id, request.wait_ms, peer, now_ms, accepted
            )

    def _receiver_opened(self, link: SendingLink, role: ReceiverRole, now_ms: int, reply: Done | Refused) -> None:
        if link.context != OpeningRole(role.receiver):
            return  # gone while the reply waited for the disk: transfer dead letters are made when first asked for
        if isinstance(reply, Refused):
            self._not_opened(link, role, reply)
            return
        link.accept()
        self._open(link, role, now_ms)

    def _session_accepted(self, link: SendingLink, role: ReceiverRole, reply: SessionAccepted | Refused) -> None:
        if isinstance(reply, Refused):
            self._not_opened(link, role, reply)
            return
        accept_session(link, reply.session_id, reply.locked_until_ms)
        self._open(link, role._replace(session_id=reply.session_id), self._context.clock())

    def _not_opened(self, link: SendingLink, role: ReceiverRole, refused: Refused) -> None:
        link.context = None
        self._context.forget_receiver(role.receiver)
        self._refuse(link, refused.error)

    def _open(self, link: SendingLink, role: ReceiverRole, now_ms: int) -> None:
        link.context = role
        group_of(link).add(role.path)
        self._outgoing.open(role, link, now_ms)
        self._take_early_credit(link, now_ms)
        self._flush_later()


# --- sessions ---


class SessionRequest(NamedTuple):
    session_id: str | None
    """None: any that is free."""
    wait_ms: int


def requested_session(link: SendingLink) -> SessionRequest | None:
    """The session that a link asks for; None: it is not for one. Raises `NotAllowed` if that cannot be a session."""
    if link.source is None or SESSION_FILTER not in (link.source.filter or {}):
        return None
    session_id = filtered_session(link.source.filter or {})
    if session_id is not None and not isinstance(session_id, str):
        raise NotAllowed(f"a session is named by a string, or null for any, got {type(session_id).__name__}")
    wait_ms = (link.properties or {}).get(WAIT_PROPERTY, WAIT_MS)
    if not isinstance(wait_ms, int) or isinstance(wait_ms, bool) or wait_ms < 0:
        raise NotAllowed(f"{WAIT_PROPERTY} must be a number of milliseconds, got {wait_ms!r:.60}")
    return SessionRequest(None if session_id is None else str(session_id), min(int(wait_ms), WAIT_MS_MAX))


def filtered_session(filters: Mapping[Any, Any]) -> Any:
    """What a link's filters say of its session: plainly, or described as the Go client does."""
    given = filters.get(SESSION_FILTER)
    return given.value if isinstance(given, Described) else given


def accept_session(link: SendingLink, session_id: str, locked_until_ms: int) -> None:
    """Answer an attach: the filter names the session, a property says how long it is locked.

    The filter has the form in which it came: the Go client describes it, and reads no other.
    """
    ticks = locked_until_ms * TICKS_PER_MS + TICKS_TO_1970
    source = link.source
    if source is not None:
        filters: Mapping[Any, Any] = source.filter or {}
        given = filters.get(SESSION_FILTER)
        answer = Described(given.descriptor, session_id) if isinstance(given, Described) else session_id
        source = replace(source, filter={**filters, Symbol(SESSION_FILTER): answer})
    link.accept(source=source, properties={Symbol(LOCKED_UNTIL): Long(ticks)})
