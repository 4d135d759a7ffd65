"""The disk of the simulated primary, which remembers what became of every message."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import NamedTuple

from sim.disk import Disk
from twinbus.broker.store.api import (
    Change,
    DeleteMessages,
    InsertCopies,
    InsertMessages,
    MessageRow,
    MessageState,
    NamedRows,
    PutEntity,
    PutSessionState,
    ReplaceMessage,
    StateGrowth,
)


class Stored(NamedTuple):
    """A message as it is on disk from now on."""

    path: str
    sequence: int
    state: MessageState
    delivery_count: int


class Removed(NamedTuple):
    """It is gone from there, and was not moved elsewhere."""

    path: str
    sequence: int


class History(Disk):
    def __init__(self) -> None:
        super().__init__()
        self.events: dict[str, list[Stored | Removed]] = defaultdict(list)
        """By message id, in order."""
        self.copies: Counter[str] = Counter()
        """By message id, how often it was stored anew."""
        self._places: dict[str, set[tuple[int, int]]] = defaultdict(set)
        """By message id, where it is now."""
        self.states: dict[tuple[str, str], list[bytes | None]] = defaultdict(lambda: [None])
        """Of sessions, by entity and session: all there were."""
        self.on_stored: Callable[[MessageRow, str], None] = lambda _row, _path: None
        self.on_removed: Callable[[MessageRow, str], None] = lambda _row, _path: None

    def write(self, number: int, changes: tuple[Change, ...]) -> tuple[list[MessageRow], tuple[StateGrowth, ...]]:
        self.paths |= {change.row.entity_id: change.row.path for change in changes if isinstance(change, PutEntity)}
        deleted = [row for each in changes if isinstance(each, DeleteMessages) for row in self._rows_of(each)]
        for change in changes:
            match change:
                case InsertMessages(rows) | InsertCopies(rows):
                    for row in rows:
                        self._note(row)
                case ReplaceMessage(row):
                    self._note(row)
                case PutSessionState(entity_id, session_id, state):
                    self.states[self.paths[entity_id], session_id].append(state)
                case _:
                    pass
        gone = {row.message_id for row in deleted}
        for change in changes:
            if isinstance(change, InsertMessages):
                self.copies.update(row.message_id or "" for row in change.rows if row.message_id not in gone)
        moved = {row.message_id for each in changes if isinstance(each, InsertMessages) for row in each.rows}
        written = super().write(number, changes)
        for row in deleted:
            self._places[row.message_id or ""].discard((row.entity_id, row.sequence))
            if row.message_id not in moved:
                self.events[row.message_id or ""].append(Removed(self.paths[row.entity_id], row.sequence))
                self.on_removed(row, self.paths[row.entity_id])
        return written

    def _rows_of(self, deletion: DeleteMessages) -> tuple[MessageRow, ...]:
        return self.read(NamedRows(deletion.entity_id, deletion.sequences)).rows

    def _note(self, row: MessageRow) -> None:
        stored = Stored(self.paths[row.entity_id], row.sequence, row.state, row.delivery_count)
        self.events[row.message_id or ""].append(stored)
        self._places[row.message_id or ""].add((row.entity_id, row.sequence))
        self.on_stored(row, stored.path)

    def holds(self, message_id: str) -> bool:
        """Whether the message is there, wherever and in whatever state."""
        return bool(self._places[message_id])
