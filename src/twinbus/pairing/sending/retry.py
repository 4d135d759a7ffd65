"""The retry schedule of one send: how many attempts, how far apart, and when there is no time for another.

It belongs to the core and not to the SDK, so that it is simulated, obeys the ten seconds of a busy server, and counts
every copy that may have been stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from twinbus.pairing.rules import Rules
from twinbus.pairing.sending.failure import Failure


@dataclass(slots=True)
class Tries:
    """The attempts of one send so far."""

    rules: Rules
    deadline: float | None
    """When the caller's patience ends; None: never."""
    made: int = 0
    in_round: int = 0
    """Since the schedule began, or began again: a held send tries round after round."""
    copies_in_doubt: int = 0
    failures: list[Failure] = field(default_factory=list)

    def note(self, failure: Failure, messages: int = 1) -> None:
        """An attempt to send this many messages has failed."""
        self.attempted()
        self.copies_in_doubt += messages if failure.in_doubt else 0
        self.failures = [*self.failures[-2:], failure]  # the last three tell enough

    def attempted(self) -> None:
        self.made += 1
        self.in_round += 1

    def new_round(self) -> None:
        self.in_round = 0

    @property
    def last(self) -> Failure:
        return self.failures[-1]

    def pause_before_next(self, at: float) -> float | None:
        """Seconds to wait before trying again; None when the schedule or the time is used up."""
        pause = backoff_s(self.rules, self.in_round - 1)
        return pause if self.in_round < self.rules.attempts and self.has_time_for(pause, at) else None

    def pause_when_busy(self, at: float) -> float | None:
        """The same after a busy answer, for which no pause is long enough that is shorter than ten seconds."""
        pause = self.rules.busy_wait_s
        return pause if self.in_round < self.rules.attempts and self.has_time_for(pause, at) else None

    def has_time_for(self, seconds: float, at: float) -> bool:
        return self.deadline is None or at + seconds < self.deadline

    def attempt_s(self, at: float, *, keep_back_s: float = 0.0) -> float:
        """How long the next attempt may take; 0 or less: there is no time for one."""
        if self.deadline is None:
            return self.rules.attempt_s
        return min(self.rules.attempt_s, self.deadline - keep_back_s - at)


def backoff_s(rules: Rules, number: int) -> float:
    """The pause after failed attempt `number`, counted from 0: it doubles, up to a limit."""
    return min(rules.backoff_max_s, rules.backoff_min_s * float(1 << min(number, 30)))


def longest_s(rules: Rules) -> float:
    """The most that one round of the schedule can take: attempts and the pauses between them."""
    return rules.attempts * rules.attempt_s + sum(backoff_s(rules, number) for number in range(rules.attempts - 1))


def kept_back_s(rules: Rules, timeout_s: float | None) -> float:
    """How much of an impatient caller's time does not go to the primary.

    Without a failover interval the very message is to be saved, and the detour takes time too.
    """
    return 0.0 if rules.failover_interval_s > 0 else time_for_detour_s(rules, timeout_s)


def time_for_detour_s(rules: Rules, left_s: float | None) -> float:
    """How much of the time that a caller still has is left to the detour; 0 for a patient one."""
    return 0.0 if left_s is None else min(rules.attempt_s, left_s / 3)
