"""What a link is for: the entity or node in its address, the right it needs, and its role.

The role is kept as the context of the link, so that its events are dispatched by it.
"""

from __future__ import annotations

from typing import NamedTuple

from twinbus.amqp.link import Link
from twinbus.amqp.performatives import Coordinator, Source, Target
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.broker.faults.scope import MANAGEMENT_SUFFIX
from twinbus.broker.operations import Right
from twinbus.errors import NotAllowed

CBS_ADDRESS = "$cbs"
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


def entity_path(terminus: Source | Target | Coordinator | None) -> str:
    """The entity in an address: `amqps://host:port/orders`, `/orders` and `orders` are the same."""
    address = terminus.address if isinstance(terminus, Source | Target) else None
    if not address:
        raise NotAllowed("a link needs an address: the name of a queue")
    _, separator, rest = address.partition("://")
    path = (rest.partition("/")[2] if separator else address).strip("/")
    if not path:
        raise NotAllowed(f"the address {address!r} names no queue")
    return path


def path_of(link: Link) -> str:
    """The address at our end of a link: where the peer sends to, or receives from."""
    return entity_path(link.target if isinstance(link, ReceivingLink) else link.source)


def is_management(path: str) -> bool:
    return path.lower().endswith(MANAGEMENT_SUFFIX)


def managed_entity(path: str) -> str:
    return path[: -len(MANAGEMENT_SUFFIX)]


def need_of(link: Link) -> tuple[str, Right | None]:
    """What a link is about, and the right it needs; None: any right, since each request is checked."""
    path = path_of(link)
    if is_management(path):
        return path, None
    return path, Right.SEND if isinstance(link, ReceivingLink) else Right.LISTEN
