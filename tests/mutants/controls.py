"""Proof that tests run the copied source, in their own process and in those that they start.

A control ends every process of one kind that imports a file of the copy. If the tests pass all the same, that file came
from elsewhere, and no mutant in it would mean anything.
"""

from __future__ import annotations

from typing import NamedTuple

from copied_tree import CopiedTree
from mutant import Mutant

FUTURE = "from __future__ import annotations\n"
ANYWHERE = FUTURE + "\nraise SystemExit('control')\n"
IN_WORKERS = FUTURE + (
    "\nimport sys\n\n"
    'if "pyspark" in str(getattr(sys.modules["__main__"], "__file__", "")):\n'
    "    raise SystemExit('control')\n"
)
"""The main module of Spark's workers is its own; that of the driver is pytest's."""
TEST_S, ALL_S = 100.0, 300.0


class Control(NamedTuple):
    where: str
    file: str
    replacement: str
    test: str


CONTROLS = (
    Control(
        "the process of the tests",
        "pairing/failover.py",
        ANYWHERE,
        "tests/unit/pairing/test_failover_steps.py",
    ),
    Control(
        "commands",
        "cli/entry.py",
        ANYWHERE,
        "tests/interop/test_pair_failover.py::test_one_entity_failing_says_nothing_of_another",
    ),
    Control(
        "Spark's workers",
        "spark/drain/shard.py",
        IN_WORKERS,
        "tests/spark/test_drain_job.py::test_topics_sessions_and_partitions_get_theirs_home",
    ),
)


def failed_controls(tree: CopiedTree) -> list[str]:
    """One line for each kind of process that does not run the copied source."""
    problems = []
    for control in CONTROLS:
        mutant = Mutant("control", control.file, FUTURE, control.replacement, "", "")
        with tree.planted(mutant):
            outcome = tree.run([control.test], test_s=TEST_S, all_s=ALL_S)
        if outcome.passed or not (outcome.failed or outcome.problem):
            problems.append(f"control: {control.where} do not run the copied source: {control.test} passes")
    return problems
