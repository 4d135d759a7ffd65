"""What an entity keeps in the store, and how its changes come about.

Queues, subscriptions and topics have a shelf in common: numbers, counts, scheduled messages, and the rule that nothing
is visible before it is committed. Every method takes the time and a `Step` to put changes, replies and reads into.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twinbus.errors import InternalError, MessageTooLarge, NamespaceError, NotAllowed
from twinbus.namespace.commands import Send
from twinbus.namespace.entities.afterwards import Afterwards
from twinbus.namespace.entities.duplicates import DuplicateGuard, PendingSend, Transfer, keys_of
from twinbus.namespace.entities.journeys import Journey
from twinbus.namespace.entities.recent import RecentChanges
from twinbus.namespace.entities.settings import QueueSettings, TopicSettings
from twinbus.namespace.entities.sweep import Sweep
from twinbus.namespace.entities.window import WindowLimits
from twinbus.namespace.happenings import Happening
from twinbus.namespace.message import Arrival, time_to_live_ms
from twinbus.namespace.replies import Done, Refused, Step
from twinbus.namespace.store.api import (
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

if TYPE_CHECKING:
    from twinbus.namespace.entities.forwarding import Courier

ROWS_PER_SWEEP = 100
LATE_MS = 1_000
"""A scheduled message that wakes up at most this late counts as enqueued on time."""

_ACTIVE, _DEFERRED, _SCHEDULED = (
    MessageState  # an enum looks its members up at every mention, and these run per message
)

CopyDelays = Callable[[str], int]
"""How long copies for a subscription, given its path, are held back, in ms; 0: not at all."""


def no_copy_delays(_now_ms: int) -> CopyDelays | None:
    """No copy is held back."""
    return None


@dataclass(frozen=True, slots=True)
class EntityContext:
    """What all entities of a namespace share."""

    new_token: Callable[[], bytes]
    window_limits: WindowLimits
    courier: Courier | None = None
    """Who forwards messages from one to another."""
    copy_delays: Callable[[int], CopyDelays | None] = no_copy_delays
    """Which copies are held back at this moment; None: none."""


class Shelf(ABC):
    row: EntityRow
    settings: QueueSettings | TopicSettings

    def __init__(self, row: EntityRow, summary: EntitySummary, context: EntityContext, *, committed: int) -> None:
        self.entity_id = row.entity_id
        self.configure(row)
        self.accessed_at_ms = row.updated_at_ms
        self._idle_since_ms: int | None = None
        """None, after a start: nobody knows, so the time runs from the first look at it."""
        self.damage: str | None = None
        """What is broken where its messages are stored; then nothing is read from there any more."""
        self.recent = RecentChanges(committed)
        self.active = summary.active
        self.deferred = summary.deferred
        self.scheduled = summary.scheduled
        self.payload_bytes = summary.payload_bytes
        self._context = context
        self._next_sequence = summary.next_sequence
        self._dues = Sweep(summary.first_due_ms)
        self._afterwards: deque[Afterwards] = deque()
        self.guard: DuplicateGuard | None = None
        """Against duplicates, if it is asked for."""
        if self.settings.requires_duplicate_detection:
            self.guard = DuplicateGuard(row.entity_id, self.recent)

    @abstractmethod
    def configure(self, row: EntityRow) -> None:
        """Go by the settings of this row from now on."""

    def used(self, now_ms: int) -> None:
        """Somebody sends, receives, looks or changes something."""
        self.accessed_at_ms = self._idle_since_ms = now_ms

    def check_intact(self) -> None:
        """Raise `InternalError` if its messages cannot be read any more."""
        if self.damage is not None:
            text = f"the messages of '{self.row.path}' cannot be read, the store is damaged there: {self.damage}"
            raise InternalError(text)

    # --- in ---

    @abstractmethod
    def check_sendable(self) -> None:
        """Raise a `NamespaceError` if nothing can be sent to it."""

    def check_sizes(self, arrivals: tuple[Arrival, ...]) -> None:
        """Raise `MessageTooLarge` if one of them is larger than this entity takes."""
        limit = self.settings.message_bytes_max
        size = max((len(arrival.payload) for arrival in arrivals), default=0)
        if limit is not None and size > limit:
            raise MessageTooLarge(f"the message has {size} bytes, '{self.row.path}' takes at most {limit}")

    @abstractmethod
    def send(self, arrivals: tuple[Arrival, ...], now_ms: int, step: Step) -> tuple[int, ...]:
        """Number and store messages, all or none; returns their sequences."""

    @abstractmethod
    def take_in(self, arrival: Arrival, row: MessageRow, journey: Journey, now_ms: int, step: Step) -> None:
        """Store a message that another entity, where it was `row`, forwards here; raises if it cannot be, undone."""

    @property
    def _courier(self) -> Courier:
        assert self._context.courier is not None
        return self._context.courier

    def ask_to_send(self, command: Send, now_ms: int, step: Step) -> None:
        """Store what is sent, or look for duplicates first; the reply says what became of it."""
        if self.settings.partitioned:
            check_partitions(command.arrivals)
        if self.guard is None:
            step.replies.append(Done(command.origin, self.send(command.arrivals, now_ms, step)))
        else:
            self.check_intact()
            self.guard.ask(command, self.keys_of(command.arrivals), now_ms, step)

    def keys_of(self, arrivals: tuple[Arrival, ...]) -> tuple[str, ...]:
        """What tells messages apart here."""
        return keys_of(arrivals, with_partitions=self.settings.partitioned)

    def ids_read(self, read: IdsRead, now_ms: int, step: Step) -> None:
        """Carry out the sends whose ids are known by now."""
        for pending in self.guard.take(read) if self.guard is not None else ():
            if isinstance(pending.command, Transfer):
                self._courier.arrive(self, pending, pending.command, now_ms, step)
                continue
            try:
                self.check_sendable()
                step.replies.append(Done(pending.command.origin, self._send_new(pending, step)))
            except NamespaceError as error:
                step.replies.append(Refused(pending.command.origin, error))
        self._end_read(read)

    def _end_read(self, read: IdsRead) -> None:
        self.recent.read_ended(read.request)
        if self.guard is not None:
            self.guard.forget()

    def _send_new(self, pending: PendingSend, step: Step) -> tuple[int, ...]:
        """Store those messages of a send that were not sent before, as of when they came; each one gets a number."""
        assert self.guard is not None
        now_ms = pending.request.now_ms
        arrivals, keys = pending.command.arrivals, self.keys_of(pending.command.arrivals)
        is_new = self.guard.new_ones(pending, keys)
        chosen = [number for number, arrival in enumerate(arrivals) if is_new[number] or arrival.is_ping]
        stored = iter(self.send(tuple([arrivals[number] for number in chosen]), now_ms, step))
        noted = tuple([keys[number] for number in chosen if not arrivals[number].is_ping])
        if step.story is not None:
            self.tell_dropped(
                [one for one, new in zip(arrivals, is_new, strict=True) if not (new or one.is_ping)], step
            )
        if noted:
            self.note_ids(noted, now_ms, step)
        real = [number for number, arrival in enumerate(arrivals) if not arrival.is_ping]
        sequences = [next(stored) if is_new[number] else self.take_sequence() for number in real]
        if len(noted) < len(real):
            self.count_sequences(step)
        return tuple(sequences)

    def tell(self, what: Happening, rows: Sequence[MessageRow], step: Step, cause: str = "", reason: str = "") -> None:
        """This happens to messages that are, or were, here."""
        if step.story is not None:
            step.story.rows(what, self.row.path, rows, cause, reason)

    def tell_dropped(self, arrivals: Sequence[Arrival], step: Step) -> None:
        """These were sent before."""
        if step.story is not None and arrivals:
            dropped = step.story.of(Happening.DUPLICATE, self.row.path)
            for arrival in arrivals:
                dropped.add(arrival.message_id, arrival.session_id, len(arrival.payload))

    def note_ids(self, keys: tuple[str, ...], now_ms: int, step: Step) -> None:
        """These messages were accepted: others that are the same will not be for a while."""
        assert self.guard is not None
        self._after(step)
        self.guard.note(keys, now_ms + self.settings.duplicate_window_ms, now_ms, step)

    # --- changes ---

    def take_sequence(self) -> int:
        sequence = self._next_sequence
        self._next_sequence = sequence + 1
        return sequence

    def count_sequences(self, step: Step) -> None:
        """Sequences were taken for messages that are not stored here."""
        self._after(step)
        step.changes.append(AdvanceSequence(self.entity_id, self._next_sequence))

    def insert(self, rows: tuple[MessageRow, ...], step: Step) -> None:
        """Write rows that carry this entity's sequences; they appear when committed."""
        step.changes.append(InsertMessages(rows))
        self.expect(rows, step)

    def expect(self, rows: tuple[MessageRow, ...], step: Step) -> None:
        """These rows are written in this step."""
        self._after(step).appearing.extend(rows)
        self._count(rows, 1)

    def remove(self, row: MessageRow, step: Step) -> None:
        self._remove_all([row], step)

    def _remove_all(self, rows: list[MessageRow], step: Step) -> None:
        if not rows:
            return
        step.changes.append(DeleteMessages(self.row.entity_id, tuple([row.sequence for row in rows])))
        self._after(step)
        for row in rows:
            self.recent.note_removal(row.sequence, step.number)
        self._count(rows, -1)

    def replace(self, old: MessageRow, new: MessageRow, step: Step) -> None:
        step.changes.append(ReplaceMessage(new))
        self.recent.note_change(new.sequence, step.number)
        self._after(step)
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

    def _after(self, step: Step) -> Afterwards:
        if not self._afterwards or self._afterwards[-1].number != step.number:
            self._afterwards.append(Afterwards(step.number))
            step.touched[self.entity_id] = self
        return self._afterwards[-1]

    @abstractmethod
    def committed(self, number: int, now_ms: int, step: Step) -> None:
        """Everything up to this number is durable."""

    def _watch_due(self, row: MessageRow) -> None:
        if row.due_at_ms is not None:
            self._dues.watch(row.due_at_ms, row.sequence)

    # --- time passes ---

    def next_wake_ms(self) -> int | None:
        """When time next changes something here; too early is possible and harmless."""
        return earlier(self._next_work_ms(), self._idle_end_ms())

    @abstractmethod
    def _next_work_ms(self) -> int | None:
        """When time next changes a message or a lock."""

    def _idle_end_ms(self) -> int | None:
        limit_ms = self.settings.auto_delete_on_idle_ms
        if limit_ms is None or not self.is_whole:
            return None
        return 0 if self._idle_since_ms is None else self._idle_since_ms + limit_ms

    @property
    def is_whole(self) -> bool:
        """Whether it comes and goes by itself."""
        return True

    @property
    def is_in_use(self) -> bool:
        """Whether somebody is connected to it, or something in it waits for its time."""
        return self.scheduled > 0

    def has_idled_out(self, now_ms: int) -> bool:
        """Whether it is to be removed, because it was not used for as long as it is set to wait for that."""
        end_ms = self._idle_end_ms()
        if end_ms is None or end_ms > now_ms:
            return False
        if self._idle_since_ms is None or self.is_in_use:
            self._idle_since_ms = now_ms
            return False
        return True

    @abstractmethod
    def tick(self, now_ms: int, step: Step) -> None: ...

    def _sweep(
        self,
        sweep: Sweep,
        rows: type[ExpiredRows] | type[DueRows],
        now_ms: int,
        step: Step,
        rows_max: int = ROWS_PER_SWEEP,
    ) -> None:
        if sweep.is_due(now_ms) and self.damage is None:
            sweep.begin()
            bytes_max = self._context.window_limits.bytes_max
            step.reads.append(rows(self.entity_id, now_ms, rows_max, bytes_max, *sweep.after))

    @abstractmethod
    def rows_read(self, read: RowsRead, now_ms: int, step: Step) -> None:
        """Use rows that this entity asked for by itself."""

    def _end_due_sweep(self, read: RowsRead) -> None:
        met = [(row.due_at_ms or 0, row.sequence) for row in read.rows[-1:]]
        self._dues.end(met[0] if met else None, read.next_time_ms)


def check_partitions(arrivals: tuple[Arrival, ...]) -> None:
    """Raise `NotAllowed` for a message that would belong to two partitions."""
    for arrival in arrivals:
        if arrival.partition_key is not None and arrival.session_id not in (None, arrival.partition_key):
            raise NotAllowed("the partition key of a message must be its session id if it has both")


def on_time_ms(due_at_ms: int | None, now_ms: int) -> int:
    """The time at which a message counts as enqueued that was due at that time, and is enqueued now."""
    return due_at_ms if due_at_ms is not None and now_ms - due_at_ms <= LATE_MS else now_ms


def awake(row: MessageRow, sequence: int, ceiling_ms: int | None, now_ms: int) -> MessageRow:
    """A scheduled message, under its new number, as if it had been sent when it wakes."""
    enqueued_at_ms = on_time_ms(row.due_at_ms, now_ms)
    return row._replace(
        sequence=sequence,
        enqueue_sequence=sequence,
        state=_ACTIVE,
        enqueued_at_ms=enqueued_at_ms,
        expires_at_ms=expiry(time_to_live_ms(row.payload), ceiling_ms, enqueued_at_ms),
        due_at_ms=None,
    )


def expiry(ttl_ms: int | None, ceiling_ms: int | None, enqueued_at_ms: int) -> int | None:
    """When a message ends: after its own time to live, at most the entity's; None: never."""
    if ttl_ms is None or (ceiling_ms is not None and ceiling_ms < ttl_ms):
        ttl_ms = ceiling_ms
    return None if ttl_ms is None else enqueued_at_ms + ttl_ms


def earlier(one_ms: int | None, other_ms: int | None) -> int | None:
    if one_ms is None or other_ms is None:
        return one_ms if other_ms is None else other_ms
    return min(one_ms, other_ms)
