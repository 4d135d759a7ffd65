"""What the documents show works: code blocks run, commands parse, links lead somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\(([^)#]+)(?:#[^)]*)?\)")
COMMAND_GROUPS = {"cost", "fault", "ledger", "pipeline"}


class Block(NamedTuple):
    page: Path
    language: str
    code: str

    def __str__(self) -> str:
        return f"{self.page.name}: {self.code.strip().splitlines()[0][:40]}"


BLOCKS = [
    Block(page, language, code) for page in PAGES for language, code in BLOCK.findall(page.read_text(encoding="utf-8"))
]


def of(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language]


def test_there_is_code_to_run_and_nothing_else_than_can_be_checked() -> None:
    assert len(of("python")) >= 6
    assert len(of("sh")) >= 4
    assert {block.language for block in BLOCKS} <= {"python", "sh", "text", "json", "mermaid"}


@pytest.mark.parametrize("block", of("python"), ids=str)
def test_a_python_block_runs(block: Block, tmp_path: Path) -> None:
    is_test = "def test_" in block.code
    file = tmp_path / ("test_block.py" if is_test else "block.py")
    file.write_text(block.code, encoding="utf-8")
    command = [sys.executable, *(["-m", "pytest", "-q", "-p", "no:cacheprovider"] if is_test else []), str(file)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip(), "a block that prints nothing shows nothing"


@pytest.mark.parametrize("block", of("python"), ids=str)
def test_a_python_block_enters_no_room_of_the_client(block: Block) -> None:
    """What applications need of it has a name in `twinbus`, `twinbus.aio`, `twinbus.errors` or `twinbus.testing`."""
    assert not re.search(r"\btwinbus\.(client|pairing)\b", block.code)


@pytest.mark.parametrize("line", [line for block in of("sh") for line in block.code.splitlines() if line])
def test_a_shell_line_names_things_that_exist(line: str) -> None:
    words = shlex.split(line, comments=True)
    if words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert words[1] in targets
        return
    assert words[0] == "twinbus"
    depth = 4 if words[1:3] == ["syphon", "quarantine"] else 3 if words[1] in COMMAND_GROUPS else 2
    command = words[:depth]
    shown = subprocess.run([sys.executable, "-m", *command, "--help"], capture_output=True, text=True, timeout=30)
    assert shown.returncode == 0
    for flag in (word for word in words[2:] if word.startswith("--")):
        assert flag in shown.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = [target for target in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []
