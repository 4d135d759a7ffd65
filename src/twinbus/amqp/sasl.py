"""The first bytes of a connection: protocol headers and SASL (ANONYMOUS, PLAIN), until AMQP frames may follow.

Neither side waits longer than it must: a peer may send all of it, and frames after it, in one piece.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from twinbus.amqp.composites import (
    BINARY,
    STRING,
    SYMBOL,
    SYMBOLS,
    UBYTE,
    decode_composite,
    described,
    encode_composite,
)
from twinbus.amqp.decoding import count_elements
from twinbus.amqp.events import Authenticated
from twinbus.amqp.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, FrameReader, frame
from twinbus.amqp.outbox import Outbox
from twinbus.amqp.outcomes import ConnectionViolation

if TYPE_CHECKING:
    from twinbus.amqp.events import Event

ANONYMOUS = "ANONYMOUS"
PLAIN = "PLAIN"


@dataclass(frozen=True, slots=True)
class ServerSasl:
    """The mechanisms a server offers. `check_plain` decides on a user and password."""

    mechanisms: tuple[str, ...] = (ANONYMOUS,)
    check_plain: Callable[[str, str], bool] = lambda _user, _password: False
    allow_skip: bool = False
    """Treat a peer that starts without SASL as anonymous."""


@dataclass(frozen=True, slots=True)
class ClientSasl:
    """How a client authenticates."""

    mechanism: str = ANONYMOUS
    user: str = ""
    password: str = ""


@described(0x40, "amqp:sasl-mechanisms:list", SYMBOLS)
@dataclass(frozen=True, slots=True)
class SaslMechanisms:
    sasl_server_mechanisms: tuple[str, ...]


@described(0x41, "amqp:sasl-init:list", SYMBOL, BINARY, STRING)
@dataclass(frozen=True, slots=True)
class SaslInit:
    mechanism: str
    initial_response: bytes | None = None
    hostname: str | None = None


@described(0x42, "amqp:sasl-challenge:list", BINARY)
@dataclass(frozen=True, slots=True)
class SaslChallenge:
    challenge: bytes


@described(0x43, "amqp:sasl-response:list", BINARY)
@dataclass(frozen=True, slots=True)
class SaslResponse:
    response: bytes


@described(0x44, "amqp:sasl-outcome:list", UBYTE, BINARY)
@dataclass(frozen=True, slots=True)
class SaslOutcome:
    code: int
    additional_data: bytes | None = None


SaslFrame: TypeAlias = SaslMechanisms | SaslInit | SaslChallenge | SaslResponse | SaslOutcome

_OK, _AUTH = 0, 1


class ServerNegotiation:
    """The server's side of SASL with one peer. `user` is set once an outcome with code 0 was returned."""

    def __init__(self, sasl: ServerSasl) -> None:
        self._sasl = sasl
        self._challenged = False
        self.mechanism = ""
        self.user: str | None = None

    def answer(self, received: object) -> SaslChallenge | SaslOutcome:
        """The next frame to send; an outcome is the last one."""
        match received:
            case SaslInit() if not self._challenged:
                return self._begin(received)
            case SaslResponse() if self._challenged:
                return self._finish(received.response)
        raise ConnectionViolation("amqp:not-allowed", f"{type(received).__name__} is not expected here")

    def _begin(self, init: SaslInit) -> SaslChallenge | SaslOutcome:
        self.mechanism = init.mechanism
        if init.mechanism not in self._sasl.mechanisms:
            return SaslOutcome(_AUTH)
        if init.mechanism == PLAIN and init.initial_response is None:
            self._challenged = True
            return SaslChallenge(b"")
        return self._finish(init.initial_response or b"")

    def _finish(self, response: bytes) -> SaslOutcome:
        if self.mechanism == ANONYMOUS:
            # The response is only a trace: the official JavaScript client puts its key name there.
            self.user = "anonymous"
        elif self.mechanism == PLAIN:
            self.user = self._plain_user(response)
        return SaslOutcome(_OK if self.user is not None else _AUTH)

    def _plain_user(self, response: bytes) -> str | None:
        try:
            _, user, password = response.decode().split("\0")
        except ValueError:
            return None
        return user if self._sasl.check_plain(user, password) else None


class ClientNegotiation:
    """The client's side of SASL. `done` once the server has accepted."""

    def __init__(self, sasl: ClientSasl, hostname: str | None) -> None:
        self._sasl = sasl
        self._hostname = hostname
        self.mechanism = sasl.mechanism
        self.user = sasl.user if sasl.mechanism == PLAIN else "anonymous"
        self.done = False

    def answer(self, received: object) -> SaslInit | SaslResponse | None:
        """The next frame to send; None after the server's last one."""
        match received:
            case SaslMechanisms():
                return self._begin(received.sasl_server_mechanisms)
            case SaslChallenge():
                return SaslResponse(self._response())
            case SaslOutcome():
                self.done = received.code == _OK
                if not self.done:
                    raise ConnectionViolation("amqp:unauthorized-access", f"SASL outcome {received.code}")
                return None
        raise ConnectionViolation("amqp:not-allowed", f"{type(received).__name__} is not expected here")

    def _begin(self, offered: tuple[str, ...]) -> SaslInit:
        if self.mechanism not in offered:
            raise ConnectionViolation("amqp:unauthorized-access", f"the server does not offer {self.mechanism}")
        return SaslInit(self.mechanism, self._response(), self._hostname)

    def _response(self) -> bytes:
        return f"\0{self._sasl.user}\0{self._sasl.password}".encode() if self.mechanism == PLAIN else b""


SASL_ELEMENTS = 100
"""Limit of values in one SASL frame."""


class Handshake(ABC):
    """What both roles share. `done`: AMQP frames may follow. `user`: the authenticated user, once known."""

    def __init__(self, reader: FrameReader, outbox: Outbox) -> None:
        self.done = False
        self.user: str | None = None
        self._reader = reader
        self._outbox = outbox

    @abstractmethod
    def handle_header(self, header: bytes) -> None:
        """Handle the peer's protocol header. Raises ConnectionViolation, after sending our own, if it does not fit."""

    @abstractmethod
    def handle_sasl(self, body: bytes, events: list[Event]) -> None:
        """Handle a SASL frame. Raises ConnectionViolation if it is unexpected or authentication failed."""

    def _send_sasl(self, answer: SaslFrame) -> None:
        self._outbox.add_preamble(frame(0, encode_composite(answer), SASL_FRAME))


class ServerHandshake(Handshake):
    """Without `sasl` only plain AMQP is accepted."""

    def __init__(self, sasl: ServerSasl | None, reader: FrameReader, outbox: Outbox) -> None:
        super().__init__(reader, outbox)
        self._sasl = sasl
        self._negotiation: ServerNegotiation | None = None

    def handle_header(self, header: bytes) -> None:
        may_skip = self._negotiation is None and (self._sasl is None or self._sasl.allow_skip)
        if header == SASL_HEADER and self._sasl is not None and self._negotiation is None:
            self._negotiation = ServerNegotiation(self._sasl)
            self._outbox.add_preamble(SASL_HEADER)
            self._send_sasl(SaslMechanisms(self._sasl.mechanisms))
        elif header == AMQP_HEADER and (self.user is not None or may_skip):
            self.user = self.user or "anonymous"
            self._outbox.add_preamble(AMQP_HEADER)
            self._outbox.released = self.done = True
        else:
            self._outbox.add_preamble(AMQP_HEADER if self._sasl is None else SASL_HEADER)
            raise ConnectionViolation("amqp:connection:framing-error", f"protocol header {header!r} is not supported")

    def handle_sasl(self, body: bytes, events: list[Event]) -> None:
        if self._negotiation is None:
            raise ConnectionViolation("amqp:connection:framing-error", "SASL frame without a SASL header")
        answer = self._negotiation.answer(_read(body))
        self._send_sasl(answer)
        if not isinstance(answer, SaslOutcome):
            return
        self.user = self._negotiation.user
        if self.user is None:
            raise ConnectionViolation("amqp:unauthorized-access", f"{self._negotiation.mechanism:.60} was refused")
        self._reader.expects_header = True
        events.append(Authenticated(self._negotiation.mechanism, self.user))


class ClientHandshake(Handshake):
    """Without `sasl` the client starts with plain AMQP."""

    def __init__(self, sasl: ClientSasl | None, hostname: str | None, reader: FrameReader, outbox: Outbox) -> None:
        super().__init__(reader, outbox)
        self._negotiation = None if sasl is None else ClientNegotiation(sasl, hostname)

    def start(self) -> None:
        """Send our first header."""
        if self._negotiation is None:
            self._send_amqp_header()
        else:
            self._outbox.add_preamble(SASL_HEADER)

    def handle_header(self, header: bytes) -> None:
        expected = AMQP_HEADER if self._negotiation is None or self._negotiation.done else SASL_HEADER
        if header != expected:
            raise ConnectionViolation("amqp:connection:framing-error", f"the server answered {header!r}")
        self.done = header == AMQP_HEADER

    def handle_sasl(self, body: bytes, events: list[Event]) -> None:
        negotiation = self._negotiation
        if negotiation is None or negotiation.done:
            raise ConnectionViolation("amqp:connection:framing-error", "unexpected SASL frame")
        answer = negotiation.answer(_read(body))
        if answer is not None:
            self._send_sasl(answer)
            return
        self.user = negotiation.user
        self._reader.expects_header = True
        self._send_amqp_header()
        events.append(Authenticated(negotiation.mechanism, negotiation.user))

    def _send_amqp_header(self) -> None:
        self._outbox.add_preamble(AMQP_HEADER)
        self._outbox.released = True


def _read(body: bytes) -> object:
    """Decode a frame; counted first, since one byte can become a hundred in memory."""
    count_elements(body, 0, SASL_ELEMENTS)
    return decode_composite(body)
