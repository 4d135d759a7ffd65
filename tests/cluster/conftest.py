"""A cluster for all tests below. They take minutes, so only `make test-cluster` runs them."""

from __future__ import annotations

import pytest

CLUSTER = "cluster"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{CLUSTER}: a standalone Spark cluster; only `make test-cluster` runs them")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if CLUSTER not in config.option.markexpr:
        left_out = [item for item in items if item.get_closest_marker(CLUSTER) is not None]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.get_closest_marker(CLUSTER) is None]
