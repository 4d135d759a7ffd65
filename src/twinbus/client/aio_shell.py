"""The task shell of a pair: does what flows ask for and what the core orders, on one event loop.

The twin of `shell`. Steps of flows never await, so the core needs no lock here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from contextlib import nullcontext
from time import monotonic
from typing import Any

from azure.servicebus.aio import ServiceBusClient

from twinbus.client import answers, drive, flows, probing
from twinbus.client.aio_backlog_pool import AioBacklogPool
from twinbus.client.aio_links import AioOpenings, AioSenderLink, all_closed
from twinbus.client.aio_receivers import receiving
from twinbus.client.aio_secretary import AioSecretary
from twinbus.client.asks import Answer, Ask, Flow, OpenBacklog, Pause, Probe, Result, ToBacklog, WaitTurn, Woke
from twinbus.client.backlog_pool import NoFreeLink
from twinbus.client.failures import LinkFailed, describe
from twinbus.client.homecoming import Homecoming, HomecomingTask, news_of, reason_of
from twinbus.client.keeper import LOGGER, WORKERS_MAX
from twinbus.client.news_desk import AioNewsDesk
from twinbus.client.order_witness import OrderWitness
from twinbus.client.pings import ping_message
from twinbus.client.shell import CLOSE_LOOK_S, SWEEP_S
from twinbus.client.side import AioSides
from twinbus.client.standing import CLOSE_PATIENCE_S, FIRST_RECHECK_S, RECHECK_S, Standing
from twinbus.client.status import Phase
from twinbus.pairing.closing import SIDES, SideName
from twinbus.pairing.effects import Effect, ForgetWake, PingPrimary, Rouse, StopPings, Tell, TrySecondary, WakeMe
from twinbus.pairing.entity import Entity
from twinbus.pairing.events import Event, SendSucceeded, TimeCame
from twinbus.pairing.failure import Failure
from twinbus.syphon import Alert


class TaskShell:
    def __init__(self, standing: Standing) -> None:
        self.standing = standing
        self.pair = standing.pair
        self.rules = standing.pair.rules
        self.news = AioNewsDesk()
        self._pairing = asyncio.Lock()
        self._closing = asyncio.Event()
        self._openings = AioOpenings()
        self._turns: dict[int, asyncio.Event] = {}
        self._timers: dict[Hashable, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ping_room = asyncio.Semaphore(WORKERS_MAX)
        self._primary: ServiceBusClient | None = None
        self.receiving: ServiceBusClient
        self._secondary: ServiceBusClient | None = None
        self._pool: AioBacklogPool | None = None
        self._warm_queue: int | None = None
        self._is_warm_queue_lent = False
        self._syphon: HomecomingTask | None = None
        self.sides: Callable[[], AioSides | None] = lambda: None
        """Who is told when the syphon fails for good, as long as anybody has the client."""

    # --- life ---

    async def prepare(self) -> None:
        """Find, create and try the backlog queues; the pair is ready then. Once is enough."""
        async with self._pairing:
            self.standing.check_not_ended()
            if self.standing.phase is not Phase.NEW:
                return
            homecoming = self._homecoming()
            async with self._secretary() as secretary:
                found = await secretary.prepare(self.standing.plan)
            self.standing.open_ledger()  # before anything that would have to be ended if this cannot be
            attempt_s = self.rules.attempt_s
            self._primary = self.standing.primary.aio_client(attempt_s=attempt_s)
            self.receiving = receiving(self.standing.primary.aio_client(attempt_s=attempt_s))
            self._secondary = self.standing.secondary.aio_client(attempt_s=attempt_s)
            self._pool = AioBacklogPool(self._secondary, self.standing.queue_path)
            self.standing.prepared(found, monotonic())
            if self.standing.chronicle is not None:
                self.standing.chronicle.paired(found)
            for warning in (*self.standing.warnings(), *found.warnings):
                self.news.tell("pairing_warning", warning, namespace=self.standing.secondary.name)
            self._warm_queue = self.pair.rotation.pick(None, monotonic(), answers.chance())
            self._warm_up(self._warm_queue)
            self._call_at("sweep", monotonic() + SWEEP_S, self._sweep)
            self._call_at("recheck", monotonic() + FIRST_RECHECK_S, lambda: self._begin(self.recheck()))
            self.settle()
            if homecoming is not None:
                self._syphon = HomecomingTask(homecoming, sorted(found.found))
                await self._syphon.start()
                self.standing.homecoming = homecoming

    def _homecoming(self) -> Homecoming | None:
        """What a syphon is made of, if this client is to have one; raises what would keep it from ever connecting."""
        if not self.standing.options.enable_syphon:
            return None
        homecoming = Homecoming(
            self.standing,
            self._tell_alert,
            lambda error: self._syphon_failed(lambda sides: sides.broke(reason_of(error))),
        )
        if self.pair.fences is not None:
            homecoming.witness = OrderWitness(self.pair, nullcontext(), self.settle)
        return homecoming

    def _tell_alert(self, alert: Alert) -> None:
        self.news.tell(**news_of(alert, self.pair.name, self.standing.secondary.name))
        if alert.name == "refused":
            self._syphon_failed(lambda sides: sides.faulted("secondary", alert.text))

    def _syphon_failed(self, tell: Callable[[AioSides], Coroutine[Any, Any, None]]) -> None:
        sides = self.sides()
        if sides is not None:
            self._begin(tell(sides))

    def _secretary(self) -> AioSecretary:
        standing = self.standing
        return AioSecretary(standing.primary, standing.secondary, attempt_s=self.rules.attempt_s)

    async def recheck(self) -> None:
        """Prove again that the backlog queues can be used."""
        before = self.standing.preparation
        if before is None or self.standing.has_ended or self.standing.is_half_open:
            return
        async with self._secretary() as secretary:
            found = await secretary.recheck(self.standing.plan, before)
        self.standing.inspection = await asyncio.to_thread(self.standing.inspect)
        self.standing.prepared(found, monotonic())
        for name, text in self.standing.recheck_news(before, found):
            self.news.tell(name, text, namespace=self.standing.secondary.name)
        if not self._closing.is_set():
            self._call_at("recheck", monotonic() + RECHECK_S, lambda: self._begin(self.recheck()))
        self.settle()

    def end(self, phase: Phase, reason: str | None = None) -> bool:
        """Close, or fault: sends that wait are told, timers go. False if it had ended already."""
        if not self.standing.end(phase, reason):
            return False
        self._closing.set()
        for turn in self._turns.values():
            turn.set()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._openings.end()
        if self._pool is not None:
            self._pool.close()
        self.settle()
        name = "closed" if phase is Phase.CLOSED else "faulted"
        self.news.tell(name, reason or "by the application", namespace=self.pair.name)
        return True

    async def let_go(self, side: SideName) -> None:
        """One side has ended: the syphon needs both, and the backlog the secondary."""
        if self._syphon is not None:
            await self._syphon.stop()
        if side == "secondary" and self._pool is not None:
            self._pool.close()
            self.pair.secondary_ended(monotonic())
            self.settle()

    def call_at(self, key: str, at: float, job: Callable[[], None]) -> None:
        """Do this at that time, on the loop."""
        self._call_at(key, at, job)

    def cancel(self, key: str) -> None:
        self._cancel(key)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside."""
        self._begin(work)

    async def finish(self, is_any_storing: Callable[[], bool]) -> None:
        """What is left to do when all senders are closed: nothing stays behind on the loop.

        `is_any_storing`: whether one of them is in an attempt.
        """
        try:
            for side in SIDES:
                await self.let_go(side)
            await self._end_tasks()
            await self._await_sends(is_any_storing)
            await self.news.close()
            for client in (self._primary, self._secondary, getattr(self, "receiving", None)):
                if client is not None:
                    await _close_thoroughly(client)
        finally:
            await all_closed()
            await asyncio.to_thread(self.standing.close_ledger)

    async def _await_sends(self, is_any_storing: Callable[[], bool]) -> None:
        """Sends that were cut off tell what became of them before the ledger ends."""
        me, began = asyncio.current_task(), monotonic()
        while self.standing.has_to_wait(me, is_any_storing, monotonic() - began):
            await asyncio.sleep(CLOSE_LOOK_S)

    async def _end_tasks(self) -> None:
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_PATIENCE_S)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=CLOSE_PATIENCE_S)

    # --- what senders need ---

    @property
    def pool(self) -> AioBacklogPool:
        assert self._pool is not None, "senders are used only after pairing"
        return self._pool

    async def open_primary(self, path: str, deadline_s: float, name: str | None = None) -> AioSenderLink:
        assert self._primary is not None, "senders are used only after pairing"
        self.standing.check_side("primary")
        heard = self.standing.primary_offers
        link = AioSenderLink.open(self._primary, path, deadline_s=deadline_s, name=name, heard=heard)
        return await self._openings.open(link)

    async def to_backlog(self, ask: ToBacklog) -> Answer:
        if self._closing.is_set():
            return self.woke()
        self.standing.check_side("secondary")
        try:
            await self.pool.send(ask.queue, ask.letters, ask.timeout_s, is_patient=ask.is_patient)
        except NoFreeLink as crowd:
            return answers.crowded(crowd.failure, is_moving=crowd.is_moving)
        except LinkFailed as problem:
            if self._closing.is_set():
                return answers.woke(is_closing=True, failure=problem.failure)
            return answers.failed(problem.failure)
        self.standing.count_sent(ask.queue, ask.letters)
        return answers.stored()

    # --- warm links ---

    def lend_warm_queue(self, choice: flows.Choice) -> None:
        """The first sender's choice is the queue to which a link is kept warm; it was chosen by chance too."""
        if not self._is_warm_queue_lent and self._warm_queue is not None:
            choice.queue, self._is_warm_queue_lent = self._warm_queue, True

    def expect_detour(self, choice: flows.Choice) -> None:
        """An attempt failed: have a link ready for the sender's backlog queue, in case it is needed."""
        if choice.queue is None:
            choice.queue = self.pair.rotation.pick(None, monotonic(), answers.chance())
        self._warm_up(choice.queue)

    def _warm_up(self, queue: int | None) -> None:
        if queue is not None and self.pair.secondary.is_open and not self.pool.is_warm(queue):
            self._begin(self.pool.warm_up(queue, self.rules.attempt_s))

    # --- waiting ---

    def woke(self) -> Woke:
        return answers.woke(is_closing=self._closing.is_set())

    @property
    def is_closing(self) -> bool:
        return self._closing.is_set()

    async def wait(self, ask: Pause | WaitTurn) -> Woke:
        """Let time pass, until it is a held send's turn, or the client closes."""
        if isinstance(ask, Pause):
            await _wait_for(self._closing, ask.seconds)
            return self.woke()
        turn = self._turns.setdefault(ask.ticket, asyncio.Event())
        await _wait_for(turn, 0 if self._closing.is_set() else ask.seconds)
        turn.clear()
        return self.woke()

    def forget_turn(self, ticket: int) -> None:
        self._turns.pop(ticket, None)

    # --- the core ---

    async def run(self, flow: Flow[Result], perform: Callable[[Ask], Awaitable[Answer]]) -> Result:
        return await drive.run_async(flow, perform, self.settle)

    def feed(self, entity: Entity, make: Callable[[float, int], Event]) -> None:
        """Something happened to an entity just now; `make` gets the time and the entity's epoch."""
        self.pair.feed(entity, make(monotonic(), entity.epoch))
        self.settle()

    def succeeded(self, entity: Entity, epoch: int) -> None:
        """The primary took something on the straight way."""
        self.feed(entity, lambda at, _: SendSucceeded(at, epoch))

    def doubted(
        self, entity: Entity, failure: Failure, message_ids: tuple[str, ...], sizes: tuple[int, ...] = ()
    ) -> None:
        """An attempt on the straight way was given up in the middle."""
        self.pair.doubted(entity, failure, message_ids, "primary", sizes=sizes)
        self.settle()

    def warn_once(self, entity: Entity, name: str, text: str, **details: object) -> None:
        self.pair.warn_once(entity, name, text, **details)
        self.settle()

    def settle(self) -> None:
        """Carry out what the core has ordered."""
        if self.pair.has_orders:
            for entity, effect in self.pair.take_orders():
                self._carry_out(entity, effect)

    def _carry_out(self, entity: Entity | None, effect: Effect) -> None:
        match effect:
            case Tell(name, text, details):
                whose = self.standing.namespace_of(entity, effect)
                path = None if entity is None else entity.path
                self.standing.told(entity, effect)
                self.news.tell(name, text, entity=path, namespace=whose, details=details)
            case Rouse(ticket):
                if self.pair.is_awaited(entity, ticket):
                    self._turns.setdefault(ticket, asyncio.Event()).set()
            case TrySecondary(at):
                self._call_at("secondary", at, lambda: self._begin(self._try_secondary()))
            case WakeMe(at) if entity is not None:
                self._call_at(("wake", entity.path), at, lambda: self._wake(entity))
            case ForgetWake() if entity is not None:
                self._cancel(("wake", entity.path))
            case PingPrimary(at) if entity is not None:
                self._call_at(("ping", entity.path), at, lambda: self._begin(self._ping(entity)))
            case StopPings() if entity is not None:
                self._cancel(("ping", entity.path))

    async def _try_secondary(self) -> None:
        await self.run(probing.try_secondary(self.pair, monotonic()), self._open_backlog)

    async def _open_backlog(self, ask: Ask) -> Answer:
        assert isinstance(ask, OpenBacklog)
        if self.standing.has_side_ended("secondary"):
            return answers.stored()  # whoever waits is to go on, and be told so
        try:
            await self.pool.open_another(ask.queue, ask.timeout_s)
        except LinkFailed as problem:
            return answers.failed(problem.failure)
        except Exception as error:  # whatever it was: a trial that is not reported would be the last one
            return answers.failed(describe(error, sending=False))
        return answers.stored()

    def _wake(self, entity: Entity) -> None:
        self.feed(entity, lambda at, epoch: TimeCame(at, epoch, answers.chance()))

    async def _ping(self, entity: Entity) -> None:
        if self.standing.has_side_ended("primary"):
            return
        async with self._ping_room:
            await self.run(probing.ping(self.pair, entity), lambda ask: self._probe(ask, entity))

    async def _probe(self, ask: Ask, entity: Entity) -> Answer:
        assert isinstance(ask, Probe)
        until = monotonic() + ask.timeout_s
        size, failure = 0, None
        try:
            link = await self.open_primary(ask.path, ask.timeout_s)
            try:
                if ask.sends_ping:
                    await link.send(ping_message(), max(0.001, until - monotonic()))
            finally:
                size = sum(link.sent_sizes())
                link.discard()
        except LinkFailed as problem:
            failure = problem.failure
        except Exception as error:  # whatever it was: a ping that is not reported would be the last one
            failure = describe(error, sending=False)
        self.standing.probed(entity, "ping" if ask.sends_ping else "link", size, failure)
        return answers.stored() if failure is None else answers.failed(failure)

    def _sweep(self) -> None:
        self.pool.close_idle(keep=self._warm_queue)
        self._warm_up(self._warm_queue)
        self.pair.look_at_secondary(monotonic())
        self.settle()
        self._call_at("sweep", monotonic() + SWEEP_S, self._sweep)

    # --- time and tasks ---

    def _call_at(self, key: Hashable, at: float, job: Callable[[], None]) -> None:
        self._cancel(key)
        if self._closing.is_set():
            return
        loop = asyncio.get_running_loop()
        self._timers[key] = loop.call_at(loop.time() + at - monotonic(), self._when_due, key, job)

    def _when_due(self, key: Hashable, job: Callable[[], None]) -> None:
        self._timers.pop(key, None)
        job()

    def _cancel(self, key: Hashable) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        if self._closing.is_set():
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            LOGGER.error("event=internal_error reason=%r", "a background task failed", exc_info=error)


async def _close_thoroughly(client: ServiceBusClient) -> None:
    """Close a client of the SDK and all that it has made, whatever one of them raises.

    The SDK goes through its senders and receivers while they come and go, and gives up when one does; so each of those
    that are there now is closed first, and it finds none.
    """
    made = tuple(client._handlers)
    client._handlers.clear()
    for each in (*made, client):
        try:
            await each.close()
        except Exception:
            LOGGER.debug("the SDK could not close %r", each, exc_info=True)


async def _wait_for(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
