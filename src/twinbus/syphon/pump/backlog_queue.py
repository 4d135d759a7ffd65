"""One backlog queue as the pump sees it: what it delivered to us, how much more it may deliver, what we settled.

Messages that cannot go home now (their destination rests, or they are not wanted) are *parked*: passed over, so that
those behind them can be reached. A sweep through the queue ends when nothing new arrives, when too many are parked, or
when their locks get old. Then all parked messages are released at once and the queue gets no credit for a moment, or
it would deliver the same messages again and again.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from twinbus.amqp.codec.outcomes import ACCEPTED, RELEASED, Error, Rejected
from twinbus.amqp.codec.types import Symbol
from twinbus.amqp.serial import SERIAL_MASK, steps
from twinbus.pairing.sending.failure import Failure
from twinbus.syphon.options import SyphonOptions
from twinbus.syphon.pump.backlog_message import HeldMessage, LockBatch
from twinbus.syphon.pump.effects import Effect, GrantCredit, SettleDeliveries
from twinbus.transport.links.annotations import enqueued_ms, locked_until_ms

DEAD_LETTER = "com.microsoft:dead-letter"
QUIET_MS = 500
"""A queue that had credit and sent nothing for this long has nothing more to send."""
_LOCK_MS_MIN = 1_000
_MESSAGE_BYTES = 64.0 * 1024
"""The assumed size until messages have arrived: credit for small ones would bring large ones too."""
_TEXT_LENGTH_MAX = 1_000


class SettlementKind(Enum):
    """Why a message leaves its backlog queue."""

    MOVED = "moved"
    REFUSED = "refused"
    EXPIRED = "expired"


class PendingSettlement:
    """Messages that were settled together, until the queue has answered for each."""

    __slots__ = ("count", "kind", "lost", "reason", "since_ms", "unanswered")

    def __init__(self, kind: SettlementKind, count: int, since_ms: int, reason: str) -> None:
        self.kind = kind
        self.reason = reason
        self.count = self.unanswered = count
        self.lost = 0
        """Those whose lock had ended."""
        self.since_ms = since_ms


class BacklogQueue:
    def __init__(self, index: int, path: str, options: SyphonOptions, *, is_extra: bool = False) -> None:
        self.index = index
        self.path = path
        self.is_extra = is_extra
        """Whether it is beyond the configured count: a sender elsewhere uses more queues."""
        self.has_delivered = False
        self.is_deleted = False
        self.refusal: Failure | None = None
        """Why we may not receive, if that lasts until somebody changes something; None: we may, or soon may."""
        self.is_attached = False
        self.unsettled = 0
        """Messages that we hold: neither released, nor settled and answered."""
        self.credit = 0
        self.parked: list[HeldMessage] = []
        self.lock_batches: list[LockBatch] = []
        self.stored: list[int] = []
        """Numbers of messages that the primary has stored and that are not completed here yet."""
        self.pending: dict[int, PendingSettlement] = {}
        self.rest_until_ms = 0
        self.arrived_ms = 0
        self.oldest_ms: int | None = None
        """When the message at the head of the queue was enqueued, by the secondary's clock."""
        self.clock_gap_ms: int | None = None
        """How far locks end from where they should by our clock: the clocks differ, or the lock duration does."""
        self.lock_ms = round(options.lock_s * 1000)
        """How long locks last: as configured, or shorter if those that arrive are."""
        self._options = options
        self._configured_lock_ms = self.lock_ms
        self._granted_ms = 0
        self._parked_ms = 0
        self._has_moved = False
        self._latest = 0
        self._rests = options.new_backoff()
        self._message_bytes = _MESSAGE_BYTES
        self._window_divisor = 1

    # --- links come and go ---

    def attached(self, now_ms: int) -> None:
        self.is_attached = True
        self.refusal = None
        self.credit = 0
        self.arrived_ms = now_ms
        self.rest_until_ms = 0

    def lost(self) -> None:
        """The link is gone. What was delivered on it is delivered again when its lock has ended."""
        for lock_batch in self.lock_batches:
            lock_batch.is_lost = True
        self.lock_batches.clear()
        self.parked.clear()
        self.stored.clear()
        self.pending.clear()
        self.is_attached = False
        self.credit = self.unsettled = 0

    # --- messages arrive ---

    def add_lock_batch(self, first: bytes, count: int, now_ms: int) -> tuple[LockBatch, int]:
        """A lock batch for messages that arrived together, and the time now by the secondary's clock."""
        until_ms = locked_until_ms(first)
        secondary_now_ms = now_ms if until_ms is None else until_ms - self._configured_lock_ms
        self.lock_ms = self._configured_lock_ms
        if until_ms is not None:
            self.clock_gap_ms = secondary_now_ms - now_ms
            if _LOCK_MS_MIN <= until_ms - now_ms < self.lock_ms:
                self.lock_ms = until_ms - now_ms  # shorter than configured: rather renew them too soon
        if not self.parked:  # else the head of the queue is parked
            self.oldest_ms = enqueued_ms(first)
        self.has_delivered = True
        lock_batch = LockBatch(self, now_ms + self.lock_ms)
        self.lock_batches.append(lock_batch)
        self.unsettled += count
        self.credit = max(0, self.credit - count)
        self.arrived_ms = now_ms
        return lock_batch, secondary_now_ms

    def number_of(self, delivery_id: int) -> int:
        self._latest = number = unwrap_delivery_id(delivery_id, self._latest)
        return number

    def update_mean_size(self, size: int, count: int) -> None:
        """`count` messages of `size` bytes together arrived; the window depends on their mean size."""
        self._message_bytes += (size / count - self._message_bytes) * min(1.0, count / 100)

    def park(self, held: HeldMessage, now_ms: int) -> None:
        if not self.parked:
            self._parked_ms = now_ms
        held.payload = b""
        held.lock_batch.messages.pop(held.number, None)
        self.parked.append(held)

    # --- messages leave ---

    def complete_stored(self, effects: list[Effect], now_ms: int) -> None:
        """Complete what the primary has stored, in ranges."""
        if not self.stored:
            return
        self._has_moved = True
        self._add_pending(self.stored, SettlementKind.MOVED, now_ms)
        effects += [SettleDeliveries(self.index, *ids, ACCEPTED) for ids in delivery_ranges(self.stored)]
        self.stored = []

    def dead_letter(
        self, held: HeldMessage, kind: SettlementKind, reason: str, text: str, now_ms: int
    ) -> SettleDeliveries:
        held.lock_batch.messages.pop(held.number, None)
        self._add_pending([held.number], kind, now_ms, reason)
        info = {Symbol("DeadLetterReason"): reason, Symbol("DeadLetterErrorDescription"): text[:_TEXT_LENGTH_MAX]}
        delivery_id = held.number & SERIAL_MASK
        return SettleDeliveries(self.index, delivery_id, delivery_id, Rejected(Error(DEAD_LETTER, None, info)))

    def release(self, messages: list[HeldMessage], effects: list[Effect]) -> int:
        """Release messages whose locks are not lost; how many that were."""
        live = [held for held in messages if not held.lock_batch.is_lost]
        for held in live:
            held.lock_batch.messages.pop(held.number, None)
        self.unsettled -= len(live)
        numbers = [held.number for held in live]
        effects += [SettleDeliveries(self.index, *ids, RELEASED) for ids in delivery_ranges(numbers)]
        return len(live)

    def take_pending(self, delivery_ids: list[int]) -> list[tuple[int, PendingSettlement]]:
        """The settlements that the queue has answered, by number."""
        answered: list[tuple[int, PendingSettlement]] = []
        for delivery_id in delivery_ids:
            number = unwrap_delivery_id(delivery_id, self._latest)
            pending = self.pending.pop(number, None)
            if pending is not None:
                pending.unanswered -= 1
                answered.append((number, pending))
        self.unsettled -= len(answered)
        return answered

    def is_unanswered(self, now_ms: int, attempt_ms: int) -> bool:
        oldest = next(iter(self.pending.values()), None)
        return oldest is not None and now_ms - oldest.since_ms >= attempt_ms

    def _add_pending(self, numbers: list[int], kind: SettlementKind, now_ms: int, reason: str = "") -> None:
        self.pending.update(dict.fromkeys(numbers, PendingSettlement(kind, len(numbers), now_ms, reason)))

    # --- credit ---

    def window(self, wanted: int, queues: int) -> int:
        """How many messages to hold at a time: `wanted`, unless they are large or locks were lost."""
        fitting = int(self._options.held_bytes_max / queues / self._message_bytes)
        return max(1, min(wanted, fitting) // self._window_divisor)

    def shrink_window(self) -> None:
        """Locks were lost: hold fewer messages at a time."""
        self._window_divisor = min(64, self._window_divisor * 2)

    def reset_window(self) -> None:
        self._window_divisor = 1

    def grant(self, window: int, now_ms: int) -> GrantCredit | None:
        """The credit to grant now; None: leave it as it is."""
        if not self.is_attached or now_ms < self.rest_until_ms:
            return None
        room = window - (self.unsettled - len(self.parked)) - self.credit
        if self.credit and -room > window:  # messages have become larger: fewer may come than were asked for
            self.credit = max(0, self.credit + room)
            return GrantCredit(self.index, self.credit)
        is_poll_due = now_ms - self._granted_ms >= self._options.renew_credit_s * 1000
        if room < max(1, window // 4) and not (is_poll_due and self.credit > 0):
            return None
        self.credit += max(0, room)
        self._granted_ms = now_ms
        return GrantCredit(self.index, self.credit)

    def take_back_credit(self, effects: list[Effect]) -> None:
        if self.credit and self.is_attached:
            effects.append(GrantCredit(self.index, 0))
        self.credit = 0

    # --- sweeps ---

    def is_sweep_over(self, now_ms: int) -> bool:
        return bool(self.parked) and (
            len(self.parked) >= self._options.parked_max
            or now_ms - self.arrived_ms >= QUIET_MS
            or now_ms - self._parked_ms >= self.lock_ms // 2
        )

    def end_sweep(self, wake_ms: int | None, effects: list[Effect], now_ms: int) -> int:
        """Release the parked messages and rest; not beyond `wake_ms`, when a destination may be tried again."""
        self.take_back_credit(effects)  # first, or what is released now is delivered again at once
        count = self.release(self.parked, effects)
        self.parked = []
        if self._has_moved:
            self._rests.reset()
        self._has_moved = False
        self.rest(now_ms, wake_ms)
        return count

    def rest(self, now_ms: int, wake_ms: int | None = None) -> None:
        self.rest_until_ms = now_ms + self._rests.next_ms()
        if wake_ms is not None and wake_ms > now_ms:
            shortest_ms = round(self._options.backoff_s[0] * 1000)
            self.rest_until_ms = min(self.rest_until_ms, max(wake_ms, now_ms + shortest_ms))

    def wake(self) -> None:
        self.rest_until_ms = 0
        self._rests.reset()

    def batches_to_renew(self, now_ms: int) -> list[LockBatch]:
        """Lock batches with less than half of their time left; drops empty ones."""
        self.lock_batches = [each for each in self.lock_batches if each.messages]
        old = [each for each in self.lock_batches if each.ends_ms - now_ms < self.lock_ms // 2]
        return [each for each in old if not each.is_renewing and now_ms >= each.renew_from_ms]

    def is_quiet(self, now_ms: int, quiet_ms: int = QUIET_MS) -> bool:
        """Whether the queue has credit, sends nothing, and we hold nothing of it."""
        return (
            self.is_attached
            and not self.unsettled
            and self.credit > 0
            and now_ms - self.arrived_ms >= quiet_ms
            and now_ms - self._granted_ms >= quiet_ms
        )

    def next_ms(self, now_ms: int) -> int | None:
        """When something is to be done even if nothing arrives; None: not before the link is attached."""
        if not self.is_attached:
            return None
        if now_ms < self.rest_until_ms:
            return self.rest_until_ms
        return round(self._granted_ms + self._options.renew_credit_s * 1000)


# --- delivery ids ---------------------------------------------------------------------------------
#
# On the wire delivery ids are 32-bit counters that wrap around. Here they go on counting, so that they can be sorted.

_WRAP = SERIAL_MASK + 1


def unwrap_delivery_id(delivery_id: int, latest: int) -> int:
    """The delivery as a number that never wraps; `latest` is that of a delivery near it."""
    return latest + steps(latest & SERIAL_MASK, delivery_id)


def delivery_ranges(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """The ranges first..last of exactly these deliveries, as ids on the wire. Sorts the list.

    One disposition settles a range. A range ends where the counter wraps.
    """
    if not numbers:
        return
    numbers.sort()
    if numbers[-1] - numbers[0] == len(numbers) - 1 and numbers[0] // _WRAP == numbers[-1] // _WRAP:
        yield numbers[0] & SERIAL_MASK, numbers[-1] & SERIAL_MASK  # without gaps, as most are
        return
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != last + 1 or not number % _WRAP:
            yield first & SERIAL_MASK, last & SERIAL_MASK
            first = number
        last = number
    yield first & SERIAL_MASK, last & SERIAL_MASK
