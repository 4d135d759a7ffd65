"""The failover decision for one entity: (state, event) -> (state, effects).

    healthy ──a send failed──> suspect ──no success for the whole interval──> failed over ──a ping succeeded──> healthy

Where the primary is asked by links (P7) a link alone proves little: a queue that is disabled or full opens links too.
So links only make an entity *ready*; then one message at a time may try the primary, and the first one that is stored
brings everybody back. One that fails takes the detour, and the next one tries after another link.

No clock, no sockets, no chance here: time arrives inside events and orders leave as effects. That is why every path can
be tested without waiting and why the sync and the async client cannot disagree. An epoch begins whenever the side on
which sends belong changes, or a person says that all is well; what was begun in an older one is history.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from twinbus.pairing.effects import Effect, ForgetWake, PingPrimary, ReportEvent, StopPings, WakeMe
from twinbus.pairing.events import (
    Event,
    FailoverForced,
    LinkOpened,
    MarkedHealthy,
    OthersFailedOver,
    PingFailed,
    PingSucceeded,
    SendFailed,
    SendSucceeded,
    TimeCame,
    TooManyFailed,
    TrialBegan,
    TrialProvedNothing,
)
from twinbus.pairing.ping_schedule import next_ping_at
from twinbus.pairing.rules import Rules


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
    """How many pings must succeed, or links open, one after the other."""
    pings_good: int = 0
    """How many have, since the last one that failed."""
    stays: bool = False
    """Only a person brings it back."""
    is_tried: bool = False
    """A message is on its way to the primary, to see whether it is taken; there is never a second one."""
    no_trial_before: float = 0.0
    """The primary said that it is busy: until then no message tries it."""

    @property
    def is_ready(self) -> bool:
        """Links open: a message may try the primary."""
        return not self.stays and self.pings_good >= self.pings_needed


HOSTS_NAMED_MAX = 3
"""In the reason."""
State = Healthy | Suspect | FailedOver
Answer = tuple[State, tuple[Effect, ...]]


def step(state: State, event: Event, rules: Rules) -> Answer:
    """Decide the next state. Events of another epoch, and pairs that are not listed, change nothing."""
    if event.epoch != state.epoch:
        return state, ()
    match state, event:
        case Healthy(), SendFailed() if rules.failover_interval_s > 0:
            return _suspect(state, event, rules)
        case (Healthy() | Suspect(), SendFailed() | TooManyFailed() | FailoverForced()) if _is_decisive(event, rules):
            return _fail_over(state, event, event.reason, rules)
        case Suspect(), TimeCame() if event.at >= state.since + rules.failover_interval_s:
            return _fail_over(state, event, state.reason, rules)
        case Suspect(), OthersFailedOver():
            who = ", ".join(event.hosts[:HOSTS_NAMED_MAX])
            return _fail_over(state, event, f"{state.reason} (failed over elsewhere too: {who})", rules)
        case Suspect(epoch), SendSucceeded():
            return Healthy(epoch), (ForgetWake(), ReportEvent("trusted_again", "a send succeeded"))
        case Suspect(epoch), MarkedHealthy():
            return Healthy(epoch + 1), (ForgetWake(), ReportEvent("trusted_again", "marked as healthy"))
        case FailedOver(), PingFailed():
            failed = ReportEvent("ping_failed", event.reason, {"since_s": event.at - state.since})
            return replace(state, pings_good=0), (failed, *_next_ping(state, event, rules))
        case FailedOver(), PingSucceeded() if state.stays or state.pings_good + 1 < state.pings_needed:
            return replace(state, pings_good=state.pings_good + 1), _next_ping(state, event, rules)
        case FailedOver(), PingSucceeded():
            return _recover(state, event, "a ping succeeded")
        case FailedOver(), LinkOpened() if rules.keeps_order and may_try(state, event.at):
            # All who sent since the last link stand behind a fence. They stay in the backlog until the syphon has
            # brought home what is before them, and that is proof enough; waiting for a message could take for ever.
            return _recover(state, event, "a link was opened")
        case FailedOver(), LinkOpened():
            opened = replace(state, pings_good=min(state.pings_good + 1, state.pings_needed))
            return opened, _next_ping(state, event, rules)
        case FailedOver(), TrialBegan() if may_try(state, event.at):
            return replace(state, is_tried=True), ()
        case FailedOver(is_tried=True), SendSucceeded() if not state.stays:
            return _recover(state, event, "a message was stored")
        case FailedOver(is_tried=True), SendFailed():
            failed = ReportEvent(
                "ping_failed", f"a message tried it: {event.reason}", {"since_s": event.at - state.since}
            )
            return replace(state, is_tried=False, pings_good=0), (failed,)
        case FailedOver(is_tried=True), SendSucceeded():
            return replace(state, is_tried=False), ()
        case FailedOver(is_tried=True), TrialProvedNothing():
            return _not_proven(state, event), ()
        case FailedOver(), MarkedHealthy():
            return _recover(state, event, "marked as healthy")
        case FailedOver(), FailoverForced() if event.stays != state.stays:
            after = replace(state, stays=event.stays, pings_good=0)
            return after, (StopPings(),) if event.stays else _next_ping(after, event, rules)
        case _:
            return state, ()


def may_try(state: State, at: float) -> bool:
    """Whether a message that is sent now may try the primary of a failed over entity."""
    return isinstance(state, FailedOver) and state.is_ready and not state.is_tried and at >= state.no_trial_before


def _is_decisive(event: Event, rules: Rules) -> bool:
    return not isinstance(event, SendFailed) or rules.failover_interval_s <= 0


def _suspect(state: Healthy, event: SendFailed, rules: Rules) -> Answer:
    reported = ReportEvent("suspect", event.reason, {"failover_interval_s": rules.failover_interval_s})
    return Suspect(state.epoch, event.at, event.reason), (WakeMe(event.at + rules.failover_interval_s), reported)


def _fail_over(
    state: Healthy | Suspect,
    event: SendFailed | TooManyFailed | FailoverForced | TimeCame | OthersFailedOver,
    reason: str,
    rules: Rules,
) -> Answer:
    needed = max(rules.pings_to_return, event.pings_needed if isinstance(event, TooManyFailed) else 1)
    stays = isinstance(event, FailoverForced) and event.stays
    after = FailedOver(state.epoch + 1, event.at, reason, pings_needed=needed, stays=stays)
    reported = ReportEvent("failed_over", reason, {"epoch": after.epoch, "forced": isinstance(event, FailoverForced)})
    return after, (ForgetWake(), reported, *_next_ping(after, event, rules))


def _next_ping(
    state: FailedOver,
    event: SendFailed
    | TooManyFailed
    | TimeCame
    | OthersFailedOver
    | FailoverForced
    | PingFailed
    | PingSucceeded
    | LinkOpened,
    rules: Rules,
) -> tuple[Effect, ...]:
    if state.stays:
        return ()
    return (PingPrimary(next_ping_at(event.at, event.chance, rules)),)


def _not_proven(state: FailedOver, event: TrialProvedNothing) -> FailedOver:
    """The next link makes it ready again, not the next message: else every caller could meet what this one met."""
    good = min(state.pings_good, state.pings_needed - 1)
    return replace(state, is_tried=False, pings_good=good, no_trial_before=event.at + event.wait_s)


def _recover(state: FailedOver, event: PingSucceeded | LinkOpened | SendSucceeded | MarkedHealthy, why: str) -> Answer:
    reported = ReportEvent("recovered", why, {"epoch": state.epoch + 1, "after_s": event.at - state.since})
    return Healthy(state.epoch + 1), (StopPings(), reported)
