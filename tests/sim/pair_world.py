"""One simulated pair: the shipping core and flows, between two shipping namespaces, over a network that fails.

Everything is drawn from one seed: options, what applications do, what breaks, how long things take. The same seed gives
the same world.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from sim.invariants import check
from sim.pair_call import PRIMARY
from sim.pair_failover import EntityWatch
from sim.pair_faults import Faults
from sim.pair_loop import VirtualLoop
from sim.pair_namespace import SimulatedNamespace
from sim.pair_network import Road
from sim.pair_places import Places
from sim.pair_rules import Habits, draw_rules
from sim.pair_senders import TYPO, Applications
from sim.pair_shell import SimulatedShell
from sim.pair_watch import Watch
from twinbus.broker.entities.settings import QueueSettings
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.pairing.entity import Entity
from twinbus.pairing.events import FailoverForced, MarkedHealthy
from twinbus.pairing.pair import Pair
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.pairing.sending.receipt import NamespaceSide

NAME = "contoso"
ENTITIES = ("orders", "Invoices/2024", "audit")
PATIENCE_S = 5_000.0
"""By then everything that was begun has ended."""
SMALL_MESSAGE_KB = 3
PARTS = 50
MESSAGES_MAX = 30
"""So many are sent to bring an entity back: some are too large for it."""


class PairWorld:
    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.seen: Counter[str] = Counter()
        self.loop = VirtualLoop()
        self.habits = Habits.draw(self._random)
        self.rules = draw_rules(self._random)
        self._paths = list(ENTITIES[: self.habits.entities])
        declared = self._paths if self.habits.has_declared else ()
        self.pair = Pair(self.rules, entities=declared, name=NAME)
        self.watch = Watch(self.pair, self.loop, self.seen)
        self.primary, self.secondary = self._build("primary"), self._build("secondary")
        self._furnish()
        self.places = Places(self.primary.archive, self.secondary.archive, self.seen, self.habits.batch_bytes)
        to_primary = Road(self.primary, self.loop, self._random, self.seen)
        to_secondary = Road(self.secondary, self.loop, self._random, self.seen)
        self.faults = Faults(to_primary, to_secondary, self._random)
        self.shell = SimulatedShell(self.pair, self.watch, to_primary, to_secondary, self.loop, self._random)
        self.shell.batch_bytes = self.habits.batch_bytes
        self.shell.is_operated = self.habits.operator_share > 0
        self.applications = Applications(self.shell, self.places, self.habits, self._paths, self._random)

    def _build(self, name: str) -> SimulatedNamespace:
        return SimulatedNamespace(name, self.loop, self._random)

    def _furnish(self) -> None:
        """The queues that there are before anybody sends."""
        kilobytes = self._random.choice((None, None, SMALL_MESSAGE_KB))
        for path in self._paths:
            self.primary.create(path, QueueSettings(max_size_mb=1024, max_message_kb=kilobytes))
        for index in range(self.habits.queues):
            self.secondary.create(backlog_path(NAME, index), QueueSettings(max_size_mb=1024))
        self._look_after_queues(range(self.habits.queues), {})

    def _look_after_queues(self, found: range | list[int], lost: dict[int, Failure]) -> None:
        self.pair.use_queues(found, lost, self.loop.now)
        self.watch.queues.use(found, lost, self.loop.now)

    # --- what happens ---

    def run(self, calls: int) -> None:
        """Let applications send through all kinds of trouble, then let it end, and see where everything is."""
        busy_s = self._plan(calls)
        self.loop.run(until=busy_s)
        self._end_trouble()
        self._check_return()
        self._check_all_well()
        self.loop.run(until=self.loop.now + PATIENCE_S)
        self._check_rest()

    def _plan(self, calls: int) -> float:
        habits, random = self.habits, self._random
        busy_s = max(20.0, 1.5 * calls / habits.senders * habits.gap_s)
        self.applications.begin(calls)
        self.faults.plan(habits.spells, busy_s)
        for _ in range(habits.jumps):
            self.loop.call_at(random.random() * busy_s, self._jump)
        for _ in range(int(habits.operator_share * calls)):
            self.loop.call_at(random.random() * busy_s, self._operate)
        if habits.closes:
            self.loop.call_at(random.random() * busy_s, self._close)
        return busy_s

    def _jump(self) -> None:
        self.seen["jumps"] += 1
        self.loop.jump(self._random.choice((0.5, 10.0, 300.0)))

    def _close(self, patience: int = 100) -> None:
        """If sends are held at all, then rather while there are some: they have to get an answer."""
        if self.faults.are_over:
            return
        is_holding = any(len(entity.line) for entity in self.pair.entities)
        if self.rules.hold_sends and not is_holding and patience > 0:
            self.loop.call_in(self.loop.now / 100, lambda: self._close(patience - 1))
            return
        self.seen["closed"] += 1
        self.seen["closed with sends held"] += is_holding
        self.shell.close()

    # --- what an operator does ---

    def _operate(self) -> None:
        if not self.shell.is_closing:
            self._random.choice((self._force, self._mark, self._flick, self._check_again))()
            self.shell.settle()
            self.shell.check_order()

    def _some_entity(self) -> Entity:
        entity = self.pair.entity(self._random.choice(self._paths))
        self.watch.entity(entity)
        return entity

    def _flick(self) -> None:
        """There and back while sends are under way."""
        entity = self._some_entity()
        self._force(entity)
        self.loop.call_in(self._random.random(), lambda: self._mark(entity))

    def _force(self, entity: Entity | None = None) -> None:
        entity = entity or self._some_entity()
        stays = self._random.random() < 0.3
        event = FailoverForced(self.loop.now, entity.epoch, "by hand", stays, self._random.random())
        self.pair.feed(entity, event)
        self.shell.settle()
        self.watch.entity(entity).forced(stays=stays)
        self.seen["forced"] += 1

    def _mark(self, entity: Entity | None = None) -> None:
        if self.shell.is_closing:
            return
        entity = entity or self._some_entity()
        self.pair.feed(entity, MarkedHealthy(self.loop.now, entity.epoch))
        self.shell.settle()
        self.watch.entity(entity).marked()
        self.seen["marked healthy"] += 1
        self.shell.check_order()

    def _check_again(self) -> None:
        """The backlog queues are looked at again: some may be gone, some may be no good."""
        found = [queue for queue in range(self.habits.queues) if self._random.random() < 0.8] or [0]
        failure = Failure(FailureKind.DISABLED, "no link could be opened")
        self._look_after_queues(found, {queue: failure for queue in found if self._random.random() < 0.3})
        self.seen["queues checked again"] += 1

    # --- the end ---

    def _end_trouble(self) -> None:
        self.faults.stop()
        self.primary.create(TYPO)  # else it would be pinged for ever once it is failed over
        self._look_after_queues(range(self.habits.queues), {})
        self.shell.settle()
        for watch in self.watch.entities:
            if watch.is_failed_over and not watch.wants_pings and not self.shell.is_closing:
                self.pair.feed(watch.entity, MarkedHealthy(self.loop.now, watch.entity.epoch))
                self.shell.settle()
                watch.marked()

    def _check_return(self) -> None:
        """What is failed over comes back, each in its time."""
        if self.shell.is_closing:
            return
        periods = {watch: (watch.period, watch.back_by()) for watch in self.watch.entities if watch.is_failed_over}
        for watch, (period, at) in sorted(periods.items(), key=lambda item: item[1][1]):
            self.loop.run(until=at)
            if watch.period == period:
                self._prove(watch)
            check(watch.period > period, f"{watch.entity.path} did not come back though all is well")

    def _prove(self, watch: EntityWatch) -> None:
        """Where links open it takes a message to bring an entity back: one that the primary does not refuse."""
        for _ in range(MESSAGES_MAX):
            if watch.waits_for_message:
                self.applications.last_call(watch.entity.path)
            elif not watch.wants_pings or self.pair.probe == "ping":
                return
            # Else somebody else's message has just tried in vain: it was too large. The next one comes after a link.
            self.loop.run(until=self.loop.now + 1.2 * self.rules.ping_interval_s + self.rules.attempt_s)

    def _check_all_well(self) -> None:
        """When everything begun in bad times has ended, sends go where they would without pairing."""
        for _ in range(PARTS):  # somebody sends now and then: else links would be opened for ever
            self.loop.run(until=self.loop.now + PATIENCE_S / PARTS)
            for watch in self.watch.entities:
                if watch.waits_for_message and not self.shell.is_closing:
                    self.applications.last_call(watch.entity.path)
        open_calls = [call for call in self.applications.calls if not call.is_over]
        check(not open_calls, f"{open_calls[:3]} never end")
        if self.shell.is_closing:
            return
        for path in self._paths:
            entity = self.pair.entity(path)
            self._prove(self.watch.entity(entity))  # it may have failed over when the last call ended
            check(entity.side is NamespaceSide.PRIMARY, f"{path} is still failed over ({entity.reason})")
            call = self.applications.last_call(path)
            self.loop.run(until=self.loop.now + PATIENCE_S)
            is_right = call.attempts == 1 and (set(call.sure.values()) == {PRIMARY} or call.must_end)
            check(is_right, f"{call} was not simply sent: {call.attempts} attempts, {call.sure}")
            check(type(entity.state).__name__ == "Healthy", f"{path} is {entity.state} though a send succeeded")

    def _check_rest(self) -> None:
        self.loop.run()
        self.shell.check_rest()
        for namespace in (self.primary, self.secondary):
            missing = namespace.archive.missing(self.loop.now_ms)
            check(not missing, f"{namespace.name} lost {missing[:1]}")
        self.seen["crashes"] += self.primary.crashes + self.secondary.crashes
        for call in self.applications.calls:
            self.places.check_copies(call)
            self.places.check_contents(call)
            self.seen["messages"] += len(call.request.message_ids)
        self._check_patience()

    def _check_patience(self) -> None:
        """A day later the backlog still holds every message: nothing in it acts there."""
        self.loop.jump(86_400.0)
        self.secondary.tick()
        missing = self.secondary.archive.missing(0)
        check(not missing, f"{missing[:1]} was lost in the backlog by waiting")
