"""Whether the secondary can be connected to (P6): one fact about the namespace, and none about its queues.

    open ──a connection failed──> backing off ──a trial connected, or something was stored──> open

While it backs off nobody sends to it. Sends that need it wait, and one trial at a time opens a link: after 0.2 s, then
after pauses that double up to 2 s. The first trial that connects wakes everybody who waits. Nobody waits: no trial.

A queue that gives no answer on an open connection leaves the rotation. Whether only the queue is silent is not known
then, so a trial is made at once; if that cannot connect either, the silence was the secondary's. An attempt that had
less time than a trial proves nothing, and only leads to one: when the secondary is back, whoever has waited for that
has little time left, and all of them connect at once. Several of them, one after the other, do prove something of their
queue: callers who never have more time than that must not meet a silent queue for ever.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

from twinbus.pairing.backlog.rotation import Silence
from twinbus.pairing.effects import Effect, ReportEvent, TrySecondary, WakeWaiter
from twinbus.pairing.sending.failure import Failure, FailureKind

PAUSE_MIN_S, PAUSE_MAX_S = 0.2, 2.0
SPREAD = 0.2
"""Trials come up to this share earlier, by chance, so that clients do not try in step."""
TRIAL_S = 1.0
SHORT_TRIALS_MAX = 5
"""After this many trials in a row without an answer, the next ones last a whole attempt: a namespace that is far away
or very busy may need longer than a second to accept a connection."""
CALM_S = 10.0
"""A connection that fails so long after the last trial connected begins a new outage, with short pauses again."""
SHORT_ATTEMPTS_MIN = 3
"""This many attempts in a row, each with too little time, prove that a queue is silent, if they had enough together."""


@dataclass(frozen=True, slots=True)
class Reachable:
    """Sends go to backlog queues."""


@dataclass(frozen=True, slots=True)
class BackingOff:
    """Nobody sends; sends that need it wait for a trial."""

    since: float
    until: float
    """No trial begins earlier."""
    failure: Failure
    trials: int = 0
    """How many have failed."""
    silent_trials: int = 0
    """How many of the last ones in a row got no answer at all."""


State = Reachable | BackingOff


class Waiter(NamedTuple):
    path: str
    """The entity whose messages wait."""
    queue: int | None
    """The backlog queue that the send has chosen, if any is left."""


def is_about_the_secondary(failure: Failure) -> bool:
    """Connection refused, lost or silent: that says nothing about the queue behind it."""
    return failure.kind is FailureKind.UNREACHABLE or (failure.kind is FailureKind.NO_ANSWER and failure.is_connection)


class Secondary:
    def __init__(self, attempt_s: float) -> None:
        self.state: State = Reachable()
        self.generation = 0
        """Grows whenever the secondary is found to be back: failures of attempts that began earlier are history."""
        self.waiting: dict[int, Waiter] = {}
        """Sends that wait for a trial, by ticket, in the order in which they came."""
        self.trial_at: float | None = None
        """When a trial is to begin; None: none is ordered."""
        self.is_trying = False
        self._attempt_s = attempt_s
        self._pauses = 0
        self._opened_at = 0.0
        self._answered_at = -inf
        """When it was last found to be there."""
        self._is_doubted = False

    @property
    def is_open(self) -> bool:
        return isinstance(self.state, Reachable)

    @property
    def is_doubted(self) -> bool:
        """There was no answer, and a trial is to show whether the secondary still gives any."""
        return self.is_open and self._is_doubted

    @property
    def trials(self) -> int:
        """How many have failed since it backs off."""
        return 0 if isinstance(self.state, Reachable) else self.state.trials

    @property
    def reason(self) -> str:
        """Why sends wait; empty if it is open."""
        return "" if isinstance(self.state, Reachable) else str(self.state.failure)

    # --- what happened ---

    def failed(self, at: float, generation: int, failure: Failure, chance: float) -> tuple[Effect, ...]:
        """An attempt that began in this generation could not connect, or lost its connection."""
        if not self.is_open or generation != self.generation:
            return ()
        if at - self._opened_at > CALM_S:
            self._pauses = 0
        self._is_doubted = False
        self.state = BackingOff(at, at + self._next_pause_s(chance), failure)
        details = {"kind": failure.kind.value, "next_trial_s": self.state.until - at}
        return ReportEvent("secondary_unreachable", str(failure), details), *self._order_trial(at)

    def reached(self, at: float, why: str = "a trial connected") -> tuple[Effect, ...]:
        """It can be connected to."""
        self._answered_at = at
        was_doubted, self._is_doubted = self._is_doubted, False
        if isinstance(self.state, Reachable):
            return self._rouse_all() if was_doubted else ()
        details = {"after_s": at - self.state.since, "trials": self.state.trials}
        self.state, self.trial_at = Reachable(), None
        self.generation += 1
        self._opened_at = at
        return ReportEvent("secondary_back", why, details), *self._rouse_all()

    def stored(self, at: float) -> tuple[Effect, ...]:
        """A backlog queue took something."""
        self._pauses, self._answered_at = 0, at
        return () if self.is_open and not self._is_doubted else self.reached(at, "a backlog queue took messages")

    def proves_nothing(self, failure: Failure, had_s: float) -> bool:
        """No answer in less time than a trial has: a caller who had no more of it left is no proof against anybody."""
        return failure.kind is FailureKind.NO_ANSWER and had_s < self._fair_s

    def has_proof(self, silence: Silence) -> bool:
        """Whether short attempts at a queue show that it is silent, and not the secondary, which has answered since."""
        is_long = silence.attempts >= SHORT_ATTEMPTS_MIN and silence.had_s >= self._fair_s
        return is_long and self._answered_at >= silence.since

    @property
    def _fair_s(self) -> float:
        """As long as a trial: whoever gives no answer for so long is silent."""
        return min(TRIAL_S, self._attempt_s)

    def doubt_a_little(self, at: float) -> tuple[Effect, ...]:
        """There was no answer in too little time for one: have a trial show how it is, if nothing else just has."""
        return self.doubt(at) if at - self._answered_at >= PAUSE_MAX_S else ()

    def doubt(self, at: float) -> tuple[Effect, ...]:
        """A queue gave no answer on an open connection: have a trial show whether anybody else would."""
        if not self.is_open or self._is_doubted:
            return ()
        self._is_doubted = True
        return self._order(at)

    # --- those who wait ---

    def wait(self, ticket: int, waiter: Waiter, at: float) -> tuple[Effect, ...]:
        self.waiting[ticket] = waiter
        return self._order_trial(at)

    def leave(self, ticket: int) -> None:
        self.waiting.pop(ticket, None)

    def rouse(self, path: str) -> tuple[Effect, ...]:
        """Wake those who wait with messages for this entity: they may go elsewhere."""
        return tuple(WakeWaiter(ticket) for ticket, waiter in self.waiting.items() if waiter.path == path)

    def _rouse_all(self) -> tuple[Effect, ...]:
        return tuple(map(WakeWaiter, self.waiting))

    # --- trials ---

    def look(self, at: float) -> tuple[Effect, ...]:
        """Have a trial though nobody waits: whether it is back is worth knowing."""
        is_due = isinstance(self.state, BackingOff) and at >= self.state.until
        return self._order(at) if is_due else ()

    def want(self, at: float) -> tuple[Effect, ...]:
        """Messages went elsewhere because of it: have trials as if somebody waited, and no waiting."""
        return self._order(max(at, self.state.until)) if isinstance(self.state, BackingOff) else ()

    def begin_trial(self, at: float, *, can_try: bool) -> float | None:
        """How long the trial that is due may take; None: there is nothing to try any more, or nothing to try it on.

        It may also be too early: ordered out of doubt, and the secondary has begun to back off since.
        """
        self.trial_at = None
        if not can_try or self.is_trying or self._is_early(at) or (self.is_open and not self._is_doubted):
            return None
        self.is_trying = True
        is_patient = isinstance(self.state, BackingOff) and self.state.silent_trials >= SHORT_TRIALS_MAX
        return self._attempt_s if is_patient else self._fair_s

    def put_off(self, at: float) -> tuple[Effect, ...]:
        """If a trial was not begun because it is too early: have one made in time."""
        return self._order_trial(at) if self._is_early(at) else ()

    def _is_early(self, at: float) -> bool:
        return isinstance(self.state, BackingOff) and at < self.state.until

    def trial_failed(self, at: float, generation: int, failure: Failure, chance: float) -> tuple[Effect, ...]:
        """A trial that began in this generation could not connect."""
        self.is_trying = False
        if generation != self.generation:  # somebody was faster to find out that it is back
            return self._order(at) if self._is_doubted else self._order_trial(at)
        if isinstance(self.state, Reachable):
            return self.failed(at, generation, failure, chance)
        is_silent = failure.kind is FailureKind.NO_ANSWER
        self.state = replace(
            self.state,
            until=at + self._next_pause_s(chance),
            failure=failure,
            trials=self.state.trials + 1,
            silent_trials=self.state.silent_trials + 1 if is_silent else 0,
        )
        return self._order_trial(at)

    def trial_connected(self, at: float) -> tuple[Effect, ...]:
        self.is_trying = False
        return self.reached(at)

    def _order_trial(self, at: float) -> tuple[Effect, ...]:
        if isinstance(self.state, Reachable) or not self.waiting:
            return ()
        return self._order(max(at, self.state.until))

    def _order(self, at: float) -> tuple[Effect, ...]:
        if self.is_trying or (self.trial_at is not None and self.trial_at <= at):
            return ()
        self.trial_at = at
        return (TrySecondary(at),)

    def _next_pause_s(self, chance: float) -> float:
        pause_s = min(PAUSE_MAX_S, PAUSE_MIN_S * float(1 << min(self._pauses, 30)))
        self._pauses += 1
        return pause_s * (1 - SPREAD * chance)
