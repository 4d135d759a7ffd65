"""Transactions of applications: relayed to the primary, and to nothing else.

What belongs to one never goes to a backlog or to the spool: there it could not be rolled back. While the primary is
down, what belongs to one is refused, and those under way are rolled back; the application's connection stays open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from twinbus.broker.links.backend import ReadTransfer
from twinbus.broker.links.request_messages import Request, failure_response
from twinbus.broker.operations import Done, Refused, Settled, SettlementOutcome
from twinbus.errors import ConditionError, NamespaceError, TransactionRolledBack, UnknownTransaction
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.proxy.relay.relay import EnlistedWork, Relay
from twinbus.proxy.relay.requested_messages import SettlementObserver
from twinbus.proxy.relay.upstream_port import TIMED_OUT, UpstreamTransaction, refusal_of

_LOST = "the connection to the primary was lost, and the transaction is rolled back"
_DOUBTFUL = (FailureKind.INTERNAL, FailureKind.TIMED_OUT, FailureKind.UNREACHABLE)


@dataclass(slots=True)
class RelayedTransaction:
    connection: int
    upstream: UpstreamTransaction | None = None
    """None: not declared at the primary yet."""
    waiting: list[Callable[[UpstreamTransaction | Failure], None]] = field(default_factory=list)
    """What is to be done as soon as it is declared."""
    work: EnlistedWork = field(default_factory=EnlistedWork)


class TransactionRelay:
    """A transaction is declared at the primary with its first operation: whoever declares one may have proved nothing
    yet, and is not to open a connection there.
    """

    def __init__(self, relay: Relay, observer: SettlementObserver | None = None) -> None:
        self._relay = relay
        self._upstream = relay.upstream
        self._observer = observer
        self._open: dict[int, RelayedTransaction] = {}

    def begin(self, transaction: int, connection: int, now_ms: int, on_reply: Callable[[Done | Refused], None]) -> None:
        self._open[transaction] = RelayedTransaction(connection)
        on_reply(Done())

    def _do(
        self,
        transaction: int,
        act: Callable[[RelayedTransaction, UpstreamTransaction], None],
        refuse: Callable[[NamespaceError], None],
    ) -> None:
        """Do something in a transaction, once it is declared at the primary; in the order of the calls."""
        found = self._open.get(transaction)
        if found is None:
            refuse(UnknownTransaction(_LOST))
            return

        def declared(result: UpstreamTransaction | Failure) -> None:
            if isinstance(result, Failure):
                refuse(refusal_of(result, TIMED_OUT))
            elif result.is_lost:
                refuse(UnknownTransaction(_LOST))
            else:
                act(found, result)

        if found.upstream is not None:
            declared(found.upstream)
            return
        found.waiting.append(declared)
        if len(found.waiting) == 1:
            self._upstream.begin_transaction(found.connection, partial(self._declared, found))

    def _declared(self, found: RelayedTransaction, result: UpstreamTransaction | Failure) -> None:
        if not isinstance(result, Failure):
            found.upstream = result
        waiting, found.waiting = found.waiting, []
        for act in waiting:
            act(result)

    def enlist_send(
        self,
        transaction: int,
        path: str,
        via: str | None,
        transfer: ReadTransfer,
        now_ms: int,
        on_reply: Callable[[Done | Refused], None],
    ) -> None:
        def send(found: RelayedTransaction, upstream: UpstreamTransaction) -> None:
            def sent(failure: Failure | None) -> None:
                if failure is not None and _is_doubtful(failure):
                    found.work.doubt = failure
                on_reply(Done() if failure is None else Refused(_reason(failure)))

            event = transfer.event
            self._upstream.send_in(found.connection, upstream, path, via, event.payload, event.message_format, sent)

        self._do(transaction, send, lambda error: on_reply(Refused(error)))

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
        def settle(found: RelayedTransaction, upstream: UpstreamTransaction) -> None:
            self._relay.settle_in(receiver, tokens, outcome, upstream.id, found.work, on_reply)

        self._do(transaction, settle, lambda error: on_reply(Refused(error)))

    def request(
        self, transaction: int, path: str, request: Request, now_ms: int, on_response: Callable[[bytes], None]
    ) -> None:
        def ask(found: RelayedTransaction, upstream: UpstreamTransaction) -> None:
            self._relay.request(path, request, found.connection, now_ms, on_response, upstream.id, found.work)

        self._do(transaction, ask, lambda error: on_response(failure_response(request, error)))

    def end(self, transaction: int, commits: bool, now_ms: int, on_reply: Callable[[Done | Refused], None]) -> None:
        found = self._open.pop(transaction, None)
        if found is None:
            on_reply(Refused(UnknownTransaction(_LOST)))
            return
        upstream = found.upstream
        if upstream is None or upstream.is_lost:  # nothing of it has reached the primary, or is there any more
            is_empty = upstream is None and not found.waiting
            on_reply(Done() if is_empty or not commits else Refused(TransactionRolledBack(_LOST)))
            return
        if commits and found.work.doubt is not None:
            self._upstream.end_transaction(found.connection, upstream, False, lambda _failure: None)
            on_reply(Refused(TransactionRolledBack(f"the transaction is rolled back: {found.work.doubt.text}")))
            return

        def ended(failure: Failure | None) -> None:
            if failure is not None:
                on_reply(Refused(_end_reason(failure)))
                return
            for path, record, outcome in found.work.settled if commits else ():
                if self._observer is not None:
                    self._observer.settled(path, [record], outcome)
            on_reply(Done())

        self._upstream.end_transaction(found.connection, upstream, commits, ended)

    def close_connection(self, connection: int) -> None:
        """The application is gone, and its connection to the primary goes: that rolls back."""
        for number in [number for number, each in self._open.items() if each.connection == connection]:
            del self._open[number]


def _is_doubtful(failure: Failure) -> bool:
    """Whether a transfer may belong to its transaction all the same.

    A transfer that is refused ends its link, with the reason. A link may end for another one meanwhile.
    """
    return failure.condition is None or failure.kind in _DOUBTFUL


def _reason(failure: Failure) -> NamespaceError:
    return refusal_of(failure, UnknownTransaction.condition)


def _end_reason(failure: Failure) -> NamespaceError:
    """Why a transaction was not ended; without an answer nobody knows whether it was."""
    if failure.is_connection or failure.condition is None:
        text = "the primary was lost while the transaction ended: all of it has happened, or nothing"
        return ConditionError(TIMED_OUT, f"{text} ({failure.text})")
    return ConditionError(failure.condition, failure.text)
