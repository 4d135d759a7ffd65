"""The commit gate: between the machine that decides and the store that writes.

A reply is sent only when the changes it reports are committed. When a commit fails, nothing that was
decided since can be trusted: every waiting request is refused, the machine is thrown away, and a new one
is built from what the store really holds. When a read fails the machine is thrown away too, but what it has
submitted may still be written: those requests get their true reply before the failure is announced.
When a read finds damage, only that entity cannot be received from any more; all else continues.

The continuations of requests are kept here: a command and its reply are data, and `ask` takes the callable that gets
the reply. The server and the simulator both run this class.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar, assert_never

from twinbus.broker.core.commands import (
    Command,
    CreateQueue,
    CreateRule,
    CreateSubscription,
    CreateTopic,
    EndTransaction,
    Enlist,
    SendMessages,
    SetSessionState,
    SettleMessages,
)
from twinbus.broker.core.message_events import MessageEvents
from twinbus.broker.core.namespace_machine import NamespaceMachine
from twinbus.broker.core.replies import NOBODY, AddressedReply, Notice, Reply, Step
from twinbus.broker.operations import Abandon, Defer, Done, Refused
from twinbus.broker.store.api import (
    AdvanceSequence,
    Change,
    CommitFailed,
    Committed,
    DeleteMessages,
    DiskSpaceChanged,
    DropEntity,
    IdsRead,
    InsertCopies,
    InsertMessages,
    PutEntity,
    PutSessionState,
    Read,
    ReadFailed,
    RememberMessageIds,
    ReplaceMessage,
    Report,
    RowsRead,
    SessionsRead,
    StateRead,
    Store,
    StoredNamespace,
)
from twinbus.errors import NamespaceError, QuotaExceeded, StoreDamaged, StoreError, StoreUnavailable

log = logging.getLogger("twinbus.namespace")

R = TypeVar("R")

_ROW_OVERHEAD_BYTES = 200
"""What a row weighs in memory beside its payload, roughly."""


class CommitGate:
    def __init__(
        self,
        store: Store,
        build: Callable[[StoredNamespace], NamespaceMachine],
        notify: Callable[[Notice], None],
        on_failure: Callable[[str], None],
        *,
        on_events: Callable[[MessageEvents], None] | None = None,
        flush: Callable[[], None] = lambda: None,
        on_error: Callable[[Reply | Notice], None] | None = None,
    ) -> None:
        """`notify` takes what the namespace says without being asked; `on_failure` is called once if the store breaks.

        By then every request has its reply, and nothing is sent until `recover`. `on_events` takes what happened to
        messages once it is durable, if the machine records it. `flush` is called after the replies of a commit, before
        the machine goes on, which can take a while. `on_error` is called while an exception of a continuation or of
        `notify` is handled, and the others go on; None: it is raised.
        """
        self._store = store
        self._build = build
        self._notify = notify
        self._on_failure = on_failure
        self._on_events = on_events
        self._flush = flush
        self._on_error = on_error
        self._request_ids = count(NOBODY + 1)
        self._waiting: dict[int, Callable[[Any], None]] = {}
        """Continuations of requests without a reply; `ask` checks that each takes the reply of its command."""
        self._held: deque[tuple[int, int, list[AddressedReply | Notice], MessageEvents | None]] = deque()
        self._committed = self._loaded = 0
        self._announced = False
        self.failure: str | None = None
        """Why no command is accepted at the moment; None while all is well."""
        self.full_disk: str | None = None
        """Why no new messages are accepted, while all else continues; None while there is disk space."""
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

    # --- requests ---

    def ask(self, command: Command[R], now_ms: int, on_reply: Callable[[R | Refused], None]) -> None:
        """Carry out a command; `on_reply` is called once, when the reply is durable."""
        request_id = next(self._request_ids)
        self._waiting[request_id] = on_reply
        try:
            self._apply(command, now_ms, request_id)
        except BaseException:
            self._waiting.pop(request_id, None)  # the caller hears of it by the exception
            raise

    def do(self, command: Command[object], now_ms: int) -> None:
        """Carry out a command whose reply nobody needs."""
        self._apply(command, now_ms, NOBODY)

    def _apply(self, command: Command[object], now_ms: int, request_id: int) -> None:
        refusal = self._refusal_of(command)
        if refusal is None:
            self._carry_on(self.machine.apply(command, now_ms, request_id))
        else:
            if isinstance(command, EndTransaction):  # what cannot be committed is over all the same
                self.machine.transactions.roll_back(command.transaction)
            self._send(AddressedReply(request_id, Refused(refusal)))

    def _send(self, sent: AddressedReply | Notice) -> None:
        """Call the continuation of a request, if it has one, or pass a notice on."""
        try:
            if isinstance(sent, AddressedReply):
                if sent.request_id != NOBODY:
                    self._waiting.pop(sent.request_id)(sent.reply)
            else:
                self._notify(sent)
        except Exception:
            if self._on_error is None:
                raise
            self._on_error(sent.reply if isinstance(sent, AddressedReply) else sent)

    # --- reports of the store ---

    def report(self, report: Report, now_ms: int) -> None:
        """Act on a report of the store."""
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
            case DiskSpaceChanged(full):
                self.full_disk = full
                if full is None:
                    self.machine.hold_copies(False)
            case _:
                assert_never(report)
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
        if self._held:  # messages on their way to a receiver go before the notice that it gets no more
            self._held[-1][2].extend(step.replies)
            step.replies = []
        self._carry_on(step)

    def _commit(self, number: int, now_ms: int) -> None:
        if number <= self._committed:
            return
        self._committed = number
        while self._held and self._held[0][0] <= number:
            _, weight, replies, events = self._held.popleft()
            self.unwritten_bytes -= weight
            if events is not None:
                self._report_events(events)
            for reply in replies:
                self._send(reply)
        self._flush()
        if self.failure is None:
            self._carry_on(self.machine.apply(Committed(number), now_ms))

    def _carry_on(self, step: Step) -> None:
        for request_id in step.dropped:
            self._waiting.pop(request_id, None)
        if step.changes:
            weight = sum(map(_weight, step.changes))
            self.unwritten_bytes += weight
            self._held.append((step.number, weight, step.replies, step.events))
            self._store.submit(step.number, tuple(step.changes))
        else:
            if step.events is not None:
                self._report_events(step.events)
            for reply in step.replies:
                self._send(reply)
        for reply in step.immediate:
            self._send(reply)
        for request in step.reads:
            self._store.request(request)

    def _report_events(self, events: MessageEvents) -> None:
        if self._on_events is not None and events:
            self._on_events(events)

    # --- failures ---

    def _fail(self, reason: str) -> None:
        """Take no more work. Requests that wait for rows are refused; what waits for a commit may still get it."""
        self.failure = reason
        self._announced = False
        held = {
            each.request_id for _, _, replies, _ in self._held for each in replies if isinstance(each, AddressedReply)
        }
        for request_id in [request_id for request_id in self._waiting if request_id not in held]:
            self._send(AddressedReply(request_id, Refused(self._unavailable())))

    def _refuse_held(self) -> None:
        """Refuse the requests whose changes were not written. A delivery that waits for its removal is not made."""
        held, self._held = self._held, deque()
        self.unwritten_bytes = 0
        for _, _, replies, _ in held:
            for reply in replies:
                self._refuse(reply)

    def _refuse(self, sent: AddressedReply | Notice) -> None:
        if isinstance(sent, AddressedReply):
            request_id, reply = sent
            if isinstance(reply, Done) and self.full_disk is not None:
                reply = Refused(self._no_room())
            elif not isinstance(reply, Refused):
                reply = Refused(self._unavailable())
            self._send(AddressedReply(request_id, reply))

    def _refusal_of(self, command: Command[object]) -> NamespaceError | None:
        """Why a command is not even looked at; None: it is."""
        if self.full_disk is not None and self._stores_more(command):
            return self._no_room()
        return None if self.failure is None else self._unavailable()

    def _stores_more(self, command: Command[object]) -> bool:
        """Whether a command wants something stored that was not there; what is there already needs no room."""
        match command:
            case SendMessages() | SetSessionState() | CreateRule():
                return True
            case Enlist(work=work):
                return self._stores_more(work)
            case EndTransaction(transaction, commits):
                return commits and self.machine.transactions.stores_more(transaction)
            case CreateQueue(path) | CreateTopic(path):
                return self.machine.registry.get(path) is None
            case CreateSubscription(topic, name):
                return self.machine.registry.get(f"{topic}/Subscriptions/{name}") is None
            case SettleMessages(outcome=Abandon(properties) | Defer(properties)):
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
        case RememberMessageIds(ids=ids):
            return _ROW_OVERHEAD_BYTES * len(ids)
        case AdvanceSequence() | DeleteMessages() | PutEntity() | DropEntity():
            return _ROW_OVERHEAD_BYTES
        case _:
            assert_never(change)
