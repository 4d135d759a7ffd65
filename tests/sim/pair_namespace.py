"""One namespace of a simulated pair: the shipping machine and gate on a simulated disk, with a plug to pull."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from random import Random
from typing import Any

from sim.disk import SimulatedStore
from sim.pair_archive import Archive
from sim.pair_loop import VirtualLoop
from sim.pair_messages import filler
from twinbus.broker.core.commands import Command, CreateQueue, DeleteEntity, SendMessages, Tick, UpdateQueue
from twinbus.broker.core.commit_gate import CommitGate
from twinbus.broker.core.namespace_machine import NamespaceMachine
from twinbus.broker.core.replies import Notice
from twinbus.broker.entities.settings import QueueSettings, QueueStatus
from twinbus.broker.message import read_arrival
from twinbus.broker.operations import Done, Refused, SenderOpened

Answered = Done | Refused | SenderOpened
Answer = Callable[[Answered], None]


class SimulatedNamespace:
    def __init__(self, name: str, loop: VirtualLoop, random: Random) -> None:
        self.name = name
        self.archive = Archive()
        self.settings: dict[str, QueueSettings] = {}
        """The queues that are meant to be there, as their owner wants them."""
        self.is_up = True
        self.crashes = 0
        self._loop = loop
        self._random = random
        self._commit_s = random.choice((0.0005, 0.005, 0.05))
        self._numbers = count(1)
        self._asked: dict[int, tuple[Answer, Callable[[], None]]] = {}
        self._is_committing = False
        self._boot()

    def _boot(self) -> None:
        self._store = SimulatedStore(self.archive)
        self._gate = CommitGate(self._store, self._build, self._take, self._store_failed)
        self._store.start(lambda report: self._gate.report(report, self._loop.now_ms))

    def _build(self, stored: Any) -> NamespaceMachine:
        return NamespaceMachine(stored, new_token=lambda: self._random.randbytes(16))

    # --- asking ---

    def ask(self, command: Any, answer: Answer, lost: Callable[[], None]) -> None:
        """`answer` gets the reply when it is durable; `lost` is called instead if the process dies before that."""
        number = next(self._numbers)
        self._asked[number] = (answer, lost)
        self._gate.ask(command, self._loop.now_ms, partial(self._answered, number))
        self._commit_soon()

    def _answered(self, number: int, reply: Any) -> None:
        if number in self._asked:
            self._asked.pop(number)[0](reply)

    def _do(self, command: Command[object]) -> None:
        self._gate.do(command, self._loop.now_ms)
        self._commit_soon()

    def _commit_soon(self) -> None:
        if self._store.waiting and not self._is_committing:
            self._is_committing = True
            store = self._store
            self._loop.call_in(self._random.random() * self._commit_s, lambda: self._commit(store))

    def _commit(self, store: SimulatedStore) -> None:
        if store is self._store:  # else its process has died
            self._is_committing = False
            self._write_and_read()

    def _write_and_read(self) -> None:
        store = self._store
        while not store.is_idle:
            store.commit(len(store.waiting))
            while store.asked:
                store.read(0)
            while store.reports or store.has_outdated:
                store.deliver_report()
            while store.answers:
                store.deliver_answer(0)

    def _take(self, notice: Notice) -> None: ...

    # --- trouble ---

    def crash(self) -> None:
        """The power goes: some of what was submitted is durable, the rest is gone, and nobody hears of either."""
        self._store.commit(self._random.randint(0, len(self._store.waiting)))
        self.is_up, self._is_committing = False, False
        self.crashes += 1
        self._store = SimulatedStore(self.archive)
        asked, self._asked = self._asked, {}
        for _, lost in asked.values():
            lost()

    def restart(self) -> None:
        if not self.is_up:
            self.is_up = True
            self._boot()

    def fail_disk(self) -> None:
        """A commit fails: everybody who waits for it is refused, and the namespace starts again from its disk."""
        if self.is_up and self._store.waiting:
            self._store.fail_commit()
            self._store.deliver_report()

    def _store_failed(self, reason: str) -> None:
        self._loop.call_in(self._random.random(), self._recover)

    def _recover(self) -> None:
        if self.is_up and self._gate.failure is not None:
            self._gate.recover()

    # --- what its owner does ---

    def create(self, path: str, settings: QueueSettings | None = None) -> None:
        self.settings[path] = settings or self.settings.get(path) or QueueSettings(max_size_mb=1)
        self._manage(CreateQueue(path, self.settings[path]))

    def delete(self, path: str) -> None:
        self._manage(DeleteEntity(path))

    def set_status(self, path: str, status: QueueStatus) -> None:
        self._change(path, status=status)

    def fill(self, path: str) -> None:
        """Nothing fits into the queue any more."""
        self.enlarge(path)
        self._manage(SendMessages(path, (read_arrival(filler(), lambda: "filler"),)))
        self._change(path, max_size_mb=1)

    def plant(self, path: str, message: bytes) -> None:
        """Somebody beside the pair stores a message, if the queue takes it."""
        self._manage(SendMessages(path, (read_arrival(message, lambda: "planted"),)))

    def enlarge(self, path: str) -> None:
        self._change(path, max_size_mb=1024)

    def _change(self, path: str, **changes: Any) -> None:
        self.settings[path] = replace(self.settings[path], **changes)
        self._manage(UpdateQueue(path, self.settings[path]))

    def _manage(self, command: Command[object]) -> None:
        """Done at once, and durable; while the namespace is down it is not done."""
        if self.is_up and self._gate.failure is None:
            self._gate.do(command, self._loop.now_ms)
            self._write_and_read()

    def put_right(self) -> None:
        """Its owner comes and sees to it that everything is there, open, and has room."""
        self.restart()
        if self._gate.failure is not None:
            self._gate.recover()
        for path in list(self.settings):
            self.create(path)  # refused if it is there
            self.settings[path] = replace(self.settings[path], status=QueueStatus.ACTIVE)
            self.enlarge(path)

    def tick(self) -> None:
        """Let time do its part: what expires goes, what is due wakes."""
        self._gate.do(Tick(), self._loop.now_ms)
        self._write_and_read()
