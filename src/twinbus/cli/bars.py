"""How far something is that takes its time: a bar on a terminal once two seconds are over, nothing in a pipe."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import TextIO

from twinbus.plain_text import on_one_line, without_keys

PATIENCE_S = 2.0
"""How long people wait without wondering."""
DRAW_EVERY_S = 0.2


class Bar:
    """`with Bar("sending", total=100) as bar:` and `bar.done += 1` wherever something is done.

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

    def __enter__(self) -> Bar:
        if self._is_shown:
            self._thread = threading.Thread(target=self._draw, name="twinbus-bar", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        from twinbus.client.duration import roughly

        if not self.done:
            return roughly(seconds)
        if self.total is None:
            return f"{self._written(self.done)}  {roughly(seconds)}"
        left = max(0, self.total - self.done) * seconds / self.done
        return f"{self._written(self.done)} of {self._written(self.total)}  {roughly(left)} left"
