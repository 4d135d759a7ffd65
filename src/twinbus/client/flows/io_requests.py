"""The I/O that a flow asks for, and the answers: whoever runs the flow acts and answers.

Every answer says when it was given (`at`, on a clock that only goes forward) and brings some chance along (from 0 up
to 1), so that flows need neither a clock nor dice.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar

from twinbus.pairing.sending.failure import Failure

# --- asks ---


@dataclass(frozen=True, slots=True)
class ToPrimary:
    """Send this flow's messages to the entity on the primary, within `timeout_s`."""

    timeout_s: float
    is_patient: bool = True
    """The caller gave no time-out: waiting for others of this process need not count."""


@dataclass(frozen=True, slots=True)
class EncodeBatches:
    """Put this flow's messages into envelopes, in as few batches as fit into a backlog queue."""


@dataclass(frozen=True, slots=True)
class ToBacklog:
    """Send a batch of enveloped messages to this backlog queue."""

    queue: int
    encoded: tuple[bytes, ...]
    timeout_s: float
    is_patient: bool = True
    """As for `ToPrimary`."""


@dataclass(frozen=True, slots=True)
class ToSpool:
    """Store a batch of enveloped messages on the local disk."""

    encoded: tuple[bytes, ...]
    timeout_s: float


@dataclass(frozen=True, slots=True)
class OpenBacklog:
    """Open a new connection and a link to this backlog queue, and keep it for the next send."""

    queue: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Probe:
    """Ping the entity on the primary, or only open a link to it."""

    path: str
    timeout_s: float
    sends_ping: bool = True


@dataclass(frozen=True, slots=True)
class Sleep:
    """Come back after `seconds`, or as soon as the client is closing."""

    seconds: float


@dataclass(frozen=True, slots=True)
class WaitTurn:
    """Come back when this ticket is woken, after `seconds`, or as soon as the client is closing."""

    ticket: int
    seconds: float


Ask = ToPrimary | EncodeBatches | ToBacklog | ToSpool | OpenBacklog | Probe | Sleep | WaitTurn

# --- answers ---


@dataclass(frozen=True, slots=True)
class Stored:
    at: float
    chance: float
    sequence_numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    at: float
    chance: float
    failure: Failure


@dataclass(frozen=True, slots=True)
class EncodedBatches:
    at: float
    chance: float
    batches: tuple[tuple[bytes, ...], ...]


@dataclass(frozen=True, slots=True)
class Woke:
    """The wait is over. `is_closing` can answer anything: the client is being closed and does nothing more."""

    at: float
    chance: float
    is_closing: bool = False
    failure: Failure | None = None
    """What became of an attempt that was cut short by the end."""
    reason: str = "the client was closed"


@dataclass(frozen=True, slots=True)
class NoTurn:
    """Nothing was attempted: others of this process took all the time. That says nothing of the namespace."""

    at: float
    chance: float
    failure: Failure
    """What to raise if there is no time to wait any longer; it counts for nothing."""
    is_moving: bool = False
    """Those others got something done meanwhile: it is worth waiting."""


Answer = Stored | Failed | EncodedBatches | Woke | NoTurn

Result = TypeVar("Result")
Flow = Generator[Ask, Answer, Result]
