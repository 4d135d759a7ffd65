"""Commands that need rows from disk (peek, receive deferred, cancel): asked for first, done when they are here."""

from __future__ import annotations

from collections import deque
from typing import Any

from twinbus.errors import ArgumentError, EntityNotFound, MessageNotFound, NamespaceError, NotAllowed, ServerBusy
from twinbus.namespace.commands import (
    CancelScheduled,
    GetSessionState,
    ListSessions,
    Peek,
    ReceiveDeferred,
    ReceiveMode,
)
from twinbus.namespace.entities.queue import Queue
from twinbus.namespace.entities.session_queue import SessionQueue
from twinbus.namespace.entities.shelf import Shelf
from twinbus.namespace.happenings import Cause, Happening
from twinbus.namespace.replies import Done, LentRow, MessagesFound, Refused, SessionsFound, SessionStateFound, Step
from twinbus.namespace.store.api import (
    IdsRead,
    KnownSessions,
    MessageRow,
    MessageState,
    NamedRows,
    RangeRows,
    Read,
    ReadRequest,
    RowsRead,
    SessionRange,
    SessionsRead,
    SessionStateOf,
    StateRead,
)

PEEK_COUNT_MAX = 250
SESSIONS_MAX = 100
PEEK_BYTES_MAX = 1024 * 1024
DEFERRED_BYTES_MAX = 16 * 1024 * 1024
WAITING_READS_MAX = 1_000

Lookup = Peek | ReceiveDeferred | CancelScheduled | GetSessionState | ListSessions


class Lookups:
    def __init__(self) -> None:
        self._waiting: dict[ReadRequest, deque[Lookup]] = {}
        self._count = 0
        self._for_commit: list[tuple[int, ReceiveDeferred | GetSessionState]] = []
        """Those whose rows or states are being changed, with the change set they wait for."""

    def is_reading(self, request: ReadRequest) -> bool:
        return request in self._waiting

    def origins(self) -> list[Any]:
        """Who waits."""
        waiting = [command.origin for commands in self._waiting.values() for command in commands]
        return waiting + [command.origin for _, command in self._for_commit]

    # --- asking ---

    def begin(self, command: Lookup, entity: Shelf, now_ms: int, step: Step) -> None:
        """Ask for the rows that a command needs; raises if it cannot be done at all."""
        entity.check_intact()
        entity.used(now_ms)
        if isinstance(command, CancelScheduled):
            self._wait_for(NamedRows(entity.entity_id, command.sequences), command, step)
            return
        queue = _as_queue(entity)
        if isinstance(command, GetSessionState | ListSessions):
            self._begin_sessions(command, queue, now_ms, step)
            return
        if isinstance(command, Peek):
            self._begin_peek(command, queue, step)
            return
        queue.check_receivable()
        self._wait_for(NamedRows(queue.entity_id, command.sequences), command, step)

    def _begin_peek(self, command: Peek, queue: Queue, step: Step) -> None:
        count = min(command.most, PEEK_COUNT_MAX)
        if count < 1:
            step.replies.append(MessagesFound(command.origin, ()))
            return
        bounds = (command.from_sequence, count, PEEK_BYTES_MAX)
        if command.session_id is None:
            self._wait_for(RangeRows(queue.entity_id, *bounds), command, step)
        else:
            self._wait_for(SessionRange(queue.entity_id, command.session_id, *bounds), command, step)

    def _begin_sessions(self, command: GetSessionState | ListSessions, queue: Queue, now_ms: int, step: Step) -> None:
        if not isinstance(queue, SessionQueue):
            raise NotAllowed(f"'{command.path}' has no sessions")
        if isinstance(command, ListSessions):
            most = min(command.top, SESSIONS_MAX)
            request = KnownSessions(queue.entity_id, command.updated_after_ms, command.skip, most)
            self._wait_for(request, command, step)
            return
        queue.check_held(command.session_id, now_ms, command.holder)
        if command.session_id in queue.unwritten_states:  # what is told must be durable
            self._count_one()
            self._for_commit.append((queue.unwritten_states[command.session_id], command))
        else:
            wanted = SessionStateOf(queue.entity_id, command.session_id, queue.recent.known)
            self._wait_for(wanted, command, step)

    def _count_one(self) -> None:
        if self._count >= WAITING_READS_MAX:
            raise ServerBusy(f"{WAITING_READS_MAX} reads are waiting already; try again later")
        self._count += 1

    def _wait_for(self, request: ReadRequest, command: Lookup, step: Step) -> None:
        self._count_one()
        self._waiting.setdefault(request, deque()).append(command)
        step.reads.append(request)

    # --- rows are here ---

    def resume(self, entity: Shelf | None, read: Read, committed: int, now_ms: int, step: Step) -> None:
        """Do the command that asked for these rows first; only if one did (`is_reading`)."""
        command = self._take(read.request)
        try:
            if entity is None:
                raise EntityNotFound(f"The messaging entity '{command.path}' could not be found.")
            if isinstance(read, RowsRead):
                self._carry_out(command, entity, read, committed, now_ms, step)
            elif not isinstance(read, IdsRead):
                entity.recent.read_ended(read.request)
                step.replies.append(_told(command, read))
        except NamespaceError as error:
            step.replies.append(Refused(command.origin, error))

    def _take(self, request: ReadRequest) -> Lookup:
        waiting = self._waiting[request]
        command = waiting.popleft()
        self._count -= 1
        if not waiting:
            del self._waiting[request]
        return command

    def _carry_out(
        self, command: Lookup, entity: Shelf, read: RowsRead, committed: int, now_ms: int, step: Step
    ) -> None:
        recent = entity.recent
        rows = [row for row in read.rows if not recent.removed_since(row.sequence, read.as_of)]
        changed = max((recent.changed_at(row.sequence) for row in rows), default=0)
        recent.read_ended(read.request)
        if isinstance(command, Peek):
            self._show(command, entity, rows, read, now_ms, step)
        elif isinstance(command, CancelScheduled):
            _cancel(command, entity, rows, step)
        elif not isinstance(command, ReceiveDeferred):
            raise AssertionError(f"{command!r:.100} needs no rows")
        elif changed <= read.as_of:
            _lend_deferred(command, _as_queue(entity), rows, now_ms, step)
        elif changed <= committed:
            self.begin(command, entity, now_ms, step)  # read before a change to them: look again
        else:
            self._count += 1
            self._for_commit.append((changed, command))

    def _show(
        self, command: Peek, entity: Shelf, rows: list[MessageRow], read: RowsRead, now_ms: int, step: Step
    ) -> None:
        visible = [row for row in rows if row.expires_at_ms is None or row.expires_at_ms > now_ms]
        if not visible and not read.complete:
            # Everything that was read is gone by now; nothing found would mean that there is nothing.
            self.begin(command._replace(from_sequence=read.rows[-1].sequence + 1), entity, now_ms, step)
            return
        step.replies.append(MessagesFound(command.origin, tuple(LentRow(row, None, None) for row in visible)))

    # --- what else may happen ---

    def take_committed(self, number: int) -> list[ReceiveDeferred | GetSessionState]:
        """Those for whom the disk has everything now; they have to begin again."""
        if not self._for_commit:
            return []
        ready = [command for wanted, command in self._for_commit if wanted <= number]
        self._for_commit = [each for each in self._for_commit if each[0] > number]
        self._count -= len(ready)
        return ready

    def refuse(self, entity_id: int, error: NamespaceError, step: Step) -> None:
        """Refuse everybody who waits for rows of an entity."""
        for request in [request for request in self._waiting if request.entity_id == entity_id]:
            commands = self._waiting.pop(request)
            self._count -= len(commands)
            step.replies.extend(Refused(command.origin, error) for command in commands)


def _told(command: Lookup, read: SessionsRead | StateRead) -> SessionStateFound | SessionsFound:
    if isinstance(read, StateRead):
        return SessionStateFound(command.origin, read.state)
    skip = command.skip if isinstance(command, ListSessions) else 0
    return SessionsFound(command.origin, read.names, skip + len(read.names))


def _as_queue(entity: Shelf) -> Queue:
    if not isinstance(entity, Queue):
        raise NotAllowed(f"'{entity.row.path}' is a topic: its messages are in its subscriptions")
    return entity


def _lend_deferred(command: ReceiveDeferred, queue: Queue, rows: list[MessageRow], now_ms: int, step: Step) -> None:
    if isinstance(queue, SessionQueue):
        queue.check_held(command.session_id, now_ms, command.holder)
        rows = [row for row in rows if row.session_id == command.session_id]
    free = [row for row in rows if row.state is MessageState.DEFERRED and not queue.loans.is_lent(row.sequence)]
    _check_all_found(command.sequences, free, "deferred, or are locked by another receiver")
    if sum([len(row.payload) for row in free]) > DEFERRED_BYTES_MAX:
        raise ArgumentError(f"these messages have more than {DEFERRED_BYTES_MAX} bytes: ask for fewer at a time")
    if command.mode is ReceiveMode.PEEK_LOCK and not queue.may_lend:
        text = f"receivers of '{queue.row.path}' hold {queue.loans.held_bytes} bytes under lock"
        raise ServerBusy(f"{text}: settle some of it, then try again")
    found: list[LentRow] = []
    for row in free:
        if command.mode is ReceiveMode.RECEIVE_AND_DELETE:
            queue.remove(row, step)
            queue.tell(Happening.DELIVERED, (row,), step, Cause.RECEIVED_AND_DELETED)
            found.append(LentRow(row, None, None))
        else:
            found.append(LentRow(row, *queue.lock(row, now_ms)))
    step.replies.append(MessagesFound(command.origin, tuple(found)))


def _cancel(command: CancelScheduled, entity: Shelf, rows: list[MessageRow], step: Step) -> None:
    # In a topic a large send waits for its turn in the same state, though nobody has scheduled it: due at once.
    scheduled = [row for row in rows if row.state is MessageState.SCHEDULED and row.due_at_ms]
    _check_all_found(command.sequences, scheduled, "scheduled")
    for row in scheduled:
        entity.remove(row, step)
    entity.tell(Happening.UNSCHEDULED, scheduled, step)
    step.replies.append(Done(command.origin))


def _check_all_found(asked: tuple[int, ...], found: list[MessageRow], state: str) -> None:
    missing = sorted(set(asked) - {row.sequence for row in found})
    if missing:
        numbers = ", ".join(map(str, missing))
        raise MessageNotFound(f"no such message; these sequence numbers are not {state}: {numbers}")
