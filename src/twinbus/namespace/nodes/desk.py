"""One connection's desk: requests to `$cbs` and `$management`, and what the connection may do since."""

from __future__ import annotations

from collections.abc import Callable

from twinbus.amqp.session import Session
from twinbus.errors import AmqpError, NamespaceError, Unauthorized
from twinbus.namespace.commands import Command
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
from twinbus.namespace.replies import Reply
from twinbus.namespace.rights import AccessKey, Claim

CLAIMS_MAX = 1_000


class Desk:
    def __init__(
        self,
        keys: tuple[AccessKey, ...],
        read_arrival: ReadArrival,
        ask: Callable[[Command, int], None],
        on_answer: Callable[[], None],
    ) -> None:
        """`ask` takes commands; `on_answer` is called when an answer waits to be sent."""
        self._keys = keys
        self._read_arrival = read_arrival
        self._ask = ask
        self._on_answer = on_answer
        self._claims: dict[str, Claim] = {}

    def check_right(self, path: str, now_ms: int) -> None:
        """Raise `Unauthorized` unless a token for the entity was put here."""
        if not any(claim.covers(path, now_ms) for claim in self._claims.values()):
            raise Unauthorized(f"no valid token for '{path}' was put on this connection")

    def take(self, session: Session, address: str, request: Request, now_ms: int) -> None:
        if address == CBS_ADDRESS:
            self._take_token(session, request, now_ms)
        else:
            self._manage(session, address, request, now_ms)

    def _take_token(self, session: Session, request: Request, now_ms: int) -> None:
        answer = put_token(request, self._keys, now_ms)
        if answer.claim is not None:
            self._remember(answer.claim, now_ms)
        self._respond(session, CBS_ADDRESS, request, answer.response)

    def _remember(self, claim: Claim, now_ms: int) -> None:
        if len(self._claims) >= CLAIMS_MAX:
            self._claims = {key: each for key, each in self._claims.items() if each.until_ms > now_ms}
        if len(self._claims) < CLAIMS_MAX:
            self._claims[claim.resource] = claim

    def _manage(self, session: Session, address: str, request: Request, now_ms: int) -> None:
        def respond(reply: Reply) -> None:
            self._respond(session, address, request, response_for(request, reply))

        try:
            command = command_for(request, managed_entity(address), self._read_arrival, respond)
        except (NamespaceError, AmqpError) as error:
            self._respond(session, address, request, failure_response(request, error))
            return
        self._ask(command, now_ms)

    def _respond(self, session: Session, address: str, request: Request, response: bytes) -> None:
        """Answer on the link that the client opened for it: the one it names, else the first of that node."""
        waiting = [
            link for link in session.links if type(link.context) is AnswerLink and link.context.address == address
        ]
        named = [link for link in waiting if request.reply_to in (link.name, getattr(link.target, "address", None))]
        for link in (named or waiting)[:1]:
            link.context.answer(response)
            self._on_answer()
