"""Errors, the states a delivery can end in, and protocol violations by the peer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from twinbus.amqp.codec.composites import BINARY, BOOLEAN, MAP, STRING, SYMBOL, UINT, ULONG, described, nested
from twinbus.errors import AmqpError


@described(0x1D, "amqp:error:list", SYMBOL, STRING, MAP)  # three elements always: with two a Python sender hangs
@dataclass(frozen=True, slots=True)
class Error:
    """Why something was refused or closed."""

    condition: str
    description: str | None = None
    info: dict[Any, Any] | None = None


@described(0x23, "amqp:received:list", UINT, ULONG, count_min=2)
@dataclass(frozen=True, slots=True)
class Received:
    """How far a delivery got; not final."""

    section_number: int
    section_offset: int


@described(0x24, "amqp:accepted:list", count_min=0)
@dataclass(frozen=True, slots=True)
class Accepted:
    """Processed."""


@described(0x25, "amqp:rejected:list", nested(Error), count_min=0)
@dataclass(frozen=True, slots=True)
class Rejected:
    """Refused; as the answer to a dead-lettering it must have no error."""

    error: Error | None = None


@described(0x26, "amqp:released:list", count_min=0)
@dataclass(frozen=True, slots=True)
class Released:
    """Returned as if never delivered."""


@described(0x27, "amqp:modified:list", BOOLEAN, BOOLEAN, MAP, count_min=0)
@dataclass(frozen=True, slots=True)
class Modified:
    """Returned with changes. None means not given, which is what the JavaScript client sends for an abandon."""

    delivery_failed: bool | None = None
    undeliverable_here: bool | None = None
    message_annotations: dict[Any, Any] | None = None


Outcome: TypeAlias = Accepted | Rejected | Released | Modified | Received

ACCEPTED = Accepted()
RELEASED = Released()
OUTCOMES = (Received, Accepted, Rejected, Released, Modified)


@described(0x33, "amqp:declared:list", BINARY, count_min=1)
@dataclass(frozen=True, slots=True)
class Declared:
    """A coordinator's answer: the transaction that was asked for has this id."""

    txn_id: bytes


@described(0x34, "amqp:transactional-state:list", BINARY, nested(*OUTCOMES), count_min=1)
@dataclass(frozen=True, slots=True)
class TransactionalState:
    """A delivery, or the outcome of one, belongs to a transaction."""

    txn_id: bytes
    outcome: Outcome | None = None


DeliveryState: TypeAlias = Outcome | Declared | TransactionalState
STATES = (*OUTCOMES, Declared, TransactionalState)
"""Everything that a transfer or a disposition may carry as its state."""


class Violation(AmqpError):
    """The peer broke the protocol. Never leaves the engine: it becomes an end or a close with `error`."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description)
        self.error = Error(condition, description)


class ConnectionViolation(Violation):
    """The connection must be closed."""


class SessionViolation(Violation):
    """One session must be ended; the others continue."""


def error_of(mistake: AmqpError) -> Error:
    return mistake.error if isinstance(mistake, Violation) else Error(mistake.condition, str(mistake))
