"""The thread shell of a pair: does what flows ask for and what the core orders, on threads.

One lock guards the core. It is held for the steps of flows and never across I/O; orders are carried out after it is
released, under a lock of their own so that they keep their order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic, sleep

from azure.servicebus import ServiceBusClient

from twinbus.client import answers, drive, flows, probing
from twinbus.client.asks import Answer, Ask, Flow, OpenBacklog, Pause, Probe, Result, ToBacklog, WaitTurn, Woke
from twinbus.client.backlog_pool import BacklogPool, NoFreeLink
from twinbus.client.failures import LinkFailed, describe
from twinbus.client.homecoming import Homecoming, HomecomingThread, news_of, reason_of
from twinbus.client.keeper import Keeper
from twinbus.client.links import SenderLink
from twinbus.client.news_desk import NewsDesk
from twinbus.client.order_witness import OrderWitness
from twinbus.client.pings import ping_message
from twinbus.client.receivers import receiving
from twinbus.client.secretary import Secretary
from twinbus.client.side import Sides
from twinbus.client.standing import CLOSE_PATIENCE_S, FIRST_RECHECK_S, RECHECK_S, Standing
from twinbus.client.status import Phase
from twinbus.client.watchdog import Watchdog
from twinbus.client.weak_register import WeakRegister
from twinbus.pairing.closing import SIDES, SideName
from twinbus.pairing.effects import Effect, ForgetWake, PingPrimary, Rouse, StopPings, Tell, TrySecondary, WakeMe
from twinbus.pairing.entity import Entity
from twinbus.pairing.events import Event, SendSucceeded, TimeCame
from twinbus.pairing.failure import Failure
from twinbus.pairing.secondary import PAUSE_MAX_S
from twinbus.syphon import Alert

SWEEP_S = 30.0
CLOSE_LOOK_S = 0.005


class ThreadShell:
    def __init__(self, standing: Standing) -> None:
        self.standing = standing
        self.pair = standing.pair
        self.rules = standing.pair.rules
        self.lock = threading.RLock()  # a classifier of the application runs under it, and may ask for the status
        self.news = NewsDesk()
        self._settling = threading.Lock()
        self._pairing = threading.Lock()
        self._closing = threading.Event()
        self._turns: dict[int, threading.Event] = {}
        self._keeper = Keeper(self.pair.name)
        self.watchdog = Watchdog()
        self._primary: ServiceBusClient | None = None
        self._primary_links: WeakRegister[SenderLink] = WeakRegister()
        self.receiving: ServiceBusClient
        self._warm_queue: int | None = None
        self._is_warm_queue_lent = False
        self._pool: BacklogPool | None = None
        self._syphon: HomecomingThread | None = None
        self.sides: Callable[[], Sides | None] = lambda: None
        """Who is told when the syphon fails for good, as long as anybody has the client."""

    # --- life ---

    def prepare(self) -> None:
        """Find, create and try the backlog queues; the pair is ready then. Once is enough."""
        with self._pairing:
            self.standing.check_not_ended()
            if self.standing.phase is not Phase.NEW:
                return
            homecoming = self._homecoming()
            with self._secretary() as secretary:
                found = secretary.prepare(self.standing.plan)
            self.standing.open_ledger()  # before anything that would have to be ended if this cannot be
            self._primary = self.standing.primary.sync_client(attempt_s=self.rules.attempt_s)
            self.receiving = receiving(self.standing.primary.sync_client(attempt_s=self.rules.attempt_s))
            client = self.standing.secondary.sync_client(attempt_s=self.rules.attempt_s)
            self._pool = BacklogPool(client, self.standing.queue_path, self.watchdog)
            self._keeper.start()
            with self.lock:
                self.standing.prepared(found, monotonic())
            if self.standing.chronicle is not None:
                self.standing.chronicle.paired(found)
            for warning in (*self.standing.warnings(), *found.warnings):
                self.news.tell("pairing_warning", warning, namespace=self.standing.secondary.name)
            self._warm_queue = self._pick_queue(None)
            self._warm_up(self._warm_queue)
            self._keeper.call_at("sweep", monotonic() + SWEEP_S, self._sweep)
            self._keeper.call_at("recheck", monotonic() + FIRST_RECHECK_S, self.recheck)
            self.settle()
            if homecoming is not None:
                self._syphon = HomecomingThread(homecoming, sorted(found.found), self.pair.name)
                self._syphon.start()
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
            homecoming.witness = OrderWitness(self.pair, self.lock, self.settle)
        return homecoming

    def _tell_alert(self, alert: Alert) -> None:
        self.news.tell(**news_of(alert, self.pair.name, self.standing.secondary.name))
        if alert.name == "refused":
            self._syphon_failed(lambda sides: sides.faulted("secondary", alert.text))

    def _syphon_failed(self, tell: Callable[[Sides], None]) -> None:
        sides = self.sides()
        if sides is not None:
            self._keeper.call_soon(lambda: tell(sides))  # not here: this is the thread that is about to be ended

    def _secretary(self) -> Secretary:
        standing = self.standing
        return Secretary(standing.primary, standing.secondary, attempt_s=self.rules.attempt_s)

    def recheck(self) -> None:
        """Prove again that the backlog queues can be used."""
        before = self.standing.preparation
        if before is None or self.standing.has_ended or self.standing.is_half_open:
            return
        with self._secretary() as secretary:
            found = secretary.recheck(self.standing.plan, before)
        looked = self.standing.inspect()
        with self.lock:
            self.standing.inspection = looked
            self.standing.prepared(found, monotonic())
        for name, text in self.standing.recheck_news(before, found):
            self.news.tell(name, text, namespace=self.standing.secondary.name)
        self._keeper.call_at("recheck", monotonic() + RECHECK_S, self.recheck)
        self.settle()

    def end(self, phase: Phase, reason: str | None = None) -> None:
        """Close, or fault: sends that wait are told, every thread, socket and timer goes."""
        with self.lock:
            if not self.standing.end(phase, reason):
                return
        self._closing.set()
        for turn in tuple(self._turns.values()):
            turn.set()
        self._keeper.stop(CLOSE_PATIENCE_S)
        for side in SIDES:
            self.let_go(side)
        self.settle()
        name = "closed" if phase is Phase.CLOSED else "faulted"
        self.news.tell(name, reason or "by the application", namespace=self.pair.name)

    def let_go(self, side: SideName) -> None:
        """One side has ended: the syphon needs both, and the backlog the secondary."""
        if self._syphon is not None:
            self._syphon.stop()
        if side == "secondary" and self._pool is not None:
            self._pool.close()
            with self.lock:
                self.pair.secondary_ended(monotonic())
            self.settle()

    def call_at(self, key: str, at: float, job: Callable[[], None]) -> None:
        """Do this at that time, on a thread of the shell's own."""
        self._keeper.call_at(key, at, job, is_short=True)

    def cancel(self, key: str) -> None:
        self._keeper.cancel(key)

    def finish(self, is_any_storing: Callable[[], bool]) -> None:
        """What is left to do when all senders are closed; `is_any_storing`: whether one of them is in an attempt."""
        for link in self._primary_links.all():  # of senders that were forgotten instead of closed
            link.discard()
        self.watchdog.stop()
        self._await_sends(is_any_storing)
        self.news.close()
        self.standing.close_ledger()

    def _await_sends(self, is_any_storing: Callable[[], bool]) -> None:
        """Sends that were cut off tell what became of them before the ledger ends."""
        me, began = threading.get_ident(), monotonic()
        while self.standing.has_to_wait(me, is_any_storing, monotonic() - began):
            sleep(CLOSE_LOOK_S)

    # --- what senders need ---

    @property
    def primary(self) -> ServiceBusClient:
        assert self._primary is not None, "senders are used only after pairing"
        return self._primary

    @property
    def pool(self) -> BacklogPool:
        assert self._pool is not None, "senders are used only after pairing"
        return self._pool

    def open_primary(self, path: str, deadline_s: float, name: str | None = None) -> SenderLink:
        self.standing.check_side("primary")
        heard = self.standing.primary_offers
        link = SenderLink.open(
            self.primary, path, deadline_s=deadline_s, watchdog=self.watchdog, name=name, heard=heard
        )
        self._primary_links.add(link)
        return link

    def to_backlog(self, ask: ToBacklog) -> Answer:
        if self._closing.is_set():
            return self.woke()
        self.standing.check_side("secondary")
        try:
            self.pool.send(ask.queue, ask.letters, ask.timeout_s, is_patient=ask.is_patient)
        except NoFreeLink as crowd:
            return answers.crowded(crowd.failure, is_moving=crowd.is_moving)
        except LinkFailed as problem:
            if self._closing.is_set():
                return answers.woke(is_closing=True, failure=problem.failure)
            return answers.failed(problem.failure)
        with self.lock:
            self.standing.count_sent(ask.queue, ask.letters)
        return answers.stored()

    # --- warm links ---

    def lend_warm_queue(self, choice: flows.Choice) -> None:
        """The first sender's choice is the queue to which a link is kept warm; it was chosen by chance too."""
        with self.lock:
            if not self._is_warm_queue_lent and self._warm_queue is not None:
                choice.queue, self._is_warm_queue_lent = self._warm_queue, True

    def expect_detour(self, choice: flows.Choice) -> None:
        """An attempt failed: have a link ready for the sender's backlog queue, in case it is needed."""
        if choice.queue is None:
            choice.queue = self._pick_queue(None)
        self._warm_up(choice.queue)

    def _pick_queue(self, current: int | None) -> int | None:
        with self.lock:
            return self.pair.rotation.pick(current, monotonic(), answers.chance())

    def _warm_up(self, queue: int | None) -> None:
        if queue is not None and self.pair.secondary.is_open and not self.pool.is_warm(queue):
            self._keeper.call_soon(lambda: self.pool.warm_up(queue, self.rules.attempt_s))

    def woke(self) -> Woke:
        return answers.woke(is_closing=self._closing.is_set())

    @property
    def is_closing(self) -> bool:
        return self._closing.is_set()

    def wait(self, ask: Pause | WaitTurn) -> Woke:
        """Let time pass, until it is a held send's turn, or the client closes."""
        if isinstance(ask, Pause):
            self._closing.wait(ask.seconds)
            return self.woke()
        turn = self._turns.setdefault(ask.ticket, threading.Event())
        turn.wait(0 if self._closing.is_set() else ask.seconds)
        turn.clear()
        return self.woke()

    def forget_turn(self, ticket: int) -> None:
        self._turns.pop(ticket, None)

    # --- the core ---

    def run(self, flow: Flow[Result], perform: Callable[[Ask], Answer]) -> Result:
        return drive.run(flow, perform, self.lock, self.settle)

    def feed(self, entity: Entity, make: Callable[[float, int], Event]) -> None:
        """Something happened to an entity just now; `make` gets the time and the entity's epoch."""
        with self.lock:
            self.pair.feed(entity, make(monotonic(), entity.epoch))
        self.settle()

    def succeeded(self, entity: Entity, epoch: int) -> None:
        """The primary took something on the straight way."""
        self.feed(entity, lambda at, _: SendSucceeded(at, epoch))

    def doubted(
        self, entity: Entity, failure: Failure, message_ids: tuple[str, ...], sizes: tuple[int, ...] = ()
    ) -> None:
        """An attempt on the straight way was given up in the middle."""
        with self.lock:
            self.pair.doubted(entity, failure, message_ids, "primary", sizes=sizes)
        self.settle()

    def warn_once(self, entity: Entity, name: str, text: str, **details: object) -> None:
        with self.lock:
            self.pair.warn_once(entity, name, text, **details)
        self.settle()

    def settle(self) -> None:
        """Carry out what the core has ordered."""
        if not self.pair.has_orders:
            return
        with self._settling:
            with self.lock:
                orders = self.pair.take_orders()
            for entity, effect in orders:
                self._carry_out(entity, effect)

    def _carry_out(self, entity: Entity | None, effect: Effect) -> None:
        match effect:
            case Tell(name, text, details):
                # Told here and not later, so that news, log and ledger have the order of the events.
                whose = self.standing.namespace_of(entity, effect)
                path = None if entity is None else entity.path
                self.standing.told(entity, effect)
                self.news.tell(name, text, entity=path, namespace=whose, details=details)
            case Rouse(ticket):
                with self.lock:  # whoever leaves does so under it, and forgets the turn afterwards
                    if self.pair.is_awaited(entity, ticket):
                        self._turns.setdefault(ticket, threading.Event()).set()
            case TrySecondary(at):
                self._keeper.call_at("secondary", at, self._begin_trial, is_short=True)
            case WakeMe(at) if entity is not None:
                self._keeper.call_at(("wake", entity.path), at, lambda: self._wake(entity), is_short=True)
            case ForgetWake() if entity is not None:
                self._keeper.cancel(("wake", entity.path))
            case PingPrimary(at) if entity is not None:
                self._keeper.call_at(("ping", entity.path), at, lambda: self._ping(entity))
            case StopPings() if entity is not None:
                self._keeper.cancel(("ping", entity.path))

    def _begin_trial(self) -> None:
        """On a thread of its own: those of the keeper may all be busy with pings that nobody answers."""
        try:
            self._keeper.call_apart(self._try_secondary, "trial")
        except RuntimeError:  # no further thread can be had now
            self._keeper.call_at("secondary", monotonic() + PAUSE_MAX_S, self._begin_trial, is_short=True)

    def _try_secondary(self) -> None:
        if not self._closing.is_set():
            self.run(probing.try_secondary(self.pair, monotonic()), self._open_backlog)

    def _open_backlog(self, ask: Ask) -> Answer:
        assert isinstance(ask, OpenBacklog)
        if self.standing.has_side_ended("secondary"):
            return answers.stored()  # whoever waits is to go on, and be told so
        try:
            self.pool.open_another(ask.queue, ask.timeout_s)
        except LinkFailed as problem:
            return answers.failed(problem.failure)
        except Exception as error:  # whatever it was: a trial that is not reported would be the last one
            return answers.failed(describe(error, sending=False))
        return answers.stored()

    def _wake(self, entity: Entity) -> None:
        self.feed(entity, lambda at, epoch: TimeCame(at, epoch, answers.chance()))

    def _ping(self, entity: Entity) -> None:
        if not self.standing.has_side_ended("primary"):
            self.run(probing.ping(self.pair, entity), lambda ask: self._probe(ask, entity))

    def _probe(self, ask: Ask, entity: Entity) -> Answer:
        assert isinstance(ask, Probe)
        until = monotonic() + ask.timeout_s
        size, failure = 0, None
        try:
            link = self.open_primary(ask.path, ask.timeout_s)
            try:
                if ask.sends_ping:
                    link.send(ping_message(), max(0.001, until - monotonic()))
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
        with self.lock:
            self.pair.look_at_secondary(monotonic())
        self.settle()
        self._keeper.call_at("sweep", monotonic() + SWEEP_S, self._sweep)
