"""Commands on the pages, and the examples of every `--help`, can be typed as they stand.

Here their arguments are read, all of them; `test_shell_blocks.py` runs the commands of pages.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import typer
from doc_blocks import DOCS, blocks_of, logical_lines, to_run

from twinbus.cli.main import make_app

TWINBUS: Any = typer.main.get_command(make_app())
PAGE = DOCS / "reference" / "cli.md"
LINES = [
    line.strip() for block in blocks_of(PAGE) for line in block.code.splitlines() if re.match(r" +twinbus [a-z]", line)
]
ON_PAGES = [line for block in to_run("sh") for line in logical_lines(block.code) if line.startswith("twinbus ")]


def test_there_is_an_example_for_every_command() -> None:
    commands = re.findall(r"^## twinbus (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(commands) >= 10
    without = [name for name in commands if not any(line.startswith(f"twinbus {name}") for line in LINES)]
    assert without == []


@pytest.mark.parametrize("line", list(dict.fromkeys(LINES + ON_PAGES)))
def test_an_example_has_a_command_and_options_that_exist(line: str) -> None:
    first, *words = shlex.split(_command_alone(line), comments=True)
    command = TWINBUS
    assert first == command.name
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    if words or not hasattr(command, "commands"):
        command.make_context(command.name, words)  # reads the arguments and runs nothing


def _command_alone(line: str) -> str:
    """An example without what it is piped into, and what it says, after more than one space, that it does."""
    return re.split(r" (?:[|>&]|\|\|) ?|(?<=\S) {2,}(?=\S)", line)[0]
