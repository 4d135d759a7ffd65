"""What a ledger has in it, counted."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from twinbus.ledger.reading.reader import LedgerReader
from twinbus.ledger.schema import Record
from twinbus.storage import Location

ENTITIES_MAX = 10_000
OTHERS = "(others)"


@dataclass(slots=True)
class EventCount:
    events: int = 0
    messages: int = 0
    bytes: int = 0

    def add(self, record: Record) -> None:
        self.events += 1
        self.messages += len(record.message_ids) + record.count
        self.bytes += sum(record.sizes) + record.bytes


@dataclass(slots=True)
class Stats:
    segments: int = 0
    disk_bytes: int = 0
    processes: int = 0
    problems: int = 0
    records: int = 0
    first_ms: int = 0
    last_ms: int = 0
    kinds: defaultdict[str, EventCount] = field(default_factory=lambda: defaultdict(EventCount))
    entities: defaultdict[str, defaultdict[str, EventCount]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(EventCount))
    )
    """By entity, then by kind; beyond ten thousand entities under `(others)`."""

    def add(self, record: Record) -> None:
        self.records += 1
        self.first_ms = min(self.first_ms or record.at_ms, record.at_ms)
        self.last_ms = max(self.last_ms, record.at_ms)
        self.kinds[record.kind].add(record)
        if record.entity:
            known = record.entity in self.entities or len(self.entities) < ENTITIES_MAX
            self.entities[record.entity if known else OTHERS][record.kind].add(record)


def stats(directory: Location) -> Stats:
    """Read the whole ledger and count. Raises `StoreError` if there is no such ledger."""
    reader, counted = LedgerReader(directory), Stats()
    for record in reader.records():
        counted.add(record)
    counted.segments, counted.disk_bytes = len(reader.segments), reader.bytes_read
    counted.processes, counted.problems = len(reader.processes), len(reader.problems)
    return counted
