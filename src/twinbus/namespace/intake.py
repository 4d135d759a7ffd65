"""Messages in: transfers of one connection become sends, and their replies become dispositions.

Transfers that were read from the socket together are stored together: one command, one change set and one
disposition instead of a hundred. A send is all or none, so when such a joint one is refused each transfer is asked
for alone, and gets the answer it would have got.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import NamedTuple

from twinbus.amqp.events import TransferArrived
from twinbus.amqp.performatives import ACCEPTED, Outcome, Rejected
from twinbus.errors import AmqpError, MessageTooLarge, NamespaceError, ServerBusy
from twinbus.namespace.commands import Command, Send, SetSessionState
from twinbus.namespace.disk_share import SenderShare
from twinbus.namespace.faults.rulings import PROCEED, Proceed
from twinbus.namespace.message import BATCH_FORMAT, Arrival, read_arrival, unpack_batch
from twinbus.namespace.operations import Operation
from twinbus.namespace.outcomes import amqp_error
from twinbus.namespace.places import Sending
from twinbus.namespace.reception import Reception
from twinbus.namespace.replies import Done, Refused, Reply
from twinbus.namespace.turnstile import Turnstile


class Sent(NamedTuple):
    """One transfer and the messages in it."""

    event: TransferArrived
    arrivals: tuple[Arrival, ...]


MESSAGES_PER_PART = 100
"""So many messages of a batch are read at once, about 1 ms; between parts it may be somebody else's turn."""


class _Reading:
    """A batch that is being read."""

    __slots__ = ("arrivals", "event", "messages")

    def __init__(self, event: TransferArrived, messages: list[bytes]) -> None:
        self.event = event
        self.messages = messages
        self.arrivals: list[Arrival] = []


class Intake:
    def __init__(self, reception: Reception, turnstile: Turnstile, note_change: Callable[[], None]) -> None:
        """`note_change` is called when there is something to send to the peer."""
        self._reception = reception
        self._turnstile = turnstile
        self._note_change = note_change
        self.share = SenderShare()
        self._together: list[Sent] = []
        self._gathered = 0
        """How many messages are in `_together`."""
        self._together_max = 0
        """How many there may be: not more than the namespace can do in one step."""
        self._place: Sending | None = None
        self._reading: _Reading | None = None

    def take(self, event: TransferArrived, place: Sending, now_ms: int) -> bool:
        """Store what was sent, with what follows it, at the next `store_together`; answer when it is durable.

        False: only a part of a batch was read. It has to be taken again, before anything else, for the next part.
        """
        if self._turnstile.is_open:
            if place is not self._place:
                self.store_together(now_ms)
                self._place = place
            if not self._together:
                most, limits = self._reception.messages_per_step(place.path), self._reception.limits
                self._together_max = limits.batch_messages_max if most is None else most
            return self._gather(event, now_ms)
        self.store_together(now_ms)
        ruling = self._turnstile.ruling(Operation.SEND, place.path, now_ms)
        if isinstance(ruling, Proceed):  # its delay is for the answer, not for the storing
            self._store(event, place, ruling, now_ms)
        else:
            self._turnstile.obey(ruling, now_ms, lambda: None, lambda error: self._reject(event, error))
        return True

    def _gather(self, event: TransferArrived, now_ms: int) -> bool:
        try:
            self._check_load("" if self._place is None else self._place.path)
            arrivals = self._read_part(event)
        except (NamespaceError, AmqpError) as error:
            self._reading = None
            self._reject(event, error)
            return True
        if arrivals is None:
            return False
        if self._gathered + len(arrivals) > self._together_max:
            self.store_together(now_ms)
        self._together.append(Sent(event, arrivals))
        self._gathered += len(arrivals)
        self._note_taken(len(event.payload), len(arrivals))
        return True

    def store_together(self, now_ms: int) -> None:
        """Store what was taken since the last time."""
        place, sent = self._place, self._together
        if sent and place is not None:
            self._together, self._gathered = [], 0
            arrivals = tuple(chain.from_iterable([each.arrivals for each in sent]))
            self._reception.ask(Send(place.path, arrivals, partial(self._stored_together, sent, place, now_ms)), now_ms)

    def _stored_together(self, sent: list[Sent], place: Sending, now_ms: int, reply: Done | Refused) -> None:
        if isinstance(reply, Refused) and len(sent) > 1:
            for event, arrivals in sent:
                stored = partial(self._stored, event, place.entity, arrivals, PROCEED, now_ms)
                self._reception.ask(Send(place.path, arrivals, stored), now_ms)
        elif isinstance(reply, Refused):
            self._stored(sent[0].event, place.entity, sent[0].arrivals, PROCEED, now_ms, reply)
        else:
            written = sum([len(each.event.payload) for each in sent])
            self.share.written(written, sum([len(each.arrivals) for each in sent]))
            self._reception.count_sent(place.entity, chain.from_iterable([each.arrivals for each in sent]))
            self._accept([each.event for each in sent])

    def _accept(self, events: list[TransferArrived]) -> None:
        first, last = events[0], events[-1]
        is_range = last.delivery_id - first.delivery_id == len(events) - 1  # not so when links take turns
        if is_range and first.link.attached and not any(event.settled for event in events):
            first.link.settle(first.delivery_id, last.delivery_id, ACCEPTED)
            self._note_change()
            return
        for event in events:
            self.answer(event, ACCEPTED)

    def _store(self, event: TransferArrived, place: Sending, ruling: Proceed, now_ms: int) -> None:
        try:
            self._check_load(place.path)
            while (arrivals := self._read_part(event)) is None:
                pass
        except (NamespaceError, AmqpError) as error:
            self._reading = None
            self._reject(event, error)
            return
        if ruling.late_ms:
            arrivals = tuple([_held_back(arrival, now_ms + ruling.late_ms) for arrival in arrivals])
        self._note_taken(len(event.payload), len(arrivals))
        stored = partial(self._stored, event, place.entity, arrivals, ruling, now_ms)
        self._reception.ask(Send(place.path, arrivals, stored), now_ms)

    def ask(self, command: Command, now_ms: int) -> None:
        """Carry out a request's command. What it has stored counts like what is sent; raises `ServerBusy`."""
        match command:
            case Send(path, arrivals):
                payloads = [arrival.payload for arrival in arrivals]
            case SetSessionState(path, state=bytes(state)):
                payloads = [state]
            case _:
                self._reception.ask(command, now_ms)
                return
        self._check_load(path)
        size = sum(map(len, payloads))
        self._note_taken(size, len(payloads))
        written = partial(self._written, size, len(payloads), command.origin)
        self._reception.ask(command._replace(origin=written), now_ms)

    def _written(self, size: int, messages: int, respond: Callable[[Reply], None], reply: Reply) -> None:
        self.share.written(size, messages)
        respond(reply)

    def _note_taken(self, size: int, messages: int) -> None:
        self._reception.disk_share.taken(self.share, size, messages, self._reception.clock() / 1000)

    def _check_load(self, path: str) -> None:
        throttle = self._reception.throttle
        busy = throttle.bytes_refusal(self._reception.unwritten_bytes())
        if busy is None:
            busy = throttle.memory_refusal(self._reception.memory_bytes)
        limits = self._reception.limits
        if busy is None and (
            self._reception.unwritten_bytes() > 2 * limits.unwritten_bytes
            or self.share.unwritten_bytes > 2 * limits.unwritten_bytes_per_connection
        ):
            busy = ServerBusy("more is being sent than can be written to disk; wait 10 seconds and send again")
        if busy is not None:
            self._reception.note_busy(path, busy)
            raise busy

    def _read_part(self, event: TransferArrived) -> tuple[Arrival, ...] | None:
        """The messages in a transfer, after the last part of it was read; None before that."""
        if event.message_format != BATCH_FORMAT:
            return (self.read(event.payload),)
        if self._reading is None or self._reading.event is not event:
            self._check_size(event.payload)
            self._reading = _Reading(event, unpack_batch(event.payload, self._reception.limits.batch_messages_max))
        reading = self._reading
        start = len(reading.arrivals)
        reading.arrivals += [self.read(message) for message in reading.messages[start : start + MESSAGES_PER_PART]]
        if len(reading.arrivals) < len(reading.messages):
            return None
        self._reading = None
        return tuple(reading.arrivals)

    def read(self, payload: bytes) -> Arrival:
        """An encoded message as an arrival; raises `MessageTooLarge` or `DecodeError`."""
        self._check_size(payload)
        return read_arrival(payload, self._reception.new_message_id)

    def _check_size(self, payload: bytes) -> None:
        limit = self._reception.limits.message_bytes_max
        if len(payload) > limit:
            raise MessageTooLarge(f"the message has {len(payload)} bytes, at most {limit} are allowed")

    def _stored(
        self,
        event: TransferArrived,
        entity: str,
        arrivals: tuple[Arrival, ...],
        ruling: Proceed,
        sent_ms: int,
        reply: Done | Refused,
    ) -> None:
        self.share.written(len(event.payload), len(arrivals))
        outcome: Outcome = ACCEPTED
        if isinstance(reply, Refused):
            outcome = Rejected(amqp_error(reply.error))
        else:
            self._reception.count_sent(entity, arrivals)
        if ruling is PROCEED:
            self.answer(event, outcome)
        elif not ruling.unanswered:
            self._turnstile.later(ruling.delay_ms, sent_ms, partial(self.answer, event, outcome))

    def _reject(self, event: TransferArrived, error: NamespaceError | AmqpError) -> None:
        self.answer(event, Rejected(amqp_error(error)))

    def answer(self, event: TransferArrived, outcome: Outcome) -> None:
        """Settle a transfer, if the peer waits for that."""
        if not event.settled and event.link.attached:
            event.link.settle(event.delivery_id, event.delivery_id, outcome)
            self._note_change()


def _held_back(arrival: Arrival, until_ms: int) -> Arrival:
    """The same message, to appear at that time at the earliest: stored as if it had been scheduled."""
    return arrival._replace(due_at_ms=max(arrival.due_at_ms or 0, until_ms))
