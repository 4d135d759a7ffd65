"""Forwarding: what comes to a queue, a subscription or a dead-letter queue goes on to a queue or topic.

A message that is sent goes all the way in one change set, and is stored only where its way ends. Where that cannot be
(something waits there already and must not be overtaken, duplicates have to be looked for first, or the step takes long
already) it is stored on the way, and the entity passes its messages on as soon as they are durable. Whatever happens,
it is stored somewhere: what cannot be forwarded is put among the transfer dead letters of the entity that tried.
"""

from __future__ import annotations

from typing import Protocol

from twinbus.errors import (
    EntityDisabled,
    EntityNotFound,
    InternalError,
    MessageTooLarge,
    NamespaceError,
    QuotaExceeded,
)
from twinbus.namespace.entities.duplicates import PendingSend, Transfer
from twinbus.namespace.entities.journeys import Journey, journey_of, written
from twinbus.namespace.entities.notes import SESSION_NEEDED, noted, reason_on
from twinbus.namespace.entities.queue import Queue
from twinbus.namespace.entities.shelf import Shelf, check_partitions
from twinbus.namespace.happenings import Cause, Happening
from twinbus.namespace.message import Arrival, partition_key_of, time_to_live_ms
from twinbus.namespace.replies import Forwarded, Step
from twinbus.namespace.store.api import MessageRow, MessageState

HOPS_MAX = 4
HOP_WORK, PUT_ASIDE_WORK = 2, 6
"""What it takes to bring a message to its next place, and to put it among the transfer dead letters (`Step.work`)."""
WAITING_MAX = 100
"""So many messages of an entity wait at a time until it is known whether they are new where they go."""

HOPS_EXCEEDED = "MaxTransferHopCountExceeded"
NOT_ALLOWED = "InvalidOperation"
_REASONS = (
    (EntityNotFound, "MessagingEntityNotFound"),
    (EntityDisabled, "MessagingEntityDisabled"),
    (QuotaExceeded, "QuotaExceeded"),
    (MessageTooLarge, "MessageSizeExceeded"),
    (InternalError, "InternalServerError"),
)


class Neighbours(Protocol):
    """What forwarding has to know of the other entities."""

    def find(self, path: str) -> Shelf:
        """Raises `EntityNotFound`."""

    def by_id(self, entity_id: int) -> Shelf | None: ...

    def transfer_dead_letters(self, queue: Queue, step: Step) -> Queue:
        """Where a queue, or a dead-letter queue, puts what it cannot forward."""


class Courier:
    def __init__(self, neighbours: Neighbours) -> None:
        self._neighbours = neighbours

    # --- what is sent ---

    def send(self, source: Queue, arrivals: tuple[Arrival, ...], now_ms: int, step: Step) -> tuple[int, ...]:
        """Number what is sent to an entity that forwards, and pass on what is not scheduled."""
        sequences: list[int] = []
        for arrival in arrivals:
            if arrival.is_ping:
                continue
            row = source.row_of(arrival, now_ms)  # not all at once: what goes round in a ring may come back in between
            sequences.append(row.sequence)
            source.tell(Happening.STORED, (row,), step)
            if row.state is MessageState.SCHEDULED:
                source.insert((row,), step)
            else:
                self.pass_on(source, row, journey_of(row), now_ms, step)
        if sequences:
            source.count_sequences(step)
        return tuple(sequences)

    def pass_on(self, source: Queue, row: MessageRow, journey: Journey, now_ms: int, step: Step) -> None:
        """Bring a new message of an entity that forwards to where it goes, or store it here to go there later."""
        if self._has_to_rest(source, step):
            source.insert((written(row, journey) if journey.hops else row,), step)
        else:
            self._carry(source, row, journey, now_ms, step)

    def _has_to_rest(self, source: Queue, step: Step) -> bool:
        return step.is_long or source.dead_letter is None or source.active > 0 or self._asks_for_ids(source)

    def _asks_for_ids(self, source: Queue) -> bool:
        try:
            target = self._target_of(source)
        except NamespaceError:
            return False
        return target.guard is not None and target.damage is None

    def _target_of(self, source: Queue) -> Shelf:
        return self._neighbours.find(source.destination or "")

    # --- one hop ---

    def _carry(self, source: Queue, row: MessageRow, journey: Journey, now_ms: int, step: Step) -> bool:
        """Store a message, which is not in its source any more, where it goes; returns whether it got there."""
        step.work += HOP_WORK
        onward = journey._replace(hops=journey.hops + 1)
        if onward.hops > HOPS_MAX:
            text = f"The message was forwarded {HOPS_MAX} times and '{source.row.path}' forwards it again."
            self._put_aside(source, row, HOPS_EXCEEDED, text, step)
            return False
        try:
            target = self._target_of(source)
            self._hand_over(target, written(row, onward) if journey.is_written else row, onward, now_ms, step)
        except NamespaceError as error:
            text = f"The message could not be forwarded to '{source.destination}': {error}"
            self._put_aside(source, row, _reason_of(error, row), text, step)
            return False
        target.used(now_ms)
        self._tell_forwarded(source, row, step)
        return True

    def _tell_forwarded(self, source: Queue, row: MessageRow, step: Step) -> None:
        step.replies.append(Forwarded(source.row.path.lower(), len(row.payload)))
        source.tell(Happening.FORWARDED, (row,), step)

    def _hand_over(self, target: Shelf, row: MessageRow, journey: Journey, now_ms: int, step: Step) -> None:
        target.check_sendable()
        arrival = arrival_of(row, target, now_ms)
        if target.settings.partitioned:
            check_partitions((arrival,))
        if target.guard is not None:
            target.check_intact()
        target.take_in(arrival, row, journey, now_ms, step)

    def _put_aside(self, source: Queue, row: MessageRow, reason: str, text: str, step: Step) -> None:
        step.work += PUT_ASIDE_WORK
        before = reason_on(row)
        if before is not None:
            text += f" It had been dead-lettered before: {before}"
        grave = self._neighbours.transfer_dead_letters(source, step)
        source.tell(Happening.DEAD_LETTERED, (row,), step, Cause.NOT_FORWARDED, reason)
        dead = noted(row, reason, text)._replace(
            entity_id=grave.entity_id,
            sequence=grave.take_sequence(),
            state=MessageState.ACTIVE,
            expires_at_ms=None,
            due_at_ms=None,
            delivery_count=0,
            dead_letter_source=row.dead_letter_source or source.row.path,
        )
        grave.insert((dead,), step)

    # --- what is stored on the way ---

    def pump(self, source: Queue, now_ms: int, step: Step) -> None:
        """Pass on some of what an entity holds; the rest follows when that is committed."""
        asks, taken = self._asks_for_ids(source), 0
        while not (step.is_long or (asks and len(source.loans.aside) >= WAITING_MAX)):
            row = source.take_visible(now_ms, step)
            if row is None:
                break
            taken += 1
            if asks:
                self._ask(source, row, now_ms, step)
            else:
                source.remove(row, step)
                self._carry(source, row, journey_of(row, is_dead=source.dead_letter is None), now_ms, step)
        if step.is_long and not taken:  # others were first, and nothing of this one will be committed
            source.look_again(step)
        source.fetch(step)

    def _ask(self, source: Queue, row: MessageRow, now_ms: int, step: Step) -> None:
        target = self._target_of(source)
        assert target.guard is not None
        arrivals = (arrival_of(row, target, now_ms),)
        source.loans.set_aside(row.sequence)
        target.guard.ask(Transfer(source, row, arrivals), target.keys_of(arrivals), now_ms, step)

    def arrive(self, target: Shelf, pending: PendingSend, transfer: Transfer, now_ms: int, step: Step) -> None:
        """It is known whether a message is new: move it, or drop it."""
        source, row = transfer.source, transfer.row
        if self._neighbours.by_id(source.entity_id) is not source:
            return  # deleted meanwhile, with all that was in it
        if not self._still_goes_to(source, target):
            source.keep(row, step)
            return
        source.loans.take_back(row.sequence)
        if row.expires_at_ms is not None and row.expires_at_ms <= now_ms:
            source.expire(row, step)
            return
        assert target.guard is not None
        keys = target.keys_of(transfer.arrivals)
        source.remove(row, step)
        if not target.guard.new_ones(pending, keys)[0]:
            self._tell_forwarded(source, row, step)
            target.tell_dropped(transfer.arrivals, step)
        elif self._carry(source, row, journey_of(row, is_dead=source.dead_letter is None), now_ms, step):
            target.note_ids(keys, now_ms, step)

    def _still_goes_to(self, source: Queue, target: Shelf) -> bool:
        return source.destination is not None and source.destination.lower() == target.row.path.lower()


def arrival_of(row: MessageRow, target: Shelf, now_ms: int) -> Arrival:
    """A message as it comes to its next place. Its time to live goes on; that of a dead letter begins anew."""
    if row.dead_letter_source is not None:
        ttl_ms = time_to_live_ms(row.payload)
    else:
        ttl_ms = None if row.expires_at_ms is None else max(0, row.expires_at_ms - now_ms)
    key = partition_key_of(row.payload) if target.settings.partitioned else None
    return Arrival(row.payload, row.message_id, row.session_id, ttl_ms, None, False, key)


def _reason_of(error: NamespaceError, row: MessageRow) -> str:
    other = SESSION_NEEDED if row.session_id is None else NOT_ALLOWED
    return next((reason for kind, reason in _REASONS if isinstance(error, kind)), other)
