"""Is this failure an outage, a throttle, or the caller's fault? The table of the specification, clause P4.

A class is about one attempt; the retry schedule decides whether there is another one before it counts.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from twinbus.errors import OptionsError
from twinbus.pairing.sending.failure import Failure, FailureKind

Kind = FailureKind


class ErrorClass(Enum):
    DOWN = "down"
    """Counts towards failover; on a backlog queue: it leaves the rotation; on a ping: still down."""
    RAISE = "raise"
    """To the caller, at once."""
    BUSY = "busy"
    """Wait ten seconds, send again, never fail over."""


class SendKind(Enum):
    PRIMARY = "primary send"
    PING = "ping"
    BACKLOG = "backlog send"
    SYPHON = "syphon send"


Classifier = Callable[[Failure], ErrorClass | None]
"""An application's own opinion on a failed send to the primary; None: as in the table."""

CALLERS_FAULT = frozenset((Kind.TOO_LARGE, Kind.REJECTED))


def classify(failure: Failure, kind_of_send: SendKind, *, is_known: bool = True) -> ErrorClass:
    """What the table says. `is_known`: this client has seen the entity alive, or it was declared to exist."""
    kind = failure.kind
    if kind_of_send is SendKind.PING:
        return ErrorClass.DOWN
    if kind is Kind.BUSY:
        return ErrorClass.BUSY
    if kind in CALLERS_FAULT:
        return ErrorClass.RAISE
    if kind is Kind.NOT_ALLOWED:
        return ErrorClass.DOWN if kind_of_send is SendKind.BACKLOG else ErrorClass.RAISE  # other queues may allow it
    if kind is Kind.UNAUTHORISED:
        return ErrorClass.RAISE if kind_of_send is SendKind.PRIMARY else ErrorClass.DOWN
    if kind is Kind.NOT_FOUND and kind_of_send is SendKind.PRIMARY and not is_known:
        return ErrorClass.RAISE  # a typo must not fill a backlog that nobody can bring home
    return ErrorClass.DOWN


def documented(failure: Failure) -> ErrorClass | None:
    """The literal rule of the documents: time-outs and errors that are not transient count; transient ones are raised.

    A connection that is lost and an internal error are transient there, so they never fail over by themselves. A
    time-out counts, whether nobody answered or the service says that it took too long.
    """
    return ErrorClass.RAISE if failure.kind in (Kind.UNREACHABLE, Kind.INTERNAL) else None


def classifier_for(option: Classifier | str | None) -> Classifier | None:
    """The option `classifier` as a function; raises `OptionsError` for what it cannot be."""
    if option is None or callable(option):
        return option
    if option == "documented":
        return documented
    raise OptionsError(f'classifier must be "documented" or a function of a Failure, got {option!r}')
