"""The port: taken, given back, shut for a while; connections within bounds. Real sockets; handlers that only repeat."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeAlias

import pytest
from steady_time import steady_time

from twinbus.broker.limits import ServerLimits
from twinbus.broker.net import listener as listener_module
from twinbus.broker.net.accepted_connection import AcceptedConnection, ProtocolHandler
from twinbus.broker.net.listener import Listener, UnauthenticatedConnections
from twinbus.broker.net.ports import bind_sockets
from twinbus.broker.net.sniffer import ConnectionProtocol
from twinbus.errors import AddressInUse, OptionsError, TwinbusError

Peer: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]

WAIT_S = 60


@pytest.fixture(autouse=True)
async def stalls_do_not_count() -> AsyncIterator[None]:
    with steady_time():
        yield


class Echo(ProtocolHandler):
    """Echoes what it receives; `!` authenticates its connection."""

    def __init__(self, connection: AcceptedConnection) -> None:
        self._accepted = connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if data == b"large":
            self._transport.write(b"x" * 20_000_000)
            self._transport.close()
            return
        if b"!" in data:
            self._accepted.mark_authenticated()
        self._transport.write(b"no room" if self._accepted.is_excess else data)

    def connection_lost(self, error: Exception | None) -> None:
        self._accepted.closed()

    def hold(self) -> None:
        self._transport.pause_reading()

    def release(self) -> None:
        self._transport.resume_reading()


def no_tls() -> ssl.SSLContext:
    raise AssertionError("nobody asks for TLS here")


@asynccontextmanager
async def listening(
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    limits: ServerLimits = ServerLimits(),  # noqa: B008 - frozen
) -> AsyncIterator[Listener]:
    listener = Listener(host, port, limits=limits, handlers={ConnectionProtocol.HTTP: Echo}, tls_context=no_tls)
    await listener.bind()
    listener.listen()
    try:
        yield listener
    finally:
        listener.close()
        for connection in list(listener.connections):
            connection.abort()
        async with asyncio.timeout(WAIT_S):
            while listener.connections:
                await asyncio.sleep(0)


@asynccontextmanager
async def connected(listener: Listener, host: str = "127.0.0.1") -> AsyncIterator[Peer]:
    reader, writer = await asyncio.open_connection(host, listener.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def say(peer: Peer, words: bytes) -> bytes:
    """The answer; b"" when the connection ended, or the name of what happened to it."""
    peer[1].write(words)
    return await hear(peer)


async def hear(peer: Peer) -> bytes:
    try:
        async with asyncio.timeout(WAIT_S):
            return await peer[0].read(100)
    except ConnectionResetError:
        return b"reset"


async def is_silent(peer: Peer) -> bool:
    try:
        async with asyncio.timeout(0.05):
            await peer[0].read(1)
    except TimeoutError:
        return True
    return False


async def is_refused(listener: Listener) -> bool:
    try:
        async with connected(listener):
            return False
    except ConnectionRefusedError:
        return True


# --- the port ---


async def test_a_bound_port_is_taken_but_not_answered() -> None:
    listener = Listener(
        "127.0.0.1", 0, limits=ServerLimits(), handlers={ConnectionProtocol.HTTP: Echo}, tls_context=no_tls
    )
    await listener.bind()
    assert await is_refused(listener)
    listener.listen()
    with pytest.raises(AddressInUse, match=f"port {listener.port} on 127.0.0.1 is taken"):
        async with listening(port=listener.port):
            pass
    listener.close()
    async with listening(port=listener.port) as second:
        assert not await is_refused(second)


async def test_all_addresses_of_a_name_get_the_same_port() -> None:
    async with listening(host="localhost") as listener, connected(listener, "127.0.0.1") as peer:
        assert await say(peer, b"hello") == b"hello"
        if ("::1", listener.port) in [address[:2] for _, address in listener._addresses]:
            async with connected(listener, "::1") as other:
                assert await say(other, b"hello") == b"hello"


def test_one_port_is_found_for_all_addresses() -> None:
    addresses = [(socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_INET, ("127.0.0.2", 0))]
    sockets = bind_sockets([*addresses, addresses[0]])
    names = [bound.getsockname() for bound in sockets]
    for bound in sockets:
        bound.close()
    assert [host for host, _ in names] == ["127.0.0.1", "127.0.0.2"]
    assert names[0][1] == names[1][1] != 0


async def test_an_ipv6_address_is_a_host_too() -> None:
    try:
        async with listening(host="::1") as listener, connected(listener, "::1") as peer:
            assert await say(peer, b"hello") == b"hello"
    except TwinbusError:
        pytest.skip("this machine has no IPv6")


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
async def test_an_address_that_is_not_ours_is_reported_in_one_line(host: str) -> None:
    with pytest.raises(TwinbusError, match=f"cannot listen on {host}:0: "):
        async with listening(host=host):
            pass


async def test_while_it_pauses_connections_are_refused_and_those_that_are_there_go_on() -> None:
    async with listening() as listener, connected(listener) as peer:
        assert await say(peer, b"hello") == b"hello"
        listener.pause()
        listener.pause()
        assert await is_refused(listener)
        assert await say(peer, b"still here") == b"still here"
        listener.resume()
        listener.resume()
        async with connected(listener) as other:
            assert await say(other, b"hello") == b"hello"


async def test_a_fault_that_ends_while_it_closes_does_not_open_it_again() -> None:
    async with listening() as listener:
        listener.pause()
        listener.close()
        listener.resume()
        assert await is_refused(listener)


async def test_a_port_that_was_taken_during_the_pause_is_reported_and_can_be_had_later() -> None:
    async with listening() as listener:
        listener.pause()
        thief = socket.socket()
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind(("127.0.0.1", listener.port))
        thief.listen()
        with pytest.raises(AddressInUse):
            listener.resume()
        thief.close()
        listener.resume()
        assert not await is_refused(listener)


async def test_a_port_can_be_given_back_while_it_pauses() -> None:
    async with listening() as listener:
        listener.pause()
    async with listening(port=listener.port):
        pass


# --- connections ---


async def test_who_speaks_no_language_we_know_is_let_go_at_once() -> None:
    async with listening() as listener:
        for nonsense in (b"\x00\x01", b"AMQP"):  # nobody speaks AMQP here
            async with connected(listener) as peer:
                assert await say(peer, nonsense) in (b"", b"reset")


async def test_a_first_word_may_come_letter_by_letter() -> None:
    async with listening() as listener, connected(listener) as peer:
        for letter in (b"A", b"M", b"Q"):
            peer[1].write(letter)
            assert await is_silent(peer)
        assert await say(peer, b"X") == b"AMQX"


@pytest.mark.parametrize("words", [b"", b"A", b"hello"])
async def test_who_does_not_show_who_he_is_is_let_go(words: bytes) -> None:
    async with listening(limits=ServerLimits(unauthenticated_s=1.0)) as listener, connected(listener) as peer:
        if words == b"hello":
            assert await say(peer, words) == b"hello"
        else:
            peer[1].write(words)
        assert await hear(peer) in (b"", b"reset")
        assert not listener.connections


async def test_of_too_many_unauthenticated_connections_the_one_that_waits_longest_is_closed() -> None:
    limits = ServerLimits(unauthenticated_connections=2)
    async with listening(limits=limits) as listener, connected(listener) as known, connected(listener) as first:
        assert await say(known, b"it is me!") == b"it is me!"
        assert await say(first, b"hello") == b"hello"
        async with connected(listener) as second, connected(listener) as third:
            assert await hear(first) in (b"", b"reset")
            for peer in (known, second, third):
                assert await say(peer, b"hello") == b"hello"


async def test_unauthenticated_connections_from_one_address_do_not_keep_others_out() -> None:
    class FakeConnection:
        is_there = True

        def __init__(self, address: str) -> None:
            self.address = address

        def abort(self) -> None:
            """It is not forgotten before its connection has ended, in a later turn of the event loop."""
            self.is_there = False

    unauthenticated = UnauthenticatedConnections(10)
    alone, crowd = FakeConnection("10.0.0.1"), [FakeConnection("10.0.0.2") for _ in range(50)]
    for connection in (alone, *crowd):
        unauthenticated.add(connection)  # type: ignore[arg-type]
    assert alone.is_there
    assert [each.is_there for each in crowd] == [False] * 41 + [True] * 9


async def test_who_is_known_may_stay() -> None:
    async with listening(limits=ServerLimits(unauthenticated_s=1.0)) as listener, connected(listener) as peer:
        assert await say(peer, b"it is me!") == b"it is me!"
        await asyncio.sleep(1.1)
        assert await say(peer, b"still") == b"still"


async def test_who_leaves_without_a_word_is_forgotten() -> None:
    async with listening() as listener:
        async with connected(listener):
            pass
        async with asyncio.timeout(WAIT_S):
            while listener.connections:
                await asyncio.sleep(0.01)


async def test_over_the_limit_a_connection_is_refused_and_the_next_after_one_closed_is_accepted() -> None:
    async with listening(limits=ServerLimits(connections=2)) as listener, connected(listener) as first:
        assert await say(first, b"first!") == b"first!"
        async with connected(listener) as second, connected(listener) as third:
            assert await say(second, b"second!") == b"second!"
            assert await say(third, b"third!") == b"no room"
            assert await say(first, b"nothing changed") == b"nothing changed"
        async with asyncio.timeout(WAIT_S):
            while len(listener.connections) > 1:
                await asyncio.sleep(0.01)
        async with connected(listener) as fourth:
            assert await say(fourth, b"fourth!") == b"fourth!"


async def test_far_over_the_limit_a_connection_is_closed_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "EXCESS_MAX", 1)
    async with AsyncExitStack() as stack:
        listener = await stack.enter_async_context(listening(limits=ServerLimits(connections=1)))
        peers = [await stack.enter_async_context(connected(listener)) for _ in range(3)]
        assert [await say(peer, b"hello") for peer in peers[:2]] == [b"hello", b"no room"]
        assert await hear(peers[2]) in (b"", b"reset")


async def test_a_machine_without_a_socket_to_spare_is_given_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    accept, failures = socket.socket.accept, [OSError(errno.EMFILE, "Too many open files")]

    def fail_first(listening: socket.socket) -> Any:
        if failures:
            raise failures.pop()
        return accept(listening)

    monkeypatch.setattr(socket.socket, "accept", fail_first)
    monkeypatch.setattr(listener_module, "PAUSE_S", 0.05)
    async with listening() as listener, connected(listener) as peer:
        assert await say(peer, b"hello") == b"hello"


async def test_who_is_hung_up_on_and_does_not_take_the_last_words_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "CLOSING_S", 0.05)
    async with listening() as listener, connected(listener) as peer:
        peer[1].write(b"large")
        async with asyncio.timeout(WAIT_S):
            while not any(connection.is_closing for connection in listener.connections):
                await asyncio.sleep(0)
            while listener.connections:
                await asyncio.sleep(0.01)


# --- faults ---


async def test_dropped_connections_break_whatever_stage_they_are_in() -> None:
    async with listening() as listener, connected(listener) as known, connected(listener) as new:
        assert await say(known, b"hello!") == b"hello!"
        async with asyncio.timeout(WAIT_S):
            while len(listener.connections) < 2:
                await asyncio.sleep(0)
        listener.drop_connections()
        assert [await hear(known), await hear(new)] == [b"reset", b"reset"]
        async with connected(listener) as other:
            assert await say(other, b"hello") == b"hello"


async def test_in_silence_everybody_waits_and_afterwards_everybody_is_answered() -> None:
    limits = ServerLimits(unauthenticated_s=1.0)
    async with listening(limits=limits) as listener, connected(listener) as known, connected(listener) as unknown:
        assert await say(known, b"hello!") == b"hello!"
        assert await say(unknown, b"hello") == b"hello"
        listener.go_silent()
        listener.go_silent()
        async with connected(listener) as new:
            for peer in (known, unknown, new):
                peer[1].write(b"anybody?")
            await asyncio.sleep(1.1)  # longer than a connection may be unknown; but not the connection is silent
            assert [await is_silent(peer) for peer in (known, unknown, new)] == [True, True, True]
            listener.speak_again()
            listener.speak_again()
            assert [await hear(peer) for peer in (known, unknown, new)] == [b"anybody?"] * 3
            assert [await hear(peer) for peer in (unknown, new)] == [b"", b""], "they are still unknown"
            assert await say(known, b"hello") == b"hello"


async def test_a_silent_port_can_be_closed() -> None:
    async with listening() as listener, connected(listener) as known:
        assert await say(known, b"hello!") == b"hello!"
        listener.go_silent()
        async with connected(listener) as new:
            async with asyncio.timeout(WAIT_S):
                while len(listener.connections) < 2:
                    await asyncio.sleep(0)
            listener.close()
            assert [await hear(known), await hear(new)] == [b"", b""]


# --- limits ---


def test_limits_out_of_range_are_named_all_at_once() -> None:
    with pytest.raises(OptionsError, match=r"connections must be from 1 .* got 0; unread_s must be .* got -1"):
        ServerLimits(connections=0, unread_s=-1)


async def test_small_answers_are_sent_without_waiting_for_more() -> None:
    """With Nagle's algorithm each small answer waits for the peer's acknowledgement: 40 ms on most systems."""
    async with listening() as listener:
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        while not listener.connections:
            await asyncio.sleep(0)
        (connection,) = listener.connections
        assert connection._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()
