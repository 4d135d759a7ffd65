"""What becomes of an operation: it goes ahead, is refused, is never answered, or costs the connection."""

from __future__ import annotations

from typing import Final, NamedTuple

from twinbus.errors import NamespaceError


class Proceed(NamedTuple):
    """Do it."""

    delay_ms: int = 0
    """Hold the answer (of a delivery: the delivery) for so long."""
    late_ms: int = 0
    """A message that is sent appears so much later."""
    unanswered: bool = False
    """Do it, and never answer."""


class Refuse(NamedTuple):
    """Do nothing and say why."""

    error: NamespaceError
    delay_ms: int = 0

    @property
    def management_status(self) -> int:
        """The status of a management response that tells this."""
        return _MANAGEMENT_STATUS.get(self.error.condition, 500)

    @property
    def http_status(self) -> int:
        """The status of an HTTP answer that tells this; 503 is what clients take as "not now"."""
        return _HTTP_STATUS.get(self.error.condition, 503)


class Silence(NamedTuple):
    """Do nothing and say nothing, now or later."""


class Drop(NamedTuple):
    """Do nothing and reset the connection."""


Ruling = Proceed | Refuse | Silence | Drop

PROCEED: Final = Proceed()
"""Nothing is wrong: compare with `is`."""

_MANAGEMENT_STATUS = {
    "amqp:not-found": 404,
    "com.microsoft:message-not-found": 404,
    "com.microsoft:message-lock-lost": 410,
    "com.microsoft:session-lock-lost": 410,
    "com.microsoft:entity-already-exists": 409,
    "com.microsoft:session-cannot-be-locked": 409,
    "com.microsoft:server-busy": 503,
    "com.microsoft:timeout": 408,
    "amqp:unauthorized-access": 401,
    "com.microsoft:auth-failed": 401,
    "amqp:resource-limit-exceeded": 403,
    "com.microsoft:entity-disabled": 403,
    "amqp:not-allowed": 400,
    "com.microsoft:argument-error": 400,
}
_HTTP_STATUS = {"amqp:not-found": 404, "amqp:unauthorized-access": 401, "com.microsoft:auth-failed": 401}
