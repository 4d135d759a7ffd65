"""The status of a mutant, from a tree whose tests end as the script says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import pytest
from copied_tree import CopiedTree, Outcome
from mutant import Mutant
from trial import Baseline, MutantStatus, try_mutant

FIRST, OTHER = "tests/test_one.py::test_first", "tests/test_two.py::test_other"
MUTANT = Mutant("P4", "some.py", "a", "b", "something is wrong", "test_first")
PASSED, NOT_RUN, OVER_TIME = Outcome(1.0), Outcome(1.0, problem="why"), Outcome(1.0, problem="", is_over_time=True)
FAILED = Outcome(1.0, failed=frozenset([FIRST, OTHER]))


class ScriptedTree:
    def __init__(self, *, first: Outcome, others: Outcome = PASSED, broken: Sequence[str] = ()) -> None:
        self._outcomes = {FIRST: first, OTHER: others}
        self._broken = frozenset(broken)
        self._is_planted = False

    @contextmanager
    def planted(self, mutant: Mutant) -> Iterator[None]:
        self._is_planted = True
        yield
        self._is_planted = False

    def run(self, tests: Sequence[str], *, test_s: float, all_s: float, to_the_end: bool = False) -> Outcome:
        assert tests, "pytest would run all there are"
        if not self._is_planted:
            return Outcome(1.0, {test: 1.0 for test in tests if test not in self._broken}, self._broken)
        outcome = self._outcomes[tests[0]]
        return Outcome(1.0, {}, outcome.failed & set(tests), outcome.problem, outcome.is_over_time)

    def stop(self) -> None: ...


def status(tree: ScriptedTree) -> MutantStatus:
    copied = cast("CopiedTree", tree)
    baseline = Baseline([copied])
    baseline.run([FIRST], lambda _: None)
    return try_mutant(MUTANT, (FIRST, OTHER), copied, baseline).status


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        (ScriptedTree(first=FAILED), MutantStatus.KILLED),
        (ScriptedTree(first=OVER_TIME), MutantStatus.KILLED),
        (ScriptedTree(first=PASSED, others=FAILED), MutantStatus.KILLED),
        (ScriptedTree(first=PASSED), MutantStatus.SURVIVED),
        (ScriptedTree(first=PASSED, others=NOT_RUN), MutantStatus.SURVIVED),
        (ScriptedTree(first=NOT_RUN), MutantStatus.NOT_RUN),
        (ScriptedTree(first=FAILED, broken=[FIRST]), MutantStatus.BROKEN),
        (ScriptedTree(first=PASSED, others=FAILED, broken=[OTHER]), MutantStatus.BROKEN),
    ],
)
def test_only_a_test_that_passes_without_the_mutant_and_fails_with_it_kills(
    tree: ScriptedTree, said: MutantStatus
) -> None:
    assert status(tree) is said
