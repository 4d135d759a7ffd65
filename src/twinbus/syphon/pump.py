"""The pump's decisions: what to send where, what to complete, pass over, refuse, and when.

It is told what happened (letters arrived, a batch was answered, time passed) and answers with effects. No clock, no
socket, no chance of its own: `now_ms` is an argument, in milliseconds since 1970, and never goes back.

    pump.arrived(0, transfers, now_ms)
    for effect in pump.take_effects(now_ms): ...
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from twinbus.amqp.events import TransferArrived
from twinbus.amqp.outcomes import Accepted, Error, Outcome, Rejected
from twinbus.errors import DecodeError, EnvelopeError
from twinbus.ledger.kinds import Kind
from twinbus.pairing.envelope import Aliases
from twinbus.pairing.failure import Failure, FailureKind
from twinbus.pairing.letters import BATCH_LETTERS_MAX
from twinbus.pairing.verdict import Role, Verdict, verdict
from twinbus.syphon import reasons
from twinbus.syphon.backlog import BacklogQueue, Leave, Owed
from twinbus.syphon.batches import Batch, encode_batch
from twinbus.syphon.chronicle import NOTHING_TOLD, Chronicle
from twinbus.syphon.destination import Destination, State
from twinbus.syphon.effects import (
    Alert,
    DropDestination,
    Effect,
    Grant,
    OpenDestination,
    RenewLocks,
    ReopenQueue,
    Send,
)
from twinbus.syphon.failures import failure_of_outcome, no_answer
from twinbus.syphon.letters import Held, Lot, enqueued_ms, expiry_ms
from twinbus.syphon.options import SyphonOptions
from twinbus.syphon.outside import Outside
from twinbus.syphon.pace import Gait, Pace
from twinbus.syphon.shortcut import read_letter
from twinbus.syphon.tally import Tally

DESTINATIONS_MAX = 500
"""Links to the primary at a time; the service bounds them too."""
CLOCK_GAP_MS_MAX = 10_000
TICK_MS = 100
RENEW_PAUSE_MS = 2_000
"""Between two requests for more time for the same letters, if the first came to nothing."""
EXTRA = "has messages and is beyond the number of backlog queues here: a sender elsewhere has more; they come home too"
_NO_ALIASES = Aliases("")
_KINDS = {Leave.MOVED: Kind.COMPLETED, Leave.REFUSED: Kind.DEAD_LETTERED, Leave.EXPIRED: Kind.EXPIRED}


class Pump:
    def __init__(
        self, paths: Sequence[str], options: SyphonOptions, now_ms: int, chronicle: Chronicle = NOTHING_TOLD
    ) -> None:
        self.options = options
        self.queues = [BacklogQueue(index, path, options) for index, path in enumerate(paths)]
        self.destinations: dict[str, Destination] = {}
        self.pace = Pace(options, now_ms)
        self.tally = Tally()
        self._effects: list[Effect] = []
        self._numbers = count(1)
        self._attempt_ms = round(options.attempt_s * 1000)
        self._lock_ms = round(options.lock_s * 1000)
        self._busy_ms = round(options.busy_s * 1000)
        self._is_sifting = options.entities is not None or options.enqueued_before is not None
        self._outside = None if options.entities is None else Outside(self.pace.allows, self.tally)
        self._chronicle = chronicle
        self._said: set[tuple[str, str]] = set()
        self._told_gait = Gait.RUNNING

    # --- backlog queues ---

    def add_queue(self, path: str, *, is_extra: bool) -> BacklogQueue:
        """One more queue to empty; `is_extra`: there should not be so many."""
        queue = BacklogQueue(len(self.queues), path, self.options, is_extra=is_extra)
        self._chronicle.added(path)
        self.queues.append(queue)
        return queue

    def queue_attached(self, index: int, now_ms: int) -> None:
        self.queues[index].attached(now_ms)

    def queue_lost(self, index: int) -> None:
        """The link to a queue is gone; what it had lent comes again."""
        self._chronicle.lost(index)
        self.queues[index].lost()
        for destination in self.destinations.values():
            destination.drop_lost()

    def arrived(self, index: int, transfers: Sequence[TransferArrived], now_ms: int) -> None:
        """Letters came from a backlog queue, in one piece."""
        queue, tally = self.queues[index], self.tally
        if queue.is_extra:
            self._say_once("extra_queue", queue.path, EXTRA)
        lot, secondary_ms = queue.new_lot(transfers[0].payload, len(transfers), now_ms)
        size = 0
        for transfer in transfers:
            size += len(transfer.payload)
            self._sort(transfer, queue, lot, secondary_ms, now_ms)
        self._chronicle.received(index)
        queue.weigh(size, len(transfers))
        tally.received += len(transfers)
        tally.received_bytes += size
        gap_ms = queue.clock_gap_ms
        if gap_ms is not None and abs(gap_ms) > CLOCK_GAP_MS_MAX:
            text = f"locks end {gap_ms / 1000:+.0f} s from where they should: the clocks, or the lock duration, differ"
            self._say_once("clock_differs", queue.path, text)

    def _sort(self, transfer: TransferArrived, queue: BacklogQueue, lot: Lot, secondary_ms: int, now_ms: int) -> None:
        """Put one letter in line for its destination, or aside."""
        raw = transfer.payload
        number = queue.number_of(transfer.delivery_id)
        try:
            aliases, home = read_letter(raw)
        except (EnvelopeError, DecodeError) as error:
            stranger = Held(number, transfer.tag, lot, b"", _NO_ALIASES, is_open=False)
            self._chronicle.note(queue.index, stranger, raw)
            self._turn_away(stranger, raw, str(error), now_ms)
            return
        held = lot.left[number] = Held(number, transfer.tag, lot, home or raw, aliases, is_open=home is not None)
        self._chronicle.note(queue.index, held, raw)
        since_ms = enqueued_ms(raw)
        if aliases.ttl_ms is not None and self.options.ttl == "remaining":
            ends_ms = expiry_ms(aliases, secondary_ms if since_ms is None else since_ms)
            held.dies_ms = None if ends_ms is None else now_ms + ends_ms - secondary_ms
        if self._outside is not None:
            self._effects += self._outside.meet(queue.index, raw, aliases.path)
        self._line_up(held, raw, since_ms, now_ms)

    def _turn_away(self, stranger: Held, _raw: bytes, text: str, now_ms: int) -> None:
        """A letter says nothing of where it belongs."""
        self._refuse(stranger, reasons.MALFORMED, text, now_ms)

    def _line_up(self, held: Held, _raw: bytes, since_ms: int | None, now_ms: int) -> None:
        path = held.aliases.path
        destination = self.destinations.get(path) or self._new_destination(held, now_ms)
        if destination is None:
            return
        is_unwanted = self._is_sifting and not self.pace.wants(path, since_ms)
        if is_unwanted or not self.pace.is_running or destination.is_resting(now_ms):
            self._set_aside(held, now_ms)
        else:
            destination.waiting.append(held)

    def settled(self, index: int, delivery_ids: list[int], outcome: Outcome | None, now_ms: int) -> None:
        """A queue has answered settlements of ours: the same outcome means yes."""
        queue, tally = self.queues[index], self.tally
        answered = queue.answered(delivery_ids)
        error = outcome.error if isinstance(outcome, Rejected) else None
        if error is not None:
            self._not_settled(queue, answered, error, now_ms)
            return
        by_kind: dict[tuple[Leave, str], list[int]] = {}
        for number, owed in answered:
            by_kind.setdefault((owed.leave, owed.reason), []).append(number)
        for (leave, reason), numbers in by_kind.items():
            self._chronicle.left(_KINDS[leave], index, numbers, reason)
            self._left(index, numbers)
            tally.moved += len(numbers) if leave is Leave.MOVED else 0
            tally.refused += len(numbers) if leave is Leave.REFUSED else 0
            tally.expired += len(numbers) if leave is Leave.EXPIRED else 0
        if answered:
            queue.widen()

    def _left(self, index: int, numbers: list[int]) -> None:
        """The queue has let letters go, for good."""

    def _not_settled(self, queue: BacklogQueue, answered: list[tuple[int, Owed]], error: Error, now_ms: int) -> None:
        text = error.description or error.condition
        self._chronicle.left(Kind.LOCK_LOST, queue.index, [number for number, _ in answered], text)
        for _, owed in answered:
            owed.lost += 1
            self.tally.repeated += owed.leave is Leave.MOVED
        for owed in {owed for _, owed in answered}:
            if not owed.left and owed.lost == owed.count and owed.leave is Leave.MOVED:
                self._locks_lost(queue, owed.count, text, now_ms)

    def renewed(self, lot: Lot, refusal: Failure | None, asked_ms: int, now_ms: int) -> None:
        """The locks of a lot hold for their full time again since `asked_ms`, or they do not."""
        lot.is_renewing = False
        if refusal is None:
            lot.ends_ms = max(lot.ends_ms, asked_ms + lot.queue.lock_ms)
            self.tally.locks_renewed += len(lot.left)
            self._chronicle.renewed(lot.queue.index, lot.locks_asked)
        elif refusal.condition == "com.microsoft:message-lock-lost" and lot.left and not lot.is_lost:
            lot.ends_ms = now_ms  # what is in line is not sent any more: somebody else may have it
            self._locks_lost(lot.queue, len(lot.left), refusal.text, now_ms)
        else:
            is_busy = refusal.kind is FailureKind.BUSY
            lot.renew_from_ms = now_ms + (self._busy_ms if is_busy else RENEW_PAUSE_MS)

    def peeked(self, path: str, letters: Sequence[bytes]) -> None:
        """A queue was looked into, and this was found."""
        self._chronicle.peeked(path, letters)

    def _locks_lost(self, queue: BacklogQueue, letters: int, text: str, now_ms: int) -> None:
        queue.narrow()
        queue.take_back_credit(self._effects)
        queue.rest(now_ms)
        self._effects.append(Alert("locks_lost", queue.path, f"the locks of {letters} messages were lost: {text}"))

    # --- destinations ---

    def _new_destination(self, held: Held, now_ms: int) -> Destination | None:
        path = held.aliases.path
        problem = reasons.path_problem(path)
        if problem is not None:
            self._refuse(held, reasons.MALFORMED, problem, now_ms)
            return None
        if len(self.destinations) >= DESTINATIONS_MAX and not self._drop_an_idle_destination(now_ms):
            self._set_aside(held, now_ms)
            return None
        destination = self.destinations[path] = self._make_destination(path)
        return destination

    def _make_destination(self, path: str) -> Destination:
        return Destination(path, self.options)

    def _drop_an_idle_destination(self, now_ms: int) -> bool:
        for path, destination in self.destinations.items():
            if not destination.has_letters and not destination.in_flight and not destination.is_resting(now_ms):
                del self.destinations[path]
                self._effects.append(DropDestination(path))
                return True
        return False

    def destination_opened(self, path: str, message_bytes: int, batch_bytes: int, credit: int) -> None:
        """There is a link to send on. `message_bytes` is the most it takes at once; 0: it did not say."""
        destination = self.destinations.get(path)
        if destination is not None:
            destination.opened(message_bytes, min(batch_bytes, self.options.batch_bytes_max), credit)

    def destination_failed(self, path: str, failure: Failure, now_ms: int) -> None:
        """There is no link, or no longer: what was on its way may be stored or not."""
        destination = self.destinations.get(path)
        if destination is None:
            return
        if destination.is_unused:  # the service ends links that nobody uses for a while: that is no failure
            destination.closed()
            return
        for batch in destination.take_in_flight():
            self.tally.in_doubt += len(batch.letters)
            self._chronicle.sent(Kind.IN_DOUBT, batch, failure)
            self.pace.ended(len(batch.letters), moved=False)
            self._park(batch.letters, now_ms)
        self._rest(destination, failure, now_ms)

    def credit(self, path: str, credit: int) -> None:
        """A destination takes so many batches from now on."""
        destination = self.destinations.get(path)
        if destination is not None and destination.state is State.OPEN:
            destination.credit = credit

    def answered(self, path: str, numbers: Sequence[int], outcome: Outcome | None, now_ms: int) -> None:
        """A destination has said what became of batches."""
        destination = self.destinations.get(path)
        if destination is None:
            return
        for number in numbers:
            batch = destination.in_flight.pop(number, None)
            if batch is None:
                continue
            if isinstance(outcome, Accepted):
                self._stored(destination, batch)
            else:
                self._not_stored(destination, batch, failure_of_outcome(outcome), now_ms)

    def _stored(self, destination: Destination, batch: Batch) -> None:
        self._chronicle.sent(Kind.SENT_HOME, batch)
        for held in batch.letters:
            lot = held.lot
            if lot.is_lost:
                self.tally.repeated += 1
            else:
                lot.left.pop(held.number, None)
                lot.queue.done.append(held.number)
        self.tally.stored += len(batch.letters)
        self.tally.moved_bytes += batch.size
        self.pace.ended(len(batch.letters), moved=True)
        if destination.state is State.OPEN and destination.succeeded():
            self._effects.append(Alert("destination_up", destination.path, "takes messages again"))
            self._chronicle.back(destination.path)

    def _not_stored(self, destination: Destination, batch: Batch, failure: Failure, now_ms: int) -> None:
        self.pace.ended(len(batch.letters), moved=False)
        self._chronicle.sent(Kind.ATTEMPT_FAILED, batch, failure)
        if verdict(failure, Role.SYPHON) is not Verdict.RAISE:
            self._park(batch.letters, now_ms)
            self._rest(destination, failure, now_ms)
        elif len(batch.letters) > 1:
            self._suspect(destination, batch.letters)
        else:
            reason = reasons.TOO_LARGE if failure.kind is FailureKind.TOO_LARGE else reasons.REFUSED
            self._refuse(batch.letters[0], reason, f"{destination.path} refused it: {failure}", now_ms)

    def _suspect(self, destination: Destination, letters: list[Held]) -> None:
        """One of these letters is refused for good: each is to be sent alone."""
        destination.suspects.extend(letters)

    def _rest(self, destination: Destination, failure: Failure, now_ms: int) -> None:
        is_news = destination.failure is None
        destination.rest(failure, verdict(failure, Role.SYPHON), now_ms)
        self._park(destination.take_letters(), now_ms)
        self._chronicle.skipped(destination.path, failure, destination.rest_until_ms)
        if is_news:
            self._effects.append(Alert("destination_down", destination.path, str(failure)))

    # --- letters that do not go home ---

    def _park(self, letters: Sequence[Held], now_ms: int) -> None:
        for held in letters:
            if not held.lot.is_lost:
                self._set_aside(held, now_ms)

    def _set_aside(self, held: Held, now_ms: int) -> None:
        """Keep a letter until the sweep is over, then give it back."""
        held.lot.queue.park(held, now_ms)

    def _refuse(self, held: Held, reason: str, text: str, now_ms: int) -> None:
        if held.lot.is_lost:
            return
        queue = held.lot.queue
        leave = Leave.EXPIRED if reason == reasons.EXPIRED else Leave.REFUSED
        self._effects.append(queue.dead_letter(held, leave, reason, text, now_ms))
        if leave is Leave.REFUSED:
            self._say_once("quarantined", held.aliases.path or queue.path, f"{reason}: {text}")

    def _say_once(self, name: str, subject: str, text: str) -> None:
        if (name, subject) not in self._said and len(self._said) < DESTINATIONS_MAX:
            self._said.add((name, subject))
            self._effects.append(Alert(name, subject, text))

    def alert(self, name: str, subject: str, text: str) -> None:
        """News that the shell has for people; it goes the way of all news."""
        self._effects.append(Alert(name, subject, text))

    # --- what to do now ---

    @property
    def has_news(self) -> bool:
        """Whether effects came up while the last ones were carried out."""
        return bool(self._effects)

    def take_effects(self, now_ms: int) -> list[Effect]:
        """What is to be done after everything that was told."""
        if self.pace.gait is not self._told_gait:
            self._tell_gait()
        if not self.pace.is_running:
            self._give_all_back(now_ms)  # by now: a canary ends in the middle of things
        for destination in list(self.destinations.values()):
            if destination.has_letters:
                self._serve(destination, now_ms)
        wanted = self.pace.window(self.options.prefetch, self._lock_ms)
        for queue in self.queues:
            queue.settle_done(self._effects, now_ms)
            self._grant(queue, wanted, now_ms)
        effects, self._effects = self._effects, []
        return effects

    def _grant(self, queue: BacklogQueue, wanted: int, now_ms: int) -> None:
        if not self.pace.is_running:
            queue.take_back_credit(self._effects)
            return
        grant: Grant | None = queue.grant(queue.window(wanted, len(self.queues)), now_ms)
        if grant is not None:
            self._effects.append(grant)
            self.tally.grants += 1
            if not queue.unsettled:
                self._chronicle.polled(queue.index)

    def _serve(self, destination: Destination, now_ms: int) -> None:
        if destination.wants_opening(now_ms):
            destination.state = State.OPENING
            self._effects.append(OpenDestination(destination.path))
        allowed = before = self.pace.allowance(now_ms)
        while allowed and destination.has_letters and destination.room():
            allowed -= self._send(destination, destination.take(min(allowed, BATCH_LETTERS_MAX)), now_ms)
        if not allowed and before:  # it has used up what the pace allows: the others first next time
            self.destinations[destination.path] = self.destinations.pop(destination.path)

    def _send(self, destination: Destination, letters: list[Held], now_ms: int) -> int:
        """Send those that are still alive as one transfer; how many that were."""
        going: list[Held] = []
        payloads: list[bytes] = []
        for held in letters:
            letter = self._homeward(held, destination, now_ms)
            if letter is not None:
                going.append(held)
                payloads.append(letter)
        if not going:
            return 0
        payload, message_format = encode_batch(payloads)
        number = next(self._numbers) & 0xFFFFFFFF
        destination.in_flight[number] = Batch(number, going, tuple(map(len, payloads)), now_ms)
        destination.credit -= 1
        self.pace.sent(len(going))
        self.tally.batches += 1
        self._effects.append(Send(destination.path, number, payload, message_format))
        return len(going)

    def _homeward(self, held: Held, destination: Destination, now_ms: int) -> bytes | None:
        """The letter as it goes home; None if it does not."""
        lot = held.lot
        if lot.is_lost:
            return None
        if lot.ends_ms <= now_ms:
            lot.queue.give_back([held], self._effects)
            self._chronicle.left(Kind.LOCK_LOST, lot.queue.index, [held.number], "the lock has ended")
            return None
        if held.is_dead(now_ms):
            self._refuse(held, reasons.EXPIRED, "its time to live ended in the backlog", now_ms)
            return None
        try:
            letter = held.homeward(now_ms)
        except (EnvelopeError, DecodeError) as error:
            self._refuse(held, reasons.MALFORMED, str(error), now_ms)
            return None
        most = destination.message_bytes
        if most and len(letter) > most:
            text = f"{len(letter)} bytes, and {destination.path} takes at most {most}"
            self._refuse(held, reasons.TOO_LARGE, text, now_ms)
            return None
        return letter

    # --- time ---

    def tick(self, now_ms: int) -> None:
        """Time has passed: answers are overdue, locks grow old, sweeps end."""
        for destination in self.destinations.values():
            if destination.is_unanswered(now_ms, self._attempt_ms):
                self._effects.append(DropDestination(destination.path))
                self.destination_failed(destination.path, no_answer("a batch was not answered", in_doubt=True), now_ms)
        for queue in self.queues:
            if queue.is_attached:
                self._tick_queue(queue, now_ms)

    def _tick_queue(self, queue: BacklogQueue, now_ms: int) -> None:
        if queue.is_unanswered(now_ms, self._attempt_ms):
            self._effects.append(ReopenQueue(queue.index, "a settlement was not answered"))
            return
        for lot in queue.lots_to_renew(now_ms):
            tokens = tuple([held.token for held in lot.left.values()])
            lot.is_renewing, lot.locks_asked = True, len(tokens)
            self._effects.append(RenewLocks(queue.index, lot, tokens))
        if queue.is_sweep_over(now_ms):
            self._end_sweep(queue, now_ms)

    def _end_sweep(self, queue: BacklogQueue, now_ms: int) -> None:
        paths = {held.aliases.path for held in queue.parked}
        ends = [self.destinations[path].rest_until_ms for path in paths if path in self.destinations]
        self._chronicle.left(Kind.RELEASED, queue.index, [held.number for held in queue.parked])
        self.tally.released += queue.end_sweep(min(ends, default=None), self._effects, now_ms)

    def next_ms(self, now_ms: int) -> int:
        """When `tick` is wanted next."""
        if any(queue.unsettled for queue in self.queues) or any(each.in_flight for each in self.destinations.values()):
            paced_ms = self.pace.next_ms(now_ms)
            return min(now_ms + TICK_MS, max(now_ms + TICK_MS // 5, paced_ms or now_ms + TICK_MS))
        due = [queue.next_ms(now_ms) for queue in self.queues] if self.pace.is_running else []
        return min((moment for moment in due if moment is not None), default=now_ms + 60_000)

    # --- pauses ---

    def _tell_gait(self) -> None:
        self._told_gait = gait = self.pace.gait
        if gait is Gait.RUNNING:
            self._chronicle.resumed()
        elif gait is not Gait.STOPPED:
            self._chronicle.paused(gait.value)

    def pause(self) -> None:
        """Send nothing more; what is in line is given back, what is on its way may arrive."""
        self.pace.pause()

    def resume(self) -> None:
        self.pace.resume()
        for queue in self.queues:
            queue.wake()

    def stop(self) -> None:
        """As a pause, for good."""
        self.pace.stop()

    @property
    def is_idle(self) -> bool:
        """Nothing of the backlog is in our hands."""
        return not any(queue.unsettled for queue in self.queues)

    def _give_all_back(self, now_ms: int) -> None:
        for destination in self.destinations.values():
            self._park(destination.take_letters(), now_ms)
        for queue in self.queues:
            if queue.parked:
                self._end_sweep(queue, now_ms)
