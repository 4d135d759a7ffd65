"""What a namespace answers, as values."""

from __future__ import annotations

from typing import Any, NamedTuple

from twinbus.errors import NamespaceError
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
    """The entity the receiver read from is gone."""

    receiver: int
    error: NamespaceError


Reply = Done | Refused | Settled | Delivery | Drained | LocksRenewed | MessagesFound | ReceiverLost


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
