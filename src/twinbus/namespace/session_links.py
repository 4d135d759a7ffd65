"""How links say that they want a session, and how they are told which one they got."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from twinbus.amqp.link import SendingLink
from twinbus.amqp.types import Long, Symbol
from twinbus.errors import NotAllowed

SESSION_FILTER = "com.microsoft:session-filter"
WAIT_PROPERTY = "com.microsoft:timeout"
LOCKED_UNTIL = "com.microsoft:locked-until-utc"
WAIT_MS = 65_000
"""How long a link waits for a session if it does not say."""
WAIT_MS_MAX = 3_600_000
_TICKS_TO_1970 = 621_355_968_000_000_000
"""In the service's own unit of time, of which a millisecond has ten thousand."""


class SessionWish(NamedTuple):
    session_id: str | None
    """None: any that is free."""
    wait_ms: int


def is_for_session(link: SendingLink) -> bool:
    return link.source is not None and SESSION_FILTER in (link.source.filter or {})


def session_wish(link: SendingLink) -> SessionWish:
    """What a link asks for; raises `NotAllowed` if that cannot be a session."""
    session_id = link.source.filter.get(SESSION_FILTER) if link.source and link.source.filter else None
    if session_id is not None and not isinstance(session_id, str):
        raise NotAllowed(f"a session is named by a string, or null for any, got {type(session_id).__name__}")
    wait_ms = (link.properties or {}).get(WAIT_PROPERTY, WAIT_MS)
    if not isinstance(wait_ms, int) or isinstance(wait_ms, bool) or wait_ms < 0:
        raise NotAllowed(f"{WAIT_PROPERTY} must be a number of milliseconds, got {wait_ms!r:.60}")
    return SessionWish(None if session_id is None else str(session_id), min(int(wait_ms), WAIT_MS_MAX))


def accept_session(link: SendingLink, session_id: str, locked_until_ms: int) -> None:
    """Answer an attach: the filter names the session, a property says how long it is locked."""
    ticks = locked_until_ms * 10_000 + _TICKS_TO_1970
    filters = {**(link.source.filter or {}), Symbol(SESSION_FILTER): session_id} if link.source else None
    source = replace(link.source, filter=filters) if link.source else None
    link.accept(source=source, properties={Symbol(LOCKED_UNTIL): Long(ticks)})
