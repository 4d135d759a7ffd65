"""One Spark session for all tests below, in one process: `tests/conftest.py` sees to that."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from twinbus.spark.jvm import stderr_tail

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from scripted_ledger import Scenario

    from twinbus.spark.compaction.compaction import CompactedLedger
    from twinbus.spark.jobs.findings import Findings

HERE = Path(__file__).parent
LARGE = "large"
WORDS_MAX = 4_000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):  # those without the session as well: some start a JVM in another process
            is_large = item.get_closest_marker(LARGE) is not None
            # A mark of its own goes before this one. Who is stopped in a call of the JVM spoils it for all that follow.
            item.add_marker(pytest.mark.timeout(1_800 if is_large else 300))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and (words := stderr_tail()):
        report.sections.append(("What the JVM said", words[-WORDS_MAX:]))
    return report


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """Made for little data, so without compiled stages; `make test-ledger` has them."""
    from twinbus.spark.session import FOR_LITTLE_DATA, ensure_session

    is_large = LARGE in request.config.option.markexpr
    session = ensure_session("local[2,4]", settings={} if is_large else FOR_LITTLE_DATA)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def scenario() -> Scenario:
    """What happened to fifteen hundred messages."""
    from scripted_ledger import make_scenario

    return make_scenario(7, 1500)


@pytest.fixture(scope="session")
def compacted(scenario: Scenario, tmp_path_factory: pytest.TempPathFactory) -> CompactedLedger:
    """The ledger of the scenario."""
    from twinbus.spark.compaction.compaction import compact_ledger, read_in_process

    directory = tmp_path_factory.mktemp("ledger")
    scenario.write(directory)
    return compact_ledger(read_in_process, directory)


@pytest.fixture(scope="session")
def findings(spark: SparkSession, compacted: CompactedLedger) -> Findings:
    """What a report finds in it."""
    from twinbus.cost.prices import Prices
    from twinbus.spark.jobs.analysis import analyse

    return analyse(spark, compacted, Prices(), horizon_min=15, tell=lambda _: None)
