"""When an entity may, must and must not change sides: held against what was seen of its sends and pings.

Everything here is kept from what happened outside the core: which attempts began and how they ended, which pings, what
an operator did. After each of them the core's state has to be one that these allow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from sim.invariants import check
from sim.pair_loop import VirtualLoop
from twinbus.pairing.entity import Entity, name_of
from twinbus.pairing.failover import FailedOver, Suspect
from twinbus.pairing.rules import Rules

BUSY_S = 10.0
LAG_S = 0.02
"""So much later than ordered a timer may do its work."""
PINGS_WANTED_MAX = 8
"""The most that damping asks for."""
SLICE = 0.1
"""The window of the error rate moves in steps of this share."""


class EntityWatch:
    def __init__(self, entity: Entity, rules: Rules, loop: VirtualLoop, seen: Counter[str]) -> None:
        self.entity = entity
        self.is_known = entity.is_known
        """It was declared, or took something already."""
        self.period = 0
        """Counts the times that sends changed sides; attempts of an earlier period are history."""
        self._rules, self._loop, self._seen = rules, loop, seen
        self._state = entity.state
        self._failing_since: float | None = None
        self._sends: list[tuple[float, bool]] = []
        """Of this period: when they ended, whether they failed."""
        self._pings_in_row = 0
        self._pings_wanted = 1
        self._stays = False
        self._has_trial = False
        self._rests_until = 0.0
        self.changed_at = 0.0

    @property
    def is_failed_over(self) -> bool:
        return isinstance(self.entity.state, FailedOver)

    @property
    def is_suspect(self) -> bool:
        return isinstance(self.entity.state, Suspect)

    @property
    def wants_pings(self) -> bool:
        return self.is_failed_over and not self._stays

    # --- what happens ---

    def unchanged(self, why: str) -> None:
        """What happened just now is no reason for anything."""
        now, before = name_of(self.entity.state), name_of(self._state)
        is_same = self.entity.state is self._state or self.entity.state == self._state
        check(is_same, f"{self.entity.path} went from {before} to {now} because {why}")

    def failed(self, period: int, at: float) -> None:
        """A send that began in this period used up its schedule, and the error class was *down*."""
        if period != self.period:
            self._seen["late failures"] += 1
            self.unchanged("of a failure from before its sends changed sides")
            return
        self._sends.append((at, True))
        if self._failing_since is None:
            self._failing_since = at
        if self._rules.failover_interval_s <= 0:
            self._must_be("failed over", after="a failure, and the interval is zero")
        else:
            decisions = set(self._rate_decisions(at))
            allowed = [name for name, by in (("suspect", False), ("failed over", True)) if by in decisions]
            self._must_be(*allowed, after="a failure")
            self._seen["failed over by error rate"] += self.is_failed_over
        self._enter(by_rate=self._rules.failover_interval_s > 0)

    def succeeded(self, period: int, at: float) -> None:
        self.is_known = True
        if period != self.period:
            self._seen["late successes"] += 1
            self.unchanged("of a success from before its sends changed sides")
            return
        self._sends.append((at, False))
        self._failing_since = None
        self._must_be("healthy", after="a send succeeded")
        self._enter()

    def time_came(self, at: float) -> None:
        if self._is_due(at):
            self._must_be("failed over", after="no send succeeded for the whole interval")
            self._enter()
        else:
            self.unchanged("of a timer that was not due")

    def pinged(self, period: int, *, succeeded: bool) -> None:
        if period != self.period:
            self._seen["late pings"] += 1
            self.unchanged("of a ping from before its sends changed sides")
            return
        self._pings_in_row = self._pings_in_row + 1 if succeeded else 0
        is_back = self._pings_in_row >= self._pings_wanted and not self._stays
        self._must_be("healthy" if is_back else "failed over", after=f"{self._pings_in_row} pings succeeded")
        self._enter()

    def linked(self, period: int, *, succeeded: bool) -> None:
        """A link was opened, or could not be: that alone brings nobody back."""
        if period != self.period:
            self._seen["late pings"] += 1
            self.unchanged("of a link from before its sends changed sides")
            return
        self._pings_in_row = min(self._pings_in_row + 1, self._pings_wanted) if succeeded else 0
        self._must_be("failed over", after="a link was opened")
        self._enter()

    @property
    def waits_for_message(self) -> bool:
        return self.wants_pings and self._pings_in_row >= self._pings_wanted

    def trial_begins(self) -> None:
        """A message is sent to the primary though the entity is failed over."""
        path = self.entity.path
        check(self.waits_for_message, f"a message tries {path} though too few links were opened")
        check(not self._has_trial, f"two messages try {path}")
        check(self._loop.now >= self._rests_until, f"a message tries {path} soon after that was busy")
        self._has_trial = True
        self._seen["trials"] += 1
        self._enter()

    def trial_ended(self, period: int, outcome: str) -> None:
        """A message that tried was "stored", found the primary "down" or "busy", or proved "nothing"."""
        self._seen[f"trials: {outcome}"] += 1
        self.is_known |= outcome == "stored"
        if period != self.period:
            self.unchanged("of a trial from before its sends changed sides")
            return
        self._has_trial = False
        is_back = outcome == "stored" and not self._stays
        self._must_be("healthy" if is_back else "failed over", after=f"a trial: {outcome}")
        if outcome == "down":
            self._pings_in_row = 0
        elif outcome != "stored":
            self._pings_in_row = min(self._pings_in_row, self._pings_wanted - 1)
            self._rests_until = self._loop.now + BUSY_S if outcome == "busy" else 0.0
        self._enter()

    def forced(self, *, stays: bool) -> None:
        self._must_be("failed over", after="a failover was forced")
        if self._stays is not stays:
            self._stays, self._pings_in_row = stays, 0
        self._enter()

    def marked(self) -> None:
        was_suspect = isinstance(self._state, Suspect)
        self._must_be("healthy", after="it was marked as healthy")
        self._failing_since = None
        self._enter(is_new=was_suspect)

    def check_duties(self) -> None:
        """What should have happened by now has happened."""
        since, interval_s = self._failing_since, self._rules.failover_interval_s
        is_late = since is not None and self._loop.due > since + interval_s + LAG_S
        check(self.is_failed_over or not is_late, f"{self.entity.path} did not fail over when its time had come")

    def back_by(self) -> float:
        """The latest time at which an entity that is failed over returns, if nothing fails from now on."""
        rules = self._rules
        ping_s = 1.1 * rules.ping_interval_s + LAG_S + 0.1
        return self._loop.now + rules.attempt_s + self._pings_wanted * ping_s

    # --- what follows ---

    def _is_due(self, at: float) -> bool:
        since = self._failing_since
        return since is not None and not self.is_failed_over_before and at >= since + self._rules.failover_interval_s

    @property
    def is_failed_over_before(self) -> bool:
        return isinstance(self._state, FailedOver)

    def _must_be(self, *names: str, after: str) -> None:
        name = name_of(self.entity.state)
        check(name in names, f"{self.entity.path} is {name} after {after}; it should be {' or '.join(names)}")

    def _enter(self, *, is_new: bool = False, by_rate: bool = False) -> None:
        before, self._state = self._state, self.entity.state
        if name_of(before) != name_of(self._state):
            self.changed_at = self._loop.now
        if isinstance(before, FailedOver) is not self.is_failed_over or is_new:
            self.period += 1
            self._seen["failovers" if self.is_failed_over else "returns"] += 1
            check(self._state.epoch == before.epoch + 1, f"{self.entity.path} has epoch {self._state.epoch}")
            self._failing_since, self._pings_in_row = None, 0
            self._has_trial, self._rests_until = False, 0.0
            if not is_new:
                self._sends.clear()
            self._begin_period(self._state, by_rate=by_rate)
        elif isinstance(self._state, Suspect):
            check(self._state.since == self._failing_since, f"{self.entity.path} counts from another failure")
        elif isinstance(before, FailedOver) and isinstance(self._state, FailedOver):
            is_same = (before.epoch, before.since) == (self._state.epoch, self._state.since)
            check(is_same, f"{self.entity.path} is failed over since {self._state.since}, not {before.since}")

    def _begin_period(self, state: object, *, by_rate: bool) -> None:
        if not isinstance(state, FailedOver):
            self._stays = False
            return
        wanted, least = state.pings_needed, self._rules.pings_to_return
        is_right = least <= wanted <= max(least, PINGS_WANTED_MAX) if by_rate else wanted == least
        check(is_right, f"{self.entity.path} wants {wanted} pings before it returns")
        self._pings_wanted = wanted

    def _rate_decisions(self, at: float) -> Iterator[bool]:
        """Whether too many sends failed; where the window begins is known only to a tenth of it."""
        rules = self._rules
        if rules.error_rate is None:
            yield False
            return
        begins = at - rules.error_window_s
        inside = [send for send in self._sends if send[0] > begins]
        vague = sum(when < begins + SLICE * rules.error_window_s * 1.001 for when, _ in inside)
        for cut in range(vague + 1):
            failures = [failed for _, failed in inside[cut:]]
            yield len(failures) >= rules.error_sends_min and sum(failures) >= rules.error_rate * len(failures)
