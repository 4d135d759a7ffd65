"""What people see: bars in a terminal, plain lines in a pipe. The only importer of rich."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from typing import TextIO, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from twinbus.demo.story import Counted, Scene, Told

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
