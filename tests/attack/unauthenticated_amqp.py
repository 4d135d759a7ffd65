"""What somebody without a key tries: over AMQP."""

from __future__ import annotations

import struct

from catalogue import ROOM, again, attack, numbers, one, opened, request, until_hung_up, wait
from raw_peer import RawPeer, dial

from twinbus.amqp.codec.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame
from twinbus.amqp.codec.performatives import Begin, Detach, End, Transfer
from twinbus.amqp.codec.types import Symbol

EMPTY_LISTS: list[object] = [[] for _ in range(60_000)]
TOKEN = "SharedAccessSignature sr=x&sig=x&se=9&skn=x"
EMPTY_FRAME = bytes((0, 0, 0, 8, 2, 0, 0, 0))


def put_token(body: object = TOKEN, reply_to: str = "from 1") -> bytes:
    return request("put-token", {"name": "sb://x/orders", "type": "x"}, body, reply_to)


# --- tokens ---


@attack("asks `$cbs` for answers and takes none: session window 0, credit for a million")
def cbs_answers_not_taken(connection_string: str, until: float) -> None:
    token = put_token("t" * 8000)
    for _ in again(until):
        with until_hung_up() as stack:
            peer = opened(stack.enter_context(RawPeer(connection_string)), window=0)
            peer.attach_sender(0, "$cbs")
            peer.attach_receiver(1, "$cbs", window=0)
            for number in numbers(until):
                peer.say(one(0, number, settled=True), payload=token)
                peer.read()


@attack("the same with 30 links for the answers, none with credit")
def cbs_answers_on_many_links(connection_string: str, until: float) -> None:
    tokens = [put_token("t" * 1000, f"from {handle}") for handle in range(1, 31)]
    for _ in again(until):
        with until_hung_up() as stack:
            peer = opened(stack.enter_context(RawPeer(connection_string)))
            peer.attach_sender(0, "$cbs")
            for handle in range(1, 31):
                peer.attach_receiver(handle, "$cbs", credit=0)
            for number in numbers(until):
                peer.say(one(0, number, settled=True), payload=tokens[number % 30])
                peer.read()


@attack("sends bad tokens as fast as it can, on 20 connections")
def token_flood(connection_string: str, until: float) -> None:
    token = put_token(reply_to="f")
    for _ in again(until):
        with until_hung_up() as stack:
            peers = [opened(stack.enter_context(RawPeer(connection_string))) for _ in range(20)]
            for peer in peers:
                peer.attach_sender(0, "$cbs")
                peer.attach_receiver(1, "$cbs", name="f")
            for number in numbers(until):
                for peer in peers:
                    peer.read()
                    for each in range(50):
                        peer.say(one(0, 50 * number + each, settled=True), payload=token)


@attack("puts tokens that are 60,000 empty lists, on 20 connections")
def empty_lists_as_token(connection_string: str, until: float) -> None:
    token = put_token(EMPTY_LISTS)[:ROOM]
    token = put_token(EMPTY_LISTS) if len(token) < ROOM else put_token(EMPTY_LISTS[:50_000])
    for _ in again(until):
        with until_hung_up() as stack:
            peers = [opened(stack.enter_context(RawPeer(connection_string))) for _ in range(20)]
            for peer in peers:
                peer.attach_sender(0, "$cbs")
                peer.attach_receiver(1, "$cbs")
            for number in numbers(until):
                for peer in peers:
                    peer.say(one(0, number, settled=True), payload=token)
                    peer.read()


# --- frames that become much in memory ---


@attack("attaches links whose properties are tens of thousands of empty lists")
def empty_lists_in_attach(connection_string: str, until: float) -> None:
    for _ in again(until):
        with until_hung_up() as stack:
            peer = opened(stack.enter_context(RawPeer(connection_string)))
            for handle in range(200):
                peer.attach_sender(handle, "$cbs", properties={Symbol("x"): EMPTY_LISTS})
                peer.read()


@attack("says nothing but an open frame full of empty lists, on 100 connections")
def empty_lists_in_open(connection_string: str, until: float) -> None:
    for _ in again(until):
        with until_hung_up() as stack:
            for _ in range(100):
                with until_hung_up():
                    stack.enter_context(RawPeer(connection_string)).open({Symbol("x"): EMPTY_LISTS})
            wait(until, 2.0)


@attack("begins 15 deliveries of 1 MB on each of 40 connections, and ends none")
def unfinished_deliveries(connection_string: str, until: float) -> None:
    for _ in again(until):
        with until_hung_up() as stack:
            for _ in range(40):
                with until_hung_up():
                    peer = opened(stack.enter_context(RawPeer(connection_string)))
                    for handle in range(15):
                        peer.attach_sender(handle, "$cbs")
                        peer.say(Transfer(handle, handle, b"t", more=True), payload=b"x" * ROOM)
                        for _ in range(14):
                            peer.say(Transfer(handle, more=True), payload=b"x" * ROOM)
            wait(until, 1.0)


@attack("begins deliveries of one byte with tags of 60 KB, on 200 links")
def long_delivery_tags(connection_string: str, until: float) -> None:
    for _ in again(until):
        with until_hung_up() as stack:
            peer = opened(stack.enter_context(RawPeer(connection_string)))
            for handle in range(200):
                peer.attach_sender(handle, "$cbs")
                peer.say(Transfer(handle, handle, b"t" * 60_000, more=True), payload=b"x")
                peer.read()


@attack("sends 60 KB of a frame and not its end, on 900 connections")
def unfinished_frames(connection_string: str, until: float) -> None:
    for _ in again(until):
        with until_hung_up() as stack:
            for _ in range(900):
                with until_hung_up():
                    peer = stack.enter_context(RawPeer(connection_string))
                    peer.write(struct.pack(">IBBH", 65_000, 2, 0, 0) + b"x" * 60_000)
                if not wait_left(until):
                    break
            wait(until, 2.0)


@attack("sends an open frame of lists in lists, 7,000 deep, again and again")
def deep_nesting(connection_string: str, until: float) -> None:
    nested = b"\x45"
    while len(nested) < ROOM:
        nested = b"\xd0" + struct.pack(">II", len(nested) + 4, 1) + nested
    for _ in again(until):
        with until_hung_up() as stack:
            peer = stack.enter_context(RawPeer(connection_string))
            peer.write(frame(0, b"\x00\x53\x10" + nested))
            peer.read()


# --- many of something ---


@attack("begins a thousand sessions with two links each, on 20 connections")
def many_sessions(connection_string: str, until: float) -> None:
    for _ in again(until):
        with until_hung_up() as stack:
            for _ in range(20):
                with until_hung_up():
                    peer = stack.enter_context(RawPeer(connection_string))
                    peer.open()
                    for channel in range(1000):
                        peer.begin(channel)
                        for handle in range(2):
                            peer.attach_sender(handle, "$cbs", channel=channel)
            wait(until, 0.5)


@attack("begins and ends sessions on every channel there is, as fast as it can")
def sessions_in_a_loop(connection_string: str, until: float) -> None:
    for _ in again(until):
        with until_hung_up() as stack:
            peer = stack.enter_context(RawPeer(connection_string))
            peer.open()
            for number in numbers(until):
                peer.say(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1), number % 1024)
                peer.say(End(), number % 1024)
                peer.read()


@attack("attaches links to queues that it may not use, and to `$cbs`, and detaches them, as fast as it can")
def refused_links_in_a_loop(connection_string: str, until: float) -> None:
    for _ in again(until):
        with until_hung_up() as stack:
            peer = opened(stack.enter_context(RawPeer(connection_string)))
            for number in numbers(until):
                peer.attach_sender(number % 2, "$cbs" if number % 2 else "q" * 10_000, name=f"{number}")
                peer.say(Detach(number % 2, closed=True))
                peer.read()


@attack("sends empty frames, 8 bytes each, on 20 connections")
def empty_frames(connection_string: str, until: float) -> None:
    for _ in again(until):
        with until_hung_up() as stack:
            peers = [stack.enter_context(RawPeer(connection_string)) for _ in range(20)]
            for peer in peers:
                peer.open()
            for _ in numbers(until):
                for peer in peers:
                    peer.write(EMPTY_FRAME * 2000)
                    peer.read()


@attack("asks for the state of a link (`echo`) as fast as it can, and reads the answers")
def echoes(connection_string: str, until: float) -> None:
    for _ in again(until):
        with until_hung_up() as stack:
            peer = opened(stack.enter_context(RawPeer(connection_string)))
            peer.attach_receiver(0, "$cbs")
            for _ in numbers(until):
                for _ in range(200):
                    peer.flow(0, echo=True)
                peer.read()


@attack("the same, and never reads what the server says")
def deaf_ear(connection_string: str, until: float) -> None:
    for _ in again(until):
        with until_hung_up() as stack:
            peer = opened(stack.enter_context(RawPeer(connection_string)))
            peer.attach_receiver(1, "$cbs")
            for _ in numbers(until):
                peer.flow(1, echo=True)


# --- the beginning of a connection ---


@attack("connects and hangs up, or says one byte and hangs up, as fast as it can")
def connections_in_a_loop(connection_string: str, until: float) -> None:
    for number in numbers(until):
        with until_hung_up() as stack:
            line = stack.enter_context(dial(connection_string))
            if number % 2:
                line.sendall(b"A")


@attack("says hello to SASL and then nonsense: no frame, a frame of 64 KB, a mechanism nobody knows")
def sasl_nonsense(connection_string: str, until: float) -> None:
    unknown = b"\x00\x53\x41\xd0" + struct.pack(">II", 50_008, 1) + b"\xb3" + struct.pack(">I", 49_999) + b"X" * 49_999
    said = [
        b"\xff" * 60_000,
        frame(0, b"\x00\x53\x41" + b"\x45" * 60_000, SASL_FRAME),
        frame(0, unknown, SASL_FRAME),
        frame(0, b"\x00\x53\x41\xd0" + struct.pack(">II", 60_004, 60_000) + b"\x45" * 60_000, SASL_FRAME),
    ]
    for number in numbers(until):
        with until_hung_up() as stack:
            line = stack.enter_context(dial(connection_string))
            line.sendall(SASL_HEADER + said[number % len(said)])


@attack("sends its frames one byte at a time, on 300 connections")
def slow_frames(connection_string: str, until: float) -> None:
    said = AMQP_HEADER + frame(0, b"\x00\x53\x10" + b"\x45" * 500)
    for _ in again(until):
        with until_hung_up() as stack:
            lines = [stack.enter_context(dial(connection_string)) for _ in range(300)]
            for at in range(len(said)):
                for line in lines:
                    with until_hung_up():
                        line.sendall(said[at : at + 1])
                if not wait_left(until):
                    break


def wait_left(until: float) -> bool:
    """Whether there is any time left."""
    return next(iter(numbers(until)), None) is not None
