"""Pictures of the demo for the documents: `make pictures` runs it in tmux and keeps what the terminal showed, as SVG.

Two moments: the outage, when every entity has failed over and pings go out, and the end. Nothing is drawn by hand; only
the folder that the report went to has another name in the picture.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

TWINBUS = Path(sys.executable).parent / "twinbus"
IMAGES = Path(__file__).parent.parent / "images"
COLUMNS, LINES = 80, 50
PATIENCE_S = 180.0
LOOK_S = 0.1
SOMEWHERE = "/home/you/"


class Terminal:
    """A terminal of a fixed size, with a command in it; on a tmux server of its own, which ends with the block."""

    def __init__(self, command: str) -> None:
        self._tmux = ["tmux", "-L", f"twinbus-pictures-{time.time_ns()}", "-f", "/dev/null"]
        self._command = command

    def __enter__(self) -> Terminal:
        self._run("new-session", "-d", "-x", str(COLUMNS), "-y", str(LINES), self._command)
        self._run("set-option", "-g", "status", "off")
        return self

    def __exit__(self, *_: object) -> None:
        self._run("kill-server")

    def screen(self) -> str:
        """What it shows now, with its colours."""
        return self._run("capture-pane", "-p", "-e")

    def _run(self, *arguments: str) -> str:
        return subprocess.run([*self._tmux, *arguments], check=True, capture_output=True, text=True).stdout  # noqa: S603


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        end = Path(folder) / "end"
        demo = f"cd {folder} && {TWINBUS} demo; echo $? > {end}; sleep {PATIENCE_S:g}"
        with Terminal(demo) as terminal:
            outage, deadline = "", time.monotonic() + PATIENCE_S
            while not end.exists():
                if time.monotonic() > deadline:
                    sys.exit(f"the demo did not end within {PATIENCE_S:g} s")
                screen = terminal.screen()
                outage = screen if is_outage(screen) else outage
                time.sleep(LOOK_S)
            last = terminal.screen()
        if end.read_text().strip() != "0" or not outage:
            sys.exit(f"the demo did not go as it should:\n{last}")
    save("demo-outage.svg", outage)
    save("demo-end.svg", last.replace(f"{folder}/", SOMEWHERE))


def is_outage(screen: str) -> bool:
    """Whether the primary is down, and every entity has failed over and was pinged."""
    rows = [re.sub(r"\x1b\[[0-9;]*m", "", row).split() for row in screen.splitlines() if "failed over" in row]
    standing = [row for row in rows if row[-1].isdigit()]
    return "is down" in screen and len(standing) == 3 and all(int(row[-2]) > 0 for row in standing)


def save(name: str, screen: str) -> None:
    """The screen without its empty rest; no font is fetched from anywhere."""
    text = Text.from_ansi(screen.rstrip())
    console = Console(width=COLUMNS, file=io.StringIO(), record=True)
    console.print(text)
    svg = re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title="twinbus demo"), flags=re.DOTALL)
    IMAGES.mkdir(exist_ok=True)
    (IMAGES / name).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
