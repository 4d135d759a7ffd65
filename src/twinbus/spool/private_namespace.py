"""A namespace for this process only: the store, the machine and the links of an embedded one, and no port.

Our own engine reaches it over socket pairs (`dial`), so everything that works with a namespace works with this one.
It belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import socket
import ssl
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

from twinbus.amqp.codec.outcomes import Error
from twinbus.broker.auth.access_rules import AccessRule
from twinbus.broker.auth.keyring import build_authority
from twinbus.broker.clock import LockTokens, WallClock
from twinbus.broker.core.commands import Command
from twinbus.broker.core.commit_gate import CommitGate
from twinbus.broker.core.namespace_backend import NamespaceBackend
from twinbus.broker.core.namespace_machine import NamespaceMachine
from twinbus.broker.core.replies import Notice, Reply
from twinbus.broker.faults.fault_table import FaultTable
from twinbus.broker.faults.switch import FaultSwitch, NoPort
from twinbus.broker.faults.throttle import Throttle, ThrottleLimits
from twinbus.broker.limits import ServerLimits, TrafficLimits
from twinbus.broker.links.connection_context import ConnectionContext
from twinbus.broker.message import MessageReader
from twinbus.broker.net.accepted_connection import AcceptedConnection, ProtocolHandler
from twinbus.broker.net.amqp_connection import AmqpConnection
from twinbus.broker.net.amqp_server import AmqpServer
from twinbus.broker.net.listener import Listener
from twinbus.broker.net.sniffer import ConnectionProtocol
from twinbus.broker.operations import Refused, Right
from twinbus.broker.ops.meter import Meter
from twinbus.broker.scheduler import Scheduler
from twinbus.broker.store.api import Store, StoredNamespace
from twinbus.broker.store.sqlite import SqliteStore
from twinbus.broker.store_lifecycle import close_store, recover_store
from twinbus.spool.contents import MESSAGE_BYTES_MAX
from twinbus.transport.dial import Dial, key_token

logger = logging.getLogger("twinbus.spool")

R = TypeVar("R")

_RULE = "spool"


class PrivateNamespace:
    def __init__(self, name: str, path: Path, *, open_store: Callable[[Path], Store] = SqliteStore) -> None:
        """`path`: of the store."""
        self._name = name
        self._path = path
        self._open_store = open_store
        self._key = secrets.token_hex(32)
        self.clock: Callable[[], int] = WallClock()
        self._recovery: asyncio.Task[None] | None = None
        self._is_open = False

    async def open(self) -> None:
        """Raises `StoreError`, with everything closed; a store that cannot be used is left as it was."""
        self._loop = asyncio.get_running_loop()
        self._store = self._open_store(self._path)
        try:
            self.gate = await asyncio.to_thread(self._open_gate)
            self._build_server()
            await asyncio.to_thread(self._store.start, self._scheduler.take_report_from_thread)
        except BaseException:
            await asyncio.to_thread(self._store.close)
            raise
        self._is_open = True
        self._scheduler.set_timer()

    def _open_gate(self) -> CommitGate:
        return CommitGate(
            self._store,
            _build_machine,
            lambda notice: self._backend.notify(notice),
            self._store_failed,
            flush=lambda: self._scheduler.flush(),
            on_error=_log_failed_reply,
        )

    def _build_server(self) -> None:
        throttle = Throttle(ThrottleLimits(), lambda _path: False)
        faults = FaultTable(random.random, throttle)
        meter, limits = Meter(), TrafficLimits(message_bytes_max=MESSAGE_BYTES_MAX)
        messages = MessageReader(limits.message_bytes_max, lambda: uuid.uuid4().hex)
        rule = AccessRule(_RULE, frozenset(Right), self._key)
        self._backend = NamespaceBackend(self.gate, messages, meter, lambda notice: self._context.notify(notice))
        self._context = ConnectionContext(
            backend=self._backend,
            messages=messages,
            meter=meter,
            authority=build_authority((rule,), (), lambda: self.gate.machine.registry),
            limits=limits,
            faults=faults,
            throttle=throttle,
            connections=lambda: len(self._amqp.connections),
            clock=self.clock,
        )
        switch = FaultSwitch(faults, NoPort(), write_dump=lambda _reason: None)
        scheduler = Scheduler(self.gate, self._context, switch, self.clock, lambda: self._amqp.relieve())
        self._scheduler = scheduler
        server_limits = ServerLimits().for_messages_of(MESSAGE_BYTES_MAX)
        self._amqp = AmqpServer(
            self._context,
            server_limits,
            f"twinbus-spool-{self._name}",
            after_action=scheduler.after_action,
            between_steps=scheduler.take_reports,
        )
        self._listener = Listener(
            "",
            0,
            limits=server_limits,
            handlers={ConnectionProtocol.AMQP: self._handler_of},
            tls_context=_no_tls,
            tls_only=False,
        )

    def _handler_of(self, accepted: AcceptedConnection) -> ProtocolHandler:
        return AmqpConnection(self._amqp, accepted)

    async def close(self) -> None:
        """Write and answer what was accepted, and close. Harmless when it is closed."""
        if not self._is_open:
            return
        self._is_open = False
        if self._recovery is not None:
            self._recovery.cancel()
        await close_store(self._store, self._scheduler, self._amqp, "the spool is being closed")
        self._listener.close()

    def ask(self, command: Command[R], on_reply: Callable[[R | Refused], None]) -> None:
        """Carry out a command; `on_reply` is called when the reply is durable."""
        self.gate.ask(command, self.clock(), on_reply)
        self._scheduler.after_action()

    # --- how it is reached ---

    def dial(self) -> Dial:
        """How our engine gets there, from any event loop of this process."""
        return Dial(
            "spool",
            5672,
            tls=None,
            server_hostname=None,
            get_token=lambda audience: key_token(audience, _RULE, self._key),
            name=self._name,
            connect=self._connect,
        )

    async def _connect(self, make_protocol: Callable[[], asyncio.Protocol]) -> None:
        if not self._is_open:
            raise ConnectionRefusedError("the spool is closed")
        ours, theirs = socket.socketpair()
        self._loop.call_soon_threadsafe(self._listener.add, theirs)
        ours.setblocking(False)
        await asyncio.get_running_loop().create_connection(make_protocol, sock=ours)

    # --- disk failures ---

    def _store_failed(self, reason: str) -> None:
        logger.error("the spool %s cannot be used, and takes nothing: %s", self._path.parent, reason)
        self._amqp.close_connections(Error("amqp:internal-error", f"the spool cannot use its store: {reason}"))
        self._recovery = self._loop.create_task(self._recover())

    async def _recover(self) -> None:
        await recover_store(self.gate, f"the spool {self._path.parent}", logger)
        self._scheduler.set_timer()


def _build_machine(stored: StoredNamespace) -> NamespaceMachine:
    return NamespaceMachine(stored, new_token=LockTokens())


def _no_tls() -> NoReturn:
    raise ssl.SSLError("a spool does not use TLS")


def _log_failed_reply(reply: Reply | Notice) -> None:
    logger.exception("a reply could not be passed on: %.200r", reply)
