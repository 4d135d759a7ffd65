"""Messages in, on one connection: transfers become sends, and their results become dispositions.

Transfers that were read from the socket together are handed over together, and those that are accepted together are
settled together: one call and one disposition instead of a hundred.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain

from twinbus.amqp.codec.outcomes import ACCEPTED, Outcome
from twinbus.amqp.events import TransferArrived
from twinbus.broker.faults.decisions import PROCEED, Proceed
from twinbus.broker.links.backend import ReadTransfer
from twinbus.broker.links.connection_context import ConnectionContext
from twinbus.broker.links.disk_fairness import SenderShare
from twinbus.broker.links.fault_gate import FaultGate
from twinbus.broker.links.link_roles import SenderRole
from twinbus.broker.links.outcomes import rejection
from twinbus.broker.message import BATCH_FORMAT, Arrival, unpack_batch
from twinbus.broker.operations import Done, Operation, Refused
from twinbus.errors import AmqpError, NamespaceError, ServerBusy

MESSAGES_PER_PART = 100
"""Messages of a batch that are read at once, in about 1 ms; between parts it may be another connection's turn."""


class PartlyReadBatch:
    __slots__ = ("arrivals", "event", "messages")

    def __init__(self, event: TransferArrived, messages: list[bytes]) -> None:
        self.event = event
        self.messages = messages
        self.arrivals: list[Arrival] = []


class IncomingDeliveries:
    def __init__(self, context: ConnectionContext, faults: FaultGate, flush_later: Callable[[], None]) -> None:
        """`flush_later` is called when there is something to send to the peer."""
        self._context = context
        self._backend = context.backend
        self._faults = faults
        self._flush_later = flush_later
        self.share = SenderShare()
        self._role: SenderRole | None = None
        self._gathered: list[ReadTransfer] = []
        """Transfers on links of `_role` that are sent together."""
        self._gathered_messages = self._gathered_messages_max = 0
        self._gathered_bytes = 0
        self._reading: PartlyReadBatch | None = None

    @property
    def unwritten_bytes(self) -> int:
        """Taken in, and not yet written or refused."""
        return self.share.unwritten_bytes + self._gathered_bytes

    @property
    def unwritten_messages(self) -> int:
        return self.share.unwritten_messages + self._gathered_messages

    @property
    def is_gathering(self) -> bool:
        """Whether one more message is gathered with others, and not sent at once."""
        return 0 < self._gathered_messages < self._gathered_messages_max

    def take(self, event: TransferArrived, role: SenderRole, now_ms: int) -> bool:
        """Store what was sent, with what follows it, at the next `send_gathered`; answer when it is durable.

        False: only a part of a batch was read. It has to be taken again, before anything else, for the next part.
        """
        if self._faults.is_open:
            if role is not self._role:
                self.send_gathered(now_ms)
                self._role = role
            return self._gather(event, role, now_ms)
        self.send_gathered(now_ms)
        decision = self._faults.decide(Operation.SEND, role.path, now_ms)
        if isinstance(decision, Proceed):  # its delay is for the answer, not for the storing
            self._send_alone(event, role, decision, now_ms)
        else:
            self._faults.apply(decision, now_ms, lambda: None, lambda error: self.settle(event, rejection(error)))
        return True

    def _gather(self, event: TransferArrived, role: SenderRole, now_ms: int) -> bool:
        try:
            if not self._gathered:
                self._begin_gathering(role.path)
            arrivals = self._read_part(event)
        except (NamespaceError, AmqpError) as error:
            self._reading = None
            self.settle(event, rejection(error))
            return True
        if arrivals is None:
            return False
        if self._gathered_messages + len(arrivals) > self._gathered_messages_max:
            self.send_gathered(now_ms)
        self._gathered.append(ReadTransfer(event, arrivals))
        self._gathered_messages += len(arrivals)
        self._gathered_bytes += len(event.payload)
        return True

    def _begin_gathering(self, path: str) -> None:
        """Once for everything that is gathered; the caller of `take` limits how much that is."""
        self.check_load(path)
        most = self._backend.messages_per_send(path)
        self._gathered_messages_max = self._context.limits.batch_messages_max if most is None else most

    def send_gathered(self, now_ms: int) -> None:
        """Store what was taken since the last time."""
        role, sent = self._role, self._gathered
        if sent and role is not None:
            self.count_unwritten(self._gathered_bytes, self._gathered_messages)
            self._gathered, self._gathered_messages, self._gathered_bytes = [], 0, 0
            self._backend.send_each(role.path, sent, now_ms, partial(self._answer, role))

    def _answer(self, role: SenderRole, sent: Sequence[ReadTransfer], reply: Done | Refused) -> None:
        self.share.remove(sum([len(each.event.payload) for each in sent]), sum([len(each.arrivals) for each in sent]))
        if isinstance(reply, Refused):
            for event, _ in sent:
                self.settle(event, rejection(reply.error))
        else:
            self._context.meter.count_sends(role.entity, chain.from_iterable([each.arrivals for each in sent]))
            self._accept([each.event for each in sent])

    def _accept(self, events: list[TransferArrived]) -> None:
        first, last = events[0], events[-1]
        is_range = last.delivery_id - first.delivery_id == len(events) - 1  # not so when links take turns
        if is_range and first.link.attached and not any(event.settled for event in events):
            first.link.settle(first.delivery_id, last.delivery_id, ACCEPTED)
            self._flush_later()
            return
        for event in events:
            self.settle(event, ACCEPTED)

    def _send_alone(self, event: TransferArrived, role: SenderRole, decision: Proceed, now_ms: int) -> None:
        try:
            self.check_load(role.path)
            arrivals = self.read_whole(event, decision, now_ms)
        except (NamespaceError, AmqpError) as error:
            self.settle(event, rejection(error))
            return
        self.count_unwritten(len(event.payload), len(arrivals))
        stored = partial(self._stored, event, role.entity, arrivals, decision, now_ms)
        self._backend.send(role.path, arrivals, now_ms, stored)

    def read_whole(self, event: TransferArrived, decision: Proceed, now_ms: int) -> tuple[Arrival, ...]:
        """All messages in a transfer, as a fault may have postponed them; raises what reading them raises."""
        try:
            while (arrivals := self._read_part(event)) is None:
                pass
        except (NamespaceError, AmqpError):
            self._reading = None
            raise
        if not decision.late_ms:
            return arrivals
        return tuple([_postpone(arrival, now_ms + decision.late_ms) for arrival in arrivals])

    def count_unwritten(self, size: int, messages: int) -> None:
        """Count what is about to be stored for this peer, until `share.remove`."""
        self._context.disk_share.add(self.share, size, messages, self._context.clock() / 1000)

    def check_load(self, path: str) -> None:
        """Raise `ServerBusy` if nothing more may be stored for this peer now."""
        context, unwritten_bytes = self._context, self._backend.unwritten_bytes
        busy = context.throttle.bytes_refusal(unwritten_bytes)
        if busy is None:
            busy = context.throttle.memory_refusal(context.memory_bytes)
        if busy is None and (
            unwritten_bytes > 2 * context.limits.unwritten_bytes
            or self.share.unwritten_bytes > 2 * context.limits.unwritten_bytes_per_connection
        ):
            busy = ServerBusy("more is being sent than can be written to disk; wait 10 seconds and send again")
        if busy is not None:
            context.report_busy(path, busy)
            raise busy

    def _read_part(self, event: TransferArrived) -> tuple[Arrival, ...] | None:
        """The messages in a transfer, after the last part of it was read; None before that."""
        messages = self._context.messages
        if event.message_format != BATCH_FORMAT:
            return (messages.read(event.payload),)
        if self._reading is None or self._reading.event is not event:
            messages.check_size(event.payload)
            unpacked = unpack_batch(event.payload, self._context.limits.batch_messages_max)
            self._reading = PartlyReadBatch(event, unpacked)
        reading = self._reading
        start = len(reading.arrivals)
        reading.arrivals += [messages.read(message) for message in reading.messages[start : start + MESSAGES_PER_PART]]
        if len(reading.arrivals) < len(reading.messages):
            return None
        self._reading = None
        return tuple(reading.arrivals)

    def _stored(
        self,
        event: TransferArrived,
        entity: str,
        arrivals: tuple[Arrival, ...],
        decision: Proceed,
        sent_ms: int,
        reply: Done | Refused,
    ) -> None:
        self.share.remove(len(event.payload), len(arrivals))
        outcome: Outcome = ACCEPTED
        if isinstance(reply, Refused):
            outcome = rejection(reply.error)
        else:
            self._context.meter.count_sends(entity, arrivals)
        if decision is PROCEED:
            self.settle(event, outcome)
        elif not decision.unanswered:
            self._faults.call_later(decision.delay_ms, sent_ms, partial(self.settle, event, outcome))

    def settle(self, event: TransferArrived, outcome: Outcome) -> None:
        """Settle a transfer, if the peer waits for that."""
        if not event.settled and event.link.attached:
            event.link.settle(event.delivery_id, event.delivery_id, outcome)
            self._flush_later()


def _postpone(arrival: Arrival, until_ms: int) -> Arrival:
    """The same message, to appear at that time at the earliest: stored as if it had been scheduled."""
    return arrival._replace(due_at_ms=max(arrival.due_at_ms or 0, until_ms))
