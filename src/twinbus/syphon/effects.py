"""What the pump wants done: values that the shell turns into frames, links and requests."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from twinbus.amqp.outcomes import Outcome
from twinbus.plain_text import as_word
from twinbus.syphon.letters import Lot


class Grant(NamedTuple):
    """Let a backlog queue send so many messages from now on; 0 takes back what it has."""

    queue: int
    credit: int


class Settle(NamedTuple):
    """Tell a backlog queue how deliveries first..last ended, and wait for its word on that."""

    queue: int
    first: int
    last: int
    outcome: Outcome


class RenewLocks(NamedTuple):
    """Ask for more time; `Pump.renewed` with the same lot tells the answer."""

    queue: int
    lot: Lot
    tokens: tuple[bytes, ...]


class ReopenQueue(NamedTuple):
    """The link of a queue is of no use any more: take another one, after a pause."""

    queue: int
    reason: str


class Look(NamedTuple):
    """Peek into a queue from a number on; `OrderedPump.looked` with the same era tells what is there."""

    queue: int
    era: int
    from_sequence: int
    most: int


class OpenDestination(NamedTuple):
    path: str


class DropDestination(NamedTuple):
    """The link is of no use any more; answers that still come on it are nobody's."""

    path: str


class Send(NamedTuple):
    """One transfer; its answer comes back under its number."""

    path: str
    number: int
    payload: bytes
    message_format: int


class Alert(NamedTuple):
    """News for people."""

    name: str
    """`destination_down`, `destination_up`, `queue_down`, `queue_up`, `quarantined`, `locks_lost`, `clock_differs`,
    `refused`, `order_unknown`, `extra_queue`, `not_listed`, `backlog_home`."""
    subject: str
    """The entity or backlog queue it is about."""
    text: str


def log_line(alert: Alert) -> str:
    """An alert as one line to grep in, whatever an entity is called and a server said."""
    return f"event={alert.name} subject={as_word(alert.subject, 300)} text={as_word(alert.text, 1_000)}"


Effect: TypeAlias = Grant | Settle | RenewLocks | ReopenQueue | Look | OpenDestination | DropDestination | Send | Alert
