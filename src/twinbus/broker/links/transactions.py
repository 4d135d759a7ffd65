"""One connection's transactions: its coordinator links, and what it does as part of a transaction.

The back end keeps the work; here are the ids, the memory it takes, and who has to hear how it ended. A transaction ends
with its coordinator link: whatever was not committed by then is rolled back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from twinbus.amqp.codec.composites import read_composite
from twinbus.amqp.codec.outcomes import ACCEPTED, Declared, Outcome, TransactionalState
from twinbus.amqp.codec.performatives import Declare, Discharge
from twinbus.amqp.events import DispositionArrived, TransferArrived
from twinbus.amqp.link import Link
from twinbus.amqp.message import sections
from twinbus.amqp.sending_link import SendingLink
from twinbus.amqp.serial import ranges
from twinbus.broker.faults.decisions import PROCEED, FaultDecision, Ignore, Proceed, Refuse
from twinbus.broker.links.backend import ReadTransfer
from twinbus.broker.links.connection_context import ConnectionContext
from twinbus.broker.links.fault_gate import FaultGate
from twinbus.broker.links.incoming import IncomingDeliveries
from twinbus.broker.links.link_roles import ReceiverRole, SenderRole, group_of
from twinbus.broker.links.outcomes import amqp_error, confirmation_of, outcome_of, rejection
from twinbus.broker.message import Arrival
from twinbus.broker.operations import Done, Operation, Refused, Settled, SettlementOutcome
from twinbus.broker.ops.meter import Metered
from twinbus.errors import (
    AmqpError,
    DecodeError,
    NamespaceError,
    NotAllowed,
    QuotaExceeded,
    TransactionRolledBack,
    TwinbusError,
    UnknownTransaction,
)

TRANSACTIONS_MAX = 1_000
"""Of one connection, at the same time."""
TRANSACTION_COST, WORK_COST = 1_024, 512
"""What a transaction, and a message or settlement in it, takes in memory, beside the payload."""
ROOM_KEPT = 4
"""One part in so many of a connection's memory is not for transactions, or what comes next would end the connection."""
CONTROL_ELEMENTS = 100


@dataclass(eq=False, slots=True)
class OpenTransaction:
    number: int
    """By which the back end knows it; never reused."""
    link: Link
    """The coordinator link on which it was declared."""
    held_bytes: int = TRANSACTION_COST
    message_bytes: int = 0
    messages: int = 0
    first: tuple[Operation, str] | None = None
    """What it did first, and where: faults of that strike at its end too."""
    unsettled: list[tuple[SendingLink, list[int], Outcome]] = field(default_factory=list)
    """Deliveries that their receivers have not settled: those are settled if it is committed."""
    refusal: NamespaceError | None = None
    """Why something of it was refused, if the peer was not told: it cannot be committed."""
    undecided: int = 0
    """Transfers and dispositions of which it is not known yet whether they are refused: its end waits for them."""
    discharge: tuple[TransferArrived, bool] | None = None
    """The end that waits, and whether it is a rollback; nothing more belongs to it from then on."""

    @property
    def id(self) -> bytes:
        return self.number.to_bytes(8, "big")

    def state(self, outcome: Outcome) -> TransactionalState:
        return TransactionalState(self.id, outcome)


class TransactionBook:
    def __init__(
        self,
        context: ConnectionContext,
        connection: int,
        faults: FaultGate,
        incoming: IncomingDeliveries,
        flush_later: Callable[[], None],
    ) -> None:
        self._context = context
        self._backend = context.backend
        self._connection = connection
        self._faults = faults
        self._incoming = incoming
        self._flush_later = flush_later
        self._open: dict[int, OpenTransaction] = {}

    # --- the coordinator ---

    def control(self, event: TransferArrived, now_ms: int) -> None:
        """Do what a message to the coordinator says."""
        try:
            wanted = read_control(event.payload)
            if isinstance(wanted, Declare):
                self._declare(event, now_ms)
            else:
                transaction = self.find(wanted.txn_id)
                if transaction.undecided and not wanted.fail:
                    transaction.discharge = event, wanted.fail
                else:
                    self._discharge(event, transaction, now_ms, fails=wanted.fail)
        except TwinbusError as error:
            self._incoming.settle(event, rejection(error))

    def _declare(self, event: TransferArrived, now_ms: int) -> None:
        account = event.link.session.connection.account
        if event.settled:
            raise NotAllowed("a declaration must not be settled: its outcome has the id of the transaction")
        if len(self._open) >= TRANSACTIONS_MAX or account.room < TRANSACTION_COST:
            raise QuotaExceeded(f"a connection has at most {TRANSACTIONS_MAX} transactions at the same time")
        transaction = OpenTransaction(self._context.new_transaction(self), event.link)
        account.charge(transaction.held_bytes)
        self._open[transaction.number] = transaction
        declared = partial(self._declared, event, transaction)
        self._backend.begin_transaction(transaction.number, self._connection, now_ms, declared)

    def _declared(self, event: TransferArrived, transaction: OpenTransaction, reply: Done | Refused) -> None:
        if isinstance(reply, Refused):
            self._forget(transaction)
            self._incoming.settle(event, rejection(reply.error))
        elif event.link.attached:
            event.link.settle(event.delivery_id, event.delivery_id, Declared(transaction.id))
            self._flush_later()

    def find(self, txn_id: bytes) -> OpenTransaction:
        """Raises `UnknownTransaction` if it is not one of this connection, or has ended."""
        found = self._of(txn_id)
        if found is None or found.discharge is not None:
            raise UnknownTransaction(
                "no transaction of this connection has this id: it has ended, was rolled back after two minutes, "
                "or was declared elsewhere"
            )
        return found

    def _of(self, txn_id: bytes | None) -> OpenTransaction | None:
        return self._open.get(int.from_bytes(txn_id, "big")) if txn_id is not None and len(txn_id) == 8 else None

    def _discharge(self, event: TransferArrived, transaction: OpenTransaction, now_ms: int, *, fails: bool) -> None:
        if fails or transaction.refusal is not None:
            self._roll_back(transaction, now_ms)
            refusal = None if fails else transaction.refusal
            self._incoming.settle(
                event, ACCEPTED if refusal is None else rejection(TransactionRolledBack(str(refusal)))
            )
            return
        decision: FaultDecision = PROCEED
        if transaction.first is not None:
            decision = self._faults.decide(*transaction.first, now_ms)
        if isinstance(decision, Proceed):
            self._commit(event, transaction, decision, now_ms)
            return
        if isinstance(decision, Refuse):
            self._roll_back(transaction, now_ms)  # at once, though the answer may be late
        self._faults.apply(decision, now_ms, lambda: None, lambda error: self._incoming.settle(event, rejection(error)))

    def _commit(self, event: TransferArrived, transaction: OpenTransaction, decision: Proceed, now_ms: int) -> None:
        del self._open[transaction.number]  # from now on nothing more belongs to it
        self._incoming.count_unwritten(transaction.message_bytes, transaction.messages)

        def ended(reply: Done | Refused) -> None:
            self._incoming.share.remove(transaction.message_bytes, transaction.messages)
            self._forget(transaction)
            if not decision.unanswered:
                answer = partial(self._committed, event, transaction, reply)
                self._faults.call_later(decision.delay_ms, now_ms, answer)

        self._backend.end_transaction(transaction.number, True, now_ms, ended)

    def _committed(self, event: TransferArrived, transaction: OpenTransaction, reply: Done | Refused) -> None:
        if isinstance(reply, Refused):
            self._incoming.settle(event, rejection(reply.error))
            return
        self._incoming.settle(event, ACCEPTED)
        for link, ids, outcome in transaction.unsettled:
            for first, last in ranges(ids):
                link.settle(first, last, outcome)
        self._flush_later()

    def _roll_back(self, transaction: OpenTransaction, now_ms: int) -> None:
        self._forget(transaction)
        self._backend.end_transaction(transaction.number, False, now_ms, lambda _: None)

    def _forget(self, transaction: OpenTransaction) -> None:
        self._open.pop(transaction.number, None)
        self._context.forget_transaction(transaction.number)
        transaction.link.session.connection.account.release(transaction.held_bytes)

    def timed_out(self, number: int) -> None:
        """The back end has rolled it back."""
        transaction = self._open.get(number)
        if transaction is not None:
            self._forget(transaction)
            if transaction.discharge is not None:
                error = TransactionRolledBack("the transaction is rolled back, its time was over before its end")
                self._incoming.settle(transaction.discharge[0], rejection(error))

    def link_lost(self, link: Link, now_ms: int) -> None:
        """A coordinator link is gone, and with it what was declared on it."""
        for transaction in [each for each in self._open.values() if each.link is link]:
            self._roll_back(transaction, now_ms)

    def close(self, now_ms: int) -> None:
        for transaction in list(self._open.values()):
            self._roll_back(transaction, now_ms)

    # --- what belongs to a transaction ---

    def charge(self, txn_id: bytes, operation: Operation, path: str, size: int, count: int) -> OpenTransaction:
        """The transaction, with this much more in it; raises `UnknownTransaction`, or `QuotaExceeded`."""
        transaction = self.find(txn_id)
        account, cost = transaction.link.session.connection.account, size + WORK_COST * count
        if account.room - cost < account.limit // ROOM_KEPT:
            raise QuotaExceeded("the transactions of this connection hold too much already: commit some first")
        account.charge(cost)
        transaction.held_bytes += cost
        transaction.first = transaction.first or (operation, path)
        return transaction

    def send(self, event: TransferArrived, role: SenderRole, now_ms: int) -> None:
        """Send messages if their transaction is committed."""
        assert event.transaction is not None
        self._begin_work(event.transaction)
        decision = self._faults.decide(Operation.SEND, role.path, now_ms)
        refuse = partial(self._refuse_send, event)
        if not isinstance(decision, Proceed):
            if isinstance(decision, Ignore):
                self._end_work(event.transaction)
            self._faults.apply(decision, now_ms, lambda: None, refuse)
            return
        try:
            self._incoming.check_load(role.path)
            arrivals = self._incoming.read_whole(event, decision, now_ms)
            size = len(event.payload)
            transaction = self.charge(event.transaction, Operation.SEND, role.path, size, len(arrivals))
        except (NamespaceError, AmqpError) as error:
            refuse(error)
            return
        via = role.via or group_of(event.link).via
        sent = partial(self._sent, event, role, transaction, arrivals, decision, now_ms)
        transfer = ReadTransfer(event, arrivals)
        self._backend.enlist_send(transaction.number, role.path, via, transfer, now_ms, sent)

    def _sent(
        self,
        event: TransferArrived,
        role: SenderRole,
        transaction: OpenTransaction,
        arrivals: tuple[Arrival, ...],
        decision: Proceed,
        sent_ms: int,
        reply: Done | Refused,
    ) -> None:
        if isinstance(reply, Refused):
            self._refuse_send(event, reply.error)
            return
        self._end_work(event.transaction)
        transaction.message_bytes += len(event.payload)
        transaction.messages += len(arrivals)
        self._context.meter.count_sends(role.entity, arrivals)
        if not decision.unanswered:
            self._faults.call_later(decision.delay_ms, sent_ms, partial(self._accept, event, transaction))

    def _accept(self, event: TransferArrived, transaction: OpenTransaction) -> None:
        if not event.settled and event.link.attached:
            event.link.settle(event.delivery_id, event.delivery_id, transaction.state(ACCEPTED))
            self._flush_later()

    def _refuse_send(self, event: TransferArrived, error: TwinbusError) -> None:
        """Detach the link, as the service does: the Java client takes a rejection in a transaction for a success."""
        if event.settled:
            self._require_rollback(event.transaction, error)
        self._end_work(event.transaction)
        event.link.detach(amqp_error(error))
        self._flush_later()

    def _begin_work(self, txn_id: bytes) -> None:
        transaction = self._of(txn_id)
        if transaction is not None:
            transaction.undecided += 1

    def _end_work(self, txn_id: bytes | None) -> None:
        """It is known now whether a transfer or a disposition belongs to the transaction; its end may wait for that."""
        transaction = self._of(txn_id)
        if transaction is None:
            return
        transaction.undecided -= 1
        if not transaction.undecided and transaction.discharge is not None:
            event, fails = transaction.discharge
            self._discharge(event, transaction, self._context.clock(), fails=fails)

    def _require_rollback(self, txn_id: bytes | None, error: TwinbusError) -> None:
        """The peer is not told of an error, so the rest must not be committed without it."""
        transaction = self._of(txn_id)
        if transaction is not None and transaction.refusal is None:
            text = f"the transaction is rolled back, something of it was refused: {error}"
            transaction.refusal = TransactionRolledBack(text)

    def settle(self, event: DispositionArrived, link: SendingLink, role: ReceiverRole, now_ms: int) -> None:
        """Settle deliveries if their transaction is committed."""
        outcome = outcome_of(event.outcome, is_final=event.settled)
        if outcome is None:
            return
        assert event.transaction is not None
        self._begin_work(event.transaction)
        decision = self._faults.decide(Operation.SETTLE, role.path, now_ms)
        if isinstance(decision, Proceed):
            self._settle(event, link, role, outcome, decision.delay_ms, now_ms)
        else:
            if isinstance(decision, Ignore):
                self._end_work(event.transaction)
            self._faults.apply(decision, now_ms, lambda: None, partial(self._refuse_settlement, event, link))

    def _settle(
        self,
        event: DispositionArrived,
        link: SendingLink,
        role: ReceiverRole,
        outcome: SettlementOutcome,
        delay_ms: int,
        now_ms: int,
    ) -> None:
        assert event.transaction is not None
        tokens = tuple([tag for _, tag in event.deliveries])
        try:
            transaction = self.charge(event.transaction, Operation.SETTLE, role.path, 0, len(tokens))
        except NamespaceError as error:
            self._refuse_settlement(event, link, error)
            return
        self._context.meter.count(Metered.SETTLE, role.entity, operations=len(tokens))

        def settled(reply: Settled | Refused) -> None:
            if event.settled:
                for error in (reply.error,) if isinstance(reply, Refused) else reply.failures.values():
                    self._require_rollback(event.transaction, error)
            self._end_work(event.transaction)
            answer = partial(self._settled, event, link, transaction, reply)
            self._faults.call_later(delay_ms, now_ms, answer)

        self._backend.enlist_settlement(transaction.number, role.receiver, role.path, tokens, outcome, now_ms, settled)

    def _settled(
        self, event: DispositionArrived, link: SendingLink, transaction: OpenTransaction, reply: Settled | Refused
    ) -> None:
        if isinstance(reply, Refused):
            self._reject_settlement(event, link, reply.error)
            return
        yes, failures = confirmation_of(event.outcome), reply.failures
        taken = [delivery_id for delivery_id, token in event.deliveries if token not in failures]
        if event.settled or not link.attached:
            return
        for first, last in ranges(taken):
            if link.rcv_settle_mode == SETTLED_SECOND:
                link.settle(first, last, transaction.state(yes))
            else:  # it will settle them itself, if this is rolled back in another way
                link.answer(first, last, transaction.state(yes))
        if link.rcv_settle_mode != SETTLED_SECOND and taken:
            transaction.unsettled.append((link, taken, yes))
        for delivery_id, token in event.deliveries if failures else ():
            if token in failures:
                link.settle(delivery_id, delivery_id, rejection(failures[token]))
        self._flush_later()

    def _refuse_settlement(self, event: DispositionArrived, link: SendingLink, error: NamespaceError) -> None:
        if event.settled:
            self._require_rollback(event.transaction, error)
        self._end_work(event.transaction)
        self._reject_settlement(event, link, error)

    def _reject_settlement(self, event: DispositionArrived, link: SendingLink, error: NamespaceError) -> None:
        if not event.settled and link.attached:
            for delivery_id, _ in event.deliveries:
                link.settle(delivery_id, delivery_id, rejection(error))
            self._flush_later()


SETTLED_SECOND = 1
"""The settle mode of a receiver that settles after we have: it waits for that."""


def read_control(payload: bytes) -> Declare | Discharge:
    """What a message to a coordinator says; raises `DecodeError`."""
    layout = sections.walk(payload)
    sections.check_elements(payload, layout, CONTROL_ELEMENTS)
    wanted = read_composite(sections.read_value(payload, layout))
    if not isinstance(wanted, Declare | Discharge):
        raise DecodeError(f"a coordinator understands declare and discharge, not {type(wanted).__name__.lower()}")
    if isinstance(wanted, Declare) and wanted.global_id is not None:
        raise DecodeError("transactions of several namespaces are not offered: declare one without a global id")
    return wanted
