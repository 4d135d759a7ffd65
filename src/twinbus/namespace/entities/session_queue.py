"""A queue with sessions: messages of a session go, in order, to the one receiver that has the session.

No window at the head of the queue: each session that somebody has gets a window of its own when it is accepted, and
everything else stays on disk. So memory grows with the sessions in use, not with those that exist.

A session is read from disk only after every change that was under way when it was accepted is committed: what its last
receiver gave back is on disk by then, and there is nothing to remember about it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from twinbus.errors import (
    ArgumentError,
    NamespaceError,
    NotAllowed,
    OperationTimedOut,
    ServerBusy,
    SessionCannotBeLocked,
    SessionLockLost,
)
from twinbus.namespace.commands import AcceptSession
from twinbus.namespace.entities.loans import Loan
from twinbus.namespace.entities.queue import ENDED_LOCKS_PER_STEP, Queue
from twinbus.namespace.entities.receivers import Receiver
from twinbus.namespace.entities.shelf import EntityContext, earlier
from twinbus.namespace.entities.state_account import StateAccount
from twinbus.namespace.entities.window import Window
from twinbus.namespace.message import NAME_LENGTH_MAX, Arrival
from twinbus.namespace.replies import ReceiverLost, Refused, SessionAccepted, Step
from twinbus.namespace.store.api import (
    DueRows,
    EntityRow,
    EntitySummary,
    ExpiredRows,
    MessageRow,
    PutSessionState,
    RowsRead,
    SessionRows,
    SessionsRead,
    WaitingSessions,
    state_size,
)

WAITERS_MAX = 10_000
NAMES_PER_READ = 50
_FOR_EVER_MS = 2**62
"""A message of a session is locked as long as the session is."""


class Session:
    """A session that a receiver has."""

    __slots__ = ("name", "opens_after", "receiver", "tokens", "until_ms", "window")

    def __init__(self, name: str, receiver: Receiver, until_ms: int, opens_after: int) -> None:
        self.name = name
        self.receiver = receiver
        self.until_ms = until_ms
        self.opens_after = opens_after
        """The change set that has to be committed before it is read from disk."""
        self.window: Window | None = None
        self.tokens: set[bytes] = set()
        """Of its messages that are lent."""


class Waiter(NamedTuple):
    """Somebody who wants the next session there is."""

    receiver: Receiver
    until_ms: int
    origin: Any


class SessionQueue(Queue):
    def __init__(
        self,
        row: EntityRow,
        summary: EntitySummary,
        context: EntityContext,
        *,
        committed: int,
        dead_letter: Queue | None,
    ) -> None:
        super().__init__(row, summary, context, committed=committed, dead_letter=dead_letter)
        self.sessions: dict[str, Session] = {}
        self.states = StateAccount(summary.states, summary.state_bytes)
        self.unwritten_states: dict[str, int] = {}
        """By session: the change set that writes its state."""
        self._by_receiver: dict[int, Session] = {}
        self._opening: dict[str, Session] = {}
        self._ends: list[tuple[int, str]] = []
        self._waiters: dict[int, Waiter] = {}
        self._patience: list[tuple[int, int]] = []
        """When waiters leave, by receiver."""
        self._appeared: dict[str, None] = {}
        """Sessions that somebody may be waiting for, since they got messages."""
        self._last_name: str | None = None
        """Where the last look for sessions ended."""
        self._may_have_more = True
        """Whether a look for sessions might find one."""
        self._look_after = 0
        """The change set that has to be committed before it."""
        self._is_looking = False

    @property
    def stored_bytes(self) -> int:
        """What counts against the queue's maximum size: states of sessions too."""
        return super().stored_bytes + self.states.size_bytes

    @property
    def held_rows(self) -> int:
        return sum(len(session.window) for session in self.sessions.values() if session.window is not None)

    @property
    def remembered_times(self) -> int:
        """How many ends of locks and of waits are in memory."""
        return len(self._ends) + len(self._patience)

    @property
    def is_in_use(self) -> bool:
        return super().is_in_use or bool(self._waiters)

    def waiting_origins(self) -> Iterator[Any]:
        """Who waits for a session."""
        return (waiter.origin for waiter in self._waiters.values())

    # --- in ---

    def check_acceptable(self, arrivals: tuple[Arrival, ...]) -> None:
        for arrival in arrivals:
            if arrival.session_id is None:
                raise NotAllowed(f"'{self.row.path}' has sessions: a message for it needs a session id")
        super().check_acceptable(arrivals)

    def _show(self, row: MessageRow, number: int) -> None:
        session = self.sessions.get(row.session_id or "")
        if session is None:
            self._may_have_more = True
            if self._waiters:
                self._appeared[row.session_id or ""] = None
        elif session.window is not None:
            session.window.arrive(row, number)
            self.receivers.queue_up(session.receiver)

    def _put_back(self, row: MessageRow) -> None:
        session = self.sessions.get(row.session_id or "")
        if session is None:
            self._expect_more()
        elif session.window is not None:
            session.window.give_back(row)
            self.receivers.queue_up(session.receiver)

    def _discard(self, row: MessageRow) -> None:
        session = self.sessions.get(row.session_id or "")
        if session is not None and session.window is not None and session.window.holds(row.sequence):
            session.window.discard(row.sequence)

    # --- sessions come and go ---

    def accept(self, receiver: Receiver, command: AcceptSession, now_ms: int, step: Step) -> None:
        """Give a receiver the session it wants, now or when there is one."""
        waiter = Waiter(receiver, now_ms + command.wait_ms, command.origin)
        name = command.session_id
        if name is not None and len(name) > NAME_LENGTH_MAX:
            raise ArgumentError(f"a session id has at most {NAME_LENGTH_MAX} characters, got {len(name)}")
        if name is None:
            if len(self._waiters) >= WAITERS_MAX:
                raise ServerBusy(f"{WAITERS_MAX} receivers wait for a session already; try again later")
            self._waiters[receiver.name] = waiter
            heappush(self._patience, (waiter.until_ms, receiver.name))
        elif self._is_held(name, now_ms, step):
            raise SessionCannotBeLocked(f"the session {name!r} of '{self.row.path}' is locked by another receiver")
        else:
            self._hold(name, waiter, now_ms, step)
        self.lend(now_ms, step)

    def _hold(self, name: str, waiter: Waiter, now_ms: int, step: Step) -> None:
        opens_after = self._afterwards[-1].number if self._afterwards else 0
        session = Session(name, waiter.receiver, now_ms + self.settings.lock_ms, opens_after)
        self.sessions[name] = self._by_receiver[waiter.receiver.name] = self._opening[name] = session
        heappush(self._ends, (session.until_ms, name))
        self.receivers.add(waiter.receiver)
        step.news.append(SessionAccepted(waiter.origin, name, session.until_ms))

    def _is_held(self, name: str, now_ms: int, step: Step) -> bool:
        """Whether somebody has the session; whose time is over has it no more."""
        session = self.sessions.get(name)
        if session is not None and session.until_ms <= now_ms:
            self._lose(session, now_ms, step)
            return False
        return session is not None

    def check_held(self, name: str | None, now_ms: int, holder: int | None = None) -> Session:
        """Raise `SessionLockLost` unless this receiver has the session; None: unless anybody has."""
        session = self.sessions.get(name) if name is not None else None
        if session is None or session.until_ms <= now_ms:
            raise SessionLockLost(f"the session {name!r} of '{self.row.path}' is not locked: accept it again")
        if holder is not None and holder != session.receiver.name:
            raise SessionLockLost(f"the session {name!r} of '{self.row.path}' is locked by another receiver")
        return session

    def renew_session(self, name: str, now_ms: int, holder: int | None = None) -> int:
        """Give a session's lock its full time again; returns the new end."""
        session = self.check_held(name, now_ms, holder)
        session.until_ms = now_ms + self.settings.lock_ms
        heappush(self._ends, (session.until_ms, name))
        return session.until_ms

    def close(self, receiver: Receiver, now_ms: int, step: Step) -> None:
        """A receiver is gone, and with it all it had: its session is free, and its messages were never lent."""
        self._waiters.pop(receiver.name, None)
        session = self._by_receiver.get(receiver.name)
        if session is None:
            return
        if session.until_ms <= now_ms:
            self._fail(session, now_ms, step)
        else:
            self._release(session, now_ms, step)
        self.lend(now_ms, step)

    def _release(self, session: Session, now_ms: int, step: Step) -> None:
        loans = self._end_loans(session)
        self._let_go(session)
        for loan in loans:
            if loan.row.expires_at_ms is not None:  # what ended while it was lent ends now
                self.give_back(loan.row, now_ms, step)

    def _end_loans(self, session: Session) -> list[Loan]:
        loans = [loan for token in session.tokens if (loan := self.loans.find(token, 0)) is not None]
        for loan in sorted(loans, key=lambda loan: loan.row.sequence):
            self.loans.end(loan)
            self.end_loan(loan)
        return loans

    def _let_go(self, session: Session) -> None:
        del self.sessions[session.name], self._by_receiver[session.receiver.name]
        self._opening.pop(session.name, None)
        self.receivers.remove(session.receiver.name)
        self._expect_more()

    def _expect_more(self) -> None:
        """There may be a session to be had, once what is under way is on disk."""
        self._may_have_more = True
        self._look_after = self._afterwards[-1].number if self._afterwards else 0

    def dismiss(self, error: NamespaceError, now_ms: int, step: Step) -> None:
        for waiter in self._waiters.values():
            step.gone.append(waiter.receiver.name)
            step.replies.append(Refused(waiter.origin, error))
        self._waiters.clear()
        for session in list(self.sessions.values()):
            self._release(session, now_ms, step)
            step.gone.append(session.receiver.name)
            step.replies.append(ReceiverLost(session.receiver.name, error))

    # --- out ---

    def lock(self, row: MessageRow, now_ms: int, receiver: Receiver | None = None) -> tuple[bytes, int]:
        session = self.check_held(row.session_id, now_ms)
        token = self._context.new_token()
        self.loans.lend(row, token, _FOR_EVER_MS, receiver)
        session.tokens.add(token)
        return token, session.until_ms

    def end_loan(self, loan: Loan) -> None:
        super().end_loan(loan)
        session = self.sessions.get(loan.row.session_id or "")
        if session is not None:
            session.tokens.discard(loan.token)

    def find_loan(self, token: bytes, now_ms: int) -> Loan | None:
        loan = super().find_loan(token, now_ms)
        session = self.sessions.get(loan.row.session_id or "") if loan is not None else None
        return loan if session is not None and session.until_ms > now_ms else None

    def renew(self, tokens: tuple[bytes, ...], now_ms: int) -> tuple[int, ...]:
        raise NotAllowed("messages of a session are locked as long as the session is: renew that")

    def lend(self, now_ms: int, step: Step) -> None:
        """Hand messages of sessions to those who have them, and sessions to those who wait for one."""
        self._open_sessions()
        asked: dict[str, Session] = {}
        while self.may_lend and (receiver := self.receivers.next_hungry()) is not None:
            session = self._by_receiver.get(receiver.name)
            if session is None or session.window is None or session.until_ms <= now_ms:
                self.receivers.step_aside()
                continue
            row = session.window.take()
            asked[session.name] = session
            if row is None:
                self.receivers.step_aside()
            elif row.expires_at_ms is not None and row.expires_at_ms <= now_ms:
                self.expire(row, step)
            else:
                self.receivers.served()
                self._deliver(receiver, row, now_ms, step)
        for session in asked.values():
            self._read_ahead(session, step)
        self._serve_waiters(now_ms, step)
        self._finish_drains(step)

    def _open_sessions(self) -> None:
        for session in [each for each in self._opening.values() if each.opens_after < self._under_way]:
            del self._opening[session.name]
            session.window = Window(self.entity_id, self._limits, 0, session.name)
            self.receivers.queue_up(session.receiver)

    @property
    def _under_way(self) -> int:
        """The first change set that is not committed yet."""
        return self._afterwards[0].number if self._afterwards else _FOR_EVER_MS

    @property
    def _limits(self) -> Any:
        limits = self._context.window_limits
        return replace(limits, rows_max=max(1, limits.rows_max // 8), bytes_max=max(1, limits.bytes_max // 8))

    def _read_ahead(self, session: Session, step: Step) -> None:
        wanted = session.window.wanted_rows() if session.window is not None else None
        if wanted is not None and self.damage is None:
            step.reads.append(wanted)

    def _is_reading_for(self, receiver: Receiver) -> bool:
        session = self._by_receiver.get(receiver.name)
        return session is not None and (session.window is None or session.window.is_reading)

    def _serve_waiters(self, now_ms: int, step: Step) -> None:
        while self._waiters and self._appeared:
            self._give_next(self._appeared.popitem()[0], now_ms, step)
        if not self._waiters:
            self._appeared.clear()
        elif self._may_have_more and not self._is_looking and self._look_after < self._under_way:
            self._is_looking, self._may_have_more = True, False
            most = min(len(self._waiters), NAMES_PER_READ)
            step.reads.append(WaitingSessions(self.entity_id, self._last_name, tuple(self.sessions), most))
        self._open_sessions()

    def _give_next(self, name: str, now_ms: int, step: Step) -> None:
        if name not in self.sessions and self._waiters:
            self._hold(name, self._waiters.pop(next(iter(self._waiters))), now_ms, step)

    def sessions_read(self, read: SessionsRead, now_ms: int, step: Step) -> None:
        """Use the names of sessions that were asked for."""
        self._is_looking = False
        self.recent.read_ended(read.request)
        for name in read.names:
            self._give_next(name, now_ms, step)
        request = read.request
        is_last = isinstance(request, WaitingSessions) and len(read.names) < request.most
        if not is_last or self._last_name is not None:
            self._may_have_more = True  # behind these, or from the beginning
        self._last_name = None if is_last else read.names[-1]
        self.lend(now_ms, step)

    def rows_read(self, read: RowsRead, now_ms: int, step: Step) -> None:
        if self.damage is None and isinstance(read.request, SessionRows):
            self._refill(read, read.request)
            self.recent.read_ended(read.request)
            self.lend(now_ms, step)
        else:
            super().rows_read(read, now_ms, step)

    def _refill(self, read: RowsRead, request: SessionRows) -> None:
        session = self.sessions.get(request.session_id)
        if session is None or session.window is None or session.window.asked != request:
            return  # asked for by somebody who had the session before
        rows = [row for row in read.rows if not self.recent.changed_since(row.sequence, read.as_of)]
        last = read.rows[-1].sequence if read.rows else request.from_sequence - 1
        session.window.refill(rows, read_until=last, complete=read.complete, as_of=read.as_of)
        self.receivers.queue_up(session.receiver)

    # --- state ---

    def set_state(self, name: str, state: bytes | None, now_ms: int, step: Step, *, holder: int | None = None) -> None:
        """Keep something about a session that somebody, or this receiver, has."""
        self.check_held(name, now_ms, holder)
        if state is not None:  # whatever its messages take: whoever keeps a state must be able to empty a full queue
            size_bytes = state_size(name, state)
            self.states.check(self.row.path, state, size_bytes, self.size_bytes_max)
            self.states.write(step.number, size_bytes)
        step.changes.append(PutSessionState(self.entity_id, name, state, now_ms))
        self._after(step)
        self.unwritten_states[name] = step.number

    def committed(self, number: int, now_ms: int, step: Step) -> None:
        if self.unwritten_states:
            unwritten = self.unwritten_states.items()
            self.unwritten_states = {name: written for name, written in unwritten if written > number}
        super().committed(number, now_ms, step)

    # --- time passes ---

    def _next_work_ms(self) -> int | None:
        self._drop_outdated()
        wake_ms = earlier(self._ends[0][0] if self._ends else None, self._patience[0][0] if self._patience else None)
        if self.damage is not None:
            return wake_ms
        return earlier(earlier(wake_ms, self._expiries.next_ms), self._dues.next_ms)

    def _drop_outdated(self) -> None:
        """Forget the ends of locks that were renewed or given back, and of waits that are over."""
        if len(self._ends) > 2 * len(self.sessions) + 64:  # behind one that lasts others may have been renewed often
            self._ends = [(session.until_ms, session.name) for session in self.sessions.values()]
            heapify(self._ends)
        if len(self._patience) > 2 * len(self._waiters) + 64:
            self._patience = [(waiter.until_ms, name) for name, waiter in self._waiters.items()]
            heapify(self._patience)
        while self._ends and self._is_outdated(*self._ends[0]):
            heappop(self._ends)
        while self._patience and self._patience[0][1] not in self._waiters:
            heappop(self._patience)

    def _is_outdated(self, until_ms: int, name: str) -> bool:
        session = self.sessions.get(name)
        return session is None or session.until_ms != until_ms

    def tick(self, now_ms: int, step: Step) -> None:
        self._drop_outdated()
        for _ in range(ENDED_LOCKS_PER_STEP):  # the others at the next tick, which is due at once
            if self._ends and self._ends[0][0] <= now_ms:
                self._lose(self.sessions[self._ends[0][1]], now_ms, step)
            elif self._patience and self._patience[0][0] <= now_ms:
                self._turn_away(self._waiters.pop(self._patience[0][1]), step)
            else:
                break
            self._drop_outdated()
        self._sweep(self._expiries, ExpiredRows, now_ms, step)
        self._sweep(self._dues, DueRows, now_ms, step)
        self.lend(now_ms, step)

    def _turn_away(self, waiter: Waiter, step: Step) -> None:
        step.gone.append(waiter.receiver.name)
        text = f"no session of '{self.row.path}' was free with messages in time"
        step.news.append(Refused(waiter.origin, OperationTimedOut(text)))

    def _fail(self, session: Session, now_ms: int, step: Step) -> None:
        """The lock has ended: whatever the receiver had not settled has failed once more."""
        loans = self._end_loans(session)
        self._let_go(session)
        for loan in loans:
            self._end_lock(loan.row, now_ms, step)

    def _lose(self, session: Session, now_ms: int, step: Step) -> None:
        self._fail(session, now_ms, step)
        step.gone.append(session.receiver.name)
        text = f"the lock of the session {session.name!r} has ended; accept the session again"
        step.replies.append(ReceiverLost(session.receiver.name, SessionLockLost(text)))
