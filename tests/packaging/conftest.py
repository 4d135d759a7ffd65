"""The archives that people install, built once for all tests below."""

from __future__ import annotations

import pytest
from archives import Archives, build

WHEEL = "wheel"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{WHEEL}: an empty virtualenv; only `make test-wheel` runs them")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What needs the network and a minute only where it is asked for."""
    if WHEEL not in config.option.markexpr:
        left_out = [item for item in items if item.get_closest_marker(WHEEL) is not None]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.get_closest_marker(WHEEL) is None]


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    return build(tmp_path_factory.mktemp("dist"))
