"""Both stores beside a model of two dicts: whatever is submitted, read, refused or reopened, they agree."""

from __future__ import annotations

import tempfile
from pathlib import Path
from queue import SimpleQueue

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from seeds import examples

from twinbus.broker.store.api import (
    AdvanceSequence,
    Change,
    CommitFailed,
    Committed,
    DeleteMessages,
    DropEntity,
    DueRows,
    EntityRow,
    EntitySummary,
    ExpiredRows,
    HeadRows,
    InsertCopies,
    InsertMessages,
    KnownSessions,
    MessageRow,
    MessageState,
    NamedRows,
    PutEntity,
    PutSessionState,
    RangeRows,
    ReplaceMessage,
    Report,
    RowRequest,
    RowsRead,
    SessionsRead,
    SessionStateOf,
    StateRead,
    Store,
    StoredNamespace,
    WaitingSessions,
)
from twinbus.broker.store.memory import MemoryStore
from twinbus.broker.store.sqlite import SqliteStore
from twinbus.broker.store.writer import BatchLimits

WAIT_S = 30
# A handful of telling values meet more often than random ones: equal times, equal sizes, a page and more.
TIMES = st.sampled_from([0, 1, 2, 5, 1 << 42])
TEXTS = st.none() | st.sampled_from(["", "a", 'x"\\\x00\n', "é🚌"]) | st.text(max_size=5)
NAMES = st.sampled_from(["", "a", "é🚌"])
KINDS = ["insert", "insert", "delete", "replace", "copies", "state", "advance"]
PAYLOADS = st.sampled_from([b"", b"\x00", b"\x00\xff\x00", bytes(100), b"\x80" * 9000])


@st.composite
def message_rows(draw: st.DrawFn, entity_id: int, sequence: int) -> MessageRow:
    state = draw(st.sampled_from(MessageState))
    due = draw(TIMES) if state == MessageState.SCHEDULED else None
    numbers = st.integers(0, 2**63 - 1)
    return MessageRow(
        entity_id,
        sequence,
        state,
        draw(numbers),
        draw(TIMES),
        draw(st.none() | TIMES),
        due,
        draw(st.integers(0, 10)),
        draw(TEXTS),
        draw(TEXTS),
        draw(TEXTS),
        draw(PAYLOADS),
    )


class StoreBesideModel(RuleBasedStateMachine):
    """Subclasses open a store."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        self.next_entity_id = 1
        self.entities: dict[int, EntityRow] = {}
        self.next_sequences: dict[int, int] = {}
        self.rows: dict[tuple[int, int], MessageRow] = {}
        self.states: dict[tuple[int, str], PutSessionState] = {}
        self.reports: SimpleQueue[Report] = SimpleQueue()
        self.reported = 0
        self.store = self.opened()

    def opened(self) -> Store:
        raise NotImplementedError

    @initialize()
    def begin(self) -> None:
        self.loaded_as_modelled()
        self.store.start(self.reports.put)

    # --- changes, handed over without waiting so that batches form

    @rule(data=st.data())
    def put_entity(self, data: st.DataObject) -> None:
        entity_id = data.draw(st.sampled_from([*self.entities, self.next_entity_id]))
        texts = st.text(max_size=5)
        row = EntityRow(entity_id, data.draw(texts), "queue", data.draw(st.none() | st.just(1)), data.draw(texts), 1, 2)
        self.entities[entity_id] = row
        self.next_sequences.setdefault(entity_id, 1)
        self.next_entity_id = max(self.next_entity_id, entity_id + 1)
        self.submit(PutEntity(row))

    @precondition(lambda self: self.entities)
    @rule(data=st.data())
    def drop_entity(self, data: st.DataObject) -> None:
        entity_id = data.draw(st.sampled_from(sorted(self.entities)))
        del self.entities[entity_id], self.next_sequences[entity_id]
        self.rows = {key: row for key, row in self.rows.items() if key[0] != entity_id}
        self.states = {key: state for key, state in self.states.items() if key[0] != entity_id}
        self.submit(DropEntity(entity_id))

    @precondition(lambda self: self.entities)
    @rule(data=st.data(), kinds=st.lists(st.sampled_from(KINDS), max_size=6))
    def change_messages(self, data: st.DataObject, kinds: list[str]) -> None:
        changes: list[Change] = []
        for kind in kinds:
            if kind == "insert":
                changes.append(self.insert(data))
            elif kind == "copies":
                changes.append(self.insert_copies(data))
            elif kind == "state":
                changes.append(self.put_state(data))
            elif kind == "advance":
                changes.append(self.advance(data))
            elif self.rows:
                changes.append(self.delete(data) if kind == "delete" else self.replace(data))
        self.submit(*changes)

    def insert(self, data: st.DataObject) -> InsertMessages:
        made = []
        for _ in range(data.draw(st.integers(0, 5))):
            entity_id = data.draw(st.sampled_from(sorted(self.entities)))
            free = [one for one in range(1, self.next_sequences[entity_id]) if (entity_id, one) not in self.rows]
            following = self.next_sequences[entity_id]
            sequence = data.draw(st.sampled_from([following, following, following + 3, *free[:1]]))
            row = data.draw(message_rows(entity_id, sequence))
            self.rows[entity_id, sequence] = row
            self.next_sequences[entity_id] = max(following, sequence + 1)
            made.append(row)
        return InsertMessages(tuple(made))

    def insert_copies(self, data: st.DataObject) -> InsertCopies:
        payload = data.draw(PAYLOADS)
        made = []
        for entity_id in data.draw(st.lists(st.sampled_from(sorted(self.entities)), min_size=1, max_size=4)):
            sequence = self.next_sequences[entity_id]
            self.next_sequences[entity_id] += 1
            made.append(data.draw(message_rows(entity_id, sequence))._replace(payload=payload))
            self.rows[entity_id, sequence] = made[-1]
        return InsertCopies(tuple(made))

    def put_state(self, data: st.DataObject) -> PutSessionState:
        entity_id = data.draw(st.sampled_from(sorted(self.entities)))
        change = PutSessionState(entity_id, data.draw(NAMES), data.draw(st.none() | PAYLOADS), data.draw(TIMES))
        self.states[entity_id, change.session_id] = change
        return change

    def advance(self, data: st.DataObject) -> AdvanceSequence:
        entity_id = data.draw(st.sampled_from(sorted(self.entities)))
        change = AdvanceSequence(entity_id, data.draw(st.integers(1, 12)))
        self.next_sequences[entity_id] = max(self.next_sequences[entity_id], change.next_sequence)
        return change

    def delete(self, data: st.DataObject) -> DeleteMessages:
        entity_id = data.draw(st.sampled_from(sorted({key[0] for key in self.rows})))
        of_entity = [sequence for owner, sequence in self.rows if owner == entity_id]
        sequences = data.draw(st.lists(st.sampled_from(of_entity), unique=True))
        for sequence in sequences:
            del self.rows[entity_id, sequence]
        return DeleteMessages(entity_id, tuple(sequences))

    def replace(self, data: st.DataObject) -> ReplaceMessage:
        key = data.draw(st.sampled_from(sorted(self.rows)))
        self.rows[key] = data.draw(message_rows(*key))
        return ReplaceMessage(self.rows[key])

    # --- looking

    @precondition(lambda self: self.next_entity_id > 1)
    @rule(data=st.data(), rows_max=st.integers(1, 4), bytes_max=st.sampled_from([1, 100, 101, 9000, 10**6]))
    def read(self, data: st.DataObject, rows_max: int, bytes_max: int) -> None:
        entity_id = data.draw(st.integers(1, self.next_entity_id))
        start = data.draw(st.integers(0, self.next_sequences.get(entity_id, 1)))
        sequences = tuple(data.draw(st.lists(st.integers(0, 12), max_size=6)))
        until = data.draw(TIMES)
        after = data.draw(st.sampled_from([(-1, 0), (data.draw(TIMES), start)]))
        requests: list[RowRequest] = [
            HeadRows(entity_id, start, rows_max, bytes_max),
            RangeRows(entity_id, start, rows_max, bytes_max),
            NamedRows(entity_id, sequences),
            ExpiredRows(entity_id, until, rows_max, bytes_max, *after),
            DueRows(entity_id, until, rows_max, bytes_max, *after),
            HeadRows(entity_id, start, rows_max, bytes_max, data.draw(NAMES)),
            RangeRows(entity_id, start, rows_max, bytes_max, data.draw(NAMES)),
        ]
        request = data.draw(st.sampled_from(requests))
        self.settle()
        self.store.request(request)
        assert self.reports.get(timeout=WAIT_S) == expected(request, self.rows_of(entity_id), self.number)

    @precondition(lambda self: self.next_entity_id > 1)
    @rule(data=st.data(), name=NAMES, most=st.integers(1, 3), skip=st.integers(0, 2))
    def read_sessions(self, data: st.DataObject, name: str, most: int, skip: int) -> None:
        entity_id = data.draw(st.integers(1, self.next_entity_id))
        rows = [row for row in self.rows_of(entity_id) if row.session_id is not None]
        states = {key[1]: put for key, put in self.states.items() if key[0] == entity_id and put.state is not None}
        waiting = sorted({row.session_id or "" for row in rows if row.state == MessageState.ACTIVE})
        known = sorted({row.session_id or "" for row in rows} | states.keys())
        since = data.draw(TIMES)
        updated = sorted(each for each, put in states.items() if put.updated_at_ms > since)
        behind = [each for each in waiting if each > name]
        put = states.get(name)
        answers: list[Report] = [
            SessionsRead(WaitingSessions(entity_id, None, (), most), tuple(waiting[:most]), self.number),
            SessionsRead(WaitingSessions(entity_id, name, (), most), tuple(behind[:most]), self.number),
            SessionsRead(KnownSessions(entity_id, None, skip, most), tuple(known[skip : skip + most]), self.number),
            SessionsRead(KnownSessions(entity_id, since, skip, most), tuple(updated[skip : skip + most]), self.number),
            StateRead(SessionStateOf(entity_id, name), None if put is None else put.state, self.number),
        ]
        answer = data.draw(st.sampled_from(answers))
        assert isinstance(answer, SessionsRead | StateRead)
        self.settle()
        self.store.request(answer.request)
        assert self.reports.get(timeout=WAIT_S) == answer

    @rule()
    def load_again(self) -> None:
        self.settle()
        self.loaded_as_modelled()

    @rule()
    def close_and_reopen(self) -> None:
        self.store.close()
        self.settle()
        self.store = self.opened()
        self.loaded_as_modelled()
        self.store.start(self.reports.put)

    @precondition(lambda self: self.entities)
    @rule(data=st.data())
    def a_set_that_does_not_fit_changes_nothing(self, data: st.DataObject) -> None:
        self.settle()
        entity_id = data.draw(st.sampled_from(sorted(self.entities)))
        beyond = self.next_sequences[entity_id] + 5
        fine = InsertMessages((data.draw(message_rows(entity_id, beyond)),))
        wrong: list[Change] = [DeleteMessages(entity_id, (beyond + 1,)), fine, DropEntity(self.next_entity_id)]
        wrong += [InsertMessages((row,)) for row in self.rows.values()]
        self.store.submit(self.number + 1, (fine, data.draw(st.sampled_from(wrong))))
        failed = self.reports.get(timeout=WAIT_S)
        assert isinstance(failed, CommitFailed)
        assert failed.number == self.number + 1
        self.loaded_as_modelled()

    @invariant()
    def reports_never_run_ahead(self) -> None:
        assert self.reported <= self.number

    def teardown(self) -> None:
        self.store.close()

    # --- the model

    def submit(self, *changes: Change) -> None:
        self.number += 1
        self.store.submit(self.number, changes)

    def settle(self) -> None:
        """Wait until everything submitted is durable."""
        while self.reported < self.number:
            report = self.reports.get(timeout=WAIT_S)
            assert isinstance(report, Committed), report
            assert self.reported < report.number <= self.number
            self.reported = report.number

    def rows_of(self, entity_id: int) -> list[MessageRow]:
        return [row for key, row in sorted(self.rows.items()) if key[0] == entity_id]

    def state_sizes(self, entity_id: int) -> list[int]:
        puts = [put for key, put in self.states.items() if key[0] == entity_id]
        return [len(put.session_id.encode()) + len(put.state) for put in puts if put.state is not None]

    def loaded_as_modelled(self) -> None:
        summaries = {
            one: summary(self.rows_of(one), following)._replace(states=len(sizes), state_bytes=sum(sizes))
            for one, following in self.next_sequences.items()
            for sizes in [self.state_sizes(one)]
        }
        entities = tuple(row for _, row in sorted(self.entities.items()))
        assert self.store.load() == StoredNamespace(entities, summaries, self.next_entity_id, self.number)


def summary(rows: list[MessageRow], next_sequence: int) -> EntitySummary:
    active = [row for row in rows if row.state == MessageState.ACTIVE]
    expiries = [row.expires_at_ms for row in active if row.expires_at_ms is not None]
    dues = [row.due_at_ms for row in rows if row.due_at_ms is not None]
    at_once = [row for row in rows if row.due_at_ms == 0]
    return EntitySummary(
        len(active),
        sum(row.state == MessageState.DEFERRED for row in rows),
        sum(row.state == MessageState.SCHEDULED for row in rows),
        sum(len(row.payload) for row in rows),
        min((row.sequence for row in active), default=None),
        min(expiries, default=None),
        min(dues, default=None),
        next_sequence,
        due_at_once=len(at_once),
        due_at_once_bytes=sum(len(row.payload) for row in at_once),
    )


def expected(request: RowRequest, rows: list[MessageRow], as_of: int) -> RowsRead:
    if isinstance(request, NamedRows):
        return RowsRead(request, tuple(row for row in rows if row.sequence in request.sequences), True, None, as_of)
    if isinstance(request, HeadRows | RangeRows):
        any_state = isinstance(request, RangeRows)
        if request.session_id is not None:
            rows = [row for row in rows if row.session_id == request.session_id]
        fitting = [row for row in rows if row.sequence >= request.from_sequence and (any_state or row.state == 0)]
        count = fitting_count(fitting, request.rows_max, request.bytes_max)
        return RowsRead(request, tuple(fitting[:count]), count == len(fitting), None, as_of)
    timed = sorted((time, row.sequence, row) for row in rows if (time := time_of(request, row)) is not None)
    timed = [each for each in timed if each[:2] > (request.after_ms, request.after_sequence)]
    ripe = [row for time, _, row in timed if time <= request.until_ms]
    chosen = ripe[: fitting_count(ripe, request.rows_max, request.bytes_max)]
    next_time_ms = timed[len(chosen)][0] if len(chosen) < len(timed) else None
    return RowsRead(request, tuple(chosen), chosen == ripe, next_time_ms, as_of)


def fitting_count(rows: list[MessageRow], rows_max: int, bytes_max: int) -> int:
    counts = [
        n for n in range(len(rows) + 1) if n <= rows_max and sum(len(row.payload) for row in rows[:n]) <= bytes_max
    ]
    return max(max(counts), min(1, len(rows)))


def time_of(request: ExpiredRows | DueRows, row: MessageRow) -> int | None:
    if isinstance(request, DueRows):
        return row.due_at_ms
    return row.expires_at_ms if row.state == MessageState.ACTIVE else None


class MemoryBesideModel(StoreBesideModel):
    def opened(self) -> Store:
        self.memory = getattr(self, "memory", None) or MemoryStore()
        return self.memory


class SqliteBesideModel(StoreBesideModel):
    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory()
        super().__init__()

    def opened(self) -> Store:
        limits = BatchLimits(sets=3, cleanup_rows=2)
        return SqliteStore(Path(self._directory.name) / "store.db", limits=limits, checkpoint_pages=20)

    def teardown(self) -> None:
        super().teardown()
        self._directory.cleanup()


SETTINGS = settings(
    max_examples=examples(60), stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestMemoryBesideModel = MemoryBesideModel.TestCase
TestMemoryBesideModel.settings = SETTINGS
TestSqliteBesideModel = pytest.mark.timeout(600)(SqliteBesideModel.TestCase)  # most of its time is the disk's
TestSqliteBesideModel.settings = SETTINGS
