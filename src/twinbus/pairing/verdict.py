"""Is this failure an outage, a throttle, or the caller's fault? The table of the specification, clause P4.

A verdict is spoken about one attempt; the retry schedule decides whether there is another one before it counts.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from twinbus.errors import OptionsError
from twinbus.pairing.failure import Failure, FailureKind

Kind = FailureKind


class Verdict(Enum):
    DOWN = "down"
    """Counts towards failover; on a backlog queue: it leaves the rotation; on a ping: still down."""
    RAISE = "raise"
    """To the caller, at once."""
    BUSY = "busy"
    """Wait ten seconds, send again, never fail over."""


class Role(Enum):
    PRIMARY = "primary send"
    PING = "ping"
    BACKLOG = "backlog send"
    SYPHON = "syphon send"


Classifier = Callable[[Failure], Verdict | None]
"""An application's own opinion on a failed send to the primary; None: as in the table."""

CALLERS_FAULT = frozenset((Kind.TOO_LARGE, Kind.REJECTED))


def verdict(failure: Failure, role: Role, *, is_known: bool = True) -> Verdict:
    """What the table says. `is_known`: this client has seen the entity alive, or it was declared to exist."""
    kind = failure.kind
    if role is Role.PING:
        return Verdict.DOWN
    if kind is Kind.BUSY:
        return Verdict.BUSY
    if kind in CALLERS_FAULT:
        return Verdict.RAISE
    if kind is Kind.NOT_ALLOWED:
        return Verdict.DOWN if role is Role.BACKLOG else Verdict.RAISE  # other queues may allow it
    if kind is Kind.UNAUTHORISED:
        return Verdict.RAISE if role is Role.PRIMARY else Verdict.DOWN
    if kind is Kind.NOT_FOUND and role is Role.PRIMARY and not is_known:
        return Verdict.RAISE  # a typo must not fill a backlog that nobody can bring home
    return Verdict.DOWN


def documented(failure: Failure) -> Verdict | None:
    """The literal rule of the documents: time-outs and errors that are not transient count; transient ones are raised.

    A connection that is lost and an internal error are transient there, so they never fail over by themselves. A
    time-out counts, whether nobody answered or the service says that it took too long.
    """
    return Verdict.RAISE if failure.kind in (Kind.UNREACHABLE, Kind.INTERNAL) else None


def classifier_for(option: Classifier | str | None) -> Classifier | None:
    """The option `classifier` as a function; raises `OptionsError` for what it cannot be."""
    if option is None or callable(option):
        return option
    if option == "documented":
        return documented
    raise OptionsError(f'classifier must be "documented" or a function of a Failure, got {option!r}')
