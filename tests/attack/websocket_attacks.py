"""What somebody without a key tries through a WebSocket, and what somebody with one does."""

from __future__ import annotations

import os
import threading
import time

from catalogue import QUEUE, again, attack, numbers, opened, until_hung_up, wait
from raw_peer import Line, RawPeer, dial

from twinbus.amqp.codec.frames import SASL_HEADER
from twinbus.connection_string import ConnectionString

UPGRADE = (
    b"GET /$servicebus/websocket HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: AMQPWSB10\r\n"
    b"Sec-WebSocket-Key: eHh4eHh4eHh4eHh4eHh4eA==\r\n\r\n"
)
MASK = b"\x00\x00\x00\x00"
"""It changes nothing."""
EMPTY = b"\x82\x80" + MASK
PING = b"\x89\xfd" + MASK + b"x" * 125
HUGE = b"\x82\xff" + bytes((0, 0, 1, 0, 0, 0, 0, 0)) + MASK


def upgraded(connection_string: str) -> Line:
    line = dial(connection_string)
    line.sendall(UPGRADE)
    return line


@attack("asks for WebSockets and never ends the head of its request, on 900 connections")
def websocket_heads(connection_string: str, until: float) -> None:
    half = UPGRADE[:-4] + b"\r\nX-Filler: " + b"x" * 15_000
    for _ in again(until):
        with until_hung_up() as stack:
            for _ in range(900):
                with until_hung_up():
                    stack.enter_context(dial(connection_string)).sendall(half)
            wait(until, 2.0)


@attack("opens WebSockets and begins a frame of a terabyte, or fragments without end, on 900 connections")
def websocket_endless(connection_string: str, until: float) -> None:
    begun = SASL_HEADER + b"\x00\x00\xf0\x00\x02\x01\x00\x00"  # and a frame of AMQP in it that does not end either
    fragment = b"\x02\xfe\xea\x60" + MASK + begun + b"x" * (60_000 - len(begun))
    for _ in again(until):
        with until_hung_up() as stack:
            for number in range(900):
                with until_hung_up():
                    line = stack.enter_context(upgraded(connection_string))
                    line.sendall(fragment if number % 2 else HUGE + begun + b"x" * 60_000)
            wait(until, 2.0)


@attack("opens WebSockets and sends empty frames as fast as it can, on 20 connections")
def websocket_empty_frames(connection_string: str, until: float) -> None:
    _flood(connection_string, until, EMPTY * 10_000)


@attack("opens WebSockets, sends pings as fast as it can and never reads an answer, on 20 connections")
def websocket_pings(connection_string: str, until: float) -> None:
    _flood(connection_string, until, PING * 500)


@attack("sends messages through a WebSocket, one byte in each frame, as fast as it can", right="Send")
def websocket_single_bytes(connection_string: str, until: float) -> None:
    said = ConnectionString.parse(connection_string)
    for _ in again(until):
        with until_hung_up() as stack:
            peer = stack.enter_context(BytewisePeer(connection_string, user=said.key_name, key=said.key))
            opened(peer)
            peer.attach_sender(0, QUEUE)
            for number in numbers(until):
                peer.send_in_frames(0, number, b"\x00\x53\x75\xa0\xc8" + b"x" * 200)
                peer.read()


def _flood(connection_string: str, until: float, frames: bytes) -> None:
    """From 20 connections at once; one that is hung up on is replaced."""

    def attack_once() -> None:
        while time.monotonic() < until:
            with until_hung_up() as stack:
                line = stack.enter_context(upgraded(connection_string))
                while time.monotonic() < until:
                    line.sendall(frames)

    threads = [threading.Thread(target=attack_once, daemon=True) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))


class BytewisePeer(RawPeer):
    """Says what a peer says, through a WebSocket, in frames of one byte."""

    def __init__(self, connection_string: str, *, user: str, key: str) -> None:
        self._is_upgraded = False
        super().__init__(connection_string, user=user, key=key)

    def write(self, data: bytes) -> None:
        if not self._is_upgraded:
            self._is_upgraded = True
            super().write(UPGRADE)
        mask = os.urandom(4)
        super().write(b"".join([b"\x82\x81" + mask + bytes((byte ^ mask[0],)) for byte in data]))
