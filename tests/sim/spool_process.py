"""One process of an application with a spool, on a disk that outlives it: it may be killed at any moment.

The flows, the pairing core, the contents of the spool and the pump that empties it are those that ship; the namespace
in which the spool keeps its messages is the shipping machine on a simulated disk, which loses what was not committed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from sim.home_namespace import LendingNamespace
from sim.home_senders import HomeShell
from sim.home_syphon import HomeObserver, SimulatedSyphon
from sim.invariants import check
from sim.pair_call import Call
from sim.pair_loop import Signal, VirtualLoop
from sim.pair_network import Road
from sim.pair_watch import Watch
from twinbus.broker.core.registry import Registry
from twinbus.client.flows.io_requests import Answer, Ask, Failed, Stored, ToSpool
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.pairing.effects import ReportEvent
from twinbus.pairing.entity import Entity
from twinbus.pairing.pair import Pair
from twinbus.pairing.rules import Rules
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.spool.contents import SpoolContents
from twinbus.syphon.options import SyphonOptions
from twinbus.syphon.pump.pump import Pump
from twinbus.syphon.pump.spool_pump import SpoolPump

BACK = ("recovered", "secondary_back")
SILENT = Failure(FailureKind.NO_ANSWER, "the disk gave no answer", in_doubt=True)


class SpoolNamespace(LendingNamespace):
    """Where the spool of one process keeps its messages."""

    @property
    def registry(self) -> Registry:
        return self._gate.machine.registry


class SpoolSyphon(SimulatedSyphon):
    """Empties a spool: home, or to the backlog."""

    pump: SpoolPump

    def __init__(
        self,
        paths: list[str],
        options: SyphonOptions,
        primary: Road,
        secondary: Road,
        spool: Road,
        detours: Sequence[str],
        random: Random,
        seen: Counter[str],
    ) -> None:
        self._detours, self._backlog = detours, secondary
        self.is_dead = False
        super().__init__(paths, options, primary, spool, None, random, seen)

    def _make_pump(self, options: SyphonOptions, now_ms: int, _observer: HomeObserver | None) -> Pump:
        return SpoolPump(self._paths, options, now_ms, detours=self._detours)

    def _road_to(self, path: str) -> Road:
        return self._backlog if self.pump.is_detour(path) else self._primary

    def add_queue(self, path: str) -> None:
        self.pump.add_queue(path, is_extra=False)
        self._paths.append(path)
        self._attach(len(self._paths) - 1)

    def wake(self) -> None:
        self.pump.wake()
        self._act()

    def _attach(self, index: int) -> None:
        if not self.is_dead:
            super()._attach(index)

    def _act(self) -> None:
        if not self.is_dead:
            super()._act()


class SpoolShell(HomeShell):
    """The shell of one process; when that is dead, nobody gets an answer any more."""

    process: SpoolProcess
    is_dead = False

    async def perform(self, ask: Ask, call: Call) -> Answer:
        await self._die_if_dead()
        answer = await super().perform(ask, call)
        await self._die_if_dead()
        return answer

    async def _die_if_dead(self) -> None:
        """Wait for ever, and be remembered: what is forgotten would be ended, which is what a kill does not do."""
        if self.is_dead:
            forever: Signal[None] = Signal()
            self.process.waits_of_the_dead.append(forever)
            await forever

    async def _to_spool(self, ask: ToSpool, call: Call) -> Answer:
        failure = await self.process.put(call.entity.path, ask)
        if failure is None:
            return Stored(self.loop.now, self._random.random())
        return Failed(self.loop.now, self._random.random(), failure)

    def report(self, entity: Entity | None, event: ReportEvent) -> None:
        super().report(entity, event)
        if event.name in BACK:
            self.loop.call_in(0, self.process.wake)

    def kill(self) -> None:
        self.is_dead = True
        self._timers.clear()

    def schedule(self, key: Any, at: float, job: Callable[[], None]) -> None:
        super().schedule(key, at, lambda: None if self.is_dead else job())


class SpoolProcess:
    def __init__(
        self,
        namespace: SpoolNamespace,
        roads: tuple[Road, Road],
        rules: Rules,
        *,
        name: str,
        entities: Sequence[str],
        queues: int,
        bytes_max: int,
        options: SyphonOptions,
        loop: VirtualLoop,
        random: Random,
        seen: Counter[str],
    ) -> None:
        self.loop, self.seen = loop, seen
        self.waits_of_the_dead: list[Signal[None]] = []
        self.namespace = namespace
        self.bytes_max = bytes_max
        self._name = name
        self.pair = Pair(rules, entities=entities, name=name)
        self.watch = Watch(self.pair, loop, seen)
        self.shell = SpoolShell(self.pair, self.watch, *roads, loop, random)
        self.shell.process, self.shell.straight = self, set()
        self.shell.batch_bytes = random.choice((6_000, 262_144))
        self.pair.use_queues(range(queues), {}, loop.now)
        self.contents = SpoolContents(
            name,
            "/spool/1",
            bytes_max=bytes_max,
            registry=lambda: namespace.registry,
            ask=namespace.inquire,
            new_id=lambda: "no id",
            on_queue=lambda index: self.syphon.add_queue(backlog_path(name, index)),
        )
        self.contents.read_queues()
        seen["taken over"] += self.contents.counts().messages
        spool = Road(namespace, loop, random, seen)
        paths = [backlog_path(name, index) for index in self.contents.indexes]
        detours = [backlog_path(name, index) for index in range(queues)]
        self.syphon = SpoolSyphon(paths, options, *roads, spool, detours, random, seen)

    async def put(self, path: str, ask: ToSpool) -> Failure | None:
        answer: Signal[Failure | None] = Signal()
        if self.namespace.is_up:
            self.contents.put(path, ask.encoded, answer.set)
        self.loop.call_in(ask.timeout_s, lambda: answer.set(SILENT))
        failure = await answer
        size = self.contents.counts().size_bytes
        check(size <= self.bytes_max, f"the spool holds {size} bytes, and may hold {self.bytes_max}")
        self.seen["put into the spool" if failure is None else f"spool: {failure.kind.value}"] += 1
        return failure

    def wake(self) -> None:
        if not self.syphon.is_dead:
            self.syphon.wake()

    def kill(self) -> None:
        """kill -9, or a power cut: what was not committed is gone, and nobody hears of anything."""
        self.shell.kill()
        self.syphon.is_dead = True
        self.namespace.crash()
