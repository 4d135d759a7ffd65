"""The failover decision for one entity: (state, event) -> (state, effects).

    healthy ──a send failed──> suspect ──no success for the whole interval──> failed over ──a ping succeeded──> healthy

No clock, no sockets, no chance here: time arrives inside events and orders leave as effects. That is why every path can
be tested without waiting and why the sync and the async client cannot disagree. An epoch begins whenever the side on
which sends belong changes, or a person says that all is well; what was begun in an older one is history.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from twinbus.pairing.effects import Effect, ForgetWake, PingPrimary, StopPings, Tell, WakeMe
from twinbus.pairing.events import (
    Event,
    FailoverForced,
    MarkedHealthy,
    PingFailed,
    PingSucceeded,
    SendFailed,
    SendSucceeded,
    TimeCame,
    TooManyFailed,
)
from twinbus.pairing.rules import Rules

JITTER = 0.1
"""Pings come this share earlier or later, so that clients do not ping in step."""


@dataclass(frozen=True, slots=True)
class Healthy:
    """Sends go to the primary."""

    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Suspect:
    """Sends fail, but not yet for long enough to leave the primary."""

    epoch: int
    since: float
    reason: str


@dataclass(frozen=True, slots=True)
class FailedOver:
    """Sends go to the backlog."""

    epoch: int
    since: float
    reason: str
    pings_needed: int = 1
    """So many pings must succeed, one after the other."""
    pings_good: int = 0
    """So many have, since the last one that failed."""
    stays: bool = False
    """Only a person brings it back."""


State = Healthy | Suspect | FailedOver
Answer = tuple[State, tuple[Effect, ...]]


def step(state: State, event: Event, rules: Rules) -> Answer:
    """Decide the next state. News from another epoch, and pairs that are not listed, change nothing."""
    if event.epoch != state.epoch:
        return state, ()
    match state, event:
        case Healthy(), SendFailed() if rules.failover_interval_s > 0:
            return _suspect(state, event, rules)
        case (Healthy() | Suspect(), SendFailed() | TooManyFailed() | FailoverForced()) if _is_decisive(event, rules):
            return _fail_over(state, event, event.reason, rules)
        case Suspect(), TimeCame() if event.at >= state.since + rules.failover_interval_s:
            return _fail_over(state, event, state.reason, rules)
        case Suspect(epoch), SendSucceeded():
            return Healthy(epoch), (ForgetWake(), Tell("trusted_again", "a send succeeded"))
        case Suspect(epoch), MarkedHealthy():
            return Healthy(epoch + 1), (ForgetWake(), Tell("trusted_again", "marked as healthy"))
        case FailedOver(), PingFailed():
            failed = Tell("ping_failed", event.reason, {"since_s": event.at - state.since})
            return replace(state, pings_good=0), (failed, *_next_ping(state, event, rules))
        case FailedOver(), PingSucceeded() if state.stays or state.pings_good + 1 < state.pings_needed:
            return replace(state, pings_good=state.pings_good + 1), _next_ping(state, event, rules)
        case FailedOver(), PingSucceeded():
            return _recover(state, event, "a ping succeeded")
        case FailedOver(), MarkedHealthy():
            return _recover(state, event, "marked as healthy")
        case FailedOver(), FailoverForced() if event.stays != state.stays:
            after = replace(state, stays=event.stays, pings_good=0)
            return after, (StopPings(),) if event.stays else _next_ping(after, event, rules)
        case _:
            return state, ()


def _is_decisive(event: Event, rules: Rules) -> bool:
    return not isinstance(event, SendFailed) or rules.failover_interval_s <= 0


def _suspect(state: Healthy, event: SendFailed, rules: Rules) -> Answer:
    news = Tell("suspect", event.reason, {"failover_interval_s": rules.failover_interval_s})
    return Suspect(state.epoch, event.at, event.reason), (WakeMe(event.at + rules.failover_interval_s), news)


def _fail_over(
    state: Healthy | Suspect, event: SendFailed | TooManyFailed | FailoverForced | TimeCame, reason: str, rules: Rules
) -> Answer:
    needed = max(rules.pings_to_return, event.pings_needed if isinstance(event, TooManyFailed) else 1)
    stays = isinstance(event, FailoverForced) and event.stays
    after = FailedOver(state.epoch + 1, event.at, reason, pings_needed=needed, stays=stays)
    news = Tell("failed_over", reason, {"epoch": after.epoch, "forced": isinstance(event, FailoverForced)})
    return after, (ForgetWake(), news, *_next_ping(after, event, rules))


def _next_ping(
    state: FailedOver,
    event: SendFailed | TooManyFailed | TimeCame | FailoverForced | PingFailed | PingSucceeded,
    rules: Rules,
) -> tuple[Effect, ...]:
    if state.stays:
        return ()
    return (PingPrimary(event.at + rules.ping_interval_s * (1 + JITTER * (2 * event.chance - 1))),)


def _recover(state: FailedOver, event: PingSucceeded | MarkedHealthy, why: str) -> Answer:
    news = Tell("recovered", why, {"epoch": state.epoch + 1, "after_s": event.at - state.since})
    return Healthy(state.epoch + 1), (StopPings(), news)
