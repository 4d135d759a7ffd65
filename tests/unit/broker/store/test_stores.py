"""Both stores keep the contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from store_contract import StoreContract, WatchedStore, entity, insert

from twinbus.broker.store.api import CommitFailed, Committed, HeadRows, PutEntity, Report
from twinbus.broker.store.memory import MemoryStore
from twinbus.broker.store.sqlite import SqliteStore


class TestMemoryStore(StoreContract):
    def opened(self) -> WatchedStore:
        return WatchedStore(MemoryStore())

    def reopened(self, watched: WatchedStore) -> WatchedStore:
        watched.store.close()
        return WatchedStore(watched.store)


class TestSqliteStore(StoreContract):
    @pytest.fixture(autouse=True)
    def directory(self, tmp_path: Path) -> Iterator[None]:
        self._path = tmp_path / "store.db"
        self._open: list[SqliteStore] = []
        yield
        for store in self._open:
            store.close()

    def opened(self) -> WatchedStore:
        self._open.append(SqliteStore(self._path))
        return WatchedStore(self._open[-1])

    def reopened(self, watched: WatchedStore) -> WatchedStore:
        watched.store.close()
        return self.opened()


def test_by_hand_a_memory_store_commits_on_demand() -> None:
    store = MemoryStore(by_hand=True)
    watched = WatchedStore(store)
    watched.submit(PutEntity(entity()))
    watched.submit(insert(1))
    watched.submit(insert(2))
    assert watched.reports == []
    store.commit(2)
    assert watched.reports == [Committed(2)]
    assert len(watched.read(HeadRows(1, 0, 9, 9)).rows) == 1


def test_by_hand_a_memory_store_fails_on_demand() -> None:
    store = MemoryStore(by_hand=True)
    watched = WatchedStore(store)
    watched.submit(PutEntity(entity()))
    watched.submit(insert(1))
    store.fail("disk full")
    assert watched.reports == [CommitFailed(1, "disk full")]
    store.commit()
    assert watched.load().last_number == 0


def test_a_listener_of_a_memory_store_may_submit_and_hears_one_report_at_a_time() -> None:
    store = MemoryStore()
    heard: list[Report] = []
    inside = False

    def listen(report: Report) -> None:
        nonlocal inside
        assert not inside
        inside = True
        heard.append(report)
        if len(heard) < 5:
            store.submit(len(heard) + 1, ())
        inside = False

    store.load()
    store.start(listen)
    store.submit(1, ())
    assert heard == [Committed(number) for number in range(1, 6)]
