"""Somebody with a key who sends one small message after another, and notes how long each took to be stored.

python neighbour.py CONNECTION_STRING QUEUE      # until its standard input ends; prints {"seconds": [...]}
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time

from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import Attached, ConnectionClosed, DispositionArrived, Event
from twinbus.amqp.message.sections import encode_message
from twinbus.amqp.sasl import PLAIN, ClientSasl
from twinbus.connection_string import ConnectionString

PAUSE_S = 0.005
WAIT_S = 60.0
MESSAGE = encode_message(data=b"x" * 100)


class Neighbour:
    def __init__(self, connection_string: str, queue: str) -> None:
        said = ConnectionString.parse(connection_string)
        self._socket = socket.create_connection((said.host, said.port), timeout=WAIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = Connection(
            role=Role.CLIENT, container_id="neighbour", sasl=ClientSasl(PLAIN, said.key_name, said.key)
        )
        self._connection.open()
        self._link = self._connection.begin().attach_sender("neighbour", queue)
        self._until(Attached)

    def send(self) -> float:
        """Seconds until a message was stored."""
        began = time.perf_counter()
        self._link.send(MESSAGE, tag=b"t")
        self._until(DispositionArrived)
        return time.perf_counter() - began

    def _until(self, kind: type[Event]) -> None:
        while True:
            self._socket.sendall(self._connection.take_output())
            data = self._socket.recv(65536)
            events = self._connection.receive(data, int(time.monotonic() * 1000))
            if not data or any(isinstance(event, ConnectionClosed) for event in events):
                raise SystemExit(f"the neighbour was cut off: {events}")
            if any(isinstance(event, kind) for event in events):
                return


def main() -> None:
    neighbour = Neighbour(*sys.argv[1:3])
    _tell("ready")
    seconds: list[float] = []
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        while not selector.select(PAUSE_S):
            seconds.append(neighbour.send())
    _tell(json.dumps({"seconds": seconds}))


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
