"""A peer that keeps to the form of AMQP and to nothing else: it says what an attack needs, frame by frame."""

from __future__ import annotations

import contextlib
import select
import socket
from types import TracebackType
from typing import Any

from twinbus.amqp.composites import encode_composite
from twinbus.amqp.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame
from twinbus.amqp.performatives import (
    Attach,
    Begin,
    Flow,
    LinkRole,
    Open,
    Performative,
    Source,
    Target,
    encode_performative,
)
from twinbus.amqp.sasl import SaslInit
from twinbus.connection_string import ConnectionString

WAIT_S = 30.0
CREDIT = 1_000_000


class HungUp(Exception):
    """The server has ended the connection, as it should in an attack."""


class RawPeer:
    def __init__(self, connection_string: str, *, user: str | None = None, key: str | None = None) -> None:
        """Without a user it is anonymous."""
        said = ConnectionString.parse(connection_string)
        self._socket = socket.create_connection((said.host, said.port), timeout=WAIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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
        return found

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
        self.write(frame(channel, encode_performative(performative) + payload))

    def open(self, properties: dict[Any, Any] | None = None) -> None:
        self.say(Open("attacker", hostname="localhost", properties=properties))

    def begin(self, channel: int = 0, *, window: int = 2**31 - 1) -> None:
        """A session that takes so many frames."""
        begin = Begin(next_outgoing_id=0, incoming_window=window, outgoing_window=2**31 - 1)
        self.say(begin, channel)

    def attach_sender(self, handle: int, address: str, *, name: str = "", **fields: Any) -> None:
        link = Attach(
            name or f"to {handle}",
            handle,
            LinkRole.SENDER,
            source=Source("attacker"),
            target=Target(address),
            initial_delivery_count=0,
            **fields,
        )
        self.say(link)

    def attach_receiver(self, handle: int, address: str, *, name: str = "", window: int, credit: int = CREDIT) -> None:
        """With credit for so many messages at once."""
        link = Attach(
            name or f"from {handle}",
            handle,
            LinkRole.RECEIVER,
            source=Source(address),
            target=Target(name or f"from {handle}"),
        )
        self.say(link)
        flow = Flow(
            next_incoming_id=0,
            incoming_window=window,
            next_outgoing_id=0,
            outgoing_window=2**31 - 1,
            handle=handle,
            delivery_count=0,
            link_credit=credit,
        )
        self.say(flow)
