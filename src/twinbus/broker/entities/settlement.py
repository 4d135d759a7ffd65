"""Settlement of a locked message, by its receiver or by the end of the lock.

A message is removed, returns to its queue, is deferred, or moves to the dead-letter queue. Each is one change set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, assert_never

from twinbus.broker.core.message_events import Cause, MessageEventKind
from twinbus.broker.core.replies import Step
from twinbus.broker.entities.dead_letter_properties import (
    check_added_properties,
    with_reason,
    with_row_properties,
    with_short_reasons,
)
from twinbus.broker.entities.locks import MessageLock
from twinbus.broker.operations import (
    DEAD_LETTER_REASON,
    Abandon,
    Complete,
    DeadLetter,
    Defer,
    Release,
    SettlementOutcome,
)
from twinbus.broker.store.api import MessageRow, MessageState
from twinbus.errors import LockLost, MessageTooLarge, NamespaceError, NotAllowed, QuotaExceeded

if TYPE_CHECKING:
    from twinbus.broker.entities.queue import Queue

_ACTIVE, _DEFERRED, _ = MessageState  # an enum looks its members up at every mention, and these run per message

DELIVERED_TOO_OFTEN, TOO_OLD = "MaxDeliveryCountExceeded", "TTLExpiredException"
IN_TRANSACTION = "the message is settled by a transaction that has not ended yet"
LOCK_LOST = "the lock is unknown, was settled, or has ended; receive the message again"


class SettleableLocks(NamedTuple):
    locks: list[MessageLock]
    failures: dict[bytes, NamespaceError]
    """Tokens of which the messages cannot be settled, with the reason."""
    grown_bytes: int
    """By how much the queue will grow."""


def settle(
    queue: Queue, tokens: tuple[bytes, ...], outcome: SettlementOutcome, now_ms: int, step: Step
) -> dict[bytes, NamespaceError]:
    """Settle the messages of these locks; returns the tokens that failed, with the reason."""
    outcome = with_short_texts(outcome)
    locks, failures, _ = settleable_locks(queue, tokens, outcome, now_ms)
    settle_all(queue, locks, outcome, now_ms, step)
    return failures


def with_short_texts(outcome: SettlementOutcome) -> SettlementOutcome:
    return DeadLetter(with_short_reasons(outcome.properties)) if type(outcome) is DeadLetter else outcome


def settleable_locks(
    queue: Queue,
    tokens: tuple[bytes, ...],
    outcome: SettlementOutcome,
    now_ms: int,
    transaction: int | None = None,
    grown_bytes: int = 0,
) -> SettleableLocks:
    """The locks of these tokens that can be settled so, by this transaction or outside of all.

    `grown_bytes`: by how much the queue will have grown before.
    """
    failures: dict[bytes, NamespaceError] = {}
    locks: list[MessageLock] = []
    for token in dict.fromkeys(tokens):  # one that is named twice is settled once
        lock = queue.find_lock(token, now_ms)
        if lock is None:
            failures[token] = LockLost(LOCK_LOST)
            continue
        if lock.transaction != transaction:
            failures[token] = NotAllowed(IN_TRANSACTION)
            continue
        try:
            grown_bytes += 0 if type(outcome) is Complete else _growth(queue, lock.row, outcome, grown_bytes)
        except NamespaceError as error:
            failures[token] = error
        else:
            locks.append(lock)
    return SettleableLocks(locks, failures, grown_bytes)


def settle_all(queue: Queue, locks: list[MessageLock], outcome: SettlementOutcome, now_ms: int, step: Step) -> None:
    """Settle messages that can be settled so."""
    for lock in locks:
        queue.locks.end(lock)
        queue.release_lock(lock)
    if type(outcome) is Complete:
        queue.complete([lock.row for lock in locks], step)
    else:
        for lock in locks:
            _settle_one(queue, lock.row, outcome, now_ms, step)


def _growth(queue: Queue, row: MessageRow, outcome: SettlementOutcome, grown_bytes: int) -> int:
    """By how many bytes the queue grows; raises a `NamespaceError` if the outcome is not allowed."""
    match outcome:
        case Abandon(properties) | Defer(properties):
            growth = check_added_properties(row, properties)
        case DeadLetter(properties):
            if queue.dead_letter is None:
                raise NotAllowed("a message of a dead-letter queue cannot be dead-lettered again")
            growth = check_added_properties(row, properties, beside_reasons=True)
        case Complete() | Release():
            growth = 0
        case _:
            assert_never(outcome)
    if growth > 0:
        _check_room(queue, row, growth, grown_bytes)
    return growth


def _check_room(queue: Queue, row: MessageRow, growth: int, grown_bytes: int) -> None:
    """Raise a `NamespaceError` if a message may not grow so much. It stays as it was, and locked."""
    size, most = len(row.payload) + growth, queue.message_bytes_max
    if most is not None and size > most:
        raise MessageTooLarge(
            f"with these properties the message would have {size} bytes, '{queue.row.path}' takes at most {most}; "
            "settle it without them, or with less"
        )
    stored_bytes, limit = queue.stored_bytes + grown_bytes, queue.size_bytes_max
    if stored_bytes + growth > limit:
        raise QuotaExceeded(
            f"'{queue.row.path}' is full: it holds {stored_bytes} bytes of at most {limit}, and these properties take "
            f"{growth} more; settle the message without them, or raise the maximum size"
        )


def _settle_one(queue: Queue, row: MessageRow, outcome: SettlementOutcome, now_ms: int, step: Step) -> None:
    match outcome:
        case Release():
            if row.state is _ACTIVE:
                queue.requeue(row, now_ms, step)
        case Abandon(properties):
            count_failure(queue, row, with_row_properties(row, properties), step)
        case Defer(properties):
            deferred = with_row_properties(row, properties)._replace(state=_DEFERRED, expires_at_ms=None)
            queue.replace(row, deferred, step)
        case DeadLetter(properties):
            reason = (properties or {}).get(DEAD_LETTER_REASON, "")
            move_to_dead_letters(queue, row, with_row_properties(row, properties), Cause.BY_RECEIVER, reason, step)
        case Complete():
            pass  # `settle` completes all messages at once
        case _:
            assert_never(outcome)


def count_failure(queue: Queue, stored: MessageRow, row: MessageRow, step: Step) -> None:
    """Count a failed delivery: the message returns to the queue, or is dead-lettered if it was the last one allowed."""
    failed = row._replace(delivery_count=row.delivery_count + 1)
    if failed.delivery_count >= queue.settings.max_delivery_count and queue.dead_letter is not None:
        text = f"The message was delivered {failed.delivery_count} times and never completed."
        dead = with_reason(failed, DELIVERED_TOO_OFTEN, text)
        move_to_dead_letters(queue, stored, dead, Cause.BY_NAMESPACE, DELIVERED_TOO_OFTEN, step)
        return
    queue.replace(stored, failed, step)
    if failed.state is _ACTIVE:
        queue.requeue_on_commit(failed, step)


def move_to_dead_letters(
    queue: Queue, stored: MessageRow, row: MessageRow, cause: Cause, reason: str, step: Step
) -> None:
    """Move a stored message, as changed in `row`, to the dead-letter queue, in one change set."""
    dead_letters = queue.dead_letter
    if dead_letters is None:
        raise AssertionError("a dead-letter queue has no dead-letter queue")
    queue.remove(stored, step)
    queue.record(MessageEventKind.DEAD_LETTERED, (stored,), step, cause, reason)
    dead = row._replace(
        entity_id=dead_letters.entity_id,
        sequence=dead_letters.take_sequence(),
        state=_ACTIVE,
        expires_at_ms=None,
        due_at_ms=None,
        dead_letter_source=queue.row.path,
    )
    dead_letters.insert((dead,), step)
