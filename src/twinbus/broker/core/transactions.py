"""Transactions: work that is checked when it comes, kept, and done all at once when its transaction is committed.

Nothing of a transaction is stored before that. A commit reads what it needs (ids for duplicate detection, messages to
be cancelled), checks everything once more, and only then changes anything: all in one step, so in one change set. What
can be refused is refused before the first change.

A message that a transaction settles stays locked by its receiver until then, and nobody else can settle it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, assert_never

from twinbus.broker.core.commands import (
    CancelScheduled,
    Enlist,
    SendMessages,
    SetSessionState,
    SettleMessages,
)
from twinbus.broker.core.disk_reads import cancel, scheduled_rows
from twinbus.broker.core.registry import Registry, as_queue, as_session_queue, check_sendable
from twinbus.broker.core.replies import Step
from twinbus.broker.entities.entity import MessagingEntity, NumberedArrival, check_partitions
from twinbus.broker.entities.locks import MessageLock
from twinbus.broker.entities.queue import Queue
from twinbus.broker.entities.session_queue import SessionQueue
from twinbus.broker.entities.settlement import SettleableLocks, settle_all, settleable_locks, with_short_texts
from twinbus.broker.entities.timers import DueTimes
from twinbus.broker.message import Arrival
from twinbus.broker.operations import Done, Refused, Settled, TransactionTimedOut
from twinbus.broker.store.api import IdsRead, KnownIds, MessageRow, NamedRows, Read, ReadRequest, RowsRead
from twinbus.errors import (
    EntityNotFound,
    NamespaceError,
    NotAllowed,
    QuotaExceeded,
    TransactionRolledBack,
    UnknownTransaction,
)

TRANSACTION_MS = 120_000
"""How long a transaction may take from its first operation, as in the service."""
MESSAGES_MAX = 100
"""Messages sent in one transaction, as in the service."""
SETTLEMENTS_MAX = 1_000
"""Everything else in one transaction: the service does not say how much that may be, and it is kept in memory."""

Work = SendMessages | SettleMessages | SetSessionState | CancelScheduled


@dataclass(slots=True)
class Enlisted:
    """Work of a transaction, and where it is to be done."""

    entity: MessagingEntity
    work: Work
    locks: list[MessageLock] = field(default_factory=list)
    """Of the messages that are settled."""
    reserved: tuple[NumberedArrival, ...] = ()
    """Scheduled messages: their senders were told the sequences."""


@dataclass(slots=True)
class Transaction:
    number: int
    top_level: int | None = None
    """The queue or topic that it is about; the first work decides."""
    enlisted: list[Enlisted] = field(default_factory=list)
    messages: int = 0
    settlements: int = 0


@dataclass(slots=True)
class Commit:
    """A transaction that waits for what it needs from the disk."""

    transaction: Transaction
    request_id: int
    now_ms: int
    missing: int
    """How many reads are not answered yet."""
    found: list[Read] = field(default_factory=list)
    is_refused: bool = False


class Transactions:
    """The transactions of a namespace."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._open: dict[int, Transaction] = {}
        self._ends: DueTimes[int] = DueTimes()
        self._waiting: dict[ReadRequest, deque[Commit]] = {}
        """Commits by what they wait for."""

    def __len__(self) -> int:
        return len(self._open)

    def next_wake_ms(self) -> int | None:
        return self._ends.next_ms()

    def stores_more(self, number: int) -> bool:
        """Whether a commit would store something that was not there."""
        found = self._open.get(number)
        return found is not None and any(
            isinstance(each.work, SendMessages | SetSessionState) for each in found.enlisted
        )

    # --- work comes in ---

    def begin(self, number: int, step: Step) -> None:
        self._open[number] = Transaction(number)
        step.reply(Done())

    def enlist(self, command: Enlist[object], now_ms: int, step: Step) -> None:
        """Check work and keep it; work that is refused is no part of the transaction."""
        transaction, work = self._find(command.transaction), command.work
        if not isinstance(work, SendMessages | SettleMessages | SetSessionState | CancelScheduled):
            raise NotAllowed("this is not possible in a transaction: send and settle messages in it")
        entity = self._registry.find_or_make(work.path, step)
        if isinstance(work, SendMessages):
            check_sendable(entity, work.path)
        via = entity if command.via is None else self._registry.find(command.via)
        top_level = self._registry.top_level(via).entity_id
        if transaction.top_level not in (None, top_level):
            raise NotAllowed(
                "Local transactions cannot span multiple top-level entities such as queue or topic: "
                "use links of one session with the coordinator's, or send via the first entity"
            )
        entity.touch(now_ms)
        enlisted = Enlisted(entity, work)
        reply = self._check(transaction, enlisted, now_ms)
        if transaction.top_level is None:
            transaction.top_level = top_level
            self._ends.set(transaction.number, now_ms + TRANSACTION_MS)
        transaction.enlisted.append(enlisted)
        step.reply(reply)

    def _find(self, number: int) -> Transaction:
        found = self._open.get(number)
        if found is None:
            raise UnknownTransaction(
                "there is no such transaction: it has ended, or was rolled back "
                f"{TRANSACTION_MS // 1000} seconds after its first operation"
            )
        return found

    def _check(self, transaction: Transaction, enlisted: Enlisted, now_ms: int) -> Done | Settled:
        """Raise unless work can be done as things are now; counts it, and reserves what it needs."""
        entity, work = enlisted.entity, enlisted.work
        match work:
            case SendMessages(_, arrivals):
                _count_messages(transaction, len(arrivals))
                entity.check_acceptable(arrivals)
                if entity.settings.partitioned:
                    check_partitions(arrivals)
                if entity.duplicates is not None:
                    entity.check_intact()
                transaction.messages += len(arrivals)
                enlisted.reserved = tuple([(entity.take_sequence(), one) for one in arrivals if _is_scheduled(one)])
                return Done(tuple([sequence for sequence, _ in enlisted.reserved]))
            case SettleMessages(_, tokens):
                _count_settlements(transaction, len(tokens))
                found = self._check_settlement(as_queue(entity), work, now_ms)
                for lock in found.locks:
                    lock.transaction = transaction.number
                enlisted.locks = found.locks
                transaction.settlements += len(found.locks)
                return Settled(found.failures)
            case SetSessionState(_, name, state, holder):
                _count_settlements(transaction, 1)
                as_session_queue(entity).check_state(name, state, now_ms, holder=holder)
                transaction.settlements += 1
                return Done()
            case CancelScheduled(_, sequences):
                _count_settlements(transaction, len(sequences))
                entity.check_intact()
                transaction.settlements += len(sequences)
                return Done()
            case _:
                assert_never(work)

    def _check_settlement(self, queue: Queue, work: SettleMessages, now_ms: int) -> SettleableLocks:
        if work.session_id is not None and isinstance(queue, SessionQueue):
            queue.check_locked(work.session_id, now_ms)
        return settleable_locks(queue, work.tokens, with_short_texts(work.outcome), now_ms)

    # --- the end ---

    def roll_back(self, number: int) -> bool:
        """Forget the work of a transaction; False: it has ended already."""
        transaction = self._open.pop(number, None)
        self._ends.remove(number)
        if transaction is not None:
            _unmark(transaction)
        return transaction is not None

    def take_ended(self, now_ms: int, step: Step) -> None:
        """Roll back those that took too long."""
        for number in self._ends.take_due(now_ms):
            self.roll_back(number)
            step.immediate.append(TransactionTimedOut(number))

    def end(self, number: int, now_ms: int, step: Step, *, commits: bool) -> None:
        transaction = self._find(number)
        if not commits:
            self.roll_back(number)
            step.reply(Done())
            return
        del self._open[number]
        self._ends.remove(number)
        reads = list(self._reads(transaction, now_ms))
        commit = Commit(transaction, step.request_id, now_ms, len(reads))
        for request in reads:
            self._waiting.setdefault(request, deque()).append(commit)
        step.reads += reads
        if not reads:
            self._commit(commit, now_ms, step)

    def _reads(self, transaction: Transaction, now_ms: int) -> Iterator[ReadRequest]:
        for entity, sent in _sends(transaction).items():
            if entity.duplicates is not None:
                yield KnownIds(entity.entity_id, entity.keys_of(sent.all), now_ms)
        for each in transaction.enlisted:
            if isinstance(each.work, CancelScheduled):
                yield NamedRows(each.entity.entity_id, each.work.sequences)

    def is_reading(self, request: ReadRequest) -> bool:
        return request in self._waiting

    def resume(self, read: Read, now_ms: int, step: Step) -> None:
        """Go on with the commit that waits for this; only if one does (`is_reading`)."""
        commit = self._take_waiting(read.request)
        commit.found.append(read)
        if commit.missing == 0:
            if not commit.is_refused:
                self._commit(commit, now_ms, step)
            self._end_reads(commit)

    def _take_waiting(self, request: ReadRequest) -> Commit:
        waiting = self._waiting[request]
        commit = waiting.popleft()
        commit.missing -= 1
        if not waiting:
            del self._waiting[request]
        return commit

    def _end_reads(self, commit: Commit) -> None:
        for read in commit.found:
            entity = self._registry.by_id(read.request.entity_id)
            if entity is not None:
                entity.recent.read_ended(read.request)
                if entity.duplicates is not None:
                    entity.duplicates.forget()

    def refuse(self, request: ReadRequest, error: NamespaceError, step: Step) -> None:
        """A read failed: roll back the commit that waits for it. Its other reads are still answered."""
        commit = self._take_waiting(request)
        if not commit.is_refused:
            commit.is_refused = True
            _unmark(commit.transaction)
            step.reply_to(commit.request_id, Refused(_rolled_back(error)))
        if commit.missing == 0:
            self._end_reads(commit)

    def _commit(self, commit: Commit, now_ms: int, step: Step) -> None:
        """Do all of it, or nothing and say why."""
        try:
            stores = list(self._prepared_sends(commit, step))
            settlements = self._checked_settlements(commit.transaction, now_ms)
            states = self._checked_states(commit.transaction, now_ms)
            cancelled = self._found_scheduled(commit)
        except NamespaceError as error:
            _unmark(commit.transaction)
            step.reply_to(commit.request_id, Refused(_rolled_back(error)))
            return
        for store in stores:
            store()
        for queue, each in settlements:
            assert isinstance(each.work, SettleMessages)
            settle_all(queue, each.locks, with_short_texts(each.work.outcome), now_ms, step)
        for sessions, work in states:
            sessions.write_state(work.session_id, work.state, now_ms, step)
        for entity, rows in cancelled:
            cancel(entity, rows, step)
        step.reply_to(commit.request_id, Done())
        for queue in {id(queue): queue for queue, _ in settlements}.values():
            queue.deliver(now_ms, step)
        step.woken.extend(each.entity for each in commit.transaction.enlisted)

    def _prepared_sends(self, commit: Commit, step: Step) -> Iterator[Callable[[], object]]:
        known = {read.request.entity_id: read.known for read in commit.found if isinstance(read, IdsRead)}
        for entity, sent in _sends(commit.transaction).items():
            self._check_there(entity)
            check_sendable(entity, entity.row.path)
            if entity.duplicates is None:
                yield entity.prepare_send(sent.at_once, sent.reserved, commit.now_ms, step)
            else:
                entity.check_intact()
                ids = known[entity.entity_id]
                yield entity.prepare_new(sent.at_once, sent.reserved, ids, commit.now_ms, step)

    def _check_there(self, entity: MessagingEntity) -> None:
        if self._registry.by_id(entity.entity_id) is not entity:
            raise EntityNotFound(f"The messaging entity '{entity.row.path}' was deleted.")

    def _checked_settlements(self, transaction: Transaction, now_ms: int) -> list[tuple[Queue, Enlisted]]:
        checked, grown = [], defaultdict[int, int](int)
        for each in transaction.enlisted:
            if not isinstance(each.work, SettleMessages):
                continue
            self._check_there(each.entity)
            queue, tokens = as_queue(each.entity), tuple([lock.token for lock in each.locks])
            outcome, before = with_short_texts(each.work.outcome), grown[queue.entity_id]
            found = settleable_locks(queue, tokens, outcome, now_ms, transaction.number, before)
            for error in found.failures.values():
                raise error
            grown[queue.entity_id] = found.grown_bytes
            checked.append((queue, each))
        return checked

    def _checked_states(self, transaction: Transaction, now_ms: int) -> list[tuple[SessionQueue, SetSessionState]]:
        checked, grown = [], defaultdict[int, int](int)
        for each in transaction.enlisted:
            if isinstance(each.work, SetSessionState):
                self._check_there(each.entity)
                queue, work = as_session_queue(each.entity), each.work
                grown[queue.entity_id] += queue.check_state(
                    work.session_id, work.state, now_ms, holder=work.holder, more_bytes=grown[queue.entity_id]
                )
                checked.append((queue, work))
        return checked

    def _found_scheduled(self, commit: Commit) -> list[tuple[MessagingEntity, list[MessageRow]]]:
        found = []
        wanted = {read.request: read for read in commit.found if isinstance(read, RowsRead)}
        taken: set[tuple[int, int]] = set()
        for each in commit.transaction.enlisted:
            if isinstance(each.work, CancelScheduled):
                self._check_there(each.entity)
                entity, read = each.entity, wanted[NamedRows(each.entity.entity_id, each.work.sequences)]
                rows = [row for row in read.rows if not entity.recent.removed_since(row.sequence, read.as_of)]
                rows = [row for row in rows if (row.entity_id, row.sequence) not in taken]
                found.append((entity, scheduled_rows(each.work.sequences, rows)))
                taken.update((row.entity_id, row.sequence) for row in rows)
        return found


class SentMessages(NamedTuple):
    """What a transaction sends to one entity."""

    at_once: tuple[Arrival, ...]
    reserved: tuple[NumberedArrival, ...]

    @property
    def all(self) -> tuple[Arrival, ...]:
        return (*self.at_once, *[arrival for _, arrival in self.reserved])


def _sends(transaction: Transaction) -> dict[MessagingEntity, SentMessages]:
    """All messages for an entity together: they need space together."""
    sent: dict[MessagingEntity, SentMessages] = {}
    for each in transaction.enlisted:
        if isinstance(each.work, SendMessages):
            before = sent.get(each.entity, SentMessages((), ()))
            at_once = tuple([arrival for arrival in each.work.arrivals if not _is_scheduled(arrival)])
            sent[each.entity] = SentMessages(before.at_once + at_once, before.reserved + each.reserved)
    return sent


def _is_scheduled(arrival: Arrival) -> bool:
    return bool(arrival.due_at_ms) and not arrival.is_ping


def _count_messages(transaction: Transaction, more: int) -> None:
    if transaction.messages + more > MESSAGES_MAX:
        raise QuotaExceeded(f"Cannot send more than {MESSAGES_MAX} messages in a single transaction.")


def _count_settlements(transaction: Transaction, more: int) -> None:
    if transaction.settlements + more > SETTLEMENTS_MAX:
        raise QuotaExceeded(f"a transaction settles, or sets, at most {SETTLEMENTS_MAX} things")


def _unmark(transaction: Transaction) -> None:
    for each in transaction.enlisted:
        for lock in each.locks:
            lock.transaction = None


def _rolled_back(error: NamespaceError) -> TransactionRolledBack:
    return TransactionRolledBack(f"the transaction is rolled back, nothing of it has happened: {error}")
