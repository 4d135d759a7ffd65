"""The namespace as its connections see it: where commands go in, and how replies find their way back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from twinbus.amqp.link import SendingLink
from twinbus.errors import NamespaceError
from twinbus.namespace.commands import (
    CancelScheduled,
    Command,
    Peek,
    ReceiveDeferred,
    RenewLocks,
    RenewSessionLock,
    RequestCommand,
    Send,
    Settle,
)
from twinbus.namespace.disk_share import DiskShare
from twinbus.namespace.faults.book import FaultBook
from twinbus.namespace.faults.postponed import Postponed
from twinbus.namespace.faults.throttle import Throttle
from twinbus.namespace.limits import TrafficLimits
from twinbus.namespace.message import Arrival, outgoing
from twinbus.namespace.meter import Meter, Metered
from twinbus.namespace.replies import Delivery, Drained, Forwarded, MessagesFound, ReceiverLost, Refused, Reply
from twinbus.namespace.rights.authority import Authority

if TYPE_CHECKING:
    from twinbus.namespace.door import Door


logger = logging.getLogger("twinbus.namespace")

LOSSES_AT_ONCE, LOSSES_EVERY_MS = 500, 10
"""So many receivers are told at a time that their entity is gone, and the next ones so much later."""


class Reception:
    def __init__(
        self,
        *,
        do: Callable[[Command, int], None],
        unwritten_bytes: Callable[[], int],
        authority: Authority,
        limits: TrafficLimits,
        new_message_id: Callable[[], str],
        faults: FaultBook,
        throttle: Throttle,
        connections: Callable[[], int],
        clock: Callable[[], int],
        memory_bytes: Callable[[], int] = lambda: 0,
        messages_per_step: Callable[[str], int | None] = lambda _path: None,
        on_busy: Callable[[str, NamespaceError, int], None] | None = None,
    ) -> None:
        """`on_busy` hears which entity's operations were turned away because there are too many, and when.

        `messages_per_step`: how many messages for an entity are stored at once at most, unless they are one batch.
        """
        self.messages_per_step = messages_per_step
        self.ask = do
        self._on_busy = on_busy
        self.authority = authority
        self.limits = limits
        self.new_message_id = new_message_id
        self.faults = faults
        self.throttle = throttle
        self.connections = connections
        self.postponed = Postponed()
        self.unwritten_bytes = unwritten_bytes
        self.memory_bytes = memory_bytes
        self.changed_doors: set[Door] = set()
        """Doors that have something to say to their peer."""
        self._receivers: dict[int, tuple[Door, SendingLink]] = {}
        self._numbers = count(1)
        self._loss_ms = self._losses = 0
        """When the last portion of receivers that lose their entity is told, and how many are in it."""
        self.clock = clock
        self.meter = Meter()
        self.disk_share = DiskShare()

    def new_receiver(self, door: Door, link: SendingLink) -> int:
        number = next(self._numbers)
        self._receivers[number] = (door, link)
        return number

    @property
    def receivers(self) -> int:
        """How many there are, or are about to be."""
        return len(self._receivers)

    def forget_receiver(self, number: int) -> None:
        self._receivers.pop(number, None)

    def note_busy(self, path: str, error: NamespaceError) -> None:
        if self._on_busy is not None:
            self._on_busy(path, error, self.clock())

    def count_sent(self, entity: str, arrivals: Iterable[Arrival]) -> None:
        sizes: dict[bool, list[int]] = {False: [], True: []}
        for arrival in arrivals:
            sizes[arrival.is_ping].append(len(arrival.payload))
        self.meter.count_each(Metered.SEND, entity, sizes[False])
        self.meter.count_each(Metered.PING, entity, sizes[True])

    def count_request(self, command: RequestCommand, reply: Reply) -> None:
        """Count what a management request did; what was refused did nothing."""
        if isinstance(reply, Refused):
            return
        entity = command.path.lower()
        found = [len(outgoing(*lent)) for lent in reply.found] if isinstance(reply, MessagesFound) else []
        match command:
            case Send(arrivals=arrivals):
                self.count_sent(entity, arrivals)
            case Settle(tokens=tokens):
                self.meter.count(Metered.SETTLE, entity, operations=len(tokens))
            case RenewLocks(tokens=tokens):
                self.meter.count(Metered.RENEW, entity, operations=len(tokens))
            case RenewSessionLock():
                self.meter.count(Metered.RENEW, entity)
            case Peek():
                self.meter.count_each(Metered.PEEK, entity, found or [0])
            case ReceiveDeferred():
                self.meter.count_each(Metered.DELIVERY, entity, found)
            case CancelScheduled(sequences=sequences):
                self.meter.count(Metered.MANAGE, entity, operations=len(sequences))
            case _:
                self.meter.count(Metered.MANAGE, entity)

    def pass_on(self, reply: Reply) -> None:
        """Bring a reply to whoever waits for it; nobody does when its connection is gone.

        Never raises: whatever goes wrong with one peer must not stop the replies to the others.
        """
        try:
            if isinstance(reply, _FOR_RECEIVERS):
                if not (isinstance(reply, ReceiverLost) and self._puts_off(reply)):
                    self._tell_receiver(reply)
            elif isinstance(reply, Forwarded):
                self.meter.count(Metered.FORWARD, reply.path, reply.size)
            elif reply.origin is not None:
                reply.origin(reply)
        except Exception:
            logger.exception("a reply could not be passed on: %.200r", reply)

    def _tell_receiver(self, reply: Delivery | Drained | ReceiverLost) -> None:
        place = self._receivers.get(reply.receiver)
        if place is not None:
            door, link = place
            door.tell_receiver(link, reply)

    def _puts_off(self, reply: ReceiverLost) -> bool:
        """Whether a receiver is told later, because very many lose their entity at the same time."""
        now_ms = self.clock()
        if now_ms >= self._loss_ms + LOSSES_EVERY_MS:
            self._loss_ms, self._losses = now_ms, 0
        self._losses += 1
        if self._losses > LOSSES_AT_ONCE:
            self._loss_ms, self._losses = self._loss_ms + LOSSES_EVERY_MS, 1
        return self._loss_ms > now_ms and self.postponed.put(self._loss_ms, partial(self._tell_receiver, reply))


_FOR_RECEIVERS = (Delivery, Drained, ReceiverLost)
