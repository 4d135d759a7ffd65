"""The poster of a paired client, on the client's own event loop."""

from __future__ import annotations

import asyncio

from twinbus.client.core.own_board import BoardWork, OwnBoard


class BoardRunner:
    def __init__(self, own: OwnBoard, _name: str) -> None:
        self._own = own
        self._poster: BoardWork | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to post; nothing waits for it."""
        self._poster = self._own.make()
        self._task = asyncio.get_running_loop().create_task(self._poster.run(), name="twinbus-board")

    def wake(self) -> None:
        """Something may have changed."""
        if self._poster is not None:
            self._poster.wake()

    async def stop(self) -> None:
        """Say goodbye if that is possible at once; calling it again is fine."""
        poster, task = self._poster, self._task
        if poster is None or task is None:
            return
        self._poster = self._task = None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await poster.end()
