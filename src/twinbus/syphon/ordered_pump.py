"""The pump where order counts (`order="session"`): letters of a key go home as they lie in their queue.

A key is an entity and a session id, or none. One batch of a key is on its way at a time; whatever goes wrong with a
letter stops those of its key behind it, and nobody else: they are given back together and come again together.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import Protocol

from twinbus.amqp.events import TransferArrived
from twinbus.amqp.outcomes import Outcome
from twinbus.errors import DecodeError
from twinbus.pairing.failure import Failure
from twinbus.pairing.order import Came, key_of, mark_of
from twinbus.syphon.backlog import QUIET_MS, BacklogQueue
from twinbus.syphon.backoff import Backoff
from twinbus.syphon.batches import Batch
from twinbus.syphon.chronicle import NOTHING_TOLD, Chronicle
from twinbus.syphon.destination import Destination, State
from twinbus.syphon.effects import Effect, Look
from twinbus.syphon.letters import Held, Place
from twinbus.syphon.look import sequence_of
from twinbus.syphon.options import SyphonOptions
from twinbus.syphon.ordered_line import LineKey, OrderedDestination, line_key
from twinbus.syphon.placement import order_problem
from twinbus.syphon.pump import Pump
from twinbus.syphon.sequence import Entry, Sequence

VIGIL_MS = 10_000
"""How often an idle syphon asks whether somebody waits for a queue to be seen empty."""


class Witness(Protocol):
    """Somebody who has to know what left the backlog. Queues are told by their place in the pump."""

    def added(self, index: int) -> None:
        """One more queue is emptied: its place is the next, and this its index."""

    def came(self, queue: int, letters: list[Came]) -> None:
        """Letters are stored at home, or refused for good; those of a key in their order."""

    def waits_for(self, queue: int) -> bool:
        """Whether anything would change if a queue was seen empty."""

    def look_begins(self, queue: int) -> int:
        """A look at whether a queue is empty begins; a number to tell it from others."""

    def seen_empty(self, queue: int, look: int) -> None:
        """It found the queue empty."""


class Vigil:
    """Whether a queue is to be looked at, to see it empty."""

    def __init__(self, options: SyphonOptions) -> None:
        self.is_wanted = False
        self.look: int | None = None
        """The look that is under way."""
        self.not_before_ms = 0
        self.asked_ms = 0
        """When somebody was last asked whether a look is needed."""
        self.pauses = Backoff(options)

    def want(self, now_ms: int) -> None:
        self.is_wanted = True
        self.not_before_ms = now_ms
        self.pauses.reset()


class OrderedPump(Pump):
    def __init__(
        self,
        paths: Many[str],
        options: SyphonOptions,
        now_ms: int,
        chronicle: Chronicle = NOTHING_TOLD,
        witness: Witness | None = None,
    ) -> None:
        super().__init__(paths, options, now_ms, chronicle)
        self._witness = witness
        self._sequences = [Sequence(0) for _ in paths]
        self._vigils = [Vigil(options) for _ in paths]
        self._leaving: list[dict[int, Came]] = [{} for _ in paths]
        """Letters that were refused, until their queue has let them go."""

    # --- backlog queues ---

    def add_queue(self, path: str, *, is_extra: bool) -> BacklogQueue:
        self._sequences.append(Sequence(0))
        self._vigils.append(Vigil(self.options))
        self._leaving.append({})
        return super().add_queue(path, is_extra=is_extra)

    def queue_attached(self, index: int, now_ms: int) -> None:
        super().queue_attached(index, now_ms)
        self._begin_anew(index)
        self._vigils[index].want(now_ms)

    def queue_lost(self, index: int) -> None:
        super().queue_lost(index)
        self._begin_anew(index)

    def _begin_anew(self, index: int) -> None:
        self._sequences[index] = Sequence(self._sequences[index].era + 1)
        self._vigils[index].look = None
        self._leaving[index].clear()

    def arrived(self, index: int, transfers: Many[TransferArrived], now_ms: int) -> None:
        self._vigils[index].want(now_ms)
        super().arrived(index, transfers, now_ms)

    def _line_up(self, held: Held, raw: bytes, since_ms: int | None, now_ms: int) -> None:
        aliases, sequence = held.aliases, self._sequences[held.lot.queue.index]
        held.place = Place(key_of(aliases.path, aliases.session_id), _sequence_in(raw), mark_of(raw), since_ms)
        self._check_place(held)
        if sequence.is_repeat(held):
            self._drop_stale(held)
        self._enter(held, sequence.enter(held), now_ms)

    def _check_place(self, held: Held) -> None:
        """Stop before a letter whose order nobody knows: everything goes back, and somebody has to decide."""
        if self.options.order_over is None or not self.pace.wants(held.aliases.path, held.place.since_ms):
            return
        path = held.lot.queue.path
        aliases, queue = held.aliases, int(path.rpartition("/")[2])
        problem = order_problem(queue, self.options.order_over, aliases.path, aliases.session_id, held.place.sequence)
        if problem is not None:
            self.pause()
            self._say_once("order_unknown", path, problem)

    def _turn_away(self, stranger: Held, raw: bytes, text: str, now_ms: int) -> None:
        self._sequences[stranger.lot.queue.index].skip(_sequence_in(raw))
        super()._turn_away(stranger, raw, text, now_ms)

    def _enter(self, held: Held, entry: Entry, now_ms: int) -> None:
        if entry is Entry.GO:
            super()._line_up(held, b"", held.place.since_ms, now_ms)
        elif entry is Entry.ASIDE:
            self._set_aside(held, now_ms)
        elif entry is Entry.EARLY:
            super()._set_aside(held, now_ms)

    def _drop_stale(self, held: Held) -> None:
        """The same letter under a lock that has ended: forget it for the new one."""
        destination = self.destinations.get(held.aliases.path)
        if isinstance(destination, OrderedDestination):
            stale = destination.line.take_one(line_key(held), held.place.sequence)
            if stale is not None:
                stale.lot.queue.give_back([stale], self._effects)

    def _set_aside(self, held: Held, now_ms: int) -> None:
        sequence = self._sequences[held.lot.queue.index]
        sequence.block(held.place.key)
        destination = self.destinations.get(held.aliases.path)
        if destination is not None and destination.is_resting(now_ms):
            sequence.stopped.add(held.aliases.path)
        super()._set_aside(held, now_ms)

    def _end_sweep(self, queue: BacklogQueue, now_ms: int) -> None:
        self._sequences[queue.index].given_back([held for held in queue.parked if not held.lot.is_lost])
        super()._end_sweep(queue, now_ms)

    def _tick_queue(self, queue: BacklogQueue, now_ms: int) -> None:
        super()._tick_queue(queue, now_ms)
        self._keep_vigil(queue, now_ms)
        if queue.parked and self._may_any_go(self._sequences[queue.index].stopped, now_ms):
            # Nothing of their keys goes before all of it came again, however many letters still come.
            self._end_sweep(queue, now_ms)
            queue.rest_until_ms = now_ms

    def _keep_vigil(self, queue: BacklogQueue, now_ms: int) -> None:
        """Of letters that were lost on their way into the queue nobody hears; a look at the empty queue tells."""
        vigil = self._vigils[queue.index]
        is_due = not vigil.is_wanted and now_ms - vigil.asked_ms >= VIGIL_MS and not queue.unsettled
        if self._witness is not None and is_due:
            vigil.asked_ms = now_ms
            if self._witness.waits_for(queue.index):
                vigil.want(now_ms)

    def _may_any_go(self, paths: set[str], now_ms: int) -> bool:
        """Whether one of these destinations has rested long enough."""
        found = [self.destinations[path] for path in paths if path in self.destinations]
        return any(each.state is State.RESTING and not each.is_resting(now_ms) for each in found)

    # --- looks ---

    def looked(self, index: int, era: int, asked: int, found: Many[int], seen_to: int | None, now_ms: int) -> None:
        """A queue holds these letters, locked or not, from `asked` up to `seen_to`; None: to its end."""
        sequence = self._sequences[index]
        if era != sequence.era:
            return
        sequence.is_looking = False
        self._end_vigil(index, is_empty=asked == 1 and not found and seen_to is None, now_ms=now_ms)
        proven, hidden = sequence.looked(asked, found, seen_to)
        for held in proven:
            self._enter(held, sequence.judge(held), now_ms)
        self._park(hidden, now_ms)

    def look_failed(self, index: int, era: int, now_ms: int) -> None:
        """Nobody could say what a queue holds."""
        sequence = self._sequences[index]
        if era == sequence.era:
            sequence.is_looking = False
            self._end_vigil(index, is_empty=False, now_ms=now_ms)
            self._park(sequence.look_failed(), now_ms)

    def _end_vigil(self, index: int, *, is_empty: bool, now_ms: int) -> None:
        vigil = self._vigils[index]
        look, vigil.look = vigil.look, None
        if look is None or self._witness is None:
            return
        if is_empty:
            vigil.is_wanted = False
            self._witness.seen_empty(index, look)
        else:
            vigil.not_before_ms = now_ms + vigil.pauses.next_ms()

    def _look(self, queue: BacklogQueue, now_ms: int) -> None:
        sequence = self._sequences[queue.index]
        if sequence.is_looking or not queue.is_attached:
            return
        wanted = sequence.wanted_look()
        if wanted is None and self._is_vigil_due(queue, now_ms) and self._witness is not None:
            self._vigils[queue.index].look = self._witness.look_begins(queue.index)
            wanted = (1, 1)
        if wanted is not None:
            sequence.is_looking = True
            self._effects.append(Look(queue.index, sequence.era, *wanted))

    def _is_vigil_due(self, queue: BacklogQueue, now_ms: int) -> bool:
        vigil = self._vigils[queue.index]
        is_new = not vigil.pauses.failures and not self._sequences[queue.index].known_to
        is_still = is_new or now_ms - queue.arrived_ms >= QUIET_MS
        return vigil.is_wanted and not queue.unsettled and is_still and now_ms >= vigil.not_before_ms

    # --- home ---

    def _make_destination(self, path: str) -> Destination:
        return OrderedDestination(path, self.options)

    def _send(self, destination: Destination, letters: list[Held], now_ms: int) -> int:
        assert isinstance(destination, OrderedDestination)
        able, stuck = _able(letters, now_ms)
        for key in {line_key(held) for held in stuck}:
            stuck += destination.line.take_key(key)
        self._park(stuck, now_ms)
        count = super()._send(destination, able, now_ms)
        going = next(reversed(destination.in_flight.values())).letters if count else []
        destination.line.sent(letters, going)
        return count

    def answered(self, path: str, numbers: Many[int], outcome: Outcome | None, now_ms: int) -> None:
        destination = self.destinations.get(path)
        if isinstance(destination, OrderedDestination):
            found = [destination.in_flight.get(number) for number in numbers]
            self._ended(destination, [batch for batch in found if batch is not None])
        super().answered(path, numbers, outcome, now_ms)

    def destination_failed(self, path: str, failure: Failure, now_ms: int) -> None:
        destination = self.destinations.get(path)
        if isinstance(destination, OrderedDestination):
            self._ended(destination, list(destination.in_flight.values()))
        super().destination_failed(path, failure, now_ms)

    def _ended(self, destination: OrderedDestination, batches: list[Batch]) -> None:
        for batch in batches:
            destination.line.ended(batch.letters)

    def _suspect(self, destination: Destination, letters: list[Held]) -> None:
        assert isinstance(destination, OrderedDestination)
        destination.line.put_back([held for held in letters if not held.lot.is_lost])

    def _stored(self, destination: Destination, batch: Batch) -> None:
        super()._stored(destination, batch)
        if self._witness is None:
            return
        by_queue: dict[int, list[Came]] = {}
        for held in batch.letters:
            by_queue.setdefault(held.lot.queue.index, []).append(_came(held))
        for index, letters in by_queue.items():
            self._witness.came(index, letters)

    def _refuse(self, held: Held, reason: str, text: str, now_ms: int) -> None:
        is_stranger = not held.aliases.path
        if self._witness is not None and not is_stranger and not held.lot.is_lost:
            self._leaving[held.lot.queue.index][held.number] = _came(held)
        super()._refuse(held, reason, text, now_ms)

    def _left(self, index: int, numbers: list[int]) -> None:
        leaving = self._leaving[index]
        gone = [leaving.pop(number) for number in numbers if number in leaving] if leaving else []
        if gone and self._witness is not None:
            self._witness.came(index, gone)

    # --- time ---

    def take_effects(self, now_ms: int) -> list[Effect]:
        for queue in self.queues:
            self._look(queue, now_ms)
        return super().take_effects(now_ms)

    def next_ms(self, now_ms: int) -> int:
        at_ms = super().next_ms(now_ms)
        if self._witness is None:
            return at_ms
        at_ms = min(at_ms, now_ms + VIGIL_MS)
        for queue in self.queues:
            vigil = self._vigils[queue.index]
            if vigil.is_wanted and vigil.look is None and queue.is_attached:
                at_ms = min(at_ms, max(vigil.not_before_ms, queue.arrived_ms + QUIET_MS, now_ms + 1))
        return at_ms

    def _give_all_back(self, now_ms: int) -> None:
        for sequence in self._sequences:
            self._park(sequence.look_failed(), now_ms)
        super()._give_all_back(now_ms)


def _able(letters: list[Held], now_ms: int) -> tuple[list[Held], list[Held]]:
    """Letters that may go, and those that may not because their lock ended, or that of one before them."""
    able: list[Held] = []
    stuck: list[Held] = []
    keys: set[LineKey] = set()
    for held in letters:
        key = line_key(held)
        if key in keys or held.lot.is_lost or held.lot.ends_ms <= now_ms:
            keys.add(key)
            stuck.append(held)
        else:
            able.append(held)
    return able, stuck


def _came(held: Held) -> Came:
    return Came(held.aliases.path, held.aliases.session_id, held.place.sequence, held.place.mark)


def _sequence_in(raw: bytes) -> int:
    try:
        return sequence_of(raw)
    except DecodeError:
        return 0  # no queue leaves it out; then there is nothing to go by
