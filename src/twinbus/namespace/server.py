"""A running namespace: sockets, timers and threads around the machine. The only asyncio in the broker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import ssl
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType

from aiohttp.web import Application

from twinbus.amqp.account import Account
from twinbus.amqp.capabilities import DROPS_PINGS
from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.performatives import Error
from twinbus.amqp.sasl import ANONYMOUS, PLAIN, ServerSasl
from twinbus.connection_string import EVERY_ADDRESS, ROOT_KEY_NAME, ConnectionString, can_be_written
from twinbus.errors import EntityAlreadyExists, OptionsError, QuotaExceeded, StoreError, TwinbusError
from twinbus.ledger import Ledger, LedgerHealth
from twinbus.namespace import portrait
from twinbus.namespace.admin.app import make_admin_app
from twinbus.namespace.admin.house import ServedHouse
from twinbus.namespace.admin.metrics_page import MetricsPage
from twinbus.namespace.chronicle import Chronicle
from twinbus.namespace.commands import AdminCommand, CreateQueue
from twinbus.namespace.controls import Controls
from twinbus.namespace.disk_share import SenderShare
from twinbus.namespace.entities.settings import QueueSettings
from twinbus.namespace.faults.book import FaultBook, Reach
from twinbus.namespace.faults.switch import FaultSwitch
from twinbus.namespace.faults.throttle import Throttle
from twinbus.namespace.guest import Guest, Voice
from twinbus.namespace.home import STORE_FILE, kept_creation, kept_key, kept_rule_keys, make_home, new_key
from twinbus.namespace.http_door import HttpDoor
from twinbus.namespace.keyring import build_authority, keyed_rules, root_rule
from twinbus.namespace.listener import Listener
from twinbus.namespace.machine import NamespaceMachine
from twinbus.namespace.pulse import Pulse
from twinbus.namespace.reception import Reception
from twinbus.namespace.registry import QUEUE, SUBSCRIPTION, TOPIC
from twinbus.namespace.replies import Refused, Reply
from twinbus.namespace.resident_memory import ResidentMemory
from twinbus.namespace.rights.authority import Authority
from twinbus.namespace.rights.rules import AccessRule
from twinbus.namespace.seam import CommitSeam
from twinbus.namespace.sniff import Language
from twinbus.namespace.sources import LockTokens, WallClock
from twinbus.namespace.store.api import Store, StoredNamespace
from twinbus.namespace.store.connection import store_error
from twinbus.namespace.store.memory import MemoryStore
from twinbus.namespace.store.sqlite import SqliteStore
from twinbus.namespace.tls import Tls, given_identity, names_in, open_tls
from twinbus.namespace.turns import Turns
from twinbus.namespace.wire import Wire, read_buffer
from twinbus.options import NamespaceOptions

logger = logging.getLogger("twinbus.namespace")

RECOVERY_PAUSE_S = 1.0
CLOSE_WAIT_S = 2.0
PORT_PAUSE_S = 1.0


class NamespaceServer:
    """One namespace on one port. `async with NamespaceServer(options) as running:` serves until the block ends."""

    def __init__(self, options: NamespaceOptions, *, store: Store | None = None) -> None:
        """A `store` can be given instead of the one that the options describe."""
        self.options = options
        self.port = options.port
        self.key = options.key or ""
        self.rules: tuple[AccessRule, ...] = ()
        """With their keys, once the store is open; the one that every namespace has comes first."""
        self._given_store = store
        self.clock: Callable[[], int] = WallClock()
        self.server_limits = options.server_limits.for_messages_of(options.limits.message_bytes_max)
        self._throttle = Throttle(options.throttle, self._is_partitioned)
        self._memory = ResidentMemory()
        if options.throttle.memory_bytes is not None:
            self._memory.check()
        self.faults = FaultBook(random.random, self._throttle)
        self.wires: set[Wire] = set()
        self.held_wires: set[Wire] = set()
        self.buffer = read_buffer()
        self._controls: Controls | None = None
        self._tls: Tls | None = None
        self._http: HttpDoor | None = None
        self._listener = Listener(
            options.host,
            options.port,
            limits=self.server_limits,
            voices={Language.AMQP: partial(Wire, self), Language.HTTP: self._http_voice},
            tls_context=self._tls_context,
            tls_only=options.tls_only,
            is_dropping=lambda: self.faults.reach() is Reach.DROPPING,
        )
        self._is_open = False
        self._recovery: asyncio.Task[None] | None = None
        self._ledger: Ledger | None = None
        self._made_ledger_folder = False
        self._chronicle: Chronicle | None = None

    @property
    def connection_string(self) -> str:
        """With the key that opens everything."""
        return self._connection_string(ROOT_KEY_NAME, self.key)

    def connection_string_for(self, rule_name: str) -> str:
        """With the key of one of the namespace's own rules; raises `OptionsError` if there is no such rule."""
        for rule in self.rules:
            if rule.name == rule_name:
                return self._connection_string(rule.name, rule.keys[0])
        names = ", ".join(rule.name for rule in self.rules)
        raise OptionsError(f"namespace {self.options.name} has no rule {rule_name!r}; rules are {names}")

    def _connection_string(self, key_name: str, key: str) -> str:
        said = ConnectionString(
            host=self._reachable_host(),
            port=self.port,
            namespace=self.options.name,
            key=key,
            key_name=key_name,
            ca_file=self.ca_file if self.ca_file is not None and can_be_written(str(self.ca_file)) else None,
            is_emulator=not self.is_tls_only,
        )
        return str(said)

    def _reachable_host(self) -> str:
        """A host to connect to: over TLS one that the given certificate names."""
        if self.is_tls_only and self._tls is not None and self.options.cert is not None:
            named = names_in(self._tls.identity.certificate)
            if named and self.options.host not in named:
                return named[0]
        return EVERY_ADDRESS.get(self.options.host, self.options.host)

    @property
    def is_tls_only(self) -> bool:
        """Whether peers that do not use TLS are refused; known once the port is bound."""
        return self._listener.is_tls_only

    # --- start and stop ---

    async def __aenter__(self) -> NamespaceServer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Open the store, create the queues that are asked for, listen. Raises a `TwinbusError` and leaves nothing."""
        await self.bind()
        try:
            await self._open()
            self._listener.listen()
            self._warn_of_clear_text()
        except BaseException:
            await self.stop()
            raise

    async def bind(self) -> None:
        """Take the port without answering on it; `start` does this too.

        Before the store is opened, so that a port that is taken leaves no trace on disk.
        """
        self._loop = asyncio.get_running_loop()
        self.turns = Turns(self._loop.time, self._call_next_turn, lambda: self._pulse.take_reports())
        if self.options.cert is not None and self.options.key_file is not None:
            given_identity(self.options.cert, self.options.key_file)  # now, if only to say what is wrong with them
        await self._listener.bind()
        self.port = self._listener.port

    def _warn_of_clear_text(self) -> None:
        if not self.is_tls_only and not self._listener.is_for_this_machine:
            logger.warning(
                "namespace %s can be reached from other machines without TLS: keys and messages can be read on the way",
                self.options.name,
            )

    async def _open(self) -> None:
        await asyncio.to_thread(self._open_ledger)  # first: one that can never be kept is no reason to make a store
        self._store = await asyncio.to_thread(self._open_store)
        try:
            self.seam = await asyncio.to_thread(self._open_seam)
            await asyncio.to_thread(self._take_keys)
            self.reception = self._open_reception()
            self._controls = self._open_controls()
            self._pulse = Pulse(self.seam, self.reception, self.switch, self.clock, self._relieve)
            await asyncio.to_thread(self._store.start, self._pulse.take_report_from_thread)
            self._take_inventory()
            self._admin = ServedHouse(
                self.options.name, self.reception, self.clock, self.settle_down, self._created_at_ms
            )
            await self._create_queues()
            self._tls = await asyncio.to_thread(open_tls, self.options, self.port, datetime.now(UTC))
            self._http = HttpDoor(self._http_app(), self.server_limits)
            await self._http.open()
            await self._controls.start()
        except BaseException:
            await asyncio.to_thread(self._store.close)
            raise
        self._is_open = True
        self._pulse.set_timer()

    def _open_ledger(self) -> None:
        if self.options.ledger is not None and self._ledger is None:
            self._made_ledger_folder = not self.options.ledger.exists()
            self._ledger = Ledger.at(self.options.ledger, self.options.name)
            self._chronicle = Chronicle(self._ledger, self.options.name)

    def _take_inventory(self) -> None:
        if self._chronicle is not None:
            self._chronicle.began(self.seam.machine.registry.all())

    async def _close_ledger(self) -> None:
        if self._ledger is not None:
            ledger, self._ledger, self._chronicle = self._ledger, None, None
            await asyncio.to_thread(ledger.close)
            if self._made_ledger_folder and not ledger.health().written:
                with contextlib.suppress(OSError):  # others may have written there by now
                    ledger.directory.rmdir()

    @property
    def ledger_health(self) -> LedgerHealth | None:
        """How the ledger is doing; None if there is none."""
        return None if self._ledger is None else self._ledger.health()

    def _open_store(self) -> Store:
        if self._given_store is not None:
            return self._given_store
        home = self._home()
        return MemoryStore() if home is None else SqliteStore(home / STORE_FILE)

    def _home(self) -> Path | None:
        """The namespace's folder; None if nothing is to be kept, or elsewhere."""
        if self.options.data is None or self._given_store is not None:
            return None
        return make_home(self.options.data, self.options.name)

    def _take_keys(self) -> None:
        """After the store is ours: of two first starts at once only one may make the key."""
        home = self._home()
        self._created_at_ms = self.clock() if home is None else kept_creation(home, self.clock())
        if home is None:
            self.key = self.key or new_key()
            self._set_rules(lambda names: [new_key() for _ in names])
        else:
            self.key = self.key or kept_key(home)
            self._set_rules(partial(kept_rule_keys, home))

    def _open_seam(self) -> CommitSeam:
        """Nothing is written before it is clear that what is stored can be used."""
        try:
            tell = None if self._chronicle is None else self._chronicle.tell
            return CommitSeam(
                self._store,
                self._build_machine,
                self._pass_on,
                self._store_failed,
                tell,
                lambda: self._pulse.flush(),
            )
        except StoreError as error:
            if isinstance(self._store, SqliteStore):
                raise store_error(self._store.path, error) from error
            raise

    def _build_machine(self, stored: StoredNamespace) -> NamespaceMachine:
        return NamespaceMachine(
            stored,
            new_token=LockTokens(),
            tells=self._chronicle is not None,
            copy_delays=self.faults.copy_delays,
        )

    def _open_reception(self) -> Reception:
        return Reception(
            do=self.seam.do,
            unwritten_bytes=lambda: self.seam.unwritten_bytes,
            authority=self._build_authority(),
            limits=self.options.limits,
            new_message_id=lambda: uuid.uuid4().hex,
            faults=self.faults,
            throttle=self._throttle,
            connections=lambda: len(self.wires),
            clock=self.clock,
            memory_bytes=self._memory,
            messages_per_step=lambda path: self.seam.machine.messages_per_step(path),
            on_busy=None if self._chronicle is None else self._chronicle.refused,
        )

    def _set_rules(self, keys_for: Callable[[Sequence[str]], Sequence[str]]) -> None:
        self.rules = (root_rule(self.key), *keyed_rules(self.options.rules, keys_for))

    def _build_authority(self) -> Authority:
        return build_authority(self.rules, self.options.jwt_issuers, lambda: self.seam.machine.registry)

    async def create_queue(self, path: str, settings: QueueSettings | None = None) -> None:
        """Create a queue; raises `EntityAlreadyExists` if there is one of that name."""
        await self.administer(CreateQueue(path, settings or QueueSettings()))

    async def administer(self, command: AdminCommand) -> Reply:
        """Carry out what an administrator may ask; raises what it is refused with."""
        reply = await self._admin.ask(command)
        if isinstance(reply, Refused):
            raise reply.error
        return reply

    async def _create_queues(self) -> None:
        queues = [CreateQueue(path, self.options.queue_settings) for path in self.options.queues]
        try:
            for creation in (*queues, *self.options.entities):
                with contextlib.suppress(EntityAlreadyExists):
                    await self.administer(creation)
        except QuotaExceeded as error:
            if self.seam.full_disk is None:
                raise  # else it starts all the same: what fills the disk can be received only then
            logger.error("%s does not have every entity that was asked for: %s", self.options.name, error)

    def queue_names(self) -> list[str]:
        return [queue.row.path for queue in self.seam.machine.registry.queues()]

    def entity_names(self) -> list[str]:
        """Queues, topics and subscriptions; dead-letter queues go along with theirs."""
        named = (QUEUE, TOPIC, SUBSCRIPTION)
        return [entity.row.path for entity in self.seam.machine.registry.all() if entity.row.kind in named]

    async def stop(self) -> None:
        """Take nothing more in, write and answer what was taken in, say goodbye, close. Harmless when it is stopped."""
        self._listener.close()
        if self._http is not None:
            await self._http.close()  # before the store: what is under way can still be answered
            self._http = None
        if self._is_open:
            self._is_open = False
            await self._close()
        if self._controls is not None:
            await self._controls.stop()
        if self._tls is not None:
            self._tls.close()
        await self._close_ledger()

    async def _close(self) -> None:
        if self._recovery is not None:
            self._recovery.cancel()
        self._pulse.stop()
        for wire in self.wires:
            wire.stop_reading()
        await asyncio.to_thread(self._store.close)
        await asyncio.sleep(0)  # the store's last reports are in the loop by now; let them be handled
        self._pulse.flush()
        for wire in list(self.wires):
            wire.say_goodbye(Error("amqp:connection:forced", "the namespace is being stopped"))
        await self._wait_for_wires()

    async def _wait_for_wires(self) -> None:
        deadline = self._loop.time() + CLOSE_WAIT_S
        while self.wires and self._loop.time() < deadline:
            await asyncio.sleep(0.01)
        for wire in list(self.wires):
            wire.abort()
        await asyncio.sleep(0)  # sockets are closed one turn later

    # --- who comes in ---

    def new_connection(self, account: Account, *, takes_passwords: bool) -> Connection:
        mechanisms = (ANONYMOUS, PLAIN) if takes_passwords else (ANONYMOUS,)
        sasl = ServerSasl(mechanisms, check_plain=self.reception.authority.knows)
        container_id = f"twinbus-{self.options.name}"
        limits = self.server_limits.of_a_connection(self.options.limits.message_bytes_max)
        return Connection(
            role=Role.SERVER,
            container_id=container_id,
            sasl=sasl,
            limits=limits,
            account=account,
            offered_capabilities=(DROPS_PINGS,),
        )

    def _http_app(self) -> Application:
        app = make_admin_app(self._admin)
        MetricsPage(self.reception.authority, self.clock, partial(portrait.snapshot, self)).add_to(app)
        return app

    def _http_voice(self, guest: Guest) -> Voice:
        assert self._http is not None
        return self._http.voice(guest)

    def _tls_context(self) -> ssl.SSLContext:
        assert self._tls is not None
        return self._tls.context(datetime.now(UTC))

    @property
    def ca_file(self) -> Path | None:
        """What clients have to trust to come in over TLS; None: nothing that their machines do not trust anyway."""
        return None if self._tls is None else self._tls.identity.ca

    # --- when the network is to fail ---

    def pause_listening(self) -> None:
        """Refuse new connections from now on; the port stays ours."""
        self._listener.pause()

    def resume_listening(self) -> None:
        """Take new connections again, as soon as the port is to be had: another process may have taken it."""
        try:
            self._listener.resume()
        except TwinbusError as error:
            logger.warning("namespace %s has no port and tries again: %s", self.options.name, error)
            self._loop.call_later(PORT_PAUSE_S, self._resume_if_wanted)

    def _resume_if_wanted(self) -> None:
        if self._is_open and self.faults.reach() is not Reach.REFUSING:
            self.resume_listening()

    def drop_connections(self) -> None:
        """Break all connections, as a network does that goes away."""
        self._listener.drop_connections()

    def go_silent(self) -> None:
        """Take connections, and neither read from nor write to any of them, old or new."""
        self._listener.go_silent()
        if self._http is not None:
            self._http.go_silent()

    def speak_again(self) -> None:
        """Read what has arrived in the silence, and go on."""
        if self._http is not None:
            self._http.speak_again()
        self._listener.speak_again()

    def faults_changed(self) -> None:
        """What may be delivered has to be looked at again."""
        now_ms = self.clock()
        for wire in list(self.wires):
            wire.door.faults_changed(now_ms)
        self.settle_down()

    @property
    def switch(self) -> FaultSwitch:
        """Where faults are added and cleared, in the loop's thread."""
        assert self._controls is not None
        return self._controls.switch

    def _open_controls(self) -> Controls:
        return Controls(
            self.faults,
            self,
            home=self._home(),
            clock=self.clock,
            facts=partial(portrait.facts, self),
            status=partial(portrait.status, self),
            entity_names=self.entity_names,
            secrets=lambda: [key for rule in self.rules for key in rule.keys],
        )

    def _is_partitioned(self, path: str) -> bool:
        return self.seam.machine.registry.is_partitioned(path)

    # --- around the seam ---

    def _pass_on(self, reply: Reply) -> None:
        self.reception.pass_on(reply)

    def settle_down(self) -> None:
        self._pulse.settle_down()

    # --- back-pressure ---

    @property
    def is_overloaded(self) -> bool:
        return self.seam.unwritten_bytes > self.options.limits.unwritten_bytes

    def _call_next_turn(self, call: Callable[[], None]) -> asyncio.Handle:
        rest_s = self.reception.disk_share.rest_s(self.seam.unwritten_bytes, self.clock() / 1000)
        return self._loop.call_later(rest_s, call) if rest_s else self._loop.call_soon(call)

    def must_wait_for_disk(self, sender: SenderShare) -> bool:
        return self.reception.disk_share.must_wait(sender, self.seam.unwritten_bytes, self.clock() / 1000)

    def _relieve(self) -> None:
        """Read again from senders that had to wait."""
        if self.held_wires and not self.is_overloaded:
            for wire in list(self.held_wires):
                wire.read_if_allowed()

    # --- when the disk fails ---

    def _store_failed(self, reason: str) -> None:
        logger.error("namespace %s cannot use its store and refuses work: %s", self.options.name, reason)
        error = Error("amqp:internal-error", f"the namespace cannot use its store: {reason}")
        for wire in list(self.wires):
            wire.say_goodbye(error)
        self._recovery = self._loop.create_task(self._recover())

    async def _recover(self) -> None:
        while self.seam.failure is not None:
            await asyncio.sleep(RECOVERY_PAUSE_S)
            try:
                await asyncio.to_thread(self.seam.recover)
            except Exception as error:  # whatever it is, somebody has to go on trying
                logger.warning("namespace %s still cannot use its store: %s", self.options.name, error)
        logger.info("namespace %s works again", self.options.name)
        self._take_inventory()
        self._pulse.set_timer()
