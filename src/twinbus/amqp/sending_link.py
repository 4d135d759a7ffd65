"""A link on which this side sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from twinbus.amqp.codec.composites import encode_composite
from twinbus.amqp.codec.frame_codec import TAG_BYTES_MAX, TransferWriter, split_payload
from twinbus.amqp.codec.outcomes import DeliveryState, TransactionalState
from twinbus.amqp.codec.performatives import Flow, LinkRole
from twinbus.amqp.events import CreditChanged
from twinbus.amqp.link import Link, LinkState
from twinbus.amqp.serial import SERIAL_MASK, ids_between, plus, steps
from twinbus.errors import AmqpError

if TYPE_CHECKING:
    from twinbus.amqp.events import Event
    from twinbus.amqp.session import Session

CREDIT_MAX = 2**31 - 1
"""A larger credit would look like a limit in the past: serial numbers compare only half way round."""
_ALL_SETTLED = 1
"""The `snd_settle_mode` of a link that sends every message settled."""


class SendingLink(Link):
    role: ClassVar[LinkRole] = LinkRole.SENDER

    def __init__(self, session: Session, name: str, handle: int, state: LinkState) -> None:
        super().__init__(session, name, handle, state)
        self.credit = 0
        """Messages the peer accepts now: always credit_limit - delivery_count."""
        self.credit_limit = 0
        """The delivery count up to which the peer accepts messages; wraps to zero after 2**32 - 1."""
        self.drain = False
        """The peer wants its credit used up or returned, and has no answer yet."""
        self.unsent = 0
        """Deliveries that wait for the peer's session window; they are sent automatically."""
        self.unsettled: dict[int, bytes] = {}
        """Delivery id -> tag of deliveries that neither side has settled."""
        self._waiting_flow: bool | None = None
        """A flow that waits for the unsent deliveries, and whether it answers a drain; None: there is none."""
        self._wanted_limit = 0  # the peer's own limit; credit_limit stays below it while too much is unsettled
        self._writer = TransferWriter(session.channel, handle)

    def send(
        self,
        payload: bytes,
        *,
        tag: bytes = b"",
        settled: bool = False,
        message_format: int = 0,
        transaction: bytes | None = None,
    ) -> int:
        """Send one message, in a transaction of the peer if one is given, and return its delivery id.

        Raises AmqpError if the link is not attached. The caller keeps within `credit`; a message without credit is sent
        too, because the peer may have taken credit back meanwhile.
        """
        if not self.attached:
            raise AmqpError(f"link {self.name!r} is not attached")
        if len(tag) > TAG_BYTES_MAX:
            raise ValueError(f"a delivery tag has at most {TAG_BYTES_MAX} bytes, got {len(tag)}")
        session = self.session
        delivery_id = session.next_delivery_id
        session.next_delivery_id = (delivery_id + 1) & SERIAL_MASK
        self.delivery_count = (self.delivery_count + 1) & SERIAL_MASK
        if self.credit:
            self.credit -= 1
        else:
            self.credit_limit = self.delivery_count
        if not settled:
            self.unsettled[delivery_id] = tag
            session.unsettled[delivery_id] = self
        elif self.credit_limit != self._wanted_limit:
            self.raise_limit(session.connection.pending_events)  # it used credit but adds nothing unsettled
        size = len(payload)
        if transaction is None:
            head = self._writer.first(delivery_id, tag, message_format, settled, False, size)
        else:
            head = self._first(delivery_id, tag, message_format, settled, False, size, transaction)
        if len(head) + size > session.connection.frame_bytes_out:
            self._send_in_parts(payload, delivery_id, tag, message_format, settled, transaction)
        elif session.remote_window > 0 and not session.waiting:
            session.count_outgoing()
            session.chunks.append(head)
            session.chunks.append(payload)
        else:
            session.wait(self, head, payload, True)
        return delivery_id

    def _first(
        self,
        delivery_id: int,
        tag: bytes,
        message_format: int,
        settled: bool,
        more: bool,
        room: int,
        transaction: bytes | None,
    ) -> bytes:
        if transaction is None:
            return self._writer.first(delivery_id, tag, message_format, settled, more, room)
        state = encode_composite(TransactionalState(transaction))
        return self._writer.in_transaction(delivery_id, tag, message_format, settled, more, room, state)

    def answer(self, first: int, last: int, state: DeliveryState) -> None:
        """Tell the state of deliveries, which stay unsettled: their receiver has the last word."""
        if self.attached:
            self.session.dispose(LinkRole.SENDER, first, last, state, False)

    def settle(self, first: int, last: int, outcome: DeliveryState | None) -> None:
        """Settle first..last with this outcome and forget them. Unknown deliveries are ignored."""
        known = False
        for delivery_id in ids_between(first, last, self.unsettled):
            known = True
            self.forget(delivery_id)
        if known and self.attached:
            self.session.dispose(LinkRole.SENDER, first, last, outcome, True)
        self.raise_limit(self.session.connection.pending_events)

    def drained(self) -> None:
        """Return the remaining credit: the answer to a drain. Does nothing unless one is to be answered."""
        if not self.attached or not self.drain:
            return
        self.drain = False
        self.delivery_count = plus(self.delivery_count, self.credit)
        self.credit_limit = self._wanted_limit = self.delivery_count
        self.credit = 0
        self._send_flow(drain=True)

    def handle_flow(self, flow: Flow, events: list[Event]) -> None:
        if flow.link_credit is not None:
            self._wanted_limit = plus(flow.delivery_count or 0, min(flow.link_credit, CREDIT_MAX))
            self.drain = flow.drain
            self._limit_credit()
            events.append(CreditChanged(self, self.credit, self.credit_limit, self.drain))
        if flow.echo and self.attached:
            self._send_flow()

    def raise_limit(self, events: list[Event]) -> None:
        """Raise the credit towards what the peer granted, as far as settling made room."""
        if self.drain:
            return  # credit that comes while a drain is answered would be given back and used
        if self.credit_limit == self._wanted_limit or self.credit * 2 >= self._room() or not self.attached:
            return  # in large steps only: one event per settled message would be too many
        before = self.credit
        self._limit_credit()
        if self.credit > before:
            events.append(CreditChanged(self, self.credit, self.credit_limit, self.drain))

    def forget(self, delivery_id: int) -> bytes:
        """Forget a settled delivery and return its tag."""
        self.session.unsettled.pop(delivery_id, None)
        return self.unsettled.pop(delivery_id)

    def _limit_credit(self) -> None:
        wanted = max(0, steps(self.delivery_count, self._wanted_limit))
        if not wanted:
            self._wanted_limit = self.delivery_count  # already passed
        self.credit = min(wanted, self._room())
        self.credit_limit = plus(self.delivery_count, self.credit)

    def _room(self) -> int:
        """How many more messages may be sent before the limit of unsettled ones."""
        if self.snd_settle_mode == _ALL_SETTLED:
            return CREDIT_MAX
        return max(0, self.session.connection.limits.unsettled_max - len(self.unsettled))

    def _send_in_parts(
        self,
        payload: bytes,
        delivery_id: int,
        tag: bytes,
        message_format: int,
        settled: bool,
        transaction: bytes | None,
    ) -> None:
        writer, frame_bytes = self._writer, self.session.connection.frame_bytes_out
        first_room = frame_bytes - len(self._first(delivery_id, tag, message_format, settled, True, 0, transaction))
        next_room = frame_bytes - len(writer.following(settled, True, 0))
        left = len(payload)
        for number, piece in enumerate(split_payload(payload, first_room, next_room)):
            left -= len(piece)
            if number:
                head = writer.following(settled, left > 0, len(piece))
            else:
                head = self._first(delivery_id, tag, message_format, settled, True, len(piece), transaction)
            self.session.send_or_wait(self, head, piece, left == 0)

    def delivery_sent(self) -> None:
        """A delivery that waited for the peer's window is sent."""
        self.unsent -= 1
        if not self.unsent and self._waiting_flow is not None:
            drain, self._waiting_flow = self._waiting_flow, None
            self._send_flow(drain)

    def _send_flow(self, drain: bool = False) -> None:
        if self.unsent:  # it counts them: the peer would take them for further ones
            self._waiting_flow = drain or bool(self._waiting_flow)
            return
        self.session.send_flow(self.handle, self.delivery_count, self.credit, drain)

    def _forget_deliveries(self) -> None:
        for delivery_id in self.unsettled:
            self.session.unsettled.pop(delivery_id, None)
        self.unsettled.clear()
        self.session.forget_waiting(self)
        self.unsent = 0
