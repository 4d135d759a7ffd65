"""The end of a link that gives messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from twinbus.amqp.endpoint import Link, LinkState
from twinbus.amqp.events import CreditChanged
from twinbus.amqp.outcomes import Outcome
from twinbus.amqp.performatives import Flow, LinkRole
from twinbus.amqp.serial import SERIAL_MASK, ids_between, plus, steps
from twinbus.amqp.transfers import TAG_BYTES_MAX, TransferWriter, cut
from twinbus.errors import AmqpError

if TYPE_CHECKING:
    from twinbus.amqp.events import Event
    from twinbus.amqp.session import Session

CREDIT_MAX = 2**31 - 1
"""More would look like a limit in the past: counters compare only half way round."""
_ALL_SETTLED = 1
"""The `snd_settle_mode` of a link that sends every message settled."""


class SendingLink(Link):
    """We send."""

    role: ClassVar[LinkRole] = LinkRole.SENDER

    def __init__(self, session: Session, name: str, handle: int, state: LinkState) -> None:
        super().__init__(session, name, handle, state)
        self.credit = 0
        """Messages the peer takes now: always credit_limit - delivery_count."""
        self.credit_limit = 0
        """The delivery count up to which the peer takes messages; it starts again at zero after 2**32 - 1."""
        self.drain = False
        """The peer wants its credit used up or given back."""
        self.unsent = 0
        """Deliveries that wait for room in the peer's session window; they go out by themselves."""
        self.unsettled: dict[int, bytes] = {}
        """Delivery id -> tag of what was sent and is settled by neither side."""
        self._wanted = 0  # the peer's own limit; credit_limit stays below it while too much is unsettled
        self._writer = TransferWriter(session.channel, handle)

    def send(self, payload: bytes, *, tag: bytes = b"", settled: bool = False, message_format: int = 0) -> int:
        """Send one message and get its delivery id. AmqpError on a link that is not attached.

        To stay within `credit` is the caller's part. A message goes out without it too: one that was on its way while
        the peer took credit back cannot be held here.
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
        elif self.credit_limit != self._wanted:
            self.raise_limit(session.connection.late_events)  # it took credit but no room
        size = len(payload)
        head = self._writer.first(delivery_id, tag, message_format, settled, False, size)
        if len(head) + size > session.connection.frame_bytes_out:
            self._send_in_parts(payload, delivery_id, tag, message_format, settled)
        elif session.remote_window > 0 and not session.waiting:
            session.count_outgoing()
            session.chunks.append(head)
            session.chunks.append(payload)
        else:
            session.wait(self, head, payload, True)
        return delivery_id

    def settle(self, first: int, last: int, outcome: Outcome | None) -> None:
        """Settle first..last with this outcome and forget them. Deliveries that are not ours any more are not named."""
        known = False
        for delivery_id in ids_between(first, last, self.unsettled):
            known = True
            self.forget(delivery_id)
        if known and self.attached:
            self.session.dispose(LinkRole.SENDER, first, last, outcome, True)
        self.raise_limit(self.session.connection.late_events)

    def drained(self) -> None:
        """Give back the credit that is left: the answer to a drain."""
        if not self.attached:
            return
        self.delivery_count = plus(self.delivery_count, self.credit)
        self.credit_limit = self._wanted = self.delivery_count
        self.credit = 0
        self._say_flow(drain=True)

    def hear_flow(self, flow: Flow, events: list[Event]) -> None:
        if flow.link_credit is not None:
            self._wanted = plus(flow.delivery_count or 0, min(flow.link_credit, CREDIT_MAX))
            self.drain = flow.drain
            self._limit_credit()
            events.append(CreditChanged(self, self.credit, self.credit_limit, self.drain))
        if flow.echo and self.attached:
            self._say_flow()

    def raise_limit(self, events: list[Event]) -> None:
        """Give the peer the credit it wanted as far as settling made room for it."""
        if self.credit_limit == self._wanted or self.credit * 2 >= self._room() or not self.attached:
            return  # in large steps only: one event per settled message would be noise
        before = self.credit
        self._limit_credit()
        if self.credit > before:
            events.append(CreditChanged(self, self.credit, self.credit_limit, self.drain))

    def forget(self, delivery_id: int) -> bytes:
        """The tag of a delivery that is settled now."""
        self.session.unsettled.pop(delivery_id, None)
        return self.unsettled.pop(delivery_id)

    def _limit_credit(self) -> None:
        wanted = max(0, steps(self.delivery_count, self._wanted))
        if not wanted:
            self._wanted = self.delivery_count  # a limit we passed already
        self.credit = min(wanted, self._room())
        self.credit_limit = plus(self.delivery_count, self.credit)

    def _room(self) -> int:
        """How many more may be sent before too much is unsettled."""
        if self.snd_settle_mode == _ALL_SETTLED:
            return CREDIT_MAX
        return max(0, self.session.connection.limits.unsettled_max - len(self.unsettled))

    def _send_in_parts(self, payload: bytes, delivery_id: int, tag: bytes, message_format: int, settled: bool) -> None:
        writer, frame_bytes = self._writer, self.session.connection.frame_bytes_out
        first_room = frame_bytes - len(writer.first(delivery_id, tag, message_format, settled, True, 0))
        next_room = frame_bytes - len(writer.following(settled, True, 0))
        left = len(payload)
        for number, piece in enumerate(cut(payload, first_room, next_room)):
            left -= len(piece)
            if number:
                head = writer.following(settled, left > 0, len(piece))
            else:
                head = writer.first(delivery_id, tag, message_format, settled, True, len(piece))
            self.session.send_or_wait(self, head, piece, left == 0)

    def _say_flow(self, drain: bool = False) -> None:
        self.session.say_flow(self.handle, self.delivery_count, self.credit, drain)

    def _forget_deliveries(self) -> None:
        for delivery_id in self.unsettled:
            self.session.unsettled.pop(delivery_id, None)
        self.unsettled.clear()
        self.session.forget_waiting(self)
        self.unsent = 0
