"""What queues, subscriptions and topics share: sequences, counts, scheduled messages, duplicate detection.

Nothing is visible before it is committed. Every method takes the time and a `Step` for changes, replies and reads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from twinbus.broker.core.commands import SendMessages
from twinbus.broker.core.message_events import MessageEventKind
from twinbus.broker.core.replies import Step
from twinbus.broker.entities.due_scan import DueScan
from twinbus.broker.entities.duplicate_detection import DuplicateDetector, PendingForward, PendingSend
from twinbus.broker.entities.loaded_head import WindowLimits
from twinbus.broker.entities.receivers import Receiver
from twinbus.broker.entities.recent_changes import RecentChanges
from twinbus.broker.entities.settings import QueueSettings, TopicSettings
from twinbus.broker.message import Arrival, hops_of, with_hops
from twinbus.broker.operations import Done, Refused
from twinbus.broker.store.api import (
    AdvanceSequence,
    DeleteMessages,
    DueRows,
    EntityRow,
    EntitySummary,
    ExpiredRows,
    IdsRead,
    InsertMessages,
    MessageRow,
    MessageState,
    ReplaceMessage,
    RowsRead,
)
from twinbus.errors import InternalError, MessageTooLarge, NamespaceError, NotAllowed

if TYPE_CHECKING:
    from twinbus.broker.entities.forwarding import Forwarder

ROWS_PER_SCAN = 100
LATE_MS = 1_000
"""A scheduled message that is activated at most this late counts as enqueued on time."""

_ACTIVE, _DEFERRED, _SCHEDULED = (
    MessageState  # an enum looks its members up at every mention, and these run per message
)

CopyDelays = Callable[[str], int]
"""The delay of copies for a subscription, by its path, in ms; 0: none."""


@dataclass(slots=True)
class EntityContext:
    """What all entities of a namespace share."""

    new_token: Callable[[], bytes]
    window_limits: WindowLimits
    copy_delays: Callable[[int], CopyDelays | None]
    """The delays of copies at a time; None: none is delayed."""
    forwarder: Forwarder
    message_bytes_max: int | None
    """How large a message of the namespace may be."""
    committed: int
    """The last change set that is known to be durable."""


NumberedArrival = tuple[int, Arrival]
"""A message and its sequence."""


class HopCount(NamedTuple):
    """How often a message was forwarded."""

    hops: int = 0
    is_written: bool = False
    """Whether the message carries the number, because it was stored on the way or dead-lettered."""


def hop_count_of(row: MessageRow, *, is_dead: bool = False) -> HopCount:
    """The hop count of a stored message; `is_dead`: it is a dead letter."""
    hops = hops_of(row.payload)
    return HopCount(hops, is_dead or hops > 0)


def with_hop_count(row: MessageRow, hop_count: HopCount) -> MessageRow:
    """The message with its hop count written into it."""
    return row._replace(payload=with_hops(row.payload, hop_count.hops))


class CommitActions:
    """What an entity does once a change set of its own is committed."""

    __slots__ = ("appearing", "delivered", "number", "returning")

    def __init__(self, number: int) -> None:
        self.number = number
        self.appearing: list[MessageRow] = []
        """New messages."""
        self.returning: list[MessageRow] = []
        """Messages that were locked and are free again."""
        self.delivered: list[tuple[Receiver, int]] = []
        """Receivers of a message that is deleted by now, and its size."""


class MessagingEntity(ABC):
    row: EntityRow
    settings: QueueSettings | TopicSettings

    def __init__(self, row: EntityRow, summary: EntitySummary, context: EntityContext) -> None:
        self.entity_id = row.entity_id
        self.configure(row)
        self.accessed_at_ms = row.updated_at_ms
        self._idle_since_ms: int | None = None
        """None after a start: unknown, so the time starts with the first check."""
        self.damage: str | None = None
        """Why its stored messages cannot be read; then nothing is read any more."""
        self.recent = RecentChanges(context.committed)
        self.active = summary.active
        self.deferred = summary.deferred
        self.scheduled = summary.scheduled
        self.payload_bytes = summary.payload_bytes
        self._context = context
        self._next_sequence = summary.next_sequence
        self._due_scan = DueScan(summary.first_due_ms)
        self._commit_actions: deque[CommitActions] = deque()
        self.duplicates: DuplicateDetector | None = None
        """Duplicate detection, if it is enabled."""
        if self.settings.requires_duplicate_detection:
            self.duplicates = DuplicateDetector(row.entity_id, self.recent)

    @abstractmethod
    def configure(self, row: EntityRow) -> None:
        """Apply the settings of this row."""

    def touch(self, now_ms: int) -> None:
        """Record an access: a send, a receive or its end, a peek, a settlement, a change, a message that is due."""
        self.accessed_at_ms = self._idle_since_ms = now_ms

    def check_intact(self) -> None:
        """Raise `InternalError` if its messages cannot be read any more."""
        if self.damage is not None:
            text = f"the messages of '{self.row.path}' cannot be read, the store is damaged there: {self.damage}"
            raise InternalError(text)

    # --- in ---

    @property
    def message_bytes_max(self) -> int | None:
        """How large a message may become here; None: nobody has said."""
        limits = (self.settings.message_bytes_max, self._context.message_bytes_max)
        return min((limit for limit in limits if limit is not None), default=None)

    @abstractmethod
    def check_sendable(self) -> None:
        """Raise a `NamespaceError` if nothing can be sent to it."""

    def check_sizes(self, arrivals: tuple[Arrival, ...]) -> None:
        """Raise `MessageTooLarge` if one of them is larger than this entity accepts."""
        limit = self.settings.message_bytes_max
        size = max((len(arrival.payload) for arrival in arrivals), default=0)
        if limit is not None and size > limit:
            raise MessageTooLarge(f"the message has {size} bytes, '{self.row.path}' takes at most {limit}")

    @abstractmethod
    def send(self, arrivals: tuple[Arrival, ...], now_ms: int, step: Step) -> tuple[int, ...]:
        """Number and store messages, all or none; returns their sequences."""

    @abstractmethod
    def check_acceptable(self, arrivals: tuple[Arrival, ...]) -> None:
        """Raise a `NamespaceError` if these messages are not for this entity, or it has no space for them."""

    @abstractmethod
    def prepare_send(
        self, arrivals: tuple[Arrival, ...], reserved: Sequence[NumberedArrival], now_ms: int, step: Step
    ) -> Callable[[], object]:
        """Check whether messages can be stored, all of them; the result stores them, in this step, and cannot fail.

        `reserved` are scheduled messages that have their sequences already. If it raises, nothing changed but that
        sequences are skipped.
        """

    @abstractmethod
    def accept_forwarded(self, arrival: Arrival, row: MessageRow, hop_count: HopCount, now_ms: int, step: Step) -> None:
        """Store a message that another entity, where it was `row`, forwards here; if it raises, nothing changed."""

    def handle_send(self, command: SendMessages, now_ms: int, step: Step) -> None:
        """Store what is sent, or check for duplicates first; the reply has the result."""
        if self.settings.partitioned:
            check_partitions(command.arrivals)
        if self.duplicates is None:
            step.reply(Done(self.send(command.arrivals, now_ms, step)))
        else:
            self.check_intact()
            self.duplicates.check(command, self.keys_of(command.arrivals), now_ms, step)

    def keys_of(self, arrivals: tuple[Arrival, ...]) -> tuple[str, ...]:
        """The keys of messages for duplicate detection: their ids, in a partitioned entity with the partition."""
        if not self.settings.partitioned:
            return tuple([arrival.message_id or "" for arrival in arrivals])
        partitions = [arrival.partition_key or arrival.session_id or "" for arrival in arrivals]
        named = zip(partitions, arrivals, strict=True)
        return tuple([f"{len(partition)}/{partition}/{arrival.message_id}" for partition, arrival in named])

    def ids_read(self, read: IdsRead, now_ms: int, step: Step) -> None:
        """Carry out the sends whose ids were looked up."""
        for pending in self.duplicates.take(read) if self.duplicates is not None else ():
            if isinstance(pending.command, PendingForward):
                self._context.forwarder.complete_transfer(self, pending, pending.command, now_ms, step)
                continue
            try:
                self.check_sendable()
                step.reply_to(pending.request_id, Done(self._send_new(pending, step)))
            except NamespaceError as error:
                step.reply_to(pending.request_id, Refused(error))
        self.recent.read_ended(read.request)
        if self.duplicates is not None:
            self.duplicates.forget()

    def _send_new(self, pending: PendingSend, step: Step) -> tuple[int, ...]:
        """Store the messages of a send that are no duplicates, as of its arrival; each one gets a sequence."""
        assert self.duplicates is not None
        now_ms = pending.request.now_ms
        arrivals, keys = pending.command.arrivals, self.keys_of(pending.command.arrivals)
        is_new = self.duplicates.new_ones(pending.known, keys)
        chosen = [number for number, arrival in enumerate(arrivals) if is_new[number] or arrival.is_ping]
        stored = iter(self.send(tuple([arrivals[number] for number in chosen]), now_ms, step))
        with_reason = tuple([keys[number] for number in chosen if not arrivals[number].is_ping])
        if step.events is not None:
            self.record_duplicates(
                [one for one, new in zip(arrivals, is_new, strict=True) if not (new or one.is_ping)], step
            )
        if with_reason:
            self.remember_ids(with_reason, now_ms, step)
        real = [number for number, arrival in enumerate(arrivals) if not arrival.is_ping]
        sequences = [next(stored) if is_new[number] else self.take_sequence() for number in real]
        if len(with_reason) < len(real):
            self.count_sequences(step)
        return tuple(sequences)

    def prepare_new(
        self,
        arrivals: tuple[Arrival, ...],
        reserved: Sequence[NumberedArrival],
        known: frozenset[str],
        now_ms: int,
        step: Step,
    ) -> Callable[[], object]:
        """As `prepare_send`, without messages that are duplicates; `known` are those of their keys that are stored."""
        assert self.duplicates is not None
        every = (*arrivals, *[arrival for _, arrival in reserved])
        keys = self.keys_of(every)
        is_new = self.duplicates.new_ones(known, keys)
        count = len(arrivals)
        chosen = tuple([one for one, new in zip(arrivals, is_new, strict=False) if new or one.is_ping])
        scheduled = [one for one, new in zip(reserved, is_new[count:], strict=True) if new]
        store = self.prepare_send(chosen, scheduled, now_ms, step)
        remembered = tuple([key for key, one, new in zip(keys, every, is_new, strict=True) if new and not one.is_ping])
        dropped = [one for one, new in zip(every, is_new, strict=True) if not (new or one.is_ping)]

        def store_new() -> None:
            store()
            self.record_duplicates(dropped, step)
            if remembered:
                self.remember_ids(remembered, now_ms, step)

        return store_new

    def record(
        self, what: MessageEventKind, rows: Sequence[MessageRow], step: Step, cause: str = "", reason: str = ""
    ) -> None:
        """Record an event of messages that are, or were, here."""
        if step.events is not None:
            step.events.rows(what, self.row.path, rows, cause, reason)

    def record_duplicates(self, arrivals: Sequence[Arrival], step: Step) -> None:
        """Record that these messages were dropped as duplicates."""
        if step.events is not None and arrivals:
            dropped = step.events.of(MessageEventKind.DUPLICATE, self.row.path)
            for arrival in arrivals:
                dropped.add(arrival.message_id, arrival.session_id, len(arrival.payload))

    def remember_ids(self, keys: tuple[str, ...], now_ms: int, step: Step) -> None:
        """Remember the keys of accepted messages for duplicate detection."""
        assert self.duplicates is not None
        self._on_commit(step)
        self.duplicates.remember(keys, now_ms + self.settings.duplicate_window_ms, now_ms, step)

    # --- changes ---

    def take_sequence(self) -> int:
        sequence = self._next_sequence
        self._next_sequence = sequence + 1
        return sequence

    def count_sequences(self, step: Step) -> None:
        """Persist sequences that were taken for messages that are not stored here."""
        self._on_commit(step)
        step.changes.append(AdvanceSequence(self.entity_id, self._next_sequence))

    def insert(self, rows: tuple[MessageRow, ...], step: Step) -> None:
        """Write rows with this entity's sequences; they become visible when committed."""
        step.changes.append(InsertMessages(rows))
        self.expect(rows, step)

    def expect(self, rows: tuple[MessageRow, ...], step: Step) -> None:
        """Count rows that are written in this step."""
        self._on_commit(step).appearing.extend(rows)
        self._count(rows, 1)

    def remove(self, row: MessageRow, step: Step) -> None:
        self._remove_all([row], step)

    def _remove_all(self, rows: list[MessageRow], step: Step) -> None:
        if not rows:
            return
        step.changes.append(DeleteMessages(self.row.entity_id, tuple([row.sequence for row in rows])))
        self._on_commit(step)
        for row in rows:
            self.recent.note_removal(row.sequence, step.number)
        self._count(rows, -1)

    def replace(self, old: MessageRow, new: MessageRow, step: Step) -> None:
        step.changes.append(ReplaceMessage(new))
        self.recent.note_change(new.sequence, step.number)
        self._on_commit(step)
        self._count((old,), -1)
        self._count((new,), 1)

    def _count(self, rows: Sequence[MessageRow], by: int) -> None:
        if len(rows) == 1 and rows[0].state is _ACTIVE:  # mostly so, and then it need not take long
            self.active += by
            self.payload_bytes += by * len(rows[0].payload)
            return
        states = [row.state for row in rows]
        active, deferred = states.count(_ACTIVE), states.count(_DEFERRED)
        self.active += by * active
        self.deferred += by * deferred
        self.scheduled += by * (len(states) - active - deferred)
        self.payload_bytes += by * sum([len(row.payload) for row in rows])

    def _on_commit(self, step: Step) -> CommitActions:
        if not self._commit_actions or self._commit_actions[-1].number != step.number:
            self._commit_actions.append(CommitActions(step.number))
            step.touched[self.entity_id] = self
        return self._commit_actions[-1]

    @abstractmethod
    def committed(self, number: int, now_ms: int, step: Step) -> None:
        """Everything up to this number is durable."""

    def _watch_due(self, row: MessageRow) -> None:
        if row.due_at_ms is not None:
            self._due_scan.watch(row.due_at_ms, row.sequence)

    # --- time passes ---

    def next_wake_ms(self) -> int | None:
        """When `tick` has something to do; may be too early."""
        return earlier(self._next_work_ms(), self._idle_end_ms())

    @abstractmethod
    def _next_work_ms(self) -> int | None:
        """When a message or lock is due next."""

    def _idle_end_ms(self) -> int | None:
        limit_ms = self.settings.auto_delete_on_idle_ms
        if limit_ms is None or not self.is_top_level:
            return None
        return 0 if self._idle_since_ms is None else self._idle_since_ms + limit_ms

    @property
    def is_top_level(self) -> bool:
        """Whether it is created and deleted on its own, unlike a dead-letter queue."""
        return True

    @property
    def is_in_use(self) -> bool:
        """Whether it has receivers or scheduled messages."""
        return self.scheduled > 0

    def has_idled_out(self, now_ms: int) -> bool:
        """Whether it is to be deleted because it was idle for too long."""
        end_ms = self._idle_end_ms()
        if end_ms is None or end_ms > now_ms:
            return False
        if self._idle_since_ms is None or self.is_in_use:
            self._idle_since_ms = now_ms
            return False
        return True

    @abstractmethod
    def tick(self, now_ms: int, step: Step) -> None: ...

    def _scan(
        self,
        scan: DueScan,
        rows: type[ExpiredRows] | type[DueRows],
        now_ms: int,
        step: Step,
        rows_max: int = ROWS_PER_SCAN,
    ) -> None:
        if scan.is_due(now_ms) and self.damage is None:
            scan.begin()
            bytes_max = self._context.window_limits.bytes_max
            step.reads.append(rows(self.entity_id, now_ms, rows_max, bytes_max, *scan.after))

    @abstractmethod
    def rows_read(self, read: RowsRead, now_ms: int, step: Step) -> None:
        """Process rows that this entity requested itself."""


def check_partitions(arrivals: tuple[Arrival, ...]) -> None:
    """Raise `NotAllowed` for a message that would belong to two partitions."""
    for arrival in arrivals:
        if arrival.partition_key is not None and arrival.session_id not in (None, arrival.partition_key):
            raise NotAllowed("the partition key of a message must be its session id if it has both")


def on_time_ms(due_at_ms: int | None, now_ms: int) -> int:
    """The enqueued time of a message that was due at `due_at_ms` and is enqueued now."""
    return due_at_ms if due_at_ms is not None and now_ms - due_at_ms <= LATE_MS else now_ms


def expiry(ttl_ms: int | None, ceiling_ms: int | None, enqueued_at_ms: int) -> int | None:
    """When a message expires: after its own time to live, at most the entity's; None: never."""
    if ttl_ms is None or (ceiling_ms is not None and ceiling_ms < ttl_ms):
        ttl_ms = ceiling_ms
    return None if ttl_ms is None else enqueued_at_ms + ttl_ms


def as_scheduled(row: MessageRow, sequence: int, arrival: Arrival) -> MessageRow:
    """A message with a sequence that it got before. It is scheduled even if it is due by now: others may have higher
    sequences already.
    """
    due_at_ms = arrival.due_at_ms
    numbered = row._replace(sequence=sequence, enqueue_sequence=sequence)
    return numbered._replace(state=MessageState.SCHEDULED, expires_at_ms=None, due_at_ms=due_at_ms)


def earlier(one_ms: int | None, other_ms: int | None) -> int | None:
    if one_ms is None or other_ms is None:
        return one_ms if other_ms is None else other_ms
    return min(one_ms, other_ms)
