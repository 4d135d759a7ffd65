"""The present state of everything that the page shows; written by the watch, read by pages. For one event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from time import time
from typing import Any

from twinbus.console.delta import Section, Sections
from twinbus.console.sections import CHANGE_WORDS, TRACKED, VERBS
from twinbus.plain_text import LINE_LENGTH_MAX, on_one_line

EVENTS_MAX = 200
SAMPLES_MAX = 720
"""Of the plots: an hour, if one is taken every five seconds."""
SINCE_MAX = 5_000
EVENT_LENGTH_MAX = 500
CHANGES_NAMED, NAME_LENGTH_MAX = 3, 60
"""Of rows that turn to the same state at once, so many are named."""
QUIET = frozenset(("healthy", "works", "unknown"))
"""An entity that goes from one to the other is no event: it turns with how much of the backlog could be read."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row that is in another state than before."""

    name: str
    state: str
    reason: str


class ConsoleState:
    def __init__(self, clock: Callable[[], float] = time) -> None:
        self._clock = clock
        self._sections: dict[str, Section] = {}
        self._events: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._samples: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._since: OrderedDict[tuple[str, str], tuple[str, float]] = OrderedDict()
        """Of section and key: the state in which it is, and since when as far as was seen here."""
        self._number = 0
        self.version = 0
        """Grows with every change."""
        self._changed = asyncio.Event()

    @property
    def sections(self) -> Sections:
        """As of now. A section is replaced, never changed."""
        return dict(self._sections)

    def section(self, name: str) -> Section:
        return self._sections.get(name, {})

    async def wait_for_change(self, version: int, wait_s: float) -> None:
        """Until it has another version than this, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while self.version == version:
                    await self._changed.wait()

    def put(self, name: str, section: Section) -> None:
        """Replace a section, and note what its rows have turned to. Texts of others are cut to a bearable length."""
        section = _bounded(section)
        if name in TRACKED:
            changes: list[RowChange] = []
            section = {key: self._with_since(name, key, row, changes) for key, row in section.items()}
            self._note_changes(name, changes)
        if self._sections.get(name) != section:
            self._sections[name] = section
            self._announce()

    def add_event(self, kind: str, text: str, about: str = "", at: float | None = None) -> None:
        """Add an event. `kind`: bad, good, note or done (by an operator)."""
        self._number += 1
        text = on_one_line(text, EVENT_LENGTH_MAX)
        self._events[str(self._number)] = {
            "at": self._clock() if at is None else at,
            "kind": kind,
            "text": text,
            "about": on_one_line(about, EVENT_LENGTH_MAX),
        }
        while len(self._events) > EVENTS_MAX:
            self._events.popitem(last=False)
        self._sections["events"] = dict(self._events)
        self._announce()

    def sample(self, values: dict[str, Any]) -> None:
        """Add a point to the plots."""
        at = self._clock()
        self._samples[f"{at:.3f}"] = {"at": at, **values}
        while len(self._samples) > SAMPLES_MAX:
            self._samples.popitem(last=False)
        self._sections["history"] = dict(self._samples)
        self._announce()

    def _with_since(self, name: str, key: str, row: dict[str, Any], changes: list[RowChange]) -> dict[str, Any]:
        """The row with the time since when it is in its state: as it says, else as was seen here."""
        state, place = str(row.get("state")), (name, key)
        before = self._since.get(place)
        if before is None or before[0] != state:
            now, was = self._clock(), state if before is None else before[0]
            self._since[place] = before = (state, now) if before is not None else (state, 0.0)
            self._since.move_to_end(place)
            while len(self._since) > SINCE_MAX:
                self._since.popitem(last=False)
            is_notable = bool(before[1]) or state in CHANGE_WORDS["bad"]
            if is_notable and not (name == "entities" and {was, state} <= QUIET):
                changes.append(RowChange(str(row.get("name", key)), state, str(row.get("reason") or "")))
        return row if row.get("since") is not None else {**row, "since": before[1] or None}

    def _note_changes(self, section: str, changes: list[RowChange]) -> None:
        """What many rows turn to at once is one event: a thousand would push out all others."""
        by_state: dict[str, list[RowChange]] = {}
        for change in changes:
            by_state.setdefault(change.state, []).append(change)
        for state, same in by_state.items():
            kind = next((kind for kind, words in CHANGE_WORDS.items() if state in words), "note")
            if len(same) > CHANGES_NAMED:
                some = ", ".join(on_one_line(each.name, NAME_LENGTH_MAX) for each in same[:CHANGES_NAMED])
                crowd = f"{len(same):,} {TRACKED[section]} are {state}, e.g. {some}"
                self.add_event(kind, f"{crowd}{_because(same[0].reason)}")
                continue
            for change in same:
                verb = "" if state in VERBS else "is "
                self.add_event(kind, f"{change.name} {verb}{state}{_because(change.reason)}", change.name)

    def _announce(self) -> None:
        """Wake everybody who waits; who comes later waits for the next change."""
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()


def _bounded(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= LINE_LENGTH_MAX else f"{value[:LINE_LENGTH_MAX]}..."
    if isinstance(value, dict):
        return {name: _bounded(each) for name, each in value.items()}
    return [_bounded(each) for each in value] if isinstance(value, list | tuple) else value


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""
