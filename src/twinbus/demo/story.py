"""The story: two namespaces, an outage in the middle of sending, and a count of what is left.

`tell` really does it all, and yields what there is to show while it goes on.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from twinbus.demo.crew import Crew, Served
from twinbus.demo.journal import Entry, JournalReader
from twinbus.demo.judge import Tally, judge
from twinbus.errors import OptionsError, TwinbusError

PRIMARY, SECONDARY = "contoso", "backup"
QUEUES = ("orders", "invoices", "shipments")
MESSAGES_MIN, MESSAGES_MAX = 50, 5_000
OUTAGE_AT = 0.3
"""The share of the messages after which the primary is killed."""
FAILURES_SHOWN = 3
PATIENCE_S = 55.0
LOOK_PAUSE_S = 0.005


@dataclass(frozen=True, slots=True)
class Told:
    """A line of the story."""

    text: str


@dataclass(frozen=True, slots=True)
class Counted:
    """How far something has come."""

    what: str
    done: int
    total: int


Scene: TypeAlias = Told | Counted


def tell(messages: int) -> Generator[Scene, None, list[Tally]]:
    """Send this many messages to each namespace and return what became of them.

    Everything happens in a temporary folder and in processes that are gone afterwards, also when the story is left in
    the middle. Raises `TwinbusError` if it cannot be brought to its end.
    """
    if not MESSAGES_MIN <= messages <= MESSAGES_MAX:
        raise OptionsError(f"messages must be from {MESSAGES_MIN} to {MESSAGES_MAX}, got {messages}")
    with tempfile.TemporaryDirectory(prefix="twinbus-demo-") as folder, Crew(Path(folder)) as crew:
        return (yield from Story(crew, messages).tell())


class Sending:
    """A sender process and what its journal says so far."""

    def __init__(self, crew: Crew, namespace: str, connection_string: str, messages: int) -> None:
        self.namespace = namespace
        self.total = messages
        self.acknowledged = 0
        self.failures: list[Entry] = []
        self.journal = crew.folder / f"sent-{namespace}.jsonl"
        self._reader = JournalReader(self.journal)
        arguments = ["twinbus.demo.sender", namespace, str(self.journal), str(messages), *QUEUES]
        self.process = crew.work(f"send-{namespace}", arguments, connection_string)

    def look(self) -> Counted:
        for entry in self._reader.new_entries():
            if entry.kind == "acknowledged":
                self.acknowledged += 1
            else:
                self.failures.append(entry)
        return Counted(f"acknowledged by {self.namespace}", self.acknowledged, self.total)


class Receiving:
    """A receiver process and what its journal says so far."""

    def __init__(self, crew: Crew, sending: Sending, connection_string: str) -> None:
        self.namespace = sending.namespace
        self.total = sending.acknowledged
        self.received = 0
        self.journal = crew.folder / f"received-{self.namespace}.jsonl"
        self._reader = JournalReader(self.journal)
        arguments = ["twinbus.demo.receiver", str(self.journal), *QUEUES]
        self.process = crew.work(f"receive-{self.namespace}", arguments, connection_string)

    def look(self) -> Counted:
        self.received += sum(1 for _ in self._reader.new_entries())
        return Counted(f"received from {self.namespace}", self.received, self.total)


class Story:
    def __init__(self, crew: Crew, messages: int) -> None:
        self._crew = crew
        self._messages = messages
        self._data = crew.folder / "data"
        self._deadline = time.monotonic() + PATIENCE_S

    def tell(self) -> Generator[Scene, None, list[Tally]]:
        yield Told("Two namespaces start, each in a process of its own.")
        primary, secondary = (self._crew.serve(name, self._data, QUEUES) for name in (PRIMARY, SECONDARY))
        for name, served in ((PRIMARY, primary), (SECONDARY, secondary)):
            yield Told(f"  {name:8} port {served.port}, process {served.pid}, queues {', '.join(QUEUES)}")
        yield Told(f"A sender for each, with the official SDK: {self._messages:,} numbered messages.")
        sends = [
            Sending(self._crew, name, served.connection_string, self._messages)
            for name, served in ((PRIMARY, primary), (SECONDARY, secondary))
        ]
        primary = yield from self._outage(primary, *sends)
        yield from self._until_done(sends)
        yield Told(f"All sent. {sum(len(one.failures) for one in sends)} attempts failed and were made again.")
        yield Told("Now everything is received.")
        receipts = [
            Receiving(self._crew, one, served.connection_string)
            for one, served in zip(sends, (primary, secondary), strict=True)
        ]
        yield from self._until_done(receipts)
        for served in (primary, secondary):
            served.stop()
        return [judge(sent.namespace, sent.journal, got.journal) for sent, got in zip(sends, receipts, strict=True)]

    def _outage(self, primary: Served, sends: Sending, others: Sending) -> Generator[Scene, None, Served]:
        """Kill the primary in the middle, show what its sender sees, and start it again with the same data."""
        while sends.acknowledged < self._messages * OUTAGE_AT:
            yield from self._look(sends, others)
        primary.kill()
        yield sends.look()
        before = others.acknowledged
        yield Told(f"kill -9 {primary.pid}: {PRIMARY} is gone after {sends.acknowledged:,} acknowledged messages.")
        while len(sends.failures) < FAILURES_SHOWN:
            yield from self._look(sends, others)
        for failure in sends.failures[:FAILURES_SHOWN]:
            yield Told(f"  send of {failure.message_id} failed: {_short(failure.note)}")
        yield Told(f"  {SECONDARY} goes on meanwhile: {others.acknowledged - before:,} more acknowledged.")
        primary = self._crew.serve(PRIMARY, self._data, QUEUES, primary.port)
        yield Told(f"{PRIMARY} is back on port {primary.port} with the same data, process {primary.pid}.")
        return primary

    def _until_done(self, works: list[Sending] | list[Receiving]) -> Generator[Scene, None, None]:
        while not all(one.process.is_done() for one in works):
            yield from self._look(*works)
        for one in works:
            yield one.look()

    def _look(self, *works: Sending | Receiving) -> Generator[Scene, None, None]:
        if time.monotonic() > self._deadline:
            raise TwinbusError(f"the demo did not come to its end within {PATIENCE_S:g} s: this machine is very busy")
        for one in works:
            one.process.is_done()  # raises if it failed
            yield one.look()
        time.sleep(LOOK_PAUSE_S)


def _short(text: str, length: int = 100) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1] + "…"
