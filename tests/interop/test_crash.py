"""kill -9 in the middle of ten thousand sends: what was acknowledged is there after the restart."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import ServiceBusError
from free_ports import free_port
from seeds import seed_count

SENDERS = 10
SENDS_EACH = seed_count(400, 1_000)


@contextmanager
def serving(data: Path, port: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A `twinbus serve` process and its connection string."""
    command = [sys.executable, "-m", "twinbus", "serve", "--namespace", f"contoso:{port}", "--queue", "orders"]
    process = subprocess.Popen(
        [*command, "--data", str(data), "--json"], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        yield process, ready["connection_string"]
    finally:
        process.kill()
        process.communicate()


class Senders:
    """Threads that send numbered messages, each with its own client, until they are done or the server is gone.

    The one that sends the last of the first half kills the server: anybody else might be late.
    """

    def __init__(self, connection_string: str, server: subprocess.Popen[str], first: int) -> None:
        self.acknowledged: set[str] = set()
        self.enough = threading.Event()
        self._server = server
        self._connection_string = connection_string
        self._threads = [threading.Thread(target=self._send, args=(first + each,)) for each in range(SENDERS)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(90)
            assert not thread.is_alive()

    def _send(self, number: int) -> None:
        client = ServiceBusClient.from_connection_string(self._connection_string, retry_total=0)
        try:
            with client, client.get_queue_sender("orders") as sender:
                for index in range(SENDS_EACH):
                    name = f"{number}-{index}"
                    sender.send_messages(ServiceBusMessage(name, message_id=name), timeout=60)
                    self.acknowledged.add(name)
                    if len(self.acknowledged) >= SENDERS * SENDS_EACH // 2:
                        os.kill(self._server.pid, signal.SIGKILL)
                        self.enough.set()
        except ServiceBusError:
            pass  # the server is gone: this one send is in doubt, the ones before it are not


def receive_all(connection_string: str, at_least: int) -> list[str]:
    found: list[str] = []
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_receiver("orders", receive_mode=mode, prefetch_count=1_000) as receiver,
    ):
        while got := receiver.receive_messages(1_000, max_wait_time=60 if len(found) < at_least else 2):
            found += [str(message) for message in got]
    return found


@pytest.mark.timeout(300)
def test_every_send_that_returned_before_kill_9_is_received_after_the_restart(tmp_path: Path) -> None:
    port = free_port()
    with serving(tmp_path, port) as (process, connection_string):
        before = Senders(connection_string, process, first=0)
        before.start()
        assert before.enough.wait(120)
        before.join()
    assert SENDERS * SENDS_EACH // 2 <= len(before.acknowledged) < SENDERS * SENDS_EACH, "not in the middle"

    with serving(tmp_path, port) as (_, same_string):
        assert same_string == connection_string, "the key is made once and kept"
        received = receive_all(connection_string, len(before.acknowledged))
    assert before.acknowledged - set(received) == set(), "acknowledged and lost"
    assert len(received) == len(set(received)), "stored twice"
    assert len(received) <= len(before.acknowledged) + SENDERS, "more than the sends in doubt"
