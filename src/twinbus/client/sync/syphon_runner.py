"""The syphon of a paired client, on a daemon thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading

from twinbus.client.core.own_syphon import OwnSyphon
from twinbus.syphon.control_socket import steerable

STOP_PATIENCE_S = 10.0
"""A syphon that is stopped finishes what is on its way, which takes 5 s at most, and closes its connections."""


class SyphonRunner:
    def __init__(self, own: OwnSyphon, queues: list[int], name: str) -> None:
        self._own = own
        self._queues = queues
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leave: asyncio.Event | None = None
        self._has_begun = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"twinbus-{name}-syphon", daemon=True)

    def start(self) -> None:
        """Returns when the syphon runs."""
        self._thread.start()
        self._has_begun.wait()

    def stop(self) -> None:
        """Finish what is on its way and end the thread; calling it again is fine."""
        loop, leave = self._loop, self._leave
        if loop is None or leave is None:
            return
        with contextlib.suppress(RuntimeError):  # it has ended meanwhile
            loop.call_soon_threadsafe(leave.set)
        if self._thread is not threading.current_thread():
            self._thread.join(STOP_PATIENCE_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:  # a fault of the syphon's own is a fault of the pair
            self._own.on_broken(error)
        finally:
            self._has_begun.set()
            self._own.close()

    async def _live(self) -> None:
        self._loop, self._leave = asyncio.get_running_loop(), asyncio.Event()
        async with self._own.make(self._queues) as syphon, steerable(syphon, "client"):
            self._has_begun.set()
            ended = asyncio.create_task(syphon.finished())
            leaving = asyncio.create_task(self._leave.wait())
            await asyncio.wait((ended, leaving), return_when=asyncio.FIRST_COMPLETED)
            leaving.cancel()
            await syphon.stop()
            await ended
