"""A running proxy: a port that applications take for a namespace, and the pair behind it."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twinbus import __version__
from twinbus.amqp.codec.outcomes import Error
from twinbus.amqp.codec.performatives import DROPS_PINGS
from twinbus.broker.auth.access_rules import AccessRule, RuleBook
from twinbus.broker.auth.authority import Authority
from twinbus.broker.auth.keyring import rules_with_keys
from twinbus.broker.clock import WallClock
from twinbus.broker.data_directory import make_namespace_directory
from twinbus.broker.endpoint import EndpointServer
from twinbus.broker.faults.fault_table import FaultTable
from twinbus.broker.faults.throttle import Throttle, ThrottleLimits
from twinbus.broker.links.connection_context import ConnectionContext
from twinbus.broker.message import MessageReader
from twinbus.broker.net.amqp_server import AmqpServer
from twinbus.broker.ops.meter import Meter, Metered
from twinbus.broker.ops.metrics import Snapshot, as_prometheus
from twinbus.broker.scheduler import OutputScheduler
from twinbus.broker.store.locked_file import LockFile
from twinbus.client.reporting.status import Status
from twinbus.proxy.administration.administration import make_administration
from twinbus.proxy.backend import ProxyBackend
from twinbus.proxy.options import ProxyOptions
from twinbus.proxy.readiness import readiness
from twinbus.proxy.relay.relay import Relay
from twinbus.proxy.relay.settlement_records import SettlementRecords
from twinbus.proxy.relay.transactions import TransactionRelay
from twinbus.proxy.relay.upstream import UpstreamConnections
from twinbus.proxy.sending.pair_client import ProxySends


class ProxyServer(EndpointServer[ProxyOptions]):
    """One proxy on one port. `async with ProxyServer(options) as running:` serves until the block ends."""

    def __init__(self, options: ProxyOptions) -> None:
        self.meter = Meter()
        self.clock: Callable[[], int] = WallClock()
        self._faults = FaultTable(random.random)
        self._limits = options.server_limits.for_messages_of(options.limits.message_bytes_max)
        super().__init__(options, self._limits, self._faults)
        self._lock: LockFile | None = None
        self._sends: ProxySends | None = None
        self._upstream: UpstreamConnections | None = None
        self._amqp: AmqpServer | None = None
        self._scheduler: OutputScheduler | None = None

    # --- sight ---

    def status(self) -> Status:
        """How the pair is doing; the proxy must have started."""
        assert self._sends is not None, "not started"
        return self._sends.status()

    def ready(self) -> tuple[bool, str]:
        """Whether messages that are sent now can be stored somewhere, and what is wrong, if anything is."""
        return (False, "not started") if self._sends is None else readiness(self._sends.status())

    def facts(self) -> dict[str, Any]:
        """What the control socket reports, as plain values."""
        is_ready, reason = self.ready()
        return {
            "version": __version__,
            "proxy": self.options.name,
            "host": self.options.host,
            "port": self.port,
            "is_ready": is_ready,
            "reason": reason,
            "connections": self._connection_count(),
            "unwritten_bytes": 0 if self._sends is None else self._sends.unwritten_bytes,
            "pair": self.status().as_dict(),
        }

    def metrics_text(self) -> str:
        """The numbers of the pair, and of what applications do, as Prometheus scrapes them."""
        assert self._sends is not None, "not started"
        counts = (self._connection_count(), self._sends.unwritten_bytes)
        return self._sends.metrics_text() + as_prometheus(
            Snapshot(self.options.name, self.meter.readings(), [], *counts)
        )

    def _connection_count(self) -> int:
        return 0 if self._amqp is None else len(self._amqp.connections)

    # --- start and stop ---

    async def _open(self) -> None:
        self.rules = await asyncio.to_thread(self._take_keys)
        options = self.options
        context: ConnectionContext

        def after_events() -> None:
            if self._scheduler is not None:
                self._scheduler.after_action()

        self._sends = sends = ProxySends(options.primary, options.pairing, after_replies=after_events)
        await sends.start()
        attempt_s = options.pairing.attempt_timeout.total_seconds()
        self._upstream = UpstreamConnections(
            options.primary.dial(attempt_s), attempt_s=attempt_s, after_events=after_events
        )
        recorder = sends.recorder
        observer = None if recorder is None else SettlementRecords(recorder)
        relay = Relay(self._upstream, lambda notice: context.notify(notice), observer, sends.tried_to_receive)
        authority = Authority(RuleBook(self.rules))
        context = ConnectionContext(
            backend=ProxyBackend(sends, relay, TransactionRelay(relay, observer)),
            messages=MessageReader(options.limits.message_bytes_max, lambda: uuid.uuid4().hex),
            meter=self.meter,
            authority=authority,
            limits=options.limits,
            faults=self._faults,
            throttle=Throttle(ThrottleLimits()),
            connections=self._connection_count,
            clock=self.clock,
        )
        self._scheduler = scheduler = OutputScheduler(context, self.clock, lambda: amqp.relieve())
        amqp = self._amqp = AmqpServer(
            context,
            self._limits,
            f"twinbus-{options.name}",
            after_action=scheduler.after_action,
            between_steps=lambda: None,
            capabilities=lambda: (DROPS_PINGS,) if sends.drops_pings else (),
        )
        app = make_administration(
            options.primary,
            authority,
            self.clock,
            lambda path, size: self.meter.count(Metered.MANAGE, path, size),
            sends.tried_to_manage,
        )
        await self._endpoint.open(amqp, app)

    def _take_keys(self) -> tuple[AccessRule, ...]:
        directory = self.directory
        if directory is not None:
            self._lock = LockFile(directory / "lock", f"the folder {directory}")
            self._lock.claim()
        return rules_with_keys(self.options.key, self.options.rules, directory)

    @property
    def directory(self) -> Path | None:
        """Its folder in the data directory; None: it keeps nothing."""
        options = self.options
        return None if options.data is None else make_namespace_directory(options.data, options.name)

    async def stop(self) -> None:
        """Accept nothing more, answer what was sent, close. Harmless when it is stopped."""
        await self._endpoint.close()
        if self._amqp is not None:
            self._amqp.stop_reading()
        if self._sends is not None:
            await self._sends.stop()
        if self._amqp is not None and self._scheduler is not None:
            self._scheduler.stop()
            self._scheduler.flush()
            self._amqp.close_connections(Error("amqp:connection:forced", "the proxy is being stopped"))
            await self._amqp.wait_closed()
        if self._upstream is not None:
            await self._upstream.close_all()
        self._endpoint.forget_certificate()
        if self._lock is not None:
            self._lock.release()
