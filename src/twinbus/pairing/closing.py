"""What becomes of a pair when one of its two sides ends: (state, event) -> (state, effects).

Where a syphon runs, the two sides belong together: if one has ended and the other has not followed within 5 seconds,
the other one is ended too, as a fault that says why. Nothing may stay half open and look alive. Without a syphon one
side may be closed for as long as anybody likes; only what needs it comes to an end.

An outage is not an end: a side ends when somebody closes it, or when it can never be used again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from twinbus.pairing.effects import ForgetWake, WakeMe

PARTNER_S = 5.0
"""How long the other side has to follow."""

SideName = Literal["primary", "secondary"]
SIDES: tuple[SideName, SideName] = ("primary", "secondary")
PARTNER: dict[SideName, SideName] = {"primary": "secondary", "secondary": "primary"}


# --- states ---


@dataclass(frozen=True, slots=True)
class BothOpen:
    """As it should be."""


@dataclass(frozen=True, slots=True)
class OneOpen:
    """One side has ended, and the other has not yet."""

    ended: SideName
    fault: str | None
    """Why, if it was not closed but can never be used again."""
    until: float | None
    """When patience ends; None: nobody insists."""


@dataclass(frozen=True, slots=True)
class BothEnded:
    fault: str | None
    """None: both were closed, as it should be."""


State = BothOpen | OneOpen | BothEnded


# --- events ---


@dataclass(frozen=True, slots=True)
class SideClosed:
    at: float
    side: SideName


@dataclass(frozen=True, slots=True)
class SideFaulted:
    """A side can never be used again: its credential is refused for good, say."""

    at: float
    side: SideName
    reason: str


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    at: float


Event = SideClosed | SideFaulted | DeadlinePassed


# --- effects ---


@dataclass(frozen=True, slots=True)
class EndPair:
    """Close the pair, or fault it with this reason."""

    fault: str | None


Effect = WakeMe | ForgetWake | EndPair


def step(state: State, event: Event, *, is_syphoning: bool) -> tuple[State, tuple[Effect, ...]]:
    """Decide what follows. What is not listed changes nothing."""
    match state, event:
        case BothOpen(), SideClosed(at, side) | SideFaulted(at, side):
            fault = event.reason if isinstance(event, SideFaulted) else None
            if not is_syphoning:
                return OneOpen(side, fault, None), ()
            return OneOpen(side, fault, at + PARTNER_S), (WakeMe(at + PARTNER_S),)
        case OneOpen(ended, _, until), SideClosed(at, side) if side != ended and until is not None and at > until:
            return _too_late(state)  # its timer is late, and that must not change what is right
        case OneOpen(ended, fault, until), SideClosed(_, side) | SideFaulted(_, side) if side != ended:
            reason = fault or (event.reason if isinstance(event, SideFaulted) else None)
            return BothEnded(reason), (*((ForgetWake(),) if until is not None else ()), EndPair(reason))
        case OneOpen(until=float() as until), DeadlinePassed(at) if at >= until:
            return _too_late(state)
        case _:
            return state, ()


def _too_late(state: OneOpen) -> tuple[State, tuple[Effect, ...]]:
    how = "was closed" if state.fault is None else f"has ended ({state.fault})"
    reason = f"the {state.ended} {how}, and the {PARTNER[state.ended]} was not closed within {PARTNER_S:g} s"
    return BothEnded(reason), (ForgetWake(), EndPair(reason))
