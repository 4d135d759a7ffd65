"""What can be asked of a namespace, as values.

`origin` is whatever the asker wants to see again on the reply; the machine never looks into it.
A `path` is an entity's address: `orders`, `events/Subscriptions/audit`, or either with `/$deadletterqueue`; case does
not matter.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from twinbus.namespace.entities.rules import Rule
from twinbus.namespace.entities.settings import QueueSettings, TopicSettings
from twinbus.namespace.message import Arrival


class ReceiveMode(Enum):
    PEEK_LOCK = "peek-lock"
    RECEIVE_AND_DELETE = "receive-and-delete"


class CreateQueue(NamedTuple):
    path: str
    settings: QueueSettings
    origin: Any = None


class UpdateQueue(NamedTuple):
    """Give a queue other settings, all of them; what is stored already keeps its times and counts."""

    path: str
    settings: QueueSettings
    origin: Any = None


class CreateTopic(NamedTuple):
    path: str
    settings: TopicSettings
    origin: Any = None


class UpdateTopic(NamedTuple):
    path: str
    settings: TopicSettings
    origin: Any = None


class CreateSubscription(NamedTuple):
    topic: str
    name: str
    settings: QueueSettings
    rule: Rule | None = None
    """Its first rule; None: one that takes every message."""
    origin: Any = None


class UpdateSubscription(NamedTuple):
    topic: str
    name: str
    settings: QueueSettings
    origin: Any = None


class CreateRule(NamedTuple):
    path: str
    """The subscription's."""
    rule: Rule
    origin: Any = None


Creation = CreateQueue | CreateTopic | CreateSubscription | CreateRule


class UpdateRule(NamedTuple):
    path: str
    rule: Rule
    origin: Any = None


class DeleteRule(NamedTuple):
    path: str
    name: str
    origin: Any = None


class GetRule(NamedTuple):
    """Ask for a rule: `RuleFound`."""

    path: str
    name: str
    origin: Any = None


class ListRules(NamedTuple):
    """Ask for up to `top` rules of a subscription, by name: `RulesFound`."""

    path: str
    skip: int
    top: int
    origin: Any = None


class DeleteEntity(NamedTuple):
    """Remove a queue, topic or subscription with everything in it."""

    path: str
    origin: Any = None


class FindEntity(NamedTuple):
    """Ask whether an entity exists."""

    path: str
    origin: Any = None


class GetEntity(NamedTuple):
    """Ask for an entity's settings and counts: `QueueFound`, `TopicFound` or `SubscriptionFound`."""

    path: str
    origin: Any = None


class ListQueues(NamedTuple):
    """Ask for up to `top` queues, by name, after the first `skip` of them: `QueuesFound`."""

    skip: int
    top: int
    origin: Any = None


class ListTopics(NamedTuple):
    """The same for topics: `TopicsFound`."""

    skip: int
    top: int
    origin: Any = None


class ListSubscriptions(NamedTuple):
    """The same for the subscriptions of a topic: `SubscriptionsFound`."""

    topic: str
    skip: int
    top: int
    origin: Any = None


class OpenSender(NamedTuple):
    """Ask whether an entity can be sent to, and how large a message may be: `SenderOpened`."""

    path: str
    origin: Any = None


class Send(NamedTuple):
    """Store these messages, all or none."""

    path: str
    arrivals: tuple[Arrival, ...]
    origin: Any = None


class CancelScheduled(NamedTuple):
    """Remove scheduled messages before their time, all or none."""

    path: str
    sequences: tuple[int, ...]
    origin: Any = None


class OpenReceiver(NamedTuple):
    receiver: int
    """Chosen by the asker, unique among all receivers of the process."""
    path: str
    mode: ReceiveMode
    origin: Any = None


class AcceptSession(NamedTuple):
    """Open a receiver for one session: `SessionAccepted`, perhaps after a while."""

    receiver: int
    path: str
    mode: ReceiveMode
    session_id: str | None
    """None: the next one that has messages and that nobody else has."""
    wait_ms: int = 65_000
    """How long to wait for one."""
    origin: Any = None


class RenewSessionLock(NamedTuple):
    """Give a session's lock its full time again: `LocksRenewed`."""

    path: str
    session_id: str
    origin: Any = None
    holder: int | None = None
    """The receiver that must have the session; None: whoever has it. The same below."""


class GetSessionState(NamedTuple):
    """Ask for what is kept about a session: `SessionStateFound`."""

    path: str
    session_id: str
    origin: Any = None
    holder: int | None = None


class SetSessionState(NamedTuple):
    """Keep something about a session; None: nothing more."""

    path: str
    session_id: str
    state: bytes | None
    origin: Any = None
    holder: int | None = None


class ListSessions(NamedTuple):
    """Ask for the names of sessions that have messages or a state: `SessionsFound`."""

    path: str
    updated_after_ms: int | None
    """Only those whose state was set since; None: all."""
    skip: int
    top: int
    origin: Any = None


class Grant(NamedTuple):
    """Let a receiver have messages until `credit_limit` of them, counted from its opening, were sent to it."""

    receiver: int
    credit_limit: int
    drain: bool = False
    """Use the credit now or give it back: `Drained` follows once nothing more is on its way."""


class PauseReceiver(NamedTuple):
    """Send nothing more for now, whatever the credit: the peer does not keep up."""

    receiver: int


class ResumeReceiver(NamedTuple):
    receiver: int


class CloseReceiver(NamedTuple):
    """The receiver is gone. Locks it took stay until they are settled or end."""

    receiver: int


class Complete(NamedTuple):
    """Processed: remove the message."""


class Abandon(NamedTuple):
    """Not processed: lend it again, with one more failed delivery counted."""

    properties: dict[str, Any] | None = None
    """Application properties to set on the message."""


class Defer(NamedTuple):
    """Set aside: from now on to be had by its sequence number only."""

    properties: dict[str, Any] | None = None


class DeadLetter(NamedTuple):
    """Cannot be processed: move to the dead-letter queue."""

    properties: dict[str, Any] | None = None
    """Application properties to set, the reason and its description among them."""


class Release(NamedTuple):
    """Never looked at: lend it again as if nothing had happened."""


Verdict = Complete | Abandon | Defer | DeadLetter | Release


class Settle(NamedTuple):
    path: str
    tokens: tuple[bytes, ...]
    verdict: Verdict
    origin: Any = None
    session_id: str | None = None
    """Whose messages these are, if the asker says so."""


class RenewLocks(NamedTuple):
    path: str
    tokens: tuple[bytes, ...]
    origin: Any = None


class Peek(NamedTuple):
    """Look at up to `most` messages from a sequence number on, whatever their state, taking nothing."""

    path: str
    from_sequence: int
    most: int
    origin: Any = None
    session_id: str | None = None
    """Only messages of this session; None: all."""


class ReceiveDeferred(NamedTuple):
    path: str
    sequences: tuple[int, ...]
    mode: ReceiveMode
    origin: Any = None
    session_id: str | None = None
    """Whose messages these are; messages of sessions are not to be had otherwise."""
    holder: int | None = None


class Tick(NamedTuple):
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

Command = (
    AdminCommand
    | FindEntity
    | OpenSender
    | Send
    | CancelScheduled
    | OpenReceiver
    | AcceptSession
    | RenewSessionLock
    | GetSessionState
    | SetSessionState
    | ListSessions
    | Grant
    | PauseReceiver
    | ResumeReceiver
    | CloseReceiver
    | Settle
    | RenewLocks
    | Peek
    | ReceiveDeferred
    | Tick
)


RequestCommand = (
    Send
    | CancelScheduled
    | Settle
    | RenewLocks
    | Peek
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


def origin_of(command: object) -> Any:
    """Who asked, for commands that want an answer; None for the others."""
    return getattr(command, "origin", None)
