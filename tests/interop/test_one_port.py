"""One port for everything: the official clients over TLS and without, HTTP, and peers that mean no good."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import ResourceNotFoundError, ServiceRequestError
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.exceptions import ServiceBusConnectionError
from azure.servicebus.management import ServiceBusAdministrationClient
from token_makers import python_token

from twinbus.amqp.codec.composites import encode_composite
from twinbus.amqp.codec.frame_codec import TransferWriter
from twinbus.amqp.codec.frames import AMQP_HEADER, EMPTY_FRAME, SASL_FRAME, SASL_HEADER, frame
from twinbus.amqp.codec.types import Int, Long
from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import (
    Attached,
    ConnectionClosed,
    DispositionArrived,
    Event,
    Opened,
    SessionEnded,
    TransferArrived,
)
from twinbus.amqp.limits import ConnectionLimits
from twinbus.amqp.message.sections import PropertyField, encode_message
from twinbus.amqp.sasl import PLAIN, ClientSasl, SaslInit
from twinbus.amqp.sending_link import SendingLink
from twinbus.broker.limits import ServerLimits
from twinbus.broker.net.amqp_connection import PILE_BYTES
from twinbus.broker.net.certificates import load_or_make_identity, server_names
from twinbus.broker.server import NamespaceServer
from twinbus.cli.main import run
from twinbus.connection_string import ROOT_KEY_NAME, ConnectionString
from twinbus.options import NamespaceOptions

WAIT_S = 40
SOON_S = 0.3
"""A bound that tests can wait for."""


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[NamespaceServer]:
    async with NamespaceServer(
        NamespaceOptions(**{"name": "contoso", "port": 0, "queues": ("orders",), **options})
    ) as server:
        yield server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NamespaceServer]:
    async with serving(data=tmp_path) as running:
        yield running


class Peer:
    """A client made of our own engine."""

    def __init__(
        self,
        server: NamespaceServer,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        idle_timeout_ms: int = 240_000,
        incoming_window: int = 5_000,
    ) -> None:
        self.reader = reader
        self.writer = writer
        self._events: list[Event] = []
        sasl = ClientSasl(PLAIN, ROOT_KEY_NAME, server.key)
        self.connection = Connection(
            role=Role.CLIENT,
            container_id="peer",
            sasl=sasl,
            idle_timeout_ms=idle_timeout_ms,
            limits=ConnectionLimits(incoming_window=incoming_window, message_bytes_max=2_000_000),
        )
        self.connection.open()
        self.session = self.connection.begin()

    async def until(self, kind: type[Event]) -> Event:
        """Talk until there is an event of this kind; it and what came before it is forgotten."""
        async with asyncio.timeout(WAIT_S):
            while True:
                while self._events:
                    event = self._events.pop(0)
                    if isinstance(event, kind):
                        return event
                self.writer.write(self.connection.take_output())
                data = await self.reader.read(65536)
                if not data:
                    raise ConnectionAbortedError("the server hung up")
                self._events += self.connection.receive(data, 0)


@asynccontextmanager
async def peer_of(
    server: NamespaceServer,
    *,
    ssl: ssl.SSLContext | None = None,
    idle_timeout_ms: int = 240_000,
    incoming_window: int = 5_000,
) -> AsyncIterator[Peer]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=ssl)
    try:
        yield Peer(server, reader, writer, idle_timeout_ms, incoming_window)
    finally:
        writer.transport.abort()


def trusting(server: NamespaceServer) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=server.ca_file)


async def wait_until(is_so: Callable[[], bool], *, pause_s: float = 0.01) -> None:
    async with asyncio.timeout(WAIT_S):
        while not is_so():
            await asyncio.sleep(pause_s)


@asynccontextmanager
async def sender_to(server: NamespaceServer) -> AsyncIterator[tuple[Peer, SendingLink]]:
    async with peer_of(server) as peer:
        link = peer.session.attach_sender("sender", "orders")
        await peer.until(Attached)
        yield peer, link


def stored_bytes(server: NamespaceServer) -> int:
    return sum(queue.stored_bytes for queue in server.gate.machine.registry.queues())


# --- official clients ---


async def test_the_admin_client_reaches_the_same_port_over_https(server: NamespaceServer) -> None:
    def ask() -> None:
        ca = str(ConnectionString.parse(server.connection_string).ca_file)
        with (
            ServiceBusAdministrationClient.from_connection_string(
                server.connection_string, connection_verify=ca, retry_total=0
            ) as admin,
            pytest.raises(ResourceNotFoundError),
        ):
            admin.get_queue("missing")

    await asyncio.to_thread(ask)


async def test_an_admin_client_that_does_not_trust_us_says_so(server: NamespaceServer) -> None:
    def ask() -> None:
        with (
            ServiceBusAdministrationClient.from_connection_string(server.connection_string, retry_total=0) as admin,
            pytest.raises(ServiceRequestError, match="CERTIFICATE_VERIFY_FAILED"),
        ):
            admin.get_queue("missing")

    await asyncio.to_thread(ask)


async def test_a_message_goes_there_and_back_over_tls(server: NamespaceServer) -> None:
    text = (
        f"Endpoint=sb://myns.servicebus.windows.net/;SharedAccessKeyName={ROOT_KEY_NAME};SharedAccessKey={server.key}"
    )

    def send_and_receive() -> list[str]:
        with (
            ServiceBusClient.from_connection_string(
                text,
                custom_endpoint_address=f"sb://127.0.0.1:{server.port}",
                transport_type=TransportType.Amqp,
                connection_verify=str(server.ca_file),
                retry_total=0,
            ) as client,
            client.get_queue_sender("orders") as sender,
            client.get_queue_receiver("orders") as receiver,
        ):
            sender.send_messages(ServiceBusMessage("x" * 200_000))
            messages = receiver.receive_messages(max_wait_time=WAIT_S)
            for message in messages:
                receiver.complete_message(message)
            return [str(message) for message in messages]

    assert await asyncio.to_thread(send_and_receive) == ["x" * 200_000]


async def test_the_printed_string_still_means_plain_amqp(server: NamespaceServer) -> None:
    def send() -> None:
        with (
            ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client,
            client.get_queue_sender("orders") as sender,
        ):
            sender.send_messages(ServiceBusMessage("42"))

    await asyncio.to_thread(send)


# --- http ---


@pytest.mark.parametrize("is_tls", [False, True])
async def test_http_is_answered_with_and_without_tls(server: NamespaceServer, is_tls: bool) -> None:
    def ask() -> None:
        client = (
            HTTPSConnection("localhost", server.port, timeout=WAIT_S, context=trusting(server))
            if is_tls
            else HTTPConnection("127.0.0.1", server.port, timeout=WAIT_S)
        )
        for body in (None, "<x/>" * 1000):  # both over one connection
            client.request("GET" if body is None else "PUT", "/no/such/thing", body)
            answer = client.getresponse()
            assert 400 <= answer.status < 500
            assert b"<Error><Code>" in answer.read()
        client.close()

    await asyncio.to_thread(ask)


# --- those who speak no language we know ---


@pytest.mark.parametrize("is_tls", [False, True])
@pytest.mark.parametrize(
    "garbage", [b"\x00" * 64, b"\xff\xfe", b"AMQP\x00\x02\x00\x00", b"AMQP\x09\x01\x00\x00", b"GET\x00"]
)
async def test_garbage_is_hung_up_on_at_once(server: NamespaceServer, garbage: bytes, is_tls: bool) -> None:
    async with peer_of(server, ssl=trusting(server) if is_tls else None) as peer:
        peer.writer.write(garbage)
        await hung_up(peer.reader)
    async with peer_of(server) as other:
        await other.until(Opened)


async def test_tls_in_tls_is_hung_up_on(server: NamespaceServer) -> None:
    async with peer_of(server, ssl=trusting(server)) as peer:
        peer.writer.write(b"\x16\x03\x01")
        await hung_up(peer.reader)


async def test_what_only_begins_like_tls_is_hung_up_on(server: NamespaceServer) -> None:
    async with peer_of(server) as peer:
        peer.writer.write(b"\x16" + b"nonsense" * 100)
        await hung_up(peer.reader)
    await wait_until(lambda: not server._endpoint.listener.connections)


async def hung_up(reader: asyncio.StreamReader) -> bytes:
    """What comes until the server hangs up."""
    heard = b""
    async with asyncio.timeout(WAIT_S):
        try:
            while data := await reader.read(65536):
                heard += data
        except (ConnectionResetError, ssl.SSLError):
            pass
    return heard


# --- those who take their time ---

ANONYMOUS = frame(0, encode_composite(SaslInit("ANONYMOUS")), SASL_FRAME)
HEAD = b"PUT /queue HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"


@pytest.mark.parametrize("is_tls", [False, True])
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"AMQ", id="half an AMQP header"),
        pytest.param(SASL_HEADER, id="only a SASL header"),
        pytest.param(SASL_HEADER + ANONYMOUS[:12], id="half a SASL frame"),
        pytest.param(SASL_HEADER + ANONYMOUS, id="SASL and then no open"),
        pytest.param(SASL_HEADER + ANONYMOUS + AMQP_HEADER + b"\x00\x00\x01\x00", id="half an open"),
        pytest.param(HEAD, id="half a request's head"),
        pytest.param(HEAD + b"\r\n<entry>", id="half a request's body"),
    ],
)
async def test_who_never_gets_to_the_point_is_let_go_and_nobody_else_notices(words: bytes, is_tls: bool) -> None:
    limits = ServerLimits(unauthenticated_s=SOON_S)
    async with serving(server_limits=limits) as server, AsyncExitStack() as stack:
        neighbour = await moved_into(stack, server)
        began = asyncio.get_running_loop().time()
        async with peer_of(server, ssl=trusting(server) if is_tls else None) as slow:
            slow.writer.write(words)
            await hung_up(slow.reader)
            elapsed_s = asyncio.get_running_loop().time() - began
            assert SOON_S / 2 < elapsed_s < ServerLimits().unauthenticated_s - 5, "the limit that was set"
        neighbour.session.attach_sender("still", "orders")
        await neighbour.until(Attached)
        await wait_until(lambda: len(server._endpoint.listener.connections) == 1)


async def moved_into(stack: AsyncExitStack, server: NamespaceServer) -> Peer:
    """A peer that the server knows. On a machine that stalls, one may be too slow for bounds as short as here."""
    for _ in range(10):
        peer = await stack.enter_async_context(peer_of(server))
        with suppress(ConnectionError):
            await peer.until(Opened)
            return peer
    raise AssertionError("nobody is let in")


@pytest.mark.parametrize("hello", [b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"])
async def test_half_a_tls_hello_is_let_go(hello: bytes) -> None:
    async with serving(server_limits=ServerLimits(tls_handshake_s=SOON_S)) as server, peer_of(server) as slow:
        slow.writer.write(hello)
        await hung_up(slow.reader)
        await wait_until(lambda: not server._endpoint.listener.connections)


async def test_a_byte_now_and_then_does_not_help() -> None:
    async with serving(server_limits=ServerLimits(unauthenticated_s=SOON_S)) as server, peer_of(server) as slow:
        drip = asyncio.create_task(drip_into(slow.writer))
        await hung_up(slow.reader)
        drip.cancel()


async def drip_into(writer: asyncio.StreamWriter) -> None:
    for byte in HEAD * 100:
        writer.write(bytes((byte,)))
        await asyncio.sleep(0.01)


async def test_the_second_request_of_a_connection_has_a_bound_too() -> None:
    limits = ServerLimits(unauthenticated_s=SOON_S, http_idle_s=SOON_S)
    async with serving(server_limits=limits) as server:
        for rest in (b"GET / HT", HEAD + b"\r\n<entry>"):
            async with peer_of(server) as peer:
                peer.writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + rest)
                heard = await hung_up(peer.reader)
                assert heard.startswith(b"HTTP/1.1 4")


# --- those for whom there is no room ---


async def test_over_the_limit_each_connection_is_refused_in_its_protocol() -> None:
    async with serving(server_limits=ServerLimits(connections=1)) as server, peer_of(server) as first:
        await first.until(Opened)
        async with peer_of(server, ssl=trusting(server)) as second:
            closed = await second.until(ConnectionClosed)
            assert isinstance(closed, ConnectionClosed)
            assert closed.error is not None
            assert closed.error.condition == "amqp:resource-limit-exceeded"
        async with peer_of(server) as third:
            third.writer.write(HEAD + b"\r\n" + b"x" * 100)
            heard = await hung_up(third.reader)
            assert heard.startswith(b"HTTP/1.1 503 ")
            assert b"<Error><Code>503</Code>" in heard
        first.session.attach_sender("still", "orders")
        await first.until(Attached)
    await wait_until(lambda: not server._endpoint.listener.connections)


async def test_who_is_turned_away_leaves_nothing_behind() -> None:
    async with serving(server_limits=ServerLimits(connections=1)) as server, peer_of(server) as first:
        await first.until(Opened)
        async with peer_of(server) as second:
            link = second.session.attach_sender("eager", "orders")
            message = encode_message(data=b"42")
            start = TransferWriter(second.session.channel, link.handle).first(0, b"tag", 0, False, False, len(message))
            second.connection.outbox.chunks.append(start + message)  # in one piece with the open
            await second.until(ConnectionClosed)
        await wait_until(lambda: len(server.amqp.connections) == 1)
        assert stored_bytes(server) == 0


async def test_over_the_limit_the_official_client_says_why() -> None:
    def send(connection_string: str) -> None:
        with (
            ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client,
            pytest.raises(ServiceBusConnectionError, match="all the 1 connections"),
            client.get_queue_sender("orders") as sender,
        ):
            sender.send_messages(ServiceBusMessage("42"))

    async with serving(server_limits=ServerLimits(connections=1)) as server, peer_of(server) as first:
        await first.until(Opened)
        await asyncio.to_thread(send, server.connection_string)


# --- those who do not listen ---


@asynccontextmanager
async def deaf_peer_of(server: NamespaceServer) -> AsyncIterator[Peer]:
    """Its machine keeps next to nothing for it, so that what it does not read stays with the server."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", server.port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=1024)
    try:
        yield Peer(server, reader, writer)
    finally:
        writer.transport.abort()


async def test_a_receiver_that_never_reads_is_cut_off() -> None:
    async with serving(server_limits=ServerLimits(unread_s=SOON_S)) as server, peer_of(server) as sender:
        link = sender.session.attach_sender("filler", "orders")
        await sender.until(Attached)
        for _ in range(40):
            link.send(encode_message(data=b"x" * 250_000))
        await sender.until(DispositionArrived)
        others = set(server.amqp.connections)
        async with deaf_peer_of(server) as deaf:
            receiver = deaf.session.attach_receiver("deaf", "orders")
            await deaf.until(Attached)
            receiver.grant(1_000)
            deaf.writer.write(deaf.connection.take_output())
            (piled,) = server.amqp.connections - others  # it may be gone before we see it there
            await wait_until(lambda: not piled._is_writable)
            await wait_until(lambda: len(server.amqp.connections) == 1)
        link.send(encode_message(data=b"still"))
        await sender.until(DispositionArrived)


@pytest.mark.parametrize("goes", ["closes", "breaks off"])
async def test_what_a_peer_said_before_it_went_is_heard(goes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many steps that takes: it may have settled messages, and would get them again."""
    monkeypatch.setattr("twinbus.broker.net.fairness.STEP_S", 0.000_05)  # a few messages at most
    async with serving() as server, sender_to(server) as (sender, link):
        for _ in range(200):
            link.send(encode_message(data=b"x" * 100), settled=True)
        if goes == "closes":
            sender.connection.close()
        sender.writer.write(sender.connection.take_output())
        await sender.writer.drain()
        sender.writer.close()
        queue = server.gate.machine.registry.find_queue("orders")
        await wait_until(lambda: queue.active == 200)
        await wait_until(lambda: not server.amqp.connections)


async def test_who_takes_few_frames_is_sent_no_more_than_a_few_messages_ahead() -> None:
    async with serving() as server, sender_to(server) as (sender, link), peer_of(server, incoming_window=2) as narrow:
        receiver = narrow.session.attach_receiver("narrow", "orders")
        await narrow.until(Attached)
        receiver.grant(10_000)
        narrow.writer.write(narrow.connection.take_output())
        for _ in range(20):
            for _ in range(20):
                link.send(encode_message(data=b"x" * 100))
            await sender.until(DispositionArrived)
        waiting = [len(session.waiting) for wire in server.amqp.connections for session in wire.connection.sessions]
        ahead = PILE_BYTES // ServerLimits().frame_bytes
        assert 0 < max(waiting) <= ahead + 160, "of 400; what is committed together is sent together"


async def test_who_piles_up_answers_is_cut_off() -> None:
    async with serving(server_limits=ServerLimits(unread_s=0.5)) as server, deaf_peer_of(server) as deaf:
        await ask_for_much(server, deaf, 40)
        await wait_until(lambda: not server.amqp.connections)


async def test_who_shuts_its_window_and_asks_for_much_is_cut_off() -> None:
    async with (
        serving(server_limits=ServerLimits(unread_s=0.5)) as server,
        peer_of(server, incoming_window=2) as narrow,
    ):
        await ask_for_much(server, narrow, 40)
        await wait_until(lambda: not server.amqp.connections)


async def test_who_piles_up_answers_is_not_listened_to_until_he_takes_them() -> None:
    async with serving() as server, deaf_peer_of(server) as deaf:
        await ask_for_much(server, deaf, 10)
        await wait_until(lambda: len(server.amqp.paused) == 1)
        for _ in range(10):
            await deaf.until(TransferArrived)
        await wait_until(lambda: not server.amqp.paused)


async def ask_for_much(server: NamespaceServer, peer: Peer, times: int) -> None:
    """Ask for a look at a megabyte of messages, so many times, and do not wait for an answer."""
    filler = peer.session.attach_sender("filler", "orders")
    requests = peer.session.attach_sender("requests", "orders/$management")
    answers = peer.session.attach_receiver("answers", "orders/$management")
    for _ in range(3):
        await peer.until(Attached)
    answers.grant(1_000)
    for _ in range(4):
        filler.send(encode_message(data=b"x" * 250_000))
        await peer.until(DispositionArrived)
    body = {"from-sequence-number": Long(1), "message-count": Int(4)}
    for number in range(times):
        question = encode_message(
            properties={PropertyField.MESSAGE_ID: str(number)},
            application_properties={"operation": "com.microsoft:peek-message"},
            value=body,
        )
        requests.send(question, settled=True)
    peer.writer.write(peer.connection.take_output())


async def test_half_messages_take_only_so_much_memory() -> None:
    async with serving(server_limits=ServerLimits(held_bytes=100_000)) as server, peer_of(server) as peer:
        links = [peer.session.attach_sender(f"link-{number}", "orders") for number in range(3)]
        await peer.until(Attached)
        for number, link in enumerate(links):
            half = TransferWriter(peer.session.channel, link.handle).first(number, b"tag", 0, False, True, 40_000)
            peer.writer.write(half + b"x" * 40_000)
        closed = await peer.until(ConnectionClosed)
        assert isinstance(closed, ConnectionClosed)
        assert closed.error is not None
        assert closed.error.condition == "amqp:resource-limit-exceeded"


async def test_frames_sessions_and_links_are_limited_as_configured() -> None:
    limits = ServerLimits(frame_bytes=1024, sessions=2, links=1)
    async with serving(server_limits=limits) as server, peer_of(server) as peer:
        opened = await peer.until(Opened)
        assert isinstance(opened, Opened)
        assert (opened.open.max_frame_size, opened.open.channel_max) == (1024, 1)
        for number in range(2):
            peer.session.attach_sender(f"link-{number}", "orders")
        ended = await peer.until(SessionEnded)
        assert isinstance(ended, SessionEnded)
        assert ended.error is not None
        assert ended.error.condition == "amqp:resource-limit-exceeded"


# --- faults of the network, on request ---


async def test_in_silence_nobody_is_answered_and_afterwards_everybody_is(server: NamespaceServer) -> None:
    async with peer_of(server) as old, peer_of(server) as new, peer_of(server) as http:
        await old.until(Opened)
        server._endpoint.go_silent()
        link = old.session.attach_sender("sender", "orders")
        old.writer.write(old.connection.take_output())
        new.writer.write(new.connection.take_output())
        http.writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for peer in (old, new, http):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(peer.reader.read(1), 0.1)
        server._endpoint.speak_again()
        await old.until(Attached)
        assert link.attached
        await new.until(Opened)
        assert (await http.reader.readline()).startswith(b"HTTP/1.1 4")


async def test_what_is_sent_into_silence_is_not_even_read(server: NamespaceServer) -> None:
    async with sender_to(server) as (peer, link):
        server._endpoint.go_silent()
        link.send(encode_message(data=b"anybody?"))
        peer.writer.write(peer.connection.take_output())
        await asyncio.sleep(0.1)
        assert stored_bytes(server) == 0
        server._endpoint.speak_again()
        await peer.until(DispositionArrived)
        assert stored_bytes(server) > 0


async def test_what_was_taken_in_before_silence_is_answered_after_it(server: NamespaceServer) -> None:
    async with sender_to(server) as (peer, link):
        link.send(encode_message(data=b"42"))
        peer.writer.write(peer.connection.take_output())
        [wire] = server.amqp.connections
        await wait_until(lambda: wire.links.unwritten_bytes > 0, pause_s=0)
        server._endpoint.go_silent()
        await wait_until(lambda: stored_bytes(server) > 0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(peer.reader.read(1), 0.1)
        server._endpoint.speak_again()
        await peer.until(DispositionArrived)


async def test_not_even_keep_alives_are_sent_in_silence(server: NamespaceServer) -> None:
    async with peer_of(server, idle_timeout_ms=100) as peer:
        await peer.until(Opened)
        assert await asyncio.wait_for(peer.reader.read(8), WAIT_S) == EMPTY_FRAME
        server._endpoint.go_silent()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(peer.reader.read(1), 0.2)
        server._endpoint.speak_again()
        assert await asyncio.wait_for(peer.reader.read(8), WAIT_S) == EMPTY_FRAME


async def test_a_request_under_way_when_silence_falls_is_answered_after_it(server: NamespaceServer) -> None:
    token = python_token("http://localhost/queue", ROOT_KEY_NAME, server.key, 2**32)
    async with peer_of(server) as http:
        http.writer.write(HEAD + f"Authorization: {token}\r\n\r\n<entry>".encode())
        await wait_until(lambda: bool(server._endpoint._http and server._endpoint._http._connections))
        server._endpoint.go_silent()
        http.writer.write(b" " * 93)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(http.reader.read(1), 0.1)
        server._endpoint.speak_again()
        assert (await http.reader.readline()).startswith(b"HTTP/1.1 4")


async def test_dropped_connections_are_seen_as_broken(server: NamespaceServer) -> None:
    async with peer_of(server) as plain, peer_of(server, ssl=trusting(server)) as encrypted:
        await plain.until(Opened)
        await encrypted.until(Opened)
        server._endpoint.drop_connections()
        for peer in (plain, encrypted):
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(peer.reader.read(1), WAIT_S)
    await wait_until(lambda: not server.amqp.connections)


async def test_a_paused_port_refuses_and_comes_back(server: NamespaceServer) -> None:
    async with peer_of(server) as old:
        await old.until(Opened)
        server._endpoint.pause_listening()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", server.port)
        old.session.attach_sender("sender", "orders")
        await old.until(Attached)
        server._endpoint.resume_listening()
        async with peer_of(server) as new:
            await new.until(Opened)


# --- stopping and starting ---


async def test_a_stop_ends_every_connection_in_its_own_way_and_the_port_is_free_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinbus.broker.net.accepted_connection.TLS_SHUTDOWN_S", 30.0)
    async with serving(data=tmp_path) as server, peer_of(server, ssl=trusting(server)) as amqp, peer_of(server) as http:
        await amqp.until(Opened)
        http.writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await http.reader.readuntil(b"</Error>")
        async with peer_of(server) as silent:
            began = asyncio.get_running_loop().time()
            stopping = asyncio.create_task(server.stop())
            closed = await amqp.until(ConnectionClosed)
            assert isinstance(closed, ConnectionClosed)
            assert closed.error is not None
            assert closed.error.condition == "amqp:connection:forced"
            assert await hung_up(http.reader) == b""
            assert await hung_up(silent.reader) == b""
            await stopping
            assert asyncio.get_running_loop().time() - began < 15
    async with serving(data=tmp_path, port=server.port) as again, peer_of(again) as peer:
        await peer.until(Opened)
        assert again.connection_string == server.connection_string


async def test_a_peer_that_leaves_while_it_is_not_read_does_not_delay_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinbus.broker.net.amqp_server.CLOSE_WAIT_S", 30.0)
    async with serving(data=tmp_path) as server:
        async with peer_of(server, ssl=trusting(server)) as peer:
            await peer.until(Opened)
            [wire] = server.amqp.connections
            wire.stop_reading()
        await asyncio.sleep(0.05)
        began = asyncio.get_running_loop().time()
        await server.stop()
        assert asyncio.get_running_loop().time() - began < 15


async def test_a_silent_server_can_be_stopped(server: NamespaceServer) -> None:
    async with peer_of(server) as old, peer_of(server):
        await old.until(Opened)
        server._endpoint.go_silent()
        async with asyncio.timeout(WAIT_S):
            await server.stop()
            assert await hung_up(old.reader) == b""


async def test_in_memory_nothing_is_left_of_the_certificates() -> None:
    async with serving() as server:
        assert server.ca_file is not None
        home = server.ca_file.parent
        assert sorted(file.name for file in home.iterdir()) == ["ca.pem", "server-key.pem", "server.pem"]
    assert not home.exists()


# --- certificates of one's own ---


async def test_a_given_certificate_is_shown_and_named_if_clients_need_it(tmp_path: Path) -> None:
    own = load_or_make_identity(tmp_path, server_names("localhost"), datetime.now(UTC))
    async with serving(cert=own.certificate, key_file=own.key) as server:
        assert "TwinbusCA" not in server.connection_string
        async with peer_of(server, ssl=ssl.create_default_context(cafile=own.ca)) as peer:
            await peer.until(Opened)
    chain = tmp_path / "chain.pem"
    assert own.ca is not None
    chain.write_bytes(own.certificate.read_bytes() + own.ca.read_bytes())
    async with serving(cert=chain, key_file=own.key) as server:
        assert f"TwinbusCA={chain}" in server.connection_string


def test_wrong_certificates_are_one_line_and_touch_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nonsense").write_text("hello")
    serve = ["serve", "--namespace", "contoso:0"]
    for arguments, complaint in [
        (["--cert", "nonsense"], "--cert and --key-file need each other"),
        (["--key-file", "nonsense"], "--cert and --key-file need each other"),
        (["--cert", "missing", "--key-file", "nonsense"], "missing cannot be read"),
        (["--cert", "nonsense", "--key-file", "nonsense"], "nonsense has no certificate in PEM form"),
        (["--max-connections", "0"], "connections must be from 1"),
    ]:
        assert run([*serve, *arguments]) == 2
        said = capsys.readouterr()
        assert complaint in said.err
        assert (said.out, said.err.count("\n")) == ("", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["nonsense"]
