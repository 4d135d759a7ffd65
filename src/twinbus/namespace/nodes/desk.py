"""One connection's desk: requests to `$cbs` and `$management`, and what the connection may do since."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from twinbus.amqp.session import Session
from twinbus.errors import AmqpError, InternalError, NamespaceError
from twinbus.namespace.commands import (
    Command,
    GetSessionState,
    ReceiveDeferred,
    RenewSessionLock,
    RequestCommand,
    SetSessionState,
)
from twinbus.namespace.faults.rulings import Proceed
from twinbus.namespace.nodes.answers import AnswerLink
from twinbus.namespace.nodes.cbs import CBS_ADDRESS, put_token
from twinbus.namespace.nodes.management import (
    ReadArrival,
    command_for,
    failure_response,
    managed_entity,
    response_for,
)
from twinbus.namespace.nodes.requests import Request
from twinbus.namespace.operations import Right
from twinbus.namespace.reception import Reception
from twinbus.namespace.replies import Reply
from twinbus.namespace.rights.claims import ClaimBook
from twinbus.namespace.turnstile import Turnstile

_ABOUT_SESSIONS = (GetSessionState, SetSessionState, RenewSessionLock, ReceiveDeferred)
_SEND_OPERATIONS = {"schedule-message", "cancel-scheduled-message"}
_MANAGE_OPERATIONS = {"add-rule", "remove-rule", "enumerate-rules"}


def right_for_operation(name: str) -> Right:
    """The right that a request to `$management` needs; `com.microsoft:` in front of its name does not matter."""
    operation = name.removeprefix("com.microsoft:")
    if operation in _SEND_OPERATIONS:
        return Right.SEND
    return Right.MANAGE if operation in _MANAGE_OPERATIONS else Right.LISTEN


def _told(request: Request, reply: Reply) -> bytes:
    try:
        return response_for(request, reply)
    except AmqpError as error:  # a stored message that cannot be read: an answer all the same
        return failure_response(request, InternalError(f"a message in the answer is damaged: {error}"))


class Desk:
    def __init__(
        self,
        reception: Reception,
        turnstile: Turnstile,
        read_arrival: ReadArrival,
        ask: Callable[[Command, int], None],
        holder_of: Callable[[str, str], int],
        on_answer: Callable[[], None],
    ) -> None:
        """`ask` takes commands, or raises; `on_answer` is called when an answer waits to be sent.

        `holder_of` tells which receiver of this connection has a session of an entity.
        """
        self._ask = ask
        self._holder_of = holder_of
        self._reception = reception
        self._authority = reception.authority
        self._turnstile = turnstile
        self._read_arrival = read_arrival
        self._on_answer = on_answer
        self._claims = ClaimBook()
        self.is_authenticated = False
        """Whether anything was proved here so far."""
        self.unanswered = 0
        """Requests that are not done yet."""

    # --- rights ---

    def let_in(self, rule_name: str) -> None:
        """Somebody came in with a rule's name and key, which were checked."""
        self._claims.enter(self._authority.claim_of(rule_name))
        self.is_authenticated = True

    def check_right(self, path: str, right: Right | None, now_ms: int) -> None:
        """Raise `Unauthorized` unless the connection has this right to an entity; None asks for any right at all."""
        self._claims.check(path, right, now_ms)

    def next_expiry_ms(self) -> int | None:
        """When `is_review_due` becomes true; None: not before another token is put."""
        return self._claims.review_ms

    def is_review_due(self, now_ms: int) -> bool:
        """Whether rights may have been lost: then ask for each with `has_right`, and say `reviewed`."""
        review_ms = self._claims.review_ms
        return review_ms is not None and review_ms <= now_ms

    def has_right(self, path: str, right: Right | None, now_ms: int) -> bool:
        return self._claims.has(path, right, now_ms)

    def reviewed(self, now_ms: int) -> None:
        self._claims.reviewed(now_ms)

    # --- requests ---

    def take(self, session: Session, address: str, request: Request, now_ms: int) -> None:
        if address == CBS_ADDRESS:
            response = put_token(request, self._authority, self._claims, now_ms)
            self.is_authenticated = self.is_authenticated or self._claims.review_ms is not None
            self._respond(session, address, request, response)
        else:
            self._manage(session, address, request, now_ms)

    def _manage(self, session: Session, address: str, request: Request, now_ms: int) -> None:
        path = managed_entity(address)

        def refuse(error: NamespaceError | AmqpError) -> None:
            self._respond(session, address, request, failure_response(request, error))

        try:
            self.check_right(path, right_for_operation(request.operation), now_ms)
        except NamespaceError as error:
            refuse(error)
            return
        ruling = self._turnstile.request_ruling(request.operation, path, now_ms)
        if isinstance(ruling, Proceed):
            self._carry_out(session, address, request, ruling, now_ms)
        else:
            self._turnstile.obey(ruling, now_ms, lambda: None, refuse)

    def _carry_out(self, session: Session, address: str, request: Request, ruling: Proceed, now_ms: int) -> None:
        path = managed_entity(address)

        def respond(reply: Reply) -> None:
            self.unanswered -= 1
            self._reception.count_request(command, reply)
            if not ruling.unanswered:
                response = _told(request, reply)
                answer = partial(self._respond, session, address, request, response)
                self._turnstile.later(ruling.delay_ms, now_ms, answer)

        self.unanswered += 1
        try:
            command = self._by_holder(command_for(request, path, self._read_arrival, respond))
            self._ask(command, now_ms)
        except (NamespaceError, AmqpError) as error:
            self.unanswered -= 1
            self._respond(session, address, request, failure_response(request, error))

    def _by_holder(self, command: RequestCommand) -> RequestCommand:
        """What is asked about a session is asked as its receiver here: who has lost it must not touch another's."""
        if isinstance(command, _ABOUT_SESSIONS) and command.session_id is not None:
            return command._replace(holder=self._holder_of(command.path, command.session_id))
        return command

    def _respond(self, session: Session, address: str, request: Request, response: bytes) -> None:
        """Answer on the link that the client opened for it: the one it names, else the first of that node."""
        waiting = [
            link for link in session.links if type(link.context) is AnswerLink and link.context.address == address
        ]
        named = [link for link in waiting if request.reply_to in (link.name, getattr(link.target, "address", None))]
        for link in (named or waiting)[:1]:
            link.context.answer(response)
            self._on_answer()
