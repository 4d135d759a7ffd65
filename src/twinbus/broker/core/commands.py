"""What can be asked of a namespace, as values. Each command names the reply that it leads to.

A `path` is an entity's address: `orders`, `events/Subscriptions/audit`, or either with `/$deadletterqueue`; case does
not matter. Who asked is not part of a command: `CommitGate.ask` takes the continuation as an argument.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Never, TypeVar

from twinbus.broker.core.replies import (
    EntitiesFound,
    LocksRenewed,
    MessagesFound,
    QueueDescription,
    RulesFound,
    SessionsFound,
    SessionStateFound,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.broker.entities.settings import QueueSettings, TopicSettings
from twinbus.broker.entities.topics.rules import Rule
from twinbus.broker.message import Arrival
from twinbus.broker.operations import Done, ReceiveMode, SenderOpened, SessionAccepted, Settled, SettlementOutcome

R_co = TypeVar("R_co", covariant=True)


class Command(Generic[R_co]):
    """Something asked of the namespace that is answered with an `R_co`, or with `Refused`; `Never`: with nothing."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class CreateQueue(Command[Done]):
    path: str
    settings: QueueSettings


@dataclass(frozen=True, slots=True)
class UpdateQueue(Command[Done]):
    """Give a queue other settings, all of them; what is stored already keeps its times and counts."""

    path: str
    settings: QueueSettings


@dataclass(frozen=True, slots=True)
class CreateTopic(Command[Done]):
    path: str
    settings: TopicSettings


@dataclass(frozen=True, slots=True)
class UpdateTopic(Command[Done]):
    path: str
    settings: TopicSettings


@dataclass(frozen=True, slots=True)
class CreateSubscription(Command[Done]):
    topic: str
    name: str
    settings: QueueSettings
    rule: Rule | None = None
    """Its first rule; None: one that takes every message."""


@dataclass(frozen=True, slots=True)
class UpdateSubscription(Command[Done]):
    topic: str
    name: str
    settings: QueueSettings


@dataclass(frozen=True, slots=True)
class CreateRule(Command[Done]):
    path: str
    """The subscription's."""
    rule: Rule


Creation = CreateQueue | CreateTopic | CreateSubscription | CreateRule


@dataclass(frozen=True, slots=True)
class UpdateRule(Command[Done]):
    path: str
    rule: Rule


@dataclass(frozen=True, slots=True)
class DeleteRule(Command[Done]):
    path: str
    name: str


@dataclass(frozen=True, slots=True)
class GetRule(Command[Rule]):
    """Ask for a rule."""

    path: str
    name: str


@dataclass(frozen=True, slots=True)
class ListRules(Command[RulesFound]):
    """Ask for up to `top` rules of a subscription, by name."""

    path: str
    skip: int
    top: int


@dataclass(frozen=True, slots=True)
class DeleteEntity(Command[Done]):
    """Remove a queue, topic or subscription with everything in it."""

    path: str


@dataclass(frozen=True, slots=True)
class FindEntity(Command[Done]):
    """Ask whether an entity exists."""

    path: str


@dataclass(frozen=True, slots=True)
class GetEntity(Command[QueueDescription | TopicDescription | SubscriptionDescription]):
    """Ask for an entity's settings and counts."""

    path: str


@dataclass(frozen=True, slots=True)
class ListQueues(Command[EntitiesFound[QueueDescription]]):
    """Ask for up to `top` queues, by name, after the first `skip` of them."""

    skip: int
    top: int


@dataclass(frozen=True, slots=True)
class ListTopics(Command[EntitiesFound[TopicDescription]]):
    """The same for topics."""

    skip: int
    top: int


@dataclass(frozen=True, slots=True)
class ListSubscriptions(Command[EntitiesFound[SubscriptionDescription]]):
    """The same for the subscriptions of a topic."""

    topic: str
    skip: int
    top: int


@dataclass(frozen=True, slots=True)
class OpenSender(Command[SenderOpened]):
    """Ask whether an entity can be sent to, and how large a message may be."""

    path: str


@dataclass(slots=True)  # not frozen, like the others made per message: that takes three times as long
class SendMessages(Command[Done]):
    """Store these messages, all or none."""

    path: str
    arrivals: tuple[Arrival, ...]


@dataclass(frozen=True, slots=True)
class CancelScheduled(Command[Done]):
    """Remove scheduled messages before their time, all or none."""

    path: str
    sequences: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OpenReceiver(Command[Done]):
    receiver: int
    """Chosen by the asker, unique among all receivers of the process."""
    path: str
    mode: ReceiveMode


@dataclass(frozen=True, slots=True)
class AcceptSession(Command[SessionAccepted]):
    """Open a receiver for one session; the reply may take a while."""

    receiver: int
    path: str
    mode: ReceiveMode
    session_id: str | None
    """None: the next one that has messages and that nobody else has."""
    wait_ms: int = 65_000
    """How long to wait for one."""


@dataclass(frozen=True, slots=True)
class RenewSessionLock(Command[LocksRenewed]):
    """Give a session's lock its full time again."""

    path: str
    session_id: str
    holder: int | None = None
    """The receiver that must have the session; None: any. The same below."""


@dataclass(frozen=True, slots=True)
class GetSessionState(Command[SessionStateFound]):
    """Ask for what is kept about a session."""

    path: str
    session_id: str
    holder: int | None = None


@dataclass(frozen=True, slots=True)
class SetSessionState(Command[Done]):
    """Keep something about a session; None: nothing more."""

    path: str
    session_id: str
    state: bytes | None
    holder: int | None = None


@dataclass(frozen=True, slots=True)
class ListSessions(Command[SessionsFound]):
    """Ask for the names of sessions that have messages or a state."""

    path: str
    updated_after_ms: int | None
    """Only those whose state was set since; None: all."""
    skip: int
    top: int


@dataclass(slots=True)  # not frozen, like the others made per message: that takes three times as long
class Grant(Command[Never]):
    """Let a receiver have messages until `credit_limit` of them, counted from its opening, were sent to it."""

    receiver: int
    credit_limit: int
    drain: bool = False
    """Use the credit now or give it back: `ReceiverDrained` follows once nothing more is on its way."""


@dataclass(frozen=True, slots=True)
class PauseReceiver(Command[Never]):
    """Send nothing more for now, whatever the credit: the peer does not keep up."""

    receiver: int


@dataclass(frozen=True, slots=True)
class ResumeReceiver(Command[Never]):
    receiver: int


@dataclass(frozen=True, slots=True)
class CloseReceiver(Command[Never]):
    """The receiver is gone. Locks it took stay until they are settled or end."""

    receiver: int


@dataclass(slots=True)  # not frozen, like the others made per message: that takes three times as long
class SettleMessages(Command[Settled]):
    path: str
    tokens: tuple[bytes, ...]
    outcome: SettlementOutcome
    session_id: str | None = None
    """Whose messages these are, if the asker says so."""


@dataclass(frozen=True, slots=True)
class RenewMessageLocks(Command[LocksRenewed]):
    path: str
    tokens: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class PeekMessages(Command[MessagesFound]):
    """Look at up to `most` messages from a sequence number on, whatever their state, taking nothing."""

    path: str
    from_sequence: int
    most: int
    session_id: str | None = None
    """Only messages of this session; None: all."""


@dataclass(frozen=True, slots=True)
class ReceiveDeferred(Command[MessagesFound]):
    path: str
    sequences: tuple[int, ...]
    mode: ReceiveMode
    session_id: str | None = None
    """Whose messages these are; messages of sessions cannot be received otherwise."""
    holder: int | None = None


@dataclass(frozen=True, slots=True)
class BeginTransaction(Command[Done]):
    transaction: int
    """Chosen by the asker, unique among all transactions of the process."""


@dataclass(frozen=True, slots=True)
class Enlist(Command[R_co]):
    """Do something as a part of a transaction: it is checked now, and happens if the transaction is committed."""

    transaction: int
    work: Command[R_co]
    via: str | None = None
    """The entity whose transaction it is; None: that of the work itself."""


@dataclass(frozen=True, slots=True)
class EndTransaction(Command[Done]):
    """Do everything that belongs to a transaction, or nothing of it."""

    transaction: int
    commits: bool


@dataclass(frozen=True, slots=True)
class Tick(Command[Never]):
    """Time has passed: end locks, expire messages, wake scheduled ones."""


AdminCommand = (
    CreateQueue
    | UpdateQueue
    | CreateTopic
    | UpdateTopic
    | CreateSubscription
    | UpdateSubscription
    | CreateRule
    | UpdateRule
    | DeleteRule
    | GetRule
    | ListRules
    | DeleteEntity
    | GetEntity
    | ListQueues
    | ListTopics
    | ListSubscriptions
)
"""What administrators ask."""

RequestCommand = (
    SendMessages
    | CancelScheduled
    | SettleMessages
    | RenewMessageLocks
    | PeekMessages
    | ReceiveDeferred
    | RenewSessionLock
    | GetSessionState
    | SetSessionState
    | ListSessions
    | CreateRule
    | DeleteRule
    | ListRules
)
"""What can be asked of an entity's management."""
