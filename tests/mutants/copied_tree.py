"""A copy of the tree in which one mutant at a time is planted, and tests are run on what it then holds.

The copy is first on the path of Python, also for the processes that tests start (commands, Spark's workers): they
inherit `PYTHONPATH`. Compiled files are valid by the hash of their source only, so that none is taken for another.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from mutant import SOURCE, Mutant

THOROUGH = {"TWINBUS_EXAMPLES": "all"}
"""A mutant is to be noticed by tests as `make test-all` runs them."""
LEFT_OUT = (".venv", ".git", "build", "dist", "__pycache__", ".*_cache", ".hypothesis", ".twinbus", "*.egg-info")
TESTS_FAILED, NOTHING_RUN = 1, 5
LAST_WORDS = 600


@dataclass(frozen=True)
class Outcome:
    """What became of a run of tests."""

    seconds: float
    passed: dict[str, float] = field(default_factory=dict)
    """Tests as docs/conformance.md names them, and how long all their cases took together."""
    failed: frozenset[str] = frozenset()
    problem: str = ""
    """Why they could not be run, or not all of them."""
    is_over_time: bool = False


class CopiedTree:
    def __init__(self, origin: Path, folder: Path) -> None:
        self.root = folder / "tree"
        self._results = folder / "results.xml"
        self._running: int | None = None
        shutil.copytree(origin, self.root, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
        compiling = ("-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "src", "tests")
        subprocess.run([sys.executable, *compiling], cwd=self.root, check=True)

    @contextmanager
    def planted(self, mutant: Mutant) -> Iterator[None]:
        """The tree with this mutant in it, for a while."""
        path = self.root / SOURCE / mutant.file
        source = path.read_text(encoding="utf-8")
        path.write_text(mutant.applied_to(source), encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(source, encoding="utf-8")

    def run(self, tests: Sequence[str], *, test_s: float, all_s: float, to_the_end: bool = False) -> Outcome:
        """Run these tests until one fails, or all of them."""
        self._results.unlink(missing_ok=True)
        command = [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=line", "--show-capture=no"),
            *("--timeout", str(round(test_s)), f"--junitxml={self._results}", "-o", "junit_family=xunit1"),
            *("-m", "long or not long"),
            *(() if to_the_end else ("-x",)),
            *tests,
        ]
        started = time.monotonic()
        said, code = self._finish(command, all_s)
        seconds = time.monotonic() - started
        if code is None:
            return Outcome(seconds, problem=f"not done after {all_s:.0f} s", is_over_time=True)
        if not self._results.exists() or code not in (0, TESTS_FAILED):
            why = "no test was run" if code == NOTHING_RUN else f"pytest ended with {code}: {said[-LAST_WORDS:]}"
            return Outcome(seconds, problem=why)
        passed, failed = self._read_results()
        return Outcome(seconds, passed, failed)

    def _finish(self, command: list[str], all_s: float) -> tuple[str, int | None]:
        paths = [str(self.root / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"} | THOROUGH
        with subprocess.Popen(
            command,
            cwd=self.root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # so that what the tests started ends with them
        ) as process:
            self._running = process.pid
            try:
                said, _ = process.communicate(timeout=all_s)
                return said, process.returncode
            except subprocess.TimeoutExpired:
                return "", None
            finally:
                self.stop()

    def stop(self) -> None:
        """End the tests that run now, and whatever they have started."""
        if self._running is not None:
            _end_group(self._running)
            self._running = None

    def _read_results(self) -> tuple[dict[str, float], frozenset[str]]:
        passed: dict[str, float] = {}
        failed = set()
        for case in ElementTree.parse(self._results).getroot().iter("testcase"):
            name = f"{case.get('file')}::{(case.get('name') or '').partition('[')[0]}"
            if case.find("failure") is not None or case.find("error") is not None:
                failed.add(name)
            elif case.find("skipped") is None:
                passed[name] = passed.get(name, 0.0) + float(case.get("time") or 0)
        return {name: seconds for name, seconds in passed.items() if name not in failed}, frozenset(failed)


def _end_group(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
