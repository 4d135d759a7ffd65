"""The far end of a connection under test, driven frame by frame."""

from __future__ import annotations

import struct
from typing import Any, TypeVar

from twinbus.amqp.codec.composites import decode_composite, encode_composite
from twinbus.amqp.codec.frame_codec import read_transfer
from twinbus.amqp.codec.frames import AMQP_HEADER, SASL_FRAME, frame
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
from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import AttachRequested, Event, SessionBegun
from twinbus.amqp.limits import ConnectionLimits
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.amqp.sending_link import SendingLink
from twinbus.amqp.session import Session

E = TypeVar("E")
Said = tuple[int, Any]


def only(events: list[Event], kind: type[E]) -> E:
    """The single event of this kind."""
    found = [event for event in events if isinstance(event, kind)]
    assert len(found) == 1, events
    return found[0]


class FramePeer:
    """Says frames to a connection and hears what it says."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.now_ms = 0

    def feed(self, data: bytes) -> list[Event]:
        return self.connection.receive(data, self.now_ms)

    def say(self, performative: Performative, channel: int = 0, payload: bytes = b"") -> list[Event]:
        return self.feed(frame(channel, encode_composite(performative) + payload))

    def say_sasl(self, body: Any) -> list[Event]:
        return self.feed(frame(0, encode_composite(body), SASL_FRAME))

    def heard(self) -> list[Said]:
        """All frames since the last time, as (channel, performative); headers and transfers as (channel, bytes)."""
        data = self.connection.take_output()
        said: list[Said] = []
        while data:
            if data.startswith(b"AMQP"):
                said.append((0, data[:8]))
                data = data[8:]
                continue
            size, _, _, channel = struct.unpack_from(">IBBH", data)
            body, data = data[8:size], data[size:]
            said.append((channel, body if body[2:3] == b"\x14" or not body else decode_composite(body)))
        return said

    def heard_bodies(self) -> list[Any]:
        return [body for _, body in self.heard()]


def opened(limits: ConnectionLimits | None = None, peer: Open | None = None, **options: Any) -> FramePeer:
    """A server without SASL whose peer has opened."""
    connection = Connection(role=Role.SERVER, container_id="server", limits=limits or ConnectionLimits(), **options)
    wire = FramePeer(connection)
    wire.feed(AMQP_HEADER)
    wire.say(peer or Open("peer"))
    wire.heard()
    return wire


def begin(wire: FramePeer, channel: int = 0, incoming_window: int = 1000) -> Session:
    """A session begun by the peer."""
    said = Begin(next_outgoing_id=0, incoming_window=incoming_window, outgoing_window=1000)
    session = only(wire.say(said, channel), SessionBegun).session
    wire.heard()
    return session


def attach_receiving(wire: FramePeer, channel: int = 0, handle: int = 0, name: str = "in") -> ReceivingLink:
    """A link on which the peer sends, accepted."""
    said = Attach(name, handle, LinkRole.SENDER, source=Source("me"), target=Target("q"), initial_delivery_count=0)
    link = only(wire.say(said, channel), AttachRequested).link
    assert isinstance(link, ReceivingLink)
    link.accept()
    wire.heard()
    return link


def attach_sending(
    wire: FramePeer, channel: int = 0, handle: int = 0, name: str = "out", credit: int = 0
) -> SendingLink:
    """A link on which the peer receives, accepted."""
    said = Attach(name, handle, LinkRole.RECEIVER, source=Source("q"), target=Target("me"))
    link = only(wire.say(said, channel), AttachRequested).link
    assert isinstance(link, SendingLink)
    link.accept()
    if credit:
        wire.say(link_flow(handle, credit), channel)
    wire.heard()
    return link


def link_flow(handle: int, credit: int, count: int = 0, window: int = 1000, seen: int = 0, **more: Any) -> Flow:
    """A flow of a receiving peer that has seen `seen` transfer frames."""
    return Flow(
        next_incoming_id=seen, incoming_window=window, next_outgoing_id=0, outgoing_window=1000,
        handle=handle, delivery_count=count, link_credit=credit, **more,
    )  # fmt: skip


def message(number: int, handle: int = 0, **more: Any) -> Transfer:
    return Transfer(handle, number, b"%d" % number, 0, **more)


def payload_of(body: bytes) -> bytes:
    """The payload of a transfer frame's body."""
    return body[read_transfer(body, 3, len(body))[7] :]
