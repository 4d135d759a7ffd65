"""Small ledgers, written by the real `Ledger` under a clock that the test sets.

    ledger = SmallLedger(tmp_path)
    client = ledger.writer("client")
    client.say(3, Kind.ACCEPTED, "orders", "m1", namespace="contoso")
    ledger.write()

Times are minutes after `BASE_MS`, as they truly are; the clock of a writer may be wrong. A writer ends with `closed` in
good order, is `killed` (its last record is the last that it said), or is still `running` when the ledger is read: then
it holds its segment until `end()`.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from unittest import mock

from scripted_ledger import BASE_MS, MINUTE

from twinbus.ledger import Event, Kind, Ledger, LedgerOptions

Ending = Literal["closed", "killed", "running"]
PRIMARY, SECONDARY = "contoso", "backup"
START_MIN = 1000.0
"""What the clock that nobody sets shows at the beginning."""
QUEUE = f"{PRIMARY}/x-servicebus-transfer/0"


@dataclass
class Writer:
    """One process that keeps a ledger."""

    program: str
    ending: Ending = "closed"
    closed_at: float | None = None
    """When it closes; None: with its last record."""
    machine: str = ""
    """Which one it runs on; empty: the one of the test, and of all others that say nothing."""
    ahead: float = 0.0
    """By how many minutes its clock is ahead; negative: behind."""
    set_at: dict[float, float] = field(default_factory=dict)
    """When its clock is set while it runs, and how far it is ahead from then on."""
    missing: str = ""
    """The id of a message: what it recorded of it is gone."""
    events: list[tuple[float, int, Event]] = field(default_factory=list)

    def say(self, minute: float, kind: Kind, entity: str, *ids: str, **more: Any) -> None:
        self.events.append((minute, len(self.events), Event(kind, entity, message_ids=ids, **more)))

    def shown(self, minute: float) -> float:
        """What its clock shows."""
        sets = [each for each in self.set_at if each <= minute]
        return minute + (self.set_at[max(sets)] if sets else self.ahead)

    # What clients, syphons and namespaces say, with the names that they use.

    def accepted(self, minute: float, entity: str, *ids: str, namespace: str = PRIMARY, **more: Any) -> None:
        self.say(minute, Kind.ACCEPTED, entity, *ids, namespace=namespace, **more)

    def backlogged(self, minute: float, entity: str, *ids: str, queue: str = QUEUE, **more: Any) -> None:
        self.say(minute, Kind.BACKLOGGED, entity, *ids, namespace=SECONDARY, queue=queue, **more)

    def took(self, minute: float, entity: str, *ids: str, kind: Kind = Kind.RECEIVED_FROM_BACKLOG) -> None:
        self.say(minute, kind, entity, *ids, namespace=SECONDARY, queue=QUEUE)

    def brought_home(self, minute: float, entity: str, *ids: str) -> None:
        self.took(minute, entity, *ids)
        self.say(minute, Kind.SENT_HOME, entity, *ids, namespace=PRIMARY)
        self.took(minute, entity, *ids, kind=Kind.COMPLETED)

    def stored(self, minute: float, entity: str, *ids: str, **more: Any) -> None:
        self.say(minute, Kind.STORED, entity, *ids, namespace=self.program, **more)

    def delivered(self, minute: float, entity: str, *ids: str) -> None:
        self.say(minute, Kind.DELIVERED, entity, *ids, namespace=self.program, outcome="completed")

    def through(self, minute: float, entity: str, *ids: str) -> None:
        """Stored, and delivered a second later."""
        self.stored(minute, entity, *ids)
        self.delivered(minute + 1 / 60, entity, *ids)


class SmallLedger:
    """Writers and the folder that they write to."""

    def __init__(self, folder: Path, *, base_ms: int = BASE_MS) -> None:
        self.folder = folder
        self._base_ms = base_ms
        self._writers: list[Writer] = []
        self._open: list[Ledger] = []

    def writer(self, program: str, ending: Ending = "closed", **more: Any) -> Writer:
        self._writers.append(Writer(program, ending, **more))
        return self._writers[-1]

    def write(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        for writer in self._writers:
            if writer.ending == "killed":
                self._write_killed(writer)
            else:
                before = set(self.folder.glob("*.jsonl"))
                self._write(writer, self.folder)
                if writer.missing:
                    for segment in set(self.folder.glob("*.jsonl")) - before:
                        _remove_lines(segment, f'"{writer.missing}"'.encode())
        return self.folder

    def _write_killed(self, writer: Writer) -> None:
        """Its segments as they are while nobody has closed them: nobody holds the copies."""
        with tempfile.TemporaryDirectory() as elsewhere:
            ledger = self._write(writer, Path(elsewhere))
            for segment in Path(elsewhere).glob("*.jsonl"):
                shutil.copy(segment, self.folder)
            ledger.close()

    def _write(self, writer: Writer, folder: Path) -> Ledger:
        now = [0.0]

        def clock_ns() -> int:
            return round(self._base_ms + writer.shown(now[0]) * MINUTE) * 1_000_000

        def monotonic_ns() -> int:
            return round((START_MIN + now[0]) * MINUTE) * 1_000_000

        events = sorted(writer.events, key=lambda each: each[:2])
        now[0] = events[0][0] if events else 0.0
        options = LedgerOptions(directory=folder, program=writer.program, sync_interval_s=None)
        with _on(writer.machine):
            ledger = Ledger(options, clock_ns=clock_ns, monotonic_ns=monotonic_ns)
            for minute, _, event in events:
                now[0] = minute
                ledger.record(event)
            assert ledger.flush(60)
        if writer.ending == "closed":
            now[0] = now[0] if writer.closed_at is None else writer.closed_at
            assert ledger.close(60)
        elif writer.ending == "running":
            self._open.append(ledger)
        return ledger

    def end(self) -> None:
        """Those who are still running close."""
        while self._open:
            self._open.pop().close()


def _remove_lines(segment: Path, word: bytes) -> None:
    lines = segment.read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if word not in line]
    assert len(kept) < len(lines)
    segment.write_bytes(b"".join(kept))


@contextmanager
def _on(machine: str) -> Iterator[None]:
    """On a machine of that name, which was started at a time of its own."""
    if not machine:
        yield
        return
    with (
        mock.patch("twinbus.ledger.writing.writer.boot_id", return_value=f"start of {machine}"),
        mock.patch("twinbus.ledger.writing.writer.socket.gethostname", return_value=machine),
    ):
        yield


@contextmanager
def small_ledger(folder: Path, *, base_ms: int = BASE_MS) -> Iterator[SmallLedger]:
    """A ledger to be written; writers that still run when the block ends close."""
    ledger = SmallLedger(folder, base_ms=base_ms)
    try:
        yield ledger
    finally:
        ledger.end()
