"""`docs/conformance.md` tells the truth: every clause once, and every test it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "conformance.md"
CLAUSES = {"S": 10, "A": 10, "P": 20, "C": 3, "D": 4}
ROW = re.compile(r"^\| ([SAPCD]\d+) \| (?P<clause>[^|]+) \| (?P<status>[^|]+) \|(?P<proof>[^|]*)\|$", re.MULTILINE)
STATUSES = ("done", "partly", "not yet")


def rows() -> list[re.Match[str]]:
    return list(ROW.finditer(PAGE.read_text(encoding="utf-8")))


def named_tests() -> list[str]:
    return [name for row in rows() for name in re.findall(r"`(tests/[^`]+)`", row["proof"])]


def test_every_clause_is_listed_once_and_in_order() -> None:
    expected = [f"{section}{number}" for section, last in CLAUSES.items() for number in range(1, last + 1)]
    assert [row[1] for row in rows()] == expected


@pytest.mark.parametrize("row", rows(), ids=lambda row: str(row[1]))
def test_a_clause_is_proved_exactly_as_far_as_it_is_claimed(row: re.Match[str]) -> None:
    status = next((each for each in STATUSES if row["status"].strip().startswith(each)), None)
    assert status is not None, f"{row[1]} has an unknown status"
    assert ("`tests/" in row["proof"]) == (status != "not yet")


@pytest.mark.parametrize("name", named_tests())
def test_a_named_test_exists(name: str) -> None:
    path, _, function = name.partition("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert function in defined
