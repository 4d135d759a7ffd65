"""The syphon of a paired client, on the client's own event loop."""

from __future__ import annotations

import asyncio

from twinbus.client.core.own_syphon import OwnSyphon
from twinbus.syphon import Syphon
from twinbus.syphon.control_socket import SyphonControls, steerable


class SyphonRunner:
    def __init__(self, own: OwnSyphon, queues: list[int], _name: str) -> None:
        self._own = own
        self._queues = queues
        self._watch: asyncio.Task[None] | None = None
        self._controls: SyphonControls | None = None

    async def start(self) -> None:
        """Returns when the syphon runs."""
        syphon = self._own.make(self._queues)
        await syphon.start()
        self._controls = steerable(syphon, "client")
        await self._controls.start()
        self._watch = asyncio.get_running_loop().create_task(self._finished(syphon), name="twinbus-syphon")

    async def stop(self) -> None:
        """Finish what is on its way; calling it again is fine."""
        syphon = self._own.syphon
        if syphon is None or self._watch is None:
            return
        if self._controls is not None:
            await self._controls.stop()
        await syphon.stop()
        if self._watch is not asyncio.current_task():
            await asyncio.gather(self._watch, return_exceptions=True)
        await asyncio.to_thread(self._own.close)

    async def _finished(self, syphon: Syphon) -> None:
        try:
            await syphon.finished()
        except BaseException as error:  # a fault of the syphon's own is a fault of the pair
            self._own.on_broken(error)
