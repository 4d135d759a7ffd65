"""Headers and SASL, both roles."""

from __future__ import annotations

from typing import Any

import pytest
from frame_peer import FramePeer, only

from twinbus.amqp.codec.composites import encode_composite
from twinbus.amqp.codec.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame
from twinbus.amqp.codec.performatives import Open
from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import Authenticated, ConnectionClosed, Event, Opened
from twinbus.amqp.sasl import (
    ClientSasl,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    ServerSasl,
)
from twinbus.errors import AmqpError


def check(user: str, password: str) -> bool:
    return (user, password) == ("key", "secret")


SASL = ServerSasl(("ANONYMOUS", "PLAIN"), check)


def server(sasl: ServerSasl | None = SASL) -> FramePeer:
    return FramePeer(Connection(role=Role.SERVER, container_id="server", sasl=sasl))


def init(mechanism: str, response: bytes | None) -> bytes:
    return frame(0, encode_composite(SaslInit(mechanism, response, "host")), SASL_FRAME)


def test_a_server_offers_its_mechanisms_and_lets_anonymous_in() -> None:
    wire = server()
    wire.feed(SASL_HEADER)
    assert wire.heard_bodies() == [SASL_HEADER, SaslMechanisms(("ANONYMOUS", "PLAIN"))]
    assert wire.feed(init("ANONYMOUS", b"the key name of a JavaScript client")) == [
        Authenticated("ANONYMOUS", "anonymous")
    ]
    assert wire.heard_bodies() == [SaslOutcome(0)]
    wire.feed(AMQP_HEADER)
    assert wire.heard_bodies() == [AMQP_HEADER]


@pytest.mark.parametrize("response", [None, b""])
def test_the_mechanism_of_net_clients_is_anonymous_under_another_name(response: bytes | None) -> None:
    wire = server(ServerSasl(("ANONYMOUS", "MSSBCBS")))
    assert wire.feed(SASL_HEADER + init("MSSBCBS", response)) == [Authenticated("MSSBCBS", "anonymous")]
    assert wire.connection.authenticated_as == "anonymous"


def test_plain_is_decided_by_the_owner_of_the_server() -> None:
    wire = server()
    assert wire.feed(SASL_HEADER + init("PLAIN", b"\0key\0secret")) == [Authenticated("PLAIN", "key")]
    assert wire.connection.authenticated_as == "key"


def test_plain_without_an_initial_response_is_asked_for_it() -> None:
    wire = server()
    wire.feed(SASL_HEADER + init("PLAIN", None))
    assert wire.heard_bodies()[-1] == SaslChallenge(b"")
    assert wire.say_sasl(SaslResponse(b"\0key\0secret")) == [Authenticated("PLAIN", "key")]


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [("PLAIN", b"\0key\0wrong"), ("PLAIN", b"no zeros"), ("PLAIN", b"\0\xff\0x"), ("EXTERNAL", b""), ("", b"")],
)
def test_who_is_not_let_in_gets_an_outcome_and_the_connection_ends(mechanism: str, response: bytes) -> None:
    wire = server()
    closed = only(wire.feed(SASL_HEADER + init(mechanism, response)), ConnectionClosed)
    assert closed.error is not None
    assert closed.error.condition == "amqp:unauthorized-access"
    assert wire.heard_bodies()[-1] == SaslOutcome(1)
    assert wire.connection.closed


def test_everything_may_come_in_one_piece() -> None:
    wire = server()
    opening = frame(0, encode_composite(Open("peer")))
    events = wire.feed(SASL_HEADER + init("ANONYMOUS", b"") + AMQP_HEADER + opening)
    assert events == [Authenticated("ANONYMOUS", "anonymous"), Opened(Open("peer"))]
    assert [type(body) for body in wire.heard_bodies()] == [bytes, SaslMechanisms, SaslOutcome, bytes, Open]


def test_plain_amqp_without_sasl_is_answered_with_the_sasl_header_and_the_end() -> None:
    wire = server()
    only(wire.feed(AMQP_HEADER), ConnectionClosed)
    assert wire.connection.take_output() == SASL_HEADER
    assert wire.connection.closed


def test_sasl_may_be_skipped_where_that_is_allowed() -> None:
    wire = server(ServerSasl(allow_skip=True))
    assert wire.feed(AMQP_HEADER) == []
    assert wire.connection.take_output() == AMQP_HEADER
    assert wire.connection.authenticated_as == "anonymous"


def test_a_peer_that_began_sasl_cannot_skip_it() -> None:
    wire = server(ServerSasl(allow_skip=True))
    wire.feed(SASL_HEADER)
    only(wire.feed(AMQP_HEADER), ConnectionClosed)


@pytest.mark.parametrize("header", [b"AMQP\x02\x01\x00\x00", b"AMQP\x00\x00\x09\x01", b"HTTP/1.1"])
def test_other_protocols_end_the_connection_without_a_frame(header: bytes) -> None:
    wire = server()
    only(wire.feed(header), ConnectionClosed)
    assert wire.connection.closed
    assert wire.connection.take_output() in (SASL_HEADER, b"")


@pytest.mark.parametrize("body", [SaslOutcome(0), SaslResponse(b""), SaslMechanisms(("X",))])
def test_sasl_frames_out_of_place_end_the_connection(body: Any) -> None:
    wire = server()
    wire.feed(SASL_HEADER)
    only(wire.say_sasl(body), ConnectionClosed)


def meet(client: Connection, wire: FramePeer) -> tuple[list[Event], list[Event]]:
    at_client: list[Event] = []
    at_server: list[Event] = []
    while (out := client.take_output()) or (back := wire.connection.take_output()):
        if out:
            at_server += wire.feed(out)
        else:
            at_client += client.receive(back, 0)
    return at_client, at_server


def test_a_client_opens_with_plain() -> None:
    client = Connection(
        role=Role.CLIENT, container_id="client", hostname="ns", sasl=ClientSasl("PLAIN", "key", "secret")
    )
    client.open()
    at_client, at_server = meet(client, server())
    assert [type(event) for event in at_client] == [type(event) for event in at_server] == [Authenticated, Opened]
    assert client.authenticated_as == "key"
    assert only(at_server, Opened).open.hostname == "ns"


def test_a_client_says_only_its_header_until_it_is_let_in() -> None:
    client = Connection(role=Role.CLIENT, container_id="client", sasl=ClientSasl())
    client.open()
    client.begin().attach_sender("l", "q")
    assert client.take_output() == SASL_HEADER


@pytest.mark.parametrize("sasl", [ClientSasl("PLAIN", "key", "wrong"), ClientSasl("EXTERNAL")])
def test_a_client_that_is_not_let_in_learns_it(sasl: ClientSasl) -> None:
    client = Connection(role=Role.CLIENT, container_id="client", sasl=sasl)
    client.open()
    at_client, _ = meet(client, server())
    closed = only(at_client, ConnectionClosed)
    assert closed.error is not None
    assert closed.error.condition == "amqp:unauthorized-access"
    assert client.closed


def test_a_client_without_sasl_meets_a_server_without_it() -> None:
    client = Connection(role=Role.CLIENT, container_id="client")
    client.open()
    at_client, at_server = meet(client, server(None))
    assert [type(event) for event in at_client + at_server] == [Opened, Opened]


def test_roles_are_not_mixed_up() -> None:
    with pytest.raises(AmqpError):
        Connection(role=Role.SERVER, container_id="x", sasl=ClientSasl())
    with pytest.raises(AmqpError):
        Connection(role=Role.CLIENT, container_id="x", sasl=ServerSasl())
    with pytest.raises(AmqpError):
        Connection(role=Role.SERVER, container_id="x").open()
    with pytest.raises(AmqpError):
        Connection(role=Role.CLIENT, container_id="x").begin()


def test_a_frame_of_too_many_values_is_not_decoded() -> None:
    wire = server()
    values = 60_000
    many = b"\x00\x53\x41\xd0" + (values + 4).to_bytes(4, "big") + values.to_bytes(4, "big") + b"\x45" * values
    closed = only(wire.feed(SASL_HEADER + frame(0, many, SASL_FRAME)), ConnectionClosed)
    assert closed.error is not None
    assert "elements" in (closed.error.description or "")


def test_a_mechanism_that_nobody_knows_is_not_repeated_at_length() -> None:
    closed = only(server().feed(SASL_HEADER + init("X" * 50_000, b"")), ConnectionClosed)
    assert closed.error is not None
    assert len(closed.error.description or "") < 200
