"""What the store on disk does when a commit or a read fails, and how it gets over it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from threading import Event

import pytest
from failing_store import Trouble
from power_cut import PowerCutDisk
from store_contract import EVERYTHING, MANY, OpenStore, WatchedStore, entity, insert, message, sequences_of

from twinbus.broker.store.api import (
    Committed,
    DropEntity,
    HeadRows,
    InsertMessages,
    PutEntity,
    RangeRows,
    ReadFailed,
)
from twinbus.broker.store.sql_connection import (
    CHECKPOINT_PAGES,
    PAGE_BYTES,
    SqlConnection,
    checkpoint_pages_for,
    default_connect,
    execute,
)
from twinbus.broker.store.sqlite import SqliteStore
from twinbus.errors import StoreDamaged, StoreError


@pytest.mark.parametrize("where", ["begin", "insert into messages", "insert into counters", "commit"])
def test_a_failed_commit_is_reported_once_and_loading_recovers_when_the_disk_does(
    opened: OpenStore, where: str
) -> None:
    trouble = Trouble()
    watched = opened(connect=trouble.connect)
    watched.commit(PutEntity(entity()), insert(1))
    trouble.fail_at(where)
    number = watched.submit(insert(2))
    assert watched.failure() == (number, "database or disk is full")
    watched.submit(insert(3))
    watched.submit(insert(4))
    if where != "insert into messages":
        with pytest.raises(StoreError, match="disk is full"):
            watched.store.load()
    trouble.heal()
    assert watched.load().last_number == number - 1
    assert watched.commit(insert(2)) == number
    assert sequences_of(watched.read(EVERYTHING)) == [1, 2]
    assert watched.committed() == [number]


def test_sqlite_itself_running_out_of_space_is_survived(path: Path, opened: OpenStore) -> None:
    limit: list[SqlConnection] = []

    def connect(path: Path) -> SqlConnection:
        limit.append(default_connect(path))
        return limit[-1]

    watched = opened(connect=connect)
    watched.commit(PutEntity(entity()), insert(1))
    execute(limit[0], "pragma max_page_count = 30")
    for sequence in range(2, 50):
        watched.submit(InsertMessages((message(sequence, payload=bytes(20_000)),)))
    failed = watched.failure()
    assert "full" in failed.reason
    execute(limit[0], "pragma max_page_count = 100000")
    assert watched.load().last_number == failed.number - 1
    watched.commit(insert(100))


def test_a_set_whose_sync_failed_does_not_come_back(path: Path) -> None:
    with PowerCutDisk(path.parent) as disk:
        store = SqliteStore(path, connect=disk.connect)
        watched = WatchedStore(store)
        watched.commit(PutEntity(entity()), insert(1))
        disk.refuses_syncs = True
        watched.submit(insert(2))
        watched.failure()
        with pytest.raises(StoreError):
            store.load()
        disk.refuses_syncs = False
        assert watched.load().last_number == 1
        disk.crash_into(path.parent.parent / "after")
        store.close()
    for reopened in (SqliteStore(path), SqliteStore(path.parent.parent / "after" / "store.db")):
        watched = WatchedStore(reopened)
        assert watched.loaded.last_number == 1
        assert sequences_of(watched.read(EVERYTHING)) == [1]
        reopened.close()


def test_a_failed_store_can_be_closed(path: Path, opened: OpenStore) -> None:
    trouble = Trouble()
    watched = opened(connect=trouble.connect)
    trouble.fail_at("commit")
    watched.submit(PutEntity(entity()))
    watched.failure()
    watched.store.close()
    trouble.heal()
    assert opened().loaded.last_number == 0


def test_a_read_that_fails_is_answered_and_the_next_one_works(opened: OpenStore) -> None:
    trouble = Trouble()
    watched = opened(connect=trouble.connect)
    watched.commit(PutEntity(entity()), insert(1))
    trouble.fail_at("\n")
    request = HeadRows(1, 0, 10, 10)
    watched.store.request(request)
    assert watched.wait_for(lambda report: isinstance(report, ReadFailed)) == ReadFailed(
        request, "database or disk is full"
    )
    trouble.heal()
    assert sequences_of(watched.read(request)) == [1]


def test_a_listener_that_raises_does_not_stop_the_store(path: Path) -> None:
    store, heard = SqliteStore(path), Event()

    def listen(report: object) -> None:
        if report == Committed(2):
            heard.set()
        raise RuntimeError("no")

    store.load()
    store.start(listen)
    store.submit(1, ())
    store.submit(2, ())
    store.close()
    assert heard.is_set()


# --- a full disk


def log_bytes(path: Path) -> int:
    return path.with_name("store.db-wal").stat().st_size


def test_loading_after_a_full_disk_gives_the_space_of_the_log_back(path: Path, opened: OpenStore) -> None:
    trouble = Trouble()
    watched = opened(connect=trouble.connect, checkpoint_pages=100_000)
    watched.commit(PutEntity(entity()))
    for at in range(100):
        watched.commit(InsertMessages((message(at + 1, payload=bytes(10_000)),)))
    assert log_bytes(path) > 1_000_000
    trouble.fail_at("commit")
    watched.submit(insert(101))
    watched.failure()
    trouble.heal()
    watched.load()
    assert log_bytes(path) < 10 * (PAGE_BYTES + 24)
    assert len(watched.read(EVERYTHING).rows) == 100


def test_a_log_that_cannot_be_emptied_does_not_keep_a_store_from_working(path: Path, opened: OpenStore) -> None:
    trouble = Trouble()
    watched = opened(connect=trouble.connect)
    watched.commit(PutEntity(entity()))
    trouble.fail_at("commit")
    watched.submit(insert(1))
    watched.failure()
    trouble.fail_at("pragma wal_checkpoint")
    watched.load()
    watched.commit(insert(1))


@pytest.mark.parametrize(
    ("disk_bytes", "log_bytes_max"),
    [(1 << 20, 1 << 19), (20 << 20, 1 << 19), (128 << 20, 2 << 20), (256 << 20, 4 << 20), (1 << 40, 4 << 20)],
)
def test_the_log_is_shorter_on_a_small_disk(disk_bytes: int, log_bytes_max: int) -> None:
    assert checkpoint_pages_for(disk_bytes) * PAGE_BYTES == log_bytes_max
    assert checkpoint_pages_for(disk_bytes) <= CHECKPOINT_PAGES


# --- damage


def fail_as_damaged(trouble: Trouble, start: str) -> None:
    def fail(sql: str) -> None:
        if sql.startswith(start):
            error = sqlite3.DatabaseError("database disk image is malformed")
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error

    trouble.on_statement = fail


def test_a_store_that_a_commit_has_found_damaged_is_not_written_to_again(path: Path, opened: OpenStore) -> None:
    trouble = Trouble()
    watched = opened(connect=trouble.connect)
    watched.commit(PutEntity(entity()), insert(1))
    fail_as_damaged(trouble, "insert into messages")
    watched.submit(insert(2))
    assert "malformed" in watched.failure().reason
    trouble.heal()
    for _ in range(3):
        with pytest.raises(StoreDamaged, match="malformed"):
            watched.store.load()
    assert sequences_of(watched.read(EVERYTHING)) == [1]


def test_a_queue_whose_rows_cannot_be_cleaned_away_hinders_nobody(path: Path, opened: OpenStore) -> None:
    trouble = Trouble()
    watched = opened(connect=trouble.connect)
    watched.commit(PutEntity(entity()), PutEntity(entity(2)), insert(*range(1, 1001)))
    fail_as_damaged(trouble, "delete from messages where rowid in (select rowid")
    watched.commit(DropEntity(1))
    watched.commit(insert(1, entity_id=2))
    assert watched.load().summaries[2].active == 1
    watched.commit(insert(2, entity_id=2))  # meets the same rows again
    assert sequences_of(watched.read(RangeRows(2, 0, MANY, MANY))) == [1, 2]
    trouble.heal()
