"""An event loop on a thread of its own, for code that has none, or has one that must not wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")
ANSWER_S_MAX = 3_600


class LoopThread:
    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result, or what the work raised. The caller bounds the waiting; this is only the very last limit."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(ANSWER_S_MAX)

    def close(self) -> None:
        """Ends the thread; harmless when it has ended."""
        if self._loop.is_closed():
            return
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
