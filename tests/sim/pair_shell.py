"""The shell of a simulated pair: does what flows ask for and what the core orders, in virtual time.

It is to the core what the shells for threads and tasks are, timers that lag a little included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from itertools import count
from random import Random
from typing import assert_never

from sim.invariants import check
from sim.pair_call import Call
from sim.pair_failover import LAG_S
from sim.pair_loop import Signal, Task, VirtualLoop
from sim.pair_messages import ping as ping_message
from sim.pair_network import Outcome, Road
from sim.pair_watch import Watch
from twinbus.broker.core.commands import OpenSender, SendMessages
from twinbus.broker.message import read_arrival
from twinbus.client.aio import flow_driver
from twinbus.client.core import probes
from twinbus.client.core.effect_runner import TimerKey, run_effects
from twinbus.client.flows.io_requests import (
    Answer,
    Ask,
    EncodeBatches,
    EncodedBatches,
    Failed,
    Flow,
    OpenBacklog,
    Probe,
    Result,
    Sleep,
    Stored,
    ToBacklog,
    ToPrimary,
    ToSpool,
    WaitTurn,
    Woke,
)
from twinbus.client.reporting.events import PairEventName
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.pairing.effects import ReportEvent
from twinbus.pairing.entity import Entity
from twinbus.pairing.events import TimeCame
from twinbus.pairing.pair import Pair
from twinbus.pairing.ping_schedule import JITTER
from twinbus.pairing.sending.failure import Failure

ENCODING_S = 0.02
EVENT_NAMES = frozenset(PairEventName)


def _no_id() -> str:
    raise AssertionError("every message has an id before it is sent")


class SimulatedShell:
    def __init__(
        self, pair: Pair, watch: Watch, primary: Road, secondary: Road, loop: VirtualLoop, random: Random
    ) -> None:
        self.pair, self.watch, self.loop = pair, watch, loop
        self.batch_bytes = 0
        self.lock = nullcontext()
        self.is_operated = False
        """Somebody forces failovers and marks entities healthy, so that pings may overlap."""
        self._primary, self._secondary = primary, secondary
        self._random = random
        self._seen = watch.seen
        self._numbers = count()
        self._timers: dict[TimerKey, int] = {}
        self._pings: Counter[Entity | None] = Counter()
        """Under way."""
        self._turns: dict[int, Signal[None]] = {}
        self._waits: set[Signal[None]] = set()

    # --- asks ---

    @property
    def is_closing(self) -> bool:
        return self.watch.closed_at is not None

    async def run(self, flow: Flow[Result], call: Call) -> Result:
        return await flow_driver.run(flow, lambda ask: self.perform(ask, call), self.lock, self.settle)

    async def perform(self, ask: Ask, call: Call) -> Answer:
        self.watch.note(call, ask)
        call.asked(ask)
        self.check_order()
        answer = await self._act(ask, call)
        self.watch.note(call, answer)
        call.heard(answer)
        return answer

    async def _act(self, ask: Ask, call: Call) -> Answer:
        match ask:
            case EncodeBatches():
                await self._encode()
                return EncodedBatches(self.loop.now, self._random.random(), call.request.batches(self.batch_bytes))
            case ToPrimary() | ToBacklog() if self.is_closing:
                return self._woke()
            case ToPrimary(timeout_s):
                answer = await self._send(self._primary, call.entity.path, call.request.encoded, timeout_s)
                if not isinstance(answer, Failed) or answer.failure.condition is not None:
                    self.pair.drops_pings = True  # it answered, and our namespaces say so when they do
                return answer
            case ToBacklog(queue, encoded, timeout_s):
                path = backlog_path(self.pair.name, queue)
                return await self._send(self._secondary, path, encoded, timeout_s)
            case Sleep(seconds):
                await self._wait(Signal(), seconds)
                return self._woke()
            case WaitTurn(ticket, seconds):
                turn = self._turns.setdefault(ticket, Signal())
                await self._wait(turn, seconds)
                self._turns[ticket] = Signal()
                return self._woke()
            case ToSpool():
                return await self._to_spool(ask, call)
            case Probe() | OpenBacklog():
                raise AssertionError(f"a send never asks for {ask}")
            case _:
                assert_never(ask)

    async def _to_spool(self, ask: ToSpool, call: Call) -> Answer:
        raise AssertionError(f"there is no spool here for {ask} of {call}")

    async def _encode(self) -> None:
        """Takes time, now and then enough for others to do something meanwhile."""
        if self._random.random() < 0.2:
            signal: Signal[None] = Signal()
            self.loop.call_in(self._random.random() * ENCODING_S, lambda: signal.set(None))
            await signal

    async def _send(self, road: Road, path: str, encoded: list[bytes] | tuple[bytes, ...], timeout_s: float) -> Answer:
        arrivals = tuple([read_arrival(message, _no_id) for message in encoded])
        return self._answer(await road.attempt(SendMessages(path, arrivals), timeout_s))

    def _answer(self, outcome: Outcome) -> Answer:
        if isinstance(outcome, Failure):
            return Failed(self.loop.now, self._random.random(), outcome)
        return Stored(self.loop.now, self._random.random(), outcome)

    def _woke(self) -> Woke:
        return Woke(self.loop.now, self._random.random(), self.is_closing)

    async def _wait(self, signal: Signal[None], seconds: float) -> None:
        if self.is_closing:
            return
        self._waits.add(signal)
        self.loop.call_in(seconds, lambda: signal.set(None))
        try:
            await signal
        finally:
            self._waits.discard(signal)

    def forget_turn(self, ticket: int | None) -> None:
        if ticket is not None:
            self._turns.pop(ticket, None)

    # --- orders ---

    def settle(self) -> None:
        """Carry out what the core has ordered."""
        for entity, effect in self.pair.take_orders():
            self.watch.note(entity and entity.path, effect)
            run_effects(self.pair, [(entity, effect)], self)

    def report(self, entity: Entity | None, event: ReportEvent) -> None:
        check(event.name in EVENT_NAMES, f"there is no such event as {event.name}")
        self._seen[f"event: {event.name}"] += 1

    def wake(self, ticket: int) -> None:
        turn = self._turns.setdefault(ticket, Signal())
        self.loop.call_in(0, lambda: turn.set(None))  # whoever gives the order is still at work

    def cancel(self, key: TimerKey) -> None:
        self._timers.pop(key, None)

    def schedule(self, key: TimerKey, at: float, job: Callable[[], None]) -> None:
        if key.kind == "ping" and key.entity is not None:
            self._check_ping_time(key.entity, at - self.loop.now)
        if not self.is_closing:
            number = self._timers[key] = next(self._numbers)
            self.loop.call_at(at, lambda: self._when_due(key, number, job))

    def _when_due(self, key: TimerKey, number: int, job: Callable[[], None]) -> None:
        if self._timers.get(key) != number:
            return  # cancelled, or ordered anew
        del self._timers[key]
        self._pings[key.entity] += key.kind == "ping"
        if self._random.random() < 0.2:  # a worker takes its time; what is due can no longer be cancelled
            self.loop.call_at(self.loop.due + self._random.random() * LAG_S / 2, job)
        else:
            job()

    def time_came(self, entity: Entity) -> None:
        if not self.is_closing:
            self.pair.feed(entity, TimeCame(self.loop.now, entity.epoch, self._random.random()))
            self.settle()
            self.watch.entity(entity).time_came(self.loop.now)
            self.check_order()

    # --- trials ---

    def try_secondary(self) -> None:
        if not self.is_closing:
            Task(self._try_once())

    async def _try_once(self) -> None:
        async def open_link(ask: Ask) -> Answer:
            assert isinstance(ask, OpenBacklog)
            self.watch.note("trial", ask)
            self.watch.secondary.trial_begins(ask.timeout_s)
            outcome = await self._open_link(ask)
            self.watch.note("trial", outcome)
            self.watch.trial_ends(ask.queue, outcome if isinstance(outcome, Failure) else None)
            return self._answer(outcome)

        await flow_driver.run(probes.try_secondary(self.pair, self.loop.now), open_link, self.lock, self.settle)
        self.check_order()

    def _open_link(self, ask: OpenBacklog) -> Signal[Outcome]:
        return self._secondary.attempt(OpenSender(backlog_path(self.pair.name, ask.queue)), ask.timeout_s)

    # --- pings ---

    def ping(self, entity: Entity) -> None:
        if not self.is_closing:
            Task(self._ping_once(entity))

    async def _ping_once(self, entity: Entity) -> None:
        watch, outcomes, ended = self.watch.entity(entity), [], self.watch.entity(entity).pinged
        period = watch.period

        async def probe(ask: Ask) -> Answer:
            nonlocal ended
            assert isinstance(ask, Probe)
            ended = watch.pinged if ask.sends_ping else watch.linked
            check(watch.is_failed_over, f"{entity.path} is pinged and not failed over")
            check(ask.path == entity.path, f"{ask.path} is pinged for {entity.path}")
            command = (
                SendMessages(ask.path, (read_arrival(ping_message(), _no_id),))
                if ask.sends_ping
                else OpenSender(ask.path)
            )
            outcome = await self._primary.attempt(command, ask.timeout_s)
            outcomes.append(outcome)
            return self._answer(outcome)

        await flow_driver.run(probes.ping(self.pair, entity), probe, self.lock, self.settle)
        self._pings[entity] -= 1
        if outcomes:
            self._seen["pings: failed" if isinstance(outcomes[0], Failure) else "pings: succeeded"] += 1
            ended(period, succeeded=not isinstance(outcomes[0], Failure))
        self.check_order()

    def _check_ping_time(self, entity: Entity, seconds: float) -> None:
        interval_s = self.pair.rules.ping_interval_s
        is_right = abs(seconds - interval_s) <= JITTER * interval_s + 1e-6
        check(is_right, f"the next ping of {entity.path} is in {seconds} s, the interval is {interval_s}")

    # --- what is always true ---

    def check_order(self) -> None:
        """Between two steps: one ping schedule for what is failed over, none for the rest; nothing is overdue."""
        self.watch.check_duties()
        if self.is_closing:
            return
        for watch in self.watch.entities:
            entity = watch.entity
            ordered = TimerKey("ping", entity) in self._timers
            if watch.wants_pings:
                schedules = ordered + self._pings[entity]
                check(1 <= schedules <= 1 + self.is_operated, f"{entity.path} has {schedules} ping schedules")
            else:
                check(not ordered, f"{entity.path} will be pinged for nothing")

    # --- the end ---

    def close(self) -> None:
        """Waiting sends get their answer, and timers go."""
        self.watch.closed_at = self.loop.awake_s
        self._timers.clear()
        for signal in tuple(self._waits):
            signal.set(None)

    def check_rest(self) -> None:
        """Nothing is left behind."""
        check(not self._waits, f"{len(self._waits)} waits have no end")
        check(not self._turns, f"{len(self._turns)} turns are remembered for nobody")
        check(not self._timers, f"timers are left: {[key.kind for key in self._timers]}")
        check(not self.pair.has_orders, "orders were not carried out")
        check(not self.pair.secondary.waiting, f"{len(self.pair.secondary.waiting)} sends wait for the secondary")
        for entity in self.pair.entities:
            check(len(entity.line) == 0 and entity.line.bytes == 0, f"{len(entity.line)} sends are held by nobody")
