"""What a link is for: kept as the link's context, so that its events find their way."""

from __future__ import annotations

from typing import NamedTuple

SETTLED_BY_SENDER = 1
"""The sender settle mode of a receiver that wants messages deleted when they are sent to it."""


class SenderRole(NamedTuple):
    """The peer sends to an entity."""

    path: str
    entity: str
    """The path in lower case, as the meter counts it."""


class ReceiverRole(NamedTuple):
    """The peer receives from an entity."""

    path: str
    entity: str
    receiver: int
    session_id: str | None = None
    """The session it has, if it is for one."""


class OpeningRole(NamedTuple):
    """The peer waits for its receiver to be opened: for a session, or for the entity itself."""

    receiver: int


class RequesterRole(NamedTuple):
    """The peer sends requests to a node."""

    address: str
