"""Forwarding: messages of a queue, subscription or dead-letter queue go to another queue or topic.

A sent message goes all the way in one change set, and is stored only at its final target. If that is not possible
(earlier messages wait there, duplicates must be checked first, or the step is long already) it is stored on the way,
and that entity forwards its messages as soon as they are durable. A message is always stored somewhere: what cannot be
forwarded goes to the transfer dead-letter queue of the entity that tried.
"""

from __future__ import annotations

from typing import Protocol

from twinbus.broker.core.message_events import Cause, MessageEventKind
from twinbus.broker.core.replies import Forwarded, Step
from twinbus.broker.entities.dead_letter_properties import SESSION_NEEDED, reason_on, with_reason
from twinbus.broker.entities.duplicate_detection import PendingForward, PendingSend
from twinbus.broker.entities.entity import HopCount, MessagingEntity, check_partitions, hop_count_of, with_hop_count
from twinbus.broker.entities.queue import Queue
from twinbus.broker.message import Arrival, partition_key_of, time_to_live_ms
from twinbus.broker.store.api import MessageRow, MessageState
from twinbus.errors import (
    EntityDisabled,
    EntityNotFound,
    InternalError,
    MessageTooLarge,
    NamespaceError,
    QuotaExceeded,
)

HOPS_MAX = 4
HOP_WORK, PUT_ASIDE_WORK = 2, 6
"""The work of forwarding a message once, and of moving it to the transfer dead-letter queue (`Step.work`)."""
WAITING_MAX = 100
"""The number of messages of an entity that wait for duplicate detection at their target at a time."""

HOPS_EXCEEDED = "MaxTransferHopCountExceeded"
NOT_ALLOWED = "InvalidOperation"
_REASONS = (
    (EntityNotFound, "MessagingEntityNotFound"),
    (EntityDisabled, "MessagingEntityDisabled"),
    (QuotaExceeded, "QuotaExceeded"),
    (MessageTooLarge, "MessageSizeExceeded"),
    (InternalError, "InternalServerError"),
)


class EntityDirectory(Protocol):
    """What forwarding needs to know of other entities."""

    def find(self, path: str) -> MessagingEntity:
        """Raises `EntityNotFound`."""

    def by_id(self, entity_id: int) -> MessagingEntity | None: ...

    def transfer_dead_letters(self, queue: Queue, step: Step) -> Queue:
        """The transfer dead-letter queue of a queue or dead-letter queue; created on first use."""


class Forwarder:
    def __init__(self, entities: EntityDirectory) -> None:
        self._entities = entities

    # --- what is sent ---

    def send(self, source: Queue, arrivals: tuple[Arrival, ...], now_ms: int, step: Step) -> tuple[int, ...]:
        """Number what is sent to an entity that forwards, and forward what is not scheduled."""
        sequences: list[int] = []
        for arrival in arrivals:
            if arrival.is_ping:
                continue
            row = source.row_of(arrival, now_ms)  # not all at once: what goes round in a ring may come back in between
            sequences.append(row.sequence)
            source.record(MessageEventKind.STORED, (row,), step)
            if row.state is MessageState.SCHEDULED:
                source.insert((row,), step)
            else:
                self.forward(source, row, hop_count_of(row), now_ms, step)
        if sequences:
            source.count_sequences(step)
        return tuple(sequences)

    def forward(self, source: Queue, row: MessageRow, hop_count: HopCount, now_ms: int, step: Step) -> None:
        """Forward a new message, or store it in its source to be forwarded later."""
        if self._must_store(source, step):
            source.insert((with_hop_count(row, hop_count) if hop_count.hops else row,), step)
        else:
            self._forward_now(source, row, hop_count, now_ms, step)

    def _must_store(self, source: Queue, step: Step) -> bool:
        return step.is_long or source.dead_letter is None or source.active > 0 or self._checks_duplicates(source)

    def _checks_duplicates(self, source: Queue) -> bool:
        try:
            target = self._target_of(source)
        except NamespaceError:
            return False
        return target.duplicates is not None and target.damage is None

    def _target_of(self, source: Queue) -> MessagingEntity:
        return self._entities.find(source.destination or "")

    # --- one hop ---

    def _forward_now(self, source: Queue, row: MessageRow, hop_count: HopCount, now_ms: int, step: Step) -> bool:
        """Store a message, which is not in its source any more, at its target; returns whether that succeeded."""
        step.work += HOP_WORK
        onward = hop_count._replace(hops=hop_count.hops + 1)
        if onward.hops > HOPS_MAX:
            text = f"The message was forwarded {HOPS_MAX} times and '{source.row.path}' forwards it again."
            self._dead_letter(source, row, HOPS_EXCEEDED, text, step)
            return False
        try:
            target = self._target_of(source)
            self._store_at(target, with_hop_count(row, onward) if hop_count.is_written else row, onward, now_ms, step)
        except NamespaceError as error:
            text = f"The message could not be forwarded to '{source.destination}': {error}"
            self._dead_letter(source, row, _reason_of(error, row), text, step)
            return False
        target.touch(now_ms)
        self._record_forwarded(source, row, step)
        return True

    def _record_forwarded(self, source: Queue, row: MessageRow, step: Step) -> None:
        step.replies.append(Forwarded(source.row.path.lower(), len(row.payload)))
        source.record(MessageEventKind.FORWARDED, (row,), step)

    def _store_at(self, target: MessagingEntity, row: MessageRow, hop_count: HopCount, now_ms: int, step: Step) -> None:
        target.check_sendable()
        arrival = arrival_of(row, target, now_ms)
        if target.settings.partitioned:
            check_partitions((arrival,))
        if target.duplicates is not None:
            target.check_intact()
        target.accept_forwarded(arrival, row, hop_count, now_ms, step)

    def _dead_letter(self, source: Queue, row: MessageRow, reason: str, text: str, step: Step) -> None:
        step.work += PUT_ASIDE_WORK
        before = reason_on(row)
        if before is not None:
            text += f" It had been dead-lettered before: {before}"
        dead_letters = self._entities.transfer_dead_letters(source, step)
        source.record(MessageEventKind.DEAD_LETTERED, (row,), step, Cause.NOT_FORWARDED, reason)
        dead = with_reason(row, reason, text)._replace(
            entity_id=dead_letters.entity_id,
            sequence=dead_letters.take_sequence(),
            state=MessageState.ACTIVE,
            expires_at_ms=None,
            due_at_ms=None,
            delivery_count=0,
            dead_letter_source=row.dead_letter_source or source.row.path,
        )
        dead_letters.insert((dead,), step)

    # --- what is stored on the way ---

    def forward_stored(self, source: Queue, now_ms: int, step: Step) -> None:
        """Forward some of the messages an entity holds; the rest follows when that is committed."""
        asks, taken = self._checks_duplicates(source), 0
        while not (step.is_long or (asks and len(source.locks.held) >= WAITING_MAX)):
            row = source.take_visible(now_ms, step)
            if row is None:
                break
            taken += 1
            if asks:
                self._ask(source, row, now_ms, step)
            else:
                source.remove(row, step)
                self._forward_now(source, row, hop_count_of(row, is_dead=source.dead_letter is None), now_ms, step)
        if step.is_long and not taken:  # others were first, and nothing of this one will be committed
            source.schedule_work(step)
        source.fetch(step)

    def _ask(self, source: Queue, row: MessageRow, now_ms: int, step: Step) -> None:
        target = self._target_of(source)
        assert target.duplicates is not None
        arrivals = (arrival_of(row, target, now_ms),)
        source.locks.hold(row.sequence)
        target.duplicates.check(PendingForward(source, row, arrivals), target.keys_of(arrivals), now_ms, step)

    def complete_transfer(
        self, target: MessagingEntity, pending: PendingSend, transfer: PendingForward, now_ms: int, step: Step
    ) -> None:
        """The duplicate check of a message is done: move it, or drop it."""
        source, row = transfer.source, transfer.row
        if self._entities.by_id(source.entity_id) is not source:
            return  # deleted meanwhile, with all that was in it
        if source.destination is None or source.destination.lower() != target.row.path.lower():
            source.cancel_transfer(row, step)
            return
        source.locks.release_hold(row.sequence)
        if row.expires_at_ms is not None and row.expires_at_ms <= now_ms:
            source.expire(row, step)
            return
        assert target.duplicates is not None
        keys = target.keys_of(transfer.arrivals)
        source.remove(row, step)
        if not target.duplicates.new_ones(pending.known, keys)[0]:
            self._record_forwarded(source, row, step)
            target.record_duplicates(transfer.arrivals, step)
        elif self._forward_now(source, row, hop_count_of(row, is_dead=source.dead_letter is None), now_ms, step):
            target.remember_ids(keys, now_ms, step)


def arrival_of(row: MessageRow, target: MessagingEntity, now_ms: int) -> Arrival:
    """A message as it arrives at its target. Its time to live continues; that of a dead letter starts again."""
    if row.dead_letter_source is not None:
        ttl_ms = time_to_live_ms(row.payload)
    else:
        ttl_ms = None if row.expires_at_ms is None else max(0, row.expires_at_ms - now_ms)
    key = partition_key_of(row.payload) if target.settings.partitioned else None
    return Arrival(row.payload, row.message_id, row.session_id, ttl_ms, None, False, key)


def _reason_of(error: NamespaceError, row: MessageRow) -> str:
    other = SESSION_NEEDED if row.session_id is None else NOT_ALLOWED
    return next((reason for kind, reason in _REASONS if isinstance(error, kind)), other)
