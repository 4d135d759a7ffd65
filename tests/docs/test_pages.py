"""What the documents show works: blocks run or say why not, and links lead to pages and headings that exist."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from doc_blocks import (
    DOCS,
    NOT_RUN_PAGE,
    READ,
    ROOT,
    RUN,
    SHOWN,
    Block,
    all_blocks,
    logical_lines,
    not_run_page,
    pages,
    to_run,
)

from twinbus.cli.arguments.option_groups import OLD_NAMES

LINK = re.compile(r"\[[^\]]+\]\(([^)]+)\)")
PYTHON = [block for block in to_run("python") if "file" not in block.marks]
"""Blocks that the reader saves as a file are run by the tutorial's own test."""
ON_SPARK = [block for block in PYTHON if "spark" in block.code or block.page.name == "drain-with-spark.md"]
"""Run in the session that all tests share, by test_drain_page.py, test_consume_page.py and test_page_commands.py."""


def test_every_block_is_run_or_read_or_shows_something_or_says_why_not() -> None:
    assert len(PYTHON) >= 20
    unknown = [block for block in all_blocks() if block.language not in RUN | READ | SHOWN]
    assert [str(block) for block in unknown if block.reason_not_run is None] == []


def test_no_block_of_code_hides_as_text() -> None:
    """What is shown as text is no Python and no command, else it would escape the tests.

    The page about commands shows what `--help` says; its examples have a test of their own.
    """
    shown = [block for block in all_blocks() if block.language == "text" and block.page.name != "cli.md"]
    code = re.compile(r"^(from [\w.]+ import|import \w+$|twinbus (?!serve: )\w+|export |\$ |with \w+\()", re.MULTILINE)
    assert [str(block) for block in shown if code.search(block.code)] == []


def test_no_page_uses_an_old_name_of_an_option() -> None:
    """They still work, so running the blocks does not show it."""
    lines = [(str(block), line) for block in to_run("sh") for line in logical_lines(block.code)]
    old = [
        f"{where}: {line}"
        for where, line in lines
        for command, names in OLD_NAMES.items()
        for name in names
        if re.search(rf"twinbus {command} .*{name}( |=|$)", line)
    ]
    assert old == []


def test_what_a_how_to_shows_is_in_a_block_that_says_what_it_is() -> None:
    """Markdown takes indented lines for a block, too, and no test would see that such an output is old."""
    fenced = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
    texts = {page.name: fenced.sub("", page.read_text(encoding="utf-8")) for page in (DOCS / "how-to").glob("*.md")}
    assert [name for name, text in texts.items() if re.search(r"\n\n(?: {4}|\t)\S", text)] == []


def test_what_is_shown_as_text_is_compared_or_says_what_it_is() -> None:
    """Outputs are compared by test_shell_blocks.py; the tutorial and the texts of `--help` have tests of their own."""
    shown = [block for block in all_blocks() if block.language == "text"]
    elsewhere = (DOCS / "tutorial.md", DOCS / "reference" / "cli.md")
    unsaid = [
        block for block in shown if block.page not in elsewhere and not block.marks.keys() & {"output", "not output"}
    ]
    assert [str(block) for block in unsaid] == []
    assert {block.marks["output"] for block in shown if "output" in block.marks} <= {"all", "lines"}


def test_the_list_of_blocks_that_are_not_run_is_fresh() -> None:
    fresh = NOT_RUN_PAGE.read_text(encoding="utf-8") == not_run_page()
    assert fresh, "stale: run python tests/support/doc_blocks.py"


@pytest.mark.sample(3)
@pytest.mark.parametrize("block", [block for block in PYTHON if block not in ON_SPARK], ids=str)
def test_a_python_block_runs(block: Block, tmp_path: Path) -> None:
    is_test = "def test_" in block.code
    file = tmp_path / ("test_block.py" if is_test else "block.py")
    file.write_text(block.code, encoding="utf-8")
    command = [sys.executable, *(["-m", "pytest", "-q", "-p", "no:cacheprovider"] if is_test else []), str(file)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip(), "a block that prints nothing shows nothing"


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_a_python_block_enters_no_room_of_the_client(block: Block) -> None:
    """What applications need of it has a name in `twinbus`, `twinbus.aio`, `twinbus.errors` or `twinbus.testing`."""
    assert not re.search(r"\btwinbus\.(client|pairing)\b", block.code)


@pytest.mark.parametrize("block", [*to_run("json"), *to_run("toml")], ids=str)
def test_a_block_of_settings_can_be_read(block: Block) -> None:
    assert (json.loads if block.language == "json" else tomllib.loads)(block.code)


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_pages_and_headings_that_exist(page: Path) -> None:
    dead = [target for target in LINK.findall(page.read_text(encoding="utf-8")) if not _leads_somewhere(page, target)]
    assert dead == []


def test_every_page_of_the_docs_is_in_the_menu_once() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    listed = re.findall(r": (\S+\.md)$", menu, re.MULTILINE)
    made = ["architecture.md", "contributing.md", "changelog.md"]  # of pages at the root
    assert sorted(listed) == sorted([*made, *(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))])


def _leads_somewhere(page: Path, target: str) -> bool:
    if "://" in target:
        return True
    path, _, anchor = target.partition("#")
    to = (page.parent / path).resolve() if path else page
    if not to.exists():
        return False
    return not anchor or anchor in _anchors(to)


def _anchors(page: Path) -> set[str]:
    """The names of a page's headings in links, as the site and GitHub both make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).strip().replace(" ", "-") for heading in headings}
