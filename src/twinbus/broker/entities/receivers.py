"""The receivers of a queue, and whose turn it is."""

from __future__ import annotations

from collections import deque

from twinbus.broker.operations import ReceiveMode

LOCKED_BYTES_MAX = 32 * 1024 * 1024
"""A receiver with this much unsettled gets no more, whatever its credit: locked messages are kept in memory."""

DELETED_BYTES_MAX = 1024 * 1024
"""The same for messages that are being deleted: a connection with very many receivers gets all of them at once."""


class Receiver:
    """A receiver with its credit, counted from its opening so that a late grant cannot give credit twice."""

    __slots__ = ("assigned", "credit_limit", "mode", "name", "paused", "queued", "room_bytes", "undelivered")

    def __init__(self, name: int, mode: ReceiveMode) -> None:
        self.name = name
        self.mode = mode
        self.credit_limit = 0
        self.assigned = 0
        self.undelivered = 0
        """Messages for it whose removal is not committed yet (receive-and-delete)."""
        self.room_bytes = LOCKED_BYTES_MAX
        """How much more it may have unsettled. The last message may exceed it."""
        self.paused = False
        self.queued = False
        """Whether it is in `Receivers._ready`."""

    @property
    def is_ready(self) -> bool:
        return self.assigned < self.credit_limit and not self.paused and self.room_bytes > 0


class Receivers:
    """The receivers of one queue; those with credit take turns."""

    def __init__(self, locked_bytes_max: int = LOCKED_BYTES_MAX) -> None:
        self._locked_bytes_max = locked_bytes_max
        self.all: dict[int, Receiver] = {}
        self.draining: dict[int, Receiver] = {}
        self._ready: deque[Receiver] = deque()

    def add(self, receiver: Receiver) -> None:
        is_deleting = receiver.mode is ReceiveMode.RECEIVE_AND_DELETE
        receiver.room_bytes = min(self._locked_bytes_max, DELETED_BYTES_MAX) if is_deleting else self._locked_bytes_max
        self.all[receiver.name] = receiver

    def remove(self, name: int) -> None:
        receiver = self.all.pop(name)
        self.draining.pop(name, None)
        receiver.credit_limit = receiver.assigned
        if receiver.queued:
            # Skipping it later is not enough: behind a ready one in front the line would grow for ever.
            self._ready.remove(receiver)
            receiver.queued = False

    def grant(self, receiver: Receiver, credit_limit: int, *, drain: bool) -> None:
        receiver.credit_limit = max(credit_limit, receiver.assigned)
        if drain:
            self.draining[receiver.name] = receiver
        else:
            self.draining.pop(receiver.name, None)
        self.queue_up(receiver)

    def drained(self, receiver: Receiver) -> None:
        """Return the rest of a receiver's credit."""
        receiver.assigned = receiver.credit_limit
        del self.draining[receiver.name]

    def queue_up(self, receiver: Receiver) -> None:
        """Put a receiver with credit in the line, unless it is there."""
        if receiver.is_ready and not receiver.queued:
            receiver.queued = True
            self._ready.append(receiver)

    def returned(self, receiver: Receiver, size: int) -> None:
        """A message was settled or returned: the receiver may have this many bytes more."""
        receiver.room_bytes += size
        if not receiver.queued:
            self.queue_up(receiver)

    def next_ready(self) -> Receiver | None:
        """Whose turn it is; None if no receiver has credit and room."""
        while self._ready:
            receiver = self._ready[0]
            if receiver.is_ready:
                return receiver
            receiver.queued = False
            self._ready.popleft()
        return None

    def step_aside(self) -> None:
        """Remove the first of the line: there is nothing for it; it queues up again when there is."""
        self._ready.popleft().queued = False

    def served(self) -> None:
        """The first in the line got a message: the next one's turn."""
        self._ready[0].assigned += 1
        if len(self._ready) > 1:
            self._ready.rotate(-1)
