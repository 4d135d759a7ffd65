"""One connection's requests to `$cbs` and `$management`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from twinbus.amqp.codec.encoding import Array
from twinbus.amqp.codec.outcomes import ACCEPTED
from twinbus.amqp.events import TransferArrived
from twinbus.amqp.peer_memory import FRAME_COST
from twinbus.amqp.sending_link import SendingLink
from twinbus.amqp.session import Session
from twinbus.broker.auth.claims import ClaimBook
from twinbus.broker.faults.decisions import Proceed
from twinbus.broker.faults.fault_table import REQUEST_MEANINGS
from twinbus.broker.links.cbs import put_token
from twinbus.broker.links.connection_context import ConnectionContext
from twinbus.broker.links.fault_gate import FaultGate
from twinbus.broker.links.incoming import IncomingDeliveries
from twinbus.broker.links.link_roles import CBS_ADDRESS, managed_entity
from twinbus.broker.links.outcomes import rejection
from twinbus.broker.links.request_messages import Request, failure_response, read_request
from twinbus.broker.links.transactions import TransactionBook
from twinbus.broker.operations import Operation, Right
from twinbus.errors import AmqpError, NamespaceError

LINK_NAME, SESSION_ID = "associated-link-name", "session-id"
REQUEST_ELEMENTS, TOKEN_ELEMENTS = 20_000, 100
"""Values that a request may consist of; a thousand messages to be scheduled are about 11,000."""
_SEND_OPERATIONS = {"schedule-message", "cancel-scheduled-message"}
_MANAGE_OPERATIONS = {"add-rule", "remove-rule", "enumerate-rules"}


def right_for_operation(operation_name: str) -> Right:
    """The right that a request to `$management` needs."""
    if operation_name in _SEND_OPERATIONS:
        return Right.SEND
    return Right.MANAGE if operation_name in _MANAGE_OPERATIONS else Right.LISTEN


def stored_sizes(request: Request) -> list[int]:
    """The sizes of what a request wants stored: that counts like messages that are sent."""
    if not isinstance(request.body, dict):
        return []
    match request.operation_name:
        case "schedule-message":
            entries = request.body.get("messages")
            listed = entries if isinstance(entries, list | Array) else ()
            messages = [entry.get("message") for entry in listed if isinstance(entry, dict)]
            return [len(message) for message in messages if isinstance(message, bytes)]
        case "set-session-state":
            state = request.body.get("session-state")
            return [len(state)] if isinstance(state, bytes) else []
        case _:
            return []


class ResponseLink:
    """A link to a client that waits for responses; those it has no credit for wait with it."""

    def __init__(self, address: str, link: SendingLink) -> None:
        self.address = address
        self.link = link
        self._waiting: deque[bytes] = deque()
        self._account = link.session.connection.account

    def respond(self, response: bytes) -> None:
        """Send a response, now or when the client takes it."""
        self._waiting.append(response)
        self._account.queue(len(response) + FRAME_COST)
        self.send_waiting()

    def send_waiting(self) -> None:
        while self._waiting and self.link.attached and self.link.credit > 0:
            response = self._waiting.popleft()
            self._account.queue(-len(response) - FRAME_COST)
            self.link.send(response, settled=True)

    def close(self) -> None:
        """The link is gone, and with it what waits."""
        self._account.queue(-sum([len(response) + FRAME_COST for response in self._waiting]))
        self._waiting.clear()


class RequestNodes:
    def __init__(
        self,
        context: ConnectionContext,
        connection: int,
        faults: FaultGate,
        incoming: IncomingDeliveries,
        transactions: TransactionBook,
        claims: ClaimBook,
        holder_of: Callable[[str, str], int],
        session_of: Callable[[str, str], str | None],
        flush_later: Callable[[], None],
    ) -> None:
        """`holder_of` gives the receiver of this connection that has a session of an entity; 0: none.

        `session_of` gives the session of an entity that a link of this connection has, by its name.
        """
        self._context = context
        self._connection = connection
        self._authority = context.authority
        self._faults = faults
        self._incoming = incoming
        self._transactions = transactions
        self._holder_of = holder_of
        self._session_of = session_of
        self._flush_later = flush_later
        self._claims = claims
        self.is_authenticated = False
        """Whether anything was proved here so far."""
        self.unanswered = 0
        """Requests that are not done yet."""

    def log_in(self, rule_name: str) -> None:
        """The peer has logged in with a rule's name and key, which were checked."""
        self._claims.set_login(self._authority.claim_of(rule_name))
        self.is_authenticated = True

    def take(self, event: TransferArrived, address: str, now_ms: int) -> None:
        try:
            request = read_request(event.payload, TOKEN_ELEMENTS if address == CBS_ADDRESS else REQUEST_ELEMENTS)
        except AmqpError as error:
            self._incoming.settle(event, rejection(error))
            return
        self._incoming.settle(event, ACCEPTED)
        session = event.link.session
        if address == CBS_ADDRESS:
            response = put_token(request, self._authority, self._claims, now_ms)
            self.is_authenticated = self.is_authenticated or self._claims.review_ms is not None
            self._respond(session, address, request, response)
        else:
            self._manage(session, address, request, event.transaction, now_ms)

    def _manage(self, session: Session, address: str, request: Request, txn_id: bytes | None, now_ms: int) -> None:
        path = managed_entity(address)
        request = self._with_session(request, path)

        def refuse(error: NamespaceError | AmqpError) -> None:
            self._respond(session, address, request, failure_response(request, error))

        try:
            # A token for the node alone is enough: that is all some clients have put.
            self._claims.check(address, right_for_operation(request.operation_name), now_ms)
            decision = self._faults.decide_request(request.operation_name, path, now_ms)
            if isinstance(decision, Proceed):
                self._carry_out(session, address, request, txn_id, decision, now_ms)
            else:
                self._faults.apply(decision, now_ms, lambda: None, refuse)
        except (NamespaceError, AmqpError) as error:
            refuse(error)

    def _with_session(self, request: Request, path: str) -> Request:
        """The request with the session of the link that it names, unless it names a session itself.

        The Go client's receivers of sessions peek, and receive what was deferred, without naming theirs.
        """
        link_name = request.properties.get(LINK_NAME)
        if not isinstance(link_name, str) or not isinstance(request.body, dict) or SESSION_ID in request.body:
            return request
        session_id = self._session_of(path, link_name)
        return request if session_id is None else request._replace(body={**request.body, SESSION_ID: session_id})

    def _carry_out(
        self,
        session: Session,
        address: str,
        request: Request,
        txn_id: bytes | None,
        decision: Proceed,
        now_ms: int,
    ) -> None:
        path, sizes, incoming = managed_entity(address), stored_sizes(request), self._incoming
        if sizes:
            incoming.check_load(path)
        transaction: int | None = None
        if txn_id is not None:
            meaning = REQUEST_MEANINGS.get(request.operation_name, Operation.MANAGE)
            transaction = self._transactions.charge(txn_id, meaning, path, len(request.payload), 1).number
        elif sizes:
            incoming.count_unwritten(sum(sizes), len(sizes))
        self.unanswered += 1
        session_id = request.body.get(SESSION_ID) if isinstance(request.body, dict) else None
        holder = self._holder_of(path, session_id) if isinstance(session_id, str) else None

        def done() -> None:
            self.unanswered -= 1
            if transaction is None:
                incoming.share.remove(sum(sizes), len(sizes))

        def respond(response: bytes) -> None:
            done()
            if not decision.unanswered:
                send = partial(self._respond, session, address, request, response)
                self._faults.call_later(decision.delay_ms, now_ms, send)

        try:
            backend = self._context.backend
            backend.request(path, request, self._connection, holder, now_ms, respond, transaction)
        except (NamespaceError, AmqpError):
            done()
            raise

    def _respond(self, session: Session, address: str, request: Request, response: bytes) -> None:
        """Respond on the link that the client opened for it: the one it names, else the first of that node."""
        waiting = [
            link for link in session.links if type(link.context) is ResponseLink and link.context.address == address
        ]
        named = [link for link in waiting if request.reply_to in (link.name, getattr(link.target, "address", None))]
        for link in (named or waiting)[:1]:
            link.context.respond(response)
            self._flush_later()
