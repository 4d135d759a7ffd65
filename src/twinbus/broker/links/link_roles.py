"""What a link is for: the entity or node in its address, the right it needs, and its role.

The role is kept as the context of the link, so that its events are dispatched by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from twinbus.amqp.codec.performatives import Coordinator, Source, Target
from twinbus.amqp.link import Link
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.broker.auth.claims import owner_of, plain_path
from twinbus.broker.faults.scope import MANAGEMENT_SUFFIX
from twinbus.broker.operations import Right
from twinbus.errors import NotAllowed

CBS_ADDRESS = "$cbs"
TRANSFER_DESTINATION = "com.microsoft:transfer-destination-address"
"""A property of links that send to one entity via another."""
SETTLED_BY_SENDER = 1
"""The sender settle mode of a receiver that wants messages deleted when they are sent to it."""


class SenderRole(NamedTuple):
    """The peer sends to an entity."""

    path: str
    entity: str
    """The path in lower case, as the meter counts it."""
    via: str | None = None
    """The entity through which it sends there, if the link says so: the work counts as that one's in a transaction."""


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


class CoordinatorRole:
    """The peer declares and discharges transactions on this link."""


@dataclass(slots=True)
class LinkGroup:
    """The links of a session: with a coordinator among them, all send via the entity of the first."""

    has_coordinator: bool = False
    first_path: str | None = None
    """The entity of the first link."""

    @property
    def via(self) -> str | None:
        return self.first_path if self.has_coordinator else None

    def add(self, path: str) -> None:
        """A link to or from this entity is open."""
        self.first_path = self.first_path or path

    def check_receiver(self, path: str) -> None:
        """Raise `NotAllowed` for a receiver that could not take part in transactions of this session."""
        if self.via is not None and owner_of(plain_path(path)) != owner_of(plain_path(self.via)):
            raise NotAllowed(
                "Local transactions cannot span multiple top-level entities such as queue or topic: "
                f"this session has a coordinator, and its first link was to '{self.via}'"
            )


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


def group_of(link: Link) -> LinkGroup:
    """What the links of a session have in common."""
    session = link.session
    if session.context is None:
        session.context = LinkGroup()
    group: LinkGroup = session.context
    return group


def is_coordinator(link: Link) -> bool:
    return isinstance(link.target, Coordinator)


def destination_of(link: Link) -> str | None:
    """Where a sender's messages go in the end, if the link is to another entity on the way there."""
    found = (link.properties or {}).get(TRANSFER_DESTINATION)
    if found is None:
        return None
    return entity_path(Target(str(found)))


def needs_of(link: Link) -> list[tuple[str, Right | None]]:
    """What a link is about, and the right it needs there; None: any right, since each request is checked.

    Nothing is needed for links to `$cbs` and to a coordinator: tokens and transactions alone are good for nothing.
    """
    if is_coordinator(link):
        return []
    path = path_of(link)
    if path.lower() == CBS_ADDRESS:
        return []
    if is_management(path):
        return [(path, None)]
    if not isinstance(link, ReceivingLink):
        return [(path, Right.LISTEN)]
    destination = destination_of(link)
    return [(each, Right.SEND) for each in (path, destination) if each is not None]
