"""The code blocks of the README and of all pages, with what the page says about running them.

Comments right above a block, which readers do not see, are its *marks*: `<!-- not run: why -->`, or
`<!-- keys: syphon -->` for a block that is run with the keys of that role and no others. `python
tests/support/doc_blocks.py` writes docs/reference/not-run.md, the list of all blocks that no test runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
ROOT_PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
NOT_RUN_PAGE = DOCS / "reference" / "not-run.md"

BLOCK = re.compile(r"^((?:<!-- [a-z ]+: [^\n]* -->\n)*)```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = re.compile(r"<!-- ([a-z ]+): (.*) -->")

RUN = {"python", "sh"}
"""Languages of blocks that are run."""
SHOWN = {"text", "mermaid"}
"""Languages of blocks that show something: output, a picture. They hold nothing that could be run."""
READ = {"json", "toml"}
"""Languages of blocks that a test reads as the program would."""


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    code: str
    marks: Mapping[str, str]

    @property
    def name(self) -> str:
        return str(self.page.relative_to(ROOT))

    @property
    def first_line(self) -> str:
        return self.code.strip().splitlines()[0]

    @property
    def reason_not_run(self) -> str | None:
        return self.marks.get("not run")

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line} {self.first_line[:40]}"


def pages() -> list[Path]:
    """Every page of the project that people read."""
    return [ROOT / name for name in ROOT_PAGES] + sorted(DOCS.rglob("*.md"))


def blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start(2)) + 1
        yield Block(page, line, found[2], found[3], dict(MARK.findall(found[1])))


def all_blocks() -> list[Block]:
    return [block for page in pages() for block in blocks_of(page)]


def to_run(language: str) -> list[Block]:
    """The blocks of a language, but for those that are marked as not run."""
    return [block for block in all_blocks() if block.language == language and block.reason_not_run is None]


def logical_lines(code: str) -> list[str]:
    """The commands of a shell block, one a line, without comments and empty lines."""
    joined = code.replace("\\\n", " ")
    return [line for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]


NOT_RUN_TEXT = """# Blocks that no test runs

<!-- Made by `python tests/support/doc_blocks.py`; a test notices when it is stale. -->

Every block of Python and shell in the README and on these pages is run by `make test-all`, and some of
them by `make test`; blocks of JSON and TOML are read as the program reads them. These are the exceptions, and why.

| page | block | why not |
|---|---|---|
"""

MAKE_TEXT = """
Lines that begin with `make` are not run from the pages; a test looks whether the Makefile has such a target. The lines
of the tutorial that install twinbus are run by `make test-wheel`, from the built wheel in an empty virtualenv; all
others of it are run by the tests as well.
"""


def not_run_page() -> str:
    """The page with all blocks that are not run, and the reasons."""
    rows = [
        f"| {_linked(block.page)} | `{block.first_line.replace('|', chr(92) + '|')}` | {block.reason_not_run} |"
        for block in all_blocks()
        if block.reason_not_run is not None
    ]
    return NOT_RUN_TEXT + "\n".join(rows) + "\n" + MAKE_TEXT


def _linked(page: Path) -> str:
    if not page.is_relative_to(DOCS):
        return page.name
    path = page.relative_to(DOCS)
    return f"[{path.stem}](../{path})" if path.parts[0] != "reference" else f"[{path.stem}]({path.name})"


if __name__ == "__main__":
    NOT_RUN_PAGE.write_text(not_run_page(), encoding="utf-8")
