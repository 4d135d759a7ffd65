"""The mutants fit the source and the page as they are now; `make mutants` runs them."""

from __future__ import annotations

from pathlib import Path

import pytest
from conformance_page import ROOT, read_clauses
from mutant import Mutant
from mutant_list import named_mutants
from trial import first_tests

CLAUSES = {clause.name: clause for clause in read_clauses()}
MUTANTS = named_mutants()


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_applies_and_a_test_of_its_clause_is_to_notice(name: str) -> None:
    mutant = MUTANTS[name]
    assert mutant.problem(ROOT) is None
    assert first_tests(mutant, CLAUSES[mutant.clause].tests), f"{mutant.clause} is not proved by {mutant.by}"


def test_every_clause_that_is_claimed_has_a_mutant() -> None:
    have = {mutant.clause for mutant in MUTANTS.values()}
    assert [clause.name for clause in CLAUSES.values() if clause.is_claimed and clause.name not in have] == []


def test_no_mutant_is_there_twice() -> None:
    changes = [(each.clause, each.file, each.text, each.replacement) for each in MUTANTS.values()]
    assert len(set(changes)) == len(changes)


@pytest.mark.parametrize(
    ("text", "replacement", "said"),
    [
        ("a = 1", "a = 2", None),
        ("= 1", "= 2", "exactly once in src/twinbus/some.py, found 2 times"),
        ("c = 1", "c = 2", "found 0 times"),
        ("a = 1", "a = (", "is not Python any more"),
    ],
)
def test_a_mutant_that_cannot_be_tried_says_why(tmp_path: Path, text: str, replacement: str, said: str | None) -> None:
    (tmp_path / "src" / "twinbus").mkdir(parents=True)
    (tmp_path / "src" / "twinbus" / "some.py").write_text("a = 1\nb = 1\n")
    problem = Mutant("P4", "some.py", text, replacement, "", "").problem(tmp_path)
    assert problem is None if said is None else said in str(problem)
    assert "does not exist" in str(Mutant("P4", "other.py", text, replacement, "", "").problem(tmp_path))
