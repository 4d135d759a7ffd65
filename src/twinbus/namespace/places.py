"""What a link is for: kept with the link, so that its events find their way."""

from __future__ import annotations

from typing import NamedTuple

SETTLED_BY_SENDER = 1
"""The sender settle mode of a receiver that wants messages deleted when they are sent to it."""


class Sending(NamedTuple):
    """A link on which the peer sends to an entity."""

    path: str
    entity: str
    """The path in lower case, as the meter counts it."""


class Receiving(NamedTuple):
    """A link on which the peer receives from an entity."""

    path: str
    entity: str
    receiver: int
    session_id: str | None = None
    """The session it has, if it is for one."""


class Accepting(NamedTuple):
    """A link on which the peer is to receive, as soon as there is a session, or the entity itself."""

    path: str
    receiver: int


class Asking(NamedTuple):
    """A link on which the peer sends requests to a node."""

    address: str
