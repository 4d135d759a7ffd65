"""The condition and the text that an application gets if its messages were not stored, or not all of them.

| what happened                                              | condition                          |
|------------------------------------------------------------|------------------------------------|
| the primary refused, and said why                          | the primary's own                  |
| the primary is down and the entity is not failed over yet  | `com.microsoft:timeout`            |
| neither the primary nor a backlog queue took it            | `com.microsoft:timeout`            |
| it was held for too long, or the proxy stops               | `com.microsoft:timeout`            |
| some messages of a batch are stored, others are not        | `amqp:not-allowed`                 |
| it is too large for the backlog                            | `amqp:link:message-size-exceeded`  |
| it cannot be put into an envelope                          | `com.microsoft:argument-error`     |
| the pair has faulted                                       | `amqp:internal-error`              |

Official clients send again after a time-out. They must not do so with a batch that is partly
stored: its sender decides.
"""

from __future__ import annotations

from typing import NamedTuple

from twinbus.broker.operations import Refused
from twinbus.client.native.failures import RETRIED
from twinbus.errors import (
    AmqpError,
    ArgumentError,
    ConditionError,
    EnvelopeError,
    InternalError,
    MessageTooLarge,
    NamespaceError,
    NotAllowed,
    PairFaulted,
    ReservedProperty,
    TooLargeForDetour,
    TwinbusError,
)
from twinbus.pairing.sending.receipt import NamespaceSide, SendReceipt, receipt_of

PARTLY_STORED = NotAllowed.condition
STOPPING = Refused(ConditionError(RETRIED, "the proxy stops: nothing was sent"))


_WHERE = {
    NamespaceSide.PRIMARY: "in the primary",
    NamespaceSide.BACKLOG: "in the backlog",
    NamespaceSide.SPOOL: "in the spool",
}


class NotStored(NamedTuple):
    """The end of a send that did not store everything."""

    refused: Refused
    accepted: int = 0
    """How many of its messages are stored nevertheless."""


def not_stored(error: BaseException) -> NotStored:
    """The answer to the application for a send that ended with this error."""
    receipt = receipt_of(error)
    text = str(error) if isinstance(error, TwinbusError) else "the proxy failed; its log says how"
    accepted = 0
    if receipt is not None:
        text, accepted = _with_receipt(text, receipt), receipt.accepted
    condition = PARTLY_STORED if accepted else _condition_of(error)
    return NotStored(Refused(ConditionError(condition, text)), accepted)


def partly_stored(stored: int, messages: int, first: NamespaceError) -> Refused:
    """The same for a batch that went to the primary in parts; `first` is why one of them was not stored."""
    condition = PARTLY_STORED if stored else first.condition
    return Refused(ConditionError(condition, f"{stored} of {messages} messages are stored: {first}"))


def _with_receipt(text: str, receipt: SendReceipt) -> str:
    details = [f"{receipt.attempts} attempts"] if receipt.attempts > 1 else []
    if receipt.in_doubt:
        copies = receipt.copies_in_doubt
        details.append(
            "1 copy in doubt: it may be stored" if copies == 1 else f"{copies} copies in doubt: they may be stored"
        )
    if details:
        text = f"{text} ({'; '.join(details)})"
    if receipt.accepted:
        where = _WHERE[receipt.side]
        text = f"{receipt.accepted} of {len(receipt.message_ids)} messages are stored {where}: {text}"
    return text


def _condition_of(error: BaseException) -> str:
    match error:
        case NamespaceError() | AmqpError():
            return error.condition
        case TooLargeForDetour():
            return MessageTooLarge.condition
        case ReservedProperty() | EnvelopeError():
            return ArgumentError.condition
        case PairFaulted():
            return InternalError.condition
        case TwinbusError():
            return RETRIED
        case _:
            return InternalError.condition
