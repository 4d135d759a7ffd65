"""Stores on disk that are closed when the test is over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from store_contract import OpenStore, WatchedStore

from twinbus.broker.store.sqlite import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "store.db"


@pytest.fixture
def opened(path: Path) -> Iterator[OpenStore]:
    """Opens stores at `path` and closes them when the test is over."""
    stores: list[SqliteStore] = []

    def open_one(**options: Any) -> WatchedStore:
        stores.append(SqliteStore(path, **options))
        return WatchedStore(stores[-1])

    yield open_one
    for store in stores:
        store.close()
