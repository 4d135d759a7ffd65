"""The shell blocks of every page are run, in their order, by a shell: each command ends as the page says."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

import pytest
from doc_blocks import DOCS, ROOT, Block, blocks_of, logical_lines, to_run
from doc_environment import for_the_shell, open_terminal
from sample_output import difference, outputs_below

PAGES = {page: list(blocks) for page, blocks in groupby(to_run("sh"), lambda block: block.page)}
PAGES.pop(DOCS / "tutorial.md")  # has a test of its own
RUN_HERE = {page: blocks for page, blocks in PAGES.items() if any(for_the_shell(block).code for block in blocks)}
MAKE_LINES = [line for blocks in PAGES.values() for block in blocks for line in logical_lines(block.code)]


@pytest.mark.sample(1)
@pytest.mark.timeout(600)  # some pages have many commands, and other tests run beside this one
@pytest.mark.parametrize("page", RUN_HERE, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_do_what_it_says(page: Path, tmp_path: Path) -> None:
    blocks = [for_the_shell(block) for block in RUN_HERE[page]]
    shown = {above.line: sample for above, sample in outputs_below(blocks_of(page)) if "output" in sample.marks}
    with open_terminal(tmp_path, blocks) as terminal:
        for block in blocks:
            terminal.act_as(block.marks.get("keys"))
            printed = terminal.run(block) if block.code else ""
            if block.line in shown:
                assert (problem := difference(shown[block.line], printed)) is None, problem
            servers = block.code.count("twinbus serve") + block.code.count("twinbus proxy")
            assert printed.count("Endpoint=sb://") >= servers, printed


@pytest.mark.parametrize("line", [line for line in MAKE_LINES if line.startswith("make ")])
def test_a_make_target_exists(line: str) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert line.split()[1] in targets


def test_there_are_commands_to_run() -> None:
    assert len(RUN_HERE) >= 5
    blocks: list[Block] = [block for blocks in RUN_HERE.values() for block in blocks]
    assert sum(len(logical_lines(block.code)) for block in blocks) >= 20
