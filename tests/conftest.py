"""Which worker runs which test, and which examples property tests try."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import re
import tempfile
import tracemalloc  # noqa: F401  pytest imports it when an object is collected, and fails if that happens again meanwhile
from collections.abc import Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest
from durations import Durations
from hypothesis import HealthCheck, settings
from object_store import s3, s3_environment  # noqa: F401  fixtures
from steady_parsing import parse_again_if_disturbed

from twinbus import testing
from twinbus.control.local_register import RUN_VARIABLE
from twinbus.spark.class_archive import NEVER_VARIABLE

BOTH = ("threads", "tasks")
"""The clients, as tests call them."""

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

LONGEST = (
    "tests/spark/",
    "with_spark",
    "docs/test_shell_blocks.py",
    "docs/test_tutorial.py",
    "test_crash",
    "test_json_forms.py",
    "test_attacks.py",
    "test_demo.py",
    "docs/test_pages.py",
    "tests/sim/",
)
"""Begin first, so that nothing long is still running when everything else is done."""

# The same examples at each run, so that a change fails its own tests only. `make test-search` looks for new ones.
# No limits of time: they would judge the machine.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("all", _PATIENT, derandomize=True, database=None)
settings.register_profile("steady", settings.get_profile("all"), max_examples=40)
settings.register_profile("search", _PATIENT, max_examples=1_000, print_blob=True)
settings.load_profile(os.environ.get("TWINBUS_EXAMPLES", "steady"))


OWN_TARGETS = {
    "long": "takes long for what it adds to the others; `make test-long`",
    "entities": "pairing with every kind of entity; `make test-entities`",
    "cluster": "a standalone Spark cluster; `make test-cluster`",
    "stream": "a stream that consumes on a Spark cluster; `make test-stream`",
    "large": "ledgers that take minutes; `make test-ledger`",
    "wheel": "an empty virtualenv; `make test-wheel`",
    "sdk_versions": "the oldest and the newest version of the official SDK; `make test-sdk-versions`",
    "console": "a console's pages in Chromium; `make test-console`",
    "languages": "official clients in four languages; `make test-languages`",
}
"""Marks of tests that `make test` leaves out, and what runs them. `make test-all` runs everything."""
SAMPLE = "sample"
RUN = pytest.StashKey[tempfile.TemporaryDirectory[str]]()
TESTS = count()
CLIENTS = ("both", "flavour")
"""Parameters that say which client a test uses: that on threads or that on tasks."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu", action="store_true", help="show the CPU time of folders, files and tests")


def pytest_configure(config: pytest.Config) -> None:
    parse_again_if_disturbed()
    config.stash[RUN] = run = tempfile.TemporaryDirectory(prefix="twinbus-run-")
    os.environ[RUN_VARIABLE] = run.name
    if os.environ.get("TWINBUS_SEEDS") != "all":  # else each namespace reads 300 certificates of others
        testing._trusted_by_default = list
    os.environ[NEVER_VARIABLE] = "1"
    if hasattr(config, "workerinput"):
        atexit.register(os._exit, 0)  # the last of all: taking apart what was collected took two seconds of each worker
    gc.disable()  # nothing that is read while tests are collected is garbage
    if config.option.cpu:
        config.pluginmanager.register(Durations())
    for mark, what in OWN_TARGETS.items():
        config.addinivalue_line("markers", f"{mark}: {what}")
    config.addinivalue_line("markers", f"{SAMPLE}(count): so many of its cases, the others are long")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what has a target of its own, unless `-m` names its mark."""
    for item in _others_of_samples(items):
        item.add_marker("long")
    named = set(config.option.markexpr.split())
    left_out = {item for item in items if not _targets(item) <= named}
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and not _uses_spark_session(item.path):
            raise pytest.UsageError(f"{item.path} would start one more JVM: _uses_spark_session does not know it")
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: next((n for n, part in enumerate(LONGEST) if part in item.nodeid), len(LONGEST)))


def pytest_collection_finish() -> None:
    """What was collected stays until the process ends: pytest would look at it ten times before."""
    gc.freeze()
    atexit.register(gc.unfreeze)
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Proxies and spools of one test are unknown to the next: spools stay registered while their folders are there."""
    os.environ[RUN_VARIABLE] = str(Path(item.config.stash[RUN].name, f"{next(TESTS)}"))


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[RUN].cleanup()


def _targets(item: pytest.Item) -> set[str]:
    """What runs a test that `make test` leaves out; one that is not only long has the other target."""
    targets = {mark.name for mark in item.iter_markers()} & OWN_TARGETS.keys()
    return targets - {"long"} if len(targets) > 1 else targets


def _others_of_samples(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Cases that show hardly more than the others do.

    Of a test that is written once for both clients, the client whose turn it is not. Of one with a mark `sample`, all
    but that many, which are spread over the whole.
    """
    cases: dict[tuple[Path, str], list[pytest.Item]] = {}
    for item in items:
        name = getattr(item, "originalname", item.name)
        client = next((value for key, value in _parameters(item).items() if key in CLIENTS), None)
        if client in BOTH and client != BOTH[crc32(name.encode()) % len(BOTH)]:
            yield item
        elif item.get_closest_marker(SAMPLE) is not None:
            cases.setdefault((item.path, name), []).append(item)
    for each in cases.values():
        mark = each[0].get_closest_marker(SAMPLE)
        assert mark is not None
        shown_count = min(mark.args[0], len(each))
        shown = {number * len(each) // shown_count for number in range(shown_count)}
        yield from (item for number, item in enumerate(each) if number not in shown)


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Without what libraries log: threads of the official SDK do so after the test that started them has ended."""

    def is_ours(record: logging.LogRecord) -> bool:
        return record.name.partition(".")[0] in ("twinbus", "asyncio")

    caplog.handler.addFilter(is_ours)
    yield caplog
    caplog.handler.removeFilter(is_ours)


def _parameters(item: pytest.Item) -> dict[str, object]:
    return getattr(getattr(item, "callspec", None), "params", {})


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Every test by itself, the longest first; but the tests of a file that share something in one worker.

    So it is made once. All that need Spark are in one worker, with one session: the first report in a session uses as
    much CPU as the next four, because the JVM has still to load and compile.

    The groups of `--dist loadgroup` would do the same, but are lost with some versions of pytest.
    """
    from xdist.scheduler import LoadScopeScheduling

    class LongestFirst(LoadScopeScheduling):  # type: ignore[misc]  # untyped
        def _split_scope(self, nodeid: str) -> str:
            file = config.rootpath / nodeid.partition("::")[0]
            if "with_spark" in nodeid or _uses_spark_session(file):
                return "spark"
            return str(file) if _shares_something(file) else nodeid

    config.option.loadscopereorder = False  # it means: by the number of their tests
    return LongestFirst(config, log)


@cache
def _uses_spark_session(file: Path) -> bool:
    """Whether the file has a test with a fixture of `tests/spark/conftest.py` that needs a session."""
    asks = re.compile(r"""def \w+\([^)]*\b(?:spark|findings):|usefixtures\([^)]*"spark\"""")
    return asks.search(file.read_text(encoding="utf-8")) is not None


@cache
def _shares_something(file: Path) -> bool:
    """A fixture, a server for object storage, or what a function found that remembers it."""
    text = file.read_text(encoding="utf-8")
    return any(sign in text for sign in ('scope="module"', "\n@cache\n", '"s3"'))
