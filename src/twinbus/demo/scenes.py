"""What there is to show of a story while it happens."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from twinbus.demo.cast import CAST
from twinbus.demo.journal import Entry
from twinbus.demo.judge import PRIMARY

NEWS_LENGTH_MAX = 110


@dataclass(frozen=True, slots=True)
class Told:
    """A line of the story."""

    text: str


@dataclass(frozen=True, slots=True)
class Standing:
    """How one entity stands."""

    entity: str
    kind: str
    is_failed_over: bool = False
    to_primary: int = 0
    to_backlog: int = 0
    pings: int = 0
    received: int = 0


@dataclass(frozen=True, slots=True)
class Picture:
    """How everything stands, and what is going on."""

    standings: tuple[Standing, ...]
    doing: str


Scene: TypeAlias = Told | Picture
Scenes: TypeAlias = Generator[Scene, None, None]


@dataclass(slots=True)
class Board:
    """The standings so far, as the journals tell them."""

    standings: dict[str, Standing] = field(
        default_factory=lambda: {entity.name: Standing(entity.name, entity.kind) for entity in CAST}
    )
    recovered: set[str] = field(default_factory=set)
    """Entities that failed over and are back."""
    failing: str = ""

    def picture(self, doing: str) -> Picture:
        return Picture(tuple(self.standings.values()), doing)

    def total(self, what: str) -> int:
        return sum(getattr(standing, what) for standing in self.standings.values())

    @property
    def sent(self) -> int:
        """Messages that are stored, wherever."""
        return self.total("to_primary") + self.total("to_backlog")

    def note(self, entry: Entry) -> str | None:
        """Count an entry; a line about it if it is worth one."""
        standing = self.standings.get(entry.entity)
        if standing is None:
            return _short(f"{entry.news}: {entry.note}")
        self.standings[entry.entity] = _after(entry, standing)
        if entry.kind == "failed":
            return self._first_failure(entry)
        if entry.kind != "news" or entry.news in ("ping_sent", "ping_failed"):
            return None
        if entry.news == "recovered":
            self.recovered.add(entry.entity)
        elif entry.news == "failed_over":
            self.recovered.discard(entry.entity)
        return _short(f"{entry.news.replace('_', ' ')}: {entry.entity}: {entry.note}")

    def _first_failure(self, entry: Entry) -> str | None:
        """The sender tries again until it works: one line a message is enough."""
        was, self.failing = self.failing, entry.message_id
        return None if was == self.failing else _short(f"send of {entry.message_id} failed: {entry.note}")


def _after(entry: Entry, standing: Standing) -> Standing:
    if entry.kind == "acknowledged":
        if entry.place == PRIMARY:
            return replace(standing, to_primary=standing.to_primary + 1)
        return replace(standing, to_backlog=standing.to_backlog + 1)
    if entry.kind == "received":
        return replace(standing, received=standing.received + 1)
    if entry.news == "ping_sent":
        return replace(standing, pings=standing.pings + 1)
    if entry.news in ("failed_over", "recovered"):
        return replace(standing, is_failed_over=entry.news == "failed_over")
    return standing


def _short(text: str) -> str:
    line = "  " + " ".join(text.split())
    return line if len(line) <= NEWS_LENGTH_MAX else line[: NEWS_LENGTH_MAX - 1] + "…"
