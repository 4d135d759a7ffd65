"""The pump if order is kept (`order="session"`): messages of a key go home in the order of their queue.

A key is an entity and a session id, or none. One batch of a key is in flight at a time. Whatever goes wrong with a
message stops those of its key behind it, and no others: they are released together and come again together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, assert_never

from twinbus.amqp.codec.outcomes import Outcome
from twinbus.amqp.events import TransferArrived
from twinbus.errors import DecodeError
from twinbus.pairing.backlog.ordering import DepartedMessage, key_of, mark_of
from twinbus.pairing.sending.failure import Failure
from twinbus.syphon.ledger_events import NO_EVENT_LOG, SyphonEventLog
from twinbus.syphon.options import SyphonOptions
from twinbus.syphon.pump.backlog_message import HeldMessage, OrderPosition
from twinbus.syphon.pump.backlog_queue import QUIET_MS, BacklogQueue
from twinbus.syphon.pump.destination import Batch, Destination, DestinationState
from twinbus.syphon.pump.effects import Effect, PeekQueue
from twinbus.syphon.pump.ordered_queue import OrderedDestination, QueueKey, queue_key
from twinbus.syphon.pump.placement import order_problem
from twinbus.syphon.pump.pump import Pump
from twinbus.syphon.pump.sequence_gaps import OrderDecision, SequenceTracker
from twinbus.transport.links.annotations import sequence_of

ASK_OBSERVER_MS = 10_000
"""How often an idle syphon asks whether the observer waits for a queue to be empty."""


class BacklogObserver(Protocol):
    """Gets to know what left the backlog. Queues are named by their index in the pump."""

    def queue_added(self, index: int) -> None:
        """One more queue is emptied: it is the next in the pump, and has this index among the backlog queues."""

    def left_backlog(self, queue: int, messages: list[DepartedMessage]) -> None:
        """Messages are stored at home, or dead-lettered; those of a key in their order."""

    def waits_for(self, queue: int) -> bool:
        """Whether anything would change if a queue was seen empty."""

    def empty_check_started(self, queue: int) -> int:
        """A check whether a queue is empty starts; returns its number."""

    def seen_empty(self, queue: int, check: int) -> None:
        """The check found the queue empty."""


class EmptyCheck:
    """Whether and when to peek into a queue, to see that it is empty."""

    def __init__(self, options: SyphonOptions) -> None:
        self.is_wanted = False
        self.number: int | None = None
        """The check that is under way."""
        self.not_before_ms = 0
        self.asked_ms = 0
        """When the observer was last asked whether a check is needed."""
        self.pauses = options.new_backoff()

    def want(self, now_ms: int) -> None:
        self.is_wanted = True
        self.not_before_ms = now_ms
        self.pauses.reset()


class OrderedPump(Pump):
    def __init__(
        self,
        paths: Sequence[str],
        options: SyphonOptions,
        now_ms: int,
        event_log: SyphonEventLog = NO_EVENT_LOG,
        observer: BacklogObserver | None = None,
    ) -> None:
        super().__init__(paths, options, now_ms, event_log)
        self._observer = observer
        self._trackers = [SequenceTracker(0) for _ in paths]
        self._empty_checks = [EmptyCheck(options) for _ in paths]
        self._leaving: list[dict[int, DepartedMessage]] = [{} for _ in paths]
        """Messages that were dead-lettered, until their queue has answered."""

    # --- backlog queues ---

    def add_queue(self, path: str, *, is_extra: bool) -> BacklogQueue:
        self._trackers.append(SequenceTracker(0))
        self._empty_checks.append(EmptyCheck(self.options))
        self._leaving.append({})
        return super().add_queue(path, is_extra=is_extra)

    def queue_attached(self, index: int, now_ms: int) -> None:
        super().queue_attached(index, now_ms)
        self._restart(index)
        self._empty_checks[index].want(now_ms)

    def queue_lost(self, index: int) -> None:
        super().queue_lost(index)
        self._restart(index)

    def _restart(self, index: int) -> None:
        self._trackers[index] = SequenceTracker(self._trackers[index].generation + 1)
        self._empty_checks[index].number = None
        self._leaving[index].clear()

    def messages_arrived(self, index: int, transfers: Sequence[TransferArrived], now_ms: int) -> None:
        self._empty_checks[index].want(now_ms)
        super().messages_arrived(index, transfers, now_ms)

    def _enqueue(self, held: HeldMessage, raw: bytes, since_ms: int | None, now_ms: int) -> None:
        aliases, tracker = held.aliases, self._trackers[held.lock_batch.queue.index]
        key = key_of(aliases.path, aliases.session_id)
        held.position = OrderPosition(key, _sequence_in(raw), mark_of(raw), since_ms)
        self._check_placement(held)
        if tracker.is_repeat(held):
            self._drop_stale(held)
        self._apply(tracker.enter(held), held, now_ms)

    def _check_placement(self, held: HeldMessage) -> None:
        """Pause before a message whose order is unknown: everything is released, and people have to decide."""
        if self.options.order_over is None or not self.pace.wants(held.aliases.path, held.position.enqueued_ms):
            return
        path = held.lock_batch.queue.path
        aliases, queue = held.aliases, int(path.rpartition("/")[2])
        sequence = held.position.sequence
        problem = order_problem(queue, self.options.order_over, aliases.path, aliases.session_id, sequence)
        if problem is not None:
            self.pause()
            self._alert_once("order_unknown", path, problem)

    def _refuse_malformed(self, held: HeldMessage, raw: bytes, text: str, now_ms: int) -> None:
        self._trackers[held.lock_batch.queue.index].skip(_sequence_in(raw))
        super()._refuse_malformed(held, raw, text, now_ms)

    def _apply(self, decision: OrderDecision, held: HeldMessage, now_ms: int) -> None:
        match decision:
            case OrderDecision.GO:
                super()._enqueue(held, b"", held.position.enqueued_ms, now_ms)
            case OrderDecision.PARK:
                self._park(held, now_ms)
            case OrderDecision.RELEASE:
                super()._park(held, now_ms)
            case OrderDecision.WAIT:
                pass
            case _:
                assert_never(decision)

    def _drop_stale(self, held: HeldMessage) -> None:
        """The same message under a lock that has ended: drop it for the new one."""
        destination = self.destinations.get(held.aliases.path)
        if isinstance(destination, OrderedDestination):
            stale = destination.ordered.take_one(queue_key(held), held.position.sequence)
            if stale is not None:
                stale.lock_batch.queue.release([stale], self._effects)

    def _park(self, held: HeldMessage, now_ms: int) -> None:
        tracker = self._trackers[held.lock_batch.queue.index]
        tracker.block(held.position.key)
        destination = self.destinations.get(held.aliases.path)
        if destination is not None and destination.is_resting(now_ms):
            tracker.resting_paths.add(held.aliases.path)
        super()._park(held, now_ms)

    def _end_sweep(self, queue: BacklogQueue, now_ms: int) -> None:
        self._trackers[queue.index].released([held for held in queue.parked if not held.lock_batch.is_lost])
        super()._end_sweep(queue, now_ms)

    def _tick_queue(self, queue: BacklogQueue, now_ms: int) -> None:
        super()._tick_queue(queue, now_ms)
        self._ask_observer(queue, now_ms)
        if queue.parked and self._is_any_rest_over(self._trackers[queue.index].resting_paths, now_ms):
            # Nothing of their keys goes before all of it came again, however many messages still arrive.
            self._end_sweep(queue, now_ms)
            queue.rest_until_ms = now_ms

    def _ask_observer(self, queue: BacklogQueue, now_ms: int) -> None:
        """Messages that were lost on their way into the queue never arrive; only the empty queue shows that."""
        check = self._empty_checks[queue.index]
        is_due = not check.is_wanted and now_ms - check.asked_ms >= ASK_OBSERVER_MS and not queue.unsettled
        if self._observer is not None and is_due:
            check.asked_ms = now_ms
            if self._observer.waits_for(queue.index):
                check.want(now_ms)

    def _is_any_rest_over(self, paths: set[str], now_ms: int) -> bool:
        found = [self.destinations[path] for path in paths if path in self.destinations]
        return any(each.state is DestinationState.RESTING and not each.is_resting(now_ms) for each in found)

    # --- peeks ---

    def queue_peeked(
        self, index: int, generation: int, asked: int, found: Sequence[int], seen_to: int | None, now_ms: int
    ) -> None:
        """A queue holds these messages, locked or not, from `asked` up to `seen_to`; None: to its end."""
        tracker = self._trackers[index]
        if generation != tracker.generation:
            return
        tracker.is_peeking = False
        self._end_empty_check(index, is_empty=asked == 1 and not found and seen_to is None, now_ms=now_ms)
        proven, hidden = tracker.peeked(asked, found, seen_to)
        for held in proven:
            self._apply(tracker.decide(held), held, now_ms)
        self._park_all(hidden, now_ms)

    def peek_failed(self, index: int, generation: int, now_ms: int) -> None:
        tracker = self._trackers[index]
        if generation == tracker.generation:
            tracker.is_peeking = False
            self._end_empty_check(index, is_empty=False, now_ms=now_ms)
            self._park_all(tracker.peek_failed(), now_ms)

    def _end_empty_check(self, index: int, *, is_empty: bool, now_ms: int) -> None:
        check = self._empty_checks[index]
        number, check.number = check.number, None
        if number is None or self._observer is None:
            return
        if is_empty:
            check.is_wanted = False
            self._observer.seen_empty(index, number)
        else:
            check.not_before_ms = now_ms + check.pauses.next_ms()

    def _peek(self, queue: BacklogQueue, now_ms: int) -> None:
        tracker = self._trackers[queue.index]
        if tracker.is_peeking or not queue.is_attached:
            return
        wanted = tracker.wanted_peek()
        if wanted is None and self._is_empty_check_due(queue, now_ms) and self._observer is not None:
            self._empty_checks[queue.index].number = self._observer.empty_check_started(queue.index)
            wanted = (1, 1)
        if wanted is not None:
            tracker.is_peeking = True
            self._effects.append(PeekQueue(queue.index, tracker.generation, *wanted))

    def _is_empty_check_due(self, queue: BacklogQueue, now_ms: int) -> bool:
        check = self._empty_checks[queue.index]
        is_new = not check.pauses.failures and not self._trackers[queue.index].known_to
        is_still = is_new or now_ms - queue.arrived_ms >= QUIET_MS
        return check.is_wanted and not queue.unsettled and is_still and now_ms >= check.not_before_ms

    # --- destinations ---

    def _make_destination(self, path: str) -> Destination:
        return OrderedDestination(path, self.options)

    def _send(self, destination: Destination, messages: list[HeldMessage], now_ms: int) -> int:
        assert isinstance(destination, OrderedDestination)
        ready, stuck = _split_by_lock(messages, now_ms)
        for key in {queue_key(held) for held in stuck}:
            stuck += destination.ordered.take_key(key)
        self._park_all(stuck, now_ms)
        count = super()._send(destination, ready, now_ms)
        going = next(reversed(destination.in_flight.values())).messages if count else []
        destination.ordered.sent(messages, going)
        return count

    def batches_settled(self, path: str, numbers: Sequence[int], outcome: Outcome | None, now_ms: int) -> None:
        destination = self.destinations.get(path)
        if isinstance(destination, OrderedDestination):
            for number in numbers:
                if number in destination.in_flight:
                    destination.ordered.settled(destination.in_flight[number].messages)
        super().batches_settled(path, numbers, outcome, now_ms)

    def destination_failed(self, path: str, failure: Failure, now_ms: int) -> None:
        destination = self.destinations.get(path)
        if isinstance(destination, OrderedDestination):
            for batch in destination.in_flight.values():
                destination.ordered.settled(batch.messages)
        super().destination_failed(path, failure, now_ms)

    def _send_singly(self, destination: Destination, messages: list[HeldMessage]) -> None:
        assert isinstance(destination, OrderedDestination)
        destination.ordered.put_back([held for held in messages if not held.lock_batch.is_lost])

    def _stored(self, destination: Destination, batch: Batch) -> None:
        super()._stored(destination, batch)
        if self._observer is None:
            return
        by_queue: dict[int, list[DepartedMessage]] = {}
        for held in batch.messages:
            by_queue.setdefault(held.lock_batch.queue.index, []).append(_came(held))
        for index, messages in by_queue.items():
            self._observer.left_backlog(index, messages)

    def _refuse(self, held: HeldMessage, reason: str, text: str, now_ms: int) -> None:
        has_key = bool(held.aliases.path)
        if self._observer is not None and has_key and not held.lock_batch.is_lost:
            self._leaving[held.lock_batch.queue.index][held.number] = _came(held)
        super()._refuse(held, reason, text, now_ms)

    def _messages_gone(self, index: int, numbers: list[int]) -> None:
        leaving = self._leaving[index]
        gone = [leaving.pop(number) for number in numbers if number in leaving] if leaving else []
        if gone and self._observer is not None:
            self._observer.left_backlog(index, gone)

    # --- time ---

    def take_effects(self, now_ms: int) -> list[Effect]:
        for queue in self.queues:
            self._peek(queue, now_ms)
        return super().take_effects(now_ms)

    def next_ms(self, now_ms: int) -> int:
        at_ms = super().next_ms(now_ms)
        if self._observer is None:
            return at_ms
        at_ms = min(at_ms, now_ms + ASK_OBSERVER_MS)
        for queue in self.queues:
            check = self._empty_checks[queue.index]
            if check.is_wanted and check.number is None and queue.is_attached and not queue.unsettled:
                at_ms = min(at_ms, max(check.not_before_ms, queue.arrived_ms + QUIET_MS, now_ms + 1))
        return at_ms

    def _release_all(self, now_ms: int) -> None:
        for tracker in self._trackers:
            self._park_all(tracker.peek_failed(), now_ms)
        super()._release_all(now_ms)


def _split_by_lock(messages: list[HeldMessage], now_ms: int) -> tuple[list[HeldMessage], list[HeldMessage]]:
    """Messages that may go, and those that may not because their lock ended, or that of one before them."""
    ready: list[HeldMessage] = []
    stuck: list[HeldMessage] = []
    keys: set[QueueKey] = set()
    for held in messages:
        key = queue_key(held)
        if key in keys or held.lock_batch.is_lost or held.lock_batch.ends_ms <= now_ms:
            keys.add(key)
            stuck.append(held)
        else:
            ready.append(held)
    return ready, stuck


def _came(held: HeldMessage) -> DepartedMessage:
    return DepartedMessage(held.aliases.path, held.aliases.session_id, held.position.sequence, held.position.mark)


def _sequence_in(raw: bytes) -> int:
    try:
        return sequence_of(raw)
    except DecodeError:
        return 0  # every queue writes one; without it there is nothing to go by
