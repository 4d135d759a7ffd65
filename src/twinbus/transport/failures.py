"""Errors of a peer, classified: what the AMQP conditions of Service Bus mean."""

from __future__ import annotations

from twinbus.amqp.codec.outcomes import Error, Outcome, Rejected
from twinbus.errors import TwinbusError
from twinbus.pairing.sending.failure import Failure, FailureKind

_KINDS: dict[str, FailureKind] = {
    "com.microsoft:server-busy": FailureKind.BUSY,
    "com.microsoft:entity-disabled": FailureKind.DISABLED,
    "amqp:resource-limit-exceeded": FailureKind.FULL,
    "amqp:resource-deleted": FailureKind.DELETED,
    "amqp:not-found": FailureKind.NOT_FOUND,
    "amqp:unauthorized-access": FailureKind.UNAUTHORISED,
    "com.microsoft:auth-failed": FailureKind.UNAUTHORISED,
    "amqp:link:message-size-exceeded": FailureKind.TOO_LARGE,
    "com.microsoft:argument-error": FailureKind.REJECTED,
    "com.microsoft:argument-out-of-range": FailureKind.REJECTED,
    "amqp:not-allowed": FailureKind.NOT_ALLOWED,
    "amqp:decode-error": FailureKind.REJECTED,
    "amqp:invalid-field": FailureKind.REJECTED,
    "amqp:not-implemented": FailureKind.REJECTED,
    "amqp:precondition-failed": FailureKind.REJECTED,
    "amqp:connection:forced": FailureKind.UNREACHABLE,
    "com.microsoft:timeout": FailureKind.TIMED_OUT,
}
"""By condition; any other condition is an internal error of the service."""
_TEXT_LENGTH_MAX = 1_000


class ConnectionFailed(TwinbusError):
    """A connection, a link or a request failed; `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure


def failure_of(error: Error | None) -> Failure:
    """The failure that a peer's error stands for; None: it closed without an error."""
    if error is None:
        return Failure(FailureKind.UNREACHABLE, "closed without a reason")
    kind = _KINDS.get(error.condition, FailureKind.INTERNAL)
    # On the wire a condition is a symbol; everybody else compares it with strings.
    return Failure(kind, _one_line(error.description or error.condition), str(error.condition))


def failure_of_outcome(outcome: Outcome | None) -> Failure:
    """The failure in the outcome of a transfer that was not accepted."""
    if isinstance(outcome, Rejected) and outcome.error is not None:
        return failure_of(outcome.error)
    name = "nothing" if outcome is None else type(outcome).__name__.lower()
    return Failure(FailureKind.INTERNAL, f"the destination answered {name} instead of accepted")


def connection_failure(error: Error | None) -> Failure:
    """Why a whole connection ended; whatever the condition, everything in flight is in doubt."""
    if error is None:
        return Failure(FailureKind.UNREACHABLE, "the connection was closed", None, in_doubt=True, is_connection=True)
    kind = _KINDS.get(error.condition, FailureKind.UNREACHABLE)
    kind = kind if kind in (FailureKind.BUSY, FailureKind.UNAUTHORISED) else FailureKind.UNREACHABLE
    text = _one_line(error.description or error.condition)
    return Failure(kind, text, str(error.condition), in_doubt=True, is_connection=True)


def unreachable(error: BaseException, *, in_doubt: bool = False) -> Failure:
    """A connection that could not be opened, or was lost."""
    text = _one_line(str(error)) or type(error).__name__
    return Failure(FailureKind.UNREACHABLE, text, None, in_doubt, is_connection=True, error=error)


def no_answer(what: str, *, in_doubt: bool = False, is_connection: bool = False) -> Failure:
    return Failure(FailureKind.NO_ANSWER, what, None, in_doubt, is_connection)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_TEXT_LENGTH_MAX]
