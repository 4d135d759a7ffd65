"""Settlement: what a receiver, or the end of a lock, makes of a message that was lent.

A message is removed, goes back into its queue, is deferred, or moves to the dead-letter queue. Each is one change set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from twinbus.errors import LockLost, NamespaceError, NotAllowed, QuotaExceeded
from twinbus.namespace.commands import Abandon, Complete, DeadLetter, Defer, Release, Verdict
from twinbus.namespace.entities.loans import Loan
from twinbus.namespace.entities.notes import REASON, annotated, check_notes, noted, with_short_reasons
from twinbus.namespace.happenings import Cause, Happening
from twinbus.namespace.replies import Step
from twinbus.namespace.store.api import MessageRow, MessageState

if TYPE_CHECKING:
    from twinbus.namespace.entities.queue import Queue

_ACTIVE, _DEFERRED, _ = MessageState  # an enum looks its members up at every mention, and these run per message

DELIVERED_TOO_OFTEN, TOO_OLD = "MaxDeliveryCountExceeded", "TTLExpiredException"
LOCK_LOST = "the lock is unknown, was settled, or has ended; receive the message again"


def settle(
    queue: Queue, tokens: tuple[bytes, ...], verdict: Verdict, now_ms: int, step: Step
) -> dict[bytes, NamespaceError]:
    """Settle each loan; returns those that could not be, with the reason."""
    if type(verdict) is DeadLetter:
        verdict = DeadLetter(with_short_reasons(verdict.properties))
    failures: dict[bytes, NamespaceError] = {}
    loans: list[Loan] = []
    grown_bytes = 0
    for token in dict.fromkeys(tokens):  # one that is named twice is settled once
        loan = queue.find_loan(token, now_ms)
        if loan is None:
            failures[token] = LockLost(LOCK_LOST)
            continue
        try:
            grown_bytes += 0 if type(verdict) is Complete else _growth(queue, loan.row, verdict, grown_bytes)
        except NamespaceError as error:
            failures[token] = error
        else:
            queue.loans.end(loan)
            queue.end_loan(loan)
            loans.append(loan)
    if type(verdict) is Complete:
        queue.complete([loan.row for loan in loans], step)
    else:
        for loan in loans:
            _settle_one(queue, loan.row, verdict, now_ms, step)
    return failures


def _growth(queue: Queue, row: MessageRow, verdict: Verdict, grown_bytes: int) -> int:
    """By how many bytes the queue grows; raises a `NamespaceError` if a message may not be settled so."""
    match verdict:
        case Abandon(properties) | Defer(properties):
            growth = check_notes(row, properties)
        case DeadLetter(properties):
            if queue.dead_letter is None:
                raise NotAllowed("a message of a dead-letter queue cannot be dead-lettered again")
            growth = check_notes(row, properties, beside_reasons=True)
        case Complete() | Release():
            growth = 0
        case _:
            assert_never(verdict)
    stored_bytes, limit = queue.stored_bytes + grown_bytes, queue.size_bytes_max
    if growth > 0 and stored_bytes + growth > limit:
        raise QuotaExceeded(
            f"'{queue.row.path}' is full: it holds {stored_bytes} bytes of at most {limit}, and these properties take "
            f"{growth} more; settle the message without them, or raise the maximum size"
        )
    return growth


def _settle_one(queue: Queue, row: MessageRow, verdict: Verdict, now_ms: int, step: Step) -> None:
    match verdict:
        case Release():
            if row.state is _ACTIVE:
                queue.give_back(row, now_ms, step)
        case Abandon(properties):
            count_failure(queue, row, annotated(row, properties), step)
        case Defer(properties):
            deferred = annotated(row, properties)._replace(state=_DEFERRED, expires_at_ms=None)
            queue.replace(row, deferred, step)
        case DeadLetter(properties):
            reason = (properties or {}).get(REASON, "")
            bury(queue, row, annotated(row, properties), Cause.BY_RECEIVER, reason, step)


def count_failure(queue: Queue, stored: MessageRow, row: MessageRow, step: Step) -> None:
    """One more failed delivery: back in the queue, or to the dead letters when it was the last one allowed."""
    failed = row._replace(delivery_count=row.delivery_count + 1)
    if failed.delivery_count >= queue.settings.max_delivery_count and queue.dead_letter is not None:
        text = f"The message was delivered {failed.delivery_count} times and never completed."
        dead = noted(failed, DELIVERED_TOO_OFTEN, text)
        bury(queue, stored, dead, Cause.BY_NAMESPACE, DELIVERED_TOO_OFTEN, step)
        return
    queue.replace(stored, failed, step)
    if failed.state is _ACTIVE:
        queue.return_later(failed, step)


def bury(queue: Queue, stored: MessageRow, row: MessageRow, cause: Cause, reason: str, step: Step) -> None:
    """Move a stored message, as changed in `row`, to the dead-letter queue, in one change set."""
    grave = queue.dead_letter
    if grave is None:
        raise AssertionError("a dead-letter queue has no dead-letter queue")
    queue.remove(stored, step)
    queue.tell(Happening.DEAD_LETTERED, (stored,), step, cause, reason)
    dead = row._replace(
        entity_id=grave.entity_id,
        sequence=grave.take_sequence(),
        state=_ACTIVE,
        expires_at_ms=None,
        due_at_ms=None,
        dead_letter_source=queue.row.path,
    )
    grave.insert((dead,), step)
