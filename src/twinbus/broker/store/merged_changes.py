"""Several change sets, merged into their net effect.

Group commit writes many sets in one transaction. Change by change that would be thousands of small statements; merged
first, it is one bulk delete and one bulk insert, in whatever order inserts, replacements and deletes came. Merging also
finds an invalid set (a key stored twice, a row removed twice, a row of an unknown entity): then the machine's picture
differs from the store, and the set is refused instead of written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_never

from twinbus.broker.store.api import (
    AdvanceSequence,
    Change,
    DeleteMessages,
    DropEntity,
    EntityRow,
    InsertCopies,
    InsertMessages,
    MessageRow,
    PutEntity,
    PutSessionState,
    RememberMessageIds,
    ReplaceMessage,
    StateGrowth,
    state_size,
)

Key = tuple[int, int]
"""Entity id and sequence."""


class ChangeRefused(Exception):
    """A change does not fit what is stored; the text says which."""


@dataclass(slots=True)
class Counters:
    """The numbers a store has reached."""

    last_number: int = 0
    next_entity_id: int = 1
    next_sequences: dict[int, int] = field(default_factory=dict)
    """One entry for every entity there is."""

    def advance(self, number: int, effect: MergedChanges) -> None:
        """Count what was committed, up to the given set."""
        self.last_number = number
        self.next_entity_id = effect.next_entity_id
        self.next_sequences.update(effect.next_sequences)
        for entity_id in effect.dropped:
            self.next_sequences.pop(entity_id, None)


class MergedChanges:
    """To write it: remove `removed`, store `rows`, put `states`, `remembered_ids` and `entities`, drop `dropped`."""

    __slots__ = (
        "_before",
        "copies",
        "dropped",
        "entities",
        "next_entity_id",
        "next_sequences",
        "remembered_at_ms",
        "remembered_ids",
        "removed",
        "rows",
        "size",
        "states",
        "unverified",
    )

    def __init__(self, before: Counters) -> None:
        self._before = before
        self.rows: dict[Key, MessageRow] = {}
        self.copies: list[tuple[MessageRow, ...]] = []
        """Rows that came with the same payload. Some may have been removed or replaced since."""
        self.removed: set[Key] = set()
        """Rows that must be in the store now."""
        self.unverified: list[Key] = []
        """Keys in `rows` below their entity's next sequence: the writer must check that they are free."""
        self.states: dict[tuple[int, str], PutSessionState] = {}
        """The last one of each session."""
        self.remembered_ids: dict[tuple[int, str], int] = {}
        """By entity and id: until when it is remembered."""
        self.remembered_at_ms: dict[int, int] = {}
        """By entity: the time of the change, to delete ids that are over by then."""
        self.entities: dict[int, EntityRow] = {}
        self.dropped: set[int] = set()
        self.next_sequences: dict[int, int] = {}
        self.next_entity_id = before.next_entity_id
        self.size = 0
        """Payload bytes so far."""

    @property
    def row_count(self) -> int:
        """How many rows writing it will touch."""
        return len(self.rows) + len(self.removed)

    @property
    def growth_bytes(self) -> int:
        """Payload bytes that writing it adds, roughly: none if as many rows go as come."""
        return self.size if len(self.rows) > len(self.removed) else 0

    def add(self, changes: Iterable[Change]) -> None:
        """Merge one change set. After `ChangeRefused` discard this object."""
        for change in changes:
            if isinstance(change, InsertMessages):
                self._insert(change.rows)
            elif isinstance(change, DeleteMessages):
                self._delete(change.entity_id, change.sequences)
            elif isinstance(change, ReplaceMessage):
                self._replace(change.row)
            elif isinstance(change, PutEntity):
                self._put(change.row)
            elif isinstance(change, InsertCopies):
                self._insert(change.rows)
                self.size -= (len(change.rows) - 1) * len(change.rows[0].payload)
                self.copies.append(change.rows)
            elif isinstance(change, PutSessionState):
                self._next_sequence(change.entity_id)
                self.states[change.entity_id, change.session_id] = change
                self.size += len(change.state or b"")
            elif isinstance(change, RememberMessageIds):
                self._next_sequence(change.entity_id)
                self.remembered_ids |= {(change.entity_id, one): change.until_ms for one in change.ids}
                self.remembered_at_ms[change.entity_id] = change.now_ms
            elif isinstance(change, AdvanceSequence):
                self.next_sequences[change.entity_id] = max(self._next_sequence(change.entity_id), change.next_sequence)
            elif isinstance(change, DropEntity):
                self._drop(change)
            else:
                assert_never(change)

    def _insert(self, rows: Iterable[MessageRow]) -> None:
        stored, next_sequences, size = self.rows, self.next_sequences, 0
        for row in rows:
            key = entity_id, sequence = row[:2]
            next_sequence = next_sequences.get(entity_id) or self._next_sequence(entity_id)
            if sequence >= next_sequence:
                next_sequences[entity_id] = sequence + 1
            elif key in stored:
                raise ChangeRefused(f"row {sequence} of entity {entity_id} is stored already")
            elif key not in self.removed:
                self.unverified.append(key)
            stored[key] = row
            size += len(row.payload)
        self.size += size

    def _delete(self, entity_id: int, sequences: Iterable[int]) -> None:
        self._next_sequence(entity_id)
        stored = self.rows
        for sequence in sequences:
            key = (entity_id, sequence)
            if key in stored:  # not in the store yet, or already in `removed` because it was replaced
                del stored[key]
            else:
                self._remove(key)

    def _replace(self, row: MessageRow) -> None:
        self._next_sequence(row.entity_id)
        key = row[:2]
        if key not in self.rows:
            self._remove(key)
        self.rows[key] = row
        self.size += len(row.payload)

    def _remove(self, key: Key) -> None:
        if key in self.removed:
            raise ChangeRefused(f"row {key[1]} of entity {key[0]} is not stored")
        self.removed.add(key)

    def _put(self, row: EntityRow) -> None:
        entity_id = row.entity_id
        if entity_id in self.dropped:
            raise ChangeRefused(f"entity {entity_id} was dropped and its id cannot be used again")
        if entity_id not in self._before.next_sequences:
            self.next_sequences.setdefault(entity_id, 1)
        self.entities[entity_id] = row
        self.next_entity_id = max(self.next_entity_id, entity_id + 1)

    def _drop(self, change: DropEntity) -> None:
        self._next_sequence(change.entity_id)
        self.dropped.add(change.entity_id)
        self.entities.pop(change.entity_id, None)
        self.next_sequences.pop(change.entity_id, None)

    def state_growth(self, stored: Iterable[tuple[int, int, int]]) -> tuple[StateGrowth, ...]:
        """By how much `states` grow; `stored` has entity, count and size of the states that they replace."""
        grown = {entity_id: [0, 0] for entity_id, _ in self.states if entity_id not in self.dropped}
        for entity_id, count, size_bytes in stored:
            if entity_id in grown:
                grown[entity_id][0] -= count
                grown[entity_id][1] -= size_bytes
        for (entity_id, session_id), change in self.states.items():
            if change.state is not None and entity_id in grown:
                grown[entity_id][0] += 1
                grown[entity_id][1] += state_size(session_id, change.state)
        return tuple([StateGrowth(entity_id, *by) for entity_id, by in grown.items()])

    def shared(self) -> list[list[Key]]:
        """Groups of at least two rows that share one stored payload, as keys."""
        groups = ([row[:2] for row in rows if self.rows.get(row[:2]) is row] for rows in self.copies)
        return [group for group in groups if len(group) > 1]

    def _next_sequence(self, entity_id: int) -> int:
        known = self.next_sequences.get(entity_id) or self._before.next_sequences.get(entity_id)
        if known is None or entity_id in self.dropped:
            raise ChangeRefused(f"there is no entity {entity_id}")
        return known
