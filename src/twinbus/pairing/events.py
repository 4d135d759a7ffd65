"""What happened to an entity. Times are seconds on a clock that only goes forward.

Outcomes carry the epoch in which their attempt began. An event of an older epoch changes nothing, so a late success
does not cancel a newer failover, and a late failure does not start one. `chance` is from 0 to 1 and spreads the pings.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SendSucceeded:
    """The primary took messages."""

    at: float
    epoch: int


@dataclass(frozen=True, slots=True)
class SendFailed:
    """A send used up its retry schedule, or tried the primary once for a failed over entity; the class was *down*."""

    at: float
    epoch: int
    reason: str
    chance: float = 0.5


@dataclass(frozen=True, slots=True)
class TooManyFailed:
    """The share of failed sends passed the limit that was asked for."""

    at: float
    epoch: int
    reason: str
    pings_needed: int = 1
    chance: float = 0.5


@dataclass(frozen=True, slots=True)
class TimeCame:
    """The failover interval has passed since suspicion arose."""

    at: float
    epoch: int
    chance: float = 0.5


@dataclass(frozen=True, slots=True)
class PingSucceeded:
    """The primary took a ping."""

    at: float
    epoch: int
    chance: float = 0.5


@dataclass(frozen=True, slots=True)
class PingFailed:
    """The primary did not answer a ping, or refused it."""

    at: float
    epoch: int
    reason: str
    chance: float = 0.5


@dataclass(frozen=True, slots=True)
class LinkOpened:
    """The primary was asked by a link only, and the link opened: whether it takes messages is still to be shown."""

    at: float
    epoch: int
    chance: float = 0.5


@dataclass(frozen=True, slots=True)
class TrialBegan:
    """One message of a failed over entity is sent to the primary, to see whether it is taken."""

    at: float
    epoch: int


@dataclass(frozen=True, slots=True)
class TrialProvedNothing:
    """The primary said nothing about itself: it was busy, the message was at fault, or the caller did not wait."""

    at: float
    epoch: int
    wait_s: float = 0.0
    """For so long no other message tries."""


@dataclass(frozen=True, slots=True)
class FailoverForced:
    """Somebody wants this entity failed over. With `stays` no ping brings it back."""

    at: float
    epoch: int
    reason: str
    stays: bool = False
    chance: float = 0.5


@dataclass(frozen=True, slots=True)
class MarkedHealthy:
    """Somebody knows that the entity is well."""

    at: float
    epoch: int


Event = (
    SendSucceeded
    | SendFailed
    | TooManyFailed
    | TimeCame
    | PingSucceeded
    | PingFailed
    | LinkOpened
    | TrialBegan
    | TrialProvedNothing
    | FailoverForced
    | MarkedHealthy
)
