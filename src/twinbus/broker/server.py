"""A running namespace: sockets, timers and threads around the machine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from twinbus.amqp.codec.outcomes import Error
from twinbus.broker.admin.admin_server import AdminServer
from twinbus.broker.admin.app import make_admin_app
from twinbus.broker.admin.metrics_page import MetricsPage
from twinbus.broker.auth.keyring import build_authority, rules_with_keys
from twinbus.broker.clock import LockTokens, WallClock
from twinbus.broker.core.commands import Command, CreateQueue
from twinbus.broker.core.commit_gate import CommitGate
from twinbus.broker.core.namespace_backend import NamespaceBackend
from twinbus.broker.core.namespace_machine import NamespaceMachine
from twinbus.broker.core.registry import QUEUE, SUBSCRIPTION, TOPIC
from twinbus.broker.core.replies import Notice, Reply
from twinbus.broker.data_directory import STORE_FILE, creation_time_ms, make_namespace_directory
from twinbus.broker.endpoint import EndpointServer
from twinbus.broker.entities.settings import QueueSettings
from twinbus.broker.faults.fault_table import FaultTable
from twinbus.broker.faults.switch import FaultSwitch
from twinbus.broker.faults.throttle import Throttle
from twinbus.broker.links.connection_context import ConnectionContext
from twinbus.broker.message import MessageReader
from twinbus.broker.net.amqp_server import AmqpServer
from twinbus.broker.ops import status_snapshot
from twinbus.broker.ops.control_socket import Controls
from twinbus.broker.ops.ledger_events import NamespaceLedger
from twinbus.broker.ops.meter import Meter
from twinbus.broker.ops.process_memory import ResidentMemory
from twinbus.broker.scheduler import Scheduler
from twinbus.broker.store.api import Store, StoredNamespace
from twinbus.broker.store.memory import MemoryStore
from twinbus.broker.store.sql_connection import store_error
from twinbus.broker.store.sqlite import SqliteStore
from twinbus.broker.store_lifecycle import close_store, recover_store
from twinbus.errors import EntityAlreadyExists, QuotaExceeded, StoreError
from twinbus.options import NamespaceOptions

logger = logging.getLogger("twinbus.namespace")

R = TypeVar("R")


class NamespaceServer(EndpointServer[NamespaceOptions]):
    """One namespace on one port. `async with NamespaceServer(options) as running:` serves until the block ends."""

    def __init__(self, options: NamespaceOptions, *, store: Store | None = None) -> None:
        """A `store` can be given instead of the one that the options describe."""
        self._given_store = store
        self.clock: Callable[[], int] = WallClock()
        self.server_limits = options.server_limits.for_messages_of(options.limits.message_bytes_max)
        self._throttle = Throttle(options.throttle, lambda path: self.gate.machine.registry.is_partitioned(path))
        self._memory = ResidentMemory()
        if options.throttle.memory_bytes is not None:
            self._memory.check()
        self.faults = FaultTable(random.random, self._throttle)
        super().__init__(options, self.server_limits, self.faults)
        self._controls: Controls | None = None
        self._is_open = False
        self._recovery: asyncio.Task[None] | None = None
        self.ledger = NamespaceLedger(options.ledger, options.ledger_ship_to, options.name)
        self._scheduler: Scheduler

    @property
    def key(self) -> str:
        """That opens everything, once the store is open."""
        return self.rules[0].keys[0]

    async def _open(self) -> None:
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self.ledger.open)  # first: if it cannot be written, no store is made
        self._store = await asyncio.to_thread(self._open_store)
        try:
            self.gate = await asyncio.to_thread(self._open_gate)
            await asyncio.to_thread(self._take_keys)
            self.context = self._open_context()
            self._controls = self._open_controls()
            scheduler = Scheduler(self.gate, self.context, self.switch, self.clock, lambda: self.amqp.relieve())
            self._scheduler = scheduler
            self.amqp = AmqpServer(
                self.context,
                self.server_limits,
                f"twinbus-{self.options.name}",
                after_action=scheduler.after_action,
                between_steps=scheduler.take_reports,
            )
            await asyncio.to_thread(self._store.start, scheduler.take_report_from_thread)
            self.ledger.record_inventory(self.gate.machine.registry.all())
            self._admin = AdminServer(
                self.options.name, self.gate, self.context, scheduler.after_action, self._created_at_ms
            )
            await self._create_queues()
            app = make_admin_app(self._admin)
            MetricsPage(self.context.authority, self.clock, partial(status_snapshot.snapshot, self)).add_to(app)
            await self._endpoint.open(self.amqp, app)
            await self._controls.start()
        except BaseException:
            await asyncio.to_thread(self._store.close)
            raise
        self._is_open = True
        self._scheduler.set_timer()

    def _open_store(self) -> Store:
        if self._given_store is not None:
            return self._given_store
        directory = self._namespace_directory()
        return MemoryStore() if directory is None else SqliteStore(directory / STORE_FILE)

    def _namespace_directory(self) -> Path | None:
        """The namespace's directory; None if nothing is kept, or elsewhere."""
        if self.options.data is None or self._given_store is not None:
            return None
        return make_namespace_directory(self.options.data, self.options.name)

    def _take_keys(self) -> None:
        """After the store is locked: of two first starts at once only one may make the key."""
        directory = self._namespace_directory()
        self._created_at_ms = self.clock() if directory is None else creation_time_ms(directory, self.clock())
        self.rules = rules_with_keys(self.options.key, self.options.rules, directory)

    def _open_gate(self) -> CommitGate:
        """Nothing is written before what is stored was found usable."""
        try:
            events = self.ledger.events
            return CommitGate(
                self._store,
                self._build_machine,
                lambda notice: self._backend.notify(notice),
                self._store_failed,
                on_events=None if events is None else events.record,
                flush=lambda: self._scheduler.flush(),
                on_error=_log_failed_reply,
            )
        except StoreError as error:
            if isinstance(self._store, SqliteStore):
                raise store_error(self._store.path, error) from error
            raise

    def _build_machine(self, stored: StoredNamespace) -> NamespaceMachine:
        return NamespaceMachine(
            stored,
            new_token=LockTokens(),
            records_events=self.ledger.events is not None,
            copy_delays=self.faults.copy_delays,
            message_bytes_max=self.options.limits.message_bytes_max,
        )

    def _open_context(self) -> ConnectionContext:
        meter, events = Meter(), self.ledger.events
        messages = MessageReader(self.options.limits.message_bytes_max, lambda: uuid.uuid4().hex)
        self._backend = NamespaceBackend(self.gate, messages, meter, lambda notice: self.context.notify(notice))
        return ConnectionContext(
            backend=self._backend,
            messages=messages,
            meter=meter,
            authority=build_authority(self.rules, self.options.jwt_issuers, lambda: self.gate.machine.registry),
            limits=self.options.limits,
            faults=self.faults,
            throttle=self._throttle,
            connections=lambda: len(self.amqp.connections),
            clock=self.clock,
            memory_bytes=self._memory,
            on_busy=None if events is None else events.refused,
        )

    async def create_queue(self, path: str, settings: QueueSettings | None = None) -> None:
        """Create a queue; raises `EntityAlreadyExists` if there is one of that name."""
        await self.administer(CreateQueue(path, settings or QueueSettings()))

    async def administer(self, command: Command[R]) -> R:
        """Carry out a command; raises the error if it is refused."""
        return await self._admin.ask(command)

    async def _create_queues(self) -> None:
        queues = [CreateQueue(path, self.options.queue_settings) for path in self.options.queues]
        try:
            for creation in (*queues, *self.options.entities):
                with contextlib.suppress(EntityAlreadyExists):
                    await self.administer(creation)
        except QuotaExceeded as error:
            if self.gate.full_disk is None:
                raise  # else it starts all the same: only then can messages be received, which makes room
            logger.error("%s does not have every entity that was asked for: %s", self.options.name, error)

    def queue_names(self) -> list[str]:
        return [queue.row.path for queue in self.gate.machine.registry.queues()]

    def entity_names(self) -> list[str]:
        """Queues, topics and subscriptions; dead-letter queues go along with theirs."""
        named = (QUEUE, TOPIC, SUBSCRIPTION)
        return [entity.row.path for entity in self.gate.machine.registry.all() if entity.row.kind in named]

    async def stop(self) -> None:
        """Accept nothing more, write and answer what was accepted, close. Harmless when it is stopped."""
        await self._endpoint.close()  # before the store: requests under way can still be answered
        if self._is_open:
            self._is_open = False
            await self._close()
        if self._controls is not None:
            await self._controls.stop()
        self._endpoint.forget_certificate()
        await asyncio.to_thread(self.ledger.close)

    async def _close(self) -> None:
        if self._recovery is not None:
            self._recovery.cancel()
        await close_store(self._store, self._scheduler, self.amqp, "the namespace is being stopped")

    # --- faults ---

    @property
    def switch(self) -> FaultSwitch:
        """Adds and clears faults; used in the loop's thread."""
        assert self._controls is not None
        return self._controls.switch

    def _open_controls(self) -> Controls:
        return Controls(
            self.faults,
            self._endpoint,
            directory=self._namespace_directory(),
            clock=self.clock,
            facts=partial(status_snapshot.facts, self),
            status=partial(status_snapshot.status, self),
            entity_names=self.entity_names,
            secrets=lambda: [key for rule in self.rules for key in rule.keys],
        )

    # --- disk failures ---

    def _store_failed(self, reason: str) -> None:
        logger.error("namespace %s cannot use its store and refuses work: %s", self.options.name, reason)
        self.amqp.close_connections(Error("amqp:internal-error", f"the namespace cannot use its store: {reason}"))
        self._recovery = self._loop.create_task(self._recover())

    async def _recover(self) -> None:
        await recover_store(self.gate, f"namespace {self.options.name}", logger)
        self.ledger.record_inventory(self.gate.machine.registry.all())
        self._scheduler.set_timer()


def _log_failed_reply(reply: Reply | Notice) -> None:
    """Whatever goes wrong with one peer must not stop the replies to the others."""
    logger.exception("a reply could not be passed on: %.200r", reply)
