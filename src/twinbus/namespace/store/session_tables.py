"""Reading what is stored beside messages, about sessions and ids, each in one transaction that sees one moment.

The names of sessions are found by jumping from one to the next in an index: a session with a million messages costs no
more than one with a single message. Texts go in as parameters of their own: SQLite's JSON ends a text at a NUL.
"""

from __future__ import annotations

import json
import sys

from twinbus.namespace.store.api import (
    IdsRead,
    KnownIds,
    KnownSessions,
    SessionsRead,
    SessionStateOf,
    StateRead,
    WaitingSessions,
)
from twinbus.namespace.store.connection import Connection, execute, roll_back

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


def read_sessions(connection: Connection, request: WaitingSessions | KnownSessions) -> SessionsRead:
    """The names asked for."""
    if isinstance(request, WaitingSessions):
        return _read_waiting(connection, request)
    if request.updated_after_ms is None:
        found = execute(connection, _KNOWN, (request.entity_id, None, request.skip, request.most))
    else:
        bounds = (request.skip, request.most, request.updated_after_ms)
        found = execute(connection, _UPDATED, (request.entity_id, *bounds))
    ((as_of, names),) = found
    return SessionsRead(request, tuple(json.loads(names)), as_of)


def _read_waiting(connection: Connection, request: WaitingSessions) -> SessionsRead:
    """The first page is mostly enough; if not, names are read page by page in one transaction."""
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


def _first_free(connection: Connection, request: WaitingSessions, pages_max: int = sys.maxsize) -> SessionsRead | None:
    """Names that are not excluded, as many as wanted if there are so many; None: it takes more pages."""
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
"""Few sizes, so that the statements are known; places that are left are filled with one of the ids again."""


def _known_ids(size: int) -> str:
    # The cross join keeps SQLite from walking through all ids whose time is not over, and that at every send.
    return f"""
        select {_AS_OF}, json_group_array(message_id) from (select ?1 as one, ?2 as now) as asked
        cross join (values {",".join(["(?)"] * size)}) as wanted
        cross join message_ids on entity_id = one and message_id = wanted.column1
        where until_ms > now and {_EXISTS}
    """  # noqa: S608 - made of constants only


_KNOWN_IDS = {size: _known_ids(size) for size in _IDS_PER_STATEMENT}


def read_ids(connection: Connection, request: KnownIds) -> IdsRead:
    """The ids that are known, as of one moment; a single statement unless they are very many."""
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


def _read_some_ids(connection: Connection, request: KnownIds, ids: tuple[str, ...]) -> tuple[list[str], int]:
    size = next(size for size in _IDS_PER_STATEMENT if size >= len(ids))
    filled = ids + (ids[-1:] or ("",)) * (size - len(ids))
    parameters = (request.entity_id, request.now_ms, *filled)
    ((as_of, known),) = execute(connection, _KNOWN_IDS[size], parameters)
    return json.loads(known), as_of


def read_state(connection: Connection, request: SessionStateOf) -> StateRead:
    ((as_of, state),) = execute(connection, _STATE, (request.entity_id, request.session_id))
    return StateRead(request, None if state is None else bytes(state), as_of)
