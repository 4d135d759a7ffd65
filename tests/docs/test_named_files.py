"""Files that the source and the pages for contributors name: each exists, so whoever follows a name arrives."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "src" / "twinbus"
PAGES = [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs" / "contributing").glob("*.md"))]
ROOTS = (ROOT, ROOT / "src", PACKAGE, PACKAGE / "broker", PACKAGE / "client", ROOT / "docs")

PATH = re.compile(r"(?<![\w/.-])((?:[\w.-]+/)+[\w.-]+\.(?:py|js|sql|toml|md))\b")
NAME = re.compile(r"`(\w+\.py)`")
LISTED = re.compile(r"^((?:\w+\.py(?:, )?)+)  +\S", re.MULTILINE)
"""In the docstring of a package: files, and what they are for."""


def missing_paths(files: list[Path]) -> Iterator[str]:
    for file in files:
        for path in sorted(set(PATH.findall(file.read_text(encoding="utf-8")))):
            if not any((root / path).is_file() for root in (*ROOTS, file.parent)):
                yield f"{file.relative_to(ROOT)}: {path}"


def test_every_path_in_the_source_is_that_of_a_file() -> None:
    assert list(missing_paths(sorted(PACKAGE.rglob("*.py")))) == []


def test_every_path_on_the_pages_for_contributors_is_that_of_a_file() -> None:
    assert list(missing_paths(PAGES)) == []


def test_every_file_that_these_pages_name_without_its_folder_exists() -> None:
    existing = {file.name for folder in ("src", "tests", "bench") for file in (ROOT / folder).rglob("*.py")}
    named = {name for page in PAGES for name in NAME.findall(page.read_text(encoding="utf-8"))}
    assert len(named) > 2
    assert named - existing == set()


def test_every_file_that_a_package_lists_is_in_it() -> None:
    missing, listed = [], 0
    for file in sorted(PACKAGE.rglob("__init__.py")):
        text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        for names in LISTED.findall(text):
            listed += 1
            missing += [
                f"{file.parent.name}/{name}" for name in names.split(", ") if not (file.parent / name).is_file()
            ]
    assert (missing, listed > 20) == ([], True)
