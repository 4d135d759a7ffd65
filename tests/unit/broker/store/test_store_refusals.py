"""What a store refuses when it is opened, and that a refused file is left as it was."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from store_contract import MANY, WatchedStore, entity, insert, message, sequences_of

from twinbus.broker.store import format as soundness
from twinbus.broker.store.api import (
    STORE_FORMAT,
    InsertMessages,
    MessageState,
    PutEntity,
    PutSessionState,
    RangeRows,
    ReadFailed,
)
from twinbus.broker.store.format import read_first_page
from twinbus.broker.store.sql_connection import PAGE_BYTES
from twinbus.broker.store.sqlite import SqliteStore
from twinbus.errors import StoreDamaged, StoreError, StoreTooNew

GARBAGE = b"\x55" * PAGE_BYTES


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "store.db"


def closed_store(path: Path, *, rows: int = 199) -> bytes:
    """Leave a store with some rows at the path; returns the bytes of its file."""
    store = SqliteStore(path)
    watched = WatchedStore(store)
    watched.commit(PutEntity(entity()), PutEntity(entity(2, path="bills")))
    for entity_id in (1, 2):
        some = [message(at, entity_id=entity_id, payload=bytes(2000)) for at in range(1, rows + 1)]
        watched.commit(InsertMessages(tuple(some)))
    store.close()
    path.with_name("store.db.lock").unlink()
    return path.read_bytes()


def contents(directory: Path) -> dict[str, bytes]:
    """All files but the lock, which is ours, and the shared memory, which is nobody's."""
    files = [file for file in directory.iterdir() if not file.name.endswith((".lock", "-shm"))]
    return {file.name: file.read_bytes() for file in files}


def refusal(path: Path) -> StoreError:
    """The error with which the store is refused; its files are as before."""
    before = contents(path.parent)
    with pytest.raises(StoreError) as caught:
        SqliteStore(path).load()
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert contents(path.parent) == before
    return caught.value


def crash(connection: sqlite3.Connection, path: Path) -> None:
    """Leave the files as a crash would: with a log."""
    kept = contents(path.parent)
    assert kept[path.name + "-wal"]
    connection.close()
    shutil.rmtree(path.parent)
    path.parent.mkdir()
    for name, content in kept.items():
        (path.parent / name).write_bytes(content)


# --- no store at all


@pytest.mark.parametrize("content", [b"x", b"SQLite", b"not a database at all\n" * 500, bytes(8192)])
def test_a_file_that_is_no_database_is_refused_untouched(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert isinstance(refusal(path), StoreDamaged)


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_database_of_somebody_else_is_refused_untouched(path: Path, mode: str) -> None:
    other = sqlite3.connect(path)
    other.execute(f"pragma journal_mode = {mode}")
    other.execute("create table theirs (x)")
    other.close()
    error = refusal(path)
    assert isinstance(error, StoreDamaged)
    assert "not of twinbus" in str(error)


def test_a_database_of_somebody_else_that_is_still_in_its_log_is_refused_untouched(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("pragma journal_mode = wal")
    other.execute("create table theirs (x)")
    crash(other, path)
    assert "not of twinbus" in str(refusal(path))


def test_an_empty_file_is_taken_for_a_store_whose_making_was_cut_off(path: Path) -> None:
    path.touch()
    store = SqliteStore(path)
    assert store.load().entities == ()
    store.close()


def test_an_empty_file_whose_log_is_not_empty_is_refused_untouched(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("pragma journal_mode = wal")
    connection.execute("create table ours (x)")
    crash(connection, path)
    path.write_bytes(b"")
    assert "its log" in str(refusal(path))


# --- formats


def test_a_store_of_a_newer_twinbus_is_refused_untouched(path: Path) -> None:
    closed_store(path)
    newer = sqlite3.connect(path)
    newer.execute("pragma user_version = 99")
    newer.close()
    error = refusal(path)
    assert isinstance(error, StoreTooNew)
    assert "99" in str(error)


def test_a_newer_format_that_is_still_in_the_log_is_refused_untouched(path: Path) -> None:
    closed_store(path)
    newer = sqlite3.connect(path, isolation_level=None)
    newer.execute("pragma user_version = 99")
    newer.execute("update counters set value = value + 1")
    crash(newer, path)
    assert isinstance(refusal(path), StoreTooNew)


def test_a_format_in_a_transaction_that_was_not_committed_counts_for_nothing(path: Path) -> None:
    closed_store(path)
    newer = sqlite3.connect(path, isolation_level=None)
    newer.execute("pragma cache_size = 1")  # what does not fit goes to the log at once
    newer.execute("update counters set value = value")
    newer.execute("begin")
    newer.execute("pragma user_version = 99")
    newer.execute("update messages set payload = zeroblob(3000)")
    kept = contents(path.parent)
    newer.execute("rollback")
    newer.close()
    for name, content in kept.items():
        (path.parent / name).write_bytes(content)
    assert read_first_page(path).format == STORE_FORMAT
    store = SqliteStore(path)
    assert store.load().summaries[1].active == 199
    store.close()


def test_the_first_page_is_read_as_sqlite_reads_it_while_the_log_goes_round(path: Path) -> None:
    closed_store(path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("pragma wal_autocheckpoint = 5")
    for number in range(2, 60):
        connection.execute(f"pragma user_version = {number}")
        connection.execute("update messages set delivery_count = delivery_count + 1 where sequence < ?", (number % 7,))
        assert read_first_page(path).format == number
    connection.close()
    assert read_first_page(path).format == 59


# --- damage


@pytest.mark.parametrize("length", [50, PAGE_BYTES, 3 * PAGE_BYTES, -PAGE_BYTES])
def test_a_truncated_store_is_refused_untouched(path: Path, length: int) -> None:
    path.write_bytes(closed_store(path)[:length])
    assert isinstance(refusal(path), StoreDamaged)


@pytest.mark.parametrize("bad", [GARBAGE, bytes(PAGE_BYTES)], ids=["garbage", "zeros"])
def test_a_store_with_one_damaged_page_is_refused_untouched_whichever_it_is(path: Path, bad: bytes) -> None:
    whole = closed_store(path, rows=30)
    pages = len(whole) // PAGE_BYTES
    assert pages > 20
    for number in range(1, pages):
        start = number * PAGE_BYTES
        path.write_bytes(whole[:start] + bad + whole[start + PAGE_BYTES :])
        assert isinstance(refusal(path), StoreDamaged), f"page {number + 1}"


def test_damage_that_no_start_has_found_is_reported_by_the_reads_that_meet_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a store that is too large to be looked through."""
    closed_store(path)
    damage_first_queue(path)
    monkeypatch.setattr(soundness, "CHECK_BYTES_MAX", 0)
    watched = WatchedStore(SqliteStore(path))
    request = RangeRows(1, 0, MANY, MANY)
    for _ in range(3):
        watched.reports.clear()
        watched.store.request(request)
        failed = watched.wait_for(lambda report: isinstance(report, ReadFailed))
        assert isinstance(failed, ReadFailed)
        assert (failed.request, failed.is_damage) == (request, True)
        assert "malformed" in failed.reason
    assert len(watched.read(RangeRows(2, 0, MANY, MANY)).rows) == 199
    watched.commit(insert(200), insert(200, entity_id=2))
    assert sequences_of(watched.read(RangeRows(1, 200, MANY, MANY))) == [200]
    watched.store.close()


@pytest.mark.parametrize("kind", ["states", "line"])
def test_damage_where_nobody_has_to_read_at_the_start_hinders_no_start(
    path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    watched = WatchedStore(SqliteStore(path))
    watched.commit(PutEntity(entity()))
    body = b"id-7" + bytes(3_000)
    if kind == "states":
        watched.commit(*[PutSessionState(1, f"s{number}", body, 0) for number in range(9)])
    else:
        rows = [message(at, state=MessageState.SCHEDULED, due_at_ms=0, payload=body) for at in range(1, 10)]
        watched.commit(InsertMessages(tuple(rows)))
    watched.store.close()
    damage_first_queue(path)
    monkeypatch.setattr(soundness, "CHECK_BYTES_MAX", 0)
    store = SqliteStore(path)
    summary = store.load().summaries[1]
    store.close()
    assert (summary.states, summary.due_at_once) == ((9, 0) if kind == "states" else (0, 9))
    assert (summary.due_at_once_bytes, summary.state_bytes) == (summary.payload_bytes, 18 if kind == "states" else 0)


def damage_first_queue(path: Path) -> None:
    """Overwrite the page that row 7 of the first queue is on."""
    whole = path.read_bytes()
    start = whole.index(b"id-7") // PAGE_BYTES * PAGE_BYTES
    path.write_bytes(whole[:start] + GARBAGE + whole[start + PAGE_BYTES :])


# --- the disk


STARTS_ON_A_SMALL_DISK = """
import resource, sys
from pathlib import Path
from twinbus.errors import StoreError
from twinbus.broker.store.sqlite import SqliteStore
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
store = SqliteStore(Path(sys.argv[1]))
try:
    store.load()
    store.start(print)
    print("started")
except StoreError as error:
    print(error)
store.close()
"""


@pytest.mark.parametrize("file_bytes", [0, 4096, PAGE_BYTES, 20_000, 50_000])
def test_a_disk_that_takes_no_more_while_a_store_is_made_is_named_as_the_reason(path: Path, file_bytes: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STARTS_ON_A_SMALL_DISK, str(path), str(file_bytes)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "I/O error" in done.stdout or "full" in done.stdout or "file too large" in done.stdout, done
    assert "rollback" not in done.stdout
    store = SqliteStore(path)  # with more room it works
    assert store.load().last_number == 0
    store.start(lambda report: None)
    store.close()


def test_a_disk_that_takes_no_writes_is_noticed_at_the_start(path: Path) -> None:
    closed_store(path)
    done = subprocess.run(
        [sys.executable, "-c", STARTS_ON_A_SMALL_DISK, str(path), "0"], capture_output=True, text=True, check=True
    )
    assert "cannot be used" in done.stdout
    assert str(path) in done.stdout


def test_a_store_is_not_written_to_before_it_is_started(path: Path) -> None:
    before = closed_store(path)
    for _ in range(3):
        store = SqliteStore(path)
        store.load()
        store.close()
    assert path.read_bytes() == before
