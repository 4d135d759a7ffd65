"""What a namespace answers, as values, and the step in which it says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from twinbus.broker.core.message_events import MessageEvents
from twinbus.broker.entities.settings import QueueSettings, TopicSettings
from twinbus.broker.entities.topics.rules import Rule
from twinbus.broker.operations import (
    Done,
    ReceiverDrained,
    ReceiverLost,
    Refused,
    SenderOpened,
    SessionAccepted,
    Settled,
    TransactionTimedOut,
)
from twinbus.broker.store.api import Change, MessageRow, ReadRequest

if TYPE_CHECKING:
    from twinbus.broker.entities.entity import MessagingEntity


class QueueDescription(NamedTuple):
    """A queue as it stands: its settings, and what is in it."""

    path: str
    settings: QueueSettings
    active: int
    """Messages that can be received now or are locked."""
    deferred: int
    scheduled: int
    dead_letters: int
    stored_bytes: int
    """Dead letters too."""
    created_at_ms: int
    updated_at_ms: int
    accessed_at_ms: int
    """The last send, receive or change of settings that is known: only changes are remembered through a restart."""
    transfer_dead_letters: int = 0
    """What could not be forwarded."""


class SubscriptionDescription(NamedTuple):
    """A subscription as it stands."""

    topic: str
    name: str
    queue: QueueDescription
    """It is a queue, too."""


class TopicDescription(NamedTuple):
    """A topic as it stands."""

    path: str
    settings: TopicSettings
    subscriptions: int
    sql_filters: int
    correlation_filters: int
    scheduled: int
    stored_bytes: int
    """What waits for its time."""
    created_at_ms: int
    updated_at_ms: int
    accessed_at_ms: int


Description = TypeVar("Description", QueueDescription, TopicDescription, SubscriptionDescription)


class EntitiesFound(NamedTuple, Generic[Description]):
    entities: tuple[Description, ...]
    has_more: bool
    """Whether there are more behind the last of these."""


class RulesFound(NamedTuple):
    rules: tuple[Rule, ...]
    has_more: bool


class Delivery(NamedTuple):
    """A message for a receiver. Without a token it is already removed (receive-and-delete)."""

    receiver: int
    row: MessageRow
    token: bytes | None
    locked_until_ms: int | None


class LocksRenewed(NamedTuple):
    until_ms: tuple[int, ...]


class FoundRow(NamedTuple):
    row: MessageRow
    token: bytes | None
    locked_until_ms: int | None


class MessagesFound(NamedTuple):
    """The answer to a peek or to a receive of deferred messages."""

    found: tuple[FoundRow, ...]


class SessionStateFound(NamedTuple):
    state: bytes | None


class SessionsFound(NamedTuple):
    names: tuple[str, ...]
    skip: int
    """How many to skip for those behind the last of these."""


class Forwarded(NamedTuple):
    """An entity has forwarded a message to another one; the meter counts it."""

    path: str
    size: int


Reply = (
    Done
    | Refused
    | QueueDescription
    | TopicDescription
    | SubscriptionDescription
    | EntitiesFound[QueueDescription]
    | EntitiesFound[TopicDescription]
    | EntitiesFound[SubscriptionDescription]
    | Rule
    | RulesFound
    | SenderOpened
    | Settled
    | LocksRenewed
    | MessagesFound
    | SessionAccepted
    | SessionStateFound
    | SessionsFound
)
"""The answer to a command."""

Notice = Delivery | ReceiverDrained | ReceiverLost | Forwarded | TransactionTimedOut
"""What a namespace says without being asked."""

NOBODY = 0
"""The request id of a command whose reply nobody waits for."""


class AddressedReply(NamedTuple):
    """A reply, and the request that it answers."""

    request_id: int
    reply: Reply


WORK_PER_STEP = 2_000
"""A unit is one copy of a message for a subscription, about 5 microseconds; other work is counted in such units."""


class Step:
    """What one command leads to: changes to write, replies that wait for them, rows to read."""

    __slots__ = (
        "changes",
        "dropped",
        "events",
        "gone",
        "immediate",
        "number",
        "reads",
        "replies",
        "request_id",
        "touched",
        "woken",
        "work",
        "work_max",
    )

    def __init__(
        self,
        number: int,
        request_id: int = NOBODY,
        events: MessageEvents | None = None,
        work_max: float = WORK_PER_STEP,
    ) -> None:
        self.number = number
        """The number of its changes, if there are any."""
        self.request_id = request_id
        """The request that the command came with."""
        self.changes: list[Change] = []
        self.replies: list[AddressedReply | Notice] = []
        """Sent when the changes are committed; at once if there are none."""
        self.immediate: list[AddressedReply | Notice] = []
        """Sent at once: they report what is durable already (a lock on a stored message is not a change)."""
        self.reads: list[ReadRequest] = []
        self.gone: list[int] = []
        """Receivers that were closed by the namespace."""
        self.dropped: list[int] = []
        """Requests that are never answered: the receiver that made them is closed."""
        self.touched: dict[int, MessagingEntity] = {}
        """Entities with changes in this step, by id."""
        self.woken: list[MessagingEntity] = []
        """Entities that have to be woken soon, though no command was for them."""
        self.events = events
        """What happens to messages, true once the changes are committed; None: not recorded."""
        self.work = 0.0
        """How much was done, as far as it depends on how many messages, copies and rules there are."""
        self.work_max = work_max

    def reply(self, reply: Reply) -> None:
        """Answer the command of this step."""
        self.replies.append(AddressedReply(self.request_id, reply))

    def reply_to(self, request_id: int, reply: Reply) -> None:
        """Answer a command of an earlier step."""
        self.replies.append(AddressedReply(request_id, reply))

    @property
    def is_long(self) -> bool:
        """Whether enough was done: all clients wait until it is over, so what can wait is left for another step."""
        return self.work >= self.work_max
