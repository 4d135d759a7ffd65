"""The commit seam: between the machine that decides and the store that writes.

A reply leaves only when the changes it speaks of are committed. When a commit fails, nothing that was
decided since can be trusted: every waiting asker is refused, the machine is thrown away, and a new one
is built from what the store really holds. When a read fails the machine is thrown away too, but what it has
handed over may still be written: those askers hear what really became of it before the failure is announced.
Only when a read meets damage everything goes on but that one entity, which nobody can receive from any more.
The server and the simulator both run this very class.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from twinbus.errors import NamespaceError, QuotaExceeded, StoreDamaged, StoreError, StoreUnavailable
from twinbus.namespace.commands import (
    Abandon,
    Command,
    CreateQueue,
    CreateRule,
    CreateSubscription,
    CreateTopic,
    Defer,
    Send,
    SetSessionState,
    Settle,
    origin_of,
)
from twinbus.namespace.happenings import Story
from twinbus.namespace.machine import NamespaceMachine
from twinbus.namespace.replies import (
    Delivery,
    Done,
    LocksRenewed,
    MessagesFound,
    Refused,
    Reply,
    Settled,
    Step,
)
from twinbus.namespace.store.api import (
    Change,
    CommitFailed,
    Committed,
    IdsRead,
    InsertCopies,
    InsertMessages,
    NoteMessageIds,
    PutSessionState,
    Read,
    ReadFailed,
    ReplaceMessage,
    Report,
    RoomChanged,
    RowsRead,
    SessionsRead,
    StateRead,
    Store,
    StoredNamespace,
)

log = logging.getLogger(__name__)

_ROW_OVERHEAD_BYTES = 200
"""What a row weighs in memory beside its payload, roughly."""


class CommitSeam:
    def __init__(
        self,
        store: Store,
        build: Callable[[StoredNamespace], NamespaceMachine],
        send: Callable[[Reply], None],
        on_failure: Callable[[str], None],
        tell: Callable[[Story], None] | None = None,
        flush: Callable[[], None] = lambda: None,
    ) -> None:
        """`send` gets every reply as soon as it may leave; `on_failure` is told once when the store breaks.

        `flush` is called after the replies of a commit, before the machine goes on: that can take a while.

        By then everybody has an answer, and nothing more is said until `recover`. `tell` hears what happened to
        messages once it cannot be undone any more; only a machine that `tells` has something for it.
        """
        self._store = store
        self._build = build
        self._send = send
        self._on_failure = on_failure
        self._tell = tell
        self._flush = flush
        self._held: deque[tuple[int, int, list[Reply], Story | None]] = deque()
        self._committed = self._loaded = 0
        self._announced = False
        self.failure: str | None = None
        """Why no work is taken at the moment; None while all is well."""
        self.full_disk: str | None = None
        """Why no new messages are taken, while all else goes on; None while there is room."""
        self.unwritten_bytes = 0
        self.machine = self._load()

    def _load(self) -> NamespaceMachine:
        """Raises `StoreError`, whatever is wrong: with the disk, or with what is on it."""
        try:
            stored = self._store.load()
            machine = self._build(stored)
        except StoreError:
            raise
        except Exception as error:
            raise StoreDamaged(f"what is stored makes no namespace: {type(error).__name__}: {error}") from error
        self._committed = self._loaded = stored.last_number
        return machine

    def recover(self) -> None:
        """Build the machine anew from the store after a failure; raises `StoreError` while it still fails."""
        self.machine = self._load()
        self.failure = None
        if self.full_disk is not None:  # copies of what is stored may be what could not be written
            self.machine.hold_copies(True)

    def next_wake_ms(self) -> int | None:
        return None if self.failure else self.machine.next_wake_ms()

    def do(self, command: Command, now_ms: int) -> None:
        """Carry out a command; its reply is sent when it is true for good."""
        refusal = self._refusal_of(command)
        if refusal is not None:
            origin = origin_of(command)
            if origin is not None:
                self._send(Refused(origin, refusal))
            return
        self._carry_on(self.machine.apply(command, now_ms))

    def report(self, report: Report, now_ms: int) -> None:
        """Take in what the store says."""
        match report:
            case Committed(number, states):
                self._commit(number, now_ms)
                if self.failure is None and number > self._loaded:  # older ones were counted when it was loaded
                    self.machine.states_written(number, states)
            case RowsRead() | SessionsRead() | StateRead() | IdsRead():
                self._take_read(report, now_ms)
            case ReadFailed(request, reason):
                if self.failure is None and self.machine.is_reading(request):
                    if report.is_damage:
                        self._fence(report, now_ms)
                    else:
                        self._fail(reason)
            case CommitFailed(reason=reason):
                if self.failure is None:
                    self._fail(reason)
                self._refuse_held()
            case RoomChanged(full):
                self.full_disk = full
                if full is None:
                    self.machine.hold_copies(False)
        if self.failure is not None and not self._announced and not self._held:
            self._announced = True
            self._on_failure(self.failure)

    def _take_read(self, report: Read, now_ms: int) -> None:
        if report.as_of < self._loaded:
            return  # read for a machine that is gone
        # The read may have seen a commit whose own report is still on its way.
        self._commit(report.as_of, now_ms)
        if self.failure is None:
            self._carry_on(self.machine.apply(report, now_ms))

    def _fence(self, report: ReadFailed, now_ms: int) -> None:
        queue = self.machine.registry.by_id(report.request.entity_id)
        if queue is not None and queue.damage is None:
            log.error(
                "nothing can be received from '%s', the store is damaged there: %s", queue.row.path, report.reason
            )
        step = self.machine.apply(report, now_ms)
        if self._held:  # messages on their way to a receiver go before the word that it gets no more
            self._held[-1][2].extend(step.replies)
            step.replies = []
        self._carry_on(step)

    def _commit(self, number: int, now_ms: int) -> None:
        if number <= self._committed:
            return
        self._committed = number
        while self._held and self._held[0][0] <= number:
            _, weight, replies, story = self._held.popleft()
            self.unwritten_bytes -= weight
            if story is not None:
                self._pass_on(story)
            for reply in replies:
                self._send(reply)
        self._flush()
        if self.failure is None:
            self._carry_on(self.machine.apply(Committed(number), now_ms))

    def _carry_on(self, step: Step) -> None:
        if step.changes:
            weight = sum(map(_weight, step.changes))
            self.unwritten_bytes += weight
            self._held.append((step.number, weight, step.replies, step.story))
            self._store.submit(step.number, tuple(step.changes))
        else:
            if step.story is not None:
                self._pass_on(step.story)
            for reply in step.replies:
                self._send(reply)
        for reply in step.news:
            self._send(reply)
        for request in step.reads:
            self._store.request(request)

    def _pass_on(self, story: Story) -> None:
        if self._tell is not None and story:
            self._tell(story)

    def _fail(self, reason: str) -> None:
        """Take no more work. Who waits for rows is refused; who waits for a commit may still get it."""
        self.failure = reason
        self._announced = False
        for origin in self.machine.waiting_origins():
            if origin is not None:
                self._send(Refused(origin, self._unavailable()))

    def _refuse_held(self) -> None:
        held, self._held = self._held, deque()
        self.unwritten_bytes = 0
        for _, _, replies, _ in held:
            for reply in replies:
                self._refuse(reply)

    def _refuse(self, reply: Reply) -> None:
        """Tell an asker that what it waited for did not happen."""
        match reply:
            case Done(origin=origin):
                if origin is not None:
                    self._send(Refused(origin, self._unavailable() if self.full_disk is None else self._no_room()))
            case Settled(origin=origin) | LocksRenewed(origin=origin) | MessagesFound(origin=origin):
                if origin is not None:
                    self._send(Refused(origin, self._unavailable()))
            case Refused():
                self._send(reply)
            case Delivery():
                pass  # its removal was not written: it stays in the queue

    def _refusal_of(self, command: Command) -> NamespaceError | None:
        """Why a command is not even looked at; None: it is."""
        if self.full_disk is not None and self._stores_more(command):
            return self._no_room()
        return None if self.failure is None else self._unavailable()

    def _stores_more(self, command: Command) -> bool:
        """Whether a command wants something stored that was not there; what is there already needs no room."""
        match command:
            case Send() | SetSessionState() | CreateRule():
                return True
            case CreateQueue(path) | CreateTopic(path):
                return not self.machine.registry.holds(path)
            case CreateSubscription(topic, name):
                return not self.machine.registry.holds(f"{topic}/Subscriptions/{name}")
            case Settle(verdict=Abandon(properties) | Defer(properties)):
                return bool(properties)
            case _:
                return False

    def _no_room(self) -> QuotaExceeded:
        return QuotaExceeded(
            "the disk of the namespace is full: nothing new is stored until messages are received or room is made"
        )

    def _unavailable(self) -> StoreUnavailable:
        return StoreUnavailable(f"the namespace cannot write to its store and accepts nothing: {self.failure}")


def _weight(change: Change) -> int:
    match change:
        case InsertMessages(rows):
            return sum(len(row.payload) + _ROW_OVERHEAD_BYTES for row in rows)
        case InsertCopies(rows):
            return len(rows[0].payload) + _ROW_OVERHEAD_BYTES * len(rows)
        case ReplaceMessage(row):
            return len(row.payload) + _ROW_OVERHEAD_BYTES
        case PutSessionState(state=state):
            return len(state or b"") + _ROW_OVERHEAD_BYTES
        case NoteMessageIds(ids=ids):
            return _ROW_OVERHEAD_BYTES * len(ids)
        case _:
            return _ROW_OVERHEAD_BYTES
