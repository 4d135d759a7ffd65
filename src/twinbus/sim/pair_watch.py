"""What a simulated pair is held against between calls: backlog queues, lines of held sends, all entities at once."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from twinbus.pairing.entity import Entity
from twinbus.pairing.pair import Pair
from twinbus.sim.invariants import Violation, check
from twinbus.sim.pair_failover import LAG_S, EntityWatch
from twinbus.sim.pair_loop import VirtualLoop

if TYPE_CHECKING:
    from twinbus.sim.pair_call import Call


class QueueWatch:
    """Which backlog queues may be used."""

    def __init__(self, probation_s: float) -> None:
        self._probation_s = probation_s
        self._queues: frozenset[int] = frozenset()
        self._lost_until: dict[int, float] = {}

    def use(self, queues: Iterable[int], lost: Iterable[int], at: float) -> None:
        """So it was found when somebody looked."""
        self._queues = frozenset(queues)
        self._lost_until = dict.fromkeys(lost, at + self._probation_s)

    def check_usable(self, queue: int, at: float) -> None:
        check(queue in self._queues, f"backlog queue {queue} was used, which is not one of this pair")
        lost_until = self._lost_until.get(queue, at)
        check(at >= lost_until, f"backlog queue {queue} was used {lost_until - at:.3f} s before its probation is over")

    def usable(self, at: float) -> set[int]:
        return {queue for queue in self._queues if at >= self._lost_until.get(queue, at)}

    def failed(self, queue: int, at: float) -> None:
        self._lost_until[queue] = at + self._probation_s

    def took(self, queue: int) -> None:
        self._lost_until.pop(queue, None)

    @property
    def count(self) -> int:
        return len(self._queues)


class LineWatch:
    """The sends that are held for one entity, in the order in which they came."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._calls: list[Call] = []
        self._loop = loop
        self._head_since = 0.0

    def __len__(self) -> int:
        return len(self._calls)

    def join(self, call: Call) -> None:
        self._calls.append(call)
        if len(self._calls) == 1:
            self._head_since = self._loop.now
        rules = call.rules
        size = sum(each.parcel.size_bytes for each in self._calls)
        check(len(self._calls) <= rules.hold_count_max, f"{len(self._calls)} sends are held")
        check(size <= rules.hold_bytes_max, f"sends with {size} bytes are held")

    def leave(self, call: Call) -> None:
        if call in self._calls:
            if call is self._calls[0]:
                self._head_since = self._loop.now
            self._calls.remove(call)

    def check_turn(self, call: Call) -> None:
        """A held send does something: only the first may."""
        check(not self._calls or self._calls[0] is call, f"{call} overtakes {self._calls[:1]}")

    def check_head(self, watch: EntityWatch) -> None:
        """Once it is known where sends go, the first in line does not wait."""
        since = max(self._head_since, watch.changed_at)
        if self._calls and self._calls[0].is_waiting and not watch.is_suspect and self._loop.due > since + LAG_S:
            raise Violation(f"{self._calls[0]} waits though it is its turn")

    def is_full_for(self, call: Call) -> bool:
        rules = call.rules
        size = sum(each.parcel.size_bytes for each in self._calls) + call.parcel.size_bytes
        return len(self._calls) >= rules.hold_count_max or size > rules.hold_bytes_max


class Watch:
    """Everything together."""

    def __init__(self, pair: Pair, loop: VirtualLoop, seen: Counter[str]) -> None:
        self.pair, self.loop, self.seen = pair, loop, seen
        self.rules = pair.rules
        self.queues = QueueWatch(pair.rules.probation_s)
        self.closed_at: float | None = None
        """On the clock that counts only the time in which something can happen; None: it is open."""
        self.trace: deque[tuple[float, object, object]] = deque(maxlen=300)
        """When what happened to whom."""
        self._entities: dict[Entity, EntityWatch] = {}
        self._lines: dict[Entity, LineWatch] = {}

    def entity(self, entity: Entity) -> EntityWatch:
        if entity not in self._entities:
            self._entities[entity] = EntityWatch(entity, self.rules, self.loop, self.seen)
            self._lines[entity] = LineWatch(self.loop)
        return self._entities[entity]

    @property
    def entities(self) -> Iterable[EntityWatch]:
        return self._entities.values()

    def note(self, who: object, what: object) -> None:
        self.trace.append((self.loop.now, who, what))

    def line(self, entity: Entity) -> LineWatch:
        self.entity(entity)
        return self._lines[entity]

    def check_others(self, entity: Entity | None) -> None:
        """Whatever happened to one entity says nothing of another."""
        for watch in self._entities.values():
            if watch.entity is not entity:
                watch.unchanged("something happened to another entity")

    def check_duties(self) -> None:
        if self.closed_at is None:
            for watch in self._entities.values():
                watch.check_duties()
                self._lines[watch.entity].check_head(watch)
