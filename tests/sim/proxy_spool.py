"""The spool of the simulated proxy: the shipping spool and its syphon, on a simulated disk that outlives the proxy.

Only the thread is missing, and the folder: the spool runs on the loop of its process, and there is one folder, which
every life of the proxy takes over from the one before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from sim.proxy_history import History
from sim.proxy_loop import SimulatedLoop, current_process
from sim.proxy_network import Network
from sim.proxy_servers import KEY, Acceptance, TimedStore
from twinbus.amqp.peer_memory import AccountPool
from twinbus.broker.limits import ServerLimits
from twinbus.broker.net.amqp_connection import AmqpConnection
from twinbus.client.core.own_spool import OwnSpool
from twinbus.spool.open_spool import OpenSpool
from twinbus.spool.spool import Spool
from twinbus.syphon import Syphon
from twinbus.transport.dial import Dial

HOST = "spool"


class SpoolMachine:
    """What a spool needs of the machine it is on, and what stays there when its process is killed."""

    def __init__(self, loop: SimulatedLoop, network: Network, open_store: Callable[[], TimedStore]) -> None:
        self.loop, self.network = loop, network
        self.disk = History()
        self.open_store = open_store
        self.store: TimedStore | None = None

    def new_store(self, _path: Path) -> TimedStore:
        self.store = self.open_store()
        return self.store


class OnlyFolder:
    """As `SpoolDirectory` and its `SpoolFolder`, both."""

    path = Path("simulated")
    store = path / "store"
    is_new = is_ours = True

    def open(self) -> None: ...

    def take(self, _without: object) -> OnlyFolder:
        return self

    def take_left_behind(self, _without: object) -> None: ...

    def release(self) -> None: ...


class SimulatedOpenSpool(OpenSpool):
    machine: SpoolMachine

    async def open(self) -> None:
        namespace, machine = self._namespace, self.machine
        namespace.clock, namespace._key = machine.loop.now_ms, KEY
        await super().open()
        pool = AccountPool(ServerLimits().held_bytes_all)
        route = machine.network.route(HOST)
        route.listen(current_process(), lambda _end: AmqpConnection(namespace._amqp, Acceptance(pool)))

    @property
    def dial(self) -> Dial:
        return replace(super().dial, connect=None)

    def _controls(self, syphon: Syphon) -> AbstractAsyncContextManager[object]:
        """Nobody steers it: a control socket is a real one."""
        return nullcontext()


class SimulatedSpool(Spool):
    machine: SpoolMachine

    async def begin(self) -> None:
        """As `start`, without a thread."""
        self.serving = asyncio.get_running_loop().create_task(self._serve())
        await asyncio.wrap_future(self._started)

    def _spool_in(self, folder: Any) -> OpenSpool:
        spool = SimulatedOpenSpool(
            folder,
            self._routes,
            bytes_max=self._bytes_max,
            on_alert=self._on_alert,
            open_store=self.machine.new_store,
        )
        spool.machine = self.machine
        return spool


class SimulatedOwnSpool(OwnSpool):
    async def begin(self, machine: SpoolMachine) -> None:
        folder: Any = OnlyFolder()
        self._spool = spool = SimulatedSpool(
            folder,
            self._routes,
            bytes_max=self._bytes_max,
            on_alert=lambda alert: self._call(lambda: self._report_alert(alert)),
        )
        spool.machine = machine
        await spool.begin()

    def start(self) -> None:
        """It has begun."""
