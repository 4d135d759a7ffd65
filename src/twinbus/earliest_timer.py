"""One call in the future, at the earliest time that anybody has asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class EarliestTimer:
    """Calls `act` once the time has come. One that is due too early is kept, one that is due too late is replaced."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act
        self._handle: asyncio.TimerHandle | None = None
        self._at = 0.0

    def set(self, at: float, in_s: float) -> None:
        """`at`, by the clock of the caller, is in so many seconds from now."""
        if self._handle is not None:
            if self._at <= at:
                return
            self._handle.cancel()
        self._at = at
        self._handle = asyncio.get_running_loop().call_later(in_s, self._run)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _run(self) -> None:
        self._handle = None
        self._act()
