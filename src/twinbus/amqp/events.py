"""What a connection has seen: the results of `Connection.receive` and `tick`, in the order in which they happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from twinbus.amqp.outcomes import Error, Outcome
from twinbus.amqp.performatives import Open

if TYPE_CHECKING:
    from twinbus.amqp.link import Link, ReceivingLink, SendingLink
    from twinbus.amqp.session import Session


@dataclass(slots=True)
class Authenticated:
    """SASL came to a good end; `user` is "anonymous" without a name."""

    mechanism: str
    user: str


@dataclass(slots=True)
class Opened:
    """The peer's open arrived (and was answered)."""

    open: Open


@dataclass(slots=True)
class SessionBegun:
    """The peer began a session, or answered ours."""

    session: Session


@dataclass(slots=True)
class AttachRequested:
    """The peer wants a link: answer with `link.accept()` or `link.refuse()`, now or later.

    Frames that came along with it are events of the same link already; after a refusal they are to be ignored.
    """

    link: Link


@dataclass(slots=True)
class Attached:
    """The peer accepted our link."""

    link: Link


@dataclass(slots=True)
class LinkRefused:
    """The peer refused our link."""

    link: Link
    error: Error | None


@dataclass(slots=True)
class Detached:
    """The peer detached (and was answered), or answered our detach. Unsettled deliveries of the link are forgotten."""

    link: Link
    error: Error | None
    closed: bool


@dataclass(slots=True)
class CreditChanged:
    """The peer said how much it takes. With `drain` send what there is at once, then call `link.drained()`."""

    link: SendingLink
    credit: int
    credit_limit: int
    drain: bool


@dataclass(slots=True)
class Drained:
    """The peer answered our drain: nothing more comes until the next `grant`."""

    link: ReceivingLink


@dataclass(slots=True)
class TransferArrived:
    """A whole delivery. Unless `settled`, it waits for `link.settle`."""

    link: ReceivingLink
    delivery_id: int
    tag: bytes
    message_format: int
    settled: bool
    payload: bytes


@dataclass(slots=True)
class DispositionArrived:
    """The peer says how deliveries ended, each as (delivery id, tag).

    On a sending link: deliveries we sent and still hold; unless `settled` they wait for `link.settle`.
    On a receiving link: the answer to our `settle(..., settled=False)`; tags are empty there.
    """

    link: Link
    deliveries: list[tuple[int, bytes]]
    outcome: Outcome | None
    settled: bool


@dataclass(slots=True)
class SessionEnded:
    """The peer ended the session (and was answered), answered our end, or was stopped by us for breaking rules.

    The links that lived in it stay in `session.links`; there is no Detached for them.
    """

    session: Session
    error: Error | None


@dataclass(slots=True)
class ConnectionClosed:
    """The last event. `error` is the peer's, or what we closed for; sessions stay in `connection.sessions`."""

    error: Error | None


Event: TypeAlias = (
    Authenticated
    | Opened
    | SessionBegun
    | AttachRequested
    | Attached
    | LinkRefused
    | Detached
    | CreditChanged
    | Drained
    | TransferArrived
    | DispositionArrived
    | SessionEnded
    | ConnectionClosed
)
