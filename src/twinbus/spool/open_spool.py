"""One folder of a spool in use: what is put into it, and the syphon that empties it. It belongs to one event loop."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from twinbus.broker.store.api import Store
from twinbus.broker.store.sqlite import SqliteStore
from twinbus.ledger.schema import Recorder
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.spool.contents import SpoolContents, SpoolCounts
from twinbus.spool.folder import SpoolFolder
from twinbus.spool.private_namespace import PrivateNamespace
from twinbus.syphon import Alert, Progress, Syphon, SyphonOptions
from twinbus.syphon.control_socket import steerable
from twinbus.syphon.peeking.queue_discovery import QUEUES_MAX
from twinbus.syphon.syphon import Detour
from twinbus.transport.dial import Dial

logger = logging.getLogger("twinbus.spool")

CLOSED = Failure(FailureKind.UNREACHABLE, "the spool is closed")
WATCH_S = 0.2
RESTART_PAUSE_S = 5.0
"""Before a syphon that broke is started again."""


@dataclass(frozen=True, kw_only=True)
class SpoolRoutes:
    """Where the messages of a spool go."""

    primary_name: str
    primary: Dial
    secondary: Dial
    queues: tuple[int, ...] = ()
    """The backlog queues of the secondary, by index, as far as they are known."""
    options: SyphonOptions = field(default_factory=SyphonOptions)
    ledger: Recorder | None = None


class OpenSpool:
    def __init__(
        self,
        folder: SpoolFolder,
        routes: SpoolRoutes,
        *,
        bytes_max: int,
        on_alert: Callable[[Alert], None] | None = None,
        open_store: Callable[[Path], Store] = SqliteStore,
    ) -> None:
        """`bytes_max`: of messages, in this folder."""
        self.folder = folder
        self._routes = routes
        self._on_alert = on_alert
        self._namespace = PrivateNamespace(routes.primary_name, folder.store, open_store=open_store)
        self._contents = SpoolContents(
            routes.primary_name,
            str(folder.path),
            bytes_max=bytes_max,
            registry=lambda: self._namespace.gate.machine.registry,
            ask=self._namespace.ask,
            new_id=lambda: uuid.uuid4().hex,
            on_queue=self._queue_made,
        )
        self.syphon: Syphon | None = None
        self._before = SpoolProgress()
        self._is_closing = False
        self._has_messages = asyncio.Event()

    async def open(self) -> None:
        """Raises `StoreError`, and leaves the folder as it was."""
        await self._namespace.open()
        try:
            self._contents.read_queues()
            if self.counts().messages:
                self._has_messages.set()
        except BaseException:
            await self._namespace.close()
            raise

    @property
    def dial(self) -> Dial:
        """How it is reached like any namespace."""
        return self._namespace.dial()

    @property
    def queue_indexes(self) -> list[int]:
        return self._contents.indexes

    # --- what is in it ---

    def counts(self) -> SpoolCounts:
        """Any thread may ask."""
        return self._contents.counts()

    @property
    def failure(self) -> str | None:
        """Why nothing can be stored; None: it can."""
        gate = self._namespace.gate
        return gate.failure or gate.full_disk or self._contents.fullness

    # --- in ---

    def put(self, entity: str, encoded: Sequence[bytes], on_done: Callable[[Failure | None], None]) -> None:
        """Store messages in their envelopes, all or none; `on_done` is called once they are durable, or refused."""
        if self._is_closing:
            on_done(CLOSED)
            return
        self._contents.put(entity, encoded, on_done)
        self._has_messages.set()

    # --- out ---

    def make_syphon(self, *, until_empty: bool = False) -> Syphon:
        """A syphon that empties it; `start` it, one at a time."""
        routes = self._routes
        self._before = self._before.plus(self.syphon)
        self.syphon = Syphon(
            routes.primary,
            self.dial,
            routes.primary_name,
            QUEUES_MAX,
            replace(routes.options, until_empty=until_empty),
            queues=self._contents.indexes,
            on_alert=self._on_alert,
            ledger=routes.ledger,
            detour=Detour(routes.secondary, routes.queues),
        )
        return self.syphon

    def _queue_made(self, index: int) -> None:
        if self.syphon is not None:
            self.syphon.add_queue(index)

    async def run_syphon(self, *, until_empty: bool = False) -> None:
        """Bring its messages home, until it is empty or until cancelled; a syphon that breaks is replaced."""
        while True:
            syphon = self.make_syphon(until_empty=until_empty)
            try:
                async with syphon, self._controls(syphon):
                    await syphon.finished()
                return
            except Exception:
                logger.exception("event=spool_syphon_broke folder=%s", self.folder.path)
            await asyncio.sleep(RESTART_PAUSE_S)

    def _controls(self, syphon: Syphon) -> AbstractAsyncContextManager[object]:
        return steerable(syphon, "spool")

    async def watch(self) -> None:
        """Report whenever all messages that were in it have left it."""
        while True:
            await self._has_messages.wait()
            self._has_messages.clear()
            before = self.progress()
            while self.counts().messages:
                await asyncio.sleep(WATCH_S)
            after = self.progress()
            home, to_backlog = after.home - before.home, after.to_backlog - before.to_backlog
            if self._on_alert is not None and (home or to_backlog):
                text = f"it is empty: {home} messages went home, {to_backlog} to the backlog"
                self._on_alert(Alert("spool_home", str(self.folder.path), text))

    def use_queues(self, queues: Sequence[int]) -> None:
        """The backlog queues of the secondary, as they are known now."""
        self._routes = replace(self._routes, queues=tuple(queues))
        if self.syphon is not None:
            self.syphon.use_detours(queues)

    def wake(self) -> None:
        """One of the namespaces is back: try it now."""
        if self.syphon is not None:
            self.syphon.wake()

    def progress(self) -> SpoolProgress:
        """What has left it since it was opened. Any thread may ask."""
        return self._before.plus(self.syphon)

    # --- the end ---

    async def close(self) -> None:
        """Close it, and remove the folder if it is empty."""
        self._is_closing = True
        counts, is_known = self.counts(), self._namespace.gate.failure is None
        await self._namespace.close()
        if is_known and not counts.messages and not counts.dead_letters:
            await asyncio.to_thread(self.folder.remove)
        else:
            self.folder.release()


class SpoolProgress(NamedTuple):
    home: int = 0
    """Stored by the primary."""
    to_backlog: int = 0
    """Stored in backlog queues of the secondary."""
    dead_lettered: int = 0
    repeated: int = 0
    destinations_down: tuple[str, ...] = ()

    def plus(self, syphon: Syphon | None) -> SpoolProgress:
        if syphon is None:
            return self
        found: Progress = syphon.current_progress()
        counts = syphon.pump.counts
        return SpoolProgress(
            self.home + counts.stored - counts.to_backlog,
            self.to_backlog + counts.to_backlog,
            self.dead_lettered + counts.refused + counts.expired,
            self.repeated + counts.repeated,
            tuple([each.path for each in found.destinations if each.state == "resting"]),
        )
