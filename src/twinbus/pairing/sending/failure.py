"""What went wrong with one attempt, as a value."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class FailureKind(Enum):
    NO_ANSWER = "no answer in time"
    UNREACHABLE = "unreachable"
    """Connection refused, reset, lost or closed by force."""
    TIMED_OUT = "timed out"
    """The service answered that it took too long."""
    INTERNAL = "internal error"
    """The service's own trouble, and every condition nobody knows."""
    DISABLED = "disabled"
    FULL = "quota exceeded"
    DELETED = "deleted"
    NOT_FOUND = "not found"
    BUSY = "busy"
    UNAUTHORISED = "unauthorised"
    TOO_LARGE = "too large"
    NOT_ALLOWED = "not allowed"
    """The entity does not take such messages, or no messages at all: one that demands sessions, for example."""
    REJECTED = "rejected"
    """The message or the request itself is wrong: argument error, cannot be decoded."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt did not end in "stored"."""

    kind: FailureKind
    text: str
    """One line for people, without secrets."""
    condition: str | None = None
    """The AMQP condition, when there was one."""
    in_doubt: bool = False
    """The transfer had left: the messages may be stored after all."""
    is_connection: bool = False
    """It is about the connection as a whole, and says nothing of this entity in particular."""
    error: BaseException | None = field(default=None, compare=False, repr=False)
    """What the SDK raised; callers get it as it is."""

    def __str__(self) -> str:
        doubt = " (in doubt: it may be stored)" if self.in_doubt else ""
        return f"{self.kind.value}: {self.text}{doubt}"
