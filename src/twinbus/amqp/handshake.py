"""The first bytes of a connection: protocol headers and SASL, until AMQP frames may follow.

Neither side waits longer than it must: a peer may send all of it, and frames after it, in one piece.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from twinbus.amqp.composites import decode_composite, encode_composite
from twinbus.amqp.decoding import count_elements
from twinbus.amqp.events import Authenticated
from twinbus.amqp.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, FrameReader, frame
from twinbus.amqp.outbox import Outbox
from twinbus.amqp.sasl import (
    ClientNegotiation,
    ClientSasl,
    SaslFrame,
    SaslMechanisms,
    SaslOutcome,
    ServerNegotiation,
    ServerSasl,
)
from twinbus.amqp.violations import ConnectionViolation

if TYPE_CHECKING:
    from twinbus.amqp.events import Event

SASL_ELEMENTS = 100
"""Values in one frame of SASL, at most."""


class Handshake(ABC):
    """What both roles share. `done` when AMQP frames may come, `user` when it is known who is there."""

    def __init__(self, reader: FrameReader, outbox: Outbox) -> None:
        self.done = False
        self.user: str | None = None
        self._reader = reader
        self._outbox = outbox

    @abstractmethod
    def hear_header(self, header: bytes) -> None:
        """The peer's protocol header. ConnectionViolation when it does not fit; our own header is said before."""

    @abstractmethod
    def hear_sasl(self, body: bytes, events: list[Event]) -> None:
        """A SASL frame. ConnectionViolation when it is out of place or the peer is not let in."""

    def _say_sasl(self, said: SaslFrame) -> None:
        self._outbox.say_first(frame(0, encode_composite(said), SASL_FRAME))


class ServerHandshake(Handshake):
    """Without `sasl` only plain AMQP is spoken."""

    def __init__(self, sasl: ServerSasl | None, reader: FrameReader, outbox: Outbox) -> None:
        super().__init__(reader, outbox)
        self._sasl = sasl
        self._negotiation: ServerNegotiation | None = None

    def hear_header(self, header: bytes) -> None:
        if header == SASL_HEADER and self._sasl is not None and self._negotiation is None:
            self._negotiation = ServerNegotiation(self._sasl)
            self._outbox.say_first(SASL_HEADER)
            self._say_sasl(SaslMechanisms(self._sasl.mechanisms))
        elif header == AMQP_HEADER and (self.user is not None or self._may_skip()):
            self.user = self.user or "anonymous"
            self._outbox.say_first(AMQP_HEADER)
            self._outbox.released = self.done = True
        else:
            self._outbox.say_first(AMQP_HEADER if self._sasl is None else SASL_HEADER)
            raise ConnectionViolation("amqp:connection:framing-error", f"protocol header {header!r} is not served")

    def hear_sasl(self, body: bytes, events: list[Event]) -> None:
        if self._negotiation is None:
            raise ConnectionViolation("amqp:connection:framing-error", "a SASL frame without a SASL header")
        answer = self._negotiation.answer(_read(body))
        self._say_sasl(answer)
        if not isinstance(answer, SaslOutcome):
            return
        self.user = self._negotiation.user
        if self.user is None:
            raise ConnectionViolation("amqp:unauthorized-access", f"{self._negotiation.mechanism:.60} was refused")
        self._reader.expects_header = True
        events.append(Authenticated(self._negotiation.mechanism, self.user))

    def _may_skip(self) -> bool:
        return self._negotiation is None and (self._sasl is None or self._sasl.allow_skip)


class ClientHandshake(Handshake):
    """Without `sasl` the client starts with plain AMQP."""

    def __init__(self, sasl: ClientSasl | None, hostname: str | None, reader: FrameReader, outbox: Outbox) -> None:
        super().__init__(reader, outbox)
        self._negotiation = None if sasl is None else ClientNegotiation(sasl, hostname)

    def start(self) -> None:
        """Say our first header."""
        if self._negotiation is None:
            self._say_amqp_header()
        else:
            self._outbox.say_first(SASL_HEADER)

    def hear_header(self, header: bytes) -> None:
        expected = AMQP_HEADER if self._negotiation is None or self._negotiation.done else SASL_HEADER
        if header != expected:
            raise ConnectionViolation("amqp:connection:framing-error", f"the server answered {header!r}")
        self.done = header == AMQP_HEADER

    def hear_sasl(self, body: bytes, events: list[Event]) -> None:
        negotiation = self._negotiation
        if negotiation is None or negotiation.done:
            raise ConnectionViolation("amqp:connection:framing-error", "a SASL frame out of place")
        answer = negotiation.answer(_read(body))
        if answer is not None:
            self._say_sasl(answer)
            return
        self.user = negotiation.user
        self._reader.expects_header = True
        self._say_amqp_header()
        events.append(Authenticated(negotiation.mechanism, negotiation.user))

    def _say_amqp_header(self) -> None:
        self._outbox.say_first(AMQP_HEADER)
        self._outbox.released = True


def _read(body: bytes) -> object:
    """The frame in this body; counted before it is decoded, since a byte can become a hundred in memory."""
    count_elements(body, 0, SASL_ELEMENTS)
    return decode_composite(body)
