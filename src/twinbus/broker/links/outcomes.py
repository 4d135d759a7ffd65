"""What an AMQP outcome of a receiver means for a message, and how the broker's own errors are written."""

from __future__ import annotations

from typing import Any, assert_never

from twinbus.amqp.codec.outcomes import (
    ACCEPTED,
    RELEASED,
    Accepted,
    Error,
    Modified,
    Outcome,
    Received,
    Rejected,
    Released,
)
from twinbus.amqp.codec.types import Symbol
from twinbus.broker.operations import (
    DEAD_LETTER_DESCRIPTION,
    DEAD_LETTER_REASON,
    Abandon,
    Complete,
    DeadLetter,
    Defer,
    Release,
    SettlementOutcome,
)
from twinbus.errors import AmqpError, NamespaceError, TwinbusError

DEAD_LETTER_CONDITION = "com.microsoft:dead-letter"


def amqp_error(error: TwinbusError) -> Error:
    condition = error.condition if isinstance(error, NamespaceError | AmqpError) else "amqp:internal-error"
    return Error(condition, str(error))


def rejection(error: TwinbusError) -> Rejected:
    return Rejected(amqp_error(error))


def outcome_of(outcome: Outcome | None, *, is_final: bool) -> SettlementOutcome | None:
    """What a receiver's outcome means for the message; None if it decides nothing yet.

    Only `undeliverable-here` distinguishes a deferral from an abandonment: the JavaScript client leaves the rest out.
    """
    match outcome:
        case Accepted():
            return Complete()
        case Released():
            return Release()
        case Modified(undeliverable_here=True, message_annotations=changes):
            return Defer(_as_properties(changes))
        case Modified(message_annotations=changes):
            return Abandon(_as_properties(changes))
        case Rejected(error=error):
            return DeadLetter(_reasons(error))
        case Received() | None:
            return Release() if is_final else None
        case _:
            assert_never(outcome)


def settling_outcome(outcome: SettlementOutcome) -> Outcome:
    """The outcome that says the same on the wire: what `outcome_of` reads as this."""
    match outcome:
        case Complete():
            return ACCEPTED
        case Release():
            return RELEASED
        case Abandon(properties):
            return Modified(delivery_failed=True, message_annotations=_as_annotations(properties))
        case Defer(properties):
            return Modified(undeliverable_here=True, message_annotations=_as_annotations(properties))
        case DeadLetter(properties):
            return Rejected(Error(DEAD_LETTER_CONDITION, None, _as_annotations(properties)))
        case _:
            assert_never(outcome)


def _as_annotations(properties: dict[str, Any] | None) -> dict[Any, Any] | None:
    return {Symbol(name): value for name, value in properties.items()} if properties else None


def _reasons(error: Error | None) -> dict[str, Any]:
    """The properties a dead letter gets. Clients of other makers give a plain AMQP error instead of a reason."""
    if error is None:
        return {}
    properties = _as_properties(error.info) or {}
    if error.condition != DEAD_LETTER_CONDITION:
        properties.setdefault(DEAD_LETTER_REASON, str(error.condition))
        if error.description:
            properties.setdefault(DEAD_LETTER_DESCRIPTION, error.description)
    return properties


def _as_properties(changes: dict[Any, Any] | None) -> dict[str, Any] | None:
    """A map's entries as application properties: keys as text, nulls left out."""
    return {str(key): value for key, value in changes.items() if value is not None} if changes else None


def confirmation_of(outcome: Outcome | None) -> Outcome:
    """The answer that means yes: the same outcome, but a rejection without its error, which would mean no."""
    match outcome:
        case Rejected():
            return Rejected()
        case Modified(delivery_failed=failed, undeliverable_here=elsewhere):
            return Modified(failed, elsewhere)
        case Released():
            return RELEASED
        case Accepted() | Received() | None:
            return ACCEPTED
        case _:
            assert_never(outcome)
