"""Who reads from a queue, and whose turn it is."""

from __future__ import annotations

from collections import deque

from twinbus.namespace.commands import ReceiveMode

LENT_BYTES_MAX = 32 * 1024 * 1024
"""A receiver that has so much and has not settled it gets no more, whatever its credit: loans are kept in memory."""

DELETED_BYTES_MAX = 1024 * 1024
"""The same while what it has is being deleted: a connection with very many receivers gets all of it at once."""


class Receiver:
    """One reader with its credit, counted from its opening so that a late grant cannot give credit twice."""

    __slots__ = ("assigned", "credit_limit", "mode", "name", "paused", "queued", "room_bytes", "undelivered")

    def __init__(self, name: int, mode: ReceiveMode) -> None:
        self.name = name
        self.mode = mode
        self.credit_limit = 0
        self.assigned = 0
        self.undelivered = 0
        """Messages taken for it whose removal is not committed yet (receive-and-delete)."""
        self.room_bytes = LENT_BYTES_MAX
        """How much more may be lent to it before it has to settle something. The last message may go beyond."""
        self.paused = False
        self.queued = False
        """Whether it stands in the line of the hungry."""

    @property
    def is_hungry(self) -> bool:
        return self.assigned < self.credit_limit and not self.paused and self.room_bytes > 0


class Receivers:
    """The receivers of one queue; those with credit take turns."""

    def __init__(self, lent_bytes_max: int = LENT_BYTES_MAX) -> None:
        self._lent_bytes_max = lent_bytes_max
        self.all: dict[int, Receiver] = {}
        self.draining: dict[int, Receiver] = {}
        self._line: deque[Receiver] = deque()

    def add(self, receiver: Receiver) -> None:
        is_deleting = receiver.mode is ReceiveMode.RECEIVE_AND_DELETE
        receiver.room_bytes = min(self._lent_bytes_max, DELETED_BYTES_MAX) if is_deleting else self._lent_bytes_max
        self.all[receiver.name] = receiver

    def remove(self, name: int) -> None:
        receiver = self.all.pop(name)
        self.draining.pop(name, None)
        receiver.credit_limit = receiver.assigned
        if receiver.queued:
            # Passing it over later would not do: behind a hungry one in front the line would grow for ever.
            self._line.remove(receiver)
            receiver.queued = False

    def grant(self, receiver: Receiver, credit_limit: int, *, drain: bool) -> None:
        receiver.credit_limit = max(credit_limit, receiver.assigned)
        if drain:
            self.draining[receiver.name] = receiver
        else:
            self.draining.pop(receiver.name, None)
        self.queue_up(receiver)

    def drained(self, receiver: Receiver) -> None:
        """Give back what is left of a receiver's credit."""
        receiver.assigned = receiver.credit_limit
        del self.draining[receiver.name]

    def queue_up(self, receiver: Receiver) -> None:
        """Give a receiver with credit a place in the line."""
        if receiver.is_hungry and not receiver.queued:
            receiver.queued = True
            self._line.append(receiver)

    def returned(self, receiver: Receiver, size: int) -> None:
        """A message of so many bytes is not the receiver's any more, or is its own for good."""
        receiver.room_bytes += size
        if not receiver.queued:
            self.queue_up(receiver)

    def next_hungry(self) -> Receiver | None:
        """Whose turn it is; None if nobody has credit and room."""
        while self._line:
            receiver = self._line[0]
            if receiver.is_hungry:
                return receiver
            receiver.queued = False
            self._line.popleft()
        return None

    def step_aside(self) -> None:
        """There is nothing for the first in the line: it is to queue up again when there is."""
        self._line.popleft().queued = False

    def served(self) -> None:
        """The first in the line got a message: the next one's turn."""
        self._line[0].assigned += 1
        if len(self._line) > 1:
            self._line.rotate(-1)
