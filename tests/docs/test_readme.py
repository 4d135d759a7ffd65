"""What the documents show works: code blocks run, commands parse, links lead somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\(([^)#]+)(?:#[^)]*)?\)")


def blocks(language: str) -> list[str]:
    return [code for kind, code in BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8")) if kind == language]


def test_the_readme_has_code_to_run() -> None:
    assert len(blocks("python")) == 2
    assert len(blocks("sh")) == 2


@pytest.mark.parametrize("code", blocks("python"), ids=lambda code: code.strip().splitlines()[-1].strip()[:40])
def test_a_python_block_of_the_readme_runs(code: str, tmp_path: Path) -> None:
    is_test = "def test_" in code
    file = tmp_path / ("test_block.py" if is_test else "block.py")
    file.write_text(code, encoding="utf-8")
    command = [sys.executable, *(["-m", "pytest", "-q", "-p", "no:cacheprovider"] if is_test else []), str(file)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("1 passed" if is_test else "42") in done.stdout


@pytest.mark.parametrize("line", [line for code in blocks("sh") for line in code.splitlines() if line])
def test_a_shell_line_of_the_readme_names_things_that_exist(line: str) -> None:
    words = shlex.split(line, comments=True)
    if words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert words[1] in targets
        return
    assert words[0] == "twinbus"
    shown = subprocess.run([sys.executable, "-m", *words[:2], "--help"], capture_output=True, text=True, timeout=30)
    assert shown.returncode == 0
    for flag in (word for word in words[2:] if word.startswith("--")):
        assert flag in shown.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = [target for target in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []
