"""Row "namespace": durable ingest and egress of 1 KiB messages through a real `twinbus serve` process.

The client is our own engine on a plain socket, so that the server is what is measured. Ingest ends when every message
is acknowledged, egress when every completion is. The best of several rounds counts: the others say more about what
else the machine did.

    python bench/namespace.py [--messages 20000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import ConnectionClosed, DispositionArrived, Event, LinkRefused, TransferArrived
from twinbus.amqp.outcomes import ACCEPTED, Accepted
from twinbus.amqp.sasl import PLAIN, ClientSasl
from twinbus.amqp.sections import PropertyField, encode_message
from twinbus.cli.draw import table
from twinbus.connection_string import ROOT_KEY_NAME
from twinbus.demo.crew import Crew, Served

RESULTS = Path(__file__).parent / "results" / "namespace.jsonl"
QUEUE = "bench"
MESSAGE_BYTES = 1024
CREDIT = 1_000
READ_BYTES = 256 * 1024
SILENCE_S = 30


class Client:
    """One connection to the namespace; `talk` sends what is to be said and returns what comes back."""

    def __init__(self, served: Served) -> None:
        key = served.connection_string.split("SharedAccessKey=")[1].split(";")[0]
        self._socket = socket.create_connection(("127.0.0.1", served.port), SILENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sasl = ClientSasl(PLAIN, ROOT_KEY_NAME, key)
        self._connection = Connection(role=Role.CLIENT, container_id="bench", hostname="localhost", sasl=sasl)
        self._connection.open()
        self.session = self._connection.begin()

    def talk(self) -> list[Event]:
        self._socket.sendall(self._connection.take_output())
        data = self._socket.recv(READ_BYTES)
        if not data:
            raise SystemExit("bench: the namespace hung up")
        events = self._connection.receive(data, time.monotonic_ns() // 1_000_000)
        for event in events:
            if isinstance(event, ConnectionClosed | LinkRefused):
                raise SystemExit(f"bench: the namespace refused: {event.error}")
        return events

    def close(self) -> None:
        self._connection.close()
        self._socket.sendall(self._connection.take_output())
        self._socket.close()


def one_kibibyte() -> bytes:
    """A message of exactly MESSAGE_BYTES bytes, with what messages usually have beside their body."""

    def build(body: int) -> bytes:
        properties = {PropertyField.MESSAGE_ID: "0123456789abcdef", PropertyField.CONTENT_TYPE: "application/json"}
        return encode_message(properties=properties, application_properties={"kind": "order"}, data=b"x" * body)

    return build(MESSAGE_BYTES - (len(build(512)) - 512))


def ingest(served: Served, messages: int) -> float:
    """Messages a second, each acknowledged, which means: on disk."""
    client = Client(served)
    link = client.session.attach_sender("bench-in", QUEUE)
    payload = one_kibibyte()
    sent = acknowledged = 0
    began = time.perf_counter()
    while acknowledged < messages:
        while link.credit and sent < messages:
            link.send(payload, tag=b"%d" % sent)
            sent += 1
        for event in client.talk():
            if isinstance(event, DispositionArrived):
                if not isinstance(event.outcome, Accepted):
                    raise SystemExit(f"bench: a message was not accepted: {event.outcome}")
                acknowledged += len(event.deliveries)
    took = time.perf_counter() - began
    client.close()
    return messages / took


def egress(served: Served, messages: int) -> float:
    """Messages a second, each received, completed, and the completion confirmed."""
    client = Client(served)
    link = client.session.attach_receiver("bench-out", QUEUE, rcv_settle_mode=1)
    link.keep_credit = CREDIT
    completed = 0
    began = time.perf_counter()
    while completed < messages:
        arrived = []
        for event in client.talk():
            if isinstance(event, TransferArrived):
                arrived.append(event.delivery_id)
            elif isinstance(event, DispositionArrived):
                completed += len(event.deliveries)
        if arrived:
            link.settle(arrived[0], arrived[-1], ACCEPTED, settled=False)
    took = time.perf_counter() - began
    client.close()
    return messages / took


def measure(messages: int, rounds: int) -> tuple[float, float]:
    """The best ingest and the best egress."""
    with tempfile.TemporaryDirectory(prefix="twinbus-bench-") as folder, Crew(Path(folder)) as crew:
        served = crew.serve("bench", Path(folder) / "data", [QUEUE])
        results = [(ingest(served, messages), egress(served, messages)) for _ in range(rounds)]
        served.stop()
    return max(rate for rate, _ in results), max(rate for _, rate in results)


def main() -> None:
    parser = argparse.ArgumentParser(description="Durable ingest and egress of 1 KiB messages.")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    inward, outward = measure(chosen.messages, chosen.rounds)
    rows = [("namespace, 1 KiB, durable", "msgs/s"), ("ingest", round(inward)), ("egress", round(outward))]
    print(table(rows))
    result = {
        "row": "namespace",
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "messages": chosen.messages,
        "message_bytes": MESSAGE_BYTES,
        "ingest_per_s": round(inward),
        "egress_per_s": round(outward),
    }
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
