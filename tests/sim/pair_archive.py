"""The disk of one namespace of a pair, which remembers where every message ever was."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from sim.disk import Disk
from twinbus.broker.store.api import Change, DropEntity, InsertMessages, MessageRow, PutEntity, StateGrowth


class Copy(NamedTuple):
    """A message that became durable. Its entity may be gone since, and the message with it."""

    path: str
    row: MessageRow


class Archive(Disk):
    def __init__(self) -> None:
        super().__init__()
        self.copies: dict[str, list[Copy]] = defaultdict(list)
        """By message id."""
        self.dropped: set[int] = set()
        """Entities that were deleted."""
        self._paths: dict[int, str] = {}

    def write(self, number: int, changes: tuple[Change, ...]) -> tuple[list[MessageRow], tuple[StateGrowth, ...]]:
        written = super().write(number, changes)
        for change in changes:
            match change:
                case InsertMessages(rows):
                    for row in rows:
                        self.copies[row.message_id or ""].append(Copy(self._paths[row.entity_id], row))
                case PutEntity(row):
                    self._paths[row.entity_id] = row.path
                case DropEntity(entity_id):
                    self.dropped.add(entity_id)
        return written

    def missing(self, now_ms: int) -> list[Copy]:
        """Copies that are no longer there though their entity is and their time is not over: messages were lost."""
        there = {(row.entity_id, row.sequence) for row in self.all_rows()}
        return [
            copy
            for copies in self.copies.values()
            for copy in copies
            if copy.row.entity_id not in self.dropped
            and (copy.row.entity_id, copy.row.sequence) not in there
            and not _has_expired(copy.row, now_ms)
        ]


def _has_expired(row: MessageRow, now_ms: int) -> bool:
    return row.expires_at_ms is not None and row.expires_at_ms <= now_ms
