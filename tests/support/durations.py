"""Where the time of a run goes: seconds of CPU and of waiting, by file and by test (`make test-durations`).

On a machine with few cores CPU decides how long a run takes: sleeping tests run beside each other, computing ones do
not. Counted is what a test's own process and all processes below it used while the test ran, with its fixtures.
"""

from __future__ import annotations

import resource
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

CPU, WALL = "cpu_s", "wall_s"
FILES_SHOWN, TESTS_SHOWN = 60, 40
_TICKS_PER_S = 100


class Cost(NamedTuple):
    cpu_s: float = 0.0
    wall_s: float = 0.0
    tests: int = 0

    def __add__(self, other: object) -> Cost:
        assert isinstance(other, Cost)
        return Cost(self.cpu_s + other.cpu_s, self.wall_s + other.wall_s, self.tests + other.tests)

    def __str__(self) -> str:
        return f"{self.cpu_s:8.1f} {self.wall_s:8.1f} {self.tests:6}"


def used_cpu_s() -> float:
    """Of this process and of all that it started, whether they still run or not."""
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in own) + sum(map(_used_by, _children("self")))


def _children(pid: int | str) -> Iterator[int]:
    """Also those of other threads than the one that asks. Nothing where the kernel does not say it."""
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            yield from map(int, children.read_text().split())
        except OSError:
            continue  # the thread or the process has ended


def _used_by(pid: int) -> float:
    """What a running process, its ended children and its running children have used."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS_PER_S + sum(map(_used_by, _children(pid)))


class Durations:
    """A plugin: measures in the process that runs the tests, prints in the one that reports them."""

    def __init__(self) -> None:
        self._costs: dict[str, Cost] = defaultdict(Cost)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        self._began = (used_cpu_s(), time.monotonic())
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = (used_cpu_s(), time.monotonic())
        report.user_properties += [(CPU, now[0] - self._began[0]), (WALL, now[1] - self._began[1])]
        self._began = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        measured = {name: value for name, value in report.user_properties if isinstance(value, float)}
        self._costs[report.nodeid] += Cost(measured[CPU], measured[WALL], report.when == "call")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for title, length, shown in (("folder", 0, None), ("file", 1, FILES_SHOWN), ("test", 2, TESTS_SHOWN)):
            sums: dict[str, Cost] = defaultdict(Cost)
            for nodeid, cost in self._costs.items():
                file = nodeid.partition("::")[0]
                sums[(str(Path(file).parent), file, nodeid)[length]] += cost
            terminalreporter.section(f"seconds of CPU by {title}")
            terminalreporter.line(f"{'CPU s':>8} {'wall s':>8} {'tests':>6}")
            for name, cost in sorted(sums.items(), key=lambda each: -each[1].cpu_s)[:shown]:
                terminalreporter.line(f"{cost} {name}")
        terminalreporter.line(f"{sum(self._costs.values(), Cost())} all, without starting and collecting")
