"""`twinbus syphon` as a process of its own, and what it says."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

from azure.servicebus import ServiceBusClient

from twinbus.testing import LocalNamespace

WAIT_S = 90.0
QUEUES = ("contoso/x-servicebus-transfer/0", "contoso/x-servicebus-transfer/1")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "twinbus", "syphon", "--count", "2", *arguments]


def started(*arguments: str) -> subprocess.Popen[str]:
    """With its stdout, JSON lines, in a pipe."""
    return subprocess.Popen(command("--json", *arguments), stdout=subprocess.PIPE, text=True)


def wait_for(process: subprocess.Popen[str], event: str, moved_min: int = 0, **facts: Any) -> dict[str, Any]:
    """The next line of JSON that says this."""
    assert process.stdout is not None
    deadline = time.monotonic() + WAIT_S
    for line in process.stdout:
        said: dict[str, Any] = json.loads(line)
        is_so = said["event"] == event and all(said[key] == value for key, value in facts.items())
        if is_so and said.get("moved", 0) >= moved_min:
            return said
        assert time.monotonic() < deadline, "it did not happen in time"
    raise AssertionError(f"it ended before {event} {facts}")


def ids_at(namespace: LocalNamespace, queue: str) -> list[str]:
    """Of all messages in a queue, in its order; they stay there."""
    found: list[Any] = []
    with (
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        while got := receiver.peek_messages(250, sequence_number=found[-1].sequence_number + 1 if found else 0):
            found += got
    return [str(message.message_id) for message in found]
