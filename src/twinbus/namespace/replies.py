"""What a namespace answers, as values."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from twinbus.errors import NamespaceError
from twinbus.namespace.entities.rules import Rule
from twinbus.namespace.entities.settings import QueueSettings, TopicSettings
from twinbus.namespace.happenings import Story
from twinbus.namespace.store.api import Change, MessageRow, ReadRequest


class Done(NamedTuple):
    """It is done, and durable if it had to be."""

    origin: Any
    sequences: tuple[int, ...] = ()
    """For a send: the numbers the messages got."""


class Refused(NamedTuple):
    """Nothing was done; the error says why."""

    origin: Any
    error: NamespaceError


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


class QueueFound(NamedTuple):
    origin: Any
    queue: QueueDescription


class QueuesFound(NamedTuple):
    origin: Any
    queues: tuple[QueueDescription, ...]
    has_more: bool
    """Whether there are queues behind the last of these."""


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


class TopicFound(NamedTuple):
    origin: Any
    topic: TopicDescription


class TopicsFound(NamedTuple):
    origin: Any
    topics: tuple[TopicDescription, ...]
    has_more: bool


class SubscriptionFound(NamedTuple):
    origin: Any
    subscription: SubscriptionDescription


class SubscriptionsFound(NamedTuple):
    origin: Any
    subscriptions: tuple[SubscriptionDescription, ...]
    has_more: bool


class RuleFound(NamedTuple):
    origin: Any
    rule: Rule


class RulesFound(NamedTuple):
    origin: Any
    rules: tuple[Rule, ...]
    has_more: bool


class SenderOpened(NamedTuple):
    origin: Any
    message_bytes_max: int | None
    """The entity's own limit; None: it has none."""


class Settled(NamedTuple):
    """Every token is settled except those in `failures`."""

    origin: Any
    failures: dict[bytes, NamespaceError]


class Delivery(NamedTuple):
    """A message for a receiver. Without a token it is already removed (receive-and-delete)."""

    receiver: int
    row: MessageRow
    token: bytes | None
    locked_until_ms: int | None


class Drained(NamedTuple):
    """The receiver's credit is used up or given back; it must grant again to get more."""

    receiver: int


class LocksRenewed(NamedTuple):
    origin: Any
    until_ms: tuple[int, ...]


class LentRow(NamedTuple):
    row: MessageRow
    token: bytes | None
    locked_until_ms: int | None


class MessagesFound(NamedTuple):
    """The answer to a peek or to a receive of deferred messages."""

    origin: Any
    found: tuple[LentRow, ...]


class SessionAccepted(NamedTuple):
    """The receiver has this session to itself until it closes or the time has come."""

    origin: Any
    session_id: str
    locked_until_ms: int


class SessionStateFound(NamedTuple):
    origin: Any
    state: bytes | None


class SessionsFound(NamedTuple):
    origin: Any
    names: tuple[str, ...]
    skip: int
    """How many to skip for those behind the last of these."""


class ReceiverLost(NamedTuple):
    """The receiver gets nothing more: its entity is gone or disabled."""

    receiver: int
    error: NamespaceError


class Forwarded(NamedTuple):
    """An entity has passed a message on to another one: for the meter, nobody asked."""

    path: str
    size: int
    origin: None = None


Reply = (
    Done
    | Refused
    | QueueFound
    | QueuesFound
    | TopicFound
    | TopicsFound
    | SubscriptionFound
    | SubscriptionsFound
    | RuleFound
    | RulesFound
    | SenderOpened
    | Settled
    | Delivery
    | Drained
    | LocksRenewed
    | MessagesFound
    | SessionAccepted
    | SessionStateFound
    | SessionsFound
    | ReceiverLost
    | Forwarded
)


class Committing(Protocol):
    """An entity with changes in a step."""

    @property
    def entity_id(self) -> int: ...

    def committed(self, number: int, now_ms: int, step: Step) -> None:
        """Everything up to this number is durable."""

    def next_wake_ms(self) -> int | None:
        """When time next changes something there."""


WORK_PER_STEP = 2_000
"""A unit is one copy of a message for a subscription, about 5 microseconds; other work is counted in such units."""


class Step:
    """What one command leads to: changes to write, replies that wait for them, news, rows to read."""

    __slots__ = (
        "changes",
        "gone",
        "news",
        "number",
        "reads",
        "replies",
        "story",
        "touched",
        "woken",
        "work",
        "work_max",
    )

    def __init__(self, number: int, story: Story | None = None, work_max: float = WORK_PER_STEP) -> None:
        self.number = number
        """What its changes are numbered, if there are any."""
        self.changes: list[Change] = []
        self.replies: list[Reply] = []
        """Let go only when the changes are committed; at once if there are none."""
        self.news: list[Reply] = []
        """Let go at once: they tell of what is durable already (a loan of a stored message is not a change)."""
        self.reads: list[ReadRequest] = []
        self.gone: list[int] = []
        """Receivers that are no more, though they did not close themselves."""
        self.touched: dict[int, Committing] = {}
        """Whose changes these are, by entity id."""
        self.woken: list[Committing] = []
        """Who has to look around soon, though nobody asked anything of it."""
        self.story = story
        """What happens to messages, true once the changes are committed; None: nobody wants to know."""
        self.work = 0.0
        """How much was done, as far as it depends on how many messages, copies and rules there are."""
        self.work_max = work_max

    @property
    def is_long(self) -> bool:
        """Whether enough was done: everybody waits until it is over, so what can wait is left for another step."""
        return self.work >= self.work_max
