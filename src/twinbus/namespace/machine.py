"""The namespace machine: `apply(command, now) -> step`.

Single-threaded and without I/O: time, chance and the store's reports come in as values, changes to
write, replies and reads go out as values. The same machine runs in the server and in the simulator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

from twinbus.errors import (
    EntityDisabled,
    EntityNotFound,
    InternalError,
    NamespaceError,
    NotAllowed,
    OptionsError,
)
from twinbus.namespace.clockwork import Alarms
from twinbus.namespace.commands import (
    CancelScheduled,
    CloseReceiver,
    Command,
    CreateQueue,
    DeleteQueue,
    FindEntity,
    GetQueue,
    Grant,
    ListQueues,
    OpenReceiver,
    OpenSender,
    PauseReceiver,
    Peek,
    ReceiveDeferred,
    RenewLocks,
    ResumeReceiver,
    Send,
    Settle,
    Tick,
    UpdateQueue,
    origin_of,
)
from twinbus.namespace.entities.queue import Queue, QueueContext
from twinbus.namespace.entities.receivers import Receiver
from twinbus.namespace.entities.window import WindowLimits
from twinbus.namespace.lookups import Lookup, Lookups
from twinbus.namespace.registry import Registry, description
from twinbus.namespace.replies import (
    Done,
    LocksRenewed,
    QueueFound,
    QueuesFound,
    ReceiverLost,
    Refused,
    SenderOpened,
    Settled,
    Step,
)
from twinbus.namespace.store.api import (
    Committed,
    DropEntity,
    PutEntity,
    ReadFailed,
    RowRequest,
    RowsRead,
    StoredNamespace,
)


class NamespaceMachine:
    def __init__(
        self, stored: StoredNamespace, *, new_token: Callable[[], bytes], window_limits: WindowLimits | None = None
    ) -> None:
        context = QueueContext(new_token, window_limits or WindowLimits())
        self.registry = Registry(stored, context)
        self._number = stored.last_number
        self._committed = stored.last_number
        self._receivers: dict[int, tuple[Queue, Receiver]] = {}
        self._lookups = Lookups()
        self._alarms = Alarms()
        self._unconfirmed: deque[tuple[int, tuple[Queue, ...]]] = deque()
        self._touched: dict[int, Queue] = {}
        for queue in stored.entities:
            self._touch(self.registry.by_id(queue.entity_id))
        self._set_alarms()

    def next_wake_ms(self) -> int | None:
        """When to apply the next `Tick`; None: not before something else happens."""
        return self._alarms.next_ms()

    def is_reading(self, request: RowRequest) -> bool:
        """Whether the answer to this read is still awaited; after a rebuild, one from before is not."""
        queue = self.registry.by_id(request.entity_id)
        return self._lookups.is_reading(request) or (queue is not None and queue.recent.is_reading(request))

    def waiting_origins(self) -> list[Any]:
        """Who waits for rows."""
        return self._lookups.origins()

    def apply(self, command: Command | Committed | RowsRead | ReadFailed, now_ms: int) -> Step:
        """Do what is asked. Refusals are replies; nothing a client sends makes this raise."""
        step = Step(self._number + 1)
        handler = self._HANDLERS[type(command)]
        try:
            handler(self, command, now_ms, step)
        except (NamespaceError, OptionsError) as error:
            refusal = error if isinstance(error, NamespaceError) else NotAllowed(str(error))
            step.replies.append(Refused(origin_of(command), refusal))
        self._finish(step)
        return step

    def _finish(self, step: Step) -> None:
        if step.changes:
            self._number = step.number
            self._unconfirmed.append((step.number, tuple(self._touched.values())))
        for request in step.reads:
            queue = self.registry.by_id(request.entity_id)
            if queue is not None:
                queue.recent.read_began((request,))
        self._set_alarms()

    def _touch(self, queue: Queue | None) -> None:
        if queue is None:
            return
        self._touched[queue.entity_id] = queue
        if queue.dead_letter is not None:
            self._touched[queue.dead_letter.entity_id] = queue.dead_letter

    def _set_alarms(self) -> None:
        for queue in self._touched.values():
            self._alarms.set(queue.entity_id, queue.next_wake_ms())
        self._touched.clear()

    def _find(self, path: str) -> Queue:
        queue = self.registry.find(path)
        self._touch(queue)
        return queue

    # --- entities ---

    def _create_queue(self, command: CreateQueue, now_ms: int, step: Step) -> None:
        rows = self.registry.create(command.path, command.settings, self._committed, now_ms)
        step.changes.extend(PutEntity(row) for row in rows)
        step.replies.append(Done(command.origin))

    def _delete_queue(self, command: DeleteQueue, now_ms: int, step: Step) -> None:
        for gone in self.registry.find_queue(command.path):
            self.registry.remove(gone)
            step.changes.append(DropEntity(gone.entity_id))
            self._dismiss(gone, EntityNotFound(f"The messaging entity '{gone.row.path}' was deleted."), step)
        step.replies.append(Done(command.origin))

    def _update_queue(self, command: UpdateQueue, now_ms: int, step: Step) -> None:
        for queue in self.registry.update(command.path, command.settings, now_ms):
            step.changes.append(PutEntity(queue.row))
            try:
                queue.check_receivable()
            except EntityDisabled as error:
                self._dismiss(queue, error, step)
        step.replies.append(Done(command.origin))

    def _dismiss(self, queue: Queue, error: NamespaceError, step: Step) -> None:
        """End every receiver of a queue; its locks stay."""
        for name in list(queue.receivers.all):
            queue.receivers.remove(name)
            del self._receivers[name]
            step.replies.append(ReceiverLost(name, error))

    def _get_queue(self, command: GetQueue, now_ms: int, step: Step) -> None:
        queue, _ = self.registry.find_queue(command.path)
        step.replies.append(QueueFound(command.origin, description(queue)))

    def _list_queues(self, command: ListQueues, now_ms: int, step: Step) -> None:
        queues, has_more = self.registry.page(command.skip, command.top)
        step.replies.append(QueuesFound(command.origin, tuple(map(description, queues)), has_more))

    def _find_entity(self, command: FindEntity, now_ms: int, step: Step) -> None:
        self._find(command.path)
        step.replies.append(Done(command.origin))

    # --- messages in ---

    def _send(self, command: Send, now_ms: int, step: Step) -> None:
        queue = self._find_sendable(command.path)
        queue.accessed_at_ms = now_ms
        step.replies.append(Done(command.origin, queue.send(command.arrivals, now_ms, step)))

    def _open_sender(self, command: OpenSender, now_ms: int, step: Step) -> None:
        queue = self._find_sendable(command.path)
        step.replies.append(SenderOpened(command.origin, queue.settings.message_bytes_max))

    def _find_sendable(self, path: str) -> Queue:
        queue = self._find(path)
        if queue.dead_letter is None:
            raise NotAllowed(f"'{path}' is a dead-letter queue: it cannot be sent to")
        queue.check_sendable()
        return queue

    # --- receivers ---

    def _open_receiver(self, command: OpenReceiver, now_ms: int, step: Step) -> None:
        queue = self._find(command.path)
        queue.check_receivable()
        queue.check_intact()
        queue.accessed_at_ms = now_ms
        receiver = Receiver(command.receiver, command.mode)
        queue.receivers.add(receiver)
        self._receivers[command.receiver] = (queue, receiver)
        step.replies.append(Done(command.origin))

    def _grant(self, command: Grant, now_ms: int, step: Step) -> None:
        if command.receiver in self._receivers:
            queue, receiver = self._receivers[command.receiver]
            self._touch(queue)
            queue.accessed_at_ms = now_ms
            queue.receivers.grant(receiver, command.credit_limit, drain=command.drain)
            queue.lend(now_ms, step)

    def _pause(self, command: PauseReceiver, now_ms: int, step: Step) -> None:
        if command.receiver in self._receivers:
            self._receivers[command.receiver][1].paused = True

    def _resume(self, command: ResumeReceiver, now_ms: int, step: Step) -> None:
        if command.receiver in self._receivers:
            queue, receiver = self._receivers[command.receiver]
            receiver.paused = False
            self._touch(queue)
            queue.receivers.queue_up(receiver)
            queue.lend(now_ms, step)

    def _close_receiver(self, command: CloseReceiver, now_ms: int, step: Step) -> None:
        if command.receiver in self._receivers:
            queue, receiver = self._receivers.pop(command.receiver)
            queue.receivers.remove(receiver.name)

    # --- loans ---

    def _settle(self, command: Settle, now_ms: int, step: Step) -> None:
        queue = self._find(command.path)
        failures = queue.settle(command.tokens, command.verdict, now_ms, step)
        step.replies.append(Settled(command.origin, failures))
        queue.lend(now_ms, step)

    def _renew(self, command: RenewLocks, now_ms: int, step: Step) -> None:
        until_ms = self._find(command.path).renew(command.tokens, now_ms)
        step.replies.append(LocksRenewed(command.origin, until_ms))

    # --- commands that need rows from disk ---

    def _look_up(self, command: Lookup, now_ms: int, step: Step) -> None:
        self._lookups.begin(command, self._find(command.path), now_ms, step)

    def _rows_read(self, read: RowsRead, now_ms: int, step: Step) -> None:
        queue = self.registry.by_id(read.request.entity_id)
        self._touch(queue)
        if self._lookups.is_reading(read.request):
            self._lookups.resume(queue, read, self._committed, now_ms, step)
        elif queue is not None and queue.recent.is_reading(read.request):
            queue.rows_read(read, now_ms, step)

    def _read_failed(self, failed: ReadFailed, now_ms: int, step: Step) -> None:
        """What is stored of an entity is damaged: nobody reads it any more. It can be sent to, and all else goes on."""
        entity_id = failed.request.entity_id
        queue = self.registry.by_id(entity_id)
        if queue is None:
            self._lookups.refuse(entity_id, EntityNotFound("The messaging entity was deleted."), step)
            return
        self._touch(queue)
        queue.recent.read_ended(failed.request)
        queue.damage = queue.damage or failed.reason
        try:
            queue.check_intact()
        except InternalError as error:
            self._dismiss(queue, error, step)
            self._lookups.refuse(entity_id, error, step)

    # --- time and the store ---

    def _tick(self, command: Tick, now_ms: int, step: Step) -> None:
        for entity_id in self._alarms.take_due(now_ms):
            queue = self.registry.by_id(entity_id)
            if queue is not None:
                self._touch(queue)
                queue.tick(now_ms, step)

    def _commit(self, command: Committed, now_ms: int, step: Step) -> None:
        self._committed = command.number
        queues: dict[int, Queue] = {}
        while self._unconfirmed and self._unconfirmed[0][0] <= command.number:
            queues.update({queue.entity_id: queue for queue in self._unconfirmed.popleft()[1]})
        for queue in queues.values():
            if self.registry.by_id(queue.entity_id) is queue:
                self._touch(queue)
                queue.committed(command.number, now_ms, step)
        for lookup in self._lookups.take_committed(command.number):
            try:
                self._look_up(lookup, now_ms, step)
            except NamespaceError as error:  # its queue was deleted meanwhile
                step.replies.append(Refused(lookup.origin, error))

    _HANDLERS: ClassVar[dict[type, Callable[..., None]]] = {
        CreateQueue: _create_queue,
        UpdateQueue: _update_queue,
        DeleteQueue: _delete_queue,
        FindEntity: _find_entity,
        GetQueue: _get_queue,
        ListQueues: _list_queues,
        OpenSender: _open_sender,
        Send: _send,
        OpenReceiver: _open_receiver,
        Grant: _grant,
        PauseReceiver: _pause,
        ResumeReceiver: _resume,
        CloseReceiver: _close_receiver,
        Settle: _settle,
        RenewLocks: _renew,
        Peek: _look_up,
        ReceiveDeferred: _look_up,
        CancelScheduled: _look_up,
        Tick: _tick,
        Committed: _commit,
        RowsRead: _rows_read,
        ReadFailed: _read_failed,
    }
