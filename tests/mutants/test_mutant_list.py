"""The mutants fit the source and the page as they are now; `make mutants` runs them."""

from __future__ import annotations

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


def test_a_mutant_whose_text_is_not_exactly_once_in_the_source_says_so() -> None:
    for text, times in (("no such text", 0), ("def ", 9)):
        problem = Mutant("P4", "pairing/verdict.py", text, "", "", "").problem(ROOT)
        assert problem is not None
        assert "exactly once" in problem
        assert f"found {times} times" in problem or times
