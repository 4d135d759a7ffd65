"""Transactions of applications: relayed to the primary, and to nothing else.

What belongs to one never goes to a backlog or to the spool: there it could not be rolled back. While the primary is
down transactions are refused, and those under way are rolled back; the application's connection stays open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from twinbus.broker.links.backend import ReadTransfer
from twinbus.broker.operations import Done, Refused, Settled, SettlementOutcome
from twinbus.errors import ConditionError, NamespaceError, TransactionRolledBack, UnknownTransaction
from twinbus.pairing.failure import Failure
from twinbus.proxy.relay import Relay
from twinbus.proxy.requested_messages import SettlementObserver
from twinbus.proxy.upstream_port import TIMED_OUT, UpstreamTransaction, refusal_of


@dataclass(slots=True)
class RelayedTransaction:
    connection: int
    upstream: UpstreamTransaction
    settled: list[tuple[str, object, SettlementOutcome]] = field(default_factory=list)
    """What is settled if it is committed: for the record."""
    doubt: Failure | None = None
    """Why nobody knows whether something belongs to it: then it cannot be committed."""


class TransactionRelay:
    def __init__(self, relay: Relay, observer: SettlementObserver | None = None) -> None:
        self._relay = relay
        self._upstream = relay.upstream
        self._observer = observer
        self._open: dict[int, RelayedTransaction] = {}

    def begin(self, transaction: int, connection: int, now_ms: int, on_reply: Callable[[Done | Refused], None]) -> None:
        def begun(result: UpstreamTransaction | Failure) -> None:
            if isinstance(result, Failure):
                on_reply(Refused(refusal_of(result, TIMED_OUT)))
                return
            self._open[transaction] = RelayedTransaction(connection, result)
            on_reply(Done())

        self._upstream.begin_transaction(connection, begun)

    def id_of(self, transaction: int) -> bytes:
        """Its id at the primary; raises `UnknownTransaction` if it is not there any more."""
        return self._find(transaction).upstream.id

    def _find(self, transaction: int) -> RelayedTransaction:
        found = self._open.get(transaction)
        if found is None or found.upstream.is_lost:
            raise UnknownTransaction("the connection to the primary was lost, and the transaction is rolled back")
        return found

    def enlist_send(
        self,
        transaction: int,
        path: str,
        via: str | None,
        transfer: ReadTransfer,
        now_ms: int,
        on_reply: Callable[[Done | Refused], None],
    ) -> None:
        try:
            found = self._find(transaction)
        except UnknownTransaction as error:
            on_reply(Refused(error))
            return

        def sent(failure: Failure | None) -> None:
            if failure is not None and failure.condition is None:
                found.doubt = failure
            on_reply(Done() if failure is None else Refused(_reason(failure)))

        event = transfer.event
        self._upstream.send_in(found.connection, found.upstream, path, via, event.payload, event.message_format, sent)

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
        try:
            found = self._find(transaction)
        except UnknownTransaction as error:
            on_reply(Refused(error))
            return
        self._relay.settle_in(receiver, tokens, outcome, found.upstream.id, found.settled, on_reply)

    def end(self, transaction: int, commits: bool, now_ms: int, on_reply: Callable[[Done | Refused], None]) -> None:
        try:
            found = self._find(transaction)
        except UnknownTransaction as error:
            self._open.pop(transaction, None)
            on_reply(Done() if not commits else Refused(TransactionRolledBack(str(error))))
            return
        del self._open[transaction]
        if commits and found.doubt is not None:
            self._upstream.end_transaction(found.connection, found.upstream, False, lambda _failure: None)
            on_reply(Refused(TransactionRolledBack(f"the transaction is rolled back: {found.doubt.text}")))
            return

        def ended(failure: Failure | None) -> None:
            if failure is not None:
                on_reply(Refused(_end_reason(failure)))
                return
            for path, noted, outcome in found.settled if commits else ():
                if self._observer is not None:
                    self._observer.settled(path, [noted], outcome)
            on_reply(Done())

        self._upstream.end_transaction(found.connection, found.upstream, commits, ended)

    def close_connection(self, connection: int) -> None:
        """The application is gone, and its connection to the primary goes: that rolls back."""
        for number in [number for number, each in self._open.items() if each.connection == connection]:
            del self._open[number]


def _reason(failure: Failure) -> NamespaceError:
    return refusal_of(failure, UnknownTransaction.condition)


def _end_reason(failure: Failure) -> NamespaceError:
    """Why a transaction was not ended; without an answer nobody knows whether it was."""
    if failure.is_connection or failure.condition is None:
        text = "the primary was lost while the transaction ended: all of it has happened, or nothing"
        return ConditionError(TIMED_OUT, f"{text} ({failure.text})")
    return ConditionError(failure.condition, failure.text)
