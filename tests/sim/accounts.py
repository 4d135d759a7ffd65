"""What the simulated applications know of their messages: asked, answered, received, settled.

The accounts are kept from what clients see, never from the machine's own state. `invariants.py` holds every
reply against them, `balance.py` what the disk holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum

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
from twinbus.broker.entities.settings import QueueSettings
from twinbus.broker.operations import ReceiveMode, SettlementOutcome

Asking = (
    AcceptSession
    | RenewSessionLock
    | CreateQueue
    | CreateTopic
    | CreateSubscription
    | DeleteEntity
    | SendMessages
    | CancelScheduled
    | OpenReceiver
    | SettleMessages
    | RenewMessageLocks
    | PeekMessages
    | ReceiveDeferred
)
"""The commands that want an answer."""


class Answer(Enum):
    """What a sender was answered."""

    NONE = "nothing yet"
    STORED = "stored"
    REFUSED = "refused"


class Ending(Enum):
    """How a message left the namespace for good."""

    COMPLETED = "completed"
    HANDED_OUT = "handed out and deleted"
    CANCELLED = "cancelled"
    DROPPED = "dropped with its queue"
    EXPIRED = "expired"


@dataclass(slots=True, eq=False)
class Home:
    """One life of a queue or subscription: one that is deleted and created again is another home."""

    path: str
    settings: QueueSettings
    wants: Callable[[str, int], bool] | None = None
    """Of a subscription: whether its rules take a message with this label and this number. None: a queue."""
    in_force: bool = False
    """Of a subscription: its creation was asked for and not refused, its deletion not yet asked for."""
    exists: bool = False
    """Its creation was answered, its deletion not yet asked for."""
    is_gone: bool = False
    last_sequence: int = 0
    """The highest sequence number that a sender was answered."""
    owners: dict[tuple[bool, int], str] = field(default_factory=dict)
    """Which message was seen under a sequence, in the queue (False) or among its dead letters (True)."""

    @property
    def has_sessions(self) -> bool:
        return self.settings.requires_session


@dataclass(slots=True, eq=False)
class Lock:
    """A loan, as its receiver sees it."""

    token: bytes
    life: int
    until_ms: int
    failures: int
    """The delivery count it was lent with."""
    sequence: int
    is_dead: bool
    size: int
    receiver: int | None
    """None: it was asked for by its sequence."""
    holder: int | None = None
    """Who has the session it belongs to: it is locked as long as that is."""
    asked: SettlementOutcome | None = None
    """What its receiver has asked for; the answer is still to come."""


@dataclass(slots=True, eq=False)
class Account:
    """One message."""

    message_id: str
    home: Home
    sent_at_ms: int
    size: int
    ttl_ms: int | None
    """Its own time to live, at most the queue's."""
    due_at_ms: int | None
    is_copy: bool = False
    """Its topic made it: others may have the same id."""
    session: str | None = None
    answer: Answer = Answer.NONE
    ending: Ending | None = None
    sequence: int = 0
    """What its sender was answered."""
    failures: set[int] = field(default_factory=lambda: {0})
    """What the delivery count of its next delivery may be."""
    marks: set[int | None] = field(default_factory=lambda: {None})
    """What its property `mark` may be."""
    lock: Lock | None = None
    delivered_in_life: int = -1
    is_dead: bool = False
    """A receiver dead-lettered it, or it was seen among the dead letters."""
    dead_letter_asked: bool = False
    deferred_as: int | None = None
    """The sequence it can be received by, if its deferral was answered."""

    @property
    def key(self) -> str:
        return key_of(self.message_id, self.home)

    @property
    def is_stored(self) -> bool:
        """Whether it must still be somewhere (if it has not expired)."""
        return self.answer is Answer.STORED and self.ending is None

    @property
    def expires_at_ms(self) -> int | None:
        """The earliest time at which it may expire."""
        if self.ttl_ms is None:
            return None
        return max(self.sent_at_ms, self.due_at_ms or 0) + self.ttl_ms

    def is_locked(self, life: int, now_ms: int) -> bool:
        lock = self.lock
        return lock is not None and lock.life == life and lock.asked is None and lock.until_ms > now_ms


def key_of(message_id: str | None, home: Home) -> str:
    """What tells copies of a message apart: where they are."""
    return f"{message_id}@{home.path}"


@dataclass(slots=True, eq=False)
class Reader:
    """A receiver, as the application sees it."""

    name: int
    home: Home
    is_dead: bool
    mode: ReceiveMode
    life: int
    is_open: bool = True
    is_paused: bool = False
    is_draining: bool = False
    session: str | None = None
    """The session it has, in a queue with sessions."""
    is_waiting: bool = False
    """It has asked for a session and has none yet."""
    locked_until_ms: int = 0
    """The end of its session's lock."""
    received: int = 0
    """Counted as credit is: what a drain gave back counts as received."""
    credit_limit: int = 0
    credit_limit_max: int = 0
    last_fresh_sequence: int = 0

    @property
    def path(self) -> str:
        return self.home.path + DEAD_LETTER_SUFFIX if self.is_dead else self.home.path

    def has_session(self, now_ms: int) -> bool:
        return self.is_open and self.session is not None and self.locked_until_ms > now_ms

    @property
    def is_ready(self) -> bool:
        return self.is_open and not self.is_paused and self.received < self.credit_limit


@dataclass(slots=True, eq=False)
class Question:
    """A command that has no answer yet."""

    command: Asking
    asked_at_ms: int
    accounts: tuple[Account, ...] = ()
    tokens: dict[bytes, Account] = field(default_factory=dict)
    """For a settlement or renewal: the locks that held when it was asked."""
    home: Home | None = None
    is_repeat: bool = False
    """A send of something that was stored before."""


class Accounts:
    """All messages, receivers and open questions of a simulation."""

    def __init__(self) -> None:
        self.homes: dict[str, Home] = {}
        self.topic: Home | None = None
        """Its subscriptions are among the homes."""
        self.published_bytes = 0
        """What was sent to the topic, all in all."""
        self.by_key: dict[str, Account] = {}
        self.readers: dict[int, Reader] = {}
        self.questions: dict[int, Question] = {}
        self.left: set[int] = set()
        """Questions whose askers are gone: a refusal may still be on its way."""
        self.by_token: dict[bytes, Account] = {}
        """Locks of this life whose receiver has not settled them yet, ended ones too."""
        self.life = 0
        """Counts crashes and failures: locks and receivers end with a life."""

    def of(self, home: Home) -> Iterator[Account]:
        return (account for account in self.by_key.values() if account.home is home)

    def lend(self, account: Account, lock: Lock) -> None:
        account.lock = lock
        account.failures = {lock.failures}
        self.by_token[lock.token] = account

    def forget_question(self, receiver: int) -> None:
        """Who asked for a session is gone: nobody answers."""
        for number, question in self.questions.items():
            if isinstance(question.command, AcceptSession) and question.command.receiver == receiver:
                del self.questions[number]
                self.left.add(number)
                return

    def give_back(self, account: Account) -> None:
        """Nobody has the message any more."""
        if account.lock is not None:
            self.by_token.pop(account.lock.token, None)
            account.lock = None

    def holder(self, home: Home, session: str | None, now_ms: int) -> Reader | None:
        """Who has a session of a queue."""
        readers = (reader for reader in self.open_readers() if reader.home is home and not reader.is_dead)
        return next((reader for reader in readers if reader.session == session and reader.has_session(now_ms)), None)

    def held_bytes(self, receiver: int, now_ms: int) -> int:
        """What a receiver has and has not settled."""
        locks = [account.lock for account in self.by_token.values() if account.is_locked(self.life, now_ms)]
        return sum(lock.size for lock in locks if lock is not None and lock.receiver == receiver)

    def open_readers(self) -> list[Reader]:
        return [reader for reader in self.readers.values() if reader.is_open]

    def end_life(self, now_ms: int) -> None:
        """The process died or threw its machine away: locks, receivers and credit are gone."""
        for account in self.by_key.values():
            lock = account.lock
            if lock is not None:
                if lock.asked is not None or lock.until_ms <= now_ms:
                    account.failures = {lock.failures, lock.failures + 1}
                account.lock = None
        self.by_token.clear()
        self.readers.clear()
        self.life += 1
