"""Tests that need tool chains and packages of other languages: only `make test-languages` runs them."""

from __future__ import annotations

import pytest

LANGUAGES = "languages"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{LANGUAGES}: Node, Go, Java; only `make test-languages` runs them")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if LANGUAGES not in config.option.markexpr:
        left_out = [item for item in items if item.get_closest_marker(LANGUAGES) is not None]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.get_closest_marker(LANGUAGES) is None]
