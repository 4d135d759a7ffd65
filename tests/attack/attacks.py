"""What somebody tries who wants to take a namespace down, each in a process of its own, all of them at once.

    python attacks.py SECONDS NAME CONNECTION_STRING [NAME CONNECTION_STRING ...]      # 0 seconds: only prepare for it

An attack goes on until its time is over; that the server hangs up on it is what it has to expect, and it comes again.
Each prints a line that says what it cost: {"sent_bytes": ..., "connections": ...}
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback

import listeners  # noqa: F401 - each of these adds its attacks
import managers  # noqa: F401
import senders  # noqa: F401
import unauthenticated_amqp  # noqa: F401
import unauthenticated_web  # noqa: F401
import websocket_attacks  # noqa: F401
from catalogue import ATTACKS as ATTACKS
from raw_peer import Spent

NICE = 15
"""An attacker has a machine of its own: it does not take the processors of the server and the neighbour."""
LATE_S = 1.0
"""An attack that waits for the server is ended so long after its time."""


def attack(name: str, connection_string: str, seconds: float) -> None:
    os.nice(NICE)
    until = time.monotonic() + seconds
    ended = threading.Timer(seconds + LATE_S, _leave)
    ended.daemon = True
    ended.start()
    ATTACKS[name].run(connection_string, until)
    _leave()


def _leave() -> None:
    """At once, with all connections: the server has to see to them."""
    sys.stdout.write(json.dumps({"sent_bytes": Spent.sent_bytes, "connections": Spent.connections}) + "\n")
    sys.stdout.flush()
    os._exit(0)


def attack_in_a_process(name: str, connection_string: str, seconds: float) -> int:
    child = os.fork()
    if child == 0:
        try:
            attack(name, connection_string, seconds)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return child


def main() -> None:
    seconds, asked = float(sys.argv[1]), list(zip(sys.argv[2::2], sys.argv[3::2], strict=True))
    if not seconds:
        for prepare, connection_string in {ATTACKS[name].prepare: string for name, string in asked}.items():
            if prepare is not None:
                prepare(connection_string)
        return
    children = [attack_in_a_process(name, connection_string, seconds) for name, connection_string in asked]
    statuses = [os.waitpid(child, 0)[1] for child in children]
    sys.exit(max(map(bool, statuses)))


if __name__ == "__main__":
    main()
