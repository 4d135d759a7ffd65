"""The results of `Connection.receive` and `tick`, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from twinbus.amqp.codec.outcomes import Error, Outcome
from twinbus.amqp.codec.performatives import Open

if TYPE_CHECKING:
    from twinbus.amqp.link import Link
    from twinbus.amqp.receiving_link import ReceivingLink
    from twinbus.amqp.sending_link import SendingLink
    from twinbus.amqp.session import Session


@dataclass(slots=True)
class Authenticated:
    """SASL succeeded; `user` may be "anonymous"."""

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
    """The peer requests a link: answer with `link.accept()` or `link.refuse()`, now or later.

    Events of the link may follow before the answer; ignore them after a refusal.
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
    """The peer granted credit. With `drain` send what is available at once, then call `link.drained()`."""

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
    """A complete delivery. Unless `settled`, it waits for `link.settle`."""

    link: ReceivingLink
    delivery_id: int
    tag: bytes
    message_format: int
    settled: bool
    payload: bytes
    transaction: bytes | None = None
    """The id of the transaction that it belongs to."""


@dataclass(slots=True)
class DispositionArrived:
    """The outcome of deliveries, each as (delivery id, tag).

    On a sending link: deliveries we sent; unless `settled` they wait for `link.settle`.
    On a receiving link: the answer to our `settle(..., settled=False)`, or to a transfer; tags are empty.
    """

    link: Link
    deliveries: list[tuple[int, bytes]]
    outcome: Outcome | None
    settled: bool
    transaction: bytes | None = None
    """The id of the transaction that the outcome belongs to; for a declared one, that it now has."""


@dataclass(slots=True)
class SessionEnded:
    """The peer ended the session (and was answered), answered our end, or violated the protocol.

    Its open links stay in `session.links`; there is no Detached for them.
    """

    session: Session
    error: Error | None


@dataclass(slots=True)
class ConnectionClosed:
    """The last event. `error` is the peer's or ours; sessions stay in `connection.sessions`."""

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
