"""The pump's decisions: what to send where, what to complete, park, dead-letter, and when.

It gets events (messages arrived, a batch was settled, time passed) and returns effects. It has no clock, socket or
randomness of its own: `now_ms` is an argument, in milliseconds since 1970, and never goes back.

    pump.messages_arrived(0, transfers, now_ms)
    pump.run_effects(now_ms, primary, secondary, on_alert)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twinbus.amqp.codec.outcomes import Error, Outcome, Rejected
from twinbus.amqp.events import TransferArrived
from twinbus.errors import DecodeError, EnvelopeError
from twinbus.ledger.kinds import Kind
from twinbus.pairing.backlog.envelope import Aliases
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.syphon.ledger_events import NO_EVENT_LOG, SyphonEventLog
from twinbus.syphon.options import SyphonOptions
from twinbus.syphon.pump import dead_letter_reasons as reasons
from twinbus.syphon.pump.backlog_message import HeldMessage, LockBatch, expiry_ms, read_envelope
from twinbus.syphon.pump.backlog_queue import BacklogQueue, PendingSettlement, SettlementKind
from twinbus.syphon.pump.batch_sender import BatchSender
from twinbus.syphon.pump.effects import (
    Alert,
    DropDestination,
    Effect,
    PrimaryPort,
    RenewBacklogLocks,
    ReopenQueue,
    SecondaryPort,
    carry_out,
)
from twinbus.syphon.pump.pace import Keep, PaceChange, RunState, UnlistedEntities
from twinbus.transport.failures import no_answer
from twinbus.transport.links.annotations import enqueued_ms

CLOCK_GAP_MS_MAX = 10_000
TICK_MS = 100
RENEW_PAUSE_MS = 2_000
"""Between two renewals of the same locks, if the first failed."""
EXTRA = "has messages and is beyond the number of backlog queues here: a sender elsewhere has more; they come home too"
_NO_ALIASES = Aliases("")
_EVENTS = {
    SettlementKind.MOVED: Kind.COMPLETED,
    SettlementKind.REFUSED: Kind.DEAD_LETTERED,
    SettlementKind.EXPIRED: Kind.EXPIRED,
}


class Pump(BatchSender):
    def __init__(
        self, paths: Sequence[str], options: SyphonOptions, now_ms: int, event_log: SyphonEventLog = NO_EVENT_LOG
    ) -> None:
        super().__init__(options, now_ms, event_log)
        self.queues = [BacklogQueue(index, path, options) for index, path in enumerate(paths)]
        self._attempt_ms = round(options.attempt_s * 1000)
        self._lock_ms = round(options.lock_s * 1000)
        self._busy_ms = round(options.busy_s * 1000)
        self._unlisted = UnlistedEntities(self.pace.allows)
        self._recorded_state = RunState.RUNNING

    # --- backlog queues ---

    def add_queue(self, path: str, *, is_extra: bool) -> BacklogQueue:
        """One more queue to empty; `is_extra`: it is beyond the configured count."""
        queue = BacklogQueue(len(self.queues), path, self.options, is_extra=is_extra)
        self.event_log.queue_added(path)
        self.queues.append(queue)
        return queue

    def queue_attached(self, index: int, now_ms: int) -> None:
        self.queues[index].attached(now_ms)

    def queue_lost(self, index: int) -> None:
        """The link to a queue is gone; what it had delivered comes again."""
        self.event_log.link_lost(index)
        self.queues[index].lost()
        for destination in self.destinations.values():
            destination.drop_lost()

    def messages_arrived(self, index: int, transfers: Sequence[TransferArrived], now_ms: int) -> None:
        """Messages of a backlog queue arrived together."""
        queue, counts = self.queues[index], self.counts
        if queue.is_extra:
            self._alert_once("extra_queue", queue.path, EXTRA)
        lock_batch, secondary_ms = queue.add_lock_batch(transfers[0].payload, len(transfers), now_ms)
        size = 0
        for transfer in transfers:
            size += len(transfer.payload)
            self._receive(transfer, queue, lock_batch, secondary_ms, now_ms)
        self.event_log.record_received(index)
        queue.update_mean_size(size, len(transfers))
        counts.received += len(transfers)
        gap_ms = queue.clock_gap_ms
        if gap_ms is not None and abs(gap_ms) > CLOCK_GAP_MS_MAX:
            text = f"locks end {gap_ms / 1000:+.0f} s from where they should: the clocks, or the lock duration, differ"
            self._alert_once("clock_differs", queue.path, text)

    def _receive(
        self, transfer: TransferArrived, queue: BacklogQueue, lock_batch: LockBatch, secondary_ms: int, now_ms: int
    ) -> None:
        raw = transfer.payload
        number = queue.number_of(transfer.delivery_id)
        try:
            aliases, opened = self._read_envelope(raw)
        except (EnvelopeError, DecodeError) as error:
            held = HeldMessage(number, transfer.tag, lock_batch, b"", _NO_ALIASES, is_opened=False)
            self.event_log.add_received(queue.index, held, raw)
            self._refuse_malformed(held, raw, str(error), now_ms)
            return
        held = HeldMessage(number, transfer.tag, lock_batch, opened or raw, aliases, is_opened=opened is not None)
        lock_batch.messages[number] = held
        self.event_log.add_received(queue.index, held, raw)
        since_ms = enqueued_ms(raw)
        if aliases.ttl_ms is not None and self.options.ttl == "remaining":
            ends_ms = expiry_ms(aliases, secondary_ms if since_ms is None else since_ms)
            held.expires_ms = None if ends_ms is None else now_ms + ends_ms - secondary_ms
        if self.pace.entities is not None:
            self._effects += self._unlisted.check(queue.index, raw, aliases.path)
            self.counts.unlisted = self._unlisted.count
        self._enqueue(held, raw, since_ms, now_ms)

    def _read_envelope(self, raw: bytes) -> tuple[Aliases, bytes | None]:
        return read_envelope(raw)

    def _refuse_malformed(self, held: HeldMessage, _raw: bytes, text: str, now_ms: int) -> None:
        self._refuse(held, reasons.MALFORMED, text, now_ms)

    def _enqueue(self, held: HeldMessage, _raw: bytes, since_ms: int | None, now_ms: int) -> None:
        """Let a message wait for its destination, or park it."""
        path = held.aliases.path
        destination = self.destinations.get(path) or self._new_destination(held, now_ms)
        if destination is None:
            return
        is_unwanted = self.pace.has_filter and not self.pace.wants(path, since_ms)
        if is_unwanted or not self.pace.is_running or destination.is_resting(now_ms):
            self._park(held, now_ms)
        else:
            destination.waiting.append(held)

    def deliveries_settled(self, index: int, delivery_ids: list[int], outcome: Outcome | None, now_ms: int) -> None:
        """A queue has answered our settlements; a rejection with an error means that the locks are lost."""
        queue, counts = self.queues[index], self.counts
        answered = queue.take_pending(delivery_ids)
        error = outcome.error if isinstance(outcome, Rejected) else None
        if error is not None:
            self._settlement_failed(queue, answered, error, now_ms)
            return
        by_kind: dict[tuple[SettlementKind, str], list[int]] = {}
        for number, pending in answered:
            by_kind.setdefault((pending.kind, pending.reason), []).append(number)
        for (kind, reason), numbers in by_kind.items():
            self.event_log.record_gone(_EVENTS[kind], index, numbers, reason)
            self._messages_gone(index, numbers)
            counts.moved += len(numbers) if kind is SettlementKind.MOVED else 0
            counts.refused += len(numbers) if kind is SettlementKind.REFUSED else 0
            counts.expired += len(numbers) if kind is SettlementKind.EXPIRED else 0
        if answered:
            queue.reset_window()

    def _messages_gone(self, index: int, numbers: list[int]) -> None:
        """The queue no longer has these messages."""

    def _settlement_failed(
        self, queue: BacklogQueue, answered: list[tuple[int, PendingSettlement]], error: Error, now_ms: int
    ) -> None:
        text = error.description or error.condition
        self.event_log.record_gone(Kind.LOCK_LOST, queue.index, [number for number, _ in answered], text)
        for _, pending in answered:
            pending.lost += 1
            self.counts.repeated += pending.kind is SettlementKind.MOVED
        for pending in {pending for _, pending in answered}:
            is_complete = not pending.unanswered and pending.lost == pending.count
            if is_complete and pending.kind is SettlementKind.MOVED:
                self._locks_lost(queue, pending.count, text, now_ms)

    def locks_renewed(self, lock_batch: LockBatch, refusal: Failure | None, asked_ms: int, now_ms: int) -> None:
        """The locks of a batch last for their full time again since `asked_ms`, or the renewal was refused."""
        lock_batch.is_renewing = False
        if refusal is None:
            lock_batch.ends_ms = max(lock_batch.ends_ms, asked_ms + lock_batch.queue.lock_ms)
            self.counts.locks_renewed += len(lock_batch.messages)
            self.event_log.record_renewed(lock_batch.queue.index, lock_batch.locks_asked)
        elif refusal.condition == "com.microsoft:message-lock-lost" and lock_batch.messages and not lock_batch.is_lost:
            lock_batch.ends_ms = now_ms  # what still waits is not sent any more: another receiver may have it
            self._locks_lost(lock_batch.queue, len(lock_batch.messages), refusal.text, now_ms)
        else:
            is_busy = refusal.kind is FailureKind.BUSY
            lock_batch.renew_from_ms = now_ms + (self._busy_ms if is_busy else RENEW_PAUSE_MS)

    def _locks_lost(self, queue: BacklogQueue, messages: int, text: str, now_ms: int) -> None:
        queue.shrink_window()
        queue.take_back_credit(self._effects)
        queue.rest(now_ms)
        self.alert("locks_lost", queue.path, f"the locks of {messages} messages were lost: {text}")

    # --- effects ---

    def run_effects(
        self, now_ms: int, primary: PrimaryPort, secondary: SecondaryPort, on_alert: Callable[[Alert], None]
    ) -> None:
        """Carry out what is to be done, including what comes up meanwhile."""
        effects = self.take_effects(now_ms)
        while effects:
            for effect in effects:
                carry_out(effect, primary, secondary, on_alert)
            effects = self.take_effects(now_ms) if self._effects else []

    def take_effects(self, now_ms: int) -> list[Effect]:
        """What is to be done now."""
        if self.pace.state is not self._recorded_state:
            self._record_state()
        if not self.pace.is_running:
            self._release_all(now_ms)  # now: a canary ends in the middle of a batch
        for destination in list(self.destinations.values()):
            if destination.has_messages:
                self._serve(destination, now_ms)
        wanted = self.pace.window(self.options.prefetch, self._lock_ms)
        for queue in self.queues:
            queue.complete_stored(self._effects, now_ms)
            self._grant(queue, wanted, now_ms)
        effects, self._effects = self._effects, []
        return effects

    def _grant(self, queue: BacklogQueue, wanted: int, now_ms: int) -> None:
        if not self.pace.is_running:
            queue.take_back_credit(self._effects)
            return
        grant = queue.grant(queue.window(wanted, len(self.queues)), now_ms)
        if grant is not None:
            self._effects.append(grant)
            self.counts.grants += 1
            if not queue.unsettled:
                self.event_log.record_long_poll(queue.index)

    # --- time ---

    def tick(self, now_ms: int) -> None:
        """Time has passed: answers are overdue, locks get old, sweeps end."""
        for destination in list(self.destinations.values()):  # what fails here may need another one
            if destination.is_unanswered(now_ms, self._attempt_ms):
                self._effects.append(DropDestination(destination.path))
                self.destination_failed(destination.path, no_answer("a batch was not answered", in_doubt=True), now_ms)
        for queue in self.queues:
            if queue.is_attached:
                self._tick_queue(queue, now_ms)

    def _tick_queue(self, queue: BacklogQueue, now_ms: int) -> None:
        if queue.is_unanswered(now_ms, self._attempt_ms):
            self._effects.append(ReopenQueue(queue.index, "a settlement was not answered"))
            return
        for lock_batch in queue.batches_to_renew(now_ms):
            tokens = tuple([held.token for held in lock_batch.messages.values()])
            lock_batch.is_renewing, lock_batch.locks_asked = True, len(tokens)
            self._effects.append(RenewBacklogLocks(queue.index, lock_batch, tokens))
        if queue.is_sweep_over(now_ms):
            self._end_sweep(queue, now_ms)

    def _end_sweep(self, queue: BacklogQueue, now_ms: int) -> None:
        paths = {held.aliases.path for held in queue.parked}
        ends = [self.destinations[path].rest_until_ms for path in paths if path in self.destinations]
        self.event_log.record_gone(Kind.RELEASED, queue.index, [held.number for held in queue.parked])
        self.counts.released += queue.end_sweep(min(ends, default=None), self._effects, now_ms)

    def next_ms(self, now_ms: int) -> int:
        """When `tick` is wanted next."""
        if any(queue.unsettled for queue in self.queues) or any(each.in_flight for each in self.destinations.values()):
            paced_ms = self.pace.next_ms(now_ms)
            return min(now_ms + TICK_MS, max(now_ms + TICK_MS // 5, paced_ms or now_ms + TICK_MS))
        due = [queue.next_ms(now_ms) for queue in self.queues] if self.pace.is_running else []
        return min((moment for moment in due if moment is not None), default=now_ms + 60_000)

    # --- pauses ---

    def _record_state(self) -> None:
        self._recorded_state = state = self.pace.state
        if state is RunState.RUNNING:
            self.event_log.record_resumed()
        elif state is not RunState.STOPPED:
            self.event_log.record_paused(state.value)

    def pause(self) -> None:
        """Send nothing more; what waits is released, what is in flight may arrive."""
        self.pace.pause()

    def resume(self) -> None:
        self.pace.resume()
        self.wake()

    def change_pace(self, change: PaceChange, now_ms: int) -> None:
        """Another rate, number or choice of entities; what is in flight arrives."""
        self.pace.change(change, now_ms)
        if isinstance(change.entities, Keep):
            return
        for destination in list(self.destinations.values()):  # a message may find another one
            if destination.has_messages and not self.pace.allows(destination.path):
                self._park_all(destination.take_all(), now_ms)
        for queue in self.queues:  # what is parked may be wanted now
            if queue.parked:
                self._end_sweep(queue, now_ms)
            queue.wake()

    def wake(self) -> None:
        """Try at once what rests after a failure: somebody knows that it is over."""
        for queue in self.queues:
            queue.wake()
        for destination in self.destinations.values():
            destination.wake()

    def stop(self) -> None:
        """As a pause, for good."""
        self.pace.stop()

    @property
    def is_idle(self) -> bool:
        """Whether we hold no message of the backlog."""
        return not any(queue.unsettled for queue in self.queues)

    def _release_all(self, now_ms: int) -> None:
        for destination in self.destinations.values():
            self._park_all(destination.take_all(), now_ms)
        for queue in self.queues:
            if queue.parked:
                self._end_sweep(queue, now_ms)
