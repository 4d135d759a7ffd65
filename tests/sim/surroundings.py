"""What every simulated namespace lives in: a disk that takes its time, and a clock."""

from __future__ import annotations

from abc import ABC, abstractmethod
from random import Random

from sim.clock import VirtualClock
from sim.disk import SimulatedStore
from twinbus.broker.core.commands import Command, Tick
from twinbus.broker.core.commit_gate import CommitGate
from twinbus.broker.core.replies import WORK_PER_STEP


def draw_work(random: Random) -> int:
    """How much is done in one step: as in a server, or so little that most of it is left for later."""
    return random.choice((1, 2, 7, WORK_PER_STEP, WORK_PER_STEP, WORK_PER_STEP))


class Surroundings(ABC):
    """Steps of a disk and of time, at random: each may come at any moment, and none has to."""

    store: SimulatedStore
    gate: CommitGate
    clock: VirtualClock
    _random: Random

    @abstractmethod
    def recover(self) -> None:
        """Build the namespace anew if its store has failed and works again."""

    @abstractmethod
    def _do(self, command: Command[object]) -> None:
        """Give the namespace a command."""

    # --- the disk ---

    def commit_some(self) -> None:
        self.store.commit(self._random.randint(0, len(self.store.waiting)))

    def report_commits(self) -> None:
        if self.store.reports or self.store.has_outdated:
            self.store.deliver_report()

    def read_some(self) -> None:
        if self.store.asked:
            self.store.read(self._random.randrange(len(self.store.asked)))

    def report_rows(self) -> None:
        if self.store.answers or self.store.has_outdated:
            self.store.deliver_answer(self._random.randrange(len(self.store.answers) or 1))

    # --- time ---

    def tick(self) -> None:
        if self._is_awake():
            self._do(Tick())

    def _is_awake(self) -> bool:
        """Whether there is something that the clock should make it do."""
        wake_ms = self.gate.next_wake_ms()
        return wake_ms is not None and wake_ms <= self.clock()

    # --- rest ---

    def _is_at_rest(self) -> bool:
        return self.store.is_idle and self.gate.failure is None and not self._is_awake()

    def _one_round(self) -> None:
        """The disk finishes what it has, in any order."""
        store = self.store
        store.commit(len(store.waiting))
        while store.asked:
            store.read(0)
        while store.answers or store.reports or store.has_outdated:
            if self._random.random() < 0.5:
                self.report_commits()
            else:
                self.report_rows()
        self.recover()
        self.tick()
