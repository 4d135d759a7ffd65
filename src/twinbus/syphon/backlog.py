"""One backlog queue as the pump sees it: what it has lent us, how much more it may lend, and what we told it of that.

Letters that cannot go home now (their destination rests, or they are not wanted) are *parked*: passed over, so that
those behind them can be reached. A sweep through the queue ends when nothing new comes, when too many are parked, or
when their locks grow old; then all parked letters are given back at once and the queue is left alone for a moment, or
it would hand us the same letters again and again.
"""

from __future__ import annotations

from enum import Enum

from twinbus.amqp.outcomes import ACCEPTED, RELEASED, Error, Rejected
from twinbus.amqp.serial import SERIAL_MASK
from twinbus.amqp.types import Symbol
from twinbus.pairing.failure import Failure
from twinbus.syphon.backoff import Backoff
from twinbus.syphon.effects import Effect, Grant, Settle
from twinbus.syphon.letters import Held, Lot, enqueued_ms, locked_until_ms
from twinbus.syphon.options import SyphonOptions
from twinbus.syphon.spans import spans, unwrapped

DEAD_LETTER = "com.microsoft:dead-letter"
QUIET_MS = 500
"""A queue that has sent nothing for so long, though it may, has nothing more to send."""
_LOCK_MS_MIN = 1_000
_LETTER_BYTES = 64.0 * 1024
"""How large letters are taken to be until some have come: credit for small ones would bring large ones too."""
_TEXT_LENGTH_MAX = 1_000


class Leave(Enum):
    """Why a letter leaves us."""

    MOVED = "moved"
    REFUSED = "refused"
    EXPIRED = "expired"


class Owed:
    """Letters that were settled together, until the queue has answered for each."""

    __slots__ = ("count", "leave", "left", "lost", "reason", "since_ms")

    def __init__(self, leave: Leave, count: int, since_ms: int, reason: str) -> None:
        self.leave = leave
        self.reason = reason
        self.count = self.left = count
        self.lost = 0
        """Those whose lock had ended by then."""
        self.since_ms = since_ms


class BacklogQueue:
    def __init__(self, index: int, path: str, options: SyphonOptions, *, is_extra: bool = False) -> None:
        self.index = index
        self.path = path
        self.is_extra = is_extra
        """Whether it is one more than there should be: a sender elsewhere has more of them."""
        self.has_lent = False
        """Whether a message ever came from it."""
        self.is_gone = False
        """Whether it was deleted: nobody waits for it then."""
        self.refusal: Failure | None = None
        """Why it does not let us in, if that lasts until somebody does something; None: it does, or soon may."""
        self.is_attached = False
        self.unsettled = 0
        """Letters that are ours for now: neither given back nor settled with an answer."""
        self.credit = 0
        self.parked: list[Held] = []
        self.lots: list[Lot] = []
        self.done: list[int] = []
        """Numbers of letters that are stored at home and not yet completed here."""
        self.owed: dict[int, Owed] = {}
        self.rest_until_ms = 0
        self.arrived_ms = 0
        self.oldest_ms: int | None = None
        """When the letter at the head of the queue was put into the backlog, by the secondary's clock."""
        self.clock_gap_ms: int | None = None
        """How far locks end from where they should on our clock: the clocks differ, or the lock duration does."""
        self.lock_ms = round(options.lock_s * 1000)
        """How long locks hold: as long as we were told, or shorter if those that come are."""
        self._options = options
        self._told_lock_ms = self.lock_ms
        self._granted_ms = 0
        self._parked_ms = 0
        self._has_moved = False
        self._latest = 0
        self._rests = Backoff(options)
        self._letter_bytes = _LETTER_BYTES
        self._narrowing = 1

    # --- links come and go ---

    def attached(self, now_ms: int) -> None:
        self.is_attached = True
        self.refusal = None
        self.credit = 0
        self.arrived_ms = now_ms
        self.rest_until_ms = 0

    def lost(self) -> None:
        """The link is gone. Whatever was lent on it comes again when its lock has ended."""
        for lot in self.lots:
            lot.is_lost = True
        self.lots.clear()
        self.parked.clear()
        self.done.clear()
        self.owed.clear()
        self.is_attached = False
        self.credit = self.unsettled = 0

    # --- letters come ---

    def new_lot(self, first: bytes, count: int, now_ms: int) -> tuple[Lot, int]:
        """A lot for letters that came together, and what the secondary's clock shows now."""
        until_ms = locked_until_ms(first)
        secondary_now_ms = now_ms if until_ms is None else until_ms - self._told_lock_ms
        self.lock_ms = self._told_lock_ms
        if until_ms is not None:
            self.clock_gap_ms = secondary_now_ms - now_ms
            if _LOCK_MS_MIN <= until_ms - now_ms < self.lock_ms:
                self.lock_ms = until_ms - now_ms  # shorter locks than we were told: rather renew them too soon
        if not self.parked:  # else the head of the queue is among those
            self.oldest_ms = enqueued_ms(first)
        self.has_lent = True
        lot = Lot(self, now_ms + self.lock_ms)
        self.lots.append(lot)
        self.unsettled += count
        self.credit = max(0, self.credit - count)
        self.arrived_ms = now_ms
        return lot, secondary_now_ms

    def number_of(self, delivery_id: int) -> int:
        self._latest = number = unwrapped(delivery_id, self._latest)
        return number

    def weigh(self, size: int, count: int) -> None:
        """Letters of so many bytes together have come: how many of them fit into our hands is guessed from that."""
        self._letter_bytes += (size / count - self._letter_bytes) * min(1.0, count / 100)

    def park(self, held: Held, now_ms: int) -> None:
        if not self.parked:
            self._parked_ms = now_ms
        held.letter = b""
        held.lot.left.pop(held.number, None)
        self.parked.append(held)

    # --- letters go ---

    def settle_done(self, effects: list[Effect], now_ms: int) -> None:
        """Complete what is stored at home, in ranges."""
        if not self.done:
            return
        self._has_moved = True
        self._owe(self.done, Leave.MOVED, now_ms)
        effects += [Settle(self.index, first, last, ACCEPTED) for first, last in spans(self.done)]
        self.done = []

    def dead_letter(self, held: Held, leave: Leave, reason: str, text: str, now_ms: int) -> Settle:
        """Move a letter to the dead-letter queue, and say why."""
        held.lot.left.pop(held.number, None)
        self._owe([held.number], leave, now_ms, reason)
        info = {Symbol("DeadLetterReason"): reason, Symbol("DeadLetterErrorDescription"): text[:_TEXT_LENGTH_MAX]}
        delivery_id = held.number & SERIAL_MASK
        return Settle(self.index, delivery_id, delivery_id, Rejected(Error(DEAD_LETTER, None, info)))

    def give_back(self, letters: list[Held], effects: list[Effect]) -> int:
        """Unlock letters as if we had never had them; how many that were."""
        live = [held for held in letters if not held.lot.is_lost]
        for held in live:
            held.lot.left.pop(held.number, None)
        self.unsettled -= len(live)
        effects += [Settle(self.index, first, last, RELEASED) for first, last in spans([held.number for held in live])]
        return len(live)

    def answered(self, delivery_ids: list[int]) -> list[tuple[int, Owed]]:
        """The queue has spoken about settlements: their numbers, and what they were."""
        answered: list[tuple[int, Owed]] = []
        for delivery_id in delivery_ids:
            number = unwrapped(delivery_id, self._latest)
            owed = self.owed.pop(number, None)
            if owed is not None:
                owed.left -= 1
                answered.append((number, owed))
        self.unsettled -= len(answered)
        return answered

    def is_unanswered(self, now_ms: int, attempt_ms: int) -> bool:
        """Whether the answer to a settlement is overdue."""
        oldest = next(iter(self.owed.values()), None)
        return oldest is not None and now_ms - oldest.since_ms >= attempt_ms

    def _owe(self, numbers: list[int], leave: Leave, now_ms: int, reason: str = "") -> None:
        self.owed.update(dict.fromkeys(numbers, Owed(leave, len(numbers), now_ms, reason)))

    # --- how much may come ---

    def window(self, wanted: int, queues: int) -> int:
        """Letters to have at a time: as many as wanted, unless they are large or locks were lost."""
        fitting = int(self._options.held_bytes_max / queues / self._letter_bytes)
        return max(1, min(wanted, fitting) // self._narrowing)

    def narrow(self) -> None:
        """Locks were lost: have fewer letters at a time."""
        self._narrowing = min(64, self._narrowing * 2)

    def widen(self) -> None:
        self._narrowing = 1

    def grant(self, window: int, now_ms: int) -> Grant | None:
        """The credit to give now, None to leave it as it is."""
        if not self.is_attached or now_ms < self.rest_until_ms:
            return None
        room = window - (self.unsettled - len(self.parked)) - self.credit
        if self.credit and -room > window:  # letters have become larger: not all that they were asked for may come
            self.credit = max(0, self.credit + room)
            return Grant(self.index, self.credit)
        is_poll_due = now_ms - self._granted_ms >= self._options.renew_credit_s * 1000
        if room < max(1, window // 4) and not (is_poll_due and self.credit > 0):
            return None
        self.credit += max(0, room)
        self._granted_ms = now_ms
        return Grant(self.index, self.credit)

    def take_back_credit(self, effects: list[Effect]) -> None:
        if self.credit and self.is_attached:
            effects.append(Grant(self.index, 0))
        self.credit = 0

    # --- sweeps ---

    def is_sweep_over(self, now_ms: int) -> bool:
        return bool(self.parked) and (
            len(self.parked) >= self._options.parked_max
            or now_ms - self.arrived_ms >= QUIET_MS
            or now_ms - self._parked_ms >= self.lock_ms // 2
        )

    def end_sweep(self, wake_ms: int | None, effects: list[Effect], now_ms: int) -> int:
        """Give back what was passed over and rest; not beyond `wake_ms`, when a destination may be tried again."""
        self.take_back_credit(effects)  # first: or what is given back now comes again at once
        count = self.give_back(self.parked, effects)
        self.parked = []
        if self._has_moved:
            self._rests.reset()
        self._has_moved = False
        self.rest(now_ms, wake_ms)
        return count

    def rest(self, now_ms: int, wake_ms: int | None = None) -> None:
        pause_ms = self._rests.next_ms()
        self.rest_until_ms = now_ms + pause_ms
        if wake_ms is not None and wake_ms > now_ms:
            shortest_ms = round(self._options.backoff_s[0] * 1000)
            self.rest_until_ms = min(self.rest_until_ms, max(wake_ms, now_ms + shortest_ms))

    def wake(self) -> None:
        """Rest no longer."""
        self.rest_until_ms = 0
        self._rests.reset()

    def lots_to_renew(self, now_ms: int) -> list[Lot]:
        """Lots with letters whose locks have less than half their time left; empty lots are forgotten."""
        self.lots = [lot for lot in self.lots if lot.left]
        old = [lot for lot in self.lots if lot.ends_ms - now_ms < self.lock_ms // 2]
        return [lot for lot in old if not lot.is_renewing and now_ms >= lot.renew_from_ms]

    # --- rest and quiet ---

    def is_quiet(self, now_ms: int, quiet_ms: int = QUIET_MS) -> bool:
        """Whether the queue may send, has nothing to send, and we have nothing of it."""
        return (
            self.is_attached
            and not self.unsettled
            and self.credit > 0
            and now_ms - self.arrived_ms >= quiet_ms
            and now_ms - self._granted_ms >= quiet_ms
        )

    def next_ms(self, now_ms: int) -> int | None:
        """When something is to be done though nothing comes; None: not before the link is there."""
        if not self.is_attached:
            return None
        if now_ms < self.rest_until_ms:
            return self.rest_until_ms
        return round(self._granted_ms + self._options.renew_credit_s * 1000)
