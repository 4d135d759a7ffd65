"""The back end of links: whatever stores the messages that are sent and delivers those that are received.

Links know rights, limits, faults and AMQP; they ask a back end for everything else. The embedded namespace is one
(`core/namespace_backend.py`), the proxy another (`proxy/backend.py`). A request carries its continuation as an
argument: it is called once, at once or later, when the result is durable. Requests without one need no answer. Nothing
here raises for what a peer sends, except `request`.

Deliveries go the other way: a back end passes them to `ConnectionContext.notify`, with the number of the receiver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from twinbus.amqp.codec.performatives import Fields
from twinbus.amqp.events import TransferArrived
from twinbus.broker.links.request_messages import Request
from twinbus.broker.message import Arrival
from twinbus.broker.operations import (
    Done,
    ReceiveMode,
    ReceiverDrained,
    ReceiverLost,
    Refused,
    SenderOpened,
    SessionAccepted,
    Settled,
    SettlementOutcome,
    TransactionTimedOut,
)


class ReadTransfer(NamedTuple):
    """One transfer of a peer, and the messages in it."""

    event: TransferArrived
    arrivals: tuple[Arrival, ...]


class EncodedDelivery(NamedTuple):
    """A message for a receiver. Without a token it is already removed (receive-and-delete)."""

    receiver: int
    payload: bytes
    token: bytes | None


class PeerLink(NamedTuple):
    """The link of a receiver as its application asked for it: a back end may have to open the same one elsewhere."""

    connection: int
    """The application's connection; numbers are never reused."""
    name: str
    filters: Fields | None = None
    properties: Fields | None = None


ReceiverNotice = EncodedDelivery | ReceiverDrained | ReceiverLost
LinkNotice = ReceiverNotice | TransactionTimedOut
"""What a back end says without being asked."""


class Backend(Protocol):
    """A `path` is the address of an entity, in any case. Numbers of receivers are chosen by links and never reused."""

    @property
    def unwritten_bytes(self) -> int:
        """Taken in and not durable yet, of all connections together."""

    def messages_per_send(self, path: str) -> int | None:
        """How many messages several transfers may have that are sent together; None: any number."""

    # --- sending ---

    def open_sender(self, path: str, now_ms: int, on_reply: Callable[[SenderOpened | Refused], None]) -> None:
        """Ask whether an entity can be sent to, and how large a message may be."""

    def send(
        self, path: str, arrivals: tuple[Arrival, ...], now_ms: int, on_reply: Callable[[Done | Refused], None]
    ) -> None:
        """Store these messages, all or none."""

    def send_each(
        self,
        path: str,
        transfers: Sequence[ReadTransfer],
        now_ms: int,
        on_reply: Callable[[Sequence[ReadTransfer], Done | Refused], None],
    ) -> None:
        """Store these transfers, each of them all or none, in their order.

        `on_reply` is called with some of them at a time, with consecutive ones if possible: each is answered once.
        """

    # --- receiving ---

    def open_receiver(
        self,
        receiver: int,
        path: str,
        mode: ReceiveMode,
        link: PeerLink,
        now_ms: int,
        on_reply: Callable[[Done | Refused], None],
    ) -> None: ...

    def accept_session(
        self,
        receiver: int,
        path: str,
        mode: ReceiveMode,
        session_id: str | None,
        wait_ms: int,
        link: PeerLink,
        now_ms: int,
        on_reply: Callable[[SessionAccepted | Refused], None],
    ) -> None:
        """Open a receiver for one session; None: for the next one that is free and has messages.

        There is no reply if the receiver is closed before.
        """

    def grant_credit(self, receiver: int, credit_limit: int, drain: bool, now_ms: int) -> None:
        """Deliver until the receiver got `credit_limit` messages in all; with `drain`, `ReceiverDrained` follows."""

    def pause_receiver(self, receiver: int, now_ms: int) -> None:
        """Deliver nothing for now, whatever the credit."""

    def resume_receiver(self, receiver: int, now_ms: int) -> None: ...

    def close_receiver(self, receiver: int, now_ms: int) -> None:
        """The receiver is gone. Its locks stay until they are settled or end."""

    def settle(
        self,
        receiver: int,
        path: str,
        tokens: tuple[bytes, ...],
        outcome: SettlementOutcome,
        now_ms: int,
        on_reply: Callable[[Settled | Refused], None] | None,
    ) -> None: ...

    # --- transactions ---
    # Their numbers are chosen by links and never reused.

    def begin_transaction(
        self, transaction: int, connection: int, now_ms: int, on_reply: Callable[[Done | Refused], None]
    ) -> None: ...

    def enlist_send(
        self,
        transaction: int,
        path: str,
        via: str | None,
        transfer: ReadTransfer,
        now_ms: int,
        on_reply: Callable[[Done | Refused], None],
    ) -> None:
        """Check what is sent, and store it, all or none, if the transaction is committed.

        `via`: the entity whose transaction it is to be part of; None: the one that it is sent to.
        """

    def enlist_settlement(
        self,
        transaction: int,
        receiver: int,
        path: str,
        tokens: tuple[bytes, ...],
        outcome: SettlementOutcome,
        now_ms: int,
        on_reply: Callable[[Settled | Refused], None],
    ) -> None:
        """Keep messages for this transaction, and settle them if it is committed."""

    def end_transaction(
        self, transaction: int, commits: bool, now_ms: int, on_reply: Callable[[Done | Refused], None]
    ) -> None:
        """Do all that belongs to a transaction, or nothing: that is what `Refused` means, too."""

    # --- requests to `<entity>/$management` ---

    @property
    def requests_at_once(self) -> int:
        """Requests of one connection that are under way; before one of them is answered, nothing more is read."""

    def find_entity(self, path: str, connection: int, now_ms: int, on_reply: Callable[[Done | Refused], None]) -> None:
        """Ask whether an entity exists: then requests of this connection can be sent to it."""

    def request(
        self,
        path: str,
        request: Request,
        connection: int,
        holder: int | None,
        now_ms: int,
        on_response: Callable[[bytes], None],
        transaction: int | None = None,
    ) -> None:
        """Carry out a request, if its `transaction` is committed; raises a `NamespaceError` or `AmqpError` if it is not
        understood.

        `holder` is the receiver of the same connection that has the session the request is about; 0: it has none.
        """

    # --- connections ---

    def kept_bytes(self, connection: int) -> int:
        """Bytes kept for a connection until they can be passed on, in addition to its sends; usually 0."""

    def pause_connection(self, connection: int) -> None:
        """The peer does not take its answers: bring no more for now. Receivers are paused one by one."""

    def resume_connection(self, connection: int) -> None: ...

    def close_connection(self, connection: int, now_ms: int) -> None:
        """The connection is gone; its receivers were closed before. Also called for one that asked for nothing."""
