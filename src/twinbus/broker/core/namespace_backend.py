"""The embedded namespace as a back end of links: asks become commands, what the machine says becomes deliveries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import assert_never

from twinbus.broker.core.commands import (
    AcceptSession,
    BeginTransaction,
    CancelScheduled,
    CloseReceiver,
    Command,
    CreateRule,
    DeleteRule,
    EndTransaction,
    Enlist,
    FindEntity,
    GetSessionState,
    Grant,
    ListRules,
    ListSessions,
    OpenReceiver,
    OpenSender,
    PauseReceiver,
    PeekMessages,
    ReceiveDeferred,
    RenewMessageLocks,
    RenewSessionLock,
    RequestCommand,
    ResumeReceiver,
    SendMessages,
    SetSessionState,
    SettleMessages,
)
from twinbus.broker.core.commit_gate import CommitGate
from twinbus.broker.core.delivery_format import encode_delivery, encode_settled_delivery
from twinbus.broker.core.management import command_for, in_transaction, response_for
from twinbus.broker.core.replies import Delivery, Forwarded, MessagesFound, Notice, Reply
from twinbus.broker.links.backend import EncodedDelivery, LinkNotice, PeerLink, ReadTransfer
from twinbus.broker.links.request_messages import Request
from twinbus.broker.message import Arrival, MessageReader
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
from twinbus.broker.ops.meter import Meter, Metered

REQUESTS_AT_ONCE = 4
"""Of one peer; the next one is read when one of them is answered."""


class NamespaceBackend:
    """Implements `Backend`."""

    def __init__(
        self, gate: CommitGate, messages: MessageReader, meter: Meter, notify: Callable[[LinkNotice], None]
    ) -> None:
        """`notify` takes deliveries and what else links have to know."""
        self._gate = gate
        self._messages = messages
        self._meter = meter
        self._notify_links = notify

    def notify(self, notice: Notice) -> None:
        """Pass on what the machine says without being asked."""
        if isinstance(notice, Delivery):  # not a case: most notices are deliveries, and a pattern takes longer
            receiver, row, token, until_ms = notice
            encoded = encode_settled_delivery(row) if token is None else encode_delivery(row, token, until_ms)
            self._notify_links(EncodedDelivery(receiver, encoded, token))
            return
        match notice:
            case ReceiverDrained() | ReceiverLost():
                self._notify_links(notice)
            case TransactionTimedOut():
                self._notify_links(notice)
            case Forwarded(path, size):
                self._meter.count(Metered.FORWARD, path, size)
            case _:
                assert_never(notice)

    @property
    def requests_at_once(self) -> int:
        return REQUESTS_AT_ONCE

    def kept_bytes(self, connection: int) -> int:
        return 0

    @property
    def unwritten_bytes(self) -> int:
        return self._gate.unwritten_bytes

    def messages_per_send(self, path: str) -> int | None:
        return self._gate.machine.messages_per_step(path)

    # --- sending ---

    def open_sender(self, path: str, now_ms: int, on_reply: Callable[[SenderOpened | Refused], None]) -> None:
        self._gate.ask(OpenSender(path), now_ms, on_reply)

    def send(
        self, path: str, arrivals: tuple[Arrival, ...], now_ms: int, on_reply: Callable[[Done | Refused], None]
    ) -> None:
        self._gate.ask(SendMessages(path, arrivals), now_ms, on_reply)

    def send_each(
        self,
        path: str,
        transfers: Sequence[ReadTransfer],
        now_ms: int,
        on_reply: Callable[[Sequence[ReadTransfer], Done | Refused], None],
    ) -> None:
        """All together: one send and one change set instead of a hundred.

        A send is all or none, so when such a joint one is refused each transfer is sent alone, and gets the reply it
        would have got.
        """

        def stored(reply: Done | Refused) -> None:
            if isinstance(reply, Refused) and len(transfers) > 1:
                for transfer in transfers:
                    self.send(path, transfer.arrivals, now_ms, partial(on_reply, (transfer,)))
            else:
                on_reply(transfers, reply)

        self.send(path, tuple(chain.from_iterable([transfer.arrivals for transfer in transfers])), now_ms, stored)

    # --- receiving ---

    def open_receiver(
        self,
        receiver: int,
        path: str,
        mode: ReceiveMode,
        link: PeerLink,
        now_ms: int,
        on_reply: Callable[[Done | Refused], None],
    ) -> None:
        self._gate.ask(OpenReceiver(receiver, path, mode), now_ms, on_reply)

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
        self._gate.ask(AcceptSession(receiver, path, mode, session_id, wait_ms), now_ms, on_reply)

    def grant_credit(self, receiver: int, credit_limit: int, drain: bool, now_ms: int) -> None:
        self._gate.do(Grant(receiver, credit_limit, drain), now_ms)

    def pause_receiver(self, receiver: int, now_ms: int) -> None:
        self._gate.do(PauseReceiver(receiver), now_ms)

    def resume_receiver(self, receiver: int, now_ms: int) -> None:
        self._gate.do(ResumeReceiver(receiver), now_ms)

    def close_receiver(self, receiver: int, now_ms: int) -> None:
        self._gate.do(CloseReceiver(receiver), now_ms)

    def settle(
        self,
        receiver: int,
        path: str,
        tokens: tuple[bytes, ...],
        outcome: SettlementOutcome,
        now_ms: int,
        on_reply: Callable[[Settled | Refused], None] | None,
    ) -> None:
        command = SettleMessages(path, tokens, outcome)
        if on_reply is None:
            self._gate.do(command, now_ms)
        else:
            self._gate.ask(command, now_ms, on_reply)

    # --- transactions ---

    def begin_transaction(
        self, transaction: int, connection: int, now_ms: int, on_reply: Callable[[Done | Refused], None]
    ) -> None:
        self._gate.ask(BeginTransaction(transaction), now_ms, on_reply)

    def enlist_send(
        self,
        transaction: int,
        path: str,
        via: str | None,
        transfer: ReadTransfer,
        now_ms: int,
        on_reply: Callable[[Done | Refused], None],
    ) -> None:
        self._gate.ask(Enlist(transaction, SendMessages(path, transfer.arrivals), via), now_ms, on_reply)

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
        self._gate.ask(Enlist(transaction, SettleMessages(path, tokens, outcome)), now_ms, on_reply)

    def end_transaction(
        self, transaction: int, commits: bool, now_ms: int, on_reply: Callable[[Done | Refused], None]
    ) -> None:
        self._gate.ask(EndTransaction(transaction, commits), now_ms, on_reply)

    # --- requests ---

    def find_entity(self, path: str, connection: int, now_ms: int, on_reply: Callable[[Done | Refused], None]) -> None:
        self._gate.ask(FindEntity(path), now_ms, on_reply)

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
        command = command_for(request, path, holder, self._messages.read)

        def respond(reply: Reply) -> None:
            on_response(response_for(request, reply))
            self._count(command, reply)

        asked: Command[Reply] = command if transaction is None else in_transaction(command, transaction)
        self._gate.ask(asked, now_ms, respond)

    def pause_connection(self, connection: int) -> None:
        """Answers come at once, and a peer that does not take them is not read."""

    def resume_connection(self, connection: int) -> None:
        """It was not paused."""

    def close_connection(self, connection: int, now_ms: int) -> None:
        """Nothing is kept for a connection as a whole."""

    def _count(self, command: RequestCommand, reply: Reply) -> None:
        """Count what a request did; what was refused did nothing."""
        if isinstance(reply, Refused):
            return
        entity, meter = command.path.lower(), self._meter
        found = [len(encode_delivery(*each)) for each in reply.found] if isinstance(reply, MessagesFound) else []
        match command:
            case SendMessages(arrivals=arrivals):
                meter.count_sends(entity, arrivals)
            case SettleMessages(tokens=tokens):
                meter.count(Metered.SETTLE, entity, operations=len(tokens))
            case RenewMessageLocks(tokens=tokens):
                meter.count(Metered.RENEW, entity, operations=len(tokens))
            case RenewSessionLock():
                meter.count(Metered.RENEW, entity)
            case PeekMessages():
                meter.count_each(Metered.PEEK, entity, found or [0])
            case ReceiveDeferred():
                meter.count_each(Metered.DELIVERY, entity, found)
            case CancelScheduled(sequences=sequences):
                meter.count(Metered.MANAGE, entity, operations=len(sequences))
            case GetSessionState() | SetSessionState() | ListSessions() | CreateRule() | DeleteRule() | ListRules():
                meter.count(Metered.MANAGE, entity)
            case _:
                assert_never(command)
