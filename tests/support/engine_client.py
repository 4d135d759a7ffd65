"""A client made of our own engine on a blocking socket: for what the official clients do not do."""

from __future__ import annotations

import socket
import time
import uuid
from types import TracebackType
from typing import Any, TypeVar

from twinbus.amqp.codec.outcomes import Error, Outcome
from twinbus.amqp.codec.performatives import Source
from twinbus.amqp.codec.types import Symbol
from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import (
    Attached,
    ConnectionClosed,
    CreditChanged,
    Detached,
    DispositionArrived,
    Event,
    LinkRefused,
    Opened,
    TransferArrived,
)
from twinbus.amqp.link import Link
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.amqp.sasl import ANONYMOUS, PLAIN, ClientSasl
from twinbus.amqp.sending_link import SendingLink

Wanted = TypeVar("Wanted")
WAIT_S = 40.0


class EngineClient:
    """Connects in its constructor. Every wait is bounded; what does not come in time is an AssertionError."""

    def __init__(self, port: int, user: str | None = None, password: str = "") -> None:
        sasl = ClientSasl(ANONYMOUS) if user is None else ClientSasl(PLAIN, user, password)
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self._connection = Connection(role=Role.CLIENT, container_id="engine-client", sasl=sasl)
        self._events: list[Event] = []
        self._connection.open()
        self.session = self._connection.begin()

    def __enter__(self) -> EngineClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def wait_open(self) -> bool:
        """Whether we were let in."""
        return isinstance(self._next(Opened, ConnectionClosed), Opened)

    def sender(self, address: str) -> SendingLink | Error:
        """A link with credit to send on, or why there is none."""
        link = self.session.attach_sender(f"to-{address}-{uuid.uuid4().hex}", address)
        refusal = self._refusal(link)
        if refusal is not None:
            return refusal
        self._next(CreditChanged, link=link)
        return link

    def receiver(self, address: str, credit: int = 10) -> ReceivingLink | Error:
        link = self.session.attach_receiver(f"from-{address}-{uuid.uuid4().hex}", address)
        refusal = self._refusal(link)
        if refusal is not None:
            return refusal
        link.grant(credit)
        return link

    def receiver_from(self, source: Source, properties: dict[Any, Any], credit: int = 10) -> ReceivingLink | Error:
        """A link with everything that can be said of its source."""
        link = self.session.attach_receiver(f"from-{uuid.uuid4().hex}", source, properties=properties)
        refusal = self._refusal(link)
        if refusal is not None:
            return refusal
        link.grant(credit)
        return link

    def ask_for_session(self, address: str, filter_name: str) -> None:
        """Ask for any session, and do not wait for the answer."""
        source = Source(address, filter={Symbol(filter_name): None})
        self.session.attach_receiver(f"from-{uuid.uuid4().hex}", source)
        self._exchange(time.monotonic() + 0.2)
        self._exchange(time.monotonic() + 0.2)

    def send(self, link: SendingLink, payload: bytes) -> Outcome | None:
        link.send(payload, tag=uuid.uuid4().bytes)
        return self._next(DispositionArrived, link=link).outcome

    def ask(self, address: str, properties: dict[str, Any], body: Any) -> dict[Any, Any]:
        """The application properties of a node's answer."""
        return self.ask_fully(address, properties, body)[0]

    def ask_fully(self, address: str, properties: dict[str, Any], body: Any) -> tuple[dict[Any, Any], Any]:
        """The application properties of a node's answer, and its body."""
        asking, answers = self.sender(address), self.receiver(address)
        assert isinstance(asking, SendingLink)
        assert isinstance(answers, ReceivingLink)
        request = sections.encode_message(
            properties={PropertyField.MESSAGE_ID: "1", PropertyField.REPLY_TO: answers.name},
            application_properties=properties,
            value=body,
        )
        asking.send(request, tag=b"1", settled=True)
        response = self._next(TransferArrived, link=answers).payload
        for link in (asking, answers):
            link.detach()
            self.detached(link)
        layout = sections.walk(response)
        return sections.read_application_properties(response, layout), sections.read_value(response, layout)

    def put_token(self, token: str, audience: str) -> int:
        """The status code of `$cbs`."""
        status = self.ask("$cbs", {"operation": "put-token", "type": "jwt", "name": audience}, token)
        return int(status["status-code"])

    def detached(self, link: Link) -> Error | None:
        """Wait for the end of a link; what the server says about it."""
        return self._next(Detached, link=link).error

    def hears_nothing(self, kind: type[Event], for_s: float) -> bool:
        """Whether no such event comes for a while."""
        deadline = time.monotonic() + for_s
        while time.monotonic() < deadline:
            self._exchange(deadline)
            if any(isinstance(event, kind) for event in self._events):
                return False
        return True

    def _refusal(self, link: Link) -> Error | None:
        event = self._next(Attached, LinkRefused, link=link)
        return event.error if isinstance(event, LinkRefused) else None

    def _next(self, *kinds: type[Wanted], link: Link | None = None) -> Wanted:
        """The next event of one of these kinds, about this link if one is given. Others wait to be asked for."""
        deadline = time.monotonic() + WAIT_S
        while True:
            for place, event in enumerate(self._events):
                if isinstance(event, kinds) and link in (None, getattr(event, "link", None)):
                    del self._events[place]
                    return event
            assert time.monotonic() < deadline, f"none of {kinds} came within {WAIT_S} s"
            self._exchange(deadline)

    def _exchange(self, deadline: float) -> None:
        self._socket.settimeout(max(0.001, deadline - time.monotonic()))
        output = self._connection.take_output()
        try:
            self._socket.sendall(output)
            data = self._socket.recv(65536)
        except TimeoutError:
            return
        if data:
            self._events += self._connection.receive(data, int(time.monotonic() * 1000))
        else:
            self._events.append(ConnectionClosed(None))
