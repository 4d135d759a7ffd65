"""Progress of long work: a bar on a terminal after two seconds, nothing in a pipe."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, TextIO

from twinbus.plain_text import on_one_line, without_keys
from twinbus.units import rough_duration, size_text

if TYPE_CHECKING:
    from twinbus.syphon.progress import Progress as SyphonProgress

PATIENCE_S = 2.0
"""How long people wait without wondering."""
DRAW_EVERY_S = 0.2


class ProgressBar:
    """`with ProgressBar("sending", total=100) as bar:` and `bar.done += 1` wherever something is done.

    Drawn by a thread of its own, so that counting costs nothing; it is gone when the block ends.
    """

    def __init__(
        self,
        what: str,
        total: int | None = None,
        *,
        written: Callable[[int], str] = "{:,}".format,
        lines: TextIO | None = None,
        hidden: bool = False,
    ) -> None:
        """Without a total it only shows that something goes on. `written`: how numbers are written.

        `hidden`: others write to the same terminal.
        """
        self._written = written
        self.what = what
        self.total = total
        self.done = 0
        self._lines = sys.stderr if lines is None else lines
        self._is_shown = self._lines.isatty() and not hidden
        self._notes: deque[str] = deque()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> ProgressBar:
        if self._is_shown:
            self._thread = threading.Thread(target=self._draw, name="twinbus-bar", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        self._write_notes()

    def say(self, text: str) -> None:
        """What is going on now: beside the bar on a terminal, as a line elsewhere."""
        if self._is_shown:
            self.what = on_one_line(text)
        else:
            self._lines.write(f"twinbus: {on_one_line(text)}\n")
            self._lines.flush()

    def note(self, text: str) -> None:
        """What has to be read: a line that stays, above the bar if there is one."""
        self._notes.append(on_one_line(without_keys(text)))
        if not self._is_shown:
            self._write_notes()

    def _write_notes(self) -> None:
        while self._notes:
            self._lines.write(f"twinbus: {self._notes.popleft()}\n")
        self._lines.flush()

    def _draw(self) -> None:
        began = monotonic()
        if self._over.wait(PATIENCE_S):
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        description = TextColumn("  {task.description}", markup=False)
        columns = (description, BarColumn(30), TextColumn("{task.fields[facts]}", markup=False))
        console = Console(file=self._lines, highlight=False)
        with Progress(*columns, console=console, transient=True, auto_refresh=False) as progress:
            task = progress.add_task(self.what, total=self.total, facts="")
            while True:
                while self._notes:
                    progress.console.print(f"twinbus: {self._notes.popleft()}", markup=False, soft_wrap=True)
                facts = self._facts(monotonic() - began)
                progress.update(
                    task, description=self.what, total=self.total, completed=self.done, facts=facts, refresh=True
                )
                if self._over.wait(DRAW_EVERY_S):
                    return

    def _facts(self, seconds: float) -> str:
        if not self.done:
            return rough_duration(seconds)
        if self.total is None:
            return f"{self._written(self.done)}  {rough_duration(seconds)}"
        left = max(0, self.total - self.done) * seconds / self.done
        return f"{self._written(self.done)} of {self._written(self.total)}  {rough_duration(left)} left"


FACTS_WIDTH = 85
"""What the words beside a bar may take; in a narrow terminal the bar is shorter."""


class SyphonBar:
    """How far a syphon is: a bar that is drawn anew with every look."""

    def __init__(self, lines: TextIO) -> None:
        from rich.console import Console

        self._console = Console(file=lines, highlight=False)
        self._bar: Any = None
        self._task: Any = None

    def show(self, progress: SyphonProgress) -> None:
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        if self._bar is None:
            bar = BarColumn(min(30, max(5, self._console.width - FACTS_WIDTH)))
            facts = TextColumn("{task.fields[facts]}", markup=False, table_column=Column(no_wrap=True))
            state = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, min_width=9))
            columns = (state, bar, facts)
            self._bar = Progress(*columns, console=self._console, transient=True, auto_refresh=False)
            self._task = self._bar.add_task("", total=None, facts="")
            self._bar.start()
        total = None if progress.left is None else progress.moved + progress.left
        described, told = _home_facts(progress)
        self._bar.update(
            self._task, description=described, facts=told, total=total, completed=progress.moved, refresh=True
        )

    def say(self, text: str) -> None:
        """A line above the bar."""
        self._console.print(on_one_line(text), markup=False, soft_wrap=True)

    def hide(self) -> None:
        """Until the next look."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _home_facts(progress: SyphonProgress) -> tuple[str, str]:
    left = "" if progress.left is None else f" of {progress.moved + progress.left:,}"
    facts = [f"{progress.moved:,}{left}", size_text(progress.moved_bytes), f"{progress.rate:,.0f}/s"]
    if progress.seconds_left is not None:
        facts.append(f"{rough_duration(progress.seconds_left)} left")
    if progress.oldest_age_s is not None:
        facts.append(f"oldest {rough_duration(progress.oldest_age_s)}")
    resting = sum([each.state == "resting" for each in progress.destinations])
    if resting:
        facts.append(f"{resting} down")
    return f"  {progress.state}", "  ".join(facts)
