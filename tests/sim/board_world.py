"""Simulated fleets: shipping posters and readers on a shipping namespace, with lies, old reports and wrong clocks.

Everything is drawn from one seed. Processes change their state, are killed and closed; the secondary dies, falls silent
and loses connections; a stranger with Send posts nonsense, reports of processes that are not there, and old reports of
those that are. Every reader has a clock of its own, hours off. After each of its looks its fleet is held against the
truth.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

from board_scene import failed_over, report

from sim.clock import START_MS
from sim.invariants import check
from sim.proxy_loop import Process, SimulatedLoop, start
from sim.proxy_network import Network
from sim.proxy_process import address_of
from sim.proxy_servers import SimulatedNamespace
from sim.proxy_system import simulated_system
from twinbus.board.fleet import LATE_FACTOR, LATE_S, Fleet, FleetVerdict, ProcessWord
from twinbus.board.message import encode_post
from twinbus.board.poster import BoardPoster
from twinbus.board.queue import LIFE_S, board_path
from twinbus.board.reader import BoardReader
from twinbus.board.report import ProcessReport, encode_report
from twinbus.board.schedule import CALM_EVERY_S
from twinbus.broker.core.commands import CreateQueue
from twinbus.broker.entities.settings import QueueSettings
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.failures import ConnectionFailed
from twinbus.transport.links.single_sender import SingleSender

PRIMARY = "contoso"
BOARD = QueueSettings(max_delivery_count=2**31 - 1, default_ttl_ms=LIFE_S * 1000)
ATTEMPT_S = 5.0
CHANGE_SEEN_S = 45.0
"""After a change and without trouble, every reader that looks knows it: the pause between changes, a try that failed
just before, and the pause after it."""
SETTLED_S = 100.0
"""After trouble of the secondary, everything is as if there had been none."""
SILENT_AFTER_S = LATE_FACTOR * CALM_EVERY_S + LATE_S + 1
SKEWS_S = (-7_200.0, -30.0, 0.0, 30.0, 7_200.0)


@dataclass
class Member:
    """A process that reports, and the truth about it."""

    instance: str
    process: Process
    began_at: float
    is_failed_over: bool = False
    changed_at: float = 0.0
    killed_at: float | None = None
    poster: BoardPoster | None = None
    leaves: asyncio.Event = field(default_factory=asyncio.Event)
    forged_at: float = float("-inf")
    """When a stranger last posted something in its name that it had not said."""
    said: list[bytes] = field(default_factory=list)
    """What it has posted, or tried to."""

    def report(self) -> ProcessReport:
        found = report(self.instance, entities=(failed_over(),) if self.is_failed_over else ())
        self.said.append(encode_report(report(self.instance, len(self.said) + 1, entities=found.entities)))
        return found


class BoardWorld:
    def __init__(self, seed: int) -> None:
        self._seed, self._random = seed, Random(seed)
        self.seen: Counter[str] = Counter()
        self.trace: list[str] = []
        self.loop = SimulatedLoop(Random(f"{seed} threads"))
        self.network = Network(self.loop, seed, self.seen)
        self.secondary = SimulatedNamespace("backup", self.loop, self.network, seed, self.seen)
        self._dial = address_of(self.secondary, []).dial(ATTEMPT_S)
        self._names = itertools.count(1)
        self.members: list[Member] = []
        self._observers: list[Process] = []
        self._problem: str | None = None
        self._trouble_until = 0.0
        self._troubled_at = 0.0
        self._flooded_at = float("-inf")
        self._is_over = False

    def run(self, busy_s: float = 600.0) -> None:
        try:
            with simulated_system(self.loop, self._seed):
                self._run(busy_s)
        finally:
            for process in [self.secondary.process, *self._observers, *[each.process for each in self.members]]:
                process.kill()
            self.loop.close()
        check(self._problem is None, self._problem or "")

    def _run(self, busy_s: float) -> None:
        self.secondary.start()
        self.loop.run_for(0.001)
        self.loop.call_soon(self.secondary.administer, CreateQueue(board_path(PRIMARY), BOARD))
        self.loop.run_for(0.2)
        for _ in range(self._random.choice((2, 5, 12))):
            self.loop.call_soon(self._begin)
        for number in range(2):
            self._observe(f"reader{number}", self._random.choice(SKEWS_S), self._random.choice((2.0, 10.0, 25.0)))
        for job, mean_s in (
            (self._change, 40.0),
            (self._kill, 300.0),
            (self._close, 400.0),
            (self._begin, 200.0),
            (self._break, self._random.choice((150.0, 400.0, 1e9))),
            (self._lie, self._random.choice((5.0, 60.0, 1e9))),
            (self._forge, self._random.choice((300.0, 1e9))),
        ):
            self._now_and_then(job, mean_s)
        self.loop.run_for(busy_s)
        self._is_over = True
        self.secondary.start()
        self.loop.call_soon(self.secondary.route.speak)
        self.loop.run_for(LIFE_S + SETTLED_S)

    def _now_and_then(self, job: Any, mean_s: float) -> None:
        def again() -> None:
            if not self._is_over:
                job()
                self.loop.call_later(self._random.expovariate(1 / mean_s), again)

        self.loop.call_later(self._random.expovariate(1 / mean_s), again)

    def _note(self, what: str) -> None:
        self.trace.append(f"{self.loop.now:.3f} {what}")
        self.seen[what.split(":")[0]] += 1

    # --- processes ---

    @property
    def _alive(self) -> list[Member]:
        return [each for each in self.members if each.killed_at is None]

    def _begin(self) -> None:
        name = f"p{next(self._names)}"
        member = Member(name, Process(name, self.loop), self.loop.now, changed_at=self.loop.now)
        self.members.append(member)
        self._note(f"begins: {name}")

        async def live() -> None:
            member.poster = BoardPoster(
                self._dial,
                PRIMARY,
                name,
                member.report,
                attempt_s=ATTEMPT_S,
                clears=self._random.random() < 0.3,
                clock=lambda: self.loop.now,
                wall_clock=lambda: START_MS / 1000 + self.loop.now,
                chance=self._random.random,
            )
            running = asyncio.ensure_future(member.poster.run())
            await member.leaves.wait()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await member.poster.end()

        start(member.process, live)

    def _change(self) -> None:
        if self._alive:
            member = self._random.choice(self._alive)
            member.is_failed_over = not member.is_failed_over
            member.changed_at = self.loop.now
            self._note(f"changes: {member.instance} {member.is_failed_over}")
            if member.poster is not None:
                member.process.run(member.poster.wake)

    def _kill(self) -> None:
        if self._alive:
            member = self._random.choice(self._alive)
            member.killed_at = self.loop.now
            self._note(f"killed: {member.instance}")
            member.process.kill()
            self.network.lose(member.process, quietly=self._random.random() < 0.5)

    def _close(self) -> None:
        if self._alive:
            member = self._random.choice(self._alive)
            member.killed_at = self.loop.now
            self._note(f"closes: {member.instance}")
            member.process.run(member.leaves.set)

    # --- the secondary ---

    def _break(self) -> None:
        length_s = self._random.choice((1.0, 20.0, 120.0)) * self._random.random()
        self._troubled_at = self.loop.now
        self._trouble_until = max(self._trouble_until, self.loop.now + length_s)
        match self._random.randrange(3):
            case 0 if self.secondary.is_up:
                self._note("secondary: dies")
                self.secondary.die(quietly=self._random.random() < 0.3)
                self.loop.call_later(length_s, self.secondary.start)
            case 1:
                self._note("secondary: silent")
                self.secondary.route.fall_silent()
                self.loop.call_later(length_s, self.secondary.route.speak)
            case _:
                self._note("secondary: cut")
                self.secondary.route.cut_some(quietly=self._random.random() < 0.3)

    @property
    def _is_settled(self) -> bool:
        return self.loop.now - self._trouble_until > SETTLED_S

    # --- a stranger with Send ---

    def _lie(self) -> None:
        honest = [each for each in self.members if each.said]
        what = self._random.choice(("nonsense", "ghost", "replay", "flood"))
        if what == "replay" and honest:
            member = self._random.choice(honest)
            if member.killed_at is not None:  # who began to read later cannot know that it is old
                member.forged_at = self.loop.now
            bodies = [self._random.choice(member.said)]
        elif what == "ghost":
            bodies = [encode_report(report(f"ghost{self.loop.now}", entities=()))]
        elif what == "flood" and self._random.random() < 0.1:
            self._flooded_at = self.loop.now
            bodies = [encode_report(report(f"flood{self.loop.now}-{number}")) for number in range(1_200)]
        else:
            what, bodies = "nonsense", [self._random.randbytes(self._random.choice((0, 50, 40_000)))]
        self._note(f"lie: {what}")
        self._post(bodies)

    def _forge(self) -> None:
        """The worst that an unsigned report can do: hide what another process says, until it is over."""
        if self._alive:
            member = self._random.choice(self._alive)
            member.forged_at = self.loop.now
            self._note(f"forged: {member.instance}")
            lie = () if member.is_failed_over else (failed_over("lie"),)
            self._post([encode_report(report(member.instance, 10**9, entities=lie))])

    def _post(self, bodies: list[bytes]) -> None:
        process = Process(f"stranger {next(self._names)}", self.loop)
        self._observers.append(process)

        async def post() -> None:
            try:
                async with NamespaceConnection(self._dial, attempt_s=ATTEMPT_S, clock=self.loop.now_ms) as connection:
                    sender = SingleSender(connection, ATTEMPT_S)
                    for body in bodies:
                        await sender.send(board_path(PRIMARY), encode_post(report("stranger"), body))
            except ConnectionFailed:
                pass

        start(process, post)

    # --- readers ---

    def _observe(self, name: str, skew_s: float, every_s: float) -> None:
        process = Process(name, self.loop)
        self._observers.append(process)

        async def watch() -> None:
            reader = BoardReader(
                self._dial,
                PRIMARY,
                attempt_s=ATTEMPT_S,
                clock=lambda: self.loop.now,
                wall_clock=lambda: START_MS / 1000 + self.loop.now + skew_s,
            )
            looks = 0
            while self._problem is None:
                began_at, was_up = self.loop.now, self._can_answer
                fleet = await reader.look()
                looks += 1
                try:
                    self._compare(name, fleet, began_at, was_up=was_up, is_first=looks < 3)
                except Exception as problem:
                    self._problem = f"{self.loop.now:.3f} {name}: {problem}"
                await asyncio.sleep(every_s)

        start(process, watch)

    @property
    def _can_answer(self) -> bool:
        return self.secondary.is_up and not self.secondary.route.is_silent

    def _compare(self, name: str, fleet: Fleet, began_at: float, *, was_up: bool, is_first: bool) -> None:
        now, verdict = self.loop.now, fleet.verdict
        self.trace.append(f"{now:.3f} {name} sees {verdict.value} {len(fleet.processes)} {fleet.problem}")
        self.seen[f"verdict {verdict.value}"] += 1
        words = {each.report.instance: each for each in fleet.processes}
        is_down = not was_up and not self._can_answer and self._troubled_at < began_at
        check(not (is_down and verdict is FleetVerdict.HEALTHY), "healthy, with the secondary down")
        for member in self.members:
            self._check_gone(member, words.get(member.instance), now)
        if not self._is_settled:
            return
        is_flooded = now - self._flooded_at < LIFE_S + SETTLED_S
        for member in self._alive:
            is_true_by_now = min(now - member.changed_at, now - member.began_at) > CHANGE_SEEN_S
            if now - member.forged_at < LIFE_S + SETTLED_S or not is_true_by_now:
                continue
            found = words.get(member.instance)
            if found is None:
                check(is_flooded and not fleet.is_complete, f"{member.instance} reports and is not in the fleet")
                check(verdict is not FleetVerdict.HEALTHY, "healthy, and not all are known")
                continue
            check(found.word is ProcessWord.REPORTING, f"{member.instance} reports and is called {found.word}")
            check(bool(found.report.entities) == member.is_failed_over, f"{member.instance} is not as the fleet says")
            if member.is_failed_over:
                check(verdict is FleetVerdict.FAILED_OVER, f"{member.instance} has failed over, the fleet is {verdict}")
        if not is_first and not fleet.problem:
            self.seen["fleet known as a whole"] += 1

    def _check_gone(self, member: Member, found: Any, now: float) -> None:
        if member.killed_at is None or found is None or now - member.forged_at < LIFE_S + SETTLED_S:
            return
        dead_s = now - member.killed_at
        name = member.instance
        # A message that was under way may be stored after its sender died; and while nobody can look, nothing is seen.
        if dead_s > SILENT_AFTER_S + ATTEMPT_S and self._is_settled:
            check(found.word is not ProcessWord.REPORTING, f"{name} was killed {dead_s:.0f} s ago and reports")
        if dead_s > LIFE_S + SETTLED_S and self._is_settled:
            check(False, f"{name} was killed {dead_s:.0f} s ago and is still in the fleet")


def run_board_seed(seed: int) -> tuple[str | None, BoardWorld]:
    """What is wrong with a simulated fleet; None: nothing."""
    world = BoardWorld(seed)
    try:
        world.run()
    except Exception as problem:
        return f"seed {seed}: {problem}", world
    return None, world
