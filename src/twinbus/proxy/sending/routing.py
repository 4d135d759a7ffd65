"""Which way a send takes: straight to the primary on one link while nothing is wrong with its entity, else by a flow.

A flow (`client/flows/send_flow.py`) decides between the primary, the backlog and the spool.

Messages keep the order in which they came while they stay on one side. So while sends that failed are tried again,
later ones wait behind them. Sends that wait for something else, e.g. a busy primary or the end of a suspicion, let
others pass.

No clock and no sockets here: times are arguments, and `SendPorts` does the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from typing import Any, Protocol, Self

from twinbus.broker.links.backend import ReadTransfer
from twinbus.broker.message import Arrival
from twinbus.broker.operations import Done, Refused
from twinbus.client.flows.io_requests import Answer, Ask, Failed, Sleep, ToPrimary
from twinbus.client.native.failures import for_caller
from twinbus.client.native.send_window import NO_LIMIT, PendingTransfer, SendWindow
from twinbus.client.reporting.ledger_events import ClientRecorder
from twinbus.errors import DecodeError, MessageTooLarge, NamespaceError, SendError, TooLargeForDetour
from twinbus.pairing.backlog.envelope import reserved_names_in
from twinbus.pairing.backlog.rotation import QueueChoice
from twinbus.pairing.entity import NOT_PLAIN, Entity
from twinbus.pairing.sending.encoded_messages import encode_batch, pack
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.pairing.sending.receipt import NamespaceSide
from twinbus.proxy.sending.arrived_messages import due_times, ids_of, sizes_of
from twinbus.proxy.sending.refusals import not_stored, partly_stored

Reply = Done | Refused
OnReply = Callable[[Reply], None]
OnReplies = Callable[[Sequence[Any], Reply], None]
"""Gets what belongs to the transfers that are answered together (`DirectSend.ticket`)."""

DONE = Done()
SEND_BYTES = 1_024
"""Memory that a send takes in addition to its messages."""
FLOW_BYTES = 9 * 1_024
"""Additional memory of a send that goes by a flow, as measured."""
ENVELOPE_BYTES = 8 * 1_024
"""Room for an envelope: a message that is smaller than a backlog batch by this much fits the backlog."""
TURN_S = 1e-6
"""From one send that is tried again to the next, at least."""
_ALIAS = b"x-ms-"
"""How the names begin that the detour needs for itself."""


class UnansweredSends:
    """What was taken in and is not answered yet, of all entities."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class SendPorts(Protocol):
    @property
    def recorder(self) -> ClientRecorder | None: ...

    def open_link(self, sends: EntitySends, epoch: int) -> None:
        """Begin to open a link to the entity: `opened` or `not_opened` follows, with this epoch."""

    def retire_link(self, window: SendWindow) -> None:
        """It is not to be used again."""

    def start_flow(self, send: DirectSend, failure: Failure | None, epoch: int) -> None:
        """Begin a flow, which ends with `send.end`; `failure`: of an attempt that began in this epoch."""

    def flush_soon(self) -> None:
        """Something was written for the primary."""

    def succeeded(self, entity: Entity, epoch: int) -> None:
        """The primary took a message of this epoch, though others failed."""

    def warn_early(self, entity: Entity, names: tuple[str, ...]) -> None:
        """Messages with these reserved names, or of a certain size, could not take the detour."""


class DirectSend(PendingTransfer):
    """One transfer of an application."""

    __slots__ = ("arrivals", "epoch", "is_ahead", "on_replies", "sends", "taken_bytes", "ticket")

    def __init__(
        self,
        sends: EntitySends,
        arrivals: tuple[Arrival, ...],
        size: int,
        at: float,
        on_replies: OnReplies,
        ticket: object,
    ) -> None:
        """`on_replies` is called once, with the ticket, and with those of others that are answered the same way."""
        self.size = size
        self.at = self.sent_at = at
        self.sends = sends
        self.arrivals = arrivals
        self.epoch = NOT_PLAIN
        """In which it was sent directly."""
        self.is_ahead = False
        """Others wait for it."""
        self.taken_bytes = size + SEND_BYTES
        self.on_replies = on_replies
        self.ticket = ticket

    @classmethod
    def all_stored(cls, transfers: Sequence[Self], at: float) -> None:
        for on_replies, group in groupby(transfers, attrgetter("on_replies")):
            together = list(group)
            together[0].sends.count_stored(together, at)
            on_replies([send.ticket for send in together], DONE)

    def stored(self, at: float) -> None:
        self.sends.count_stored((self,), at)
        self.answer(DONE, len(self.arrivals))

    def failed(self, failure: Failure, at: float) -> None:
        self.sends.failed(self, failure, at)

    def end(self, reply: Reply, accepted: int, at: float) -> None:
        """Its flow has ended."""
        self.sends.load.bytes -= self.taken_bytes
        self.sends.let_pass(self, at)
        self.answer(reply, accepted)

    def answer(self, reply: Reply, _accepted: int) -> None:
        """`_accepted`: how many of its messages are stored."""
        self.on_replies((self.ticket,), reply)

    @property
    def is_ping(self) -> bool:
        """Whether it has nothing but pings, which need not be stored."""
        return self.arrivals[0].is_ping and all(arrival.is_ping for arrival in self.arrivals)


class BatchPart(DirectSend):
    """Some messages of a batch that is larger than the primary takes at once."""

    __slots__ = ("_batch",)

    def __init__(self, batch: SplitBatch, arrivals: tuple[Arrival, ...]) -> None:
        whole = batch.whole
        super().__init__(whole.sends, arrivals, sum(sizes_of(arrivals)), whole.at, whole.on_replies, whole.ticket)
        self._batch = batch

    all_stored = PendingTransfer.all_stored

    def answer(self, reply: Reply, accepted: int) -> None:
        self._batch.answered(reply, accepted)


class SplitBatch:
    """Is answered when all of its parts are: done only if everything is stored."""

    def __init__(self, whole: DirectSend, parts: list[tuple[Arrival, ...]]) -> None:
        self.whole = whole
        self._left = len(parts)
        self._stored = 0
        self._first: NamespaceError | None = None
        self.parts = [BatchPart(self, part) for part in parts]

    def answered(self, reply: Reply, accepted: int) -> None:
        """One of the parts was."""
        self._left -= 1
        self._stored += accepted
        if isinstance(reply, Refused) and self._first is None:
            self._first = reply.error
        if not self._left:
            whole = self.whole
            messages = len(whole.arrivals)
            whole.answer(DONE if self._first is None else partly_stored(self._stored, messages, self._first), 0)


class EntitySends:
    def __init__(self, entity: Entity, ports: SendPorts, load: UnansweredSends) -> None:
        self.entity = entity
        self.ports = ports
        self.load = load
        self.recorder = ports.recorder
        self.link: SendWindow | None = None
        self.message_bytes_max: int | None = None
        """The largest message the primary takes, as its last link said; None: unknown."""
        self.choice = QueueChoice()
        """Of the backlog queue to which its messages go when they have to."""
        self.sent_directly = 0
        self.room_bytes = 0
        """A larger message might not fit a backlog queue."""
        self._link_epoch = NOT_PLAIN
        self._pending: deque[DirectSend] = deque()
        """They wait for a link, or for sends that are tried again."""
        self._ahead = 0
        """Sends that are tried again."""
        self._awake_at = 0.0
        """When the last of them ends its pause: those that failed one after the other are tried again in that order."""
        self._is_opening = False

    # --- in ---

    def take(self, arrivals: tuple[Arrival, ...], at: float, on_reply: OnReply) -> None:
        """Store these messages, on whichever side is up; `on_reply` is called once."""
        self._take([self._new_send(arrivals, at, lambda _, reply: on_reply(reply), None)], at)

    def take_each(self, transfers: Sequence[ReadTransfer], at: float, on_replies: OnReplies) -> None:
        """The same for several transfers at a time; `on_replies` is called with some of them at a time."""
        self._take([self._new_send(transfer.arrivals, at, on_replies, transfer) for transfer in transfers], at)

    def _new_send(self, arrivals: tuple[Arrival, ...], at: float, on_replies: OnReplies, ticket: object) -> DirectSend:
        size = len(arrivals[0].payload) if len(arrivals) == 1 else sum(sizes_of(arrivals))
        return DirectSend(self, arrivals, size, at, on_replies, ticket)

    def _take(self, sends: list[DirectSend], at: float) -> None:
        self.load.bytes += sum([send.taken_bytes for send in sends])
        link = self.link
        if (
            link is not None
            and self._link_epoch == self.entity.plain_epoch
            and not link.is_retired
            and not self._pending
            and not self._ahead
        ):
            for send in sends:
                self._put(link, send)
            self.ports.flush_soon()
        else:
            self._pending.extend(sends)
            self.pump(at)

    def pump(self, at: float) -> None:
        """Send what waits and may go now."""
        entity, pending = self.entity, self._pending
        while pending and not self._ahead:
            epoch = entity.plain_epoch
            if epoch == NOT_PLAIN and pending[0].is_ping:
                if entity.side is NamespaceSide.BACKLOG:  # it asks whether messages are taken, and they are
                    send = pending.popleft()
                    self._end(send, DONE, len(send.arrivals))
                    continue
                epoch = entity.epoch
            if epoch == NOT_PLAIN:
                self._send_by_flow(pending.popleft(), None, epoch)
            elif (link := self.usable_link(epoch)) is not None:
                self._put(link, pending.popleft())
                self.ports.flush_soon()
            else:
                if not self._is_opening:
                    self._is_opening = True
                    self.ports.open_link(self, epoch)
                return

    def _put(self, link: SendWindow, send: DirectSend) -> None:
        """Send it on the link, as it is."""
        arrivals = send.arrivals
        send.epoch = self._link_epoch
        if len(arrivals) > 1:
            self._put_batch(link, send)
            return
        arrival = arrivals[0]
        if send.size > link.message_bytes_max:
            self._refuse_size(link, send)
            return
        if send.size > self.room_bytes or (arrival.properties_end and _may_be_reserved(arrival)):
            self._warn_early(send)
        link.send(arrival.payload, 0, send)

    def _put_batch(self, link: SendWindow, send: DirectSend) -> None:
        parts = self.split(link, send.arrivals)
        if parts is None:
            self._refuse_size(link, send)
            return
        if any(len(arrival.payload) > self.room_bytes or _may_be_reserved(arrival) for arrival in send.arrivals):
            self._warn_early(send)
        sends: list[DirectSend] = [send]
        if len(parts) > 1:
            sends = [*SplitBatch(send, parts).parts]
            self.load.bytes += sum([part.taken_bytes for part in sends]) - send.taken_bytes
        for part in sends:
            part.epoch = send.epoch
            payload, message_format = encode_batch([arrival.payload for arrival in part.arrivals])
            part.size = len(payload)
            link.send(payload, message_format, part)

    def split(self, link: SendWindow, arrivals: tuple[Arrival, ...]) -> list[tuple[Arrival, ...]] | None:
        """As few parts as the link takes at once; None: one of the messages is too large for it."""
        if len(arrivals) == 1:
            return [arrivals] if len(arrivals[0].payload) <= link.message_bytes_max else None
        try:
            packed = pack([arrival.payload for arrival in arrivals], link.batch_bytes_max)
        except TooLargeForDetour:
            return None
        parts, begin = [], 0
        for batch in packed:
            parts.append(arrivals[begin : begin + len(batch)])
            begin += len(batch)
        return parts

    def _refuse_size(self, link: SendWindow, send: DirectSend) -> None:
        limit = link.message_bytes_max if len(send.arrivals) == 1 else link.batch_bytes_max
        size = max(sizes_of(send.arrivals))
        text = f"the message has {size} bytes, and {self.entity.path} takes at most {limit}"
        self._end(send, Refused(MessageTooLarge(text)), 0)

    def _warn_early(self, send: DirectSend) -> None:
        for arrival in send.arrivals:
            names: tuple[str, ...] = ()
            with suppress(DecodeError):  # properties that cannot be read: what that means, the primary says
                names = reserved_names_in(arrival.payload)
            if names or len(arrival.payload) > self.room_bytes:
                self.ports.warn_early(self.entity, names)

    def count_stored(self, sends: Sequence[DirectSend], at: float) -> None:
        """The primary has stored these."""
        self.load.bytes -= sum([send.taken_bytes for send in sends])
        self.sent_directly += sum([len(send.arrivals) for send in sends])
        entity, recorder = self.entity, self.recorder
        for send in sends:
            if recorder is not None:
                arrivals = send.arrivals
                facts = ids_of(arrivals), sizes_of(arrivals)
                recorder.accepted(entity.path, *facts, at - send.at, due_times(arrivals))
            if send.epoch != entity.plain_epoch:
                self.ports.succeeded(entity, send.epoch)

    # --- the link ---

    def usable_link(self, epoch: int) -> SendWindow | None:
        """The link, if it was opened in this epoch and may be used; one that may not is given up."""
        link = self.link
        if link is None:
            return None
        if self._link_epoch == epoch and not link.is_retired:
            return link
        self.link = None
        self.ports.retire_link(link)
        return None

    def use_link(self, link: SendWindow, epoch: int, backlog_bytes: int) -> None:
        """It was opened in this epoch. `backlog_bytes`: what a backlog queue takes at once."""
        self.link, self._link_epoch = link, epoch
        self.message_bytes_max = None if link.message_bytes_max == NO_LIMIT else link.message_bytes_max
        self.room_bytes = backlog_bytes - ENVELOPE_BYTES
        self.entity.is_known = True

    def opened(self, link: SendWindow, epoch: int, backlog_bytes: int, at: float) -> None:
        """The link that was asked for."""
        self._is_opening = False
        self.use_link(link, epoch, backlog_bytes)
        self.pump(at)

    def not_opened(self, failure: Failure, epoch: int, at: float) -> None:
        """There is no link: the attempt of all sends that waited for it has failed."""
        self._is_opening = False
        waiting, self._pending = self._pending, deque()
        for send in waiting:
            send.epoch = epoch
            self.failed(send, for_caller(failure), at)

    # --- flows ---

    def failed(self, send: DirectSend, failure: Failure, at: float) -> None:
        """A direct send failed: it goes on as a flow, unless it is a ping."""
        if send.is_ping:
            self._end(send, not_stored(failure.error or SendError(str(failure))).refused, 0)
        else:
            if failure.kind is not FailureKind.BUSY:
                self._go_ahead(send)
            self._send_by_flow(send, failure, send.epoch)

    def _send_by_flow(self, send: DirectSend, failure: Failure | None, epoch: int) -> None:
        send.taken_bytes += FLOW_BYTES
        self.load.bytes += FLOW_BYTES
        self.ports.start_flow(send, failure, epoch)

    def asked(self, send: DirectSend, ask: Ask, at: float) -> Ask:
        """Its flow asks for something, and gets what is returned: others wait only while it tries the primary again."""
        if isinstance(ask, Sleep) and send.is_ahead:
            self._awake_at = max(self._awake_at + TURN_S, at + ask.seconds)
            return Sleep(self._awake_at - at)
        if not isinstance(ask, ToPrimary | Sleep):
            self.let_pass(send, at)
        return ask

    def answered(self, send: DirectSend, ask: Ask, answer: Answer, at: float) -> None:
        """Its flow gets this answer: a busy primary is waited for by each send alone."""
        if isinstance(ask, ToPrimary) and isinstance(answer, Failed):
            if answer.failure.kind is FailureKind.BUSY:
                self.let_pass(send, at)
            else:
                self._go_ahead(send)

    def _go_ahead(self, send: DirectSend) -> None:
        if not send.is_ahead:
            send.is_ahead = True
            self._ahead += 1

    def let_pass(self, send: DirectSend, at: float) -> None:
        """It has ended, or waits for something that others need not wait for."""
        if send.is_ahead:
            send.is_ahead = False
            self._ahead -= 1
            if not self._ahead:
                self.pump(at)

    def _end(self, send: DirectSend, reply: Reply, accepted: int) -> None:
        self.load.bytes -= send.taken_bytes
        send.answer(reply, accepted)


def _may_be_reserved(arrival: Arrival) -> bool:
    """Whether a name that the detour needs for itself may be among the application properties; else it is not."""
    return arrival.payload.find(_ALIAS, 0, arrival.properties_end) >= 0
