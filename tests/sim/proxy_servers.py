"""Simulated servers: shipping links, timers and back-pressure, on simulated sockets.

The namespace is the shipping machine and commit gate on a simulated disk. The proxy is put together as `ProxyServer`
does it, without a port of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any

from sim.disk import SimulatedStore
from sim.proxy_history import History
from sim.proxy_loop import Process, SimulatedLoop, start
from sim.proxy_network import Network, WireEnd
from twinbus.amqp.codec.outcomes import Error
from twinbus.amqp.limits import ConnectionLimits
from twinbus.amqp.peer_memory import Account, AccountPool
from twinbus.amqp.sending_link import SendingLink
from twinbus.broker.auth.access_rules import RuleBook
from twinbus.broker.auth.authority import Authority
from twinbus.broker.auth.keyring import rules_with_keys
from twinbus.broker.core.commands import Command
from twinbus.broker.core.commit_gate import CommitGate
from twinbus.broker.core.namespace_backend import NamespaceBackend
from twinbus.broker.core.namespace_machine import NamespaceMachine
from twinbus.broker.faults.fault_table import FaultTable
from twinbus.broker.faults.switch import FaultSwitch, NoPort
from twinbus.broker.faults.throttle import Throttle, ThrottleLimits
from twinbus.broker.limits import ServerLimits, TrafficLimits
from twinbus.broker.links.backend import Backend, EncodedDelivery, LinkNotice
from twinbus.broker.links.connection_context import ConnectionContext
from twinbus.broker.links.request_messages import Request
from twinbus.broker.message import MessageReader
from twinbus.broker.net.accepted_connection import AcceptedConnection
from twinbus.broker.net.amqp_connection import AmqpConnection
from twinbus.broker.net.amqp_server import AmqpServer
from twinbus.broker.ops.meter import Meter
from twinbus.broker.scheduler import OutputScheduler, Scheduler
from twinbus.broker.store.api import Change, ReadRequest, StoredNamespace
from twinbus.errors import StoreError

KEY = "c2ltdWxhdGVk"
RECOVERY_S = 1.0


class TimedStore(SimulatedStore):
    """Writes and reads by itself, each a little later."""

    def __init__(self, disk: History, loop: SimulatedLoop, random: Random, delay_s: float) -> None:
        super().__init__(disk)
        self._loop, self._random, self._delay_s = loop, random, delay_s
        self._is_busy = False
        self.fails_next = False
        """Whether the next commit fails."""

    def submit(self, number: int, changes: tuple[Change, ...]) -> None:
        super().submit(number, changes)
        self._work_soon()

    def request(self, request: ReadRequest) -> None:
        super().request(request)
        self._work_soon()

    def _work_soon(self) -> None:
        if not self._is_busy:
            self._is_busy = True
            self._loop.call_later(self._random.random() * self._delay_s, self._work)

    def _work(self) -> None:
        """A write and its report are two moments: between them the power may go."""
        self._is_busy = False
        if self.fails_next and self.waiting:
            self.fails_next = False
            self.fail_commit()
        self.commit(len(self.waiting))
        while self.asked:
            self.read(0)
        self._loop.call_later(self._random.random() * self._delay_s, self.report_all)

    def report_all(self) -> None:
        while self.reports or self.answers or self.has_outdated:
            if self.reports or self.has_outdated:
                self.deliver_report()
            else:
                self.deliver_answer(0)


class Acceptance(AcceptedConnection):
    """A connection that was accepted: what a listener and its socket would know of it."""

    def __init__(self, pool: AccountPool) -> None:
        self.is_excess = self.is_authenticated = False
        self.account = Account(ServerLimits().held_bytes, pool, close=lambda: None)

    @property
    def must_use_tls(self) -> bool:
        return False

    def mark_authenticated(self) -> None:
        self.is_authenticated = True

    def closed(self) -> None:
        self.account.leave()

    def free_memory(self) -> None: ...


class SimulatedServer:
    """A process that serves links on a host of the network; it can die and start anew."""

    def __init__(self, name: str, loop: SimulatedLoop, network: Network, seed: int, seen: Counter[str]) -> None:
        self.name, self.loop, self.network, self.seen = name, loop, network, seen
        self.random = Random(f"{seed} {name}")
        self.route = network.route(name)
        self.lives = count(1)
        self.process = Process("nobody", loop)
        self.process.is_alive = self._has_booted = False
        self.note: Callable[[object, object], None] = lambda _who, _what: None
        """Gets what happens to it, for the trace."""
        self.limits = TrafficLimits()
        self.unsettled_max = ConnectionLimits().unsettled_max
        """What one receiver may leave unsettled."""
        self.context: ConnectionContext
        self.amqp: AmqpServer
        self.scheduler: OutputScheduler
        self._pool: AccountPool

    @property
    def is_up(self) -> bool:
        return self.process.is_alive and self._has_booted

    def start(self) -> None:
        """Begin a new life, if it is dead."""
        if not self.process.is_alive:
            self.note(self.name, "starts")
            self.process = Process(f"{self.name} {next(self.lives)}", self.loop)
            start(self.process, self._begin)

    async def _begin(self) -> None:
        self._pool = AccountPool(ServerLimits().held_bytes_all)
        await self.boot()
        self._has_booted = True
        self.route.listen(self.process, self._accept)

    async def boot(self) -> None:
        """Build everything anew; in its process."""
        raise NotImplementedError

    def die(self, *, quietly: bool = False) -> None:
        """All that it had in memory is gone. Quietly: nobody closes its connections."""
        what = f"died{' quietly' if quietly else ''}"
        self.seen[f"{self.name}: {what}"] += 1
        self.note(self.name, what)
        self._has_booted = False
        self.process.kill()
        self.network.lose(self.process, quietly=quietly)

    def _accept(self, _end: WireEnd) -> AmqpConnection:
        accepted = AmqpConnection(self.amqp, Acceptance(self._pool))
        accepted.connection.limits = replace(accepted.connection.limits, unsettled_max=self.unsettled_max)
        return accepted

    def receiver(self, link: str) -> SendingLink | None:
        """This end of a receiver with that name."""
        links = self.context._receivers.values() if self.is_up else ()
        return next((each for _, each in links if each.name == link), None)

    def serve(self, backend: Backend, make_scheduler: Callable[[ConnectionContext, Any], OutputScheduler]) -> None:
        """Links in front of a back end, as every server has them."""
        faults, clock = FaultTable(self.random.random), self.loop.now_ms
        rules = rules_with_keys(KEY, (), None)
        self.context = ConnectionContext(
            backend=backend,
            messages=self.messages,
            meter=Meter(),
            authority=Authority(RuleBook(rules)),
            limits=self.limits,
            faults=faults,
            throttle=Throttle(ThrottleLimits()),
            connections=lambda: len(self.amqp.connections),
            clock=clock,
        )
        self.scheduler = make_scheduler(self.context, lambda: self.amqp.relieve())
        self.amqp = AmqpServer(
            self.context,
            ServerLimits(),
            self.name,
            after_action=self.scheduler.after_action,
            between_steps=getattr(self.scheduler, "take_reports", lambda: None),
        )

    @property
    def messages(self) -> MessageReader:
        numbers = count(1)
        return MessageReader(self.limits.message_bytes_max, lambda: f"given-{next(numbers)}")


class ObservedBackend(NamespaceBackend):
    """Reports the responses to requests."""

    on_response: Callable[[str, Request, bytes], None]

    def request(
        self,
        path: str,
        request: Request,
        connection: int,
        holder: int | None,
        now_ms: int,
        on_response: Callable[[bytes], None],
        transaction: int | None = None,
    ) -> None:
        def respond(response: bytes) -> None:
            self.on_response(path, request, response)
            on_response(response)

        super().request(path, request, connection, holder, now_ms, respond, transaction)


class SimulatedNamespace(SimulatedServer):
    def __init__(self, name: str, loop: SimulatedLoop, network: Network, seed: int, seen: Counter[str]) -> None:
        super().__init__(name, loop, network, seed, seen)
        self.disk = History()
        self.on_delivery: Callable[[str, bytes | None, bytes], None] = lambda _link, _token, _payload: None
        """Gets the link's name, the token and the encoded message of everything that is delivered."""
        self.on_response: Callable[[str, Request, bytes], None] = lambda _path, _request, _response: None
        """Gets the entity, the request and the encoded response of everything that is requested."""
        self._delay_s = self.random.choice((0.0005, 0.005, 0.05))
        self.store: TimedStore
        self.gate: CommitGate
        self.life = 0
        """Counts starts and recoveries: a lock does not outlast either."""

    async def boot(self) -> None:
        self.life += 1
        self.store = store = TimedStore(self.disk, self.loop, self.random, self._delay_s)
        self.gate = gate = CommitGate(
            store, self._build, lambda notice: backend.notify(notice), self._store_failed, flush=self._flush
        )
        backend = ObservedBackend(gate, self.messages, Meter(), self._notify)
        backend.on_response = self.on_response
        switch = FaultSwitch(FaultTable(self.random.random), NoPort(), write_dump=lambda _: None)
        self.serve(backend, lambda context, relieve: Scheduler(gate, context, switch, self.loop.now_ms, relieve))
        scheduler = self.scheduler
        assert isinstance(scheduler, Scheduler)
        store.start(scheduler.take_report_from_thread)
        scheduler.set_timer()

    def _build(self, stored: StoredNamespace) -> NamespaceMachine:
        return NamespaceMachine(stored, new_token=lambda: self.random.randbytes(16))

    def _flush(self) -> None:
        self.scheduler.flush()

    def _notify(self, notice: LinkNotice) -> None:
        if isinstance(notice, EncodedDelivery):
            found = self.context._receivers.get(notice.receiver)
            if found is not None:
                self.on_delivery(found[1].name, notice.token, notice.payload)
        self.context.notify(notice)

    # --- its disk ---

    def die(self, *, quietly: bool = False) -> None:
        """What was not written is lost; of what was submitted, some may be written."""
        if self.is_up and not self.store.is_broken:
            self.store.commit(self.random.randint(0, len(self.store.waiting)))
        super().die(quietly=quietly)

    def fail_disk(self) -> None:
        """A commit fails: everybody who waits for it is refused, and the namespace starts again from its disk."""
        if self.is_up:
            self.store.fails_next = True

    def _store_failed(self, reason: str) -> None:
        self.seen[f"{self.name}: disk failed"] += 1
        self.note(self.name, "disk failed")
        self.amqp.close_connections(Error("amqp:internal-error", f"the namespace cannot use its store: {reason}"))
        self.loop.call_later(RECOVERY_S, self._recover)

    def _recover(self) -> None:
        try:
            self.gate.recover()
            self.life += 1
        except StoreError:
            self.loop.call_later(RECOVERY_S, self._recover)
        else:
            self.scheduler.set_timer()

    # --- what its owner does ---

    def administer(self, command: Command[Any]) -> None:
        """Done at once, if it is up."""
        if self.is_up and self.gate.failure is None:
            self.process.run(self._administer, command)

    def _administer(self, command: Command[Any]) -> None:
        self.gate.do(command, self.loop.now_ms())
        self.scheduler.after_action()
