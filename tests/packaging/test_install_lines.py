"""Each line of the README that installs twinbus from a clone does so, in a place of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from doc_blocks import ROOT, blocks_of, logical_lines

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(900)]

(INSTALL,) = [block for block in blocks_of(ROOT / "README.md") if block.first_line.startswith("pip install .")]


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of somebody who has pip, pipx and uv, and a home that is empty."""
    home = tmp_path_factory.mktemp("home")
    subprocess.run([sys.executable, "-m", "venv", str(home / "venv")], check=True)
    subprocess.run([str(home / "venv/bin/pip"), "install", "--quiet", "pipx", "uv"], check=True)
    path = f"{home / 'venv/bin'}:{home / '.local/bin'}:{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TWINBUS_"))}
    return kept | {"HOME": str(home), "PATH": path}


@pytest.mark.parametrize("line", logical_lines(INSTALL.code))
def test_a_line_that_installs_gives_a_program_that_runs(line: str, tools: dict[str, str], tmp_path: Path) -> None:
    from_here = line.partition("#")[0].replace(" .", f" {ROOT}")
    done = subprocess.run(["bash", "-ec", from_here], cwd=tmp_path, env=tools, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    if line.startswith("uvx"):
        assert "Everything that was acknowledged has been received." in done.stdout
    else:
        assert subprocess.run(["twinbus", "--version"], cwd=tmp_path, env=tools).returncode == 0
