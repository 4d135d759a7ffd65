"""The rotation beside a dict that says until when each queue is left alone."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from seeds import examples

from twinbus.pairing.backlog.rotation import Rotation
from twinbus.pairing.sending.failure import Failure, FailureKind

FULL = Failure(FailureKind.FULL, "5 GB are used")
PROBATION_S = 60.0
QUEUES = st.integers(0, 4)
CHANCES = st.sampled_from([0.0, 0.3, 0.5, 0.99, 1.0])


class RotationBesideModel(RuleBasedStateMachine):
    @initialize(count=st.integers(0, 5))
    def begin(self, count: int) -> None:
        self.rotation = Rotation(range(count), PROBATION_S)
        self.queues = set(range(count))
        self.left_alone_until: dict[int, float] = {}
        self.at = 0.0

    def usable(self) -> set[int]:
        return {queue for queue in self.queues if self.at >= self.left_alone_until.get(queue, 0)}

    @rule(seconds=st.sampled_from([1.0, 30.0, 59.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.at += seconds

    @rule(queue=QUEUES)
    def a_queue_fails(self, queue: int) -> None:
        assert self.rotation.lose(queue, self.at, FULL) == (queue in self.usable())
        if queue in self.queues:
            self.left_alone_until[queue] = self.at + PROBATION_S

    @rule(queue=QUEUES)
    def a_queue_takes_something(self, queue: int) -> None:
        assert self.rotation.confirm(queue) == (queue in self.left_alone_until)
        self.left_alone_until.pop(queue, None)

    @rule(queues=st.sets(QUEUES))
    def queues_are_looked_for_again(self, queues: set[int]) -> None:
        self.rotation.use(sorted(queues))
        self.queues = queues
        self.left_alone_until = {key: at for key, at in self.left_alone_until.items() if key in queues}

    @rule(current=st.none() | QUEUES, chance=CHANCES, avoid=st.none() | QUEUES)
    def somebody_picks_a_queue(self, current: int | None, chance: float, avoid: int | None) -> None:
        picked = self.rotation.pick(current, self.at, chance, avoid=avoid)
        choice = self.usable() - {avoid}
        assert (picked is None) == (not choice)
        if current in choice:
            assert picked == current, "a sender keeps its choice"
        elif picked is not None:
            assert picked in choice

    @rule()
    def chance_reaches_every_queue(self) -> None:
        reached = {self.rotation.pick(None, self.at, number / 20) for number in range(20)}
        usable: set[int | None] = {*self.usable()}
        assert reached == (usable or {None})

    @invariant()
    def what_is_available_is_what_may_be_used(self) -> None:
        assert set(self.rotation.available(self.at)) == self.usable()

    @invariant()
    def there_is_always_a_reason_to_give(self) -> None:
        assert self.rotation.why_none()


TestRotationBesideModel = RotationBesideModel.TestCase
TestRotationBesideModel.settings = settings(max_examples=examples(100), stateful_step_count=30, deadline=None)
