"""What a namespace answers, as values."""

from __future__ import annotations

from typing import Any, NamedTuple

from twinbus.errors import NamespaceError
from twinbus.namespace.entities.settings import QueueSettings
from twinbus.namespace.store.api import Change, MessageRow, RowRequest


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


class QueueFound(NamedTuple):
    origin: Any
    queue: QueueDescription


class QueuesFound(NamedTuple):
    origin: Any
    queues: tuple[QueueDescription, ...]
    has_more: bool
    """Whether there are queues behind the last of these."""


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


class ReceiverLost(NamedTuple):
    """The receiver gets nothing more: its entity is gone or disabled."""

    receiver: int
    error: NamespaceError


Reply = (
    Done
    | Refused
    | QueueFound
    | QueuesFound
    | SenderOpened
    | Settled
    | Delivery
    | Drained
    | LocksRenewed
    | MessagesFound
    | ReceiverLost
)


class Step:
    """What one command leads to: changes to write, replies that wait for them, news, rows to read."""

    __slots__ = ("changes", "news", "number", "reads", "replies")

    def __init__(self, number: int) -> None:
        self.number = number
        """What its changes are numbered, if there are any."""
        self.changes: list[Change] = []
        self.replies: list[Reply] = []
        """Let go only when the changes are committed; at once if there are none."""
        self.news: list[Reply] = []
        """Let go at once: they tell of what is durable already (a loan of a stored message is not a change)."""
        self.reads: list[RowRequest] = []
