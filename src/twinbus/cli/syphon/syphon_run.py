"""One run of a syphon in a command: signals, the question after `--first`, and the texts about its result."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from twinbus.cli.output import table
from twinbus.cli.signals import on_signals
from twinbus.plain_text import first_few, on_one_line

if TYPE_CHECKING:
    from twinbus.cli.metrics_export import MetricsFile
    from twinbus.cli.syphon.syphon_screens import Screen
    from twinbus.syphon import Alert, Progress, Syphon
    from twinbus.syphon.peeking.dry_run import DryRun, MessageGroup

PAUSED, AFTER_CANARY = "paused", "paused after the canary"
ORDER_UNKNOWN = "order_unknown"
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
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


class SyphonRun:
    """Run it in an event loop of the main thread.

    SIGTERM and Ctrl-C end it cleanly: what is on its way arrives, what was borrowed goes back. A second one ends the
    process on the spot, which loses nothing either: the backlog gives back what was borrowed when its locks end.
    SIGUSR1 pauses, and the next one goes on; SIGUSR2 goes on too, and changes nothing if it is not paused. The control
    socket does the same, and changes the pace.
    """

    def __init__(
        self, make: Callable[[Callable[[Alert], None]], Syphon], screen: Screen, metrics: MetricsFile | None
    ) -> None:
        """`make` gets what takes the syphon's alerts."""
        self.syphon = make(self._on_alert)
        self._screen = screen
        self._metrics = metrics
        self.problem: str | None = None
        """Why order is not known, if that ended it."""
        self._ending: Ending | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._has_asked = False

    async def run(self, look: Callable[[Ending, Progress], Awaitable[None]]) -> tuple[Ending, Progress]:
        """How it ended, and how far it was. Raises what broke the syphon.

        `look` sees to what there is to know then: a signal that comes meanwhile changes nothing of how it ended.
        """
        with on_signals({number: partial(self.signal, number) for number in SIGNALS}):
            ending, progress = await self.run_without_signals()
            await look(ending, progress)
            return ending, progress

    async def run_without_signals(self) -> tuple[Ending, Progress]:
        """The same for a caller that passes signals on to `signal`."""
        try:
            return await self._follow()
        finally:
            self._screen.close()

    def signal(self, number: signal.Signals) -> None:
        """One of `SIGNALS` has come."""
        match number:
            case signal.SIGTERM:
                self._stop(Ending.STOPPED, number)
            case signal.SIGINT:
                self._stop(Ending.INTERRUPTED, number)
            case signal.SIGUSR1:
                self._pause_or_resume()
            case _:
                self._go_on()

    async def _follow(self) -> tuple[Ending, Progress]:
        from twinbus.syphon.control_socket import steerable

        syphon = self.syphon
        async with syphon, steerable(syphon, "command"):
            counting = asyncio.create_task(self._count())
            async for progress in syphon.progress(self._screen.every_s):
                self._screen.show(progress)
                if self._metrics is not None:
                    self._metrics.show(progress)
                is_calm = progress.held == 0  # those of the canary are counted when the backlog has let them go
                if progress.state == AFTER_CANARY and is_calm and self._ending is None:
                    self._after_canary(progress.moved, stays=syphon.pump.pace.stays_after_canary)
            counting.cancel()
            await asyncio.gather(counting, return_exceptions=True)
            if self._stopping is not None:
                await self._stopping
            await syphon.finished()
        last = syphon.current_progress()
        return self._ending or (Ending.EMPTY if syphon.queues.doubt is None else Ending.UNSURE), last

    async def _count(self) -> None:
        """As soon as there is a connection: how many there are to move, for an estimate."""
        from twinbus.transport.failures import ConnectionFailed

        pause_s = COUNT_AGAIN_S[0]
        while True:
            with contextlib.suppress(ConnectionFailed):
                if await self.syphon.count() is not None:
                    return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, COUNT_AGAIN_S[1])

    def _on_alert(self, alert: Alert) -> None:
        if alert.name == ORDER_UNKNOWN:
            self.problem = f"{alert.subject}: {alert.text}"
            self._stop(Ending.ORDER_UNKNOWN)
        else:
            self._screen.alert(alert)

    # --- orders from outside ---

    def _stop(self, ending: Ending, number: int = 0) -> None:
        if self._ending is not None and number:
            os._exit(128 + number)
        self._ending = self._ending or ending
        self._stopping = asyncio.get_running_loop().create_task(self.syphon.stop())

    def _pause_or_resume(self) -> None:
        if self.syphon.current_progress().state in (PAUSED, AFTER_CANARY):
            self._go_on()
        else:
            self.syphon.pause()

    def _go_on(self) -> None:
        self._forget_question()
        self.syphon.resume()

    # --- after the first ones ---

    def _after_canary(self, moved: int, *, stays: bool) -> None:
        if stays:  # `twinbus syphon pace --first` has paused it, and `resume` goes on
            return
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


def refused_text(refused: int, expired: int) -> str:
    """Which messages of this run went to the quarantine."""
    counts = f"{refused:,} can never be stored and {expired:,} are past their time to live"
    return f"{counts}: see twinbus syphon quarantine list"


def quarantine_text(count: int) -> str:
    """What to do with messages that did not come home and will not by themselves."""
    from twinbus.syphon.peeking.backlog_scan import QUARANTINED_MAX

    exactly = "1 message is" if count == 1 else f"{count:,} messages are"
    many = f"{count:,} or more messages are" if count >= QUARANTINED_MAX else exactly
    return f"{many} in quarantine: twinbus syphon quarantine list shows, redrive sends home, discard throws away"


def outside_text(count: int) -> str:
    """Messages that nobody was told to move."""
    from twinbus.syphon.peeking.backlog_scan import UNLISTED_MAX

    exactly = "1 message stays" if count == 1 else f"{count:,} messages stay"
    many = f"{count:,} or more messages stay" if count >= UNLISTED_MAX else exactly
    return f"{many} in the backlog, for entities that were not named: twinbus syphon --dry-run shows which"


def extra_text(indexes: Sequence[int]) -> str:
    """Messages lay where nobody expected them."""
    named = first_few([str(index) for index in indexes], 5)
    return f"messages were in backlog queues beyond --queues: {named}; a sender elsewhere has more of them than that"


def result_text(ending: Ending, progress: Progress, notes: Sequence[str] = ()) -> str:
    """How it went; `notes` say what else there is to know."""
    from twinbus.units import rough_duration, size_text

    how = {
        Ending.EMPTY: "the backlog is empty",
        Ending.CHOSEN: "nothing of what was chosen is left in the backlog",
        Ending.UNSURE: "all that can be seen of the backlog",
        Ending.CANARY: "stopped after the first ones; the others stay in the backlog until twinbus syphon runs again",
        Ending.STOPPED: "stopped",
        Ending.INTERRUPTED: "interrupted; what is left stays in the backlog",
        Ending.ORDER_UNKNOWN: "stopped, because the order of the next ones is not known",
    }[ending]
    pace = f", {progress.moved / progress.seconds:,.0f}/s" if progress.moved and progress.seconds > 0 else ""
    moved = f"{progress.moved:,} messages ({size_text(progress.moved_bytes)}) are home"
    lines = [f"{moved}, in {rough_duration(progress.seconds)}{pace}: {how}"]
    if progress.refused or progress.expired:
        lines.append(refused_text(progress.refused, progress.expired))
    if progress.repeated or progress.in_doubt:
        lines.append(f"{progress.repeated + progress.in_doubt:,} may be at home twice, with the same id")
    return "\n".join([*lines, *notes])


def survey_text(found: DryRun, now: datetime) -> str:
    """What would go where, as a table."""
    others = {
        "(refused: malformed)": found.malformed,
        "(expired)": found.expired,
        "(not chosen)": found.unwanted,
        "(cannot be moved)": found.kept,
        "(set aside by others)": found.set_aside,
    }
    shares = dict(sorted(found.destinations.items())) | {name: each for name, each in others.items() if each.messages}
    rows = [(name, each.messages, *_size_and_ages(each, now)) for name, each in shares.items()]
    nothing = "the backlog is empty" if found.doubt is None else "nothing lies in what can be seen of the backlog"
    shown = table([("destination", "messages", "size", "oldest", "newest"), *rows]) if rows else nothing
    order = [] if found.order_problem is None else [on_one_line(f"order cannot be promised: {found.order_problem}")]
    return "\n\n".join([shown, *order, *(["\n".join(map(on_one_line, found.doubts))] if found.doubts else [])])


def _size_and_ages(share: MessageGroup, now: datetime) -> tuple[str, str, str]:
    from twinbus.units import rough_duration, size_text

    now_ms = now.timestamp() * 1000
    ages = [
        "?" if at_ms is None else rough_duration(max(0.0, now_ms - at_ms) / 1000)
        for at_ms in (share.oldest_ms, share.newest_ms)
    ]
    return size_text(share.size), ages[0], ages[1]
