"""Fences beside a model: whatever overlaps, is in doubt, repeats or is taken away, nothing passes what is before it."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from seeds import examples

from twinbus.pairing.backlog.ordering import Crossing, DepartedMessage, Fences, key_of

QUEUES = (0,)
KEYS = [key_of("Orders", "a"), key_of("other", None)]
DEPART, STORE, HEAR, MOVE, REPEAT, LOOK, LOOKED, STEAL = range(8)
ACTIONS = [DEPART, DEPART, STORE, STORE, HEAR, HEAR, HEAR, MOVE, MOVE, REPEAT, LOOK, LOOKED, STEAL]
steps = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.integers(0, 3), st.sampled_from([False, False, True])),
    min_size=20,
    max_size=100,
)


@dataclass(eq=False)
class Batch:
    crossing: Crossing
    marks: list[bytes]
    numbers: list[int]
    """In the queue, once it has taken them."""


class World:
    """Backlog queues as lists; the sender hears of a batch before or after it is moved, or never.

    Either ids are used again or sends are in doubt: that order is kept through both at once is not promised.
    """

    def __init__(self, *, uses_ids_again: bool) -> None:
        self.uses_ids_again = uses_ids_again
        self.fences = Fences()
        self.fences.use(QUEUES)
        self.queues: dict[int, list[DepartedMessage]] = {queue: [] for queue in QUEUES}
        self.under_way: list[Batch] = []
        self.moved: list[tuple[int, DepartedMessage]] = []
        self.accepted: set[int] = set()
        """Numbers of messages whose sender heard that they were taken."""
        self.looks: list[tuple[int, int, bool]] = []
        self.number = 0

    def depart(self, pick: int, *, uses_old_id: bool) -> None:
        key = KEYS[pick % len(KEYS)]
        marks = []
        for _ in range(1 + pick // 2):
            self.number += 1
            marks.append(b"same" if uses_old_id and self.uses_ids_again else b"%d" % self.number)
        self.under_way.append(Batch(self.fences.depart(key, marks), marks, []))

    def store(self, pick: int) -> None:
        """The queue takes a batch, and nobody has heard of it yet."""
        batch = self._picked([each for each in self.under_way if not each.numbers], pick)
        if batch is not None:
            for mark in batch.marks:
                self.number += 1
                batch.numbers.append(self.number)
                key = batch.crossing.key
                self.queues[batch.crossing.queue].append(DepartedMessage(key.path, key.session_id, self.number, mark))

    def hear(self, pick: int, *, in_doubt: bool) -> None:
        batch = self._picked(self.under_way, pick)
        if batch is None:
            return
        self.under_way.remove(batch)
        in_doubt = in_doubt and not self.uses_ids_again
        if batch.numbers and not in_doubt:
            self.fences.arrived(batch.crossing)
            self.accepted.update(batch.numbers)
        else:
            self.fences.failed(batch.crossing, in_doubt=in_doubt or bool(batch.numbers))

    def move(self, pick: int) -> None:
        queue = pick % len(QUEUES)
        if self.queues[queue]:
            came = self.queues[queue].pop(0)
            self.moved.append((queue, came))
            self.fences.came(queue, [came])

    def repeat(self, pick: int) -> None:
        if self.moved:
            queue, came = self.moved[pick % len(self.moved)]
            self.fences.came(queue, [came])

    def look(self, pick: int) -> None:
        queue = pick % len(QUEUES)
        began = self.fences.time
        self.looks.append((queue, began, not self.queues[queue]))

    def looked(self, pick: int) -> None:
        if self.looks:
            queue, began, is_empty = self.looks.pop(pick % len(self.looks))
            if is_empty:
                self.fences.seen_empty(queue, began)

    def steal(self, pick: int) -> None:
        """Somebody else takes a message."""
        queue = self.queues[pick % len(QUEUES)]
        if queue:
            queue.pop()

    def _picked(self, batches: list[Batch], pick: int) -> Batch | None:
        return batches[pick % len(batches)] if batches else None

    def check(self) -> None:
        for messages in self.queues.values():
            for came in messages:
                if came.sequence in self.accepted:
                    key = key_of(came.path, came.session_id)
                    assert self.fences.stands_before(key)
                    assert not self.fences.is_clear(came.path)


@settings(max_examples=examples(150), deadline=None)
@given(steps, st.booleans())
def test_nothing_passes_what_was_taken_before_it(script: list[tuple[int, int, bool]], uses_ids_again: bool) -> None:
    world = World(uses_ids_again=uses_ids_again)
    for queue in QUEUES:
        world.fences.seen_empty(queue, world.fences.time)
    for action, pick, flag in script:
        _do(world, action, pick, flag=flag)
        world.check()


def test_a_copy_from_before_a_fence_does_not_count_as_one_of_those_behind_it() -> None:
    world = World(uses_ids_again=True)
    world.fences.seen_empty(0, world.fences.time)
    world.depart(0, uses_old_id=False)
    world.store(0)
    world.hear(0, in_doubt=False)
    world.move(0)
    assert not world.fences.stands_before(KEYS[0])
    world.depart(2, uses_old_id=True)  # two messages with one id
    world.store(0)
    world.hear(0, in_doubt=False)
    world.repeat(0)
    world.move(0)
    world.check()
    world.move(0)
    assert not world.fences.stands_before(KEYS[0])


@settings(max_examples=examples(100), deadline=None)
@given(steps)
def test_when_all_is_home_every_fence_falls(script: list[tuple[int, int, bool]]) -> None:
    world = World(uses_ids_again=True)
    for action, pick, flag in script:
        _do(world, action, pick, flag=flag)
    while world.under_way:
        world.hear(0, in_doubt=True)
    for queue in QUEUES:
        while world.queues[queue]:
            world.move(queue)
        world.fences.seen_empty(queue, world.fences.time)
    assert world.fences.count == 0
    assert world.fences.is_clear("orders")
    assert world.fences.is_clear("other")


def _do(world: World, action: int, pick: int, *, flag: bool) -> None:
    if action == DEPART:
        world.depart(pick, uses_old_id=flag)
    elif action == STORE:
        world.store(pick)
    elif action == HEAR:
        world.hear(pick, in_doubt=flag)
    elif action == MOVE:
        world.move(pick)
    elif action == REPEAT:
        world.repeat(pick)
    elif action == LOOK:
        world.look(pick)
    elif action == LOOKED:
        world.looked(pick)
    elif action == STEAL and flag:
        world.steal(pick)
