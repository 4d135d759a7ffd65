"""A store in memory, for tests and for namespaces without durability.

It keeps the contract of `api.py` except durability, in the caller's thread: by default a set is committed and reported
before `submit` returns. With `by_hand=True` sets wait for `commit` or `fail`, so that tests can look in between.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Generic, TypeVar, assert_never

from twinbus.broker.store.api import (
    Change,
    CommitFailed,
    Committed,
    DueRows,
    EntityRow,
    EntitySummary,
    ExpiredRows,
    HeadRows,
    IdsRead,
    KnownIds,
    KnownSessions,
    MessageRow,
    MessageState,
    NamedRows,
    PutSessionState,
    RangeRows,
    Read,
    ReadRequest,
    Report,
    RowRequest,
    RowsRead,
    SessionsRead,
    SessionStateOf,
    StateRead,
    StoredNamespace,
    WaitingSessions,
    state_size,
)
from twinbus.broker.store.merged_changes import ChangeRefused, Counters, MergedChanges

Ordered = TypeVar("Ordered", int, tuple[int, int])


class SortedKeys(Generic[Ordered]):
    """Sorted keys. Adding at the end and removing are cheap; removed keys are deleted in bulk."""

    def __init__(self) -> None:
        self._keys: list[Ordered] = []
        self._live: set[Ordered] = set()

    def add(self, key: Ordered) -> None:
        self._live.add(key)
        if not self._keys or key > self._keys[-1]:
            self._keys.append(key)
        elif self._keys[bisect_left(self._keys, key)] != key:
            insort(self._keys, key)

    def discard(self, key: Ordered) -> None:
        self._live.discard(key)
        if len(self._keys) > 2 * len(self._live) + 64:
            self._keys = [key for key in self._keys if key in self._live]

    def since(self, start: Ordered) -> Iterator[Ordered]:
        """Keys from this one upwards."""
        keys = self._keys
        return (keys[at] for at in range(bisect_left(keys, start), len(keys)) if keys[at] in self._live)

    def first(self) -> Ordered | None:
        return next((key for key in self._keys if key in self._live), None)


class _Rows:
    """The rows of one entity."""

    def __init__(self) -> None:
        self.by_sequence: dict[int, MessageRow] = {}
        self.sequences: SortedKeys[int] = SortedKeys()
        self.expiries: SortedKeys[tuple[int, int]] = SortedKeys()
        self.dues: SortedKeys[tuple[int, int]] = SortedKeys()

    def add(self, row: MessageRow) -> None:
        self.by_sequence[row.sequence] = row
        self.sequences.add(row.sequence)
        for times, time_ms in self._times(row):
            times.add((time_ms, row.sequence))

    def remove(self, sequence: int) -> None:
        row = self.by_sequence.pop(sequence)
        self.sequences.discard(sequence)
        for times, time_ms in self._times(row):
            times.discard((time_ms, sequence))

    def _times(self, row: MessageRow) -> Iterator[tuple[SortedKeys[tuple[int, int]], int]]:
        if row.state == MessageState.ACTIVE and row.expires_at_ms is not None:
            yield self.expiries, row.expires_at_ms
        if row.state == MessageState.SCHEDULED and row.due_at_ms is not None:
            yield self.dues, row.due_at_ms

    def summary(self, next_sequence: int) -> EntitySummary:
        states = [row.state for row in self.by_sequence.values()]
        at_once = [row for row in self.by_sequence.values() if row.due_at_ms == 0]
        active = (at for at in self.sequences.since(0) if self.by_sequence[at].state == MessageState.ACTIVE)
        return EntitySummary(
            active=states.count(MessageState.ACTIVE),
            deferred=states.count(MessageState.DEFERRED),
            scheduled=states.count(MessageState.SCHEDULED),
            payload_bytes=sum(len(row.payload) for row in self.by_sequence.values()),
            first_active_sequence=next(active, None),
            first_expiry_ms=(self.expiries.first() or (None,))[0],
            first_due_ms=(self.dues.first() or (None,))[0],
            next_sequence=next_sequence,
            due_at_once=len(at_once),
            due_at_once_bytes=sum(len(row.payload) for row in at_once),
        )


class MemoryStore:
    """Implements `Store`. A closed one can be loaded and started again and still has its rows."""

    def __init__(self, *, by_hand: bool = False) -> None:
        self._by_hand = by_hand
        self._counters = Counters()
        self._entities: dict[int, EntityRow] = {}
        self._rows: dict[int, _Rows] = {}
        self._states: dict[int, dict[str, PutSessionState]] = {}
        self._ids: dict[int, dict[str, int]] = {}
        self._ids_kept: dict[int, int] = {}
        """By entity: how many ids were left after the last cleanup."""
        self._waiting: deque[tuple[int, tuple[Change, ...]]] = deque()
        self._next_number = 1
        self._failed = False
        self._report: Callable[[Report], None] | None = None
        self._outbox: deque[Report] = deque()
        self._reporting = False

    def load(self) -> StoredNamespace:
        """What is stored; ready for the next set after a failure."""
        self._waiting.clear()
        self._failed = False
        self._next_number = self._counters.last_number + 1
        sequences = self._counters.next_sequences
        summaries = {entity_id: self._summary(entity_id, at) for entity_id, at in sequences.items()}
        entities = tuple(self._entities[entity_id] for entity_id in sorted(self._entities))
        return StoredNamespace(entities, summaries, self._counters.next_entity_id, self._counters.last_number)

    def _summary(self, entity_id: int, next_sequence: int) -> EntitySummary:
        puts = self._states.get(entity_id, {}).values()
        size_bytes = sum(state_size(put.session_id, put.state or b"") for put in puts)
        summary = self._rows[entity_id].summary(next_sequence)
        return summary._replace(states=len(puts), state_bytes=size_bytes)

    def start(self, report: Callable[[Report], None]) -> None:
        """Send reports there from now on, from inside the calls that cause them."""
        self._report = report

    def submit(self, number: int, changes: tuple[Change, ...]) -> None:
        """Commit a change set and report it, or keep it for `commit` or `fail`."""
        if self._failed:
            return
        if number != self._next_number:
            raise ValueError(f"change set {self._next_number} comes next, not {number}")
        self._next_number += 1
        self._waiting.append((number, changes))
        if not self._by_hand:
            self.commit()

    @property
    def waiting_sets(self) -> int:
        """How many change sets are submitted and not committed."""
        return len(self._waiting)

    def request(self, request: ReadRequest) -> None:
        """Read and report."""
        self._send_report(self._read(request))

    def close(self) -> None:
        """Commit what waits, report it, and report nothing more."""
        if not self._failed:
            self.commit()
        self._report = None

    def commit(self, sets: int | None = None) -> None:
        """Commit that many of the waiting sets (None: all) and report the last."""
        taken = [self._waiting.popleft() for _ in range(len(self._waiting) if sets is None else sets)]
        if not taken:
            return
        effect = MergedChanges(self._counters)
        try:
            for _, changes in taken:
                effect.add(changes)
            self._check(effect)
        except ChangeRefused as refusal:
            self._refuse(taken[0][0], str(refusal))
            return
        states = effect.state_growth(self._stored_states(effect))
        self._apply(effect)
        self._counters.advance(taken[-1][0], effect)
        self._send_report(Committed(taken[-1][0], states))

    def fail(self, reason: str) -> None:
        """Behave as if the disk had refused the waiting sets, or the next one if none waits."""
        self._refuse(self._waiting[0][0] if self._waiting else self._next_number, reason)

    def _refuse(self, number: int, reason: str) -> None:
        self._failed = True
        self._waiting.clear()
        self._send_report(CommitFailed(number, reason))

    def _check(self, effect: MergedChanges) -> None:
        for entity_id, sequence in effect.removed:
            if sequence not in self._rows[entity_id].by_sequence:
                raise ChangeRefused(f"row {sequence} of entity {entity_id} is not stored")
        for entity_id, sequence in effect.unverified:
            if entity_id in self._rows and sequence in self._rows[entity_id].by_sequence:
                raise ChangeRefused(f"row {sequence} of entity {entity_id} is stored already")

    def _stored_states(self, effect: MergedChanges) -> Iterator[tuple[int, int, int]]:
        for entity_id, session_id in effect.states:
            put = self._states.get(entity_id, {}).get(session_id)
            if put is not None:
                yield entity_id, 1, state_size(session_id, put.state or b"")

    def _apply(self, effect: MergedChanges) -> None:
        for entity_id, sequence in effect.removed:
            self._rows[entity_id].remove(sequence)
        for entity_id in effect.next_sequences:
            self._rows.setdefault(entity_id, _Rows())
        for row in effect.rows.values():
            if row.entity_id not in effect.dropped:
                self._rows[row.entity_id].add(row)
        for (entity_id, session_id), change in effect.states.items():
            states = self._states.setdefault(entity_id, {})
            states[session_id] = change
            if change.state is None:
                del states[session_id]
        for (entity_id, message_id), until_ms in effect.remembered_ids.items():
            self._ids.setdefault(entity_id, {})[message_id] = until_ms
        for entity_id, now_ms in effect.remembered_at_ms.items():
            ids = self._ids[entity_id]
            if len(ids) > 2 * self._ids_kept.get(entity_id, 0) + 16:  # rarely: it looks at all of them
                self._ids[entity_id] = {one: until_ms for one, until_ms in ids.items() if until_ms > now_ms}
                self._ids_kept[entity_id] = len(self._ids[entity_id])
        self._entities.update(effect.entities)
        for entity_id in effect.dropped:
            self._entities.pop(entity_id, None)
            self._rows.pop(entity_id, None)
            self._states.pop(entity_id, None)
            self._ids.pop(entity_id, None)
            self._ids_kept.pop(entity_id, None)

    def _read(self, request: ReadRequest) -> Read:
        as_of = self._counters.last_number
        match request:
            case WaitingSessions() | KnownSessions():
                return SessionsRead(request, self._sessions(request), as_of)
            case SessionStateOf():
                put = self._states.get(request.entity_id, {}).get(request.session_id)
                return StateRead(request, None if put is None else put.state, as_of)
            case KnownIds(entity_id, wanted, now_ms):
                ids = self._ids.get(entity_id, {})
                return IdsRead(request, frozenset(one for one in wanted if ids.get(one, 0) > now_ms), as_of)
            case HeadRows() | RangeRows() | NamedRows() | ExpiredRows() | DueRows():
                return self._read_rows(request)
            case _:
                assert_never(request)

    def _sessions(self, request: WaitingSessions | KnownSessions) -> tuple[str, ...]:
        rows = self._rows[request.entity_id].by_sequence.values() if request.entity_id in self._rows else ()
        states = self._states.get(request.entity_id, {})
        if isinstance(request, WaitingSessions):
            waiting = {
                row.session_id for row in rows if row.state == MessageState.ACTIVE and row.session_id is not None
            }
            free = waiting - set(request.excluded)
            fitting = (name for name in free if request.after is None or name > request.after)
            return tuple(sorted(fitting))[: request.most]
        if request.updated_after_ms is not None:
            known = {name for name, put in states.items() if put.updated_at_ms > request.updated_after_ms}
        else:
            known = {row.session_id for row in rows if row.session_id is not None} | states.keys()
        return tuple(sorted(known))[request.skip : request.skip + request.most]

    def _read_rows(self, request: RowRequest) -> RowsRead:
        rows = self._rows.get(request.entity_id) or _Rows()
        as_of = self._counters.last_number
        if isinstance(request, HeadRows | RangeRows):
            chosen, complete = _cut(_from_sequence(rows, request), request.rows_max, request.bytes_max)
            return RowsRead(request, chosen, complete, None, as_of)
        if isinstance(request, NamedRows):
            named = (rows.by_sequence.get(sequence) for sequence in sorted(set(request.sequences)))
            return RowsRead(request, tuple(row for row in named if row), True, None, as_of)
        chosen, complete, next_time_ms = _by_time(rows, request)
        return RowsRead(request, chosen, complete, next_time_ms, as_of)

    def _send_report(self, report: Report) -> None:
        """Report now, or after the current report if a listener's own call caused this one."""
        self._outbox.append(report)
        if self._reporting:
            return
        self._reporting = True
        try:
            while self._outbox:
                waiting = self._outbox.popleft()
                if self._report is not None:
                    self._report(waiting)
        finally:
            self._reporting = False


def _from_sequence(rows: _Rows, request: HeadRows | RangeRows) -> Iterator[MessageRow]:
    found = (rows.by_sequence[at] for at in rows.sequences.since(request.from_sequence))
    if isinstance(request, HeadRows):
        found = (row for row in found if row.state == MessageState.ACTIVE)
    if request.session_id is not None:
        found = (row for row in found if row.session_id == request.session_id)
    return found


def _by_time(rows: _Rows, request: ExpiredRows | DueRows) -> tuple[tuple[MessageRow, ...], bool, int | None]:
    times = rows.expiries if isinstance(request, ExpiredRows) else rows.dues
    behind = times.since((request.after_ms, request.after_sequence + 1))
    found = list(islice(behind, max(request.rows_max, 1) + 1))
    ripe = (rows.by_sequence[sequence] for time_ms, sequence in found if time_ms <= request.until_ms)
    chosen, complete = _cut(ripe, request.rows_max, request.bytes_max)
    next_time_ms = found[len(chosen)][0] if len(found) > len(chosen) else None
    return chosen, complete, next_time_ms


def _cut(found: Iterable[MessageRow], rows_max: int, bytes_max: int) -> tuple[tuple[MessageRow, ...], bool]:
    """As many rows as the request allows, at least one, and whether that was all."""
    chosen: list[MessageRow] = []
    size = 0
    for row in found:
        size += len(row.payload)
        if chosen and (len(chosen) >= rows_max or size > bytes_max):
            return tuple(chosen), False
        chosen.append(row)
    return tuple(chosen), True
