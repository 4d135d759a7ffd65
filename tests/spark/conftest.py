"""One Spark session for all tests below, in one process: they share a group for xdist."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE) and "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Made for little data, so without compiled stages; `bench.analytics` checks those against DuckDB."""
    from twinbus.spark.session import FOR_LITTLE_DATA, ensure_session

    session = ensure_session("local[2,4]", settings=FOR_LITTLE_DATA)
    yield session
    session.stop()
