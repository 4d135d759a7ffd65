"""`docs/conformance.md` tells the truth: every clause once, and every test it names exists."""

from __future__ import annotations

import ast
from functools import cache

import pytest
from conformance_page import ROOT, Clause, read_clauses

SECTIONS = {"S": 10, "A": 10, "P": 20, "C": 3, "D": 4, "X": 7}
CLAUSES = read_clauses()
LONG = "pytest.mark.long"


def test_every_clause_is_listed_once_and_in_order() -> None:
    expected = [f"{section}{number}" for section, last in SECTIONS.items() for number in range(1, last + 1)]
    assert [clause.name for clause in CLAUSES] == expected


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: str(clause.name))
def test_a_clause_is_proved_exactly_as_far_as_it_is_claimed(clause: Clause) -> None:
    assert clause.status, f"{clause.name} has an unknown status"
    assert bool(clause.tests) == clause.is_claimed


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: str(clause.name))
def test_every_test_that_is_named_exists(clause: Clause) -> None:
    named = [name.partition("::") for name in clause.tests]
    assert [f"{path}: {function}" for path, _, function in named if function not in functions(path)] == []


@pytest.mark.parametrize("clause", [each for each in CLAUSES if each.is_claimed], ids=lambda clause: str(clause.name))
def test_most_that_proves_a_clause_is_run_on_every_change(clause: Clause) -> None:
    left_out = 0
    for name in clause.tests:
        path, _, function = name.partition("::")
        is_left_out = path.startswith("tests/cluster/") or LONG in map(ast.unparse, functions(path)[function])
        left_out += is_left_out
    assert left_out * 2 <= len(clause.tests)


@cache
def functions(path: str) -> dict[str, list[ast.expr]]:
    """The decorators of each function in a file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    defined = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {node.name: node.decorator_list for node in defined}
