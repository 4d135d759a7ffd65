"""Signals that come when a command has all but ended, and interrupts that Python itself would not forgive."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

BEGINNING = """
    import atexit, signal, sys
    import twinbus.cli.main
    from twinbus.cli.entry import main

    def command():
        {}

    twinbus.cli.main.main = command
    main()
"""


def ended_with(command: str, folder: Path) -> tuple[int, str, str]:
    """The code of a process whose command is this, and what it wrote."""
    lines = textwrap.dedent(BEGINNING).replace("{}", textwrap.indent(textwrap.dedent(command), "    ").strip())
    (folder / "program.py").write_text(lines)
    ran = subprocess.run(
        [sys.executable, "-m", "program"], cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )
    return ran.returncode, ran.stdout, ran.stderr


@pytest.mark.parametrize("signal_name", ["SIGINT", "SIGTERM"])
def test_a_signal_after_the_end_changes_nothing_of_it(signal_name: str, tmp_path: Path) -> None:
    command = f"""
        sys.stdout.write("done")
        atexit.register(signal.raise_signal, signal.{signal_name})
        sys.exit(3)
    """
    assert ended_with(command, tmp_path) == (3, "done", "")


def test_an_interrupt_inside_code_that_was_made_of_a_string_ends_as_any_other(tmp_path: Path) -> None:
    command = """
        try:
            exec("signal.raise_signal(signal.SIGTERM)")
        except KeyboardInterrupt:
            atexit.register(sys.stdout.write, "in order")
        sys.exit(130)
    """
    assert ended_with(command, tmp_path) == (130, "in order", "")
