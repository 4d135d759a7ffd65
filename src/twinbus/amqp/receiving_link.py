"""A link on which this side receives."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from twinbus.amqp.codec.outcomes import DeliveryState, Error, Rejected, SessionViolation
from twinbus.amqp.codec.performatives import Attach, Flow, LinkRole
from twinbus.amqp.events import Drained, TransferArrived
from twinbus.amqp.link import Link, LinkState
from twinbus.amqp.peer_memory import FRAME_COST
from twinbus.amqp.serial import SERIAL_MASK, steps

if TYPE_CHECKING:
    from twinbus.amqp.events import Event
    from twinbus.amqp.session import Session

SIZE_EXCEEDED = "amqp:link:message-size-exceeded"

_USABLE = (LinkState.ATTACHED, LinkState.ATTACHING)


class _Partial:
    """A delivery whose last frame is missing. `pieces` is None once it is too large to keep."""

    __slots__ = ("cost", "delivery_id", "message_format", "pieces", "settled", "size", "tag", "transaction")

    def __init__(self, delivery_id: int, tag: bytes, message_format: int) -> None:
        self.delivery_id = delivery_id
        self.tag = tag
        self.message_format = message_format
        self.settled = False
        self.transaction: bytes | None = None
        self.pieces: list[bytes] | None = []
        self.size = 0
        self.cost = 0
        """Bytes charged to the account."""


class ReceivingLink(Link):
    role: ClassVar[LinkRole] = LinkRole.RECEIVER

    def __init__(self, session: Session, name: str, handle: int, state: LinkState) -> None:
        super().__init__(session, name, handle, state)
        self.credit = 0
        """How many messages the peer may still send. Some peers send more; those are accepted."""
        self._keep_credit = 0
        self.awaiting: set[int] = set()
        """Deliveries with an outcome that the peer has not settled yet."""
        self._partial: _Partial | None = None
        self._knows_count = False
        self._draining = False

    @property
    def keep_credit(self) -> int:
        """Above 0: credit is raised to this value whenever less than half of it is left."""
        return self._keep_credit

    @keep_credit.setter
    def keep_credit(self, credit: int) -> None:
        self._keep_credit = credit
        self._top_up()

    def grant(self, credit: int, *, drain: bool = False) -> None:
        """Set the credit to this value (not in addition to the credit left); with `drain` as `drain` does."""
        if self.state not in _USABLE:
            return
        self.credit = credit
        self._draining = drain
        self._send_flow(drain)

    def drain(self) -> None:
        """Ask the peer to use its credit now or give it up; Drained follows."""
        self.grant(self.credit, drain=True)

    def settle(self, first: int, last: int, outcome: DeliveryState | None, *, settled: bool = True) -> None:
        """Send the outcome of deliveries first..last. Does nothing if the link is gone."""
        if self.state not in _USABLE:
            return
        if not settled:
            for delivery_id in range(first, last + 1):
                self.awaiting.add(delivery_id)
                self.session.awaiting[delivery_id] = self
        self.session.dispose(LinkRole.RECEIVER, first, last, outcome, settled)

    def _move(self, state: LinkState) -> None:
        super()._move(state)
        if state is LinkState.ATTACHED:
            self._top_up()

    def handle_attach(self, attach: Attach) -> None:
        super().handle_attach(attach)
        self.delivery_count = attach.initial_delivery_count or 0
        self._knows_count = True

    def handle_flow(self, flow: Flow, events: list[Event]) -> None:
        if flow.delivery_count is not None:
            self.credit = max(0, self.credit - max(0, steps(self.delivery_count, flow.delivery_count)))
            self.delivery_count = flow.delivery_count
        if flow.drain and self._draining:
            self._draining = False
            self.credit = 0
            events.append(Drained(self))
        if flow.echo and self.attached:
            self._send_flow()

    def handle_transfer(
        self,
        delivery_id: int | None,
        tag: bytes | None,
        message_format: int | None,
        settled: bool,
        more: bool,
        aborted: bool,
        payload: bytes,
        transaction: bytes | None,
        events: list[Event],
    ) -> None:
        """Handle one transfer frame; the last frame of a delivery yields TransferArrived."""
        if more or aborted or self._partial is not None:
            self._handle_part(delivery_id, tag, message_format, settled, more, aborted, payload, transaction, events)
            return
        if delivery_id is None:
            raise SessionViolation("amqp:invalid-field", "the first transfer of a delivery must have a delivery-id")
        events.append(
            TransferArrived(self, delivery_id, tag or b"", message_format or 0, settled, payload, transaction)
        )
        self._count_delivery()

    def _count_delivery(self) -> None:
        self.delivery_count = (self.delivery_count + 1) & SERIAL_MASK
        credit = self.credit - 1
        self.credit = credit if credit > 0 else 0  # the official Python client sends without credit
        if credit * 2 < self._keep_credit:
            self._top_up()

    def _top_up(self) -> None:
        if self.credit * 2 < self._keep_credit and not self._draining:
            self.grant(self._keep_credit)

    def _handle_part(
        self,
        delivery_id: int | None,
        tag: bytes | None,
        message_format: int | None,
        settled: bool,
        more: bool,
        aborted: bool,
        payload: bytes,
        transaction: bytes | None,
        events: list[Event],
    ) -> None:
        partial = self._partial
        if partial is None:
            if delivery_id is None:
                raise SessionViolation("amqp:invalid-field", "the first transfer of a delivery must have a delivery-id")
            partial = self._partial = _Partial(delivery_id, tag or b"", message_format or 0)
        elif delivery_id is not None and delivery_id != partial.delivery_id:
            raise SessionViolation(
                "amqp:not-allowed", "a delivery began before the previous one of its link was complete"
            )
        partial.settled = partial.settled or settled
        partial.transaction = transaction or partial.transaction
        self._keep(partial, payload)
        if aborted or not more:
            self._finish(partial, aborted, events)

    def _keep(self, partial: _Partial, payload: bytes) -> None:
        partial.size += len(payload)
        if partial.pieces is None:
            return
        connection = self.session.connection
        if partial.size > connection.limits.message_bytes_max:
            connection.account.release(partial.cost)
            partial.pieces, partial.cost = None, 0
            return
        cost = len(payload) + FRAME_COST
        partial.pieces.append(payload)
        partial.cost += cost
        connection.account.charge(cost)

    def _finish(self, partial: _Partial, aborted: bool, events: list[Event]) -> None:
        pieces = partial.pieces
        self._drop_partial()
        if aborted:
            return  # as if it had never begun
        if pieces is None:
            self._reject_oversize(partial)
        else:
            events.append(
                TransferArrived(
                    self,
                    partial.delivery_id,
                    partial.tag,
                    partial.message_format,
                    partial.settled,
                    b"".join(pieces),
                    partial.transaction,
                )
            )
        self._count_delivery()

    def _reject_oversize(self, partial: _Partial) -> None:
        # Not a detach: clients would not see the reason.
        if not partial.settled:
            limit = self.session.connection.limits.message_bytes_max
            text = f"The message has {partial.size} bytes; at most {limit} are allowed."
            self.settle(partial.delivery_id, partial.delivery_id, Rejected(Error(SIZE_EXCEEDED, text)))

    def _drop_partial(self) -> None:
        partial, self._partial = self._partial, None
        if partial is not None:
            self.session.connection.account.release(partial.cost)

    def _send_flow(self, drain: bool = False) -> None:
        count = self.delivery_count if self._knows_count else None
        self.session.send_flow(self.handle, count, self.credit, drain)

    def _forget_deliveries(self) -> None:
        self._drop_partial()
        for delivery_id in self.awaiting:
            self.session.awaiting.pop(delivery_id, None)
        self.awaiting.clear()
