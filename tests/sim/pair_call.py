"""One call of a simulated application, and what must be true of it from its first step to its last.

The record is kept from what the flow asks for and is answered, never from what the flow knows. So at the end it is
known where each message is for sure, how often it may be elsewhere too, and whether the caller was answered just that.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from math import inf
from typing import assert_never

from sim.invariants import check
from sim.pair_messages import SimulatedRequest
from sim.pair_watch import TRIAL_S, Watch
from twinbus.client.flows.io_requests import (
    Answer,
    Ask,
    EncodeBatches,
    EncodedBatches,
    Failed,
    OpenBacklog,
    Probe,
    Sleep,
    Stored,
    ToBacklog,
    ToPrimary,
    ToSpool,
    WaitTurn,
)
from twinbus.client.flows.send_flow import DOUBTS_MAX, TIMEOUT_LEAST_S, SendFlow
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.pairing.entity import Entity
from twinbus.pairing.secondary import is_about_the_secondary
from twinbus.pairing.sending.failure import Failure, FailureKind

BUSY_WAIT_S = 10.0
SLACK_S = 0.1
"""How much longer than it may a call can take: least time-outs, and timers that lag."""
PRIMARY = "primary"

Kind = FailureKind


class Expected(Enum):
    """The error classes of the specification, written a second time."""

    DOWN = "down"
    RAISE = "raise"
    BUSY = "busy"


def expected(failure: Failure, *, is_backlog: bool, is_known: bool) -> Expected:
    match failure.kind:
        case Kind.BUSY:
            return Expected.BUSY
        case Kind.TOO_LARGE | Kind.REJECTED:
            return Expected.RAISE
        case Kind.UNAUTHORISED | Kind.NOT_ALLOWED:
            return Expected.DOWN if is_backlog else Expected.RAISE
        case Kind.NOT_FOUND:
            return Expected.DOWN if is_backlog or is_known else Expected.RAISE
        case _:
            return Expected.DOWN


class Call:
    def __init__(
        self, number: int, watch: Watch, entity: Entity, request: SimulatedRequest, timeout_s: float | None
    ) -> None:
        self.number = number
        self.request = request
        self.entity = entity
        self.rules = watch.rules
        self.timeout_s = timeout_s
        self.started_at = self.heard_at = watch.loop.now
        self._started_awake = watch.loop.awake_s
        self.sending: SendFlow | None = None
        """The flow that carries it, once there is one."""
        self.sure: dict[str, str] = {}
        """Message id -> where it is: the primary, or the path of a backlog queue."""
        self.doubts: Counter[str] = Counter()
        """Message id -> how many attempts with it ended without an answer."""
        self.doubtful_attempts = 0
        self.attempts = 0
        self.batches = 1
        self.is_over = False
        self.last_failure: Failure | None = None
        self.must_end = False
        """The error class says: raise to the caller now."""
        self.held_at: float | None = None
        self._watch = watch
        self._entity_watch = watch.entity(entity)
        self._line = watch.line(entity)
        self.is_to_join = watch.rules.hold_sends and len(self._line) > 0
        self._first_period = self._period = self._entity_watch.period
        self._in_round = 0
        self.has_tried = self._is_trial = False
        """It tried the primary of a failed over entity; it does so now."""
        self._is_away = False
        """The last attempt was one on a backlog queue."""
        self._tried: list[Failure] = []
        self._tried_queues: set[int] = set()
        """By the present batch."""
        self._waits_since: float | None = None
        """When the present batch began to wait for the secondary."""
        self._secondary_period = 0
        self._attempt_began_at = 0.0
        self._busy_at: dict[tuple[str, str], float] = {}
        self._ask: Ask | None = None
        self._answer: Answer | None = None
        self._on_the_way: tuple[str, ...] = ()
        self._unpacked: list[str] = list(request.message_ids)

    def __repr__(self) -> str:
        return f"call {self.number} to {self.entity.path}"

    @property
    def now(self) -> float:
        return self._watch.loop.now

    @property
    def deadline(self) -> float | None:
        return None if self.timeout_s is None else self.started_at + self.timeout_s

    @property
    def is_waiting(self) -> bool:
        """It is held, and waits for its turn."""
        return isinstance(self._ask, WaitTurn) and self._answer is None and self._is_turn(self._ask)

    def _is_turn(self, ask: WaitTurn) -> bool:
        """Whether it waits in line; otherwise it waits for the secondary."""
        return self.sending is not None and self.sending.ticket == ask.ticket

    # --- asks ---

    def asked(self, ask: Ask) -> None:
        """The flow wants something: it fits what happened before, and it may be done now."""
        is_trial = isinstance(ask, ToPrimary) and self._entity_watch.is_failed_over
        if is_trial:
            check(not self.has_tried, f"{self} tries the primary a second time")
            self._entity_watch.trial_begins()  # the last answer is still to be judged by the period of its attempt
        self._judge_last(ask)
        self._is_trial, self.has_tried = is_trial, self.has_tried or is_trial
        self._note_joining()
        check(not self.must_end, f"{self} goes on with {ask} though its caller was to be told {self.last_failure}")
        if self._ask is None:
            self._check_first(ask)
        match ask:
            case ToPrimary(timeout_s):
                self._to_primary(timeout_s)
            case EncodeBatches():
                self._line_is_behind()
                check(self._entity_watch.is_failed_over, f"{self} takes the detour though the primary is not given up")
                self._unpacked = [each for each in self.request.message_ids if each not in self.sure]
                self._begin_search()
            case ToBacklog(queue, encoded, timeout_s):
                self._to_backlog(queue, len(encoded), timeout_s)
            case WaitTurn(_, seconds) if self._is_turn(ask):
                self._check_wait(seconds)
            case WaitTurn(_, seconds):
                self._check_patience(seconds)
                self._watch.secondary.waiting.add(self)
            case Sleep():
                pass  # how long is right depends on the failure before, and was checked with it
            case Probe() | OpenBacklog() | ToSpool():
                raise AssertionError(f"a send never asks for {ask}")
            case _:
                assert_never(ask)
        self._ask, self._answer = ask, None

    def _check_first(self, ask: Ask) -> None:
        if self.is_to_join:
            check(isinstance(ask, WaitTurn), f"{self} begins with {ask} though others wait before it")
        elif self._entity_watch.is_failed_over:
            is_right = isinstance(ask, EncodeBatches) or self._is_trial
            check(is_right, f"{self} begins with {ask} though the entity is failed over")
        else:
            check(isinstance(ask, ToPrimary), f"{self} begins with {ask} though the entity is not failed over")

    def _to_primary(self, timeout_s: float) -> None:
        self._line_is_behind()
        self._check_time(timeout_s)
        self._period, self._is_away = self._entity_watch.period, False
        self._on_the_way = self.request.message_ids
        self._check_busy(PRIMARY)

    def _to_backlog(self, queue: int, count: int, timeout_s: float) -> None:
        path = backlog_path(self._watch.pair.name, queue)
        self._line_is_behind()
        self._watch.queues.check_usable(queue, self.now)
        check(not self._watch.secondary.is_away, f"{self} is sent to a secondary that nobody can connect to")
        self._secondary_period, self._attempt_began_at = self._watch.secondary.period, self.now
        self._check_time(timeout_s)
        self._is_away = True
        self._on_the_way = tuple(self._unpacked[:count])
        self._check_busy(path)
        self._tried_queues.add(queue)

    def _line_is_behind(self) -> None:
        if self.held_at is not None:
            self._line.check_turn(self)

    def _check_busy(self, place: str) -> None:
        for message_id in self._on_the_way:
            since = self.now - self._busy_at.get((place, message_id), -BUSY_WAIT_S)
            check(since >= BUSY_WAIT_S - 1e-6, f"{self} is sent to {place} again {since:.3f} s after that was busy")

    def _check_time(self, timeout_s: float) -> None:
        check(0 < timeout_s <= self.rules.attempt_s, f"{self} makes an attempt of {timeout_s} s")
        deadline = self.deadline
        is_in_time = deadline is None or timeout_s <= TIMEOUT_LEAST_S or self.now + timeout_s <= deadline + 1e-6
        check(is_in_time, f"{self} makes an attempt that may last longer than its caller waits")

    def _check_wait(self, seconds: float) -> None:
        check(self.held_at is not None, f"{self} waits for its turn and is not in line")
        until = (self.held_at or 0) + self.rules.hold_time_max_s
        check(self.now + seconds <= until + 1e-6, f"{self} is held for longer than it may")

    def _check_patience(self, seconds: float) -> None:
        if self._waits_since is None:
            self._waits_since = self.now
        check(self.now + seconds <= self._waits_until + 1e-6, f"{self} waits for the secondary for {seconds} s")

    @property
    def _waits_until(self) -> float:
        """Until when it waits for the secondary: as long as its caller, or a time that begins with the first wait."""
        if self.deadline is not None:
            return self.deadline
        return inf if self._waits_since is None else self._waits_since + self.rules.attempts * self.rules.attempt_s

    def _note_joining(self) -> None:
        if self.held_at is None and self.sending is not None and self.sending.ticket is not None:
            self.held_at = self.now
            self._line.join(self)

    # --- answers ---

    def heard(self, answer: Answer) -> None:
        self._answer, self.heard_at = answer, answer.at
        self._watch.secondary.waiting.discard(self)
        if isinstance(answer, EncodedBatches):
            self.batches = max(1, len(answer.batches))
            self._begin_search()
        if isinstance(self._ask, ToPrimary | ToBacklog) and isinstance(answer, Stored | Failed):
            self.attempts += 1
            self._in_round += 1
            if isinstance(answer, Stored):
                self._stored(self._place)
            else:
                self._failed(answer.failure)
            self._on_the_way = ()

    @property
    def _place(self) -> str:
        assert isinstance(self._ask, ToPrimary | ToBacklog)
        return PRIMARY if isinstance(self._ask, ToPrimary) else backlog_path(self._watch.pair.name, self._ask.queue)

    def _stored(self, place: str) -> None:
        for message_id in self._on_the_way:
            check(message_id not in self.sure, f"{self} sends {message_id} again though it was stored")
            self.sure[message_id] = place
        self._unpacked = self._unpacked[len(self._on_the_way) :]
        self._begin_search()
        if isinstance(self._ask, ToBacklog):
            self._watch.queues.took(self._ask.queue)
            self._watch.secondary.stored()

    def _begin_search(self) -> None:
        self._waits_since = None
        self._tried.clear()
        self._tried_queues.clear()

    def _failed(self, failure: Failure) -> None:
        self.last_failure = failure
        self._tried.append(failure)
        if failure.in_doubt:
            self._doubt()
        error_class = self._expected(failure)
        if error_class is Expected.BUSY:
            self._busy_at |= {(self._place, message_id): self.now for message_id in self._on_the_way}
        elif isinstance(self._ask, ToBacklog) and error_class is Expected.DOWN:
            self._charge(self._ask.queue, failure, self._ask.timeout_s)
        self.must_end = error_class is Expected.RAISE

    def _charge(self, queue: int, failure: Failure, had_s: float) -> None:
        """Somebody is to blame: the secondary as a whole, or the queue; or nobody, if there was too little time."""
        secondary, is_silent = self._watch.secondary, failure.kind is Kind.NO_ANSWER
        if is_silent and had_s < min(TRIAL_S, self.rules.attempt_s):
            if not secondary.is_away and secondary.period == self._secondary_period:
                self._charge_in_haste(queue, failure)
        elif is_about_the_secondary(failure):
            self._tried_queues.discard(queue)
            self._watch.connection_lost(self._secondary_period)
        elif is_silent and (secondary.is_away or secondary.period != self._secondary_period):
            self._tried_queues.discard(queue)  # it was not the queue that was silent
        else:
            self._watch.queues.failed(queue, self.now, by_silence=is_silent)
            if is_silent:
                secondary.doubted()

    def _charge_in_haste(self, queue: int, failure: Failure) -> None:
        """The queue is to blame if that was so again and again, while the secondary gave answers."""
        queues, secondary, fair_s = self._watch.queues, self._watch.secondary, min(TRIAL_S, self.rules.attempt_s)
        if not is_about_the_secondary(failure) and queues.is_silent(
            queue, self._attempt_began_at, self.now, fair_s, secondary.answered_at
        ):
            queues.failed(queue, self.now, by_silence=True)
            secondary.doubted()
        secondary.doubted_in_haste()

    def _doubt(self) -> None:
        self.doubtful_attempts += 1
        self.doubts.update(self._on_the_way)

    def _expected(self, failure: Failure) -> Expected:
        is_known = self._entity_watch.is_known
        return expected(failure, is_backlog=isinstance(self._ask, ToBacklog), is_known=is_known)

    # --- what an answer led to ---

    def _judge_last(self, then: Ask | None) -> None:
        """The last answer is known, and what the flow did next: did the core make of it what it should have?"""
        ask, answer, watch = self._ask, self._answer, self._entity_watch
        self._watch.check_others(self.entity)
        if isinstance(ask, ToPrimary) and self._is_trial:
            self._judge_trial(answer, then)
        elif isinstance(ask, ToPrimary) and isinstance(answer, Stored):
            watch.succeeded(self._period, answer.at)
        elif isinstance(ask, ToPrimary) and isinstance(answer, Failed):
            self._judge_failure(answer, then)
        else:
            watch.unchanged(f"{self} heard {answer}")
        if isinstance(then, EncodeBatches | WaitTurn) or (self._is_away and isinstance(then, ToPrimary)):
            self._in_round = 0

    def _judge_trial(self, answer: Answer | None, then: Ask | None) -> None:
        """One attempt, and then the backlog; only what is the caller's fault is raised."""
        self._is_trial = False
        outcome = "stored" if isinstance(answer, Stored) else "nothing"
        if isinstance(answer, Failed):
            error_class = self._expected(answer.failure)
            outcome = "nothing" if error_class is Expected.RAISE else error_class.value
            is_open = self._entity_watch.is_failed_over and then is None and not self.must_end
            check(not is_open, f"{self} is raised after it tried the primary: {answer.failure}")
        self._entity_watch.trial_ended(self._period, outcome)

    def _judge_failure(self, answer: Failed, then: Ask | None) -> None:
        error_class = self._expected(answer.failure)
        if error_class is not Expected.DOWN:
            self._entity_watch.unchanged(f"{self} heard {answer.failure}")
            check(then is None or isinstance(then, Sleep), f"{self} goes on with {then} after {answer.failure}")
        elif isinstance(then, Sleep):
            self._entity_watch.unchanged(f"{self} has an attempt left after {answer.failure}")
            check(self._in_round < self.rules.attempts, f"{self} makes more attempts than it may")
            check(then.seconds <= self.rules.backoff_max_s, f"{self} pauses for {then.seconds} s")
        else:
            is_used_up = self._in_round >= self.rules.attempts or not self._has_time_left(answer.at)
            is_used_up |= self._period != self._entity_watch.period  # sends have changed sides meanwhile
            check(is_used_up, f"{self} gives up after {self._in_round} attempts")
            self._entity_watch.failed(self._period, answer.at)
            self._in_round = 0

    def _has_time_left(self, at: float) -> bool:
        """Surely enough for another attempt."""
        kept_back_s = self.rules.attempt_s if self.rules.failover_interval_s <= 0 else 0
        return self.deadline is None or at + self.rules.backoff_max_s + kept_back_s < self.deadline

    # --- the end ---

    def ended(self) -> None:
        """The flow is done, with a receipt or an error."""
        self._judge_last(None)
        self.is_over = True
        self._line.leave(self)
        self._check_length()

    def cancelled(self) -> None:
        """The application gave up in the middle: what was on its way is in doubt."""
        if self._on_the_way:
            self._doubt()
        self._watch.secondary.waiting.discard(self)
        self._answer = None
        self.ended()

    def _check_length(self) -> None:
        awake_s = self._watch.loop.awake_s
        since_s = awake_s - self._started_awake
        check(since_s <= self._longest_s() + SLACK_S, f"{self} took {since_s:.3f} s, its bound is {self._longest_s()}")
        if self._watch.closed_at is not None:
            late_s = awake_s - self._watch.closed_at
            check(late_s <= self.rules.attempt_s + SLACK_S, f"{self} ended {late_s:.3f} s after the client was closed")

    def _longest_s(self) -> float:
        if self.timeout_s is not None:
            return self.timeout_s
        rules = self.rules
        round_s = rules.attempts * rules.attempt_s + (rules.attempts - 1) * max(BUSY_WAIT_S, rules.backoff_max_s)
        tries = self._watch.queues.count + 3 * rules.attempts + DOUBTS_MAX + 1
        detour_s = self.batches * (tries * rules.attempt_s + rules.attempts * BUSY_WAIT_S)
        rounds = 2 + self._entity_watch.period - self._first_period
        trial_s = rules.attempt_s + BUSY_WAIT_S + detour_s if self.has_tried else 0
        return (rules.hold_time_max_s if self.held_at is not None else 0) + rounds * (round_s + detour_s) + trial_s

    def check_all_tried(self) -> None:
        """No queue was left that could have been tried, unless there was a reason to stop earlier."""
        is_busy = any(each.kind is Kind.BUSY for each in self._tried)
        is_lost = sum(each.in_doubt for each in self._tried) >= DOUBTS_MAX
        is_over = self.now >= self._waits_until - 1e-6 and (self.deadline is not None or self._watch.secondary.is_away)
        left = self._watch.queues.usable(self.now) - self._tried_queues
        has_reason = is_busy or is_lost or is_over
        check(has_reason or not left, f"{self} was given up though queues {sorted(left)} were left")

    @property
    def is_held_too_long(self) -> bool:
        """Whether it is in order to give it up."""
        self._note_joining()
        if self.held_at is None:
            return False
        until = self.held_at + self.rules.hold_time_max_s
        return self.now >= min(until, until if self.deadline is None else self.deadline) - 1e-6

    @property
    def cannot_join(self) -> bool:
        return self.held_at is None and self._line.is_full_for(self)
