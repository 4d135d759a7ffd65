"""What happened to an entity. Times are seconds on a clock that only goes forward.

Outcomes carry the epoch in which their attempt began. An event of an older epoch changes nothing, so a late success
does not cancel a newer failover, and a late failure does not start one. `chance` is from 0 to 1 and spreads the pings.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EpochEvent:
    at: float
    epoch: int


@dataclass(frozen=True, slots=True)
class SendSucceeded(EpochEvent):
    """The primary took messages."""


@dataclass(frozen=True, slots=True)
class SendFailed(EpochEvent):
    """A send used up its retry schedule, or tried the primary once for a failed over entity; the class was *down*."""

    reason: str
    chance: float = 0.5


@dataclass(frozen=True, slots=True)
class TooManyFailed(EpochEvent):
    """The share of failed sends passed the limit that was asked for."""

    reason: str
    pings_needed: int = 1
    chance: float = 0.5


@dataclass(frozen=True, slots=True)
class TimeCame(EpochEvent):
    """The failover interval has passed since suspicion arose."""

    chance: float = 0.5


@dataclass(frozen=True, slots=True)
class PingSucceeded(EpochEvent):
    """The primary took a ping."""

    chance: float = 0.5


@dataclass(frozen=True, slots=True)
class PingFailed(EpochEvent):
    """The primary did not answer a ping, or refused it."""

    reason: str
    chance: float = 0.5


@dataclass(frozen=True, slots=True)
class LinkOpened(EpochEvent):
    """The primary was asked by a link only, and the link opened: whether it takes messages is still to be shown."""

    chance: float = 0.5


@dataclass(frozen=True, slots=True)
class TrialBegan(EpochEvent):
    """One message of a failed over entity is sent to the primary, to see whether it is taken."""


@dataclass(frozen=True, slots=True)
class TrialProvedNothing(EpochEvent):
    """The primary said nothing about itself: it was busy, the message was at fault, or the caller did not wait."""

    wait_s: float = 0.0
    """For so long no other message tries."""


@dataclass(frozen=True, slots=True)
class OthersFailedOver(EpochEvent):
    """A quorum of other hosts has failed the entity over: that shortens the interval of one that fails here too."""

    hosts: tuple[str, ...]
    chance: float = 0.5


@dataclass(frozen=True, slots=True)
class FailoverForced(EpochEvent):
    """Somebody wants this entity failed over. With `stays` no ping brings it back."""

    reason: str
    stays: bool = False
    chance: float = 0.5


@dataclass(frozen=True, slots=True)
class MarkedHealthy(EpochEvent):
    """Somebody knows that the entity is well."""


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
    | OthersFailedOver
    | FailoverForced
    | MarkedHealthy
)
