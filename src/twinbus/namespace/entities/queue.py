"""A queue: messages in, loans out, and what becomes of them.

Every method takes the time and a `Step` to put changes, replies and reads into. New messages become
visible, and messages on their way back return, only when their change is committed: until then they
wait in an `Afterwards`.

A dead-letter queue is a queue too; it has no dead-letter queue of its own, and nothing in it expires.
"""

from __future__ import annotations

from twinbus.errors import (
    EntityDisabled,
    LockLost,
    NamespaceError,
    NotAllowed,
    QuotaExceeded,
    StoreDamaged,
)
from twinbus.namespace.commands import ReceiveMode
from twinbus.namespace.entities.journeys import Journey, journey_of
from twinbus.namespace.entities.loans import Loan, Loans
from twinbus.namespace.entities.notes import noted
from twinbus.namespace.entities.receivers import Receiver, Receivers
from twinbus.namespace.entities.settings import QueueSettings, QueueStatus
from twinbus.namespace.entities.settlement import LOCK_LOST, TOO_OLD, bury, count_failure
from twinbus.namespace.entities.shelf import EntityContext, Shelf, awake, earlier, expiry
from twinbus.namespace.entities.sweep import Sweep
from twinbus.namespace.entities.window import Window
from twinbus.namespace.happenings import Cause, Happening
from twinbus.namespace.message import Arrival
from twinbus.namespace.replies import Delivery, Drained, ReceiverLost, Step
from twinbus.namespace.store.api import (
    DueRows,
    EntityRow,
    EntitySummary,
    ExpiredRows,
    HeadRows,
    MessageRow,
    MessageState,
    RowsRead,
)

ENDED_LOCKS_PER_STEP = 500

_ACTIVE, _DEFERRED, _SCHEDULED = (
    MessageState  # an enum looks its members up at every mention, and these run per message
)


class Queue(Shelf):
    settings: QueueSettings
    destination: str | None
    _has_to_look: bool

    def __init__(
        self,
        row: EntityRow,
        summary: EntitySummary,
        context: EntityContext,
        *,
        committed: int,
        dead_letter: Queue | None,
    ) -> None:
        super().__init__(row, summary, context, committed=committed)
        self.dead_letter = dead_letter
        self.transfer_dead_letter: Queue | None = None
        """For what it cannot forward; made when there is something."""
        self.receivers = Receivers(context.window_limits.lent_bytes_max)
        self.loans = Loans()
        self._window = Window(row.entity_id, context.window_limits, summary.first_active_sequence)
        self._expiries = Sweep(summary.first_expiry_ms)

    def configure(self, row: EntityRow) -> None:
        """Go by the settings of this row from now on."""
        self.row = row
        try:
            self.settings = QueueSettings.from_text(row.settings)
        except StoreDamaged as error:
            raise StoreDamaged(f"'{row.path}': {error}") from error
        self.destination = self._destination_of(self.settings)
        """Where its messages go on to; None: they stay."""
        self._has_to_look = self.destination is not None

    def _destination_of(self, settings: QueueSettings) -> str | None:
        return settings.forward_to

    @property
    def is_whole(self) -> bool:
        return self.dead_letter is not None

    @property
    def is_in_use(self) -> bool:
        has_receivers = any(each.receivers.all for each in (self, *self.graves))
        return super().is_in_use or has_receivers or self.destination is not None

    @property
    def graves(self) -> list[Queue]:
        """Its dead-letter queues."""
        return [grave for grave in (self.dead_letter, self.transfer_dead_letter) if grave is not None]

    @property
    def stored_bytes(self) -> int:
        """What counts against the queue's maximum size: dead letters too."""
        size = self.payload_bytes
        for grave in (self.dead_letter, self.transfer_dead_letter):
            if grave is not None:
                size += grave.payload_bytes
        return size

    @property
    def size_bytes_max(self) -> int:
        return self.settings.size_bytes_max

    @property
    def held_rows(self) -> int:
        """How many visible messages are in memory."""
        return len(self._window)

    def check_sendable(self) -> None:
        """Raise `EntityDisabled` unless the queue's status lets clients send."""
        status = self.settings.status
        if status is not QueueStatus.ACTIVE and not status.lets_send:
            raise EntityDisabled(f"'{self.row.path}' has the status {status}: nothing can be sent to it")

    def check_receivable(self) -> None:
        """Raise `EntityDisabled` unless the queue's status lets clients receive."""
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
        if self.destination is not None:
            return self._courier.send(self, arrivals, now_ms, step)
        rows = tuple([self.row_of(arrival, now_ms) for arrival in arrivals if not arrival.is_ping])
        if rows:
            self.insert(rows, step)
            if step.story is not None:
                step.story.rows(Happening.STORED, self.row.path, rows)
        return tuple([row.sequence for row in rows])

    def take_in(self, arrival: Arrival, row: MessageRow, journey: Journey, now_ms: int, step: Step) -> None:
        self.check_acceptable((arrival,))
        taken = self.row_of(arrival, now_ms)
        taken = taken._replace(enqueue_sequence=row.enqueue_sequence, dead_letter_source=row.dead_letter_source)
        self.tell(Happening.STORED, (taken,), step)
        if self.destination is None:
            self.insert((taken,), step)
        else:
            self._courier.pass_on(self, taken, journey, now_ms, step)

    def check_acceptable(self, arrivals: tuple[Arrival, ...]) -> None:
        """Raise a `NamespaceError` if these are not messages for this queue, or if it has no room for them."""
        if self.settings.max_message_kb is not None:
            self.check_sizes(arrivals)
        self.check_quota(sum([len(arrival.payload) for arrival in arrivals]))

    def check_quota(self, new_bytes: int) -> None:
        """Raise `QuotaExceeded` unless there is room for so much more."""
        limit = self.size_bytes_max
        if self.stored_bytes + new_bytes > limit:
            raise QuotaExceeded(
                f"'{self.row.path}' is full: it holds {self.stored_bytes} bytes of at most {limit}, "
                f"and {new_bytes} more were sent; receive messages or raise its maximum size"
            )

    def row_of(self, arrival: Arrival, now_ms: int) -> MessageRow:
        """A message with the next number of this queue."""
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
        """Everything up to this number is durable: show it, and lend it out."""
        while self._afterwards and self._afterwards[0].number <= number:
            afterwards = self._afterwards.popleft()
            for row in afterwards.appearing:
                self._appear(row, afterwards.number, now_ms, step)
            for row in afterwards.returning:
                self.give_back(row, now_ms, step)
            for receiver, size in afterwards.delivered:
                receiver.undelivered -= 1
                self.receivers.returned(receiver, size)
        self.recent.committed(number)
        if self.guard is not None:
            self.guard.forget()
        self.lend(now_ms, step)

    def _appear(self, row: MessageRow, number: int, now_ms: int, step: Step) -> None:
        if row.state is _SCHEDULED:
            self._watch_due(row)
        elif row.state is _ACTIVE and (row.expires_at_ms is None or self._lives(row, row.expires_at_ms, now_ms, step)):
            self._show(row, number)

    def _show(self, row: MessageRow, number: int) -> None:
        """A message is visible from now on."""
        self._window.arrive(row, number)

    def give_back(self, row: MessageRow, now_ms: int, step: Step) -> None:
        if row.expires_at_ms is None or self._lives(row, row.expires_at_ms, now_ms, step):
            self._put_back(row)

    def _put_back(self, row: MessageRow) -> None:
        """A message that was lent is visible again."""
        self._window.give_back(row)

    def _discard(self, row: MessageRow) -> None:
        """A visible message that is not lent is to be forgotten."""
        if self._window.holds(row.sequence):
            self._window.discard(row.sequence)

    def _lives(self, row: MessageRow, expires_at_ms: int, now_ms: int, step: Step) -> bool:
        """Watch a message that becomes visible; one whose time is over ends here, the sweep may have passed it."""
        if expires_at_ms <= now_ms:
            self.expire(row, step)
            return False
        self._expiries.watch(expires_at_ms, row.sequence)
        return True

    # --- out ---

    def lend(self, now_ms: int, step: Step) -> None:
        """Hand visible messages to receivers with credit, oldest first, receivers in turn; or pass them on."""
        if self.destination is not None:
            self._courier.pump(self, now_ms, step)
            return
        receivers, window = self.receivers, self._window
        while receivers.all and self.may_lend and (receiver := receivers.next_hungry()) is not None:
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
    def may_lend(self) -> bool:
        """Whether there is memory left for more loans; if not, receivers wait until some are settled or end."""
        return self.loans.held_bytes < self._context.window_limits.loans_bytes_max

    def take_visible(self, now_ms: int, step: Step) -> MessageRow | None:
        """Take the oldest visible message out of memory; None: there is none."""
        while (row := self._window.take()) is not None:
            if row.expires_at_ms is None or row.expires_at_ms > now_ms:
                return row
            self.expire(row, step)
        return None

    def fetch(self, step: Step) -> None:
        """Ask for messages from disk if there are few in memory."""
        wanted = self._window.wanted_rows()
        if wanted is not None and self.damage is None:
            step.reads.append(wanted)

    def keep(self, row: MessageRow, step: Step) -> None:
        """A message that was set aside cannot be forwarded as was meant: it is here as before."""
        self.loans.take_back(row.sequence)
        self._put_back(row)
        self.look_again(step)

    def look_again(self, step: Step) -> None:
        """Something is left to do here that needs no other reason."""
        self._has_to_look = True
        step.woken.append(self)

    def _deliver(self, receiver: Receiver, row: MessageRow, now_ms: int, step: Step) -> None:
        size = len(row.payload)
        receiver.room_bytes -= size
        if receiver.mode is ReceiveMode.RECEIVE_AND_DELETE:
            self.remove(row, step)
            if step.story is not None:
                step.story.rows(Happening.DELIVERED, self.row.path, (row,), Cause.RECEIVED_AND_DELETED)
            receiver.undelivered += 1
            self._after(step).delivered.append((receiver, size))
            step.replies.append(Delivery(receiver.name, row, None, None))
            return
        token, until_ms = self.lock(row, now_ms, receiver)
        step.news.append(Delivery(receiver.name, row, token, until_ms))

    def close(self, receiver: Receiver, now_ms: int, step: Step) -> None:
        """A receiver is gone. Its locks stay until they are settled or end."""
        self.receivers.remove(receiver.name)

    def dismiss(self, error: NamespaceError, now_ms: int, step: Step) -> None:
        """End every receiver; locks stay."""
        for name in list(self.receivers.all):
            self.receivers.remove(name)
            step.gone.append(name)
            step.replies.append(ReceiverLost(name, error))

    def lock(self, row: MessageRow, now_ms: int, receiver: Receiver | None = None) -> tuple[bytes, int]:
        """Lend a message under a new lock; returns the token and the lock's end."""
        token, until_ms = self._context.new_token(), now_ms + self.settings.lock_ms
        self.loans.lend(row, token, until_ms, receiver)
        return token, until_ms

    def end_loan(self, loan: Loan) -> None:
        """The loan is over: whoever had it may have another."""
        if loan.receiver is not None:
            self.receivers.returned(loan.receiver, len(loan.row.payload))

    def _finish_drains(self, step: Step) -> None:
        """Tell draining receivers that nothing more is coming, unless something is: on its way, or on disk."""
        if not self.receivers.draining:
            return
        for receiver in list(self.receivers.draining.values()):
            if receiver.undelivered == 0 and not self._is_reading_for(receiver):
                self.receivers.drained(receiver)
                step.news.append(Drained(receiver.name))

    def _is_reading_for(self, receiver: Receiver) -> bool:
        return self._window.is_reading

    def lets_wait(self, receiver: Receiver) -> bool:
        """Whether a receiver has credit, and there is nothing for it."""
        return receiver.is_hungry and not self._is_reading_for(receiver)

    # --- settled ---

    def find_loan(self, token: bytes, now_ms: int) -> Loan | None:
        """The loan of a token, if its lock still holds."""
        return self.loans.find(token, now_ms)

    def complete(self, rows: list[MessageRow], step: Step) -> None:
        """Remove messages that a receiver is done with."""
        self._remove_all(rows, step)
        if step.story is not None:
            step.story.rows(Happening.DELIVERED, self.row.path, rows, Cause.COMPLETED)

    def return_later(self, row: MessageRow, step: Step) -> None:
        """Show a message that was lent again, once the step is committed."""
        self._after(step).returning.append(row)

    def renew(self, tokens: tuple[bytes, ...], now_ms: int) -> tuple[int, ...]:
        """Give every lock its full time again, or none of them; returns the new ends."""
        loans = [self.loans.find(token, now_ms) for token in tokens]
        if None in loans:
            raise LockLost(LOCK_LOST)
        until_ms = now_ms + self.settings.lock_ms
        for loan in loans:
            if loan is not None:
                self.loans.renew(loan, until_ms)
        return (until_ms,) * len(loans)

    # --- time passes ---

    def _next_work_ms(self) -> int | None:
        """When time next changes something here; too early is possible and harmless."""
        if self._has_to_look:
            return 0
        if self.damage is not None:
            return self.loans.next_end_ms()
        return earlier(earlier(self.loans.next_end_ms(), self._expiries.next_ms), self._dues.next_ms)

    def tick(self, now_ms: int, step: Step) -> None:
        self._has_to_look = False
        for loan in self.loans.take_ended(now_ms, ENDED_LOCKS_PER_STEP):
            self.end_loan(loan)
            self._end_lock(loan.row, now_ms, step)
        self._sweep(self._expiries, ExpiredRows, now_ms, step)
        self._sweep(self._dues, DueRows, now_ms, step)
        self.lend(now_ms, step)

    def _end_lock(self, row: MessageRow, now_ms: int, step: Step) -> None:
        if row.expires_at_ms is not None and row.expires_at_ms <= now_ms:
            self.expire(row, step)
        else:
            count_failure(self, row, row, step)

    def expire(self, row: MessageRow, step: Step) -> None:
        """End a message whose time to live is over; it is neither lent nor in the window any more."""
        if self.settings.dead_letter_on_expiration and self.dead_letter is not None:
            late = noted(row, TOO_OLD, "The message's time to live was over.")
            bury(self, row, late, Cause.BY_NAMESPACE, TOO_OLD, step)
            return
        self.remove(row, step)
        self.tell(Happening.EXPIRED, (row,), step)

    # --- rows from disk ---

    def rows_read(self, read: RowsRead, now_ms: int, step: Step) -> None:
        """Use rows that this queue asked for by itself."""
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
                self._expiries.end(met[0] if met else None, read.next_time_ms)
                self._expire_from_disk(rows, step)
            case DueRows():
                self._end_due_sweep(read)
                self._wake(rows, now_ms, step)
        self.recent.read_ended(read.request)
        self.lend(now_ms, step)

    def _expire_from_disk(self, rows: list[MessageRow], step: Step) -> None:
        for row in rows:
            if self.loans.is_lent(row.sequence):
                continue
            self._discard(row)
            self.expire(row, step)

    def _wake(self, rows: list[MessageRow], now_ms: int, step: Step) -> None:
        """Scheduled messages whose time has come are enqueued as if they had been sent now."""
        self._remove_all(rows, step)
        if rows and self.destination is not None:
            for row in rows:
                self._courier.pass_on(self, self._awake(row, now_ms), journey_of(row), now_ms, step)
            self.count_sequences(step)
        elif rows:
            self.insert(tuple([self._awake(row, now_ms) for row in rows]), step)

    def _awake(self, row: MessageRow, now_ms: int) -> MessageRow:
        return awake(row, self.take_sequence(), self.settings.default_ttl_ms, now_ms)
