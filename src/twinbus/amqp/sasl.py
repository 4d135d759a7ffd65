"""The first bytes of a connection: protocol headers and SASL (ANONYMOUS, MSSBCBS, PLAIN), until AMQP frames may follow.

Neither side waits longer than it must: a peer may send all of it, and frames after it, in one piece.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from twinbus.amqp.codec.composites import (
    BINARY,
    STRING,
    SYMBOL,
    SYMBOLS,
    UBYTE,
    decode_composite,
    described,
    encode_composite,
)
from twinbus.amqp.codec.decoding import count_elements
from twinbus.amqp.codec.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, FrameReader, frame
from twinbus.amqp.codec.outcomes import ConnectionViolation
from twinbus.amqp.events import Authenticated
from twinbus.amqp.outbox import Outbox

if TYPE_CHECKING:
    from twinbus.amqp.events import Event

ANONYMOUS = "ANONYMOUS"
CBS = "MSSBCBS"
"""ANONYMOUS under another name: "my tokens come through `$cbs`". The official .NET client knows no other mechanism."""
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
    mechanism: str = ANONYMOUS
    user: str = ""
    password: str = ""

    @property
    def response(self) -> bytes:
        return f"\0{self.user}\0{self.password}".encode() if self.mechanism == PLAIN else b""


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
        self._has_begun = False
        self._has_challenged = False
        self._mechanism = ""

    def handle_header(self, header: bytes) -> None:
        may_skip = not self._has_begun and (self._sasl is None or self._sasl.allow_skip)
        if header == SASL_HEADER and self._sasl is not None and not self._has_begun:
            self._has_begun = True
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
        if self._sasl is None or not self._has_begun:
            raise ConnectionViolation("amqp:connection:framing-error", "SASL frame without a SASL header")
        match _read(body):
            case SaslInit(mechanism, initial_response) if not self._has_challenged:
                self._mechanism = mechanism
                if mechanism == PLAIN and PLAIN in self._sasl.mechanisms and initial_response is None:
                    self._has_challenged = True
                    self._send_sasl(SaslChallenge(b""))
                    return
                self.user = self._authenticate(self._sasl, initial_response or b"")
            case SaslResponse(response) if self._has_challenged:
                self.user = self._authenticate(self._sasl, response)
            case other:
                raise _unexpected(other)
        self._send_sasl(SaslOutcome(_AUTH if self.user is None else _OK))
        if self.user is None:
            raise ConnectionViolation("amqp:unauthorized-access", f"{self._mechanism:.60} was refused")
        self._reader.expects_header = True
        events.append(Authenticated(self._mechanism, self.user))

    def _authenticate(self, sasl: ServerSasl, response: bytes) -> str | None:
        """The user; None if the peer is refused."""
        if self._mechanism not in sasl.mechanisms:
            return None
        if self._mechanism in (ANONYMOUS, CBS):
            # The response is only a trace: the official JavaScript client puts its key name there, .NET's has none.
            return "anonymous"
        try:
            _, user, password = response.decode().split("\0")
        except ValueError:
            return None
        return user if self._mechanism == PLAIN and sasl.check_plain(user, password) else None


class ClientHandshake(Handshake):
    """Without `sasl` the client starts with plain AMQP."""

    def __init__(self, sasl: ClientSasl | None, hostname: str | None, reader: FrameReader, outbox: Outbox) -> None:
        super().__init__(reader, outbox)
        self._sasl = sasl
        self._hostname = hostname
        self._expects_sasl = sasl is not None

    def start(self) -> None:
        """Send our first header."""
        if self._sasl is None:
            self._send_amqp_header()
        else:
            self._outbox.add_preamble(SASL_HEADER)

    def handle_header(self, header: bytes) -> None:
        if header != (SASL_HEADER if self._expects_sasl else AMQP_HEADER):
            raise ConnectionViolation("amqp:connection:framing-error", f"the server answered {header!r}")
        self.done = header == AMQP_HEADER

    def handle_sasl(self, body: bytes, events: list[Event]) -> None:
        sasl = self._sasl
        if sasl is None or not self._expects_sasl:
            raise ConnectionViolation("amqp:connection:framing-error", "unexpected SASL frame")
        match _read(body):
            case SaslMechanisms(offered):
                if sasl.mechanism not in offered:
                    text = f"the server does not offer {sasl.mechanism}"
                    raise ConnectionViolation("amqp:unauthorized-access", text)
                self._send_sasl(SaslInit(sasl.mechanism, sasl.response, self._hostname))
            case SaslChallenge():
                self._send_sasl(SaslResponse(sasl.response))
            case SaslOutcome(code):
                if code != _OK:
                    raise ConnectionViolation("amqp:unauthorized-access", f"SASL outcome {code}")
                self._expects_sasl = False
                self.user = sasl.user if sasl.mechanism == PLAIN else "anonymous"
                self._reader.expects_header = True
                self._send_amqp_header()
                events.append(Authenticated(sasl.mechanism, self.user))
            case other:
                raise _unexpected(other)

    def _send_amqp_header(self) -> None:
        self._outbox.add_preamble(AMQP_HEADER)
        self._outbox.released = True


def _read(body: bytes) -> object:
    """Decode a frame; counted first, since one byte can become a hundred in memory."""
    count_elements(body, 0, SASL_ELEMENTS)
    return decode_composite(body)


def _unexpected(received: object) -> ConnectionViolation:
    return ConnectionViolation("amqp:not-allowed", f"{type(received).__name__} is not expected here")
