"""What is done to a namespace: operations, the rights they need, how messages are settled, and the results.

Links and whatever stands behind them share these words; so do rights, faults and the meter.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from twinbus.errors import NamespaceError


class Operation(Enum):
    """A moment at which a namespace can be asked, refuse, fail or count."""

    CONNECT = "connect"
    ATTACH_SENDER = "attach-sender"
    ATTACH_RECEIVER = "attach-receiver"
    SEND = "send"
    DELIVER = "deliver"
    SETTLE = "settle"
    MANAGE = "manage"
    """A request to `<entity>/$management`."""
    ADMIN = "admin"
    """A request over HTTP."""


class Right(Enum):
    """What a key or token allows. Manage includes the other two."""

    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"


class ReceiveMode(Enum):
    PEEK_LOCK = "peek-lock"
    RECEIVE_AND_DELETE = "receive-and-delete"


# --- how a receiver settles a message ---


class Complete(NamedTuple):
    """Processed: remove the message."""


class Abandon(NamedTuple):
    """Not processed: deliver it again, with one more failed delivery counted."""

    properties: dict[str, Any] | None = None
    """Application properties to set on the message."""


class Defer(NamedTuple):
    """Deferred: can be received by sequence number only."""

    properties: dict[str, Any] | None = None


DEAD_LETTER_REASON, DEAD_LETTER_DESCRIPTION = "DeadLetterReason", "DeadLetterErrorDescription"


class DeadLetter(NamedTuple):
    """Cannot be processed: move to the dead-letter queue."""

    properties: dict[str, Any] | None = None
    """Application properties to set, the reason and its description among them."""


class Release(NamedTuple):
    """Not looked at: deliver it again as if nothing had happened."""


SettlementOutcome = Complete | Abandon | Defer | DeadLetter | Release


# --- results ---


class Done(NamedTuple):
    """It is done, and durable if it had to be."""

    sequences: tuple[int, ...] = ()
    """For a send: the numbers the messages got."""


class Refused(NamedTuple):
    """Nothing was done; the error says why."""

    error: NamespaceError


class SenderOpened(NamedTuple):
    message_bytes_max: int | None
    """The entity's own limit; None: it has none."""


class SessionAccepted(NamedTuple):
    """The receiver has this session to itself until it closes or the time has come."""

    session_id: str
    locked_until_ms: int


class Settled(NamedTuple):
    """Every token is settled except those in `failures`."""

    failures: dict[bytes, NamespaceError]


# --- notices ---


class TransactionTimedOut(NamedTuple):
    """A transaction took too long, and was rolled back."""

    transaction: int


class ReceiverDrained(NamedTuple):
    """The receiver's credit is used up or given back; it must grant again to get more."""

    receiver: int


class ReceiverLost(NamedTuple):
    """The receiver gets nothing more: its entity is gone or disabled."""

    receiver: int
    error: NamespaceError
