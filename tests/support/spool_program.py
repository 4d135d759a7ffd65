"""An application with a spool, in a process of its own: sends numbered messages and prints the id of each that was
accepted, until it is killed or has sent them all; then it waits to be killed.

    python spool_program.py PRIMARY SECONDARY SPOOL NAME QUEUE COUNT PREFIX
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

from azure.servicebus import ServiceBusMessage

from twinbus import PairedServiceBusClient, Retry


def run(primary: str, secondary: str, spool: str, name: str, queue: str, count: int, prefix: str) -> None:
    bus = PairedServiceBusClient.from_connection_strings(
        primary,
        secondary,
        primary_name=name,
        spool=spool,
        failover_interval=timedelta(0),
        attempt_timeout=timedelta(seconds=10),
        retry=Retry(attempts=1),
        backlog_queue_count=2,
    )
    with bus, bus.get_queue_sender(queue) as sender:
        for number in range(count):
            receipt = sender.send_messages(ServiceBusMessage(f"{prefix}-{number}", message_id=f"{prefix}-{number}"))
            say(json.dumps([*receipt.message_ids, *receipt.places]))
        say("done")
        time.sleep(3_600)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class SpoolProgram:
    """The same, started and killed by a test."""

    def __init__(
        self, primary: str, secondary: str, spool: Path, name: str, queue: str, *, count: int, prefix: str = "m"
    ) -> None:
        arguments = [primary, secondary, str(spool), name, queue, str(count), prefix]
        self.process = subprocess.Popen(
            [sys.executable, __file__, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.accepted: dict[str, str] = {}
        """Where each message was put."""

    def read(self, at_least: int | None = None) -> None:
        """Wait until at least this many are accepted, or all of them."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == "done":
                return
            self._note(line)
            if at_least is not None and len(self.accepted) >= at_least:
                return

    def kill(self) -> None:
        """kill -9; then what it had said before is known too."""
        self.process.kill()
        rest, _ = self.process.communicate()
        for line in rest.splitlines():
            if line != "done":
                self._note(line)

    def _note(self, line: str) -> None:
        message_id, place = json.loads(line)
        self.accepted[message_id] = place


if __name__ == "__main__":
    *texts, sent, start = sys.argv[1:]
    run(texts[0], texts[1], texts[2], texts[3], texts[4], int(sent), start)
