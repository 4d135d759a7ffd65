"""The spool of one process: a thread with an event loop of its own, which threads and tasks put messages into.

    spool = Spool(SpoolDirectory("/var/spool/app", "contoso"), routes, bytes_max=10**9)
    spool.start()
    failure = spool.put("orders", envelopes).result()   # None: stored, and safe from kill -9 and power cuts
    spool.stop()

It has a folder for what this process stores, and empties those that other processes of the same pair have left behind.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from twinbus.broker.store.api import Store
from twinbus.broker.store.sqlite import SqliteStore
from twinbus.control.local_register import register_spool
from twinbus.errors import StoreError
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.spool.contents import SpoolCounts
from twinbus.spool.folder import SpoolDirectory, SpoolFolder
from twinbus.spool.open_spool import CLOSED, OpenSpool, SpoolProgress, SpoolRoutes
from twinbus.syphon import Alert

logger = logging.getLogger("twinbus.spool")

ADOPTED_MAX = 8
"""Folders of others that are emptied at a time."""
RESCAN_S = 60.0
"""How often to look for folders that were left behind."""
STOP_S = 15.0
"""How long stopping waits for the thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolState:
    """A spool at one moment."""

    folder: Path
    bytes_max: int
    counts: SpoolCounts
    progress: SpoolProgress
    failure: str | None = None
    """Why nothing can be stored now."""
    adopted: dict[Path, SpoolCounts] = field(default_factory=dict)
    """Folders that others have left behind, and that this process empties."""
    problems: tuple[str, ...] = ()
    """Folders that cannot be used, and why; they are left as they are."""


class Spool:
    def __init__(
        self,
        directory: SpoolDirectory,
        routes: SpoolRoutes,
        *,
        bytes_max: int,
        on_alert: Callable[[Alert], None] | None = None,
        on_problem: Callable[[str], None] | None = None,
        open_store: Callable[[Path], Store] = SqliteStore,
    ) -> None:
        """`on_alert` gets what its syphons report, `on_problem` why a folder cannot be used; both on its thread."""
        self._directory = directory
        self._routes = routes
        self._bytes_max = bytes_max
        self._on_alert = on_alert
        self._on_problem = on_problem
        self._open_store = open_store
        self._thread = threading.Thread(target=self._run, name="twinbus-spool", daemon=True)
        self._started: Future[None] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._own: OpenSpool | None = None
        self._adopted: dict[Path, OpenSpool] = {}
        self._seen: set[Path] = set()
        """Folders that are not looked at again by this process."""
        self._problems: list[str] = []

    # --- called from any thread ---

    def start(self) -> None:
        """Take a folder and open it. Raises `StoreError` with everything closed."""
        self._directory.open()
        register_spool(self._directory.path, self._directory.primary_name)
        self._thread.start()
        self._started.result()

    def put(self, entity: str, encoded: Sequence[bytes]) -> Future[Failure | None]:
        """Store messages in their envelopes, all or none: None once they are durable, else why they are not there."""
        done: Future[Failure | None] = Future()
        loop, own = self._loop, self._own
        if own is not None and not own.folder.is_ours:
            text = "the spool belongs to the process that this one was forked from: make a client of its own"
            done.set_result(Failure(FailureKind.INTERNAL, text))
        elif loop is None or own is None or not self._call(lambda: own.put(entity, encoded, _setter(done))):
            done.set_result(CLOSED)
        return done

    def wake(self) -> None:
        """One of the namespaces is back: try it now."""
        self._call(self._wake)

    def use_queues(self, queues: Sequence[int]) -> None:
        """The backlog queues of the secondary, by index, as they are known now."""
        self._call(lambda: self._use_queues(tuple(queues)))

    def state(self) -> SpoolState | None:
        """How it is now; None: it is not open."""
        own = self._own
        if own is None:
            return None
        return SpoolState(
            folder=own.folder.path,
            bytes_max=self._bytes_max,
            counts=own.counts(),
            progress=own.progress(),
            failure=own.failure,
            adopted={path: spool.counts() for path, spool in list(self._adopted.items())},
            problems=tuple(self._problems),
        )

    def stop(self) -> None:
        """Write what was accepted, finish what is on its way home, and close. Harmless when it is stopped."""
        if self._stopping is not None and self._call(self._stopping.set):
            self._thread.join(STOP_S)

    def _call(self, act: Callable[[], object]) -> bool:
        """Have this done on the thread of the spool; False: it has ended."""
        loop = self._loop
        if loop is None:
            return False
        try:
            loop.call_soon_threadsafe(act)
        except RuntimeError:  # its loop is closed
            return False
        return True

    # --- its thread ---

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._started.done():
                logger.exception("event=internal_error reason=%r", "the spool broke")
            else:
                self._started.set_exception(error)
        finally:
            self._loop = self._own = None

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        own = await self._open_own()
        self._own, self._loop = own, asyncio.get_running_loop()
        tasks = [asyncio.ensure_future(work) for work in (own.run_syphon(), own.watch(), self._adopt())]
        self._started.set_result(None)
        try:
            await self._stopping.wait()
        finally:
            self._loop = None  # nothing more comes in; what came in is answered by closing
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await own.close()

    async def _open_own(self) -> OpenSpool:
        """The first folder that can be used; one that cannot is reported and left as it is."""
        while True:
            folder = await asyncio.to_thread(self._directory.take, self._seen)
            self._seen.add(folder.path)
            is_new = folder.is_new
            spool = self._spool_in(folder)
            try:
                await spool.open()
            except StoreError as error:
                folder.release()
                if is_new:  # then the disk fails, and another folder does not help
                    raise
                self._problem(str(error))
                continue
            return spool

    def _spool_in(self, folder: SpoolFolder) -> OpenSpool:
        return OpenSpool(
            folder, self._routes, bytes_max=self._bytes_max, on_alert=self._on_alert, open_store=self._open_store
        )

    def _problem(self, text: str) -> None:
        self._problems.append(text)
        logger.error("event=spool_unusable text=%r", text)
        if self._on_problem is not None:
            self._on_problem(text)

    # --- folders of others ---

    async def _adopt(self) -> None:
        """Empty folders that other processes have left behind, now and later."""
        slots, tasks = asyncio.Semaphore(ADOPTED_MAX), set[asyncio.Task[None]]()
        try:
            while True:
                await slots.acquire()
                try:
                    folder = await self._take_left_behind()
                except StoreError as error:
                    logger.warning("event=spool_not_looked_through text=%r", str(error))
                    folder = None
                if folder is None:
                    slots.release()
                    await asyncio.sleep(RESCAN_S)
                    continue
                self._seen.add(folder.path)
                task = asyncio.ensure_future(self._empty(self._spool_in(folder)))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                task.add_done_callback(lambda _: slots.release())
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _take_left_behind(self) -> SpoolFolder | None:
        """One that is found while the spool is stopped is let go: this process may live on."""
        taking = asyncio.ensure_future(asyncio.to_thread(self._directory.take_left_behind, self._seen))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            (folder,) = await asyncio.gather(taking, return_exceptions=True)
            if isinstance(folder, SpoolFolder):
                folder.release()
            raise

    async def _empty(self, spool: OpenSpool) -> None:
        path = spool.folder.path
        opening = asyncio.ensure_future(spool.open())
        try:
            await asyncio.shield(opening)
        except StoreError as error:
            spool.folder.release()
            self._problem(str(error))
            return
        except asyncio.CancelledError:  # it is opened on a thread, which does not end before that is done
            (failure,) = await asyncio.gather(opening, return_exceptions=True)
            if failure is None:
                await spool.close()
            else:
                spool.folder.release()
            raise
        self._adopted[path] = spool
        logger.info("event=spool_taken_over folder=%s messages=%d", path, spool.counts().messages)
        try:
            await spool.run_syphon(until_empty=True)
        finally:
            del self._adopted[path]
            await asyncio.shield(spool.close())
            if not path.exists():  # another process may have a folder of this name next, and leave it behind
                self._seen.discard(path)

    def _open(self) -> list[OpenSpool]:
        return [*([] if self._own is None else [self._own]), *self._adopted.values()]

    def _wake(self) -> None:
        for spool in self._open():
            spool.wake()

    def _use_queues(self, queues: tuple[int, ...]) -> None:
        for spool in self._open():
            spool.use_queues(queues)


def _setter(done: Future[Failure | None]) -> Callable[[Failure | None], None]:
    def answer(failure: Failure | None) -> None:
        if not done.done():
            done.set_result(failure)

    return answer
