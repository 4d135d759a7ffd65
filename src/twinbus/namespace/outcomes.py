"""What an AMQP outcome means for a message, and how ours are told: the dictionary at the door."""

from __future__ import annotations

from typing import Any

from twinbus.amqp.performatives import (
    ACCEPTED,
    RELEASED,
    Accepted,
    Coordinator,
    Error,
    Modified,
    Outcome,
    Rejected,
    Released,
    Source,
    Target,
)
from twinbus.errors import AmqpError, NamespaceError, NotAllowed, TwinbusError
from twinbus.namespace.commands import Abandon, Complete, DeadLetter, Defer, Release, Verdict
from twinbus.namespace.entities.notes import DESCRIPTION, REASON

DEAD_LETTER_CONDITION = "com.microsoft:dead-letter"


def entity_path(terminus: Source | Target | Coordinator | None) -> str:
    """The entity in an address: `amqps://host:port/orders`, `/orders` and `orders` are the same."""
    address = terminus.address if isinstance(terminus, Source | Target) else None
    if not address:
        raise NotAllowed("a link needs an address: the name of a queue")
    _, separator, rest = address.partition("://")
    path = (rest.partition("/")[2] if separator else address).strip("/")
    if not path:
        raise NotAllowed(f"the address {address!r} names no queue")
    return path


def amqp_error(error: TwinbusError) -> Error:
    condition = error.condition if isinstance(error, NamespaceError | AmqpError) else "amqp:internal-error"
    return Error(condition, str(error))


def verdict_of(outcome: Outcome | None, *, is_final: bool) -> Verdict | None:
    """What a receiver's outcome means for the message; None if it decides nothing yet.

    Only `undeliverable-here` tells a deferral from an abandonment: the JavaScript client leaves the rest out.
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
        case _:
            return Release() if is_final else None


def _reasons(error: Error | None) -> dict[str, Any]:
    """The properties a dead letter gets. Clients of other makers give a plain AMQP error instead of a reason."""
    if error is None:
        return {}
    properties = _as_properties(error.info) or {}
    if error.condition != DEAD_LETTER_CONDITION:
        properties.setdefault(REASON, str(error.condition))
        if error.description:
            properties.setdefault(DESCRIPTION, error.description)
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
        case _:
            return ACCEPTED
