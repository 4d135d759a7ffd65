"""What is on its way on one link: many transfers at a time, each of which is answered exactly once.

A link takes as many as it has credit for; the others wait here, in their order. No transfer has a timer of its own:

* while no answer comes at all, each is overdue when it has been on its way for the time of an attempt;
* while answers come, only the oldest one can be overdue: when it has been the oldest for that long. So a slow link is
  not taken for a silent one, and one message that is never answered is noticed among others that are;
* those that wait for credit are overdue when there was no answer and no credit for that long.

The owner of a window calls `look` at the time that `due_at` returns. A window in which something was overdue is
retired: what is on its way may still be answered, but nothing new is sent. No clock and no sockets here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Self

from twinbus.amqp.codec.outcomes import Accepted, Received
from twinbus.amqp.events import DispositionArrived
from twinbus.amqp.sending_link import SendingLink
from twinbus.client.native.failures import for_caller, is_doubtful_answer
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.transport.failures import failure_of_outcome
from twinbus.transport.links.link_limits import batch_limit

WINDOW_BYTES_MAX = 8 * 1024 * 1024
"""Unanswered bytes at a time, unless a single message is larger: enough for long round trips, and answered soon."""
NO_LIMIT = 2**62
ENDED = Failure(FailureKind.UNREACHABLE, "the link was closed before anything was sent on it")


class PendingTransfer:
    """One transfer until it is answered: then `stored` is called, alone or for several at a time, or `failed`."""

    __slots__ = ("at", "sent_at", "size")

    def __init__(self, size: int, at: float) -> None:
        self.size = size
        self.at = at
        """When it was handed to the window."""
        self.sent_at = at
        """When it was sent: later than `at` if it had to wait for credit."""

    def stored(self, at: float) -> None:
        raise NotImplementedError

    @classmethod
    def all_stored(cls, transfers: Sequence[Self], at: float) -> None:
        """The same for transfers of this class that are stored together, in their order."""
        for transfer in transfers:
            transfer.stored(at)

    def failed(self, failure: Failure, at: float) -> None:
        raise NotImplementedError


class SendWindow:
    def __init__(
        self, path: str, link: SendingLink, attempt_s: float, at: float, on_busy: Callable[[float], None]
    ) -> None:
        """`link` is attached. `on_busy` gets the time of the next look when the window is not empty any more."""
        self.path = path
        self.link = link
        self.message_bytes_max = link.max_message_size or NO_LIMIT
        self.batch_bytes_max = batch_limit(link)
        self.is_retired = False
        """Nothing new is sent on it."""
        self.has_ended = False
        """The link is gone, or was closed because it was not needed."""
        self.is_silent = False
        """A transfer was overdue, and nothing else was answered in that time."""
        self.used_at = at
        self._attempt_s = attempt_s
        self._on_busy = on_busy
        self._in_flight: dict[int, PendingTransfer] = {}
        self._waiting: deque[tuple[bytes, int, PendingTransfer]] = deque()
        self._bytes = 0
        self._moved_at = at
        """When there was an answer or credit."""
        self._oldest_since = at
        self._end = ENDED
        """Why nothing can be sent, once it has ended."""

    @property
    def is_empty(self) -> bool:
        return not self._in_flight and not self._waiting

    @property
    def count(self) -> int:
        """Transfers that are not answered yet."""
        return len(self._in_flight) + len(self._waiting)

    # --- out ---

    def send(self, payload: bytes, message_format: int, transfer: PendingTransfer) -> None:
        """Send it, or queue it until there is credit; the outcome goes to `transfer`."""
        if self.has_ended:  # its owner may not know yet, and does not call `look` any more
            transfer.failed(for_caller(self._end), transfer.at)
            return
        link = self.link
        if not self._in_flight and not self._waiting:
            self._oldest_since = self.used_at = transfer.at
            self._on_busy(transfer.at + self._attempt_s)
        if link.credit and self._bytes < WINDOW_BYTES_MAX and not self._waiting and link.attached:
            self._send_now(payload, message_format, transfer)
        else:
            self._waiting.append((payload, message_format, transfer))

    def fill(self, at: float) -> None:
        """There may be credit: send what waits."""
        link, waiting = self.link, self._waiting
        if link.credit:
            self._moved_at = at
        while waiting and link.credit and self._bytes < WINDOW_BYTES_MAX and link.attached:
            payload, message_format, transfer = waiting.popleft()
            transfer.sent_at = at
            self._send_now(payload, message_format, transfer)

    def _send_now(self, payload: bytes, message_format: int, transfer: PendingTransfer) -> None:
        link = self.link
        tag = link.session.next_delivery_id.to_bytes(4)
        self._in_flight[link.send(payload, tag=tag, message_format=message_format)] = transfer
        self._bytes += transfer.size

    # --- answers ---

    def settled(self, event: DispositionArrived, at: float) -> None:
        outcome = event.outcome
        if type(outcome) is Received:
            return  # not final
        if not event.settled and isinstance(event.link, SendingLink):
            for delivery_id, _ in event.deliveries:
                event.link.settle(delivery_id, delivery_id, outcome)
        in_flight = self._in_flight
        oldest = next(iter(in_flight), None)
        self._moved_at = self.used_at = at
        answered = [in_flight.pop(delivery_id, None) for delivery_id, _ in event.deliveries]
        transfers = [transfer for transfer in answered if transfer is not None]
        self._bytes -= sum([transfer.size for transfer in transfers])
        if type(outcome) is Accepted:
            for _, group in groupby(transfers, type):
                together = list(group)
                type(together[0]).all_stored(together, at)
        else:
            for transfer in transfers:
                failure = failure_of_outcome(outcome)
                transfer.failed(for_caller(failure, in_doubt=is_doubtful_answer(failure)), at)
        if next(iter(in_flight), None) != oldest:
            self._oldest_since = at
        if self._waiting:
            self.fill(at)

    def lost(self, failure: Failure, at: float) -> None:
        """The link is gone: what had left is in doubt, what waited is not."""
        self.is_retired = self.has_ended = True
        self._end = failure
        in_flight, self._in_flight = self._in_flight, {}
        waiting, self._waiting = self._waiting, deque()
        self._bytes = 0
        for transfer in in_flight.values():
            transfer.failed(for_caller(failure, in_doubt=True), at)
        for _, _, transfer in waiting:
            transfer.failed(for_caller(failure), at)

    # --- time ---

    def due_at(self) -> float | None:
        """When to look next; None: nothing is on its way."""
        oldest = next(iter(self._in_flight.values()), None)
        if oldest is not None:
            quiet_since = min(self._moved_at, max(self._oldest_since, oldest.sent_at))
            return max(oldest.sent_at, quiet_since) + self._attempt_s
        return max(self._waiting[0][2].at, self._moved_at) + self._attempt_s if self._waiting else None

    def look(self, at: float) -> None:
        """Give up what is overdue."""
        while (due := self.due_at()) is not None and at >= due and self._in_flight:
            self.is_retired = True
            self.is_silent = self.is_silent or at - self._moved_at >= self._attempt_s
            delivery_id = next(iter(self._in_flight))
            transfer = self._in_flight.pop(delivery_id)
            self._bytes -= transfer.size
            self._oldest_since = at
            transfer.failed(for_caller(self._silence("did not answer"), in_doubt=True), at)
        if self._waiting and at - self._moved_at >= self._attempt_s:
            while self._waiting and at - self._waiting[0][2].at >= self._attempt_s:
                self.is_retired = True
                self._waiting.popleft()[2].failed(for_caller(self._silence("grants no credit")), at)
        if self.is_retired and self._waiting:
            waiting, self._waiting = self._waiting, deque()
            for _, _, transfer in waiting:
                transfer.failed(for_caller(self._silence("did not answer others")), at)

    def _silence(self, how: str) -> Failure:
        return Failure(FailureKind.NO_ANSWER, f"{self.path} {how} within {self._attempt_s:g} s")
