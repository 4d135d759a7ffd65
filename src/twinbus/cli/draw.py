"""What people see: bars in a terminal, tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

from twinbus.client.duration import roughly
from twinbus.plain_text import harmless, on_one_line

if TYPE_CHECKING:
    from twinbus.syphon.progress import Progress as SyphonProgress


FACTS_WIDTH = 85
"""What the words beside a bar may take; in a narrow terminal the bar is shorter."""


class HomeBar:
    """How far a syphon is: a bar that is drawn anew with every look."""

    def __init__(self, lines: TextIO) -> None:
        self._console = Console(file=lines, highlight=False)
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def show(self, progress: SyphonProgress) -> None:
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
    from twinbus.cli.commands.status import size

    left = "" if progress.left is None else f" of {progress.moved + progress.left:,}"
    facts = [f"{progress.moved:,}{left}", size(progress.moved_bytes), f"{progress.rate:,.0f}/s"]
    if progress.seconds_left is not None:
        facts.append(f"{roughly(progress.seconds_left)} left")
    if progress.oldest_age_s is not None:
        facts.append(f"oldest {roughly(progress.oldest_age_s)}")
    resting = sum([each.state == "resting" for each in progress.destinations])
    if resting:
        facts.append(f"{resting} down")
    return f"  {progress.state}", "  ".join(facts)


CELL_LENGTH_MAX = 300


def _cell(value: object) -> str:
    """Spaces stay: some cells are indented."""
    text = harmless(str(value))
    return text if len(text) <= CELL_LENGTH_MAX else f"{text[:CELL_LENGTH_MAX]}..."


def table(rows: Sequence[Sequence[object]]) -> str:
    """Columns under their heads (the first row); the first column to the left, numbers to the right."""
    texts = [[f"{cell:,}" if isinstance(cell, int) else _cell(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        ).rstrip()
        for row in texts
    )
