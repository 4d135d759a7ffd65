"""docs/contributing/walks.md: every file and every name in it exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/contributing/walks.md").read_text(encoding="utf-8")
FILES = sorted(set(re.findall(r"`([a-z_/]+\.py)`", PAGE)))
NAMES = sorted(set(re.findall(r"`([a-z_/]+\.py)` `([\w.]+)`", PAGE)))


def names_in(file: str) -> set[str]:
    """Functions, classes, and methods with their class in front."""
    found = set()
    for node in ast.parse((ROOT / "src/twinbus" / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {f"{node.name}.{each.name}" for each in methods}
    return found


def test_there_are_four_walks() -> None:
    assert len(re.findall(r"^## \d\. ", PAGE, re.MULTILINE)) == 4
    assert len(NAMES) > 25


@pytest.mark.parametrize("file", FILES)
def test_a_file_on_a_walk_exists(file: str) -> None:
    assert (ROOT / "src/twinbus" / file).is_file()


@pytest.mark.parametrize(("file", "name"), NAMES)
def test_a_name_on_a_walk_is_in_its_file(file: str, name: str) -> None:
    assert name in names_in(file), f"{file} has {sorted(names_in(file))}"
