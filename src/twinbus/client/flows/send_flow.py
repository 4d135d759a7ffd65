"""One send of a paired client, decided: to the primary, to a backlog queue or to the spool, now or later.

A flow yields what to do and is sent the result. Threads, tasks and the simulator run the same one; they differ only in
how they do it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, assert_never

from twinbus.client.flows.io_requests import (
    Answer,
    EncodeBatches,
    EncodedBatches,
    Failed,
    Flow,
    NoTurn,
    Sleep,
    Stored,
    ToBacklog,
    ToPrimary,
    ToSpool,
    WaitTurn,
    Woke,
)
from twinbus.client.flows.send_record import Sendable, SendRecord
from twinbus.errors import PairClosed
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.pairing.backlog.rotation import QueueChoice, Search
from twinbus.pairing.effects import ReportEvent
from twinbus.pairing.entity import Entity
from twinbus.pairing.events import SendFailed, TrialBegan, TrialProvedNothing
from twinbus.pairing.failover import Suspect
from twinbus.pairing.pair import Pair
from twinbus.pairing.secondary import is_about_the_secondary
from twinbus.pairing.sending.error_class import ErrorClass, SendKind, classify
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.pairing.sending.receipt import NamespaceSide, SendReceipt, attach_receipt
from twinbus.pairing.sending.retry import kept_back_s, longest_s, time_for_detour_s

DOUBTS_MAX = 3
"""After this many transfers without an answer a batch is not sent again: each may have stored a copy."""
TIMEOUT_LEAST_S = 0.001
SPOOL_S = 1.0
"""How much of an impatient caller's time is kept for the spool, at most: a write to the disk."""


class BacklogUnavailable(Exception):
    """No backlog queue takes the messages now; the text says why."""


class SendFlow(SendRecord):
    """One call of a sender: on the right side, with retries, held if necessary, and always with an answer."""

    def __init__(
        self,
        pair: Pair,
        entity: Entity,
        request: Sendable,
        choice: QueueChoice,
        *,
        started_at: float,
        timeout_s: float | None = None,
    ) -> None:
        super().__init__(pair, entity, request, started_at=started_at, timeout_s=timeout_s)
        self._choice = choice
        self._rules = pair.rules
        self._chance = 0.5
        self._keep_back_s = kept_back_s(pair.rules, timeout_s)
        self._has_tried = False
        self._primary_rests_until = 0.0
        self.ticket: int | None = None
        self._trial_ticket: int | None = None
        self._secondary_until: float | None = None
        self._hold_until = 0.0
        self._had_no_turn = False
        self._kept_for_spool_s = 0.0

    @property
    def tickets(self) -> tuple[int, ...]:
        """The tickets by which it could be woken, if it had to wait."""
        return tuple(ticket for ticket in (self.ticket, self._trial_ticket) if ticket is not None)

    def run(self, first: tuple[Answer, int] | None = None) -> Flow[SendReceipt]:
        """The whole conversation. `first` is an attempt that was made already, and the epoch in which it began."""
        try:
            return (yield from self._send(first))
        finally:
            if self.ticket is not None:
                left = self._entity.leave_line(self.ticket)
                released = ReportEvent("released", "it waits no longer", {"held": len(self._entity.line)})
                self._pair.order(self._entity, *left, released)

    def _send(self, first: tuple[Answer, int] | None) -> Flow[SendReceipt]:
        if first is None and self._rules.hold_sends and len(self._entity.line):
            yield from self._hold(pause_s=0.0)  # behind sends that wait already
        while True:
            if first is None and self._is_detoured():
                receipt = (yield from self._trial()) if self._may_try else None
                if receipt is None and self._is_detoured():
                    receipt = yield from self._detour()
                is_used_up = False
            else:
                receipt = yield from self._round(first)
                first, is_used_up = None, True
            if receipt is not None:
                return receipt
            if is_used_up and isinstance(self._entity.state, Suspect):
                if not self._rules.hold_sends:
                    self._raise(self._tries.last)
                yield from self._hold(pause_s=self._rules.backoff_max_s)

    def _is_detoured(self) -> bool:
        """Whether the messages go to the backlog now."""
        return self._entity.side is NamespaceSide.BACKLOG

    # --- the primary ---

    def _round(self, first: tuple[Answer, int] | None) -> Flow[SendReceipt | None]:
        """One round of the retry schedule; None if it was used up, or the entity's side changed meanwhile."""
        self._tries.new_round()
        if self._at < self._primary_rests_until:
            yield from self._rest()
        while first is not None or not self._is_detoured():
            if first is not None:
                (answer, epoch), first = first, None
            else:
                epoch = self._entity.epoch
                timeout_s = self._tries.attempt_s(self._at, keep_back_s=self._keep_back_s)
                ask = ToPrimary(max(timeout_s, TIMEOUT_LEAST_S), self._tries.deadline is None)
                answer = yield from self._attempt(ask, NamespaceSide.PRIMARY)
            self._take_answer(answer)
            if isinstance(answer, Stored):
                return self._stored_on_primary(answer, epoch)
            if isinstance(answer, NoTurn):
                self._check_patience(answer, self._keep_back_s)
                continue
            pause_s = self._after_failure(_failure_in(answer), epoch)
            if pause_s is None:
                return None
            yield from self._pause(pause_s)
        return None

    def _attempt(self, ask: ToPrimary | ToBacklog | ToSpool, side: NamespaceSide) -> Flow[Answer]:
        """One attempt; if the caller is interrupted meanwhile, its outcome is in doubt."""
        try:
            return (yield ask)
        except PairClosed as error:
            if self._tries.copies_in_doubt:
                self._raise_not_sent(str(error))
            attach_receipt(error, self._unsent())
            raise
        except BaseException as error:
            self._note(Failure(FailureKind.NO_ANSWER, "the caller did not wait for the answer", in_doubt=True), side)
            attach_receipt(error, self._unsent())
            raise

    def _check_patience(self, answer: NoTurn, keep_back_s: float = 0.0) -> None:
        """Raise unless there is time to wait for another turn."""
        self._had_no_turn = True
        is_over = not answer.is_moving and self._at - self._started_at > longest_s(self._rules)
        if is_over or not self._tries.has_time_for(keep_back_s, self._at):
            self._raise(answer.failure)

    def _stored_on_primary(self, answer: Stored, epoch: int) -> SendReceipt:
        self._tries.attempted()
        count = len(self._request.message_ids)
        self._pair.sent(self._entity, self._at, epoch, count, self._chance)
        return self._receipt(NamespaceSide.PRIMARY, count, answer.sequence_numbers)

    def _after_failure(self, failure: Failure, epoch: int) -> float | None:
        """Seconds until the next attempt, None when the round is over; raises what the caller has to know."""
        self._note(failure, NamespaceSide.PRIMARY)
        if failure.error is None and self._entity.side is NamespaceSide.BACKLOG:
            return None  # the primary was not even asked: this send only waited for one that found it down
        if self._had_no_turn and failure.kind is FailureKind.NO_ANSWER and self._tries.deadline is not None:
            self._raise(failure)  # it had no fair time to answer
        opinion = self._pair.classify(self._entity, failure)
        if opinion is ErrorClass.RAISE:
            self._raise(failure)
        if opinion is ErrorClass.BUSY:
            pause_s = self._tries.pause_when_busy(self._at)
            if pause_s is None:
                self._raise(failure)
            self._pair.order(self._entity, ReportEvent("busy", failure.text, {"wait_s": pause_s}))
            return pause_s
        pause_s = self._tries.pause_before_next(self._at + self._keep_back_s)
        has_failed_over = self._entity.side is NamespaceSide.BACKLOG  # by others, meanwhile: no need to wait
        if pause_s is None or has_failed_over:
            self._pair.send_failed(self._entity, self._at, epoch, failure, self._chance)
            return None
        return pause_s

    # --- the primary, while the entity is failed over ---

    @property
    def _may_try(self) -> bool:
        """Whether these messages may try the primary now: once in a call, so that every call has an end."""
        return not self._has_tried and not self._queues and self._entity.may_try(self._at)

    def _trial(self) -> Flow[SendReceipt | None]:
        """One attempt at the primary, for all sends; None if it failed: the messages go to the backlog.

        Others are sent to the backlog meanwhile. A busy primary is not waited for: it proves nothing, and the detour
        is open. What is the caller's fault is raised as usual. Whatever happens, the trial ends.
        """
        pair, entity, epoch, wait_s = self._pair, self._entity, self._entity.epoch, 0.0
        self._has_tried, is_over = True, False
        pair.feed(entity, TrialBegan(self._at, epoch))
        try:
            left_s = None if self._tries.deadline is None else self._tries.deadline - self._at
            timeout_s = self._tries.attempt_s(self._at, keep_back_s=time_for_detour_s(self._rules, left_s))
            answer = yield from self._attempt(ToPrimary(max(timeout_s, TIMEOUT_LEAST_S), False), NamespaceSide.PRIMARY)
            self._take_answer(answer)
            if isinstance(answer, Stored):
                is_over = True
                return self._stored_on_primary(answer, epoch)
            if isinstance(answer, NoTurn):
                return None
            failure = _failure_in(answer)
            self._note(failure, NamespaceSide.PRIMARY)
            error_class = pair.classify(entity, failure)
            match error_class:
                case ErrorClass.RAISE:
                    self._raise(failure)
                case ErrorClass.BUSY:
                    wait_s = self._rules.busy_wait_s
                    self._primary_rests_until = self._at + wait_s
                case ErrorClass.DOWN:
                    is_over = True  # no share of failed sends grows by it: those sends are in the backlog
                    pair.feed(entity, SendFailed(self._at, epoch, str(failure), self._chance))
                case _:
                    assert_never(error_class)
            return None
        finally:
            if not is_over:
                pair.feed(entity, TrialProvedNothing(self._at, epoch, wait_s))

    def _rest(self) -> Flow[None]:
        """The primary was busy when these messages tried it, and now they belong there: they wait as usual."""
        pause_s = self._primary_rests_until - self._at
        if not self._tries.has_time_for(pause_s, self._at):
            self._raise(self._tries.last)
        yield from self._pause(pause_s)

    # --- the backlog ---

    def _detour(self) -> Flow[SendReceipt | None]:
        """To backlog queues or the spool, batch by batch; None if none takes them but the primary is back."""
        for batch in (yield from self._packed()):
            try:
                queue = yield from self._to_some_queue(batch)
                place = None if queue is None else backlog_path(self._pair.name, queue)
            except BacklogUnavailable as why:
                place = yield from self._to_spool(batch, str(why))
            if place is None:
                return None
            self._queues += [place] * len(batch)
        return self._receipt(self._detour_side, len(self._queues))

    def _packed(self) -> Flow[tuple[tuple[bytes, ...], ...]]:
        try:
            packed = yield EncodeBatches()
        except Exception as error:  # it cannot take the detour; the receipt says what became of it before
            self._entity.tally.raised += 1
            attach_receipt(error, self._unsent())
            raise
        self._take_answer(packed)
        assert isinstance(packed, EncodedBatches)
        return packed.batches

    def _to_some_queue(self, batch: tuple[bytes, ...]) -> Flow[int | None]:
        """The queue that took the batch; None if none can now but the primary is back."""
        self._begin_batch()
        search = Search()
        while True:
            queue = self._pick(search)
            if self._must_wait_for_secondary(queue):
                if self._rules.has_spool and not self._is_home_again:
                    self._raise_both(self._pair.secondary.reason or self._pair.rotation.why_none())
                yield from self._wait_for_secondary(lambda: self._pick(search))
                search.failed &= self._pair.rotation.lost.keys()  # others were not to blame
                if self._is_home_again:
                    return None
                continue
            if queue is None:
                if self._is_home_again:
                    return None
                self._raise_both(self._pair.rotation.why_none())
            if queue == search.busy:
                yield from self._wait_while_busy(search)  # nothing else is left
                continue
            if (yield from self._try_queue(queue, batch, search)):
                return queue

    def _try_queue(self, queue: int, batch: tuple[bytes, ...], search: Search) -> Flow[bool]:
        """One attempt, and what it says of the queue or of the secondary; whether the queue took the batch."""
        timeout_s = self._tries.attempt_s(self._at, keep_back_s=self._kept_for_spool_s)
        if timeout_s <= 0:
            self._raise_out_of_time()
        generation, began_at = self._pair.secondary.generation, self._at
        answer = yield from self._to_backlog(queue, batch, timeout_s)
        if isinstance(answer, Stored):
            self._tries.attempted()
            self._pair.queue_took(self._entity, queue, len(batch), self._at)
            return True
        if isinstance(answer, NoTurn):
            self._check_patience(answer)
            other = self._pair.rotation.pick(None, self._at, self._chance, avoid=queue)
            self._choice.queue = queue if other is None else other
            return False
        failure = _failure_in(answer)
        self._note(failure, NamespaceSide.BACKLOG, len(batch), queue)
        search.doubts += failure.in_doubt
        if self._pair.secondary.proves_nothing(failure, timeout_s):
            search.unreachable.add(queue)
            self._pair.had_too_little_time(queue, began_at, self._at, failure, generation)
            self._check_doubts(failure, search.doubts)
        elif is_about_the_secondary(failure):  # one fact: no queue is charged, and everybody waits for a trial
            search.unreachable.add(queue)
            self._pair.secondary_failed(self._at, generation, failure, self._chance)
            self._check_doubts(failure, search.doubts)
        else:
            yield from self._after_queue_failure(queue, failure, generation, search)
        return False

    def _to_backlog(self, queue: int, batch: tuple[bytes, ...], timeout_s: float) -> Flow[Answer]:
        ask = ToBacklog(queue, batch, timeout_s, self._tries.deadline is None)
        answer = yield from self._attempt(ask, NamespaceSide.BACKLOG)
        self._take_answer(answer, NamespaceSide.BACKLOG)
        return answer

    def _begin_batch(self) -> None:
        self._tries.new_round()
        self._secondary_until = None
        if self._rules.has_spool and self._tries.deadline is not None:
            self._kept_for_spool_s = min(SPOOL_S, max(0.0, self._tries.deadline - self._at) / 3)

    @property
    def _is_home_again(self) -> bool:
        """The messages belong on the primary again, or may try it, and none of them lies in the backlog."""
        return not self._queues and (not self._is_detoured() or self._may_try)

    def _pick(self, search: Search) -> int | None:
        rotation, current = self._pair.rotation, self._choice.queue
        for unwanted in (search.failed | search.unreachable, search.failed):
            queue = rotation.pick(current, self._at, self._chance, avoid=search.busy, without=unwanted)
            if queue is not None:
                break
        if queue is None and search.busy is not None and rotation.is_available(search.busy, self._at):
            queue = search.busy
        self._choice.queue = queue
        return queue

    def _check_doubts(self, failure: Failure, doubts: int) -> None:
        if failure.in_doubt and doubts >= DOUBTS_MAX:
            self._raise_both(str(failure))

    def _after_queue_failure(self, queue: int, failure: Failure, generation: int, search: Search) -> Flow[None]:
        opinion = classify(failure, SendKind.BACKLOG)
        if opinion is ErrorClass.RAISE:
            self._raise(failure)
        if opinion is ErrorClass.DOWN:
            if self._pair.queue_failed(queue, self._at, failure, generation):
                search.failed.add(queue)
            else:
                self._check_doubts(failure, search.doubts)
            search.failed &= self._pair.rotation.lost.keys()  # others were not to blame
            return
        self._report_busy(queue, failure)
        if search.busy is None:
            search.busy = queue  # one other queue at once
        else:
            yield from self._wait_while_busy(search)

    def _report_busy(self, queue: int, failure: Failure) -> None:
        details = {"wait_s": self._rules.busy_wait_s, "queue": queue, "side": NamespaceSide.BACKLOG.value}
        self._pair.order(self._entity, ReportEvent("busy", failure.text, details))

    def _wait_while_busy(self, search: Search) -> Flow[None]:
        pause_s = self._tries.pause_when_busy(self._at)
        if pause_s is None:
            self._raise_both(str(self._tries.last))
        yield from self._pause(pause_s)
        search.busy = None

    # --- the spool ---

    def _raise_both(self, secondary_reason: str, spool_reason: str | None = None) -> NoReturn:
        if self._rules.has_spool and spool_reason is None:
            raise BacklogUnavailable(secondary_reason)
        super()._raise_both(secondary_reason, spool_reason)

    def _to_spool(self, batch: tuple[bytes, ...], why: str) -> Flow[str]:
        """To the local disk, because no namespace takes the batch; `why` not the secondary."""
        left_s = self._tries.attempt_s(self._at)
        answer = yield from self._attempt(ToSpool(batch, max(left_s, TIMEOUT_LEAST_S)), NamespaceSide.SPOOL)
        self._take_answer(answer, NamespaceSide.SPOOL)
        if not isinstance(answer, Stored):
            failure = _failure_in(answer)
            self._note(failure, NamespaceSide.SPOOL, len(batch))
            self._pair.spool_failed(self._entity, failure, self._at)
            self._raise_both(why, str(failure))
        self._tries.attempted()
        self._pair.spooled(self._entity, len(batch), self._at, why)
        return NamespaceSide.SPOOL.value

    # --- waiting ---

    def _must_wait_for_secondary(self, queue: int | None) -> bool:
        """Whether a trial has to come first; `queue` is what there is to send to."""
        secondary = self._pair.secondary
        if queue is None:  # were they silent, or was it the secondary? A trial is about to show
            return secondary.is_doubted or (not secondary.is_open and bool(self._pair.rotation.available(self._at)))
        return not secondary.is_open

    def _wait_for_secondary(self, find: Callable[[], int | None]) -> Flow[None]:
        """Until a trial has shown how the secondary is, or the entity is back on the primary; raises after its time.

        `find` says what there is to send to: a queue may be lost or come back meanwhile.
        """
        pair, secondary, queue = self._pair, self._pair.secondary, find()
        self._trial_ticket = ticket = pair.take_ticket(self._trial_ticket)
        if self._secondary_until is None:  # an attempt that nobody answered has taken time before; that is not waiting
            self._secondary_until = self._end_of_wait()
        try:
            pair.wait_for_secondary(ticket, self._entity, queue, self._at)
            while self._must_wait_for_secondary(queue) and not self._is_home_again:
                if self._at >= self._secondary_until:
                    self._raise_both(secondary.reason or pair.rotation.why_none())
                self._take_answer((yield WaitTurn(ticket, self._secondary_until - self._at)))
                queue = find()
        finally:
            secondary.leave(ticket)
            pair.give_back(ticket)

    def _end_of_wait(self) -> float:
        """Until when a batch that begins to wait for the secondary now goes on with that."""
        patience_s = self._rules.attempts * self._rules.attempt_s
        return self._at + patience_s if self._tries.deadline is None else self._tries.deadline

    def _pause(self, seconds: float) -> Flow[None]:
        self._take_answer((yield Sleep(seconds)))

    def _hold(self, *, pause_s: float) -> Flow[None]:
        """Wait in line until it is this send's turn to try."""
        if self.ticket is None:
            self._join_line()
        assert self.ticket is not None
        epoch, ready_at = self._entity.epoch, self._at + pause_s
        while True:
            is_head = self._entity.line.head == self.ticket
            is_calm = not isinstance(self._entity.state, Suspect) or self._entity.epoch != epoch
            left_s = self._hold_until - self._at
            if is_head and (is_calm or (self._at >= ready_at and left_s > 0)):
                return
            if left_s <= 0:
                self._raise_not_sent(f"it was held for {self._at - self._started_at:.0f} s")
            seconds = min(left_s, ready_at - self._at) if is_head else left_s
            self._take_answer((yield WaitTurn(self.ticket, seconds)))

    def _join_line(self) -> None:
        entity = self._entity
        if not entity.line.has_room_for(self._request.size_bytes):
            self._raise_not_sent(f"{len(entity.line)} sends with {entity.line.bytes} bytes are held already")
        self.ticket = entity.line.join(self._request.size_bytes)
        entity.refresh()
        entity.tally.held += 1
        self._hold_until = self._at + self._rules.hold_time_max_s
        if self._tries.deadline is not None:
            self._hold_until = min(self._hold_until, self._tries.deadline)
        self._pair.order(entity, ReportEvent("held", entity.reason, {"held": len(entity.line)}))

    def _take_answer(self, answer: Answer, side: NamespaceSide = NamespaceSide.PRIMARY) -> None:
        self._at, self._chance = answer.at, answer.chance
        if isinstance(answer, Woke) and answer.is_closing:
            if answer.failure is not None:
                self._note(answer.failure, side)
            self._raise_not_sent(answer.reason)


def _failure_in(answer: Answer) -> Failure:
    assert isinstance(answer, Failed)
    return answer.failure
