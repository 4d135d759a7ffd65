"""What somebody without a key tries: over HTTP and TLS."""

from __future__ import annotations

import contextlib
import ssl

from catalogue import again, attack, numbers, until_hung_up, wait
from raw_peer import Line, dial
from unauthenticated_amqp import wait_left

from twinbus.connection_string import ConnectionString


@attack("sends the head of a request and then its body of 1 MB, without a token, on 60 connections")
def http_bodies(connection_string: str, until: float) -> None:
    head = b"PUT /orders HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
    for _ in again(until):
        with until_hung_up() as stack:
            for _ in range(60):
                with until_hung_up():
                    stack.enter_context(dial(connection_string)).sendall(head + b"x" * 900_000)
            wait(until, 1.0)


@attack("sends bodies in chunks that never end, without a token, on 60 connections")
def http_chunks(connection_string: str, until: float) -> None:
    head = b"PUT /orders HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = b"1\r\nx\r\n" * 5000
    for _ in again(until):
        with until_hung_up() as stack:
            lines = [stack.enter_context(dial(connection_string)) for _ in range(60)]
            for line in lines:
                line.sendall(head)
            for _ in numbers(until):
                for line in list(lines):
                    try:
                        line.sendall(chunks)
                    except OSError:
                        lines.remove(line)
                if not lines:
                    break


@attack("sends requests with header lines of 8 KB, as many as it is let, on 60 connections")
def http_header_lines(connection_string: str, until: float) -> None:
    head = b"GET /orders HTTP/1.1\r\nHost: x\r\n"
    line_of_8_kb = b"X-Filler: " + b"x" * 8000 + b"\r\n"
    for _ in again(until):
        with until_hung_up() as stack:
            for _ in range(60):
                with until_hung_up():
                    line = stack.enter_context(dial(connection_string))
                    line.sendall(head)
                    for _ in range(100):
                        line.sendall(line_of_8_kb)
            wait(until, 0.5)


@attack("sends the head of a request one letter a second, on 300 connections")
def slow_http(connection_string: str, until: float) -> None:
    head = b"GET /orders HTTP/1.1\r\nHost: x\r\nX-Filler: " + b"x" * 8000
    for _ in again(until):
        with until_hung_up() as stack:
            lines = [stack.enter_context(dial(connection_string)) for _ in range(300)]
            for letter in range(len(head)):
                for line in lines:
                    line.sendall(head[letter : letter + 1])
                if not wait_left(until):
                    break
                wait(until, 1.0)


@attack("asks over HTTP without a token, takes the 401 and stays, on 60 connections at a time")
def http_refused(connection_string: str, until: float) -> None:
    head = b"GET /orders HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"
    for _ in again(until):
        with until_hung_up() as stack:
            for _ in range(60):
                stack.enter_context(dial(connection_string)).sendall(head)
            wait(until, 1.0)


@attack("asks over HTTP without a token, as fast as it can: 100 requests in one go on each connection")
def http_refused_in_a_loop(connection_string: str, until: float) -> None:
    requests = b"GET /orders HTTP/1.1\r\nHost: x\r\nAuthorization: x\r\n\r\n" * 100
    for _ in numbers(until):
        with until_hung_up() as stack:
            lines = [stack.enter_context(dial(connection_string)) for _ in range(20)]
            for line in lines:
                line.sendall(requests)
            for line in lines:
                line.settimeout(1.0)
                line.recv(1000)


@attack("asks for websockets, and for HTTP/2, and sends frames of them at once")
def upgrades(connection_string: str, until: float) -> None:
    asked = (
        b"GET /$servicebus/websocket HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: AMQPWSB10\r\n"
        b"Sec-WebSocket-Key: eHh4eHh4eHh4eHh4eHh4eA==\r\n\r\n"
    )
    frames = b"\x82\xff\x00\x00\x00\x00\x7f\xff\xff\xff" + b"x" * 50_000
    other = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\xff\xff\x01\x05" + b"x" * 50_000
    for number in numbers(until):
        with until_hung_up() as stack:
            line = stack.enter_context(dial(connection_string))
            line.sendall(other if number % 3 == 0 else asked + frames)


# --- TLS ---


@attack("shakes hands for TLS and says nothing more, on 1,500 connections at a time")
def tls_and_silence(connection_string: str, until: float) -> None:
    said = ConnectionString.parse(connection_string)
    context = _trusting()
    for _ in again(until):
        with until_hung_up() as stack:
            for _ in range(1500):
                line = dial(connection_string)
                line.settimeout(5)
                stack.enter_context(context.wrap_socket(line, server_hostname=said.host))
                if not wait_left(until):
                    break


@attack("begins to shake hands for TLS and does not go on, on 1,500 connections at a time")
def tls_never_finished(connection_string: str, until: float) -> None:
    hello = client_hello()
    for _ in again(until):
        with until_hung_up() as stack:
            for _ in range(1500):
                stack.enter_context(dial(connection_string)).sendall(hello)
                if not wait_left(until):
                    break
            wait(until, 2.0)


@attack("has 60 connections begin to shake hands for TLS at the same moment, again and again")
def tls_hellos_at_once(connection_string: str, until: float) -> None:
    hello = client_hello()
    for _ in numbers(until):
        with until_hung_up() as stack:
            lines: list[Line] = [stack.enter_context(dial(connection_string)) for _ in range(60)]
            for line in lines:
                line.sendall(hello)
            for line in lines:
                line.settimeout(1.0)
                line.recv(100)


@attack("says hello to TLS and then nonsense, again and again")
def tls_nonsense(connection_string: str, until: float) -> None:
    hello = client_hello()
    for number in numbers(until):
        with until_hung_up() as stack:
            line = stack.enter_context(dial(connection_string))
            line.sendall(b"\x16\x03\x01\x40\x00" + b"\x01" * 16_384 if number % 2 else hello + b"\xff" * 16_384)


def _trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def client_hello() -> bytes:
    """The first bytes of a client that wants TLS."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        _trusting().wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()
