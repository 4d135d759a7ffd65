"""The story: two namespaces, an outage in the middle of sending, a detour, and the way home.

`tell` really does it all, and yields what there is to show while it goes on.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from twinbus.demo.crew import Crew, Member, Served
from twinbus.demo.journal import Entry, JournalReader
from twinbus.demo.judge import PRIMARY as ON_PRIMARY
from twinbus.demo.judge import Tally, judge
from twinbus.errors import OptionsError, TwinbusError

PRIMARY, SECONDARY = "contoso", "backup"
QUEUES = ("orders", "invoices", "shipments")
MESSAGES_MIN, MESSAGES_MAX = 50, 5_000
SENDING_S = 7.0
OUTAGE_AT, RETURN_AFTER = 0.25, 0.2
"""The share of the messages after which the primary is killed, and the share in the backlog at which it comes back."""
PATIENCE_S = 75.0
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
Scenes: TypeAlias = Generator[Scene, None, None]


def tell(messages: int) -> Generator[Scene, None, list[Tally]]:
    """Send this many messages through an outage and return what became of them, queue by queue.

    Everything happens in a temporary folder and in processes that are gone afterwards, also when the story is left in
    the middle. Raises `TwinbusError` if it cannot be brought to its end.
    """
    if not MESSAGES_MIN <= messages <= MESSAGES_MAX:
        raise OptionsError(f"messages must be from {MESSAGES_MIN} to {MESSAGES_MAX}, got {messages}")
    with tempfile.TemporaryDirectory(prefix="twinbus-demo-") as folder, Crew(Path(folder)) as crew:
        return (yield from Story(crew, messages).tell())


class Sending:
    """The sender process and what its journal says so far."""

    def __init__(self, crew: Crew, primary: Served, secondary: Served, messages: int) -> None:
        self.total = messages
        self.to_primary = self.to_backlog = 0
        self.news: list[str] = []
        self.journal = crew.folder / "sent.jsonl"
        self._reader = JournalReader(self.journal)
        arguments = ["twinbus.demo.sender", str(self.journal), str(messages), str(SENDING_S), *QUEUES]
        self.process = crew.work("send", arguments, primary, secondary)

    def look(self) -> Scenes:
        for entry in self._reader.new_entries():
            yield from self._note(entry)
        yield Counted("sent to the primary", self.to_primary, self.total)
        yield Counted("sent to the backlog", self.to_backlog, self.total)

    def _note(self, entry: Entry) -> Scenes:
        if entry.kind == "acknowledged":
            self.to_primary += entry.place == ON_PRIMARY
            self.to_backlog += entry.place != ON_PRIMARY
        elif entry.kind == "news":
            self.news.append(entry.place)
            yield Told(f"  {_short(entry.note)}")
        else:
            yield Told(f"  send of {entry.message_id} failed: {_short(entry.note)}")


class Receiving:
    """The receiver process and what its journal says so far."""

    def __init__(self, crew: Crew, primary: Served, secondary: Served, total: int) -> None:
        self.total = total
        self.received = 0
        self.journal = crew.folder / "received.jsonl"
        self._reader = JournalReader(self.journal)
        arguments = ["twinbus.demo.receiver", str(self.journal), *QUEUES]
        self.process = crew.work("receive", arguments, primary, secondary)

    def look(self) -> Scenes:
        self.received += sum(1 for _ in self._reader.new_entries())
        yield Counted("received from the primary", self.received, self.total)


class Story:
    def __init__(self, crew: Crew, messages: int) -> None:
        self._crew = crew
        self._messages = messages
        self._data = crew.folder / "data"
        self._deadline = time.monotonic() + PATIENCE_S

    def tell(self) -> Generator[Scene, None, list[Tally]]:
        yield Told("Two namespaces start, each in a process of its own.")
        primary = self._crew.serve(PRIMARY, self._data, QUEUES)
        secondary = self._crew.serve(SECONDARY, self._data, ())
        yield Told(f"  {PRIMARY:8} port {primary.port}, process {primary.pid}, queues {', '.join(QUEUES)}")
        yield Told(f"  {SECONDARY:8} port {secondary.port}, process {secondary.pid}, for the backlog")
        yield Told(f"An application pairs them and sends {self._messages:,} numbered messages.")
        sending = Sending(self._crew, primary, secondary, self._messages)
        primary = yield from self._outage(primary, sending)
        yield from self._until_done(sending.process, sending.look)
        yield Told(f"All sent: {sending.to_primary:,} to {PRIMARY}, {sending.to_backlog:,} to the backlog.")
        yield from self._bring_home(primary, secondary)
        yield Told(f"Now everything is received, from {PRIMARY}.")
        receiving = Receiving(self._crew, primary, secondary, sending.to_primary + sending.to_backlog)
        yield from self._until_done(receiving.process, receiving.look)
        for served in (primary, secondary):
            served.stop()
        return judge(sending.journal, receiving.journal)

    def _outage(self, primary: Served, sending: Sending) -> Generator[Scene, None, Served]:
        """Kill the primary in the middle, see sends go on elsewhere, and start it again with the same data."""
        yield from self._until(sending, lambda: sending.to_primary >= self._messages * OUTAGE_AT)
        primary.kill()
        yield Told(f"kill -9 {primary.pid}: {PRIMARY} is gone after {sending.to_primary:,} messages. Sending goes on:")
        yield from self._until(sending, lambda: sending.to_backlog >= self._messages * RETURN_AFTER)
        yield Told(f"  {sending.to_backlog:,} messages are safe in {SECONDARY}.")
        primary = self._crew.serve(PRIMARY, self._data, QUEUES, primary.port)
        yield Told(f"{PRIMARY} is back on port {primary.port} with the same data; a ping will notice:")
        yield from self._until(sending, lambda: "recovered" in sending.news or sending.process.is_done())
        return primary

    def _bring_home(self, primary: Served, secondary: Served) -> Scenes:
        yield Told("The syphon brings the backlog home.")
        syphon = self._crew.work("syphon", ["twinbus", "syphon", "--until-empty", "--json"], primary, secondary)
        yield from self._until_done(syphon, _nothing_to_see)

    def _until(self, sending: Sending, is_so: Callable[[], bool]) -> Scenes:
        while not is_so():
            sending.process.is_done()  # raises if it failed
            yield from self._look(sending.look)

    def _until_done(self, process: Member, look: Callable[[], Scenes]) -> Scenes:
        while not process.is_done():
            yield from self._look(look)
        yield from look()

    def _look(self, look: Callable[[], Scenes]) -> Scenes:
        if time.monotonic() > self._deadline:
            raise TwinbusError(f"the demo did not come to its end within {PATIENCE_S:g} s: this machine is very busy")
        yield from look()
        time.sleep(LOOK_PAUSE_S)


def _nothing_to_see() -> Scenes:
    yield from ()


def _short(text: str, length: int = 110) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1] + "…"
