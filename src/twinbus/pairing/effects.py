"""What to do next. Orders of the core to whatever runs it, about one entity unless they say otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class WakeMe:
    """Report `TimeCame` at this time; replaces an earlier order."""

    at: float


@dataclass(frozen=True, slots=True)
class ForgetWake:
    """The order to be woken is void."""


@dataclass(frozen=True, slots=True)
class PingPrimary:
    """Ping at this time, and report how it went; replaces an earlier order."""

    at: float


@dataclass(frozen=True, slots=True)
class StopPings:
    """No further ping."""


@dataclass(frozen=True, slots=True)
class TrySecondary:
    """Try at this time whether the secondary can be connected to; replaces an earlier order. About no entity."""

    at: float


@dataclass(frozen=True, slots=True)
class WakeWaiter:
    """Wake the send that waits with this ticket: it is its turn, or something has changed for it."""

    ticket: int


@dataclass(frozen=True, slots=True)
class ReportEvent:
    """Something happened: for callbacks, the log and the ledger."""

    name: str
    text: str
    details: Mapping[str, object] = field(default_factory=dict)
    sizes: tuple[int, ...] = ()
    """Encoded bytes of each of the messages that `details` name: for the ledger only."""


Effect = WakeMe | ForgetWake | PingPrimary | StopPings | TrySecondary | WakeWaiter | ReportEvent
