# Generated from client/aio/pair_runner.py by tests/pages/sync_client.py: edit that file, then run `make pages`.
"""Does what flows ask for and what the pairing core orders, on threads.

One lock guards the core. It is held for the steps of flows and never across I/O; orders are carried out after it is
released, under a lock of their own so that they keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from twinbus.client.core import answers, probes
from twinbus.client.core.client_state import CLOSE_PATIENCE_S, FIRST_RECHECK_S, RECHECK_S, ClientState
from twinbus.client.core.effect_runner import TRIAL, TimerKey, run_effects
from twinbus.client.core.link_rules import NoFreeLink
from twinbus.client.core.own_syphon import OrderObserver, OwnSyphon, event_of, reason_of
from twinbus.client.core.warm_link import WarmLink
from twinbus.client.flows.io_requests import (
    Answer,
    Ask,
    Flow,
    OpenBacklog,
    Probe,
    Result,
    Sleep,
    ToBacklog,
    ToSpool,
    WaitTurn,
    Woke,
)
from twinbus.client.reporting.event_log import EventLog
from twinbus.client.reporting.status import Phase, Status
from twinbus.client.sdk.failures import LinkFailed, describe
from twinbus.client.setup.preparation import Preparation
from twinbus.client.sync import flow_driver
from twinbus.client.sync.board_runner import BoardRunner
from twinbus.client.sync.concurrency import (
    Event,
    Lock,
    called_where_it_runs,
    caller,
    guard_of_the_core,
    in_thread,
    result_within,
    sleep,
    wait_for,
)
from twinbus.client.sync.provisioner import BacklogProvisioner
from twinbus.client.sync.sides import PairSides
from twinbus.client.sync.syphon_runner import SyphonRunner
from twinbus.client.sync.timers import Timers
from twinbus.client.sync.transport import BacklogLinks, Transport
from twinbus.pairing.closing import SIDES, SideFaulted, SideName
from twinbus.pairing.effects import ReportEvent
from twinbus.pairing.entity import Entity
from twinbus.pairing.events import Event as EntityEvent
from twinbus.pairing.events import SendSucceeded, TimeCame
from twinbus.pairing.primary_abilities import Ability
from twinbus.pairing.secondary import PAUSE_MAX_S
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.syphon import Alert

if TYPE_CHECKING:
    from twinbus.client.core.own_board import OwnBoard
    from twinbus.client.core.own_spool import OwnSpool

SWEEP_S = 30.0
CLOSE_LOOK_S = 0.005
BACK = frozenset(("recovered", "secondary_back"))
"""Events after which the spool can be emptied."""
DISK_SILENT = Failure(FailureKind.NO_ANSWER, "the disk gave no answer", in_doubt=True)


class PairRunner:
    def __init__(self, state: ClientState, transport: Transport) -> None:
        self.state = state
        self._transport = transport
        self.pair = state.pair
        self.rules = state.pair.rules
        self.lock = guard_of_the_core()
        self.event_log = EventLog()
        self._settling = guard_of_the_core()
        self._pairing = Lock()
        self._closing = Event()
        self._turns: dict[int, Event] = {}
        self._timers = Timers(self.pair.name)
        self.warm_link = WarmLink(self.pair, self.lock, self._warm_up)
        self._syphon: SyphonRunner | None = None
        self._unstarted_syphon: OwnSyphon | None = None
        self._board: BoardRunner | None = None
        self._last_event: tuple[str, str] | None = None
        self.sides: Callable[[], PairSides | None] = lambda: None
        """Where to report that the syphon failed for good; None once the application has dropped the client."""

    # --- life ---

    def prepare(self) -> None:
        """Find, create and try the backlog queues; the pair is ready then. Once is enough."""
        with self._pairing:
            self.state.check_not_ended()
            if self.state.phase is not Phase.NEW:
                return
            self._unstarted_syphon = self._own_syphon()
            board = self._own_board()
            found = self._find_backlog()
            self._transport.start()
            self._timers.start()
            with self.lock:
                self.state.prepared(found, monotonic())
            if self.state.recorder is not None:
                self.state.recorder.paired(found)
            for warning in (*self.state.warnings(), *found.warnings):
                self.event_log.report("pairing_warning", warning, namespace=self.state.secondary.name)
            for entity, failure in found.managed.items():
                self.tried(entity, Ability.MANAGE, failure)
            self.warm_link.choose()
            self.schedule("sweep", monotonic() + SWEEP_S, self._sweep)
            self._schedule_recheck(FIRST_RECHECK_S)
            self.settle()
            if found.is_complete:
                self._start_syphon(found)
            if board is not None:
                self.state.board, self._board = board, BoardRunner(board, self.pair.name)
                self._board.start()

    def _start_syphon(self, found: Preparation) -> None:
        syphon = self._unstarted_syphon
        if syphon is not None:
            self._unstarted_syphon = None
            self._syphon = SyphonRunner(syphon, sorted(found.found), self.pair.name)
            self._syphon.start()
            self.state.syphon = syphon

    def _find_backlog(self) -> Preparation:
        """What has to be there before the first send, the spool too; if something is not, nothing is left open."""
        spool = self._own_spool()
        if spool is not None:
            in_thread(spool.start)
        try:
            with self._provisioner() as provisioner:
                found = provisioner.prepare(self.state.plan)
            self.state.open_ledger()
        except BaseException:
            if spool is not None:
                in_thread(spool.stop)
            raise
        self.state.spool = spool
        return found

    def _own_board(self) -> OwnBoard | None:
        """What reports on the board, if this client does; raises what would keep it from ever connecting."""
        if not self.state.options.board:
            return None
        from twinbus.client.core.own_board import OwnBoard

        return OwnBoard(
            self.state, self._status_for_others, self.event_log.report, self._is_suspect, self._others_failed_over
        )

    def _status_for_others(self) -> Status:
        """Without what only this process has counted."""
        with self.lock:
            return self.state.status(monotonic(), lambda _entity: 0, self.event_log.dropped)

    def _is_suspect(self) -> bool:
        with self.lock:
            return self.pair.is_any_suspect

    def _others_failed_over(self, confirmed: Mapping[str, Sequence[str]]) -> None:
        """A quorum of other hosts has failed these entities over: those that fail here too do not wait any longer."""
        with self.lock:
            for path, hosts in confirmed.items():
                self.pair.others_failed_over(path, tuple(hosts), monotonic(), answers.chance())
        self.settle()

    def _wake_board(self) -> None:
        """Something may have changed."""
        if self._board is not None:
            self._board.wake()

    def _report_of_spool(self, name: str, text: str, *, details: dict[str, object]) -> None:
        self.event_log.report(name, text, details=details)
        self._wake_board()

    def _own_spool(self) -> OwnSpool | None:
        if self.state.options.spool is None:
            return None
        from twinbus.client.core.own_spool import OwnSpool  # it brings the store of a namespace along

        return OwnSpool(self.state, self._report_of_spool, called_where_it_runs())

    def _own_syphon(self) -> OwnSyphon | None:
        """What a syphon is made of, if this client is to have one; raises what would keep it from ever connecting."""
        if not self.state.options.enable_syphon:
            return None
        syphon = OwnSyphon(
            self.state,
            self._report_alert,
            lambda error: self._syphon_failed(lambda sides: sides.broke(reason_of(error))),
        )
        if self.pair.fences is not None:
            syphon.observer = OrderObserver(self.pair, self.lock, self.settle)
        return syphon

    def _report_alert(self, alert: Alert) -> None:
        self.event_log.report(**event_of(alert, self.pair.name, self.state.secondary.name))
        self._wake_board()
        if alert.name == "refused":
            self._syphon_failed(lambda sides: sides.happened(SideFaulted(monotonic(), "secondary", alert.text)))

    def _syphon_failed(self, report: Callable[[PairSides], None]) -> None:
        sides = self.sides()
        if sides is not None:
            self._timers.begin(lambda: report(sides))  # not here: what runs here is about to be ended

    def _provisioner(self) -> BacklogProvisioner:
        return BacklogProvisioner(self.state.primary, self.state.secondary, attempt_s=self.rules.attempt_s)

    def recheck(self) -> None:
        """Prove again that the backlog queues can be used."""
        before = self.state.preparation
        if before is None or self.state.has_ended or self.state.is_half_open:
            return
        with self._provisioner() as provisioner:
            found = provisioner.recheck(self.state.plan, before)
        inspection = in_thread(self.state.inspect) if found.is_complete else None
        with self.lock:
            self.state.inspection = inspection
            self.state.prepared(found, monotonic())
        for name, text in self.state.recheck_events(before, found):
            self.event_log.report(name, text, namespace=self.state.secondary.name)
        if found.is_complete and not before.is_complete:
            self._reached(found)
        self._schedule_recheck(RECHECK_S)
        self.settle()

    def _reached(self, found: Preparation) -> None:
        """The secondary could not be reached when the pair was made, and now its backlog queues are there."""
        if self.state.recorder is not None:
            self.state.recorder.paired(found)
        if self.state.spool is not None:
            self.state.spool.wake()
        self.warm_link.choose()
        self._start_syphon(found)

    def _schedule_recheck(self, usual_s: float) -> None:
        at = monotonic() + self.state.recheck_s(usual_s)
        self.schedule("recheck", at, lambda: self._timers.begin(self.recheck))

    def end(self, phase: Phase, reason: str | None = None) -> None:
        """Close, or fault: sends that wait end, and nothing begins any more."""
        with self.lock:
            if not self.state.end(phase, reason):
                return
        self._closing.set()
        for turn in tuple(self._turns.values()):
            turn.set()
        self._timers.end()
        self._transport.end_primary()
        self._transport.end_backlog()
        self.settle()
        self._last_event = ("closed" if phase is Phase.CLOSED else "faulted", reason or "by the application")

    def let_go(self, side: SideName) -> None:
        """One side has ended: the syphon needs both, and the backlog the secondary."""
        if self._syphon is not None:
            self._syphon.stop()
        if side == "secondary":
            if self._board is not None:
                self._board.stop()
            self._transport.end_backlog()
            with self.lock:
                self.pair.secondary_ended(monotonic())
            self.settle()

    def finish(self, is_any_storing: Callable[[int], bool]) -> None:
        """What is left to do when all senders are closed: nothing stays behind.

        `is_any_storing`: whether one of them is in an attempt, on another thread than this one.
        """
        try:
            for side in SIDES:
                self.let_go(side)
            self._timers.stop(CLOSE_PATIENCE_S)
            self._transport.hang_up()
            self._wait_for_sends(is_any_storing)
            if self.state.spool is not None:
                in_thread(self.state.spool.stop)
            if self._last_event is not None:  # nothing is reported after it: timers, syphon and sends have ended
                name, text = self._last_event
                self._last_event = None
                self.event_log.report(name, text, namespace=self.pair.name)
            self.event_log.close()
            self._transport.close()
        finally:
            self._transport.wait_closed()
            in_thread(self.state.close_ledger)

    def _wait_for_sends(self, is_any_storing: Callable[[int], bool]) -> None:
        """Sends that were cut off record what became of them before the ledger ends."""
        me, began = caller(), monotonic()
        while self.state.has_to_wait(me, lambda: is_any_storing(me), monotonic() - began):
            sleep(CLOSE_LOOK_S)

    # --- what senders need ---

    @property
    def pool(self) -> BacklogLinks:
        return self._transport.backlog

    def to_backlog(self, ask: ToBacklog) -> Answer:
        if self._closing.is_set():
            return self.woke()
        self.state.check_side("secondary")
        try:
            self.pool.send(ask.queue, ask.encoded, ask.timeout_s, is_patient=ask.is_patient)
        except NoFreeLink as problem:
            return answers.no_turn(problem.failure, is_moving=problem.is_moving)
        except LinkFailed as problem:
            if self._closing.is_set():
                return answers.woke(is_closing=True, failure=problem.failure)
            return answers.failed(problem.failure)
        with self.lock:
            self.state.count_sent(ask.queue, ask.encoded)
        return answers.stored()

    def to_spool(self, path: str, ask: ToSpool) -> Answer:
        if self._closing.is_set():
            return self.woke()
        assert self.state.spool is not None, "without a spool nobody asks for it"
        try:
            failure = result_within(self.state.spool.put(path, ask.encoded), ask.timeout_s)
        except TimeoutError:
            failure = DISK_SILENT
        return answers.stored() if failure is None else answers.failed(failure)

    def _warm_up(self, queue: int) -> None:
        if not self.pool.is_warm(queue):
            self._timers.begin(lambda: self.pool.warm_up(queue, self.rules.attempt_s))

    # --- waiting ---

    def woke(self) -> Woke:
        return answers.woke(is_closing=self._closing.is_set())

    @property
    def is_closing(self) -> bool:
        return self._closing.is_set()

    def wait(self, ask: Sleep | WaitTurn) -> Woke:
        """Let time pass, until it is a held send's turn, or the client closes."""
        if isinstance(ask, Sleep):
            wait_for(self._closing, ask.seconds)
            return self.woke()
        turn = self._turns.setdefault(ask.ticket, Event())
        wait_for(turn, 0 if self._closing.is_set() else ask.seconds)
        turn.clear()
        return self.woke()

    def forget_turn(self, ticket: int) -> None:
        self._turns.pop(ticket, None)

    # --- the core ---

    def run(self, flow: Flow[Result], perform: Callable[[Ask], Answer]) -> Result:
        return flow_driver.run(flow, perform, self.lock, self.settle)

    def feed(self, entity: Entity, make: Callable[[float, int], EntityEvent]) -> None:
        """Something happened to an entity just now; `make` gets the time and the entity's epoch."""
        with self.lock:
            self.pair.feed(entity, make(monotonic(), entity.epoch))
        self.settle()

    def succeeded(self, entity: Entity, epoch: int) -> None:
        """The primary took what was sent directly."""
        self.feed(entity, lambda at, _: SendSucceeded(at, epoch))

    def doubted(
        self, entity: Entity, failure: Failure, message_ids: tuple[str, ...], sizes: tuple[int, ...] = ()
    ) -> None:
        """A direct send was given up in the middle."""
        with self.lock:
            self.pair.doubted(entity, failure, message_ids, "primary", sizes=sizes)
        self.settle()

    def tried(self, path: str, ability: Ability, failure: Failure | None) -> None:
        """An entity or subscription of the primary was received from, or managed; cheap while it works."""
        if failure is None and self.pair.abilities.works(path, ability):
            return
        with self.lock:
            self.pair.tried(path, ability, monotonic(), failure)
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
            run_effects(self.pair, orders, self)

    # --- ports of the effect runner ---

    def schedule(self, key: Hashable, at: float, job: Callable[[], None]) -> None:
        self._timers.schedule(key, at, job)

    def cancel(self, key: Hashable) -> None:
        self._timers.cancel(key)

    def wake(self, ticket: int) -> None:
        self._turns.setdefault(ticket, Event()).set()

    def report(self, entity: Entity | None, event: ReportEvent) -> None:
        # Here and not later, so that callbacks, log and ledger have the order of the events.
        path = event.details.get("path") if entity is None else entity.path
        self.state.record_event(entity, event)
        namespace = self.state.namespace_of(entity, event)
        path = path if isinstance(path, str) else None
        self.event_log.report(event.name, event.text, entity=path, namespace=namespace, details=event.details)
        if self.state.spool is not None and event.name in BACK:
            self.state.spool.wake()
        self._wake_board()

    def time_came(self, entity: Entity) -> None:
        self.feed(entity, lambda at, epoch: TimeCame(at, epoch, answers.chance()))

    def ping(self, entity: Entity) -> None:
        self._timers.begin(lambda: self._ping(entity))

    def try_secondary(self) -> None:
        self.begin_apart(TRIAL, self._try_secondary)

    def begin_apart(self, key: Hashable, work: Callable[[], None]) -> None:
        """Begin work that must not wait for pings that nobody answers; later, if nothing more can begin now."""
        if not self._timers.begin_apart(work, key.kind if isinstance(key, TimerKey) else str(key)):
            self.schedule(key, monotonic() + PAUSE_MAX_S, lambda: self.begin_apart(key, work))

    # --- trials and pings ---

    def _try_secondary(self) -> None:
        if not self._closing.is_set():
            self.run(probes.try_secondary(self.pair, monotonic()), self._open_backlog)

    def _open_backlog(self, ask: Ask) -> Answer:
        assert isinstance(ask, OpenBacklog)
        if self.state.has_side_ended("secondary"):
            return answers.stored()  # sends that wait go on, and raise that it is closed
        try:
            self.pool.open_another(ask.queue, ask.timeout_s)
        except LinkFailed as problem:
            return answers.failed(problem.failure)
        except Exception as error:  # whatever it was: a trial that is not reported would be the last one
            return answers.failed(describe(error, sending=False))
        return answers.stored()

    def _ping(self, entity: Entity) -> None:
        if self.state.has_side_ended("primary"):
            return
        with self._timers.slots:
            self.run(probes.ping(self.pair, entity), lambda ask: self._probe(ask, entity))

    def _probe(self, ask: Ask, entity: Entity) -> Answer:
        assert isinstance(ask, Probe)
        size, failure = self._transport.probe(ask.path, ask.timeout_s, sends_ping=ask.sends_ping)
        self.state.probed(entity, "ping" if ask.sends_ping else "link", size, failure)
        return answers.stored() if failure is None else answers.failed(failure)

    def _sweep(self) -> None:
        self.pool.close_idle(keep=self.warm_link.queue)
        self.warm_link.keep()
        with self.lock:
            self.pair.look_at_secondary(monotonic())
        self.settle()
        self.schedule("sweep", monotonic() + SWEEP_S, self._sweep)
