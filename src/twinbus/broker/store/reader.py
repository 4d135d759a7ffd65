"""The thread that reads from the store, and its statements.

A statement is a transaction of its own and sees one moment, so `as_of` is read in the same one. Rows come as a single
row: the columns of all chosen messages as one JSON text, their payloads as one blob. Fetching a thousand rows one by
one would release the interpreter lock a thousand times, which beside a busy event loop takes a second (see tables.py);
this way it takes ten milliseconds.

Names of sessions are found by jumping from one to the next in an index: a session with a million messages costs no
more than one with a single message. Texts are passed as parameters: SQLite's JSON ends a text at a NUL.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import assert_never

from twinbus.broker.store.api import (
    DueRows,
    ExpiredRows,
    HeadRows,
    IdsRead,
    KnownIds,
    KnownSessions,
    MessageRow,
    MessageState,
    NamedRows,
    RangeRows,
    Read,
    ReadFailed,
    ReadRequest,
    Report,
    RowRequest,
    RowsRead,
    SessionsRead,
    SessionStateOf,
    StateRead,
    WaitingSessions,
)
from twinbus.broker.store.sql_connection import SqlConnection, damage_of, execute, is_damage, one_line, roll_back

log = logging.getLogger("twinbus.namespace")

PAGE_PAYLOAD_BYTES = 32 << 20
"""No statement returns more payload than this, or one row if that is larger: SQLite ends a blob at 1 GB."""

_AS_OF = "coalesce((select value from counters where name = 'last_number'), 0)"
_EXISTS = "exists (select 1 from entities where entity_id = ?1)"

_NEXT = "select min(session_id) from messages indexed by messages_by_session where entity_id = ?1 and session_id"
_NAMES = f"""
    names (name) as (
        select iif(?2 is null, ({_NEXT} >= ''), ({_NEXT} > ?2))
        union all
        select ({_NEXT} > names.name) from names where names.name is not null
    )
"""  # noqa: S608 - made of constants only
_WAITING = f"""
    with recursive {_NAMES}
    select {_AS_OF}, json_group_array(name) from (
        select name from names
        where name is not null and {_EXISTS} and exists (
            select 1 from messages indexed by messages_by_session
            where entity_id = ?1 and session_id = name and state = 0
        )
        limit ?3
    )
"""  # noqa: S608 - made of constants only
_KNOWN = f"""
    with recursive {_NAMES}
    select {_AS_OF}, json_group_array(name) from (
        select name from (
            select * from (select name from names where name is not null limit ?3 + ?4)
            union
            select * from (
                select session_id from session_states where entity_id = ?1 order by session_id limit ?3 + ?4
            )
        )
        where {_EXISTS} order by name limit ?4 offset ?3
    )
"""  # noqa: S608
_UPDATED = f"""
    select {_AS_OF}, json_group_array(session_id) from (
        select session_id from session_states
        where entity_id = ?1 and updated_at_ms > ?4 and {_EXISTS} order by session_id limit ?3 offset ?2
    )
"""  # noqa: S608
_STATE = f"""
    select {_AS_OF}, (select state from session_states where entity_id = ?1 and session_id = ?2 and {_EXISTS})
"""  # noqa: S608


def _read_known(connection: SqlConnection, request: KnownSessions) -> SessionsRead:
    if request.updated_after_ms is None:
        found = execute(connection, _KNOWN, (request.entity_id, None, request.skip, request.most))
    else:
        bounds = (request.skip, request.most, request.updated_after_ms)
        found = execute(connection, _UPDATED, (request.entity_id, *bounds))
    ((as_of, names),) = found
    return SessionsRead(request, tuple(json.loads(names)), as_of)


def _read_waiting(connection: SqlConnection, request: WaitingSessions) -> SessionsRead:
    """The first page is usually enough; if not, names are read page by page in one transaction."""
    read = _first_free(connection, request, pages_max=1)
    if read is not None:
        return read
    execute(connection, "begin")
    try:
        read = _first_free(connection, request)
        assert read is not None
        return read
    finally:
        roll_back(connection)  # nothing was written


def _first_free(
    connection: SqlConnection, request: WaitingSessions, pages_max: int = sys.maxsize
) -> SessionsRead | None:
    """Names that are not excluded, as many as wanted if possible; None: it takes more pages."""
    excluded, after, page = frozenset(request.excluded), request.after, max(request.most, 1)
    free: list[str] = []
    for _ in range(pages_max):
        ((as_of, found),) = execute(connection, _WAITING, (request.entity_id, after, page))
        names = json.loads(found)
        free += [name for name in names if name not in excluded]
        if len(names) < page or len(free) >= request.most:
            return SessionsRead(request, tuple(free[: request.most]), as_of)
        after, page = names[-1], min(2 * page, _NAMES_PER_PAGE)
    return None


_NAMES_PER_PAGE = 1_000
_IDS_PER_STATEMENT = (1, 4, 16, 64, 256, 1024)
"""A few sizes, so that statements are prepared once; free places repeat one of the ids."""


def _known_ids(size: int) -> str:
    # The cross join keeps SQLite from scanning all current ids with every send.
    return f"""
        select {_AS_OF}, json_group_array(message_id) from (select ?1 as one, ?2 as now) as asked
        cross join (values {",".join(["(?)"] * size)}) as wanted
        cross join message_ids on entity_id = one and message_id = wanted.column1
        where until_ms > now and {_EXISTS}
    """  # noqa: S608 - made of constants only


_KNOWN_IDS = {size: _known_ids(size) for size in _IDS_PER_STATEMENT}


def _read_ids(connection: SqlConnection, request: KnownIds) -> IdsRead:
    """The ids that are known, as of one moment; a single statement unless there are very many."""
    most = _IDS_PER_STATEMENT[-1]
    if len(request.ids) <= most:
        known, as_of = _read_some_ids(connection, request, request.ids)
        return IdsRead(request, frozenset(known).intersection(request.ids), as_of)
    execute(connection, "begin")
    try:
        pieces = [request.ids[start : start + most] for start in range(0, len(request.ids), most)]
        found = [_read_some_ids(connection, request, piece) for piece in pieces]
        return IdsRead(request, frozenset().union(*(known for known, _ in found)), found[-1][1])
    finally:
        roll_back(connection)  # nothing was written


def _read_some_ids(connection: SqlConnection, request: KnownIds, ids: tuple[str, ...]) -> tuple[list[str], int]:
    size = next(size for size in _IDS_PER_STATEMENT if size >= len(ids))
    filled = ids + (ids[-1:] or ("",)) * (size - len(ids))
    parameters = (request.entity_id, request.now_ms, *filled)
    ((as_of, known),) = execute(connection, _KNOWN_IDS[size], parameters)
    return json.loads(known), as_of


_STATES = tuple(MessageState)


def read(connection: SqlConnection, request: ReadRequest) -> Read:
    """Answer a request as of one moment."""
    match request:
        case WaitingSessions():
            return _read_waiting(connection, request)
        case KnownSessions():
            return _read_known(connection, request)
        case SessionStateOf(entity_id, session_id):
            ((as_of, state),) = execute(connection, _STATE, (entity_id, session_id))
            return StateRead(request, None if state is None else bytes(state), as_of)
        case KnownIds():
            return _read_ids(connection, request)
        case NamedRows():
            return _read_named(connection, request)
        case HeadRows() | RangeRows():
            found = _FOUND_HEAD if isinstance(request, HeadRows) else _FOUND_RANGE
            if request.session_id is None:
                return _read_page(connection, request, found, request.from_sequence)
            found = _FOUND_SESSION_HEAD if isinstance(request, HeadRows) else _FOUND_SESSION_RANGE
            return _read_page(connection, request, found, request.from_sequence, request.session_id)
        case ExpiredRows() | DueRows():
            found = _FOUND_EXPIRED if isinstance(request, ExpiredRows) else _FOUND_DUE
            return _read_page(connection, request, found, request.until_ms, request.after_ms, request.after_sequence)
        case _:
            assert_never(request)


def _read_page(
    connection: SqlConnection,
    request: HeadRows | RangeRows | ExpiredRows | DueRows,
    found: str,
    bound: int,
    *more: int | str,
) -> RowsRead:
    most = (max(request.rows_max, 1), min(request.bytes_max, PAGE_PAYLOAD_BYTES))
    return _rows_read(connection, request, found, (request.entity_id, bound, *most, *more))


def _read_named(connection: SqlConnection, request: NamedRows) -> RowsRead:
    """All requested rows, page by page in one transaction: a part of them would look as if others were gone."""
    rows: list[MessageRow] = []
    wanted = sorted(set(request.sequences))
    execute(connection, "begin")
    try:
        while True:
            parameters = (request.entity_id, json.dumps(wanted), max(len(wanted), 1), PAGE_PAYLOAD_BYTES)
            page = _rows_read(connection, request, _FOUND_NAMED, parameters)
            rows += page.rows
            if page.complete:
                return RowsRead(request, tuple(rows), True, None, page.as_of)
            wanted = [sequence for sequence in wanted if sequence > rows[-1].sequence]
    finally:
        roll_back(connection)  # nothing was written


def _rows_read(
    connection: SqlConnection, request: RowRequest, found: str, parameters: tuple[int | str, ...]
) -> RowsRead:
    ((as_of, left, next_time_ms, columns, payloads),) = execute(connection, found, parameters)
    rows, start, payloads = [], 0, payloads or b""
    for fields in json.loads(columns):
        end = start + fields[11]
        fields[2] = _STATES[fields[2]]
        fields[11] = payloads[start:end]
        rows.append(MessageRow._make(fields))
        start = end
    return RowsRead(request, tuple(rows), not left, next_time_ms, as_of)


_SHARED = "select shared.payload from bodies as shared where shared.body_id = messages.body_id"
_PAYLOAD = f"iif(messages.body_id is null, payload, ({_SHARED}))"


def _statement(found: str, within: str) -> str:
    """The statement for one kind of request.

    Parameters: entity id, the bound of the request, the limits of rows and payload bytes; for requests ordered by time
    also the point to start after. `found` yields id, size and time of one row more than may be returned, in order; up
    to there only `messages_by_...` indexes are read (and the size, which indexes of times do not have). `within` says
    which of them may be returned.
    """
    return f"""
        with found as (
            {found} limit ?3 + 1
        ), judged as materialized (
            select id, time, {within} and place <= ?3 and (place = 1 or bytes <= ?4) as chosen
            from (
                select id, time, row_number() over so_far as place, sum(size) over so_far as bytes
                from found window so_far as (rows unbounded preceding)
            )
        )
        select
            {_AS_OF},
            (select count(*) from judged where not chosen and {within}),
            (select min(time) from judged where not chosen),
            json_group_array(json_array(
                entity_id, sequence, state, enqueue_sequence, enqueued_at_ms, expires_at_ms, due_at_ms,
                delivery_count, message_id, session_id, dead_letter_source, size
            )),
            cast(group_concat({_PAYLOAD}, '') as blob)
        from judged cross join messages on messages.rowid = id
        where chosen
    """  # noqa: S608 - made of constants only


def _by_sequence(condition: str, index: str = "messages_by_key") -> str:
    """For requests ordered by sequence. A dropped entity has no rows, deleted or not."""
    found = f"""
        select rowid as id, size, null as time from messages indexed by {index}
        where entity_id = ?1 and {condition} and {_EXISTS}
        order by sequence
    """  # noqa: S608
    return _statement(found, "true")


def _by_time(column: str, index: str, condition: str) -> str:
    """For requests ordered by time; the first row past the bound is found too, for its time."""
    found = f"""
        select rowid as id, size, {column} as time from messages indexed by {index}
        where entity_id = ?1 and {condition} and ({column}, sequence) > (?5, ?6) and {_EXISTS}
        order by {column}, sequence
    """  # noqa: S608
    return _statement(found, "time <= ?2")


_FOUND_HEAD = _by_sequence("state = 0 and sequence >= ?2")
_FOUND_RANGE = _by_sequence("sequence >= ?2")
_FOUND_SESSION_HEAD = _by_sequence("session_id = ?5 and state = 0 and sequence >= ?2", "messages_by_session")
_FOUND_SESSION_RANGE = _by_sequence("session_id = ?5 and sequence >= ?2", "messages_by_session")
_FOUND_NAMED = _by_sequence("sequence in (select value from json_each(?2))")
_FOUND_EXPIRED = _by_time("expires_at_ms", "messages_by_expiry", "state = 0 and expires_at_ms is not null")
_FOUND_DUE = _by_time("due_at_ms", "messages_by_due", "state = 2")


class StoreReader:
    """Owns the reading connection while its thread runs."""

    def __init__(self, connection: SqlConnection, report: Callable[[Report], None]) -> None:
        self._connection = connection
        self._report = report
        self._waiting: SimpleQueue[ReadRequest | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="twinbus-store-reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def request(self, request: ReadRequest) -> None:
        """Queue a read."""
        self._waiting.put(request)

    def stop(self) -> None:
        """Answer all requests and end the thread."""
        self._waiting.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while (request := self._waiting.get()) is not None:
            self._report(self._answer(request))

    def _answer(self, request: ReadRequest) -> Read | ReadFailed:
        try:
            return read(self._connection, request)
        except Exception as error:  # the machine waits for an answer, whatever went wrong
            if is_damage(error):  # the machine knows which entity it is and logs it
                return ReadFailed(request, damage_of(error), True)
            log.error("rows could not be read: %s", one_line(error))
            return ReadFailed(request, one_line(error))
