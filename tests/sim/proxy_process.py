"""The simulated proxy: shipping sends, relay and connections, behind shipping links.

It is put together as `ProxyServer` does it, without a port. Only what is found out over HTTP when a pair is made is
known beforehand: which backlog queues there are. Half of the proxies have a spool.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from sim.proxy_loop import SimulatedLoop
from sim.proxy_network import Network
from sim.proxy_servers import KEY, SimulatedNamespace, SimulatedServer, TimedStore
from sim.proxy_spool import SimulatedOwnSpool, SpoolMachine
from twinbus.broker.scheduler import OutputScheduler
from twinbus.client.aio.concurrency import called_where_it_runs
from twinbus.client.namespace import Namespace
from twinbus.client.options import Retry, SendAvailabilityPairedNamespaceOptions
from twinbus.client.setup.preparation import Preparation
from twinbus.connection_string import ROOT_KEY_NAME
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.proxy.backend import ProxyBackend
from twinbus.proxy.relay.relay import Relay
from twinbus.proxy.relay.requested_messages import SettlementObserver
from twinbus.proxy.relay.transactions import TransactionRelay
from twinbus.proxy.relay.upstream import UpstreamConnections
from twinbus.proxy.sending.pair_client import ProxySends

PRIMARY_NAME = "contoso"


class SimulatedAddress(Namespace):
    """How to reach a simulated namespace; what it has is known without a request over HTTP."""

    queues: list[str]

    async def _list_queues(self, attempt_s: float) -> list[list[str]]:
        return [self.queues]


def address_of(server: SimulatedServer, queues: list[str]) -> SimulatedAddress:
    text = f"Endpoint=sb://{server.name}:5672;SharedAccessKeyName={ROOT_KEY_NAME};SharedAccessKey={KEY}"
    address = SimulatedAddress.from_connection_string(f"{text};UseDevelopmentEmulator=true", name=server.name)
    assert isinstance(address, SimulatedAddress)
    address.queues = queues
    return address


class KnownQueues:
    """Stands for what finds and tries the backlog queues."""

    def __init__(self, count: int) -> None:
        self._found = Preparation(queues=tuple(range(count)))

    async def prepare(self, _plan: object) -> Preparation:
        return self._found

    async def recheck(self, _plan: object, _before: object) -> Preparation:
        return self._found

    async def __aenter__(self) -> KnownQueues:
        return self

    async def __aexit__(self, *_: object) -> None: ...


class SimulatedProxy(SimulatedServer):
    def __init__(
        self,
        loop: SimulatedLoop,
        network: Network,
        primary: SimulatedNamespace,
        secondary: SimulatedNamespace,
        seed: int,
        seen: Counter[str],
    ) -> None:
        super().__init__("proxy", loop, network, seed, seen)
        self.observer: SettlementObserver | None = None
        random = self.random
        self.unsettled_max = random.choice((3, 40, 65_536))
        self.attempt_s = random.choice((0.5, 3.0, 15.0))
        self.queues = [backlog_path(PRIMARY_NAME, index) for index in range(random.choice((1, 2, 3)))]
        self._primary, self._secondary = address_of(primary, []), address_of(secondary, self.queues)
        has_spool = random.random() < 0.5
        self.options = SendAvailabilityPairedNamespaceOptions(
            self._secondary,
            failover_interval=_seconds(random.choice((0.0, 1.0, 10.0))),
            backlog_queue_count=len(self.queues),
            ping_primary_interval=_seconds(random.choice((1.0, 5.0))),
            enable_syphon=True,
            hold_sends=random.random() < 0.5,
            attempt_timeout=_seconds(self.attempt_s),
            retry=Retry(attempts=random.choice((1, 3))),
            probation=_seconds(random.choice((1.0, 20.0))),
            order=None if has_spool else random.choice((None, "session")),
            primary_name=PRIMARY_NAME,
            spool="simulated" if has_spool else None,
            spool_max=random.choice((64 * 1024, 2**30)),
        )
        delay_s = random.choice((0.001, 0.02, 0.2))
        self.spool = SpoolMachine(loop, network, lambda: TimedStore(self.spool.disk, loop, random, delay_s))
        self.on_doubt: Callable[[Iterable[str]], None] = lambda _ids: None
        self.sends: ProxySends
        self.relay: Relay
        self.upstream: UpstreamConnections

    async def boot(self) -> None:
        def after_events() -> None:
            if hasattr(self, "scheduler"):
                self.scheduler.after_action()

        self.sends = sends = ProxySends(self._primary, self.options, after_replies=after_events)
        runner: Any = sends._runner
        runner._provisioner = lambda: KnownQueues(len(self.queues))
        runner.state.inspect = lambda: None
        runner.event_log.on("*", self._count)
        if self.options.spool is not None:
            spool = SimulatedOwnSpool(runner.state, runner.event_log.report, called_where_it_runs())
            self.seen["messages in a spool that is taken over"] += len(list(self.spool.disk.all_rows()))
            await spool.begin(self.spool)
            runner._own_spool = lambda: spool
        await sends.start()
        self.upstream = UpstreamConnections(
            self._primary.dial(self.attempt_s), attempt_s=self.attempt_s, after_events=after_events
        )
        self.relay = Relay(self.upstream, lambda notice: self.context.notify(notice), self.observer)
        self.serve(
            ProxyBackend(sends, self.relay, TransactionRelay(self.relay)),
            lambda context, relieve: OutputScheduler(context, self.loop.now_ms, relieve),
        )

    def _count(self, event: Any) -> None:
        self.seen[f"event: {event.name}"] += 1
        self.note(self.name, f"{event.name} {event.entity} {dict(event.details)}")
        if event.name == "in_doubt":
            self.on_doubt(event.details["message_ids"])

    def die(self, *, quietly: bool = False) -> None:
        store = self.spool.store
        if store is not None and not store.is_broken:
            store.commit(self.random.randint(0, len(store.waiting)))
            self.spool.store = None
        super().die(quietly=quietly)
        self.forget()

    def fail_disk(self) -> None:
        """The next commit of its spool fails."""
        if self.spool.store is not None:
            self.spool.store.fails_next = True

    def forget(self) -> None:
        """What the process of the simulator keeps for it."""
        if hasattr(self, "sends"):
            self.sends._watch.stop()


def _seconds(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)
