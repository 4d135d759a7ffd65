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


class Silence(NamedTuple):
    """Do nothing and say nothing, now or later."""


class Drop(NamedTuple):
    """Do nothing and reset the connection."""


Ruling = Proceed | Refuse | Silence | Drop

PROCEED: Final = Proceed()
"""Nothing is wrong: compare with `is`."""
