"""`make mutants`: break each clause a little and see that the tests that docs/conformance.md names for it notice.

Each mutant is planted alone in a copy of the tree, and the tests of its clause are run on it. It is *killed* if one of
them fails that passes without the mutant. Exits with 1 if one survives, if the text of one is not found exactly once in
the source, if a test fails without any mutant, or if a clause that is done or partly done has none.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock

from conformance_page import ROOT, read_clauses
from controls import failed_controls
from copied_tree import CopiedTree
from mutant import Mutant
from mutant_list import named_mutants
from trial import Baseline, MutantStatus, Result, first_tests, share_out, try_mutant

JOBS = 2


def main() -> int:
    arguments = _parser().parse_args()
    chosen = _chosen(arguments.only)
    if arguments.list:
        for name, mutant in chosen.items():
            sys.stdout.write(f"{name:6} {mutant.file}: {mutant.breaks}\n")
        return 0
    if not chosen:
        _say(f"no mutant is called {arguments.only!r}, nor is a clause that has one")
        return 1
    started = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the copies are removed
    problems = _problems(chosen) if arguments.only else [*_problems(chosen), *_clauses_without(chosen)]
    with tempfile.TemporaryDirectory(prefix="twinbus-mutants-") as folder:
        trees = [CopiedTree(ROOT, Path(folder) / str(number)) for number in range(arguments.jobs)]
        results = _run(chosen, trees, problems, with_controls=not arguments.only)
    _show(chosen, results)
    killed = sum(result.status is MutantStatus.KILLED for result in results.values())
    for problem in problems:
        _say(problem)
    _say(f"{killed} of {len(chosen)} killed, {len(problems)} problems, {time.monotonic() - started:.0f} s")
    return 0 if killed == len(chosen) and not problems else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="NAMES", help="clauses or mutants, e.g. P16,A9.1; default: all")
    parser.add_argument("--jobs", type=int, default=JOBS, help="mutants at a time; default: %(default)s")
    parser.add_argument("--list", action="store_true", help="say what each mutant breaks and run nothing")
    return parser


def _chosen(only: str) -> dict[str, Mutant]:
    wanted = {name.strip().upper() for name in only.split(",") if name.strip()}
    return {name: mutant for name, mutant in named_mutants().items() if not wanted or wanted & {name, mutant.clause}}


def _problems(chosen: Mapping[str, Mutant]) -> list[str]:
    """Mutants that cannot be tried: the source has changed since they were written, or the page has."""
    tests = {clause.name: clause.tests for clause in read_clauses()}
    found = []
    for name, mutant in chosen.items():
        problem = mutant.problem(ROOT)
        if problem is None and not first_tests(mutant, tests.get(mutant.clause, ())):
            problem = f"docs/conformance.md does not name {mutant.by} for {mutant.clause}"
        if problem is not None:
            found.append(f"{name} does not apply: {problem}")
    return found


def _clauses_without(chosen: Mapping[str, Mutant]) -> list[str]:
    have = {mutant.clause for mutant in chosen.values()}
    return [
        f"{clause.name} has no mutant" for clause in read_clauses() if clause.is_claimed and clause.name not in have
    ]


def _run(
    chosen: Mapping[str, Mutant], trees: Sequence[CopiedTree], problems: list[str], *, with_controls: bool
) -> dict[str, Result]:
    """Try everything that applies, in as many trees at a time as there are; more problems may be found."""
    clauses = {clause.name: clause.tests for clause in read_clauses()}
    useless = {problem.partition(" ")[0] for problem in problems}
    usable = {name: mutant for name, mutant in chosen.items() if name not in useless}
    baseline = Baseline(trees)
    baseline.run({test for mutant in usable.values() for test in first_tests(mutant, clauses[mutant.clause])}, _say)
    if with_controls:
        problems += failed_controls(trees[0])
    results: dict[str, Result] = {}
    lock = Lock()

    def run_one(name: str, tree: CopiedTree) -> None:
        mutant = usable[name]
        result = try_mutant(mutant, clauses[mutant.clause], tree, baseline)
        with lock:
            results[name] = result
            _say(f"{len(results)}/{len(usable)} {name} {result}")

    share_out(usable, trees, run_one)
    return results


def _show(chosen: Mapping[str, Mutant], results: Mapping[str, Result]) -> None:
    for name, mutant in chosen.items():
        result = results.get(name)
        status = "does not apply" if result is None else result.status.value
        how = "" if result is None else f" ({result.how})"
        sys.stdout.write(f"{name:6} {status:26} {mutant.breaks}{how}\n")


def _say(text: str) -> None:
    sys.stderr.write(f"mutants: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
