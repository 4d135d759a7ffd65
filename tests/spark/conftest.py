"""One Spark session for all tests below, in one process: `tests/conftest.py` sees to that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
LARGE = "large"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{LARGE}: takes minutes; only `make test-ledger` runs them")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if LARGE not in config.option.markexpr:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker(LARGE) is not None])
        items[:] = [item for item in items if item.get_closest_marker(LARGE) is None]
    for item in items:
        if item.path.is_relative_to(HERE) and "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """Made for little data, so without compiled stages; `make test-ledger` has them."""
    from twinbus.spark.session import FOR_LITTLE_DATA, ensure_session

    is_large = LARGE in request.config.option.markexpr
    session = ensure_session("local[2,4]", settings={} if is_large else FOR_LITTLE_DATA)
    yield session
    session.stop()
