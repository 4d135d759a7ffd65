"""The .NET client cannot be run here: what it would say, from its first byte to a completed message, is replayed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote_plus

import dotnet_wire as dotnet
import pytest

from twinbus.amqp.codec.composites import decode_composite
from twinbus.amqp.codec.frame_codec import read_transfer
from twinbus.amqp.codec.outcomes import Accepted
from twinbus.amqp.codec.performatives import Attach, Begin, Disposition, Flow, Open
from twinbus.amqp.message import sections
from twinbus.amqp.sasl import SaslMechanisms, SaslOutcome
from twinbus.testing import LocalNamespace

KEY = "a+key/with=signs"
SENDING, RECEIVING = 1, 2
"""Channels."""


class Delivery(NamedTuple):
    number: int | None
    payload: bytes


class DotnetPeer:
    """Says the bytes of the .NET client, and reads what it would wait for, frame by frame."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._unread = b""

    def close(self) -> None:
        self._socket.close()

    def say(self, data: bytes) -> None:
        self._socket.sendall(data)

    def read_header(self) -> bytes:
        return self._take(8)

    def read(self) -> Any:
        """The next frame that is not empty and no flow of a session."""
        while True:
            (size,) = struct.unpack(">I", self._take(4))
            rest = self._take(size - 4)
            if size == 8:
                continue
            body = rest[4:]
            if body[2] == 0x14:
                transfer = read_transfer(body, 3, len(body))
                return Delivery(transfer[1], body[transfer[7] :])
            performative = decode_composite(body)
            if not (isinstance(performative, Flow) and performative.handle is None):
                return performative

    def expect(self, kind: type[Any]) -> Any:
        found = self.read()
        assert isinstance(found, kind), found
        return found

    def _take(self, size: int) -> bytes:
        while len(self._unread) < size:
            data = self._socket.recv(65_536)
            assert data, "the server has hung up"
            self._unread += data
        taken, self._unread = self._unread[:size], self._unread[size:]
        return taken


@pytest.fixture
def served() -> Iterator[LocalNamespace]:
    with LocalNamespace("contoso", queues=["orders"], key=KEY) as namespace:
        yield namespace


@pytest.fixture
def peer(served: LocalNamespace) -> Iterator[DotnetPeer]:
    peer = DotnetPeer(served.port)
    yield peer
    peer.close()


def token_of(key: str, until_s: int) -> str:
    """For the whole namespace: scheme and host in lower case, no port."""
    resource = quote_plus("amqps://127.0.0.1/")
    digest = hmac.new(key.encode(), f"{resource}\n{until_s}".encode(), hashlib.sha256).digest()
    signature = quote_plus(base64.b64encode(digest).decode())
    return f"SharedAccessSignature sr={resource}&sig={signature}&se={until_s}&skn=RootManageSharedAccessKey"


def log_in(peer: DotnetPeer) -> None:
    """Headers, SASL and open: each answer is waited for, but the open goes out behind its header."""
    peer.say(dotnet.SASL_HEADER)
    assert peer.read_header() == dotnet.SASL_HEADER
    assert "MSSBCBS" in peer.expect(SaslMechanisms).sasl_server_mechanisms, "else it gives up: it knows no other"
    peer.say(dotnet.sasl_init())
    assert peer.expect(SaslOutcome).code == 0
    peer.say(dotnet.AMQP_HEADER + dotnet.open_frame("127.0.0.1"))
    assert peer.read_header() == dotnet.AMQP_HEADER
    assert peer.expect(Open).channel_max >= 100, "it has a session for each link"


def open_cbs(peer: DotnetPeer) -> dotnet.CbsLinks:
    links = dotnet.CbsLinks()
    peer.say(dotnet.begin_frame(links.CHANNEL, dotnet.WINDOW))
    peer.expect(Begin)
    peer.say(links.open())
    attached = {peer.expect(Attach).name.rpartition(":")[2]}
    assert peer.expect(Flow).link_credit > 0
    attached.add(peer.expect(Attach).name.rpartition(":")[2])
    assert attached == {"sender", "receiver"}
    return links


def put_token(peer: DotnetPeer, links: dotnet.CbsLinks, key: str = KEY) -> tuple[Any, Any]:
    """What it takes out of the answer: the status and its description, neither of which may be missing."""
    until_s = int(time.time()) + 1_800
    peer.say(links.put_token(token_of(key, until_s), "amqp://127.0.0.1/orders", until_s * 1000))
    answer = peer.expect(Delivery).payload
    layout = sections.walk(answer)
    properties = sections.read_application_properties(answer, layout)
    return properties["status-code"], properties["status-description"]


def begin(peer: DotnetPeer, channel: int) -> None:
    peer.say(dotnet.begin_frame(channel, dotnet.WINDOW_MAX))
    peer.expect(Begin)


def test_the_net_client_logs_in_sends_receives_and_completes(served: LocalNamespace, peer: DotnetPeer) -> None:
    log_in(peer)
    links = open_cbs(peer)
    assert put_token(peer, links) == (202, "Accepted")

    begin(peer, SENDING)
    peer.say(dotnet.sender_attach(SENDING, "orders"))
    assert peer.expect(Attach).max_message_size == 262_144, "it reads that without asking whether it is there"
    assert peer.expect(Flow).link_credit > 0
    peer.say(dotnet.transfer_frame(SENDING, 0, 0, dotnet.binary(b"t" * 16), dotnet.message(b"42", "m"), settled=False))
    stored = peer.expect(Disposition)
    assert (stored.state, stored.settled) == (Accepted(), True)

    assert put_token(peer, links) == (202, "Accepted"), "a second request has the same, empty delivery tag"
    begin(peer, RECEIVING)
    peer.say(dotnet.receiver_attach(RECEIVING, "orders"))
    attach = peer.expect(Attach)
    assert attach.source.address == "/orders"
    peer.say(dotnet.flow_frame(RECEIVING, 0, 1, dotnet.WINDOW_MAX))
    number, delivered = peer.expect(Delivery)
    assert list(sections.data_sections(delivered, sections.walk(delivered))) == [b"42"]
    peer.say(dotnet.accept_frame(RECEIVING, number))
    settled = peer.expect(Disposition)
    assert (settled.state, settled.settled) == (Accepted(), True)


def test_a_net_client_with_a_wrong_key_hears_that_from_cbs(served: LocalNamespace, peer: DotnetPeer) -> None:
    log_in(peer)
    status, description = put_token(peer, open_cbs(peer), key="another")
    assert status == 401
    assert "key is wrong" in description


def test_the_mechanism_alone_gives_no_rights(served: LocalNamespace, peer: DotnetPeer) -> None:
    log_in(peer)
    begin(peer, SENDING)
    peer.say(dotnet.sender_attach(SENDING, "orders"))
    peer.expect(Attach)
    refused = peer.read()
    assert refused.error.condition == "amqp:unauthorized-access"
