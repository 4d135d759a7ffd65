"""What all connections of a namespace share: the back end, limits, faults, rights, and how deliveries find a link."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from twinbus.amqp.sending_link import SendingLink
from twinbus.broker.auth.authority import Authority
from twinbus.broker.faults.decisions import DelayedActions
from twinbus.broker.faults.fault_table import FaultTable
from twinbus.broker.faults.throttle import Throttle
from twinbus.broker.limits import TrafficLimits
from twinbus.broker.links.backend import Backend, LinkNotice
from twinbus.broker.links.disk_fairness import DiskShare
from twinbus.broker.message import MessageReader
from twinbus.broker.operations import ReceiverLost, TransactionTimedOut
from twinbus.broker.ops.meter import Meter
from twinbus.errors import NamespaceError

if TYPE_CHECKING:
    from twinbus.broker.links.dispatcher import LinkDispatcher
    from twinbus.broker.links.outgoing import OutgoingDeliveries
    from twinbus.broker.links.transactions import TransactionBook

LOST_AT_ONCE, LOST_EVERY_MS = 500, 10
"""Receivers detached at a time when their entity is gone, and the pause before the next ones."""


class ConnectionContext:
    def __init__(
        self,
        *,
        backend: Backend,
        messages: MessageReader,
        meter: Meter,
        authority: Authority,
        limits: TrafficLimits,
        faults: FaultTable,
        throttle: Throttle,
        connections: Callable[[], int],
        clock: Callable[[], int],
        memory_bytes: Callable[[], int] = lambda: 0,
        on_busy: Callable[[str, NamespaceError, int], None] | None = None,
    ) -> None:
        """`on_busy` is called with the entity whose operations are refused because there are too many, and when."""
        self.backend = backend
        self.messages = messages
        self.meter = meter
        self.authority = authority
        self.limits = limits
        self.faults = faults
        self.throttle = throttle
        self.connections = connections
        self.clock = clock
        self.memory_bytes = memory_bytes
        self._on_busy = on_busy
        self.delayed = DelayedActions()
        self.disk_share = DiskShare()
        self.unflushed: set[LinkDispatcher] = set()
        """Those that have something to send to their peer."""
        self._receivers: dict[int, tuple[OutgoingDeliveries, SendingLink]] = {}
        self._numbers = count(1)
        self._transactions: dict[int, TransactionBook] = {}
        self._transaction_numbers = count(1)
        self._connection_numbers = count(1)
        self._loss_ms = self._losses = 0
        """When the last portion of receivers that lose their entity is detached, and how many are in it."""

    def new_receiver(self, outgoing: OutgoingDeliveries, link: SendingLink) -> int:
        number = next(self._numbers)
        self._receivers[number] = (outgoing, link)
        return number

    def new_connection(self) -> int:
        """A number for one more connection."""
        return next(self._connection_numbers)

    @property
    def receivers(self) -> int:
        """How many there are, or are being opened."""
        return len(self._receivers)

    def forget_receiver(self, number: int) -> None:
        self._receivers.pop(number, None)

    def report_busy(self, path: str, error: NamespaceError) -> None:
        if self._on_busy is not None:
            self._on_busy(path, error, self.clock())

    def new_transaction(self, book: TransactionBook) -> int:
        """A number for one more transaction; `book` hears if it times out."""
        number = next(self._transaction_numbers)
        self._transactions[number] = book
        return number

    def forget_transaction(self, number: int) -> None:
        self._transactions.pop(number, None)

    def notify(self, notice: LinkNotice) -> None:
        """Bring a notice to the connection that it is for, if that is still there."""
        if isinstance(notice, TransactionTimedOut):
            book = self._transactions.get(notice.transaction)
            if book is not None:
                book.timed_out(notice.transaction)
            return
        if isinstance(notice, ReceiverLost) and self._delays(notice):
            return
        found = self._receivers.get(notice.receiver)
        if found is not None:
            outgoing, link = found
            outgoing.notify(link, notice)

    def _delays(self, notice: ReceiverLost) -> bool:
        """Whether a receiver is detached later, because very many lose their entity at the same time."""
        now_ms = self.clock()
        if now_ms >= self._loss_ms + LOST_EVERY_MS:
            self._loss_ms, self._losses = now_ms, 0
        self._losses += 1
        if self._losses > LOST_AT_ONCE:
            self._loss_ms, self._losses = self._loss_ms + LOST_EVERY_MS, 1
        return self._loss_ms > now_ms and self.delayed.put(self._loss_ms, partial(self._detach, notice))

    def _detach(self, notice: ReceiverLost) -> None:
        found = self._receivers.get(notice.receiver)
        if found is not None:
            outgoing, link = found
            outgoing.notify(link, notice)
