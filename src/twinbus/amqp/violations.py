"""A peer that breaks the rules of the conversation. These never leave the engine: they become an end or a close."""

from __future__ import annotations

from twinbus.amqp.outcomes import Error
from twinbus.errors import AmqpError


class Violation(AmqpError):
    """Ends what it happened in; `error` is what the peer is told."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description)
        self.error = Error(condition, description)


class ConnectionViolation(Violation):
    """The connection cannot go on."""


class SessionViolation(Violation):
    """One session cannot go on; the others can."""


def error_of(mistake: AmqpError) -> Error:
    """What to tell the peer about its mistake."""
    return mistake.error if isinstance(mistake, Violation) else Error(mistake.condition, str(mistake))
