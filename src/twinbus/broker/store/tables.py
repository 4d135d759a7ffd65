"""Writing to the tables, many rows per statement, and the totals at start.

Statements have up to 1024 rows. The reason is not SQLite but Python: a connection releases the interpreter lock around
every statement, and beside a busy event loop taking it again can take a whole switch interval (5 ms). Row by row, 2048
inserts beside a busy loop took 5.5 s; in statements of 256 rows 0.08 s.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, compress
from typing import Any

from twinbus.broker.store.api import (
    EntityRow,
    EntitySummary,
    MessageRow,
    PutSessionState,
    StateGrowth,
    StoredNamespace,
)
from twinbus.broker.store.merged_changes import ChangeRefused, Counters, Key, MergedChanges
from twinbus.broker.store.sql_connection import SqlConnection, execute, first_value, is_corrupt, one_line, roll_back
from twinbus.errors import StoreDamaged

log = logging.getLogger("twinbus.namespace")

_LAST_NUMBER = "last_number"
_NEXT_ENTITY_ID = "next_entity_id"
_NEXT_SEQUENCE = "next_sequence/"


class BulkStatement:
    """A statement over many rows at once: `{rows}` in its text becomes as many placeholders as there are rows."""

    _SIZES = (1024, 256, 64, 16, 4, 1)

    def __init__(self, text: str, columns: int) -> None:
        row = "(" + ",".join("?" * columns) + ")"
        self._by_size = [(size, text.format(rows=",".join([row] * size))) for size in self._SIZES]

    def run(self, connection: SqlConnection, rows: Sequence[Sequence[Any]]) -> int:
        """Run over all rows, in a few large pieces; the sum of the numbers they returned."""
        pieces = self._pieces(rows)
        return sum(found for text, piece in pieces for (found,) in connection.execute(text, piece))

    def fetch(self, connection: SqlConnection, rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
        """Run over all rows; what the pieces returned."""
        return [found for text, piece in self._pieces(rows) for found in execute(connection, text, piece)]

    def run_counting(self, connection: SqlConnection, rows: Sequence[Sequence[Any]]) -> int:
        """Run over all rows; how many the pieces changed. What triggers changed is not counted."""
        total = 0
        for text, piece in self._pieces(rows):
            execute(connection, text, piece)
            total += first_value(connection, "select changes()")
        return total

    def _pieces(self, rows: Sequence[Sequence[Any]]) -> Iterator[tuple[str, tuple[Any, ...]]]:
        start = 0
        for size, text in self._by_size:
            while len(rows) - start >= size:
                yield text, tuple(chain.from_iterable(rows[start : start + size]))
                start += size


_REQUIRED = (
    "entity_id",
    "sequence",
    "state",
    "enqueue_sequence",
    "enqueued_at_ms",
    "delivery_count",
    "message_id",
    "size",
    "payload",
)
_OPTIONAL = ("expires_at_ms", "due_at_ms", "session_id", "dead_letter_source", "body_id")
_NONE = (None,) * len(_OPTIONAL)


@lru_cache
def _insert_with(*optional: bool) -> BulkStatement:
    """Insert rows in which exactly these optional columns are set.

    Without the other columns a statement takes half the time, and most rows have none.
    """
    names = [*_REQUIRED, *compress(_OPTIONAL, optional)]
    text = f"insert into messages ({', '.join(names)}) values {{rows}}"  # noqa: S608 - made of constants only
    return BulkStatement(text, columns=len(names))


_INSERT_BODIES = BulkStatement("insert into bodies values {rows}", columns=3)
# The cross join keeps SQLite from turning the search around and walking all messages.
_FOUND = "from (values {rows}) as wanted cross join messages as m on m.entity_id = column1 and m.sequence = column2"
_DELETE = BulkStatement(f"delete from messages where rowid in (select m.rowid {_FOUND})", columns=2)  # noqa: S608
_COUNT = BulkStatement(f"select count(*) {_FOUND}", columns=2)
_REMEMBER_IDS = BulkStatement("insert or replace into message_ids values {rows}", columns=3)
_COUNTERS = BulkStatement(
    "insert into counters values {rows} on conflict (name) do update set value = excluded.value", columns=2
)


_STATE_BYTES = "sum(length(cast(session_id as blob)) + length(state))"
_STORED_STATES = BulkStatement(
    f"""
    select entity_id, count(*), {_STATE_BYTES} from (values {{rows}}) as wanted
    cross join session_states on entity_id = column1 and session_id = column2 group by entity_id
    """,  # noqa: S608 - made of constants only
    columns=2,
)


def write(connection: SqlConnection, number: int, effect: MergedChanges) -> tuple[StateGrowth, ...]:
    """Write changes inside the caller's transaction; returns by how much session states grew.

    Raises `ChangeRefused` if they do not fit what is stored.
    """
    if effect.removed:
        _delete(connection, sorted(effect.removed))
    if effect.unverified and _COUNT.run(connection, effect.unverified):
        raise ChangeRefused("a row to be stored has the key of one that is stored already")
    body_ids = _share(connection, effect) if effect.copies else {}
    _insert(connection, effect.rows.items(), body_ids)
    grown = effect.state_growth(_STORED_STATES.fetch(connection, list(effect.states))) if effect.states else ()
    for state in effect.states.values():
        _put_state(connection, state)
    if effect.remembered_ids:
        _remember_ids(connection, effect)
    for row in effect.entities.values():
        _put(connection, row)
    for entity_id in effect.dropped:
        _drop(connection, entity_id)
    counted = [(f"{_NEXT_SEQUENCE}{entity_id}", value) for entity_id, value in effect.next_sequences.items()]
    _COUNTERS.run(connection, [(_LAST_NUMBER, number), (_NEXT_ENTITY_ID, effect.next_entity_id), *counted])
    return grown


# By row, not by entity: SQLite would look through all that is left of the entity for the few that are to go.
_CLEAN_UP_STATES = """
    delete from session_states where rowid in (select rowid from session_states where entity_id = ?1 limit ?2)
    returning 1
"""
_CLEAN_UP_IDS = """
    delete from message_ids where entity_id = ?1 and message_id in (
        select message_id from message_ids where entity_id = ?1 limit ?2
    )
    returning 1
"""


def clean_up(connection: SqlConnection, entity_id: int, rows_max: int) -> bool:
    """Delete some rows of a dropped entity, inside the caller's transaction; True if none are left."""
    some = "delete from messages where rowid in (select rowid from messages where entity_id = ? limit ?)"
    execute(connection, some, (entity_id, rows_max))
    if execute(connection, "select 1 from messages where entity_id = ? limit 1", (entity_id,)):
        return False
    for some_others in (_CLEAN_UP_STATES, _CLEAN_UP_IDS):
        if execute(connection, some_others, (entity_id, rows_max)):
            return False
    execute(connection, "delete from dropped where entity_id = ?", (entity_id,))
    return True


def mark_loaded(connection: SqlConnection) -> None:
    """Commit a small transaction, which proves that the disk accepts writes.

    After a failed commit it also overwrites the frames that commit left in the log: a recovery would replay them.
    """
    execute(connection, "begin immediate")
    try:
        text = "insert into counters values ('loads', 1) on conflict (name) do update set value = value + 1"
        execute(connection, text)
        execute(connection, "commit")
    except BaseException:
        roll_back(connection)
        raise


def read_counters(connection: SqlConnection) -> Counters:
    """The numbers the store has reached."""
    values = dict(execute(connection, "select name, value from counters"))
    start = len(_NEXT_SEQUENCE)
    sequences = {int(name[start:]): value for name, value in values.items() if name.startswith(_NEXT_SEQUENCE)}
    return Counters(values.get(_LAST_NUMBER, 0), values.get(_NEXT_ENTITY_ID, 1), sequences)


def read_dropped(connection: SqlConnection) -> list[int]:
    """Dropped entities that still have rows."""
    return [entity_id for (entity_id,) in execute(connection, "select entity_id from dropped")]


def read_namespace(connection: SqlConnection, counters: Counters) -> StoredNamespace:
    """All entities and their totals. Reads one entry of `messages_by_key` for every row, but no row."""
    entities = tuple(EntityRow._make(row) for row in execute(connection, "select * from entities order by entity_id"))
    _check_counted(entities, counters)
    totals = {row[0]: row[1:] for row in execute(connection, _TOTALS)}
    times = {row[0]: row[1:] for row in execute(connection, _FIRST_TIMES)}
    states = _read_state_totals(connection)
    at_once = {row[0]: row[1:] for row in execute(connection, _DUE_AT_ONCE)}
    summaries = {}
    for entity_id, next_sequence in counters.next_sequences.items():
        active, deferred, scheduled, size, first_active = totals.get(entity_id, (0, 0, 0, 0, None))
        expiry, due = times[entity_id]
        counts = (active, deferred, scheduled, size, first_active, expiry, due, next_sequence)
        at_once_counts = at_once.get(entity_id, (0, 0))
        summaries[entity_id] = EntitySummary(*counts, *states.get(entity_id, (0, 0)), *at_once_counts)
    return StoredNamespace(entities, summaries, counters.next_entity_id, counters.last_number)


def _read_state_totals(connection: SqlConnection) -> dict[int, tuple[int, int]]:
    """The number and size of session states by entity; if they are damaged, only the size of their names."""
    try:
        return {row[0]: row[1:] for row in execute(connection, _STATE_TOTALS)}
    except Exception as error:
        if not is_corrupt(error):
            raise
        log.error(
            "states of sessions are damaged, and do not count against the size of their queues: %s", one_line(error)
        )
        return {row[0]: row[1:] for row in execute(connection, _STATE_NAMES)}


_TOTALS = """
    select entity_id, sum(state = 0), sum(state = 1), sum(state = 2), sum(size),
        min(case state when 0 then sequence end)
    from messages indexed by messages_by_key group by entity_id
"""
_STATE_TOTALS = f"select entity_id, count(*), {_STATE_BYTES} from session_states group by entity_id"  # noqa: S608
_STATE_NAMES = """
    select entity_id, count(*), sum(length(cast(session_id as blob)))
    from session_states indexed by session_states_by_time group by entity_id
"""
_FIRST_TIMES = """
    select entity_id,
        (select min(expires_at_ms) from messages as m
            where m.entity_id = e.entity_id and state = 0 and expires_at_ms is not null),
        (select min(due_at_ms) from messages as m where m.entity_id = e.entity_id and state = 2)
    from entities as e
"""
_DUE_AT_ONCE = """
    select e.entity_id, count(*), sum(k.size)
    from entities as e cross join messages as m indexed by messages_by_due
        on m.entity_id = e.entity_id and m.state = 2 and m.due_at_ms = 0
    cross join messages as k indexed by messages_by_key on k.entity_id = m.entity_id and k.sequence = m.sequence
    group by e.entity_id
"""


def _check_counted(entities: Sequence[EntityRow], counters: Counters) -> None:
    """Without its counter an entity would start again at one."""
    differing = {row.entity_id for row in entities} ^ counters.next_sequences.keys()
    if differing:
        named = ", ".join(map(str, sorted(differing)))
        raise StoreDamaged(f"its tables contradict each other (entities and counters differ in {named})")


def _insert(connection: SqlConnection, rows: Iterable[tuple[Key, MessageRow]], body_ids: dict[Key, int]) -> None:
    """Store rows; those with a body id without their payload."""
    if body_ids:
        rows = sorted(rows)  # copies come topic by topic, and are indexed and read entity by entity
    by_columns: dict[tuple[bool, ...], list[tuple[Any, ...]]] = {}
    plain = by_columns.setdefault((False,) * len(_OPTIONAL), [])
    for key, row in rows:
        entity_id, sequence, state, first, at_ms, expires_ms, due_ms, count, name, session_id, source, payload = row
        body_id = body_ids.get(key) if body_ids else None
        # int(): sqlite3 looks for an adapter for anything that is not exactly an int, and that look is slow
        required = (entity_id, sequence, int(state), first, at_ms, count, name, len(payload))
        optional = (expires_ms, due_ms, session_id, source, body_id)
        if optional == _NONE:
            plain.append((*required, payload))
        else:
            values = (*required, payload if body_id is None else b"", *[each for each in optional if each is not None])
            by_columns.setdefault(tuple([each is not None for each in optional]), []).append(values)
    for columns, values_of_rows in by_columns.items():
        _insert_with(*columns).run(connection, values_of_rows)


def _share(connection: SqlConnection, effect: MergedChanges) -> dict[Key, int]:
    """Store payloads that several rows have, once each; the id of its body for each of those rows."""
    groups = effect.shared()
    last = first_value(connection, "select coalesce(max(body_id), 0) from bodies")
    bodies = [(body_id, len(keys), effect.rows[keys[0]].payload) for body_id, keys in enumerate(groups, last + 1)]
    _INSERT_BODIES.run(connection, bodies)
    return {key: body_id for body_id, keys in enumerate(groups, last + 1) for key in keys}


def _delete(connection: SqlConnection, keys: list[Key]) -> None:
    missing = len(keys) - _DELETE.run_counting(connection, keys)
    if missing:
        raise ChangeRefused(f"{missing} of {len(keys)} rows to be removed or replaced are not stored")


def _put(connection: SqlConnection, row: EntityRow) -> None:
    if first_value(connection, "select 1 from dropped where entity_id = ?", (row.entity_id,)):
        raise ChangeRefused(f"entity {row.entity_id} was dropped and its id cannot be used again")
    execute(connection, "insert or replace into entities values (?, ?, ?, ?, ?, ?, ?)", row)


def _put_state(connection: SqlConnection, change: PutSessionState) -> None:
    entity_id, session_id, state, updated_at_ms = change
    if state is None:
        text = "delete from session_states where entity_id = ? and session_id = ?"
        execute(connection, text, (entity_id, session_id))
    else:
        text = "insert or replace into session_states values (?, ?, ?, ?)"
        execute(connection, text, (entity_id, session_id, updated_at_ms, state))


def _remember_ids(connection: SqlConnection, effect: MergedChanges) -> None:
    _REMEMBER_IDS.run(connection, [(*key, until_ms) for key, until_ms in effect.remembered_ids.items()])
    text = """
        delete from message_ids where entity_id = ?1 and message_id in (
            select message_id from message_ids indexed by message_ids_by_end
            where entity_id = ?1 and until_ms <= ?2 order by until_ms limit ?3
        )
    """
    for entity_id, now_ms in effect.remembered_at_ms.items():  # twice as many as were added: the table shrinks
        execute(connection, text, (entity_id, now_ms, 2 * len(effect.remembered_ids) + 16))


def _drop(connection: SqlConnection, entity_id: int) -> None:
    execute(connection, "delete from entities where entity_id = ?", (entity_id,))
    execute(connection, "insert or ignore into dropped values (?)", (entity_id,))
    execute(connection, "delete from counters where name = ?", (f"{_NEXT_SEQUENCE}{entity_id}",))
