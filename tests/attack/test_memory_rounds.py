"""What a peer held is given back, or used for the next one, when the peer is gone."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from served import Served

sys.path.insert(0, str(Path(__file__).parent))

from catalogue import QUEUE, ROOM, with_key

from twinbus.amqp.codec.performatives import Transfer
from twinbus.control import control_client

LINKS = 200
PIECES = 3
HELD_BYTES = LINKS * PIECES * ROOM
"""About 37 MiB: two thirds of what a connection may hold."""
ROUNDS = 8
WAIT_S = 60.0
FLOW = b"\x00\x53\x13"


def test_memory_of_a_peer_that_left_is_given_back_or_used_for_the_next(tmp_path: Path) -> None:
    with Served("attacked", tmp_path, "--queue", QUEUE) as served:
        before = resident_bytes(served)
        grown = [hold_and_leave(served, tmp_path) - before for _ in range(ROUNDS)]
    assert max(grown) > HELD_BYTES / 2  # it was really held
    assert max(grown) < 2 * HELD_BYTES  # though eight times as much went through


def hold_and_leave(served: Served, data: Path) -> int:
    """Begin messages and end none, then go; how much memory the server had meanwhile."""
    with with_key(served.connection_string) as peer:
        peer.open()
        peer.begin()
        for handle in range(LINKS):
            peer.attach_sender(handle, QUEUE)
        heard, give_up_at = b"", time.monotonic() + WAIT_S
        while heard.count(FLOW) < LINKS:
            assert time.monotonic() < give_up_at
            heard += peer.read()
            time.sleep(0.01)
        for handle in range(LINKS):
            peer.say(Transfer(handle, handle, b"t", more=True), payload=b"x" * ROOM)
            for _ in range(PIECES - 1):
                peer.say(Transfer(handle, more=True), payload=b"x" * ROOM)
        held = resident_bytes(served)
    while connections(served, data):
        assert time.monotonic() < give_up_at
        time.sleep(0.01)
    return held


def connections(served: Served, data: Path) -> int:
    asked = control_client.ask(data / served.name / control_client.CONTROL_SOCKET, "status", {})
    return int(asked["connections"])


def resident_bytes(served: Served) -> int:
    fields = Path(f"/proc/{served.pid}/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")
