"""AMQP bytes to WebSocket messages and back, for one connection after its handshake.

AMQP over WebSocket is a stream: what the binary messages carry, one after the other, are the bytes of the AMQP
connection, wherever messages and frames end. So nothing is put together here. A piece of a frame is passed on as it
arrives, and neither the size of a frame nor that of a message, nor the number of its fragments, costs any memory.
Compression is never agreed on.
"""

from __future__ import annotations

from typing import NamedTuple

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage
from wsproto.frame_protocol import CloseReason

MESSAGE_BYTES = 32 * 1024
"""At most in one message that is sent: some clients take no larger ones unless they are told to."""


class Taken(NamedTuple):
    payload: bytes
    """For the AMQP connection."""
    answer: bytes
    """For the peer, at once: the answer to the latest ping or to a close."""
    has_more: bool
    """Whether more frames have arrived than were taken."""


class WebSocketFraming:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.has_ended = False
        """Whether the peer has closed, or sent what it must not: nothing more comes from it."""

    @staticmethod
    def of_server() -> WebSocketFraming:
        """Accepts masked frames only."""
        return WebSocketFraming(Connection(ConnectionType.SERVER))

    @property
    def is_open(self) -> bool:
        """Whether messages can be sent."""
        return self._connection.state is ConnectionState.OPEN

    def receive(self, data: bytes) -> None:
        """Bytes from the socket; `take` says what is in them."""
        if not self.has_ended:
            self._connection.receive_data(data)

    def take(self, frames_max: int) -> Taken:
        """What at most so many frames carry."""
        payload: list[bytes] = []
        answer, count = b"", 0
        for event in () if self.has_ended else self._connection.events():
            match event:
                case BytesMessage():
                    payload.append(bytes(event.data))
                case Ping():  # of several, only the latest has to be answered: the answers cannot pile up
                    answer = self._connection.send(event.response()) if self.is_open else b""
                case TextMessage():
                    return Taken(b"".join(payload), self._end(CloseReason.UNSUPPORTED_DATA), False)
                case CloseConnection():
                    return Taken(b"".join(payload), self._end(event.code), False)
                case _:
                    pass  # a pong asks for nothing
            count += 1
            if count >= frames_max:
                break
        return Taken(b"".join(payload), answer, count >= frames_max)

    def wrap(self, data: bytes) -> bytes:
        """The messages that carry these bytes; nothing once one of the ends has closed."""
        if not self.is_open:
            return b""
        send = self._connection.send
        if len(data) <= MESSAGE_BYTES:
            return send(BytesMessage(data=data))
        pieces = range(0, len(data), MESSAGE_BYTES)
        return b"".join([send(BytesMessage(data=data[at : at + MESSAGE_BYTES])) for at in pieces])

    def close(self, code: int = CloseReason.NORMAL_CLOSURE) -> bytes:
        """The frame that says the end; nothing if it was said."""
        if self._connection.state not in (ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING):
            return b""
        return self._connection.send(CloseConnection(code=code))

    def _end(self, code: int) -> bytes:
        self.has_ended = True
        return self.close(CloseReason.NORMAL_CLOSURE if code == CloseReason.NO_STATUS_RCVD else code)
