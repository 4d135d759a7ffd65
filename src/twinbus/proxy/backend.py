"""The pair as a back end of links: sends go where the pairing core decides, everything else to the primary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from twinbus.broker.links.backend import ReadTransfer
from twinbus.broker.links.request_messages import Request
from twinbus.broker.message import Arrival
from twinbus.broker.operations import (
    Done,
    Refused,
    SenderOpened,
)
from twinbus.proxy.relay.relay import Relay
from twinbus.proxy.relay.transactions import TransactionRelay
from twinbus.proxy.sending.schedules import CANCEL, SCHEDULE

REQUESTS_AT_ONCE = 256
"""Of one application. Many, because they share a connection with what is sent: a primary that answers none of them must
not hold that up. What they take is bounded by `kept_bytes`, too."""


class Sends(Protocol):
    """Where messages go that applications send. See `Backend` for what the parts mean."""

    @property
    def unwritten_bytes(self) -> int: ...

    def messages_per_send(self, path: str) -> int | None: ...

    def open_sender(self, path: str, now_ms: int, on_reply: Callable[[SenderOpened | Refused], None]) -> None: ...

    def send(
        self, path: str, arrivals: tuple[Arrival, ...], now_ms: int, on_reply: Callable[[Done | Refused], None]
    ) -> None: ...

    def send_each(
        self,
        path: str,
        transfers: Sequence[ReadTransfer],
        now_ms: int,
        on_reply: Callable[[Sequence[ReadTransfer], Done | Refused], None],
    ) -> None: ...

    def schedule(self, path: str, request: Request, now_ms: int, on_response: Callable[[bytes], None]) -> None:
        """Store messages that are to be enqueued later; raises a `NamespaceError` or `AmqpError` as `request` does."""

    def cancel_refusal(self, request: Request) -> bytes | None:
        """The response if what a request wants cancelled cannot be; None: the primary is to be asked."""

    def cancelled(self, path: str, request: Request, response: bytes) -> None:
        """The primary has answered a request to cancel messages."""


class ProxyBackend:
    """Implements `Backend`."""

    def __init__(self, sends: Sends, relay: Relay, transactions: TransactionRelay) -> None:
        self.requests_at_once = REQUESTS_AT_ONCE
        self._sends = sends
        self._relay = relay
        self._transactions = transactions
        self.begin_transaction = transactions.begin
        self.enlist_send = transactions.enlist_send
        self.enlist_settlement = transactions.enlist_settlement
        self.end_transaction = transactions.end
        self.open_receiver = relay.open_receiver
        self.accept_session = relay.accept_session
        self.grant_credit = relay.grant_credit
        self.pause_receiver = relay.pause_receiver
        self.resume_receiver = relay.resume_receiver
        self.close_receiver = relay.close_receiver
        self.settle = relay.settle
        self.find_entity = relay.find_entity
        self.kept_bytes = relay.kept_bytes
        self.pause_connection = relay.pause_connection
        self.resume_connection = relay.resume_connection
        self.messages_per_send = sends.messages_per_send
        self.open_sender = sends.open_sender
        self.send = sends.send
        self.send_each = sends.send_each

    @property
    def unwritten_bytes(self) -> int:
        return self._sends.unwritten_bytes

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
        """What is scheduled is sent, unless it is part of a transaction; the rest is the primary's."""
        operation = request.operation_name
        if transaction is not None:
            self._transactions.request(transaction, path, request, now_ms, on_response)
            return
        if operation == SCHEDULE:
            self._sends.schedule(path, request, now_ms, on_response)
            return
        if operation == CANCEL:
            refusal = self._sends.cancel_refusal(request)
            if refusal is not None:
                on_response(refusal)
                return
            self._relay.request(path, request, connection, now_ms, partial(self._cancelled, path, request, on_response))
            return
        self._relay.request(path, request, connection, now_ms, on_response)

    def _cancelled(self, path: str, request: Request, on_response: Callable[[bytes], None], response: bytes) -> None:
        self._sends.cancelled(path, request, response)
        on_response(response)

    def close_connection(self, connection: int, now_ms: int) -> None:
        self._transactions.close_connection(connection)
        self._relay.close_connection(connection, now_ms)
