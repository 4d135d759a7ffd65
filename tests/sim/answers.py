"""What must be true of every answer to a command, whatever the disk does.

Every question gets exactly one answer; the answer fits what the asker knew; and once given it stays true.
"""

from __future__ import annotations

from collections.abc import Callable

from sim.accounts import Account, Accounts, Answer, Ending, Home, Question
from sim.invariants import MARK, Invariants, Violation, check
from twinbus.broker.core.commands import (
    AcceptSession,
    CancelScheduled,
    CreateQueue,
    CreateSubscription,
    CreateTopic,
    DeleteEntity,
    OpenReceiver,
    PeekMessages,
    ReceiveDeferred,
    RenewMessageLocks,
    RenewSessionLock,
    SendMessages,
    SettleMessages,
)
from twinbus.broker.core.registry import DEAD_LETTER_SUFFIX
from twinbus.broker.core.replies import (
    FoundRow,
    LocksRenewed,
    MessagesFound,
    Reply,
)
from twinbus.broker.operations import (
    Abandon,
    Complete,
    DeadLetter,
    Defer,
    Done,
    ReceiveMode,
    Refused,
    Release,
    SessionAccepted,
    Settled,
    SettlementOutcome,
)
from twinbus.broker.store.api import MessageState
from twinbus.errors import (
    EntityNotFound,
    LockLost,
    MessageNotFound,
    NamespaceError,
    NotAllowed,
    OperationTimedOut,
    QuotaExceeded,
    ServerBusy,
    SessionCannotBeLocked,
    SessionLockLost,
    StoreUnavailable,
)

_NOTE_BYTES = 500
"""What notes on a message may add to its size, at most."""


class Answers:
    def __init__(
        self,
        accounts: Accounts,
        invariants: Invariants,
        now: Callable[[], int],
        is_failing: Callable[[], bool],
        is_full: Callable[[], bool],
    ) -> None:
        """Whether the store has failed, or the disk is full, so that refusals for that reason are in order."""
        self._accounts = accounts
        self._invariants = invariants
        self._now = now
        self._is_failing = is_failing
        self._is_full = is_full

    def take(self, number: int, reply: Reply) -> None:
        """Check the answer to a question, and enter it."""
        question = self._accounts.questions.pop(number, None)
        if question is None and isinstance(reply, Refused) and number in self._accounts.left:
            return
        if question is None:
            raise Violation(f"an answer to nothing, or a second one: {reply!r:.200}")
        match reply:
            case Done(sequences=sequences):
                self._done(question, sequences)
            case Refused(error=error):
                self._refused(question, error)
            case Settled(failures=failures):
                self._settled(question, failures)
            case LocksRenewed(until_ms=until_ms):
                self._renewed(question, until_ms)
            case MessagesFound(found=found):
                self._found(question, found)
            case SessionAccepted():
                self._accepted(question, reply)
            case _:
                raise Violation(f"{question.command!r:.100} was answered with {reply!r:.100}")

    def _accepted(self, question: Question, reply: SessionAccepted) -> None:
        command, home, now_ms = question.command, question.home, self._now()
        if not isinstance(command, AcceptSession) or home is None:
            raise Violation(f"{command!r:.200} was answered with a session")
        self._count("sessions accepted")
        name = reply.session_id
        check(command.session_id in (None, name), f"{command.session_id!r} was asked for and {name!r} given")
        check(self._accounts.holder(home, name, now_ms) is None, f"the session {name!r} was given to two receivers")
        check(reply.locked_until_ms == now_ms + home.settings.lock_ms, "a session was locked for another time")
        if command.session_id is None:
            known = [each for each in self._accounts.of(home) if each.session == name and each.ending is None]
            check(bool(known), f"the session {name!r} was given though it never had a message")
        reader = self._accounts.readers[command.receiver]
        reader.is_waiting, reader.session, reader.locked_until_ms = False, name, reply.locked_until_ms

    def _count(self, what: str) -> None:
        self._invariants.seen[what] += 1

    def _done(self, question: Question, sequences: tuple[int, ...]) -> None:
        home = question.home
        match question.command:
            case SendMessages():
                self._stored(question, sequences)
            case CancelScheduled(sequences=asked):
                check(len(question.accounts) == len(set(asked)), "a message was cancelled that was never scheduled")
                for account in question.accounts:
                    check(account.is_stored, f"message {account.message_id} was cancelled after its end")
                    account.ending = Ending.CANCELLED
            case CreateQueue() | CreateTopic() | CreateSubscription() if home is not None:
                home.exists = True
            case DeleteEntity() if home is not None:
                self.drop(home)
            case OpenReceiver():
                pass
            case command:
                raise Violation(f"{command!r:.200} was answered with Done")

    def _stored(self, question: Question, sequences: tuple[int, ...]) -> None:
        home, command = question.home, question.command
        sent = len(command.arrivals) if isinstance(command, SendMessages) else 0
        check(len(sequences) == sent, "a send was told another number of sequences than it had")
        assert home is not None
        for sequence in sequences:
            check(sequence > home.last_sequence, f"sequence {sequence} was given after {home.last_sequence}")
            home.last_sequence = sequence
        for account in question.accounts:
            account.answer = Answer.STORED
            self._invariants.seen["copies"] += account.is_copy
        self._invariants.seen["repeated"] += question.is_repeat
        if home is not self._accounts.topic and not question.is_repeat:
            for account, sequence in zip(question.accounts, sequences, strict=True):
                account.sequence = sequence

    def drop(self, home: Home) -> None:
        """A queue is deleted: with everything in it."""
        home.is_gone = True
        for account in self._accounts.of(home):
            if account.ending is None and account.answer is not Answer.REFUSED:
                account.ending = Ending.DROPPED
                self._accounts.give_back(account)

    def _refused(self, question: Question, error: NamespaceError) -> None:
        self._count(f"refused: {type(error).__name__}")
        command, home = question.command, question.home
        if isinstance(command, SendMessages):
            for account in question.accounts:
                account.answer = Answer.REFUSED
        if isinstance(error, StoreUnavailable):
            check(self._is_failing(), f"{command!r:.100} was refused for a store that works")
            self._not_done(question)
            return
        match command, error:
            case _, EntityNotFound():
                check(home is not None and not home.exists, f"{command!r:.100} did not find an existing queue")
                self._not_done(question)
            case _, QuotaExceeded() if self._is_full():
                self._count("refused: the disk is full")
                self._not_done(question)
            case SendMessages(), QuotaExceeded():
                homes = {account.home for account in question.accounts}
                has_no_room = any(map(self._may_be_full, homes)) or self._may_need_all_room(home)
                check(has_no_room, "a queue that has room refused a message")
            case AcceptSession(session_id=str(name)), SessionCannotBeLocked() if home is not None:
                holder = self._accounts.holder(home, name, question.asked_at_ms)
                check(holder is not None, f"the session {name!r} was refused though it is free")
                self._not_done(question)
            case AcceptSession(session_id=None), OperationTimedOut():
                self._not_done(question)
            case RenewSessionLock(session_id=name), SessionLockLost() if home is not None:
                check(self._accounts.holder(home, name, self._now()) is None, "a lock that holds was not renewed")
            case ReceiveDeferred(session_id=name), SessionLockLost() if home is not None:
                check(self._accounts.holder(home, name, self._now()) is None, "a session was not recognised")
            case ReceiveDeferred(), ServerBusy() if home is not None:
                locked = [each for each in self._accounts.of(home) if each.lock is not None]
                check(locked != [], "a deferred message was not lent though nobody holds any")
            case RenewMessageLocks(tokens=tokens), LockLost():
                check(len(question.tokens) < len(set(tokens)), "a lock that holds was not renewed")
            case CancelScheduled(), MessageNotFound():
                check(not self._all_cancellable(question), "a scheduled message could not be cancelled")
            case ReceiveDeferred(), MessageNotFound():
                check(not self._all_deferred(question), "a deferred message could not be received")
            case _:
                raise Violation(f"{command!r:.200} was refused: {error}")

    def _may_be_full(self, home: Home) -> bool:
        """Whether the messages that are in a queue or are on their way there may come to more than it holds."""
        there = (account for account in self._accounts.of(home) if account.ending is None)
        return sum(account.size + _NOTE_BYTES for account in there) > home.settings.size_bytes_max

    def _may_need_all_room(self, home: Home | None) -> bool:
        """Whether a send may have been one to a topic that needs room in every subscription, whoever gets it."""
        topic = self._accounts.topic
        return home is topic is not None and self._accounts.published_bytes > topic.settings.size_bytes_max

    def _not_done(self, question: Question) -> None:
        if isinstance(question.command, DeleteEntity) and question.home is not None:
            question.home.exists = question.home.in_force = True
        if isinstance(question.command, CreateSubscription) and question.home is not None:
            question.home.in_force, question.home.is_gone = False, True
        if isinstance(question.command, OpenReceiver | AcceptSession):
            reader = self._accounts.readers.get(question.command.receiver)
            if reader is not None:
                reader.is_open = reader.is_waiting = False
        for account in question.tokens.values():
            if account.lock is not None:
                account.lock.asked = None

    def _all_cancellable(self, question: Question) -> bool:
        return self._is_alone(question) and all(
            account.is_stored and account.due_at_ms is not None and account.due_at_ms > self._now()
            for account in question.accounts
        )

    def _all_deferred(self, question: Question) -> bool:
        command = question.command
        return (
            isinstance(command, ReceiveDeferred)
            and self._is_alone(question)
            and all(
                account.is_stored
                and account.lock is None
                and account.deferred_as in command.sequences
                and account.is_dead is command.path.endswith(DEAD_LETTER_SUFFIX)
                for account in question.accounts
            )
        )

    def _is_alone(self, question: Question) -> bool:
        """Whether everything asked for is known, and nobody else asks for any of it."""
        asked = question.command.sequences if isinstance(question.command, CancelScheduled | ReceiveDeferred) else ()
        others = {account for other in self._accounts.questions.values() for account in other.accounts}
        return len(question.accounts) == len(set(asked)) and others.isdisjoint(question.accounts)

    def _renewed(self, question: Question, until_ms: tuple[int, ...]) -> None:
        if isinstance(question.command, RenewSessionLock):
            self._session_renewed(question, question.command.session_id, until_ms)
            return
        tokens = question.command.tokens if isinstance(question.command, RenewMessageLocks) else ()
        check(len(question.tokens) == len(set(tokens)), "a lock that had ended was renewed")
        for token, until in zip(tokens, until_ms, strict=True):
            lock = question.tokens[token].lock
            if lock is not None and question.home is not None:
                check(until == question.asked_at_ms + question.home.settings.lock_ms, "a lock got another time")
                lock.until_ms = until

    def _session_renewed(self, question: Question, name: str, until_ms: tuple[int, ...]) -> None:
        assert question.home is not None
        holder = self._accounts.holder(question.home, name, question.asked_at_ms)
        if holder is None:
            raise Violation("a session that nobody has was renewed")
        check(until_ms == (question.asked_at_ms + question.home.settings.lock_ms,), "a session got another time")
        holder.locked_until_ms = until_ms[0]
        for account in self._accounts.by_token.values():
            if account.lock is not None and account.lock.holder == holder.name:
                account.lock.until_ms = until_ms[0]

    def _found(self, question: Question, found: tuple[FoundRow, ...]) -> None:
        command, home = question.command, question.home
        if home is None or not isinstance(command, PeekMessages | ReceiveDeferred):
            raise Violation(f"{command!r:.200} was answered with messages")
        is_dead = command.path.endswith(DEAD_LETTER_SUFFIX)
        sequences = [lent.row.sequence for lent in found]
        check(sequences == sorted(set(sequences)), "messages were found in the wrong order, or twice")
        if isinstance(command, PeekMessages):
            check(len(found) <= command.most, "a peek got more than it asked for")
            check(all(sequence >= command.from_sequence for sequence in sequences), "a peek looked back")
            for lent in found:
                self._invariants.known(lent.row, home, is_dead)
            return
        check(sequences == sorted(set(command.sequences)), "some deferred messages came without the others")
        check(command.mode is ReceiveMode.PEEK_LOCK or all(lent.token is None for lent in found), "locked and deleted")
        for lent in found:
            check(lent.row.state is MessageState.DEFERRED, f"message {lent.row.message_id} was not deferred")
            self._invariants.handed(lent.row, home, is_dead, lent.token, lent.locked_until_ms)

    # --- settlements ---

    def _settled(self, question: Question, failures: dict[bytes, NamespaceError]) -> None:
        command = question.command
        if not isinstance(command, SettleMessages):
            raise Violation(f"{command!r:.200} was answered as a settlement")
        for token in command.tokens:
            account, failure = question.tokens.get(token), failures.get(token)
            if account is None:
                check(isinstance(failure, LockLost), "a lock that did not hold was settled")
            elif isinstance(failure, NotAllowed) and isinstance(command.outcome, DeadLetter) and account.is_dead:
                if account.lock is not None:
                    account.lock.asked = None
            else:
                check(failure is None, f"message {account.message_id} was not settled though its lock held: {failure}")
                self._settle(account, command.outcome)

    def _settle(self, account: Account, outcome: SettlementOutcome) -> None:
        lock = account.lock
        self._count(type(outcome).__name__)
        if isinstance(outcome, Release) or lock is None:
            return  # given back when it was asked for
        self._accounts.give_back(account)
        match outcome:
            case Complete():
                account.ending = Ending.COMPLETED
                return
            case Abandon():
                account.failures = {lock.failures + 1}
                is_last = lock.failures + 1 >= account.home.settings.max_delivery_count
            case Defer():
                account.deferred_as, is_last = lock.sequence, False
            case DeadLetter():
                account.dead_letter_asked = is_last = True
        if outcome.properties and MARK in outcome.properties:
            account.marks = {outcome.properties[MARK]}
        if is_last and not account.is_dead:
            account.deferred_as = None
