"""A simulated namespace with entities whose promises the plain simulation does not ask about.

Schedules of topics, states of sessions, idle entities and partitions, all at once in the shipping machine and gate, on
a disk that is slow, fails and loses power. Each concern keeps its own account and says when a promise is broken.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from sim.clock import VirtualClock
from sim.concern import Asking, Concern, Place
from sim.disk import Disk
from sim.idle_check import check_counts
from sim.idleness import Idleness
from sim.invariants import Violation, check
from sim.partitions import Partitions
from sim.session_states import SessionStates
from sim.surroundings import Surroundings, draw_work
from sim.topic_schedules import TopicSchedules
from sim.world import Parts
from twinbus.broker.core.commands import Command
from twinbus.broker.core.namespace_machine import NamespaceMachine
from twinbus.broker.core.replies import Notice, Reply
from twinbus.broker.entities.loaded_head import WindowLimits
from twinbus.broker.operations import ReceiverLost, Refused
from twinbus.broker.store.api import Report, StoredNamespace
from twinbus.errors import StoreError, StoreUnavailable

CONCERNS: tuple[type[Concern], ...] = (TopicSchedules, SessionStates, Idleness, Partitions)
ROUNDS_TO_REST_MAX = 2_000
WAKES_MAX = 500


class KindWorld(Surroundings):
    def __init__(self, seed: int, parts: Parts | None = None) -> None:
        self._random = Random(seed)
        self._parts = parts or Parts()
        self._limits = WindowLimits(rows_max=self._random.choice((1, 3, 50)))
        self._work_per_step = draw_work(self._random)
        self.clock = VirtualClock()
        self.disk = Disk()
        self.seen: Counter[str] = Counter()
        self.trace: deque[tuple[int, object]] = deque(maxlen=200)
        self._asked: dict[int, tuple[Concern, Asking, Any]] = {}
        self._has_failed = False
        place = Place(self._random, self.clock, self.disk, self.seen)
        place.ask, place.order = self._ask, self._do
        self._numbers = place.numbers
        self.concerns = [kind(place) for kind in CONCERNS]
        self._boot()

    def _boot(self) -> None:
        self.store = self._parts.store(self.disk)
        self.gate = self._parts.gate(self.store, self._build, self._take, self._store_failed)
        self.store.start(self._report)
        self._has_failed = False

    def _build(self, stored: StoredNamespace) -> NamespaceMachine:
        return self._parts.machine(
            stored,
            new_token=lambda: self._random.randbytes(16),
            window_limits=self._limits,
            work_per_step=self._work_per_step,
        )

    # --- around the gate ---

    def _ask(self, concern: Concern, command: Asking, note: Any) -> None:
        number = next(self._numbers)
        self._asked[number] = (concern, command, note)
        self.trace.append((self.clock(), command))
        asked: Command[Reply] = command
        self.gate.ask(asked, self.clock(), partial(self._answered, number))

    def _do(self, command: Command[object]) -> None:
        self.trace.append((self.clock(), command))
        self.gate.do(command, self.clock())

    def _report(self, report: Report) -> None:
        self.trace.append((self.clock(), report))
        self.gate.report(report, self.clock())

    def _take(self, notice: Notice) -> None:
        self.trace.append((self.clock(), notice))
        if isinstance(notice, ReceiverLost):
            for concern in self.concerns:
                concern.dismissed(notice)

    def _answered(self, number: int, reply: Reply) -> None:
        self.trace.append((self.clock(), reply))
        check(number in self._asked, f"an answer to nothing, or a second one: {reply!r:.200}")
        concern, command, note = self._asked.pop(number)
        if isinstance(reply, Refused):
            self.seen[f"refused: {type(reply.error).__name__}"] += 1
            if isinstance(reply.error, StoreUnavailable):
                concern.lost(command, note)
                return
        concern.answered(command, note, reply)

    def _store_failed(self, reason: str) -> None:
        self.seen["store failed"] += 1
        check(not self._asked, f"nobody answered when the store failed: {self._asked!r:.300}")
        self._end_life()
        self._has_failed = True

    def _end_life(self) -> None:
        for concern, command, note in self._asked.values():
            concern.lost(command, note)
        self._asked.clear()
        for concern in self.concerns:
            concern.life_ended()

    # --- what happens ---

    def run(self, steps: int) -> None:
        """Make the entities, let things happen, and see that every promise was kept."""
        for concern in self.concerns:
            concern.begin()
        self.come_to_rest()
        usual: dict[Callable[[], None], float] = {
            self.commit_some: 20,
            self.report_commits: 20,
            self.read_some: 20,
            self.report_rows: 20,
            self.fail_commit: self._random.choice((0, 0.5)),
            self.recover: 3,
            self.crash: self._random.choice((0, 0.7)),
            self.tick: 12,
            self.let_time_pass: 6,
            self.come_to_rest: 1,
        }
        for concern in self.concerns:
            usual |= concern.actions()
        actions, weights = list(usual), list(usual.values())
        for _ in range(steps):
            self._random.choices(actions, weights)[0]()
        self.finish()

    # --- the disk and time ---

    def fail_commit(self) -> None:
        if self.store.waiting:
            self.trace.append((self.clock(), "a commit fails"))
            self.store.fail_commit()

    def recover(self) -> None:
        if self._has_failed:
            try:
                self.gate.recover()
            except StoreError:
                return
            self._has_failed = False

    def crash(self) -> None:
        """The power goes: some of what was submitted is durable, the rest is gone."""
        self.trace.append((self.clock(), "crash"))
        self.seen["crashes"] += 1
        self.commit_some()
        self._end_life()
        self._boot()

    def let_time_pass(self) -> None:
        self.clock.advance(self._random.choice((1, 10, 300, 1_500, 6_000, 70_000)))

    # --- rest ---

    def come_to_rest(self) -> None:
        """Let the disk finish everything, and look around."""
        for _ in range(ROUNDS_TO_REST_MAX):
            if self._is_at_rest():
                self._look()
                return
            self._one_round()
        raise Violation("the namespace does not come to rest")

    def _look(self) -> None:
        check(not self._asked, f"nobody answers: {self._asked!r:.300}")
        for entity in self.gate.machine.registry.all():
            check_counts(entity, self.disk.rows_of(entity.entity_id))
        for concern in self.concerns:
            concern.look(self.gate.machine)

    def finish(self) -> None:
        """Faults stop, everybody leaves, and time does what it can."""
        self.come_to_rest()
        for concern in self.concerns:
            concern.leave()
        for _ in range(WAKES_MAX):
            wake_ms = self.gate.next_wake_ms()
            if wake_ms is None:
                return
            self.clock.advance_to(wake_ms)
            self.come_to_rest()
        raise Violation("time never stops to change something")
