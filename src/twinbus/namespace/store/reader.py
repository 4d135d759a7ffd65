"""The thread that reads rows, and the one statement it uses for every kind of request.

A statement is a transaction of its own and sees one moment, so `as_of` is read in the same one. It answers with a
single row: the columns of all chosen messages as one JSON text, their payloads as one blob. Fetching a thousand rows
singly would hand the interpreter back and forth a thousand times, which beside a busy event loop takes a second (see
tables.py); this way it is ten milliseconds.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

from twinbus.namespace.store.api import (
    ExpiredRows,
    HeadRows,
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
    SessionRange,
    SessionRows,
    SessionStateOf,
    WaitingSessions,
)
from twinbus.namespace.store.connection import Connection, damage_of, execute, is_damage, one_line, roll_back
from twinbus.namespace.store.session_tables import read_ids, read_sessions, read_state

log = logging.getLogger(__name__)

PAGE_PAYLOAD_BYTES = 32 << 20
"""No statement returns more payload than this, or one row if that is larger: SQLite ends a blob at 1 GB."""

_STATES = tuple(MessageState)


class _Page(NamedTuple):
    """What one statement found."""

    rows: tuple[MessageRow, ...]
    complete: bool
    next_time_ms: int | None
    as_of: int


def read(connection: Connection, request: ReadRequest) -> Read:
    """Answer a request from one moment of the store."""
    if isinstance(request, WaitingSessions | KnownSessions):
        return read_sessions(connection, request)
    if isinstance(request, SessionStateOf):
        return read_state(connection, request)
    if isinstance(request, KnownIds):
        return read_ids(connection, request)
    return read_rows(connection, request)


def read_rows(connection: Connection, request: RowRequest) -> RowsRead:
    """Answer a request for rows from one moment of the store."""
    if isinstance(request, NamedRows):
        return _read_named(connection, request)
    most = (max(request.rows_max, 1), min(request.bytes_max, PAGE_PAYLOAD_BYTES))
    if isinstance(request, SessionRows | SessionRange):
        found = _FOUND_SESSION if isinstance(request, SessionRows) else _FOUND_SESSION_RANGE
        page = _read_page(connection, found, (request.entity_id, request.from_sequence, *most, request.session_id))
        return RowsRead(request, *page)
    if isinstance(request, HeadRows | RangeRows):
        found = _FOUND_HEAD if isinstance(request, HeadRows) else _FOUND_RANGE
        page = _read_page(connection, found, (request.entity_id, request.from_sequence, *most))
    else:
        found = _FOUND_EXPIRED if isinstance(request, ExpiredRows) else _FOUND_DUE
        behind = (request.after_ms, request.after_sequence)
        page = _read_page(connection, found, (request.entity_id, request.until_ms, *most, *behind))
    return RowsRead(request, *page)


def _read_named(connection: Connection, request: NamedRows) -> RowsRead:
    """All the rows asked for, page by page in one transaction: a part of them would look like some being gone."""
    rows: list[MessageRow] = []
    wanted = sorted(set(request.sequences))
    execute(connection, "begin")
    try:
        while True:
            parameters = (request.entity_id, json.dumps(wanted), max(len(wanted), 1), PAGE_PAYLOAD_BYTES)
            page = _read_page(connection, _FOUND_NAMED, parameters)
            rows += page.rows
            if page.complete:
                return RowsRead(request, tuple(rows), True, None, page.as_of)
            wanted = [sequence for sequence in wanted if sequence > rows[-1].sequence]
    finally:
        roll_back(connection)  # nothing was written


def _read_page(connection: Connection, found: str, parameters: tuple[int | str, ...]) -> _Page:
    ((as_of, left, next_time_ms, columns, payloads),) = execute(connection, found, parameters)
    return _Page(_as_rows(json.loads(columns), payloads or b""), not left, next_time_ms, as_of)


def _as_rows(columns: list[list[Any]], payloads: bytes) -> tuple[MessageRow, ...]:
    rows, start = [], 0
    for fields in columns:
        end = start + fields[11]
        fields[2] = _STATES[fields[2]]
        fields[11] = payloads[start:end]
        rows.append(MessageRow._make(fields))
        start = end
    return tuple(rows)


_SHARED = "select shared.payload from bodies as shared where shared.body_id = messages.body_id"
_PAYLOAD = f"iif(messages.body_id is null, payload, ({_SHARED}))"


def _statement(found: str, chosen: str, left: str) -> str:
    """The statement for one kind of request.

    Parameters: entity id, the bound of the request, how many rows, how many payload bytes; in the order of a time also
    the point to start behind. `found` yields id, size and time of one row more than may be returned, in order; only
    `messages_by_...` indexes are read up to there (and the size, which indexes of times do not have).
    """
    return f"""
        with found as (
            {found} limit ?3 + 1
        ), judged as materialized (
            select id, time, {chosen} and place <= ?3 and (place = 1 or bytes <= ?4) as chosen
            from (
                select id, time, row_number() over so_far as place, sum(size) over so_far as bytes
                from found window so_far as (rows unbounded preceding)
            )
        )
        select
            coalesce((select value from counters where name = 'last_number'), 0),
            (select count(*) from judged where not chosen and {left}),
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
    """For requests in the order of sequences. A dropped entity has no rows, cleaned away or not."""
    found = f"""
        select rowid as id, size, null as time from messages indexed by {index}
        where entity_id = ?1 and {condition} and exists (select 1 from entities where entity_id = ?1)
        order by sequence
    """  # noqa: S608
    return _statement(found, "true", "true")


def _by_time(column: str, index: str, condition: str) -> str:
    """For requests in the order of a time; the first row past the bound is found too, for its time."""
    found = f"""
        select rowid as id, size, {column} as time from messages indexed by {index}
        where entity_id = ?1 and {condition} and ({column}, sequence) > (?5, ?6)
            and exists (select 1 from entities where entity_id = ?1)
        order by {column}, sequence
    """  # noqa: S608
    return _statement(found, "time <= ?2", "time <= ?2")


_FOUND_HEAD = _by_sequence("state = 0 and sequence >= ?2")
_FOUND_RANGE = _by_sequence("sequence >= ?2")
_FOUND_SESSION = _by_sequence("session_id = ?5 and state = 0 and sequence >= ?2", "messages_by_session")
_FOUND_SESSION_RANGE = _by_sequence("session_id = ?5 and sequence >= ?2", "messages_by_session")
_FOUND_NAMED = _by_sequence("sequence in (select value from json_each(?2))")
_FOUND_EXPIRED = _by_time("expires_at_ms", "messages_by_expiry", "state = 0 and expires_at_ms is not null")
_FOUND_DUE = _by_time("due_at_ms", "messages_by_due", "state = 2")


class Reader:
    """Owns the reading connection while its thread runs."""

    def __init__(self, connection: Connection, report: Callable[[Report], None]) -> None:
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
        """Answer what was asked and end the thread."""
        self._waiting.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while (request := self._waiting.get()) is not None:
            self._report(self._answer(request))

    def _answer(self, request: ReadRequest) -> Read | ReadFailed:
        try:
            return read(self._connection, request)
        except Exception as error:  # somebody waits for an answer, whatever went wrong
            if is_damage(error):  # whoever asked knows better what that means, and says so
                return ReadFailed(request, damage_of(error), True)
            log.error("rows could not be read: %s", one_line(error))
            return ReadFailed(request, one_line(error))
