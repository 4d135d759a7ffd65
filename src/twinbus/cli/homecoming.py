"""One run of a syphon for somebody who watches: what signals and answers do to it, and what is shown of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Protocol

from twinbus.cli.on_signals import on_signals

if TYPE_CHECKING:
    from twinbus.syphon import Alert, Progress, Syphon

PAUSED, AFTER_CANARY = "paused", "paused after the canary"
ORDER_UNKNOWN = "order_unknown"
COUNT_AGAIN_S = (0.2, 10.0)
"""How soon it is tried again to count, from the first time to the last: each try may cost a peek a queue."""


class Ending(Enum):
    """How a run ended."""

    EMPTY = "empty"
    """Nothing is left in the backlog."""
    CHOSEN = "chosen"
    """Nothing is left of what was to be moved; other messages are there, or may be."""
    UNSURE = "unsure"
    """Nothing is left that can be seen, and nobody can say whether there is more."""
    CANARY = "canary"
    """So many were moved as `--first` said, and nobody was there to say: go on."""
    STOPPED = "stopped"
    """Somebody wished so."""
    INTERRUPTED = "interrupted"
    """The same, by Ctrl-C."""
    ORDER_UNKNOWN = "order unknown"
    """Order was asked for, and what lies in the backlog does not tell it."""


class Screen(Protocol):
    """Where progress is shown."""

    @property
    def every_s(self) -> float:
        """How often somebody looks."""

    @property
    def can_ask(self) -> bool: ...

    def show(self, progress: Progress) -> None: ...

    def tell(self, alert: Alert) -> None: ...

    def ask(self, question: str) -> None: ...

    def close(self) -> None: ...


class Homecoming:
    """Run it in an event loop of the main thread.

    SIGTERM and Ctrl-C end it cleanly: what is on its way arrives, what was borrowed goes back. A second one ends the
    process on the spot, which loses nothing either: the backlog gives back what was borrowed when its locks end.
    SIGUSR1 pauses, and the next one goes on; SIGUSR2 goes on too, and changes nothing if it is not paused.
    """

    def __init__(self, make: Callable[[Callable[[Alert], None]], Syphon], screen: Screen) -> None:
        """`make` is given who hears the syphon's alerts."""
        self._syphon = self.syphon = make(self._hear)
        self._screen = screen
        self.problem: str | None = None
        """Why order is not known, if that ended it."""
        self._ending: Ending | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._has_asked = False

    async def run(self, look: Callable[[Ending, Progress], Awaitable[None]]) -> tuple[Ending, Progress]:
        """How it ended, and how far it was. Raises what broke the syphon.

        `look` sees to what there is to know then: a signal that comes meanwhile changes nothing of how it ended.
        """
        actions: dict[signal.Signals, Callable[[], object]] = {
            signal.SIGTERM: partial(self._stop, Ending.STOPPED, signal.SIGTERM),
            signal.SIGINT: partial(self._stop, Ending.INTERRUPTED, signal.SIGINT),
            signal.SIGUSR1: self._pause_or_resume,
            signal.SIGUSR2: self._go_on,
        }
        with on_signals(actions):
            try:
                ending, progress = await self._follow()
                await look(ending, progress)
                return ending, progress
            finally:
                self._screen.close()

    async def _follow(self) -> tuple[Ending, Progress]:
        syphon = self._syphon
        async with syphon:
            counting = asyncio.create_task(self._count())
            async for progress in syphon.progress(self._screen.every_s):
                self._screen.show(progress)
                is_calm = progress.held == 0  # those of the canary are counted when the backlog has let them go
                if progress.state == AFTER_CANARY and is_calm and self._ending is None:
                    self._after_canary(progress.moved)
            counting.cancel()
            await asyncio.gather(counting, return_exceptions=True)
            if self._stopping is not None:
                await self._stopping
            await syphon.finished()
        last = syphon.look()
        return self._ending or (Ending.EMPTY if syphon.queues.doubt is None else Ending.UNSURE), last

    async def _count(self) -> None:
        """As soon as there is a connection: how many there are to move, for an estimate."""
        from twinbus.syphon.linked import LineFailed

        pause_s = COUNT_AGAIN_S[0]
        while True:
            with contextlib.suppress(LineFailed):
                if await self._syphon.count() is not None:
                    return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, COUNT_AGAIN_S[1])

    def look(self) -> Progress:
        """How far it is; any thread may look."""
        return self._syphon.look()

    def _hear(self, alert: Alert) -> None:
        if alert.name == ORDER_UNKNOWN:
            self.problem = f"{alert.subject}: {alert.text}"
            self._stop(Ending.ORDER_UNKNOWN)
        else:
            self._screen.tell(alert)

    # --- orders from outside ---

    def _stop(self, ending: Ending, number: int = 0) -> None:
        if self._ending is not None and number:
            os._exit(128 + number)
        self._ending = self._ending or ending
        self._stopping = asyncio.get_running_loop().create_task(self._syphon.stop())

    def _pause_or_resume(self) -> None:
        if self._syphon.look().state in (PAUSED, AFTER_CANARY):
            self._go_on()
        else:
            self._syphon.pause()

    def _go_on(self) -> None:
        self._forget_question()
        self._syphon.resume()

    # --- after the first ones ---

    def _after_canary(self, moved: int) -> None:
        if not self._screen.can_ask:
            self._stop(Ending.CANARY)
        elif not self._has_asked:
            self._has_asked = True
            self._screen.ask(f"{moved:,} messages are home. Look at them; go on with the others? [y/N] ")
            asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._answered)

    def _answered(self) -> None:
        answer = sys.stdin.readline()
        self._forget_question()
        if answer.strip().lower() in ("y", "yes"):
            self._go_on()
        else:
            self._stop(Ending.CANARY)

    def _forget_question(self) -> None:
        if self._has_asked:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
