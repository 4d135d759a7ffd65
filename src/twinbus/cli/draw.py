"""What people see: bars in a terminal, plain lines in a pipe. The only importer of rich."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, TextIO, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from twinbus.client.duration import roughly
from twinbus.demo.story import Counted, Scene, Told

if TYPE_CHECKING:
    from twinbus.syphon.progress import Progress as SyphonProgress

Result = TypeVar("Result")


def follow(story: Generator[Scene, None, Result], lines: TextIO) -> Result:
    """Show a story as it goes on and return what it comes to; told lines are written to `lines`."""
    with closing(story):  # its processes end also when showing it is interrupted
        console = Console(file=lines, highlight=False)
        return _follow_with_bars(story, console) if console.is_terminal else _follow_plainly(story, lines)


def _follow_plainly(story: Generator[Scene, None, Result], lines: TextIO) -> Result:
    try:
        while True:
            scene = next(story)
            if isinstance(scene, Told):
                lines.write(scene.text + "\n")
                lines.flush()
    except StopIteration as end:
        result: Result = end.value
        return result


def _follow_with_bars(story: Generator[Scene, None, Result], console: Console) -> Result:
    columns = (TextColumn("  {task.description:28}"), BarColumn(), MofNCompleteColumn())
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=console, transient=True) as progress:
        try:
            while True:
                match next(story):
                    case Told(text):
                        progress.console.print(text, markup=False, soft_wrap=True)
                    case Counted(what, done, total):
                        if what not in tasks:
                            tasks[what] = progress.add_task(what, total=total)
                        progress.update(tasks[what], completed=done)
        except StopIteration as end:
            result: Result = end.value
            return result


class HomeBar:
    """How far a syphon is: a bar that is drawn anew with every look."""

    def __init__(self, lines: TextIO) -> None:
        self._console = Console(file=lines, highlight=False)
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def show(self, progress: SyphonProgress) -> None:
        if self._bar is None:
            columns = (TextColumn("{task.description}"), BarColumn(30), TextColumn("{task.fields[facts]}"))
            self._bar = Progress(*columns, console=self._console, transient=True, auto_refresh=False)
            self._task = self._bar.add_task("", total=None, facts="")
            self._bar.start()
        total = None if progress.left is None else progress.moved + progress.left
        described, facts = _home_facts(progress)
        self._bar.update(
            self._task, description=described, facts=facts, total=total, completed=progress.moved, refresh=True
        )

    def say(self, text: str) -> None:
        """A line above the bar."""
        self._console.print(text, markup=False, soft_wrap=True)

    def hide(self) -> None:
        """Until the next look."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _home_facts(progress: SyphonProgress) -> tuple[str, str]:
    left = "" if progress.left is None else f" of {progress.moved + progress.left:,}"
    facts = [f"{progress.moved:,}{left}", f"{progress.rate:,.0f}/s"]
    if progress.seconds_left is not None:
        facts.append(f"{roughly(progress.seconds_left)} left")
    if progress.oldest_age_s is not None:
        facts.append(f"oldest {roughly(progress.oldest_age_s)}")
    resting = sum([each.state == "resting" for each in progress.destinations])
    if resting:
        facts.append(f"{resting} down")
    return f"  {progress.state}", "  ".join(facts)


def table(rows: Sequence[Sequence[object]]) -> str:
    """Columns under their heads (the first row); the first column to the left, numbers to the right."""
    texts = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in texts
    )
