"""What the pump wants done, as values, and the one place that hands each of them to its port."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias, assert_never

from twinbus.amqp.codec.outcomes import Outcome
from twinbus.plain_text import as_word
from twinbus.syphon.pump.backlog_message import LockBatch


class GrantCredit(NamedTuple):
    """Let a backlog queue send `credit` messages from now on; 0 takes back what it has."""

    queue: int
    credit: int


class SettleDeliveries(NamedTuple):
    """Settle deliveries first..last of a backlog queue; the pump waits for its answer, except after a release."""

    queue: int
    first: int
    last: int
    outcome: Outcome


class RenewBacklogLocks(NamedTuple):
    """Renew locks; the answer goes to `Pump.locks_renewed` with the same lock batch."""

    queue: int
    lock_batch: LockBatch
    tokens: tuple[bytes, ...]


class ReopenQueue(NamedTuple):
    """The link to a queue is unusable: open another one, after a pause."""

    queue: int
    reason: str


class PeekQueue(NamedTuple):
    """Peek into a queue; the answer goes to `OrderedPump.queue_peeked` with the same generation."""

    queue: int
    generation: int
    from_sequence: int
    most: int


class OpenDestination(NamedTuple):
    path: str


class DropDestination(NamedTuple):
    """The link is unusable; answers that still arrive on it are ignored."""

    path: str


class SendBatch(NamedTuple):
    """One transfer; its outcome comes back under its number."""

    path: str
    number: int
    payload: bytes
    message_format: int


class Alert(NamedTuple):
    name: str
    """`destination_down`, `destination_up`, `queue_down`, `queue_up`, `quarantined`, `locks_lost`, `clock_differs`,
    `refused`, `order_unknown`, `extra_queue`, `not_listed`, `backlog_home`."""
    subject: str
    """The entity or backlog queue that it is about."""
    text: str


def log_line(alert: Alert) -> str:
    """The alert as one line of a log, whatever its texts contain."""
    return f"event={alert.name} subject={as_word(alert.subject, 300)} text={as_word(alert.text, 1_000)}"


Effect: TypeAlias = (
    SettleDeliveries
    | SendBatch
    | GrantCredit
    | RenewBacklogLocks
    | PeekQueue
    | ReopenQueue
    | OpenDestination
    | DropDestination
    | Alert
)


class SecondaryPort(Protocol):
    def settle(self, effect: SettleDeliveries) -> None: ...

    def grant(self, effect: GrantCredit) -> None: ...

    def renew_locks(self, effect: RenewBacklogLocks) -> None: ...

    def peek(self, effect: PeekQueue) -> None: ...

    def reopen(self, effect: ReopenQueue) -> None: ...


class PrimaryPort(Protocol):
    def send(self, effect: SendBatch) -> None: ...

    def open_destination(self, path: str) -> None: ...

    def drop_destination(self, path: str) -> None: ...


def carry_out(
    effect: Effect, primary: PrimaryPort, secondary: SecondaryPort, on_alert: Callable[[Alert], None]
) -> None:
    match effect:
        case SettleDeliveries():
            secondary.settle(effect)
        case SendBatch():
            primary.send(effect)
        case GrantCredit():
            secondary.grant(effect)
        case RenewBacklogLocks():
            secondary.renew_locks(effect)
        case PeekQueue():
            secondary.peek(effect)
        case ReopenQueue():
            secondary.reopen(effect)
        case OpenDestination():
            primary.open_destination(effect.path)
        case DropDestination():
            primary.drop_destination(effect.path)
        case Alert():
            on_alert(effect)
        case _:
            assert_never(effect)
