"""What a paired client tells the ledger: where messages went, what became of entities, what was tried and received.

Called on the way of a send or a completion, so it only puts together a value and hands it over; the ledger writes
elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from time import time
from typing import Protocol

from azure.servicebus import ServiceBusReceivedMessage
from msgspec.structs import replace

from twinbus.amqp.codec.types import text_of
from twinbus.board.queue import board_path
from twinbus.client.inspection.inspection_cost import LookCost
from twinbus.client.sdk.messages import MessageFacts, read_facts
from twinbus.client.setup.preparation import Preparation
from twinbus.ledger.board_events import BoardEventLog
from twinbus.ledger.kinds import (
    COMPLETED,
    PING_NOT_SENT,
    PING_REFUSED,
    RECEIVED_AND_DELETED,
    TOLD_BY_RECEIVER,
    Kind,
)
from twinbus.ledger.schema import Event
from twinbus.ledger.writing.writer import EVENT_WEIGHT, MESSAGE_WEIGHT, Ledger
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.pairing.effects import ReportEvent
from twinbus.pairing.entity import Entity
from twinbus.pairing.sending.failure import Failure
from twinbus.pairing.sending.receipt import NamespaceSide, SendReceipt

KINDS: Mapping[str, Kind] = {
    "suspect": Kind.SUSPECTED,
    "failed_over": Kind.FAILED_OVER,
    "recovered": Kind.RECOVERED,
    "ping_failed": Kind.ATTEMPT_FAILED,
    "in_doubt": Kind.IN_DOUBT,
    "held": Kind.HELD,
    "busy": Kind.THROTTLED,
    "backlog_queue_lost": Kind.QUEUE_LEFT_OUT,
    "backlog_queue_back": Kind.QUEUE_BACK,
    "secondary_unreachable": Kind.SECONDARY_UNREACHABLE,
    "secondary_back": Kind.SECONDARY_BACK,
}
"""Events of a pair that are worth a line in the ledger, and what they are called there."""


ACCEPTED_WEIGHT = MESSAGE_WEIGHT + 128
"""Of a message with a rather long id."""
RECEIVED_WEIGHT = ACCEPTED_WEIGHT + 128
"""The same with a session."""
MESSAGES_PER_EVENT_MAX = 2_000
"""A line of the ledger has a largest size, and ids may be long."""
REMEMBERED_MAX = 10_000
"""Of all entities together; older ones are forgotten first."""


class RecordedSend(Protocol):
    """The messages of a send, as far as a record speaks of them."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Encoded bytes of each."""

    @property
    def sizes_in_backlog(self) -> tuple[int, ...]:
        """The same as a backlog queue gets them."""

    @property
    def due_ms(self) -> tuple[int, ...]:
        """When each is to be enqueued; empty: all of them at once."""


class ClientRecorder:
    def __init__(self, ledger: Ledger, primary: str, secondary: str) -> None:
        self._record = ledger.record
        self._record_later = ledger.record_later
        self._primary = primary
        self._secondary = secondary
        self._scheduled = ScheduledIds()
        self.board = BoardEventLog(ledger, secondary)

    def accepted(
        self,
        entity: str,
        message_ids: tuple[str, ...],
        sizes: tuple[int, ...],
        seconds: float,
        due_ms: tuple[int, ...] = (),
    ) -> None:
        """The primary took messages on the straight way. Done for every send, so what can wait is done later.

        `due_ms`: when each of them is to be enqueued, if one is scheduled.
        """
        for until_ms, which in _by_due(due_ms, slice(0, len(message_ids))) if due_ms else ():
            event = _accepted(entity, self._primary, message_ids[which], sizes[which], seconds)
            self._record(replace(event, until_ms=until_ms))
        if not due_ms:
            weight = EVENT_WEIGHT + ACCEPTED_WEIGHT * len(message_ids)
            self._record_later(weight, _accepted, (entity, self._primary, message_ids, sizes, seconds))

    def sent(self, receipt: SendReceipt, request: RecordedSend) -> None:
        """A send that was not so simple has ended with this receipt, which may say that nothing was accepted."""
        start, sizes, due_ms = receipt.accepted, request.sizes, request.due_ms
        if receipt.side is NamespaceSide.PRIMARY:
            self._scheduled.remember(receipt.entity, receipt.sequence_numbers, receipt.message_ids)
            for until_ms, which in _by_due(due_ms, slice(0, start)):
                self._stored(Kind.ACCEPTED, self._primary, "", receipt, which, sizes, until_ms)
        else:
            in_backlog = request.sizes_in_backlog
            start = 0
            for queue, group in groupby(receipt.backlog_queues):
                end = start + sum(1 for _ in group)
                if queue:
                    is_spool = queue == NamespaceSide.SPOOL.value
                    where = (Kind.SPOOLED, self._primary, "") if is_spool else (Kind.BACKLOGGED, self._secondary, queue)
                    for until_ms, which in _by_due(due_ms, slice(start, end)):
                        self._stored(*where, receipt, which, in_backlog, until_ms)
                else:
                    self._stored(Kind.NOT_SENT, self._primary, "", receipt, slice(start, end), sizes)
                start = end
        self._stored(Kind.NOT_SENT, self._primary, "", receipt, slice(start, None), sizes)

    def _stored(
        self,
        kind: Kind,
        namespace: str,
        queue: str,
        receipt: SendReceipt,
        which: slice,
        sizes: Sequence[int],
        until_ms: int = 0,
    ) -> None:
        message_ids = receipt.message_ids[which]
        if not message_ids:
            return
        event = Event(
            kind,
            receipt.entity,
            namespace,
            queue,
            message_ids=message_ids,
            sizes=tuple(sizes[which]),
            sequence_numbers=receipt.sequence_numbers[which] if kind is Kind.ACCEPTED else (),
            attempts=receipt.attempts,
            duration_us=int(receipt.seconds * 1e6),
            until_ms=until_ms,
        )
        self._record(event)

    def cancelled(self, entity: str, numbers: Sequence[int]) -> None:
        """Scheduled messages are no more. A service knows them by number; their ids, whoever has scheduled them."""
        known = self._scheduled.take(entity, numbers)
        if known:
            event = Event(
                Kind.CANCELLED,
                entity,
                self._primary,
                message_ids=tuple(known.values()),
                sequence_numbers=tuple(known),
            )
            self._record(event)
        unknown = tuple([number for number in numbers if number not in known])
        if unknown:
            self._record(Event(Kind.CANCELLED, entity, self._primary, sequence_numbers=unknown, count=len(unknown)))

    def settled(
        self, kind: Kind, path: str, messages: tuple[MessageFacts, ...], outcome: str, reason: str = ""
    ) -> None:
        """A receiver is done with messages of a queue or subscription. Done for every one, so what can wait is done
        later.
        """
        weight = EVENT_WEIGHT + RECEIVED_WEIGHT * len(messages) + len(reason)
        self._record_later(weight, _settled, (kind, path, self._primary, messages, outcome, reason))

    def record_event(self, entity: Entity | None, event: ReportEvent, queue_path: str) -> None:
        """The core has reported an event; `queue_path` is that of the backlog queue in it, or empty."""
        kind = KINDS.get(event.name)
        if kind is None:
            return
        details = event.details
        side = details.get("side")
        is_elsewhere = entity is None or side == NamespaceSide.BACKLOG.value
        if kind is Kind.IN_DOUBT and side == NamespaceSide.SPOOL.value:
            kind = Kind.SPOOL_IN_DOUBT
        ids, wait_s = details.get("message_ids"), details.get("wait_s")
        record = Event(
            kind,
            "" if entity is None else entity.path,
            self._secondary if is_elsewhere else self._primary,
            queue_path,
            message_ids=ids if isinstance(ids, tuple) else (),
            sizes=event.sizes,
            reason=event.text,
            epoch=0 if entity is None else entity.epoch,
            until_ms=int((time() + wait_s) * 1000) if isinstance(wait_s, float | int) else 0,
        )
        self._record(record)

    def probed(self, entity: Entity, probe: str, size: int, failure: Failure | None) -> None:
        """The primary was asked whether it is back, by a ping of this size (0: it could not be sent) or by a link."""
        if probe != "ping":
            outcome = "ok" if failure is None else "failed"
            self._record(Event(Kind.PROBED, entity.path, self._primary, outcome=outcome, epoch=entity.epoch))
            return
        if failure is None:
            outcome = "ok"
        elif failure.in_doubt:
            outcome = "in-doubt"
        else:
            outcome = PING_REFUSED if size else PING_NOT_SENT
        path, epoch = entity.path, entity.epoch
        self._record(Event(Kind.PING, path, self._primary, count=1, bytes=size, outcome=outcome, epoch=epoch))

    def paired(self, found: Preparation) -> None:
        """Backlog queues were looked for, perhaps created, and the pair is ready."""
        self._asked(self._primary, found.requests.primary)
        board_created = int(found.board == "created")
        self._asked(self._secondary, found.requests.secondary - len(found.created) - board_created)
        for index in found.created:
            path = backlog_path(self._primary, index)
            self._record(Event(Kind.QUEUE_CREATED, namespace=self._secondary, queue=path, count=1))
        if board_created:
            self._record(Event(Kind.QUEUE_CREATED, namespace=self._secondary, queue=board_path(self._primary), count=1))
        self._record(Event(Kind.PAIRED, namespace=self._primary, count=len(found.found)))

    def looked(self, cost: LookCost) -> None:
        """The backlog was looked at."""
        self._asked(self._secondary, cost.requests)
        if cost.peeks:
            event = Event(Kind.PEEKED, namespace=self._secondary, count=cost.peeks, bytes=cost.peeked_bytes)
            self._record(event)

    def _asked(self, namespace: str, requests: int) -> None:
        if requests > 0:
            self._record(Event(Kind.QUEUE_CHECKED, namespace=namespace, count=requests))

    def faulted(self, reason: str) -> None:
        self._record(Event(Kind.FAULTED, namespace=self._primary, reason=reason))


def _by_due(due_ms: Sequence[int], which: slice) -> list[tuple[int, slice]]:
    """A slice of messages cut into those that are due at the same time: an event has one `until_ms`."""
    if not due_ms:
        return [(0, which)]
    found, start = [], which.start
    for until_ms, group in groupby(due_ms[which]):
        end = start + sum(1 for _ in group)
        found.append((until_ms, slice(start, end)))
        start = end
    return found


def _accepted(entity: str, primary: str, message_ids: tuple[str, ...], sizes: tuple[int, ...], seconds: float) -> Event:
    return Event(
        Kind.ACCEPTED,
        entity,
        primary,
        message_ids=message_ids,
        sizes=sizes,
        attempts=1,
        duration_us=int(seconds * 1e6),
    )


def _settled(
    kind: Kind, path: str, primary: str, messages: tuple[MessageFacts, ...], outcome: str, reason: str
) -> Event:
    sessions = tuple([text_of(message.session_id) for message in messages])
    return Event(
        kind,
        path,
        primary,
        message_ids=tuple([text_of(message.message_id) for message in messages]),
        sizes=tuple([message.size for message in messages]),
        session_ids=sessions if any(sessions) else (),
        sequence_numbers=tuple([message.sequence_number for message in messages]),
        outcome=outcome,
        reason=reason,
    )


class Completions:
    """Records what a receiver is done with: a namespace in Azure keeps no ledger, so nobody else knows.

    Recorded is what ends the stay of a message in its entity: it was completed, taken with receive-and-delete, or put
    among the dead letters. What is abandoned or deferred is still there. Called after the service has said so; never
    fails, because the application has what it asked for by then.
    """

    def __init__(self, recorder: ClientRecorder, path: str) -> None:
        self._record_settled = recorder.settled
        self._path = path.strip("/")

    def completed(self, message: ServiceBusReceivedMessage) -> None:
        self._record_settled(Kind.RECEIVED, self._path, (read_facts(message),), COMPLETED)

    def deleted(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """They were taken with receive-and-delete."""
        for first in range(0, len(messages), MESSAGES_PER_EVENT_MAX):
            some = messages[first : first + MESSAGES_PER_EVENT_MAX]
            self._record_settled(Kind.RECEIVED, self._path, tuple(map(read_facts, some)), RECEIVED_AND_DELETED)

    def dead_lettered(self, message: ServiceBusReceivedMessage, reason: str | None) -> None:
        why = "" if reason is None else str(reason)
        self._record_settled(Kind.DEAD_LETTERED, self._path, (read_facts(message),), TOLD_BY_RECEIVER, why)


class ScheduledIds:
    """The ids of the last messages that this client has scheduled. Threads may share it.

    Whoever cancels messages names numbers, and the ledger knows messages by id.
    """

    def __init__(self, most: int = REMEMBERED_MAX) -> None:
        self._most = most
        self._ids: dict[tuple[str, int], str] = {}
        self._lock = threading.Lock()

    def remember(self, entity: str, numbers: Sequence[int], message_ids: Sequence[str]) -> None:
        """Messages were scheduled in an entity, under these numbers; none: they were sent at once."""
        if not numbers:
            return
        with self._lock:
            for number, message_id in zip(numbers, message_ids, strict=False):
                self._ids.pop((entity, number), None)  # so that it counts as the youngest
                self._ids[entity, number] = message_id
            while len(self._ids) > self._most:
                del self._ids[next(iter(self._ids))]

    def take(self, entity: str, numbers: Iterable[int]) -> dict[int, str]:
        """The ids of those that are known, by number; they are forgotten then."""
        with self._lock:
            found = {number: self._ids.pop((entity, number), None) for number in numbers}
        return {number: message_id for number, message_id in found.items() if message_id is not None}
