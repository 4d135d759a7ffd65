"""A queue with sessions: messages of a session go, in order, to the one receiver that has locked it.

There is no window at the head of the queue: each locked session has its own window, and everything else stays on disk.
So memory grows with the sessions in use, not with those that exist.

A session is read from disk only after all changes that were under way when it was accepted are committed: what its last
receiver returned is on disk by then, and nothing has to be remembered.

While it forwards its messages there are no sessions, and it has the window of a plain queue. That is opened in the same
way when forwarding begins.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from twinbus.broker.core.commands import AcceptSession
from twinbus.broker.core.replies import AddressedReply, Step
from twinbus.broker.entities.entity import EntityContext, earlier
from twinbus.broker.entities.loaded_head import Window, WindowLimits
from twinbus.broker.entities.locks import MessageLock
from twinbus.broker.entities.queue import ENDED_LOCKS_PER_STEP, Queue
from twinbus.broker.entities.receivers import Receiver
from twinbus.broker.entities.session_states import SessionStateUsage
from twinbus.broker.entities.timers import DueTimes
from twinbus.broker.message import NAME_LENGTH_MAX, Arrival
from twinbus.broker.operations import ReceiveMode, ReceiverLost, Refused, SessionAccepted
from twinbus.broker.store.api import (
    DueRows,
    EntityRow,
    EntitySummary,
    ExpiredRows,
    HeadRows,
    MessageRow,
    PutSessionState,
    RowsRead,
    SessionsRead,
    WaitingSessions,
    state_size,
)
from twinbus.errors import (
    ArgumentError,
    NamespaceError,
    NotAllowed,
    OperationTimedOut,
    ServerBusy,
    SessionCannotBeLocked,
    SessionLockLost,
)

WAITERS_MAX = 10_000
NAMES_PER_READ = 50
_FOR_EVER_MS = 2**62
"""A message of a session is locked as long as the session is."""


class LockedSession:
    """A session that a receiver has locked."""

    __slots__ = ("is_overdue", "name", "opens_after", "receiver", "tokens", "until_ms", "window")

    def __init__(self, name: str, receiver: Receiver, until_ms: int, opens_after: int) -> None:
        self.name = name
        self.receiver = receiver
        self.until_ms = until_ms
        self.opens_after = opens_after
        """The change set that must be committed before the session is read from disk."""
        self.window: Window | None = None
        self.tokens: set[bytes] = set()
        """Of its locked messages."""
        self.is_overdue = False
        """The lock has ended, and its receiver still waits: it has not been told."""


class SessionWaiter(NamedTuple):
    """A receiver that waits for the next available session."""

    receiver: Receiver
    until_ms: int
    request_id: int


class SessionQueue(Queue):
    _is_made = False

    def __init__(
        self, row: EntityRow, summary: EntitySummary, context: EntityContext, dead_letter: Queue | None
    ) -> None:
        super().__init__(row, summary, context, dead_letter)
        self.sessions: dict[str, LockedSession] = {}
        self.states = SessionStateUsage(summary.states, summary.state_bytes)
        self.unwritten_states: dict[str, int] = {}
        """By session: the change set that writes its state."""
        self._by_receiver: dict[int, LockedSession] = {}
        self._opening: dict[str, LockedSession] = {}
        self._ends: DueTimes[str] = DueTimes()
        self._waiters: dict[int, SessionWaiter] = {}
        self._wait_ends: DueTimes[int] = DueTimes()
        """When waiting receivers time out."""
        self._new_names: dict[str, None] = {}
        """Sessions that got messages while receivers wait."""
        self._last_name: str | None = None
        """Where the last scan for sessions ended."""
        self._may_have_more = True
        """Whether a scan for sessions might find one."""
        self._scan_after = 0
        """The change set that must be committed before the next scan."""
        self._is_scanning = False
        self._forwards_after: int | None = None
        """The change set that must be committed before anything is forwarded; None: that is the case."""
        self._is_made = True

    def configure(self, row: EntityRow) -> None:
        did_forward = self._is_made and self.destination is not None
        super().configure(row)
        if not self._is_made or did_forward is (self.destination is not None):
            return
        if did_forward:
            self._window = Window(self.entity_id, self._context.window_limits, None)
            self._expect_more()
        else:
            self._forwards_after = self._last_under_way

    @property
    def stored_bytes(self) -> int:
        """What counts against the maximum size, session states included."""
        return super().stored_bytes + self.states.size_bytes

    @property
    def held_rows(self) -> int:
        held = sum(len(session.window) for session in self.sessions.values() if session.window is not None)
        return held + (super().held_rows if self._has_window else 0)

    @property
    def _has_window(self) -> bool:
        """Whether it forwards, and messages that become visible are in its window."""
        return self.destination is not None and self._forwards_after is None

    @property
    def remembered_times(self) -> int:
        """The number of remembered ends of locks and waits."""
        return len(self._ends) + len(self._wait_ends)

    @property
    def is_in_use(self) -> bool:
        return super().is_in_use or bool(self._waiters)

    # --- in ---

    def check_acceptable(self, arrivals: tuple[Arrival, ...]) -> None:
        for arrival in arrivals:
            if arrival.session_id is None:
                raise NotAllowed(f"'{self.row.path}' has sessions: a message for it needs a session id")
        super().check_acceptable(arrivals)

    def _show(self, row: MessageRow, number: int) -> None:
        if self.destination is not None:
            if self._has_window:  # else it is read from disk when the window is opened
                super()._show(row, number)
            return
        session = self.sessions.get(row.session_id or "")
        if session is None:
            self._may_have_more = True
            if self._waiters:
                self._new_names[row.session_id or ""] = None
        elif session.window is not None:
            session.window.arrive(row, number)
            self.receivers.queue_up(session.receiver)

    def _show_again(self, row: MessageRow) -> None:
        if self.destination is not None:
            if self._has_window:
                super()._show_again(row)
            return
        session = self.sessions.get(row.session_id or "")
        if session is None:
            self._expect_more()
        elif session.window is not None and session.window.holds(
            row.sequence
        ):  # one to be forwarded may not be read yet
            session.window.put_back(row)
            self.receivers.queue_up(session.receiver)

    def _discard(self, row: MessageRow) -> None:
        if self.destination is not None:
            if self._has_window:
                super()._discard(row)
            return
        session = self.sessions.get(row.session_id or "")
        if session is not None and session.window is not None:
            session.window.discard(row.sequence)

    # --- sessions come and go ---

    def accept(self, receiver: Receiver, command: AcceptSession, now_ms: int, step: Step) -> None:
        """Lock a session for a receiver, now or when one is available."""
        waiter = SessionWaiter(receiver, now_ms + command.wait_ms, step.request_id)
        name = command.session_id
        if name is not None and len(name) > NAME_LENGTH_MAX:
            raise ArgumentError(f"a session id has at most {NAME_LENGTH_MAX} characters, got {len(name)}")
        if name is None:
            if len(self._waiters) >= WAITERS_MAX:
                raise ServerBusy(f"{WAITERS_MAX} receivers wait for a session already; try again later")
            self._waiters[receiver.name] = waiter
            self._wait_ends.set(receiver.name, waiter.until_ms)
        elif self._is_locked(name, now_ms, step):
            raise SessionCannotBeLocked(f"the session {name!r} of '{self.row.path}' is locked by another receiver")
        else:
            self._lock_session(name, waiter, now_ms, step)
        self.deliver(now_ms, step)

    def _lock_session(self, name: str, waiter: SessionWaiter, now_ms: int, step: Step) -> None:
        session = LockedSession(name, waiter.receiver, now_ms + self.settings.lock_ms, self._last_under_way)
        self.sessions[name] = self._by_receiver[waiter.receiver.name] = self._opening[name] = session
        self._ends.set(name, session.until_ms)
        self.receivers.add(waiter.receiver)
        step.immediate.append(AddressedReply(waiter.request_id, SessionAccepted(name, session.until_ms)))

    def _is_locked(self, name: str, now_ms: int, step: Step) -> bool:
        """Whether the session is locked; a lock that has ended is removed."""
        session = self.sessions.get(name)
        if session is not None and session.until_ms <= now_ms:
            self._expire_session(session, now_ms, step)
            return False
        return session is not None

    def _waits_in_vain(self, session: LockedSession) -> bool:
        """Whether its receiver deletes messages, holds none, and waits for one.

        The end of the lock does not interrupt it, as with the service: it is told when the next message comes, which
        it does not get any more, when it asks for more, or when somebody else wants the session.
        """
        is_deleting = session.receiver.mode is ReceiveMode.RECEIVE_AND_DELETE
        return is_deleting and not session.tokens and not session.window and self.is_waiting(session.receiver)

    def check_locked(self, name: str | None, now_ms: int, holder: int | None = None) -> LockedSession:
        """Raise `SessionLockLost` unless this receiver has locked the session; None: any receiver."""
        session = self.sessions.get(name) if name is not None else None
        if session is None or session.until_ms <= now_ms:
            raise SessionLockLost(f"the session {name!r} of '{self.row.path}' is not locked: accept it again")
        if holder is not None and holder != session.receiver.name:
            raise SessionLockLost(f"the session {name!r} of '{self.row.path}' is locked by another receiver")
        return session

    def renew_session(self, name: str, now_ms: int, holder: int | None = None) -> int:
        """Renew the lock of a session; returns the new end."""
        session = self.check_locked(name, now_ms, holder)
        session.until_ms = now_ms + self.settings.lock_ms
        self._ends.set(name, session.until_ms)
        return session.until_ms

    def close(self, receiver: Receiver, now_ms: int, step: Step) -> None:
        """Remove a receiver: its session is free, and its messages count as never delivered."""
        waiter = self._waiters.pop(receiver.name, None)
        if waiter is not None:
            self._wait_ends.remove(receiver.name)
            step.dropped.append(waiter.request_id)
        session = self._by_receiver.get(receiver.name)
        if session is None:
            return
        if session.until_ms <= now_ms:
            self._fail_session(session, now_ms, step)
        else:
            self._release(session, now_ms, step)
        self.deliver(now_ms, step)

    def _release(self, session: LockedSession, now_ms: int, step: Step) -> None:
        locks = self._release_locks(session)
        self._unlock_session(session)
        for lock in locks:
            if lock.row.expires_at_ms is not None:  # what expired while it was locked ends now
                self.requeue(lock.row, now_ms, step)

    def _release_locks(self, session: LockedSession) -> list[MessageLock]:
        locks = [lock for token in session.tokens if (lock := self.locks.find(token, 0)) is not None]
        for lock in sorted(locks, key=lambda lock: lock.row.sequence):
            self.locks.end(lock)
            self.release_lock(lock)
        return locks

    def _unlock_session(self, session: LockedSession) -> None:
        del self.sessions[session.name], self._by_receiver[session.receiver.name]
        self._ends.remove(session.name)
        self._opening.pop(session.name, None)
        self.receivers.remove(session.receiver.name)
        self._expect_more()

    def _expect_more(self) -> None:
        """A session may be available, once the changes under way are on disk."""
        self._may_have_more = True
        self._scan_after = self._last_under_way

    @property
    def _last_under_way(self) -> int:
        """The last change set that is not committed yet; 0: all are."""
        return self._commit_actions[-1].number if self._commit_actions else 0

    def close_receivers(self, error: NamespaceError, now_ms: int, step: Step) -> None:
        for waiter in self._waiters.values():
            self._wait_ends.remove(waiter.receiver.name)
            step.gone.append(waiter.receiver.name)
            step.reply_to(waiter.request_id, Refused(error))
        self._waiters.clear()
        for session in list(self.sessions.values()):
            self._release(session, now_ms, step)
            step.gone.append(session.receiver.name)
            step.replies.append(ReceiverLost(session.receiver.name, error))

    # --- out ---

    def lock(self, row: MessageRow, now_ms: int, receiver: Receiver | None = None) -> tuple[bytes, int]:
        session = self.check_locked(row.session_id, now_ms)
        token = self._context.new_token()
        self.locks.add(row, token, _FOR_EVER_MS, receiver)
        session.tokens.add(token)
        return token, session.until_ms

    def release_lock(self, lock: MessageLock) -> None:
        super().release_lock(lock)
        session = self.sessions.get(lock.row.session_id or "")
        if session is not None:
            session.tokens.discard(lock.token)

    def find_lock(self, token: bytes, now_ms: int) -> MessageLock | None:
        lock = super().find_lock(token, now_ms)
        session = self.sessions.get(lock.row.session_id or "") if lock is not None else None
        return lock if session is not None and session.until_ms > now_ms else None

    def renew(self, tokens: tuple[bytes, ...], now_ms: int) -> tuple[int, ...]:
        raise NotAllowed("messages of a session are locked as long as the session is: renew that")

    def deliver(self, now_ms: int, step: Step) -> None:
        """Deliver messages to receivers with a session, and sessions to waiting receivers; or forward them."""
        if self.destination is not None:
            self._open_window()
            if self._has_window:
                super().deliver(now_ms, step)
            return
        self._open_sessions()
        asked: dict[str, Window] = {}
        while self.may_deliver and (receiver := self.receivers.next_ready()) is not None:
            session = self._by_receiver.get(receiver.name)
            if session is not None and session.is_overdue:
                self._expire_session(session, now_ms, step)
                continue
            if session is None or session.window is None or session.until_ms <= now_ms:
                self.receivers.step_aside()
                continue
            row = session.window.take()
            asked[session.name] = session.window
            if row is None:
                self.receivers.step_aside()
            elif row.expires_at_ms is not None and row.expires_at_ms <= now_ms:
                self.expire(row, step)
            else:
                self.receivers.served()
                self._deliver(receiver, row, now_ms, step)
        for window in asked.values():
            self._fetch_into(window, step)
        self._serve_waiters(now_ms, step)
        self._finish_drains(step)

    def _open_window(self) -> None:
        if self._forwards_after is not None and self._forwards_after < self._under_way:
            self._window = Window(self.entity_id, self._context.window_limits, 0)
            self._forwards_after = None

    def _open_sessions(self) -> None:
        for session in [each for each in self._opening.values() if each.opens_after < self._under_way]:
            del self._opening[session.name]
            session.window = Window(self.entity_id, self._limits, 0, session.name)
            self.receivers.queue_up(session.receiver)

    @property
    def _under_way(self) -> int:
        """The first change set that is not committed yet."""
        return self._commit_actions[0].number if self._commit_actions else _FOR_EVER_MS

    @property
    def _limits(self) -> WindowLimits:
        limits = self._context.window_limits
        return replace(limits, rows_max=max(1, limits.rows_max // 8), bytes_max=max(1, limits.bytes_max // 8))

    def _is_reading_for(self, receiver: Receiver) -> bool:
        session = self._by_receiver.get(receiver.name)
        return session is not None and (session.window is None or session.window.is_reading)

    def _serve_waiters(self, now_ms: int, step: Step) -> None:
        while self._waiters and self._new_names:
            self._assign_next(self._new_names.popitem()[0], now_ms, step)
        if not self._waiters:
            self._new_names.clear()
        elif self._may_have_more and not self._is_scanning and self._scan_after < self._under_way:
            self._is_scanning, self._may_have_more = True, False
            most = min(len(self._waiters), NAMES_PER_READ)
            step.reads.append(WaitingSessions(self.entity_id, self._last_name, tuple(self.sessions), most))
        self._open_sessions()

    def _assign_next(self, name: str, now_ms: int, step: Step) -> None:
        if name not in self.sessions and self._waiters:
            waiter = self._waiters.pop(next(iter(self._waiters)))
            self._wait_ends.remove(waiter.receiver.name)
            self._lock_session(name, waiter, now_ms, step)

    def sessions_read(self, read: SessionsRead, now_ms: int, step: Step) -> None:
        """Process the requested names of sessions."""
        self._is_scanning = False
        self.recent.read_ended(read.request)
        for name in read.names:
            self._assign_next(name, now_ms, step)
        request = read.request
        is_last = isinstance(request, WaitingSessions) and len(read.names) < request.most
        if not is_last or self._last_name is not None:
            self._may_have_more = True  # behind these, or from the beginning
        self._last_name = None if is_last else read.names[-1]
        self.deliver(now_ms, step)

    def rows_read(self, read: RowsRead, now_ms: int, step: Step) -> None:
        if self.damage is None and isinstance(read.request, HeadRows):
            self._refill(read, read.request)
            self.recent.read_ended(read.request)
            self.deliver(now_ms, step)
        else:
            super().rows_read(read, now_ms, step)

    def _refill(self, read: RowsRead, request: HeadRows) -> None:
        if request.session_id is None:
            self._refill_window(read, request)
            return
        session = self.sessions.get(request.session_id or "")
        if session is None or session.window is None or session.window.asked != request:
            return  # requested for an earlier lock of the session
        self._fill(session.window, read, request)
        self.receivers.queue_up(session.receiver)

    def _refill_window(self, read: RowsRead, request: HeadRows) -> None:
        if self._has_window and self._window.asked is request:  # it may have been requested for an earlier window
            self._fill(self._window, read, request)

    def _fill(self, window: Window, read: RowsRead, request: HeadRows) -> None:
        rows = [row for row in read.rows if not self.recent.changed_since(row.sequence, read.as_of)]
        rows = [row for row in rows if not self.locks.is_locked(row.sequence)]  # held to be forwarded
        last = read.rows[-1].sequence if read.rows else request.from_sequence - 1
        window.refill(rows, read_until=last, complete=read.complete, as_of=read.as_of)

    # --- state ---

    def set_state(self, name: str, state: bytes | None, now_ms: int, step: Step, *, holder: int | None = None) -> None:
        """Set the state of a session that is locked, by this receiver if one is given."""
        self.check_state(name, state, now_ms, holder=holder)
        self.write_state(name, state, now_ms, step)

    def check_state(
        self, name: str, state: bytes | None, now_ms: int, *, holder: int | None = None, more_bytes: int = 0
    ) -> int:
        """The bytes that a state takes; raises unless it can be set, beside `more_bytes` of others."""
        self.check_locked(name, now_ms, holder)
        if state is None:
            return 0
        size_bytes = state_size(name, state)  # messages do not count: a full queue must allow states, to be emptied
        self.states.check(self.row.path, state, size_bytes + more_bytes, self.size_bytes_max)
        return size_bytes

    def write_state(self, name: str, state: bytes | None, now_ms: int, step: Step) -> None:
        """Set a state that was found acceptable."""
        if state is not None:
            self.states.write(step.number, state_size(name, state))
        step.changes.append(PutSessionState(self.entity_id, name, state, now_ms))
        self._on_commit(step)
        self.unwritten_states[name] = step.number

    def committed(self, number: int, now_ms: int, step: Step) -> None:
        if self.unwritten_states:
            unwritten = self.unwritten_states.items()
            self.unwritten_states = {name: written for name, written in unwritten if written > number}
        super().committed(number, now_ms, step)

    # --- time passes ---

    def _next_work_ms(self) -> int | None:
        if self._has_work:
            return 0
        wake_ms = earlier(self._ends.next_ms(), self._wait_ends.next_ms())
        if self.damage is not None:
            return wake_ms
        return earlier(earlier(wake_ms, self._expiry_scan.next_ms), self._due_scan.next_ms)

    def tick(self, now_ms: int, step: Step) -> None:
        self._has_work = False
        most = ENDED_LOCKS_PER_STEP  # the others at the next tick, which is due at once
        for name in islice(self._ends.take_due(now_ms), most):
            session = self.sessions[name]
            session.is_overdue = self._waits_in_vain(session)
            if not session.is_overdue:
                self._expire_session(session, now_ms, step)
            most -= 1
        for receiver in islice(self._wait_ends.take_due(now_ms), most):
            self.touch(now_ms)
            self._time_out(self._waiters.pop(receiver), step)
        self._scan(self._expiry_scan, ExpiredRows, now_ms, step)
        self._scan(self._due_scan, DueRows, now_ms, step)
        self.deliver(now_ms, step)

    def _time_out(self, waiter: SessionWaiter, step: Step) -> None:
        step.gone.append(waiter.receiver.name)
        text = f"no session of '{self.row.path}' was free with messages in time"
        step.immediate.append(AddressedReply(waiter.request_id, Refused(OperationTimedOut(text))))

    def _fail_session(self, session: LockedSession, now_ms: int, step: Step) -> None:
        """The lock has ended: unsettled messages count as one more failed delivery."""
        locks = self._release_locks(session)
        self._unlock_session(session)
        for lock in locks:
            self._end_lock(lock.row, now_ms, step)

    def _expire_session(self, session: LockedSession, now_ms: int, step: Step) -> None:
        self.touch(now_ms)  # its receiver used it until now
        self._fail_session(session, now_ms, step)
        step.gone.append(session.receiver.name)
        text = f"the lock of the session {session.name!r} has ended; accept the session again"
        step.replies.append(ReceiverLost(session.receiver.name, SessionLockLost(text)))
