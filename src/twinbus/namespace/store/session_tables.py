"""Reading what is stored beside messages, about sessions and ids, each in one statement that sees one moment.

The names of sessions are found by jumping from one to the next in an index: a session with a million messages costs no
more than one with a single message.
"""

from __future__ import annotations

import json

from twinbus.namespace.store.api import (
    IdsRead,
    KnownIds,
    KnownSessions,
    SessionsRead,
    SessionStateOf,
    StateRead,
    WaitingSessions,
)
from twinbus.namespace.store.connection import Connection, execute

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
        where name is not null and name not in (select value from json_each(?3)) and {_EXISTS} and exists (
            select 1 from messages indexed by messages_by_session
            where entity_id = ?1 and session_id = name and state = 0
        )
        limit ?4
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
        excluded = json.dumps(request.excluded)
        found = execute(connection, _WAITING, (request.entity_id, request.after, excluded, request.most))
    elif request.updated_after_ms is None:
        found = execute(connection, _KNOWN, (request.entity_id, None, request.skip, request.most))
    else:
        bounds = (request.skip, request.most, request.updated_after_ms)
        found = execute(connection, _UPDATED, (request.entity_id, *bounds))
    ((as_of, names),) = found
    return SessionsRead(request, tuple(json.loads(names)), as_of)


_KNOWN_IDS = f"""
    select {_AS_OF}, json_group_array(message_id) from message_ids
    where entity_id = ?1 and until_ms > ?2 and message_id in (select value from json_each(?3)) and {_EXISTS}
"""  # noqa: S608


def read_ids(connection: Connection, request: KnownIds) -> IdsRead:
    ids = json.dumps(request.ids)
    ((as_of, known),) = execute(connection, _KNOWN_IDS, (request.entity_id, request.now_ms, ids))
    return IdsRead(request, frozenset(json.loads(known)), as_of)


def read_state(connection: Connection, request: SessionStateOf) -> StateRead:
    ((as_of, state),) = execute(connection, _STATE, (request.entity_id, request.session_id))
    return StateRead(request, None if state is None else bytes(state), as_of)
