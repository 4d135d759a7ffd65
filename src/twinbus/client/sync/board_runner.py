"""The poster of a paired client, on a daemon thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading

from twinbus.client.core.own_board import BoardWork, OwnBoard

LOGGER = logging.getLogger("twinbus.pairing")
STOP_PATIENCE_S = 5.0


class BoardRunner:
    def __init__(self, own: OwnBoard, name: str) -> None:
        self._own = own
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leave: asyncio.Event | None = None
        self._poster: BoardWork | None = None
        self._is_woken = False
        self._has_begun = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"twinbus-{name}-board", daemon=True)

    def start(self) -> None:
        """Begin to post; nothing waits for it."""
        self._thread.start()
        self._has_begun.wait()  # its loop, not a post

    def wake(self) -> None:
        """Something may have changed. Any thread may call it, and it is cheap."""
        loop = self._loop
        if not self._is_woken and loop is not None:
            self._is_woken = True
            with contextlib.suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(self._wake)

    def stop(self) -> None:
        """Say goodbye if that is possible at once; calling it again is fine."""
        loop, leave = self._loop, self._leave
        if loop is None or leave is None:
            return
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(leave.set)
        if self._thread is not threading.current_thread():
            self._thread.join(STOP_PATIENCE_S)

    def _wake(self) -> None:
        self._is_woken = False
        if self._poster is not None:
            self._poster.wake()

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except Exception:  # without a board everything else works on
            LOGGER.exception("event=internal_error reason=%r", "the board broke")
        finally:
            self._has_begun.set()

    async def _live(self) -> None:
        self._poster = poster = self._own.make()
        self._leave = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._has_begun.set()
        posting, leaving = asyncio.create_task(poster.run()), asyncio.create_task(self._leave.wait())
        await asyncio.wait((posting, leaving), return_when=asyncio.FIRST_COMPLETED)
        for task in (posting, leaving):
            task.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        await asyncio.gather(posting, return_exceptions=True)
        await poster.end()
        if not posting.cancelled():
            posting.result()
