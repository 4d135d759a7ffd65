"""What the demo shows while it runs."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from twinbus.demo.entities import ENTITIES
from twinbus.demo.journal import PRIMARY, JournalEntry

EVENT_LENGTH_MAX = 110


@dataclass(frozen=True, slots=True)
class OutputLine:
    text: str


@dataclass(frozen=True, slots=True)
class EntityProgress:
    entity: str
    kind: str
    is_failed_over: bool = False
    to_primary: int = 0
    to_backlog: int = 0
    pings: int = 0
    received: int = 0


@dataclass(frozen=True, slots=True)
class ProgressSnapshot:
    """The counts of all entities, and what is being done."""

    entities: tuple[EntityProgress, ...]
    doing: str


DemoOutput: TypeAlias = OutputLine | ProgressSnapshot
DemoOutputs: TypeAlias = Generator[DemoOutput, None, None]


@dataclass(slots=True)
class DemoProgress:
    """The counts so far, by the journals."""

    entities: dict[str, EntityProgress] = field(
        default_factory=lambda: {entity.name: EntityProgress(entity.name, entity.kind) for entity in ENTITIES}
    )
    recovered: set[str] = field(default_factory=set)
    """Entities that failed over and are back."""
    failing: str = ""

    def snapshot(self, doing: str) -> ProgressSnapshot:
        return ProgressSnapshot(tuple(self.entities.values()), doing)

    def total(self, what: str) -> int:
        return sum(getattr(progress, what) for progress in self.entities.values())

    @property
    def sent(self) -> int:
        """Messages that are stored, wherever."""
        return self.total("to_primary") + self.total("to_backlog")

    def place(self, entity: str, to_primary: int, to_backlog: int) -> None:
        """Where the messages of an entity went, as somebody else than their sender has counted."""
        progress = self.entities.get(entity)
        if progress is not None:
            self.entities[entity] = replace(progress, to_primary=to_primary, to_backlog=to_backlog)

    def note(self, entry: JournalEntry) -> str | None:
        """Count an entry; a line about it if it is worth one."""
        progress = self.entities.get(entry.entity)
        if progress is None:
            return _short(f"{entry.event}: {entry.note}")
        self.entities[entry.entity] = _after(entry, progress)
        if entry.kind == "failed":
            return self._first_failure(entry)
        if entry.kind != "event" or entry.event in ("ping_sent", "ping_failed"):
            return None
        if entry.event == "recovered":
            self.recovered.add(entry.entity)
        elif entry.event == "failed_over":
            self.recovered.discard(entry.entity)
        return _short(f"{entry.event.replace('_', ' ')}: {entry.entity}: {entry.note}")

    def _first_failure(self, entry: JournalEntry) -> str | None:
        """The sender tries again until it works: one line a message is enough."""
        was, self.failing = self.failing, entry.message_id
        return None if was == self.failing else _short(f"send of {entry.message_id} failed: {entry.note}")


def _after(entry: JournalEntry, progress: EntityProgress) -> EntityProgress:
    if entry.kind == "acknowledged":
        if not entry.place:
            return progress  # its sender does not know
        if entry.place == PRIMARY:
            return replace(progress, to_primary=progress.to_primary + 1)
        return replace(progress, to_backlog=progress.to_backlog + 1)
    if entry.kind == "received":
        return replace(progress, received=progress.received + 1)
    if entry.event == "ping_sent":
        return replace(progress, pings=progress.pings + 1)
    if entry.event in ("failed_over", "recovered"):
        return replace(progress, is_failed_over=entry.event == "failed_over")
    return progress


def _short(text: str) -> str:
    line = "  " + " ".join(text.split())
    return line if len(line) <= EVENT_LENGTH_MAX else line[: EVENT_LENGTH_MAX - 1] + "…"
