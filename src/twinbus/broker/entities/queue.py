"""A queue: storing, delivering and settling messages.

Every method takes the time and a `Step` for changes, replies and reads. New messages become visible, and unlocked ones
visible again, only when their change is committed: until then they wait in `CommitActions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

from twinbus.broker.core.message_events import Cause, MessageEventKind
from twinbus.broker.core.replies import Delivery, Step
from twinbus.broker.entities.dead_letter_properties import with_reason
from twinbus.broker.entities.due_scan import DueScan
from twinbus.broker.entities.entity import (
    EntityContext,
    HopCount,
    MessagingEntity,
    NumberedArrival,
    as_scheduled,
    earlier,
    expiry,
    hop_count_of,
    on_time_ms,
)
from twinbus.broker.entities.loaded_head import Window
from twinbus.broker.entities.locks import MessageLock, MessageLocks
from twinbus.broker.entities.receivers import Receiver, Receivers
from twinbus.broker.entities.settings import QueueSettings, QueueStatus
from twinbus.broker.entities.settlement import LOCK_LOST, TOO_OLD, count_failure, move_to_dead_letters
from twinbus.broker.message import Arrival, time_to_live_ms
from twinbus.broker.operations import ReceiveMode, ReceiverDrained, ReceiverLost
from twinbus.broker.store.api import (
    DueRows,
    EntityRow,
    EntitySummary,
    ExpiredRows,
    HeadRows,
    MessageRow,
    MessageState,
    NamedRows,
    RangeRows,
    RowsRead,
)
from twinbus.errors import (
    EntityDisabled,
    LockLost,
    NamespaceError,
    NotAllowed,
    QuotaExceeded,
)

ENDED_LOCKS_PER_STEP = 500

_ACTIVE, _DEFERRED, _SCHEDULED = (
    MessageState  # an enum looks its members up at every mention, and these run per message
)


class Queue(MessagingEntity):
    settings: QueueSettings
    destination: str | None
    _has_work: bool

    def __init__(
        self, row: EntityRow, summary: EntitySummary, context: EntityContext, dead_letter: Queue | None
    ) -> None:
        super().__init__(row, summary, context)
        self.dead_letter = dead_letter
        self.transfer_dead_letter: Queue | None = None
        """For what it cannot forward; created on first use."""
        self.receivers = Receivers(context.window_limits.locked_bytes_max)
        self.locks = MessageLocks()
        self._window = Window(row.entity_id, context.window_limits, summary.first_active_sequence)
        self._expiry_scan = DueScan(summary.first_expiry_ms)

    def configure(self, row: EntityRow) -> None:
        """Apply the settings of this row."""
        self.row = row
        self.settings = QueueSettings.from_text(row.settings, row.path)
        self.destination = self._destination_of(self.settings)
        """Where its messages are forwarded to; None: nowhere."""
        self._has_work = self.destination is not None

    def _destination_of(self, settings: QueueSettings) -> str | None:
        return settings.forward_to

    @property
    def is_top_level(self) -> bool:
        return self.dead_letter is not None

    @property
    def is_in_use(self) -> bool:
        has_receivers = any(each.receivers.all for each in (self, *self.dead_letter_queues))
        return super().is_in_use or has_receivers or self.destination is not None

    @property
    def dead_letter_queues(self) -> list[Queue]:
        """Its dead-letter queues."""
        return [
            dead_letters for dead_letters in (self.dead_letter, self.transfer_dead_letter) if dead_letters is not None
        ]

    @property
    def stored_bytes(self) -> int:
        """What counts against the maximum size, dead letters included."""
        size = self.payload_bytes
        for dead_letters in (self.dead_letter, self.transfer_dead_letter):
            if dead_letters is not None:
                size += dead_letters.payload_bytes
        return size

    @property
    def size_bytes_max(self) -> int:
        return self.settings.size_bytes_max

    @property
    def held_rows(self) -> int:
        """The number of visible messages in memory."""
        return len(self._window)

    def check_sendable(self) -> None:
        """Raise `EntityDisabled` unless the queue's status allows sending."""
        status = self.settings.status
        if status is not QueueStatus.ACTIVE and not status.lets_send:
            raise EntityDisabled(f"'{self.row.path}' has the status {status}: nothing can be sent to it")

    def check_receivable(self) -> None:
        """Raise `EntityDisabled` unless the queue's status allows receiving."""
        status = self.settings.status
        if status is not QueueStatus.ACTIVE and not status.lets_receive:
            raise EntityDisabled(f"'{self.row.path}' has the status {status}: nothing can be received from it")
        if self.destination is not None:
            text = f"'{self.row.path}' forwards its messages to '{self.destination}': receive from there"
            raise NotAllowed(text)

    # --- in ---

    def send(self, arrivals: tuple[Arrival, ...], now_ms: int, step: Step) -> tuple[int, ...]:
        """Number and store messages, all or none; returns their sequences. Pings pass the checks and are dropped."""
        if not arrivals:
            return ()
        self.check_acceptable(arrivals)
        return self._store(arrivals, now_ms, step)

    def prepare_send(
        self, arrivals: tuple[Arrival, ...], reserved: Sequence[NumberedArrival], now_ms: int, step: Step
    ) -> Callable[[], object]:
        self.check_acceptable((*arrivals, *[arrival for _, arrival in reserved]))

        def store() -> None:
            if arrivals:
                self._store(arrivals, now_ms, step)
            rows = tuple([as_scheduled(self.row_of(one, now_ms), sequence, one) for sequence, one in reserved])
            if rows:
                self.insert(rows, step)
                self.record(MessageEventKind.STORED, rows, step)
                self.count_sequences(step)

        return store

    def _store(self, arrivals: tuple[Arrival, ...], now_ms: int, step: Step) -> tuple[int, ...]:
        if self.destination is not None:
            return self._context.forwarder.send(self, arrivals, now_ms, step)
        rows = tuple([self.row_of(arrival, now_ms) for arrival in arrivals if not arrival.is_ping])
        if rows:
            self.insert(rows, step)
            if step.events is not None:
                step.events.rows(MessageEventKind.STORED, self.row.path, rows)
        return tuple([row.sequence for row in rows])

    def accept_forwarded(self, arrival: Arrival, row: MessageRow, hop_count: HopCount, now_ms: int, step: Step) -> None:
        self.check_acceptable((arrival,))
        taken = self.row_of(arrival, now_ms)
        taken = taken._replace(enqueue_sequence=row.enqueue_sequence, dead_letter_source=row.dead_letter_source)
        self.record(MessageEventKind.STORED, (taken,), step)
        if self.destination is None:
            self.insert((taken,), step)
        else:
            self._context.forwarder.forward(self, taken, hop_count, now_ms, step)

    def check_acceptable(self, arrivals: tuple[Arrival, ...]) -> None:
        """Raise a `NamespaceError` if the queue cannot store these messages."""
        if self.settings.max_message_kb is not None:
            self.check_sizes(arrivals)
        self.check_quota(sum([len(arrival.payload) for arrival in arrivals]))

    def check_quota(self, new_bytes: int) -> None:
        """Raise `QuotaExceeded` unless there is space for this much more."""
        limit = self.size_bytes_max
        if self.stored_bytes + new_bytes > limit:
            raise QuotaExceeded(
                f"'{self.row.path}' is full: it holds {self.stored_bytes} bytes of at most {limit}, "
                f"and {new_bytes} more were sent; receive messages or raise its maximum size"
            )

    def row_of(self, arrival: Arrival, now_ms: int) -> MessageRow:
        """A message with the next sequence of this queue."""
        due_at_ms = arrival.due_at_ms
        is_scheduled = due_at_ms is not None and due_at_ms > now_ms
        sequence = self.take_sequence()
        return MessageRow(
            self.row.entity_id,
            sequence,
            _SCHEDULED if is_scheduled else _ACTIVE,
            sequence,
            now_ms,
            None if is_scheduled else expiry(arrival.ttl_ms, self.settings.default_ttl_ms, now_ms),
            due_at_ms if is_scheduled else None,
            0,
            arrival.message_id,
            arrival.session_id,
            None,
            arrival.payload,
        )

    # --- committed ---

    def committed(self, number: int, now_ms: int, step: Step) -> None:
        """Everything up to this number is durable: make it visible, and deliver it."""
        while self._commit_actions and self._commit_actions[0].number <= number:
            actions = self._commit_actions.popleft()
            for row in actions.appearing:
                if row.state is _SCHEDULED:
                    self._watch_due(row)
                elif row.expires_at_ms is None or self._lives(row, row.expires_at_ms, now_ms, step):
                    self._show(row, actions.number)
            for row in actions.returning:
                self.requeue(row, now_ms, step)
            for receiver, size in actions.delivered:
                receiver.undelivered -= 1
                self.receivers.returned(receiver, size)
        self.recent.committed(number)
        if self.duplicates is not None:
            self.duplicates.forget()
        self.deliver(now_ms, step)

    def _show(self, row: MessageRow, number: int) -> None:
        """Make a new message visible."""
        self._window.arrive(row, number)

    def requeue(self, row: MessageRow, now_ms: int, step: Step) -> None:
        if row.expires_at_ms is None or self._lives(row, row.expires_at_ms, now_ms, step):
            self._show_again(row)

    def _show_again(self, row: MessageRow) -> None:
        """Make a message that was locked visible again."""
        self._window.put_back(row)

    def _discard(self, row: MessageRow) -> None:
        """Remove a visible message that is not locked from memory."""
        self._window.discard(row.sequence)

    def _lives(self, row: MessageRow, expires_at_ms: int, now_ms: int, step: Step) -> bool:
        """Add a visible message to the expiry scan; an expired one ends here, the scan may have passed it."""
        if expires_at_ms <= now_ms:
            self.expire(row, step)
            return False
        self._expiry_scan.watch(expires_at_ms, row.sequence)
        return True

    # --- out ---

    def deliver(self, now_ms: int, step: Step) -> None:
        """Deliver visible messages to receivers with credit, oldest first, receivers in turn; or forward them."""
        if self.destination is not None:
            self._context.forwarder.forward_stored(self, now_ms, step)
            return
        receivers, window = self.receivers, self._window
        while receivers.all and self.may_deliver and (receiver := receivers.next_ready()) is not None:
            row = window.take()
            if row is None:
                break
            if row.expires_at_ms is not None and row.expires_at_ms <= now_ms:
                self.expire(row, step)
                continue
            receivers.served()
            self._deliver(receiver, row, now_ms, step)
        if window.on_disk_from is not None:
            self.fetch(step)
        self._finish_drains(step)

    @property
    def may_deliver(self) -> bool:
        """Whether there is memory for more locked messages; if not, receivers wait until some are settled."""
        return self.locks.held_bytes < self._context.window_limits.locks_bytes_max

    def take_visible(self, now_ms: int, step: Step) -> MessageRow | None:
        """Remove and return the oldest visible message in memory; None: there is none."""
        while (row := self._window.take()) is not None:
            if row.expires_at_ms is None or row.expires_at_ms > now_ms:
                return row
            self.expire(row, step)
        return None

    def fetch(self, step: Step) -> None:
        """Read messages from disk if there are few in memory."""
        self._fetch_into(self._window, step)

    def _fetch_into(self, window: Window, step: Step) -> None:
        wanted = window.wanted_rows()
        if wanted is not None and self.damage is None:
            step.reads.append(wanted)

    def cancel_transfer(self, row: MessageRow, step: Step) -> None:
        """A message that was held for a transfer stays here."""
        self.locks.release_hold(row.sequence)
        self._show_again(row)
        self.schedule_work(step)

    def schedule_work(self, step: Step) -> None:
        """Call `tick` as soon as possible."""
        self._has_work = True
        step.woken.append(self)

    def _deliver(self, receiver: Receiver, row: MessageRow, now_ms: int, step: Step) -> None:
        size = len(row.payload)
        receiver.room_bytes -= size
        if receiver.mode is ReceiveMode.RECEIVE_AND_DELETE:
            self.remove(row, step)
            if step.events is not None:
                step.events.rows(MessageEventKind.DELIVERED, self.row.path, (row,), Cause.RECEIVED_AND_DELETED)
            receiver.undelivered += 1
            self._on_commit(step).delivered.append((receiver, size))
            step.replies.append(Delivery(receiver.name, row, None, None))
            return
        token, until_ms = self.lock(row, now_ms, receiver)
        step.immediate.append(Delivery(receiver.name, row, token, until_ms))

    def close(self, receiver: Receiver, now_ms: int, step: Step) -> None:
        """Remove a receiver. Its locks stay until they are settled or end."""
        self.receivers.remove(receiver.name)

    def close_receivers(self, error: NamespaceError, now_ms: int, step: Step) -> None:
        """Close all receivers; locks stay."""
        for name in list(self.receivers.all):
            self.receivers.remove(name)
            step.gone.append(name)
            step.replies.append(ReceiverLost(name, error))

    def lock(self, row: MessageRow, now_ms: int, receiver: Receiver | None = None) -> tuple[bytes, int]:
        """Lock a message; returns the token and the end of the lock."""
        token, until_ms = self._context.new_token(), now_ms + self.settings.lock_ms
        self.locks.add(row, token, until_ms, receiver)
        return token, until_ms

    def release_lock(self, lock: MessageLock) -> None:
        """A lock ended: its receiver may have another message."""
        if lock.receiver is not None:
            self.receivers.returned(lock.receiver, len(lock.row.payload))

    def _finish_drains(self, step: Step) -> None:
        """Report draining receivers as drained, unless messages for them are on their way or on disk."""
        if not self.receivers.draining:
            return
        for receiver in list(self.receivers.draining.values()):
            if receiver.undelivered == 0 and not self._is_reading_for(receiver):
                self.receivers.drained(receiver)
                step.immediate.append(ReceiverDrained(receiver.name))

    def _is_reading_for(self, receiver: Receiver) -> bool:
        return self._window.is_reading

    def is_waiting(self, receiver: Receiver) -> bool:
        """Whether a receiver has credit and there is no message for it."""
        return receiver.is_ready and not self._is_reading_for(receiver)

    # --- settled ---

    def find_lock(self, token: bytes, now_ms: int) -> MessageLock | None:
        """The lock of a token, if it has not ended."""
        return self.locks.find(token, now_ms)

    def complete(self, rows: list[MessageRow], step: Step) -> None:
        """Remove completed messages."""
        self._remove_all(rows, step)
        if step.events is not None:
            step.events.rows(MessageEventKind.DELIVERED, self.row.path, rows, Cause.COMPLETED)

    def requeue_on_commit(self, row: MessageRow, step: Step) -> None:
        """Make a message that was locked visible again, once the step is committed."""
        self._on_commit(step).returning.append(row)

    def renew(self, tokens: tuple[bytes, ...], now_ms: int) -> tuple[int, ...]:
        """Renew all of these locks or none; returns the new ends."""
        locks = [self.locks.find(token, now_ms) for token in tokens]
        if None in locks:
            raise LockLost(LOCK_LOST)
        until_ms = now_ms + self.settings.lock_ms
        for lock in locks:
            if lock is not None:
                self.locks.renew(lock, until_ms)
        return (until_ms,) * len(locks)

    # --- time passes ---

    def _next_work_ms(self) -> int | None:
        """When `tick` has something to do; may be too early."""
        if self._has_work:
            return 0
        if self.damage is not None:
            return self.locks.next_end_ms()
        return earlier(earlier(self.locks.next_end_ms(), self._expiry_scan.next_ms), self._due_scan.next_ms)

    def tick(self, now_ms: int, step: Step) -> None:
        self._has_work = False
        for lock in self.locks.take_ended(now_ms, ENDED_LOCKS_PER_STEP):
            self.release_lock(lock)
            self._end_lock(lock.row, now_ms, step)
        self._scan(self._expiry_scan, ExpiredRows, now_ms, step)
        self._scan(self._due_scan, DueRows, now_ms, step)
        self.deliver(now_ms, step)

    def _end_lock(self, row: MessageRow, now_ms: int, step: Step) -> None:
        if row.expires_at_ms is not None and row.expires_at_ms <= now_ms:
            self.expire(row, step)
        else:
            count_failure(self, row, row, step)

    def expire(self, row: MessageRow, step: Step) -> None:
        """Remove or dead-letter an expired message, which is neither locked nor in the window any more."""
        if self.settings.dead_letter_on_expiration and self.dead_letter is not None:
            late = with_reason(row, TOO_OLD, "The message's time to live was over.")
            move_to_dead_letters(self, row, late, Cause.BY_NAMESPACE, TOO_OLD, step)
            return
        self.remove(row, step)
        self.record(MessageEventKind.EXPIRED, (row,), step)

    # --- rows from disk ---

    def rows_read(self, read: RowsRead, now_ms: int, step: Step) -> None:
        """Process rows that this queue requested itself."""
        if self.damage is not None:
            self.recent.read_ended(read.request)
            return
        rows = [row for row in read.rows if not self.recent.changed_since(row.sequence, read.as_of)]
        match read.request:
            case HeadRows(from_sequence=start):
                last = read.rows[-1].sequence if read.rows else start - 1
                self._window.refill(rows, read_until=last, complete=read.complete, as_of=read.as_of)
            case ExpiredRows():
                met = [(row.expires_at_ms or 0, row.sequence) for row in read.rows[-1:]]
                self._expiry_scan.end(met[0] if met else None, read.next_time_ms)
                for row in rows:
                    if not self.locks.is_locked(row.sequence):
                        self._discard(row)
                        self.expire(row, step)
            case DueRows():
                met = [(row.due_at_ms or 0, row.sequence) for row in read.rows[-1:]]
                self._due_scan.end(met[0] if met else None, read.next_time_ms)
                self._activate(rows, now_ms, step)
            case RangeRows() | NamedRows():
                pass  # requested by a command, not by this queue
            case _:
                assert_never(read.request)
        self.recent.read_ended(read.request)
        self.deliver(now_ms, step)

    def _activate(self, rows: list[MessageRow], now_ms: int, step: Step) -> None:
        """Enqueue scheduled messages that are due, as if they were sent now."""
        self._remove_all(rows, step)
        if rows:
            self.touch(now_ms)
        if rows and self.destination is not None:
            for row in rows:
                self._context.forwarder.forward(self, self._activate_row(row, now_ms), hop_count_of(row), now_ms, step)
            self.count_sequences(step)
        elif rows:
            self.insert(tuple([self._activate_row(row, now_ms) for row in rows]), step)

    def _activate_row(self, row: MessageRow, now_ms: int) -> MessageRow:
        """A scheduled message with its new sequence, as if it was sent when it becomes due."""
        sequence, enqueued_at_ms = self.take_sequence(), on_time_ms(row.due_at_ms, now_ms)
        return row._replace(
            sequence=sequence,
            enqueue_sequence=sequence,
            state=_ACTIVE,
            enqueued_at_ms=enqueued_at_ms,
            expires_at_ms=expiry(time_to_live_ms(row.payload), self._ttl_ms_max, enqueued_at_ms),
            due_at_ms=None,
        )

    @property
    def _ttl_ms_max(self) -> int | None:
        """The longest time to live of a scheduled message; None: unlimited."""
        return self.settings.default_ttl_ms
