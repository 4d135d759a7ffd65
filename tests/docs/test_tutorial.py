"""The tutorial, followed block by block with real processes. `make test-wheel` does the same from the built wheel."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from doc_blocks import Block
from tutorial import Reader, Terminal


def use_what_is_installed(block: Block, terminal: Terminal) -> None:
    """In place of a new virtualenv: this one, under the name that the page gives it."""
    assert "pip install twinbus" in block.code
    terminal.type("mkdir -p .venv/bin")
    bin_folder = shlex.quote(str(Path(sys.executable).parent))
    terminal.type(f"echo export PATH={bin_folder}:'$PATH' > .venv/bin/activate; . .venv/bin/activate")


@pytest.mark.timeout(600)  # twenty seconds where nothing else runs
def test_the_tutorial_ends_with_nothing_missing(tmp_path: Path) -> None:
    with Reader(tmp_path, use_what_is_installed) as reader:
        reader.follow()
    assert "missing []" in reader.counted
    assert list(tmp_path.glob("ledger/*.jsonl"))
