"""One simulated namespace: the shipping machine and gate, on a simulated disk, among simulated applications.

Everything that happens is drawn from one seed: what the applications do, when the disk writes, reads and
reports, what fails, when the power goes, how time passes. The same seed gives the same world.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from sim.accounts import Accounts, Question
from sim.answers import Answers
from sim.balance import Balance
from sim.clients import Clients
from sim.clock import VirtualClock
from sim.disk import Disk, SimulatedStore
from sim.idle_check import check_rest
from sim.invariants import Invariants, Violation, check
from sim.ledger_check import LedgerCheck
from sim.surroundings import Surroundings, draw_work
from twinbus.broker.core.commands import Command
from twinbus.broker.core.commit_gate import CommitGate
from twinbus.broker.core.namespace_machine import NamespaceMachine
from twinbus.broker.core.replies import Forwarded, Notice, Reply
from twinbus.broker.entities.loaded_head import WindowLimits
from twinbus.broker.operations import TransactionTimedOut
from twinbus.broker.store.api import DiskSpaceChanged, Report, RowsRead, StoredNamespace
from twinbus.errors import StoreError

ROUNDS_TO_REST_MAX = 2_000
LAST_ROUNDS_MAX = 200


@dataclass(frozen=True, slots=True)
class Parts:
    """What the world is built of; tests put in a part with a bug to see it found."""

    store: type[SimulatedStore] = SimulatedStore
    gate: type[CommitGate] = CommitGate
    machine: type[NamespaceMachine] = NamespaceMachine


class World(Surroundings):
    def __init__(self, seed: int, parts: Parts | None = None) -> None:
        self._random = Random(seed)
        self._parts = parts or Parts()
        self._limits = self._draw_limits()
        self._work_per_step = draw_work(self._random)
        self.clock = VirtualClock()
        self.disk = Disk()
        self.accounts = Accounts()
        self.invariants = Invariants(self.accounts, self.clock, self._limits.locked_bytes_max)
        self.trace: deque[tuple[int, object]] = deque(maxlen=200)
        self._room_chance = Random(f"room {seed}")
        self._room_changes = self._room_chance.choice((0, 0, 0.01, 0.05))
        self._full_disk: str | None = None
        self._answers = Answers(
            self.accounts,
            self.invariants,
            self.clock,
            lambda: self.gate.failure is not None,
            lambda: self.gate.full_disk is not None,
        )
        self._balance = Balance(self.accounts, self.invariants, self.disk)
        self._clients = Clients(self._random, self.accounts, self.clock, self._ask, self._do, self._has_line)
        self._actions, self._weights = self._draw_weights()
        self._has_failed = False
        self.ledger_check = LedgerCheck(self.invariants.seen)
        self._boot()

    def _draw_limits(self) -> WindowLimits:
        return WindowLimits(
            rows_max=self._random.choice((1, 3, 3, 50)),
            bytes_max=self._random.choice((100, 1_000, 1_000_000)),
            locked_bytes_max=self._random.choice((100, 1_000, 1_000_000)),
            locks_bytes_max=self._random.choice((3_000, 1_000_000, 1_000_000)),
        )

    def _boot(self) -> None:
        self.store = self._parts.store(self.disk)
        on_events = self.ledger_check.recorder.record
        self.gate = self._parts.gate(self.store, self._build, self._take, self._store_failed, on_events=on_events)
        self.store.start(self._report)
        self.ledger_check.begin(self.gate.machine)
        self._has_failed = False
        if self._full_disk is not None:
            self._report(DiskSpaceChanged(self._full_disk))

    def _build(self, stored: StoredNamespace) -> NamespaceMachine:
        return self._parts.machine(
            stored,
            new_token=self._new_token,
            window_limits=self._limits,
            records_events=True,
            work_per_step=self._work_per_step,
        )

    def _has_line(self) -> bool:
        """Whether something waits in a topic for its turn."""
        return any(topic.pending for topic in self.gate.machine.registry.topics())

    def _new_token(self) -> bytes:
        return self._random.randbytes(16)

    def _draw_weights(self) -> tuple[list[Callable[[], None]], list[float]]:
        """How often what happens; each world has its own mix."""
        clients = self._clients
        usual: dict[Callable[[], None], float] = {
            clients.create_queue: 2,
            clients.delete_queue: 0.3,
            clients.create_subscription: 3,
            clients.send: 25,
            clients.publish: 8,
            clients.send_again: 4,
            clients.cancel: 2,
            clients.open_reader: 6,
            clients.grant: 20,
            clients.pause: 1,
            clients.resume: 2,
            clients.close_reader: 1,
            clients.disconnect: 0.3,
            clients.settle: 25,
            clients.complete: 4,
            clients.renew: 2,
            clients.peek: 3,
            clients.receive_deferred: 8,
            self.commit_some: 20,
            self.report_commits: 20,
            self.read_some: 20,
            self.report_rows: 20,
            self.fail_commit: 0.5,
            self.fail_read: 0.2,
            self.recover: 3,
            self.crash: 0.5,
            self.tick: 12,
            self.let_time_pass: 5,
            self.jump_to_next_wake: 2,
            self.come_to_rest: 1,
        }
        weights = [weight * self._random.choice((0.1, 1, 1, 1, 3)) for weight in usual.values()]
        for fault in (self.fail_commit, self.fail_read, self.crash):
            weights[list(usual).index(fault)] *= self._random.choice((0, 1, 4))
        return list(usual), weights

    def run(self, steps: int) -> None:
        """Let things happen, then let the faults stop and see that all accounts balance."""
        for _ in range(self._random.choice((1, 3))):
            self._clients.create_queue()
        if self._random.random() < 0.4:
            self._clients.create_topic()
        if self._random.random() < 0.8:
            self.come_to_rest()
        for _ in range(steps):
            self._random.choices(self._actions, self._weights)[0]()
            if self._room_chance.random() < self._room_changes:
                self.fill_disk_or_make_room()
        self.finish()

    # --- around the gate ---

    def _ask(self, question: Question, number: int) -> None:
        self.trace.append((self.clock(), question.command))
        self.gate.ask(question.command, self.clock(), partial(self._answered, number))

    def _answered(self, number: int, reply: Reply) -> None:
        self.trace.append((self.clock(), reply))
        self._answers.take(number, reply)

    def _do(self, command: Command[object]) -> None:
        self.trace.append((self.clock(), command))
        self.gate.do(command, self.clock())

    def _report(self, report: Report) -> None:
        self.trace.append((self.clock(), report))
        if isinstance(report, RowsRead):
            of_session = " of a session" if getattr(report.request, "session_id", None) is not None else ""
            self.invariants.seen[f"read: {type(report.request).__name__}{of_session}"] += 1
        self.gate.report(report, self.clock())

    def _take(self, notice: Notice) -> None:
        self.trace.append((self.clock(), notice))
        if not isinstance(notice, Forwarded | TransactionTimedOut):
            self.invariants.take(notice)

    def _store_failed(self, reason: str) -> None:
        self.invariants.seen["store failed"] += 1
        check(not self.accounts.questions, f"nobody answered when the store failed: {self.accounts.questions!r:.300}")
        self.accounts.end_life(self.clock())
        self._has_failed = True

    # --- the disk ---

    def fail_commit(self) -> None:
        if self.store.waiting:
            self.trace.append((self.clock(), "a commit fails"))
            self.store.fail_commit()
            self.store.refused_loads = self._random.choice((0, 0, 2))

    def fill_disk_or_make_room(self) -> None:
        """Nothing new can be stored from now on, or again. What is there can be taken out all the time."""
        self._full_disk = "the simulated disk is full" if self._full_disk is None else None
        self._report(DiskSpaceChanged(self._full_disk))

    def fail_read(self) -> None:
        if self.store.asked:
            self.trace.append((self.clock(), "a read fails"))
            self.store.fail_read(self._random.randrange(len(self.store.asked)))

    def recover(self) -> None:
        if self._has_failed:
            try:
                self.gate.recover()
            except StoreError:
                return
            self._has_failed = False
            self.ledger_check.compare(self.disk)  # what was written is recorded, also where all others were refused
            self.ledger_check.begin(self.gate.machine)
            self.trace.append((self.clock(), "recovered"))
            self._balance.compare(self.clock())

    def crash(self) -> None:
        """The power goes: some of what was submitted is durable, the rest is gone."""
        self.trace.append((self.clock(), "crash"))
        self.invariants.seen["crashes"] += 1
        self.commit_some()
        unseen = [row for _, rows in self.store.unreported for row in rows]
        self._balance.resolve(unseen, self.clock())
        self.accounts.end_life(self.clock())
        self._boot()
        self._balance.compare(self.clock())

    # --- time ---

    def let_time_pass(self) -> None:
        self.clock.advance(self._random.choice((1, 10, 300, 1_500, 6_000)))

    def jump_to_next_wake(self) -> None:
        self.clock.advance_to(self.gate.next_wake_ms() or 0)
        self.tick()

    # --- rest ---

    def come_to_rest(self) -> None:
        """Let the disk finish everything, and look around."""
        self.trace.append((self.clock(), "rest"))
        for _ in range(ROUNDS_TO_REST_MAX):
            if self._is_at_rest():
                self._balance.compare(self.clock())
                self.ledger_check.compare(self.disk)
                check_rest(self.gate.machine, self.accounts, self.disk, self._limits, self.clock())
                return
            self._one_round()
        raise Violation("the namespace does not come to rest")

    def finish(self) -> None:
        """Faults stop. Everybody leaves, locks end, and patient receivers take everything that is left.

        A disk that is full stays so: what is there can be received all the same. Only what is in line in a topic, and
        could not be written as copies, waits for room.
        """
        self.come_to_rest()
        if self._full_disk is not None and self._has_line():
            self.fill_disk_or_make_room()
        self._clients.disconnect()
        for _ in range(LAST_ROUNDS_MAX):
            self.clock.advance_to(self.gate.next_wake_ms() or 0)
            self.come_to_rest()
            if self.gate.next_wake_ms() is None:
                break
        self._clients.open_last_readers()
        for _ in range(LAST_ROUNDS_MAX):
            self._clients.open_last_sessions()
            self.come_to_rest()
            if not any(self.disk.all_rows()):
                return
            self._clients.complete_everything()
            self._clients.receive_all_deferred()
            self.clock.advance_to(self.gate.next_wake_ms() or 0)
        left = [f"{row.message_id} ({row.state.name})" for row in self.disk.all_rows()]
        raise Violation(f"patient receivers did not get everything: {', '.join(left)[:300]} are left")
