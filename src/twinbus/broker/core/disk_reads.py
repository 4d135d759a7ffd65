"""Commands that need rows from disk (peek, receive deferred, cancel): asked for first, done when they are here."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import assert_never

from twinbus.broker.core.commands import (
    CancelScheduled,
    GetSessionState,
    ListSessions,
    PeekMessages,
    ReceiveDeferred,
)
from twinbus.broker.core.message_events import Cause, MessageEventKind
from twinbus.broker.core.registry import as_queue, as_session_queue
from twinbus.broker.core.replies import FoundRow, MessagesFound, SessionsFound, SessionStateFound, Step
from twinbus.broker.entities.entity import EntityContext, MessagingEntity
from twinbus.broker.entities.queue import Queue
from twinbus.broker.entities.session_queue import SessionQueue
from twinbus.broker.operations import Done, ReceiveMode, Refused
from twinbus.broker.store.api import (
    IdsRead,
    KnownSessions,
    MessageRow,
    MessageState,
    NamedRows,
    RangeRows,
    Read,
    ReadRequest,
    RowsRead,
    SessionsRead,
    SessionStateOf,
    StateRead,
)
from twinbus.errors import ArgumentError, EntityNotFound, MessageNotFound, NamespaceError, ServerBusy

PEEK_COUNT_MAX = 250
SESSIONS_MAX = 100
PEEK_BYTES_MAX = 1024 * 1024
DEFERRED_BYTES_MAX = 16 * 1024 * 1024
WAITING_READS_MAX = 1_000

Lookup = PeekMessages | ReceiveDeferred | CancelScheduled | GetSessionState | ListSessions


class Lookups:
    def __init__(self, context: EntityContext) -> None:
        self._context = context
        self._waiting: dict[ReadRequest, deque[tuple[Lookup, int]]] = {}
        """Commands and their request ids, by what they wait for."""
        self._count = 0
        self._for_commit: list[tuple[int, ReceiveDeferred | GetSessionState, int]] = []
        """Those whose rows or states are being changed, with the change set they wait for."""

    def is_reading(self, request: ReadRequest) -> bool:
        return request in self._waiting

    # --- asking ---

    def begin(self, command: Lookup, request_id: int, entity: MessagingEntity, now_ms: int, step: Step) -> None:
        """Ask for the rows that a command needs; raises if it cannot be done at all."""
        entity.check_intact()
        entity.touch(now_ms)
        request: ReadRequest
        match command:
            case CancelScheduled():
                request = NamedRows(entity.entity_id, command.sequences)
            case ReceiveDeferred():
                as_queue(entity).check_receivable()
                request = NamedRows(entity.entity_id, command.sequences)
            case PeekMessages():
                queue, count = as_queue(entity), min(command.most, PEEK_COUNT_MAX)
                if count < 1:
                    step.reply_to(request_id, MessagesFound(()))
                    return
                request = RangeRows(queue.entity_id, command.from_sequence, count, PEEK_BYTES_MAX, command.session_id)
            case ListSessions():
                queue, most = as_session_queue(entity), min(command.top, SESSIONS_MAX)
                request = KnownSessions(queue.entity_id, command.updated_after_ms, command.skip, most)
            case GetSessionState(_, name, holder):
                queue = as_session_queue(entity)
                queue.check_locked(name, now_ms, holder)
                if name in queue.unwritten_states:  # what is reported must be durable
                    self._count_one()
                    self._for_commit.append((queue.unwritten_states[name], command, request_id))
                    return
                request = SessionStateOf(queue.entity_id, name, queue.recent.known)
            case _:
                assert_never(command)
        self._count_one()
        self._waiting.setdefault(request, deque()).append((command, request_id))
        step.reads.append(request)

    def _count_one(self) -> None:
        if self._count >= WAITING_READS_MAX:
            raise ServerBusy(f"{WAITING_READS_MAX} reads are waiting already; try again later")
        self._count += 1

    # --- rows are here ---

    def resume(self, entity: MessagingEntity | None, read: Read, now_ms: int, step: Step) -> None:
        """Do the command that asked for these rows first; only if one did (`is_reading`)."""
        waiting = self._waiting[read.request]
        command, request_id = waiting.popleft()
        self._count -= 1
        if not waiting:
            del self._waiting[read.request]
        try:
            if entity is None:
                raise EntityNotFound(f"The messaging entity '{command.path}' could not be found.")
            if isinstance(read, RowsRead):
                self._carry_out(command, request_id, entity, read, now_ms, step)
            elif not isinstance(read, IdsRead):
                entity.recent.read_ended(read.request)
                step.reply_to(request_id, _reply_to(command, read))
        except NamespaceError as error:
            step.reply_to(request_id, Refused(error))

    def _carry_out(
        self, command: Lookup, request_id: int, entity: MessagingEntity, read: RowsRead, now_ms: int, step: Step
    ) -> None:
        recent = entity.recent
        rows = [row for row in read.rows if not recent.removed_since(row.sequence, read.as_of)]
        changed = max((recent.changed_at(row.sequence) for row in rows), default=0)
        recent.read_ended(read.request)
        if isinstance(command, PeekMessages):
            visible = [row for row in rows if row.expires_at_ms is None or row.expires_at_ms > now_ms]
            if visible or read.complete:
                step.reply_to(request_id, MessagesFound(tuple(FoundRow(row, None, None) for row in visible)))
            else:  # everything that was read is gone by now; an empty reply would mean that there is nothing
                onward = replace(command, from_sequence=read.rows[-1].sequence + 1)
                self.begin(onward, request_id, entity, now_ms, step)
        elif isinstance(command, CancelScheduled):
            _cancel(command, request_id, entity, rows, step)
        elif not isinstance(command, ReceiveDeferred):
            raise AssertionError(f"{command!r:.100} needs no rows")
        elif changed <= read.as_of:
            _lend_deferred(command, request_id, as_queue(entity), rows, now_ms, step)
        elif changed <= self._context.committed:
            self.begin(command, request_id, entity, now_ms, step)  # read before a change to them: look again
        else:
            self._count += 1
            self._for_commit.append((changed, command, request_id))

    # --- what else may happen ---

    def take_committed(self, number: int) -> list[tuple[ReceiveDeferred | GetSessionState, int]]:
        """Commands whose rows or states are on disk by now, with their request ids; they have to begin again."""
        if not self._for_commit:
            return []
        ready = [(command, request_id) for wanted, command, request_id in self._for_commit if wanted <= number]
        self._for_commit = [each for each in self._for_commit if each[0] > number]
        self._count -= len(ready)
        return ready

    def refuse(self, entity_id: int, error: NamespaceError, step: Step) -> None:
        """Refuse all commands that wait for rows of an entity."""
        for request in [request for request in self._waiting if request.entity_id == entity_id]:
            commands = self._waiting.pop(request)
            self._count -= len(commands)
            for _, request_id in commands:
                step.reply_to(request_id, Refused(error))


def _reply_to(command: Lookup, read: SessionsRead | StateRead) -> SessionStateFound | SessionsFound:
    if isinstance(read, StateRead):
        return SessionStateFound(read.state)
    skip = command.skip if isinstance(command, ListSessions) else 0
    return SessionsFound(read.names, skip + len(read.names))


def _lend_deferred(
    command: ReceiveDeferred, request_id: int, queue: Queue, rows: list[MessageRow], now_ms: int, step: Step
) -> None:
    if isinstance(queue, SessionQueue):
        queue.check_locked(command.session_id, now_ms, command.holder)
        rows = [row for row in rows if row.session_id == command.session_id]
    free = [row for row in rows if row.state is MessageState.DEFERRED and not queue.locks.is_locked(row.sequence)]
    _check_all_found(command.sequences, free, "deferred, or are locked by another receiver")
    if sum([len(row.payload) for row in free]) > DEFERRED_BYTES_MAX:
        raise ArgumentError(f"these messages have more than {DEFERRED_BYTES_MAX} bytes: ask for fewer at a time")
    if command.mode is ReceiveMode.PEEK_LOCK and not queue.may_deliver:
        text = f"receivers of '{queue.row.path}' hold {queue.locks.held_bytes} bytes under lock"
        raise ServerBusy(f"{text}: settle some of it, then try again")
    found: list[FoundRow] = []
    for row in free:
        if command.mode is ReceiveMode.RECEIVE_AND_DELETE:
            queue.remove(row, step)
            queue.record(MessageEventKind.DELIVERED, (row,), step, Cause.RECEIVED_AND_DELETED)
            found.append(FoundRow(row, None, None))
        else:
            found.append(FoundRow(row, *queue.lock(row, now_ms)))
    step.reply_to(request_id, MessagesFound(tuple(found)))


def _cancel(
    command: CancelScheduled, request_id: int, entity: MessagingEntity, rows: list[MessageRow], step: Step
) -> None:
    cancel(entity, scheduled_rows(command.sequences, rows), step)
    step.reply_to(request_id, Done())


def scheduled_rows(sequences: tuple[int, ...], rows: list[MessageRow]) -> list[MessageRow]:
    """The scheduled messages with these sequences; raises `MessageNotFound` if one of them is not there."""
    # In a topic a large send waits for its turn in the same state, though it was not scheduled: due at once.
    scheduled = [row for row in rows if row.state is MessageState.SCHEDULED and row.due_at_ms]
    _check_all_found(sequences, scheduled, "scheduled")
    return scheduled


def cancel(entity: MessagingEntity, scheduled: list[MessageRow], step: Step) -> None:
    """Remove scheduled messages before their time."""
    for row in scheduled:
        entity.remove(row, step)
    entity.record(MessageEventKind.UNSCHEDULED, scheduled, step)


def _check_all_found(asked: tuple[int, ...], found: list[MessageRow], state: str) -> None:
    missing = sorted(set(asked) - {row.sequence for row in found})
    if missing:
        numbers = ", ".join(map(str, missing))
        raise MessageNotFound(f"no such message; these sequence numbers are not {state}: {numbers}")
