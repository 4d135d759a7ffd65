"""A drain steered from outside: pause, resume and pace, by `twinbus syphon` on the machine of its driver.

What is told takes effect when the tasks that run have ended: at once where they run on this machine, because they look
for a file; elsewhere when their round is over. Tasks end cleanly: what they hold goes back to the backlog.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from twinbus.spark.drain.options import DrainOptions
from twinbus.spark.drain.result import DrainProgress
from twinbus.spark.drain.shard import ShardReport
from twinbus.spark.queue_browser import LoopThread
from twinbus.syphon.control import SHOWN_MAX, SyphonFacts
from twinbus.syphon.control_socket import SyphonControls
from twinbus.syphon.pump.pace import Keep, PaceChange, RunState

SUMS = ("moved_bytes", "refused", "expired", "repeated", "in_doubt")
WAIT_S = 0.5
"""How long a wait lasts at most, so that signals get through."""


class DrainSteering:
    """Said on the thread of the control socket, taken by the driver between rounds."""

    def __init__(self, options: DrainOptions, secondary: str, *, is_local: bool) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="twinbus-") if is_local else None
        self._signal = None if self._folder is None else Path(self._folder.name) / "end-round"
        self.options = replace(options, signal=None if self._signal is None else str(self._signal))
        """As they are from the next round on."""
        self._secondary = secondary
        self._state = RunState.RUNNING
        self._was_told = False
        self._sums = Counter(dict.fromkeys(SUMS, 0))
        """Of the tasks that have ended."""
        self.is_first_over = False
        """Whether the number of messages is moved after which to ask."""
        self._progress = DrainProgress(0, 0, 0, 0, 0.0, 0.0)
        self._is_changed = threading.Condition()
        self._began_s = time.monotonic()
        self._moved = 0
        """Since the rate was set."""

    # --- for the control socket ---

    def pause(self) -> None:
        with self._is_changed:
            self._state = RunState.PAUSED
            self._was_told = True
            self._end_round()

    def resume(self) -> None:
        with self._is_changed:
            self._state = RunState.RUNNING
            self._was_told = True
            self._is_changed.notify_all()

    def change_pace(self, change: PaceChange) -> None:
        with self._is_changed:
            options = self.options
            rate = options.rate if isinstance(change.rate, Keep) else change.rate
            first = options.first if isinstance(change.first, Keep) else change.first
            entities = options.entities if isinstance(change.entities, Keep) else change.entities
            self.options = replace(options, rate=rate, first=first, entities=entities)
            self.is_first_over = False
            self._began_s, self._moved = time.monotonic(), 0
            self._was_told = True
            self._end_round()

    def facts(self) -> SyphonFacts:
        with self._is_changed:
            options, progress, state, sums = self.options, self._progress, self._state, dict(self._sums)
        is_paused = state is not RunState.RUNNING
        left_s = progress.left / progress.rate if progress.rate > 0 and not is_paused else None
        return SyphonFacts(
            role="drain",
            primary=options.primary_name,
            secondary=self._secondary,
            state=state.value,
            is_paused=is_paused,
            seconds=progress.seconds,
            moved=progress.gone,
            rate=progress.rate,
            rate_limit=options.rate,
            first_left=0 if self.is_first_over else options.first,
            entities=None if options.entities is None else tuple(sorted(options.entities)[:SHOWN_MAX]),
            waiting=progress.left,
            seconds_left=left_s,
            oldest_age_s=None,
            held=0,
            outside=0,
            processes=progress.tasks,
            moved_bytes=sums["moved_bytes"],
            refused=sums["refused"],
            expired=sums["expired"],
            repeated=sums["repeated"],
            in_doubt=sums["in_doubt"],
        )

    # --- for the driver ---

    def show(self, progress: DrainProgress) -> None:
        with self._is_changed:
            self._progress = progress

    def next_round(self) -> DrainOptions:
        """The options of the next round, when it may begin: not while paused, nor faster than the rate allows."""
        with self._is_changed:
            while True:
                wait_s = WAIT_S if self._state is not RunState.RUNNING else self._ahead_s()
                if wait_s <= 0:
                    break
                self._is_changed.wait(min(wait_s, WAIT_S))
            if self._signal is not None:
                self._signal.unlink(missing_ok=True)
            return self.options

    def round_ended(self, reports: Sequence[ShardReport], asked: DrainOptions) -> None:
        """A round with these options has ended so."""
        count = sum(report.moved for report in reports)
        with self._is_changed:
            for name in SUMS:
                self._sums[name] += sum(getattr(report, name) for report in reports)
            self._moved += count if asked.rate == self.options.rate else 0
            first = self.options.first
            if first is not None and asked.first == first:
                self.is_first_over = count >= first
                self.options = self.options if self.is_first_over else replace(self.options, first=first - count)

    def take_told(self) -> bool:
        """Whether anything was said since the last time: then nobody wonders that less moves."""
        with self._is_changed:
            was_told, self._was_told = self._was_told, False
            return was_told

    def go_on(self) -> None:
        """Somebody was asked, and wants all the others too."""
        with self._is_changed:
            self.options = replace(self.options, first=None)
            self.is_first_over = False

    def _ahead_s(self) -> float:
        """By how much the rounds so far were too fast: each task may send a message at once when it begins."""
        rate = self.options.rate
        return 0.0 if rate is None else self._moved / rate - (time.monotonic() - self._began_s)

    def _end_round(self) -> None:
        if self._signal is not None:
            self._signal.touch()

    def __enter__(self) -> DrainSteering:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._folder is not None:
            self._folder.cleanup()


@contextmanager
def steered(steering: DrainSteering) -> Iterator[None]:
    """Inside the block `twinbus syphon` on this machine finds the drain."""
    loop = LoopThread("twinbus-drain-control")
    controls = SyphonControls(steering.options.primary_name, steering)
    try:
        loop.run(controls.start())
        yield
    finally:
        loop.run(controls.stop())
        loop.close()
