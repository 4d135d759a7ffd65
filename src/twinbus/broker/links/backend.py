"""The back end of links: whatever stores the messages that are sent and delivers those that are received.

Links know rights, limits, faults and AMQP; they ask a back end for everything else. The embedded namespace is one
(`core/namespace_backend.py`). A request carries its continuation as an argument: it is called once, at once or later,
when the result is durable. Requests without one need no answer. Nothing here raises for what a peer sends, except
`request`.

Deliveries go the other way: a back end passes them to `ConnectionContext.notify`, with the number of the receiver.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

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
)


class EncodedDelivery(NamedTuple):
    """A message for a receiver. Without a token it is already removed (receive-and-delete)."""

    receiver: int
    payload: bytes
    token: bytes | None


ReceiverNotice = EncodedDelivery | ReceiverDrained | ReceiverLost


class Backend(Protocol):
    """A `path` is the address of an entity, in any case. Numbers of receivers are chosen by links and never reused."""

    @property
    def unwritten_bytes(self) -> int:
        """Taken in and not durable yet, of all connections together."""

    def messages_per_send(self, path: str) -> int | None:
        """How many messages of several transfers one `send` may have; None: any number."""

    # --- sending ---

    def open_sender(self, path: str, now_ms: int, on_reply: Callable[[SenderOpened | Refused], None]) -> None:
        """Ask whether an entity can be sent to, and how large a message may be."""

    def send(
        self, path: str, arrivals: tuple[Arrival, ...], now_ms: int, on_reply: Callable[[Done | Refused], None]
    ) -> None:
        """Store these messages, all or none."""

    # --- receiving ---

    def open_receiver(
        self, receiver: int, path: str, mode: ReceiveMode, now_ms: int, on_reply: Callable[[Done | Refused], None]
    ) -> None: ...

    def accept_session(
        self,
        receiver: int,
        path: str,
        mode: ReceiveMode,
        session_id: str | None,
        wait_ms: int,
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
        path: str,
        tokens: tuple[bytes, ...],
        outcome: SettlementOutcome,
        now_ms: int,
        on_reply: Callable[[Settled | Refused], None] | None,
    ) -> None: ...

    # --- requests to `<entity>/$management` ---

    def find_entity(self, path: str, now_ms: int, on_reply: Callable[[Done | Refused], None]) -> None:
        """Ask whether an entity exists: then requests can be sent to it."""

    def request(
        self, path: str, request: Request, holder: int | None, now_ms: int, on_response: Callable[[bytes], None]
    ) -> None:
        """Carry out a request; raises a `NamespaceError` or `AmqpError` if it is not understood.

        `holder` is the receiver of the same connection that has the session the request is about; 0: it has none.
        """
