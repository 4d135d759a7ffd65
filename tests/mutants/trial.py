"""One mutant against the tests of its clause, and the same tests without it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import TypeVar

from copied_tree import CopiedTree, Outcome
from mutant import Mutant

Item = TypeVar("Item")

TEST_S_LEAST = 30.0
TEST_S_MOST = 120.0
SLOWER_MAX = 5
"""A test may take so many times as long with a mutant as it took without, and then some."""
ALL_S = 900.0
NOT_RUN_HERE = ("tests/cluster/",)
"""Minutes of work in containers of their own: each clause has quicker tests."""
ON_SPARK = "tests/spark/"
TOGETHER = 10
"""So many tests are run in one go without a mutant."""


class MutantStatus(Enum):
    KILLED = "killed"
    SURVIVED = "SURVIVED"
    BROKEN = "BROKEN WITHOUT THE MUTANT"
    NOT_RUN = "NOT RUN"


@dataclass(frozen=True)
class Result:
    status: MutantStatus
    how: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.status.value} ({self.how}, {self.seconds:.0f} s)"


class Baseline:
    """What tests do on the tree as it is. Each is run at most once."""

    def __init__(self, trees: Sequence[CopiedTree]) -> None:
        self._trees = trees
        self._lock = Lock()
        self._seconds: dict[str, float] = {}
        self._failing: dict[str, str] = {}

    def run(self, tests: Iterable[str], report: Callable[[str], None]) -> None:
        """Run those that have not been run yet, in all trees at a time; those with Spark together: it starts once."""
        with self._lock:
            missing = sorted(set(tests) - self._seconds.keys() - self._failing.keys())
        on_spark = [test for test in missing if test.startswith(ON_SPARK)]
        others = [test for test in missing if test not in on_spark]
        lots = [others[at : at + TOGETHER] for at in range(0, len(others), TOGETHER)]
        lots = [*([on_spark] if on_spark else []), *lots]
        left = len(missing)

        def run_group(group: list[str], tree: CopiedTree) -> None:
            nonlocal left
            self.run_in(tree, group)
            with self._lock:
                left -= len(group)
                report(f"{len(group)} tests run without any mutant, {left} to go")

        share_out(lots, self._trees, run_group)

    def run_in(self, tree: CopiedTree, tests: Sequence[str]) -> None:
        """The same in one tree, which nothing is planted in."""
        if not tests:
            return  # pytest would run all there are
        outcome = tree.run(tests, test_s=TEST_S_MOST, all_s=ALL_S, to_the_end=True)
        with self._lock:
            self._seconds |= outcome.passed
            for test in set(tests) - outcome.passed.keys():
                self._failing[test] = "fails" if test in outcome.failed else outcome.problem or "is not run"

    def is_known(self, test: str) -> bool:
        with self._lock:
            return test in self._seconds or test in self._failing

    def why_broken(self, tests: Sequence[str]) -> str | None:
        """What is wrong with these tests on the tree as it is; None: they pass."""
        with self._lock:
            broken = [f"{_short(test)} {self._failing[test]}" for test in tests if test in self._failing]
        return "; ".join(broken) or None

    def limit_s(self, tests: Sequence[str]) -> float:
        with self._lock:
            longest = max((self._seconds.get(test, 0.0) for test in tests), default=0.0)
        return min(TEST_S_MOST, TEST_S_LEAST + SLOWER_MAX * longest)


def share_out(items: Iterable[Item], trees: Sequence[CopiedTree], do: Callable[[Item, CopiedTree], None]) -> None:
    """Do this with each item, in whichever tree is free; returns when all is done."""
    waiting: SimpleQueue[Item] = SimpleQueue()
    for item in items:
        waiting.put(item)

    def work(tree: CopiedTree) -> None:
        while True:
            try:
                item = waiting.get_nowait()
            except Empty:
                return
            do(item, tree)

    threads = [Thread(target=work, args=(tree,)) for tree in trees]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:  # Ctrl-C: nothing may go on behind our back
        with suppress(Empty):
            while True:
                waiting.get_nowait()
        for tree in trees:
            tree.stop()
        raise


def first_tests(mutant: Mutant, tests: Sequence[str]) -> list[str]:
    """The test that is expected to kill the mutant, as the clause's row names it."""
    return [test for test in tests if test.endswith((f"::{mutant.by}", f"/{mutant.by}"))]


def try_mutant(mutant: Mutant, tests: Sequence[str], tree: CopiedTree, baseline: Baseline) -> Result:
    first = first_tests(mutant, tests)
    if broken := baseline.why_broken(first):
        return Result(MutantStatus.BROKEN, broken, 0.0)
    with tree.planted(mutant):
        outcome = tree.run(first, test_s=baseline.limit_s(first), all_s=ALL_S)
    if (result := _judged(outcome)) is not None:
        return result
    others = [test for test in tests if test not in first and not test.startswith(NOT_RUN_HERE)]
    return _try_others(mutant, others, tree, baseline, outcome.seconds)


def _judged(outcome: Outcome) -> Result | None:
    """None: the mutant is alive."""
    if outcome.is_over_time:
        return Result(MutantStatus.KILLED, outcome.problem, outcome.seconds)
    if outcome.problem:
        return Result(MutantStatus.NOT_RUN, outcome.problem, outcome.seconds)
    if outcome.failed:
        return Result(MutantStatus.KILLED, f"by {_short(min(outcome.failed))}", outcome.seconds)
    return None


def _try_others(mutant: Mutant, others: Sequence[str], tree: CopiedTree, baseline: Baseline, seconds: float) -> Result:
    """The other tests of the clause, since the one that should have noticed did not."""
    if not others:
        return Result(MutantStatus.SURVIVED, f"{mutant.by} passes", seconds)
    with tree.planted(mutant):
        outcome = tree.run(others, test_s=TEST_S_MOST, all_s=ALL_S)
    seconds += outcome.seconds
    if not outcome.failed:
        how = f"are not run: {outcome.problem}" if outcome.problem else "pass"
        return Result(MutantStatus.SURVIVED, f"{mutant.by} passes; {len(others)} other tests {how}", seconds)
    killers = sorted(outcome.failed)
    baseline.run_in(tree, [test for test in killers if not baseline.is_known(test)])
    if broken := baseline.why_broken(killers):
        return Result(MutantStatus.BROKEN, f"{mutant.by} passes; {broken}", seconds)
    return Result(MutantStatus.KILLED, f"{mutant.by} passes; by {_short(killers[0])}", seconds)


def _short(test: str) -> str:
    return test.partition("::")[2]
