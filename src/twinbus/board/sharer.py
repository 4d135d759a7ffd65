"""Reads the board in the background while an entity of ours is suspect, and says what a quorum has failed over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from time import monotonic

from twinbus.board.board_peek import look
from twinbus.board.quorum import FRESH_S, LOOK_EVERY_S, TIME_GOOD_S, SharedFindings
from twinbus.board.reader import run_look
from twinbus.errors import DecodeError
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.dial import Dial
from twinbus.transport.failures import ConnectionFailed
from twinbus.transport.shared_connection import SharedConnection

CHECK_S = 0.5
"""How often it is checked whether anything is suspect, which costs nothing."""
RETRY_S = 10.0
"""After a look that failed, or was for the time alone."""
SHARER_NAME = "board-sharer"


class BoardSharer:
    """For one event loop. `run` it in a task; cancel that, then `close`."""

    def __init__(
        self,
        dial: Dial,
        path: str,
        findings: SharedFindings,
        *,
        has_posted: Callable[[], bool],
        is_suspect: Callable[[], bool],
        on_confirmed: Callable[[Mapping[str, Sequence[str]]], None],
        attempt_s: float = 5.0,
        on_peek: Callable[[str, Sequence[bytes]], None] = lambda _path, _messages: None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`on_confirmed` gets entities with the hosts that have failed them over, while `is_suspect`."""
        self._path, self._findings = path, findings
        self._has_posted, self._is_suspect, self._on_confirmed = has_posted, is_suspect, on_confirmed
        self._attempt_s, self._clock = attempt_s, clock
        self._shared = SharedConnection(
            lambda: NamespaceConnection(dial, attempt_s=attempt_s, name=SHARER_NAME, on_peek=on_peek)
        )
        self._next_sequence: int | None = None
        self._looked_at = float("-inf")
        self._timed_at = float("-inf")

    async def run(self) -> None:
        """Until cancelled. A board that cannot be read confirms nothing."""
        while True:
            await asyncio.sleep(CHECK_S)
            needs_time = self._clock() - self._timed_at > TIME_GOOD_S
            if not self._has_posted() or not (needs_time or self._is_suspect()):
                continue
            if not await self._look():
                await asyncio.sleep(RETRY_S)
                continue
            confirmed = self._findings.confirmed(self._clock())
            if confirmed and self._is_suspect():
                self._on_confirmed(confirmed)
            await asyncio.sleep((LOOK_EVERY_S if self._is_suspect() else RETRY_S) - CHECK_S)

    async def close(self) -> None:
        await self._shared.close()

    async def _look(self) -> bool:
        """Whether the board could be read."""
        if self._clock() - self._looked_at > FRESH_S:
            self._next_sequence = None  # what came since would take long, and is old
        try:
            async with asyncio.timeout(6 * self._attempt_s):
                connection = await self._shared.get()
                found = await run_look(connection, self._path, look(self._next_sequence, life_s=FRESH_S))
        except (ConnectionFailed, DecodeError, TimeoutError):
            return False
        has_own = self._findings.add(found, self._clock())
        self._next_sequence, self._looked_at = found.next_sequence, self._clock()
        if has_own:
            self._timed_at = self._looked_at
        return True
