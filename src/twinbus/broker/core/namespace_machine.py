"""The namespace machine: `apply(command, now) -> step`.

Single-threaded and without I/O: time, chance and the store's reports come in as values, changes to
write, replies and reads go out as values. The same machine runs in the server and in the simulator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import ClassVar, TypeVar

from twinbus.broker.core.administration import Administration
from twinbus.broker.core.commands import (
    AcceptSession,
    AdminCommand,
    BeginTransaction,
    CancelScheduled,
    CloseReceiver,
    Command,
    EndTransaction,
    Enlist,
    FindEntity,
    GetSessionState,
    Grant,
    ListSessions,
    OpenReceiver,
    OpenSender,
    PauseReceiver,
    PeekMessages,
    ReceiveDeferred,
    RenewMessageLocks,
    RenewSessionLock,
    ResumeReceiver,
    SendMessages,
    SetSessionState,
    SettleMessages,
    Tick,
)
from twinbus.broker.core.disk_reads import Lookup, Lookups
from twinbus.broker.core.message_events import MessageEventKind, MessageEvents
from twinbus.broker.core.registry import Registry, as_queue, as_session_queue, check_sendable
from twinbus.broker.core.replies import NOBODY, WORK_PER_STEP, LocksRenewed, Step
from twinbus.broker.core.transactions import Transactions
from twinbus.broker.entities.entity import CopyDelays, MessagingEntity, earlier
from twinbus.broker.entities.forwarding import HOP_WORK
from twinbus.broker.entities.loaded_head import WindowLimits
from twinbus.broker.entities.queue import Queue
from twinbus.broker.entities.receivers import Receiver
from twinbus.broker.entities.session_queue import SessionQueue
from twinbus.broker.entities.settlement import settle
from twinbus.broker.entities.timers import DueTimes
from twinbus.broker.entities.topics.topic import Topic
from twinbus.broker.operations import Done, Refused, SenderOpened, Settled
from twinbus.broker.store.api import (
    Committed,
    IdsRead,
    PutEntity,
    Read,
    ReadFailed,
    ReadRequest,
    RowsRead,
    SessionsRead,
    StateGrowth,
    StateRead,
    StoredNamespace,
)
from twinbus.errors import EntityNotFound, InternalError, NamespaceError, NotAllowed, OptionsError

Kind = TypeVar("Kind", bound=MessagingEntity)


class NamespaceMachine:
    def __init__(
        self,
        stored: StoredNamespace,
        *,
        new_token: Callable[[], bytes],
        window_limits: WindowLimits | None = None,
        records_events: bool = False,
        copy_delays: Callable[[int], CopyDelays | None] = lambda _now_ms: None,
        work_per_step: int = WORK_PER_STEP,
        message_bytes_max: int | None = None,
    ) -> None:
        """`records_events`: steps have what happens to messages. `copy_delays`: which copies are late at a time.

        `work_per_step`: a step that has done this much leaves what can wait to later steps. `message_bytes_max`: how
        large receivers may make a message with properties; senders are checked before.
        """
        self._records_events = records_events
        self._work_per_step = work_per_step
        self.registry = Registry(stored, new_token, window_limits or WindowLimits(), copy_delays, message_bytes_max)
        self._number = stored.last_number
        self._administration = Administration(self.registry)
        self._receivers: dict[int, tuple[Queue, Receiver]] = {}
        self._lookups = Lookups(self.registry.context)
        self.transactions = Transactions(self.registry)
        self._timers: DueTimes[int] = DueTimes()
        self._unconfirmed: deque[tuple[int, tuple[MessagingEntity, ...]]] = deque()
        self._touched: dict[int, MessagingEntity] = {}
        for entity in self.registry.all():
            self._touch(entity)
        self._set_timers()

    def messages_per_step(self, path: str) -> int | None:
        """How many messages for an entity fit well into one step; None: any number."""
        work, entity = 0.0, self.registry.get(path)
        if isinstance(entity, Queue) and entity.destination is not None:
            work, entity = HOP_WORK, self.registry.get(entity.destination)
        if isinstance(entity, Topic):
            work += entity.work_of_one
        return max(1, int(self._work_per_step / 2 / work)) if work else None

    def next_wake_ms(self) -> int | None:
        """When to apply the next `Tick`; None: not before something else happens."""
        return earlier(self._timers.next_ms(), self.transactions.next_wake_ms())

    def hold_copies(self, is_paused: bool) -> None:
        """Pause or resume the distribution of messages that are stored in topics: copies need disk space."""
        for topic in self.registry.topics():
            self._touch(topic).is_paused = is_paused
        self._set_timers()

    def is_reading(self, request: ReadRequest) -> bool:
        """Whether the answer to this read is still awaited; after a rebuild, one from before is not."""
        entity = self.registry.by_id(request.entity_id)
        is_asked_for = self._lookups.is_reading(request) or self.transactions.is_reading(request)
        return is_asked_for or (entity is not None and entity.recent.is_reading(request))

    def apply(
        self, command: Command[object] | Committed | Read | ReadFailed, now_ms: int, request_id: int = NOBODY
    ) -> Step:
        """Do what is asked. Refusals are replies; nothing a client sends makes this raise."""
        step = Step(
            self._number + 1, request_id, MessageEvents() if self._records_events else None, self._work_per_step
        )
        handler = self._HANDLERS[type(command)]
        try:
            handler(self, command, now_ms, step)
        except (NamespaceError, OptionsError) as error:
            refusal = error if isinstance(error, NamespaceError) else NotAllowed(str(error))
            step.reply(Refused(refusal))
        self._finish(step)
        return step

    def _finish(self, step: Step) -> None:
        if step.changes:
            self._number = step.number
            self._unconfirmed.append((step.number, tuple(step.touched.values())))
        for entity in step.woken:
            self._touch(entity)
        for name in step.gone:
            self._receivers.pop(name, None)
        for request in step.reads:
            reading = self.registry.by_id(request.entity_id)
            if reading is not None:
                reading.recent.read_began(request)
        self._set_timers()

    def _touch(self, entity: Kind) -> Kind:
        """Look at its timer when the step is over."""
        self._touched[entity.entity_id] = entity
        return entity

    def _set_timers(self) -> None:
        for entity_id, entity in self._touched.items():
            self._timers.set_earlier(entity_id, entity.next_wake_ms())
        self._touched.clear()

    def _find(self, path: str, step: Step) -> MessagingEntity:
        return self._touch(self.registry.find_or_make(path, step))

    def _find_queue(self, path: str, step: Step) -> Queue:
        return as_queue(self._find(path, step))

    # --- entities ---

    def _administer(self, command: AdminCommand, now_ms: int, step: Step) -> None:
        self._administration.handle(command, now_ms, step)
        for change in step.changes:
            entity = self.registry.by_id(change.row.entity_id) if isinstance(change, PutEntity) else None
            if entity is not None:
                self._touch(entity).touch(now_ms)

    def _find_entity(self, command: FindEntity, now_ms: int, step: Step) -> None:
        self._find(command.path, step)
        step.reply(Done())

    # --- messages in ---

    def _send(self, command: SendMessages, now_ms: int, step: Step) -> None:
        entity = self._find_sendable(command.path, step)
        entity.touch(now_ms)
        entity.handle_send(command, now_ms, step)

    def _open_sender(self, command: OpenSender, now_ms: int, step: Step) -> None:
        entity = self._find_sendable(command.path, step)
        step.reply(SenderOpened(entity.settings.message_bytes_max))

    def _find_sendable(self, path: str, step: Step) -> Queue | Topic:
        entity = self._find(path, step)
        check_sendable(entity, path)
        assert isinstance(entity, Queue | Topic)
        return entity

    # --- receivers ---

    def _open_receiver(self, command: OpenReceiver, now_ms: int, step: Step) -> None:
        queue = self._find_receivable(command.path, now_ms, step)
        if isinstance(queue, SessionQueue):
            raise NotAllowed(f"'{command.path}' has sessions: receive from one of them")
        receiver = Receiver(command.receiver, command.mode)
        queue.receivers.add(receiver)
        self._receivers[command.receiver] = (queue, receiver)
        step.reply(Done())

    def _find_receivable(self, path: str, now_ms: int, step: Step) -> Queue:
        queue = self._find_queue(path, step)
        queue.check_receivable()
        queue.check_intact()
        queue.touch(now_ms)
        return queue

    def _accept_session(self, command: AcceptSession, now_ms: int, step: Step) -> None:
        queue = self._find_receivable(command.path, now_ms, step)
        if not isinstance(queue, SessionQueue):
            raise NotAllowed(f"'{command.path}' has no sessions: receive from it without a session")
        receiver = Receiver(command.receiver, command.mode)
        self._receivers[command.receiver] = (queue, receiver)
        try:
            queue.accept(receiver, command, now_ms, step)
        except NamespaceError:
            del self._receivers[command.receiver]
            raise

    def _grant(self, command: Grant, now_ms: int, step: Step) -> None:
        if command.receiver in self._receivers:
            queue, receiver = self._receivers[command.receiver]
            self._touch(queue)
            queue.touch(now_ms)
            queue.receivers.grant(receiver, command.credit_limit, drain=command.drain)
            had = receiver.assigned
            queue.deliver(now_ms, step)
            if step.events is not None and receiver.assigned == had and queue.is_waiting(receiver):
                step.events.unnamed(MessageEventKind.LONG_POLL, queue.row.path, 1)

    def _pause(self, command: PauseReceiver, now_ms: int, step: Step) -> None:
        if command.receiver in self._receivers:
            self._receivers[command.receiver][1].paused = True

    def _resume(self, command: ResumeReceiver, now_ms: int, step: Step) -> None:
        if command.receiver in self._receivers:
            queue, receiver = self._receivers[command.receiver]
            receiver.paused = False
            self._touch(queue)
            queue.receivers.queue_up(receiver)
            queue.deliver(now_ms, step)

    def _close_receiver(self, command: CloseReceiver, now_ms: int, step: Step) -> None:
        if command.receiver in self._receivers:
            queue, receiver = self._receivers.pop(command.receiver)
            queue.touch(now_ms)  # it was in use until now, not only until the receiver came
            self._touch(queue).close(receiver, now_ms, step)

    # --- loans ---

    def _settle(self, command: SettleMessages, now_ms: int, step: Step) -> None:
        queue = self._find_queue(command.path, step)
        queue.touch(now_ms)
        if command.session_id is not None and isinstance(queue, SessionQueue):
            queue.check_locked(command.session_id, now_ms)
        failures = settle(queue, command.tokens, command.outcome, now_ms, step)
        step.reply(Settled(failures))
        queue.deliver(now_ms, step)

    def _renew(self, command: RenewMessageLocks, now_ms: int, step: Step) -> None:
        queue = self._find_queue(command.path, step)
        queue.touch(now_ms)
        until_ms = queue.renew(command.tokens, now_ms)
        step.reply(LocksRenewed(until_ms))

    # --- sessions ---

    def _renew_session(self, command: RenewSessionLock, now_ms: int, step: Step) -> None:
        queue = as_session_queue(self._find(command.path, step))
        queue.touch(now_ms)
        until_ms = queue.renew_session(command.session_id, now_ms, command.holder)
        step.reply(LocksRenewed((until_ms,)))

    def _set_state(self, command: SetSessionState, now_ms: int, step: Step) -> None:
        queue = as_session_queue(self._find(command.path, step))
        queue.touch(now_ms)
        queue.set_state(command.session_id, command.state, now_ms, step, holder=command.holder)
        step.reply(Done())

    def states_written(self, number: int, states: Iterable[StateGrowth]) -> None:
        """Count what the store says about states of sessions, after everything up to this change set is stored."""
        for entity_id, count, size_bytes in states:
            queue = self.registry.by_id(entity_id)
            if isinstance(queue, SessionQueue):
                queue.states.written(number, count, size_bytes)

    # --- commands that need rows from disk ---

    def _look_up(self, command: Lookup, now_ms: int, step: Step) -> None:
        self._lookups.begin(command, step.request_id, self._find(command.path, step), now_ms, step)

    def _read(self, read: Read, now_ms: int, step: Step) -> None:
        entity = self.registry.by_id(read.request.entity_id)
        if entity is not None:
            self._touch(entity)
        if self._lookups.is_reading(read.request):
            self._lookups.resume(entity, read, now_ms, step)
        elif self.transactions.is_reading(read.request):
            self.transactions.resume(read, now_ms, step)
        elif entity is not None and entity.recent.is_reading(read.request):
            if isinstance(read, RowsRead):
                entity.rows_read(read, now_ms, step)
            elif isinstance(read, IdsRead):
                entity.ids_read(read, now_ms, step)
            elif isinstance(read, SessionsRead) and isinstance(entity, SessionQueue):
                entity.sessions_read(read, now_ms, step)

    def _read_failed(self, failed: ReadFailed, now_ms: int, step: Step) -> None:
        """The stored messages of an entity are damaged: they are not read any more; all else continues."""
        entity_id = failed.request.entity_id
        entity = self.registry.by_id(entity_id)
        if entity is None:
            gone = EntityNotFound("The messaging entity was deleted.")
            self._lookups.refuse(entity_id, gone, step)
            if self.transactions.is_reading(failed.request):
                self.transactions.refuse(failed.request, gone, step)
            return
        self._touch(entity)
        entity.recent.read_ended(failed.request)
        entity.damage = entity.damage or failed.reason
        try:
            entity.check_intact()
        except InternalError as error:
            if isinstance(entity, Queue):
                entity.close_receivers(error, now_ms, step)
            if entity.duplicates is not None:
                entity.duplicates.refuse(error, step)
            self._lookups.refuse(entity_id, error, step)
            if self.transactions.is_reading(failed.request):
                self.transactions.refuse(failed.request, error, step)

    # --- transactions ---

    def _begin_transaction(self, command: BeginTransaction, now_ms: int, step: Step) -> None:
        self.transactions.begin(command.transaction, step)

    def _enlist(self, command: Enlist[object], now_ms: int, step: Step) -> None:
        self.transactions.enlist(command, now_ms, step)

    def _end_transaction(self, command: EndTransaction, now_ms: int, step: Step) -> None:
        self.transactions.end(command.transaction, now_ms, step, commits=command.commits)

    # --- time and the store ---

    def _tick(self, command: Tick, now_ms: int, step: Step) -> None:
        self.transactions.take_ended(now_ms, step)
        for entity_id in self._timers.take_due(now_ms):
            entity = self.registry.by_id(entity_id)
            if entity is not None:
                self._touch(entity).tick(now_ms, step)
                if entity.has_idled_out(now_ms):
                    self._administration.remove(entity, now_ms, step)
            step.work += 1
            if step.is_long:
                break  # the timers of the others are still set

    def _commit(self, command: Committed, now_ms: int, step: Step) -> None:
        self.registry.context.committed = command.number
        written: dict[int, MessagingEntity] = {}
        while self._unconfirmed and self._unconfirmed[0][0] <= command.number:
            for entity in self._unconfirmed.popleft()[1]:
                written[entity.entity_id] = entity
        for entity_id, entity in written.items():
            if self.registry.by_id(entity_id) is entity:
                self._touched[entity_id] = entity  # what is new is watched from now on, not before
                entity.committed(command.number, now_ms, step)
        for lookup, request_id in self._lookups.take_committed(command.number):
            try:
                self._lookups.begin(lookup, request_id, self._find(lookup.path, step), now_ms, step)
            except NamespaceError as error:  # its queue was deleted meanwhile
                step.reply_to(request_id, Refused(error))

    _HANDLERS: ClassVar[dict[type, Callable[..., None]]] = {
        **dict.fromkeys(Administration.COMMANDS, _administer),
        FindEntity: _find_entity,
        OpenSender: _open_sender,
        SendMessages: _send,
        OpenReceiver: _open_receiver,
        Grant: _grant,
        PauseReceiver: _pause,
        ResumeReceiver: _resume,
        CloseReceiver: _close_receiver,
        SettleMessages: _settle,
        RenewMessageLocks: _renew,
        PeekMessages: _look_up,
        ReceiveDeferred: _look_up,
        CancelScheduled: _look_up,
        GetSessionState: _look_up,
        ListSessions: _look_up,
        AcceptSession: _accept_session,
        RenewSessionLock: _renew_session,
        SetSessionState: _set_state,
        BeginTransaction: _begin_transaction,
        Enlist: _enlist,
        EndTransaction: _end_transaction,
        Tick: _tick,
        Committed: _commit,
        RowsRead: _read,
        SessionsRead: _read,
        IdsRead: _read,
        StateRead: _read,
        ReadFailed: _read_failed,
    }
