"""A peer that keeps to the form of AMQP and to nothing else: it says what an attack needs, frame by frame."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from types import TracebackType
from typing import Any

from twinbus.amqp.codec.composites import encode_composite
from twinbus.amqp.codec.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame
from twinbus.amqp.codec.performatives import (
    Attach,
    Begin,
    Flow,
    LinkRole,
    Open,
    Performative,
    Source,
    Target,
    Transfer,
)
from twinbus.amqp.sasl import SaslInit
from twinbus.connection_string import ConnectionString

WAIT_S = 30.0
CREDIT = 1_000_000
PIECE = 65_000


class HungUp(Exception):
    """The server has ended the connection, as it should in an attack."""


class Spent:
    """What an attack costs the attacker."""

    sent_bytes = 0
    connections = 0


class Line(socket.socket):
    """A connection whose bytes are counted."""

    def sendall(self, data: bytes, flags: int = 0) -> None:  # type: ignore[override]
        super().sendall(data, flags)
        Spent.sent_bytes += len(data)

    def send(self, data: bytes, flags: int = 0) -> int:  # type: ignore[override]
        sent = super().send(data, flags)
        Spent.sent_bytes += sent
        return sent


def dial(connection_string: str) -> Line:
    said = ConnectionString.parse(connection_string)
    line = Line(socket.AF_INET, socket.SOCK_STREAM)
    line.settimeout(WAIT_S)
    line.connect((said.host, said.port))
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    Spent.connections += 1
    return line


class RawPeer:
    def __init__(self, connection_string: str, *, user: str | None = None, key: str | None = None) -> None:
        """Without a user it is anonymous."""
        try:
            self._socket = dial(connection_string)
        except OSError as error:
            raise HungUp(str(error)) from error
        mechanism, response = ("ANONYMOUS", b"") if user is None else ("PLAIN", f"\0{user}\0{key}".encode())
        init = encode_composite(SaslInit(mechanism, response))
        self.write(SASL_HEADER + frame(0, init, SASL_FRAME) + AMQP_HEADER)

    # --- bytes ---

    def write(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise HungUp(str(error)) from error

    def read(self) -> bytes:
        """What has arrived, without waiting."""
        found = b""
        with contextlib.suppress(OSError):
            while select.select([self._socket], [], [], 0)[0]:
                data = self._socket.recv(1 << 20)
                if not data:
                    raise HungUp("the server hung up")
                found += data
                if len(found) > 1 << 22:
                    break
        return found

    def await_frames(self, kind: bytes, count: int) -> bytes:
        """Read until so many frames of a kind have come, such as 0x53 0x13 for flows."""
        heard, give_up_at = b"", time.monotonic() + WAIT_S
        while heard.count(kind) < count:
            if time.monotonic() > give_up_at:
                raise HungUp("no answer")
            select.select([self._socket], [], [], 1.0)
            heard += self.read()
        return heard

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> RawPeer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- frames ---

    def say(self, performative: Performative, channel: int = 0, payload: bytes = b"") -> None:
        self.write(frame(channel, encode_composite(performative) + payload))

    def send_in_frames(
        self, handle: int, number: int, message: bytes, *, message_format: int = 0, settled: bool = False
    ) -> None:
        """A whole message, however large."""
        number %= 2**31
        pieces = [message[at : at + PIECE] for at in range(0, len(message), PIECE)] or [b""]
        first = Transfer(handle, number, b"t", message_format, settled, more=len(pieces) > 1)
        self.say(first, payload=pieces[0])
        for left, piece in zip(range(len(pieces) - 2, -1, -1), pieces[1:], strict=True):
            self.say(Transfer(handle, more=left > 0), payload=piece)

    def open(self, properties: dict[Any, Any] | None = None) -> None:
        self.say(Open("attacker", hostname="localhost", properties=properties))

    def begin(self, channel: int = 0, *, window: int = 2**31 - 1) -> None:
        """A session that takes so many frames."""
        begin = Begin(next_outgoing_id=0, incoming_window=window, outgoing_window=2**31 - 1)
        self.say(begin, channel)

    def attach_sender(self, handle: int, address: str, *, name: str = "", channel: int = 0, **fields: Any) -> None:
        link = Attach(
            name or f"to {handle}",
            handle,
            LinkRole.SENDER,
            source=Source("attacker"),
            target=Target(address),
            initial_delivery_count=0,
            **fields,
        )
        self.say(link, channel)

    def attach_receiver(
        self,
        handle: int,
        address: str,
        *,
        name: str = "",
        window: int = 2**31 - 1,
        credit: int = CREDIT,
        filters: dict[Any, Any] | None = None,
        properties: dict[Any, Any] | None = None,
    ) -> None:
        """With credit for so many messages at once."""
        link = Attach(
            name or f"from {handle}",
            handle,
            LinkRole.RECEIVER,
            source=Source(address, filter=filters),
            target=Target(name or f"from {handle}"),
            properties=properties,
        )
        self.say(link)
        if credit:
            self.flow(handle, window=window, credit=credit)

    def flow(
        self, handle: int, *, window: int = 2**31 - 1, credit: int = CREDIT, drain: bool = False, echo: bool = False
    ) -> None:
        self.say(
            Flow(
                next_incoming_id=0,
                incoming_window=window,
                next_outgoing_id=0,
                outgoing_window=2**31 - 1,
                handle=handle,
                delivery_count=0,
                link_credit=credit,
                drain=drain,
                echo=echo,
            )
        )
