"""A send whose messages keep the order of their session (P19): each goes to the one backlog queue of its key.

While a fence stands before one of its keys, a send takes the detour though the primary is up. When that fence is about
to fall it is worth a short wait: otherwise an application that sends all the time would never leave the backlog.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NoReturn

from twinbus.client.flows.io_requests import Answer, Failed, Flow, NoTurn, WaitTurn
from twinbus.client.flows.send_flow import SendFlow
from twinbus.client.flows.send_record import Sendable
from twinbus.errors import BothNamespacesUnavailable, SendError
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.pairing.backlog.envelope import read_aliases
from twinbus.pairing.backlog.ordering import Crossing, Fences, Key, Mark, key_of, mark_of
from twinbus.pairing.backlog.rotation import QueueChoice, Search
from twinbus.pairing.effects import ReportEvent
from twinbus.pairing.entity import Entity
from twinbus.pairing.pair import Pair
from twinbus.pairing.sending.error_class import ErrorClass, SendKind, classify
from twinbus.pairing.sending.failure import Failure
from twinbus.pairing.sending.receipt import NamespaceSide, SendReceipt

HAND_OVER_S = 2.0
"""How long a send waits for a fence that is about to fall."""
IMPATIENT_S = 20.0
"""If it did not fall, no send waits for it again for this long."""
FENCED = "earlier messages of the same session are, or may be, still in the backlog"


def sending_of(
    request: Sendable, pair: Pair, entity: Entity, choice: QueueChoice, started_at: float, timeout_s: float | None
) -> SendFlow:
    """A send as the pair's rules want it."""
    if pair.fences is None or not request.has_order:
        return SendFlow(pair, entity, request, choice, started_at=started_at, timeout_s=timeout_s)
    return OrderedSendFlow(pair, entity, request, pair.fences, started_at=started_at, timeout_s=timeout_s)


class OrderedSendFlow(SendFlow):
    def __init__(
        self,
        pair: Pair,
        entity: Entity,
        request: Sendable,
        fences: Fences,
        *,
        started_at: float,
        timeout_s: float | None = None,
    ) -> None:
        super().__init__(pair, entity, request, QueueChoice(), started_at=started_at, timeout_s=timeout_s)
        self._fences = fences
        self._fence_ticket: int | None = None
        self._places: list[str] = []

    @property
    def tickets(self) -> tuple[int, ...]:
        return super().tickets if self._fence_ticket is None else (*super().tickets, self._fence_ticket)

    @cached_property
    def _keys(self) -> tuple[Key, ...]:
        return tuple(key_of(self._entity.path, session_id) for session_id in self._request.session_ids)

    def _is_detoured(self) -> bool:
        return super()._is_detoured() or self._is_fenced

    @property
    def _is_fenced(self) -> bool:
        return not self._fences.is_clear(self._entity.path) and any(map(self._fences.stands_before, self._keys))

    @property
    def _may_try(self) -> bool:
        """Not behind a fence: there it would overtake what lies in the backlog."""
        return super()._may_try and not self._is_fenced

    # --- the backlog ---

    def _detour(self) -> Flow[SendReceipt | None]:
        """Every message to the queue of its key; None if no fence is in the way any more and the primary is up."""
        if self._entity.side is NamespaceSide.PRIMARY:
            yield from self._wait_for_fences()
            if not self._is_detoured():
                return None
        begin = 0
        batches = yield from self._packed()
        self._places = [""] * len(self._request.message_ids)
        for batch in batches:
            for queue, places in self._by_queue(batch).items():
                if not (yield from self._to_queue(queue, tuple([batch[place] for place in places]))):
                    return None
                path = backlog_path(self._pair.name, queue)
                self._queues += [path] * len(places)
                for place in places:
                    self._places[begin + place] = path
            begin += len(batch)
        return self._receipt(NamespaceSide.BACKLOG, len(self._queues))

    def _by_queue(self, batch: tuple[bytes, ...]) -> dict[int, list[int]]:
        """Which messages of a batch go to which queue."""
        found: dict[int, list[int]] = {}
        for place, message in enumerate(batch):
            queue = self._fences.queue_of(self._key_of(message))
            if queue is None:
                self._raise_both(self._pair.rotation.why_none())
            found.setdefault(queue, []).append(place)
        return found

    def _key_of(self, message: bytes) -> Key:
        return key_of(self._entity.path, read_aliases(message).session_id)

    def _to_queue(self, queue: int, batch: tuple[bytes, ...]) -> Flow[bool]:
        """Send messages to their queue, which no other can replace; False if they need not go there any more."""
        self._begin_batch()
        search = Search()
        while True:
            if self._is_home_again:
                return False
            if self._must_wait_for_secondary(self._if_available(queue)):
                yield from self._wait_for_secondary(lambda: self._if_available(queue))
            elif self._if_available(queue) is None:
                yield from self._wait_for_queue(queue)
            elif (yield from self._try_queue(queue, batch, search)):
                return True

    def _if_available(self, queue: int) -> int | None:
        return queue if self._pair.rotation.is_available(queue, self._at) else None

    def _to_backlog(self, queue: int, batch: tuple[bytes, ...], timeout_s: float) -> Flow[Answer]:
        """One attempt, of which the fences know."""
        marks: dict[Key, list[Mark]] = {}
        for message in batch:
            marks.setdefault(self._key_of(message), []).append(mark_of(message))
        crossings = [self._pair.depart(self._entity, key, found) for key, found in marks.items()]
        try:
            answer = yield from super()._to_backlog(queue, batch, timeout_s)
        except BaseException as error:  # closed, or interrupted in the middle: then nobody knows
            self._not_arrived(crossings, in_doubt=not isinstance(error, SendError))
            raise
        if isinstance(answer, Failed | NoTurn):
            self._not_arrived(crossings, in_doubt=answer.failure.in_doubt)
        else:
            for crossing in crossings:
                self._pair.arrived(crossing)
        return answer

    def _not_arrived(self, crossings: list[Crossing], *, in_doubt: bool) -> None:
        for crossing in crossings:
            self._pair.not_arrived(crossing, in_doubt=in_doubt)

    def _after_queue_failure(self, queue: int, failure: Failure, generation: int, search: Search) -> Flow[None]:
        opinion = classify(failure, SendKind.BACKLOG)
        if opinion is ErrorClass.RAISE:
            self._raise(failure)
        if opinion is ErrorClass.BUSY:
            self._report_busy(queue, failure)
            pause_s = self._tries.pause_when_busy(self._at)
            if pause_s is None:
                self._raise_both(str(failure))
        else:
            pause_s = self._tries.pause_before_next(self._at)
        if pause_s is None:
            self._pair.queue_failed(queue, self._at, failure, generation)
        else:
            yield from self._pause(pause_s)
        if queue not in self._pair.rotation.lost:
            self._check_doubts(failure, search.doubts)

    # --- waiting ---

    def _wait_for_fences(self) -> Flow[None]:
        """A moment, if all that is in the way may be home any moment."""
        keys = [key for key in self._keys if self._fences.stands_before(key)]
        if not all(self._fences.is_nearly_home(key, self._at) for key in keys):
            return
        until = self._at + HAND_OVER_S
        if self._tries.deadline is not None:
            until = min(until, self._at + (self._tries.deadline - self._at) / 2)
        self._fence_ticket = ticket = self._pair.take_ticket(self._fence_ticket)
        self._fences.wait(keys, ticket)
        try:
            while self._entity.side is NamespaceSide.PRIMARY and self._is_fenced:
                if self._at >= until:
                    self._fences.waited_in_vain(keys, self._at + IMPATIENT_S)
                    return
                self._take_answer((yield WaitTurn(ticket, until - self._at)))
        finally:
            self._fences.leave(keys, ticket)
            self._pair.give_back(ticket)

    def _wait_for_secondary(self, find: Callable[[], int | None]) -> Flow[None]:
        """Held, where sends are."""
        if not self._rules.hold_sends:
            return (yield from super()._wait_for_secondary(find))
        seat = self._take_seat(self._pair.secondary.reason)
        try:
            yield from super()._wait_for_secondary(find)
        finally:
            self._pair.kept.leave(seat)

    def _end_of_wait(self) -> float:
        """Where sends are held: as late as for a queue that no other can stand in for."""
        usual = super()._end_of_wait()
        return max(usual, self._hold_end) if self._rules.hold_sends else usual

    def _wait_for_queue(self, queue: int) -> Flow[None]:
        """The queue is lost: hold the send until it may be tried again, or say why it cannot go."""
        lost = self._pair.rotation.lost.get(queue)
        path = backlog_path(self._pair.name, queue)
        why = f"{path}: {'it was not found' if lost is None else lost.failure}; no other queue keeps the order"
        if not self._rules.hold_sends or self._at >= self._hold_end:
            self._raise_both(why)
        seat = self._take_seat(why)
        try:
            back_at = self._at + self._rules.backoff_max_s if lost is None else lost.back_at
            yield from self._pause(max(0.001, min(back_at, self._hold_end) - self._at))
        finally:
            self._pair.kept.leave(seat)
        self._tries.new_round()

    @property
    def _hold_end(self) -> float:
        until, deadline = self._started_at + self._rules.hold_time_max_s, self._tries.deadline
        return until if deadline is None else min(until, deadline)

    def _take_seat(self, why: str) -> int:
        """A place among the sends that are held for one queue; their number is limited."""
        kept = self._pair.kept
        if not kept.has_room_for(self._request.size_bytes):
            self._raise_not_sent(f"{len(kept)} sends with {kept.bytes} bytes are held already")
        seat = kept.join(self._request.size_bytes)
        self._pair.order(self._entity, ReportEvent("held", why, {"held": len(kept)}))
        return seat

    # --- what is said ---

    def _next(self, messages: int) -> slice:
        """All of them: messages of several keys do not go in the order in which they were given."""
        return slice(None)

    def _receipt(self, side: NamespaceSide, accepted: int, numbers: tuple[int, ...] = ()) -> SendReceipt:
        receipt = super()._receipt(side, accepted, numbers)
        return receipt._replace(backlog_queues=tuple(self._places)) if self._queues else receipt

    def _raise_both(self, secondary_reason: str, _spool_reason: str | None = None) -> NoReturn:
        self._entity.tally.raised += 1
        raise BothNamespacesUnavailable(self._entity.reason or FENCED, secondary_reason, self._unsent())
